/* The URL that is asked, and the first line of the answer. SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "cli/health.h"
#include "cmocka_all.h"

static void test_a_url_comes_apart(void **state)
{
    static const struct {
        const char *text, *host, *port, *target, *authority;
    } cases[] = {
        {"http://db", "db", "80", "/", "db"},
        {"HTTP://db:81", "db", "81", "/", "db:81"},
        {"http://127.0.0.1:8081/health", "127.0.0.1", "8081", "/health", "127.0.0.1:8081"},
        {"http://[::1]:8081/a/b?c=d#e", "::1", "8081", "/a/b?c=d", "[::1]:8081"},
        {"http://[fd00::2]", "fd00::2", "80", "/", "[fd00::2]"},
        {"http://h?x=1", "h", "80", "/?x=1", "h"},
        {"http://h#top", "h", "80", "/", "h"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_url url;
        struct error err;

        assert_true(health_url_parse(cases[i].text, &url, &err));
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.port, cases[i].port);
        assert_string_equal(url.target, cases[i].target);
        assert_string_equal(url.authority, cases[i].authority);
    }
}

static void test_anything_else_is_refused(void **state)
{
    static const char *const cases[] = {
        "",
        "http://",
        "http:///health",
        "https://h/",
        "ftp://h/",
        "h:80/health",
        "http://user:password@h/",
        "http://h:0/",
        "http://h:65536/",
        "http://h:/",
        "http://h:8o/",
        "http://[::1/",
        "http://[::1]8081/",
        "http://[]/",
        "http://::1/",
        "http://h/a b",
        "http://h/\r\nX: y",
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_url url;
        struct error err = {""};

        assert_false(health_url_parse(cases[i], &url, &err));
        assert_memory_equal(err.text, "the URL must ", 13);
        assert_null(strstr(err.text, "password"));
    }
}

static void test_a_url_of_any_length_is_safe(void **state)
{
    enum { LONG = 5000 };
    char *text = malloc(LONG + 1);

    (void)state;
    assert_non_null(text);
    for (size_t size = 7; size <= LONG; size += 1 + size / 50) {
        struct health_url url;
        struct error err;

        memset(text, 'h', size);
        text[size] = '\0';
        memcpy(text, "http://", 7);
        (void)health_url_parse(text, &url, &err);
        if (size > 9) {
            text[8] = '/';
            (void)health_url_parse(text, &url, &err);
        }
    }
    free(text);
}

static void test_the_status_is_read_from_a_whole_status_line_only(void **state)
{
    static const struct {
        const char *head;
        int status;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\n", 200}, {"HTTP/1.0 503 \r\n", 503},
        {"HTTP/1.1 204\r\n", 204},    {"HTTP/1.1 20", 0},
        {"HTTP/1.1 2000 OK\r\n", 0},  {"HTTP/2 200 OK\r\n\r\n", 0},
        {"SSH-2.0-OpenSSH_9.2p1", 0}, {"", 0},
        {"HTTP/1.1 abc d\r\n", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(health_status_parse(cases[i].head, strlen(cases[i].head)),
                         cases[i].status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_url_comes_apart),
        cmocka_unit_test(test_anything_else_is_refused),
        cmocka_unit_test(test_a_url_of_any_length_is_safe),
        cmocka_unit_test(test_the_status_is_read_from_a_whole_status_line_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

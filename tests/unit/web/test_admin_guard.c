#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "web/admin_guard_internal.h"

static const struct admin_names names = {
    .address = "10.1.2.3", .host_name = "weir-7", .reached_at = "fd00::2"};

static void test_loopback_addresses_are_known_as_such(void **state)
{
    static const char *const yes[] = {"localhost",   "LOCALHOST", "127.0.0.1",
                                      "127.255.0.9", "::1",       "0:0:0:0:0:0:0:1"};
    static const char *const no[] = {"0.0.0.0",           "::",     "128.0.0.1", "localhost.evil",
                                     "127.0.0.1.example", "1.27.0", "",          "weir"};

    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        assert_true(admin_address_is_loopback(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        assert_false(admin_address_is_loopback(no[i]));
}

static void test_a_host_is_known_by_our_names_alone(void **state)
{
    static const char *const yes[] = {
        "localhost",  "localhost:8081", "LocalHost.:8081", "127.0.0.1:1",
        "[::1]:8081", "[::1]",          "10.1.2.3:8081",   "10.1.2.3",
        "WEIR-7",     "weir-7.",        "[fd00::2]:8081",  "[fd00:0::2]",
        "api:8081",   "weir.test",      "a.b.LOCALHOST:1", "weir.example",
    };
    static const char *const no[] = {
        "",
        "evil.com",
        "evil.com:8081",
        "localhost.evil.com",
        "10.1.2.4",
        ".test",
        "weirtest.com",
        "weir-7:",
        "weir-7:x",
        "weir-7:123456",
        "[::1",
        "[]:1",
        "[::1]x",
        ":8081",
        "localhost:8081:8081",
        "127.0.0.1.evil.com",
        "[fd00::3]",
        "localhost ",
        "user@localhost",
        "localhost/",
        "fd00::2",
    };

    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        assert_true(admin_host_is_known(yes[i], &names));
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        assert_false(admin_host_is_known(no[i], &names));
    assert_false(admin_host_is_known(NULL, &names));
}

static void test_an_unknown_name_of_ours_matches_nothing(void **state)
{
    static const struct admin_names nameless = {
        .address = "0.0.0.0", .host_name = "", .reached_at = NULL};
    char longer[400];

    (void)state;
    assert_false(admin_host_is_known("", &nameless));
    assert_false(admin_host_is_known("weir-7.com", &nameless));
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_false(admin_host_is_known(longer, &nameless));
}

/* A file with this text; its name is in `out_path`, to be unlinked. */
static void file_write(char out_path[64], const char *text, size_t size)
{
    int fd;

    (void)snprintf(out_path, 64, "/tmp/weir-token-XXXXXX");
    fd = mkstemp(out_path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, size), size);
    assert_int_equal(close(fd), 0);
}

static enum token_verdict check_against(const char *text, const char *authorization)
{
    char path[64];
    enum token_verdict verdict;

    file_write(path, text, strlen(text));
    verdict = admin_token_check(authorization, path);
    assert_int_equal(unlink(path), 0);
    return verdict;
}

static void test_the_token_must_be_the_whole_token(void **state)
{
    (void)state;
    assert_int_equal(check_against("secret\n", "Bearer secret"), TOKEN_RIGHT);
    assert_int_equal(check_against("secret\r\n", "bearer  secret"), TOKEN_RIGHT);
    assert_int_equal(check_against("secret", "Bearer secret"), TOKEN_RIGHT);
    assert_int_equal(check_against("secret", "Bearer secreT"), TOKEN_WRONG);
    assert_int_equal(check_against("secret", "Bearer secre"), TOKEN_WRONG);
    assert_int_equal(check_against("secret", "Bearer secretsecret"), TOKEN_WRONG);
    assert_int_equal(check_against("secret", "Bearer "), TOKEN_WRONG);
    assert_int_equal(check_against("secret", "Basic secret"), TOKEN_WRONG);
    assert_int_equal(check_against("secret", "secret"), TOKEN_WRONG);
    assert_int_equal(check_against("secret", NULL), TOKEN_WRONG);
}

static void test_a_file_without_a_token_lets_nobody_in(void **state)
{
    char path[64];
    char text[5000];

    (void)state;
    assert_int_equal(check_against("", "Bearer "), TOKEN_UNREADABLE);
    assert_int_equal(check_against("\n\n", "Bearer "), TOKEN_UNREADABLE);
    assert_int_equal(admin_token_check("Bearer x", "/tmp"), TOKEN_UNREADABLE);
    assert_int_equal(admin_token_check("Bearer x", "/nowhere/token"), TOKEN_UNREADABLE);
    memset(text, 'a', sizeof text);
    file_write(path, text, sizeof text);
    assert_int_equal(admin_token_check("Bearer a", path), TOKEN_UNREADABLE);
    assert_int_equal(unlink(path), 0);
}

static void test_each_mode_is_understood(void **state)
{
    static const struct {
        const char *body;
        enum breaker_mode mode;
    } cases[] = {
        {"{\"mode\":\"auto\"}", BREAKER_AUTO},
        {" { \"mode\" : \"forced-open\" } ", BREAKER_FORCED_OPEN},
        {"{\"mode\":\"disabled\"}", BREAKER_DISABLED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum breaker_mode mode = BREAKER_MODE_COUNT;
        struct error err;

        assert_true(admin_mode_parse(cases[i].body, strlen(cases[i].body), &mode, &err));
        assert_int_equal(mode, cases[i].mode);
    }
}

static void test_a_wrong_body_is_refused_in_words(void **state)
{
    static const struct {
        const char *body, *words;
    } cases[] = {
        {"", "not JSON"},
        {"{", "not JSON"},
        {"{\"mode\":\"auto\"} x", "not JSON"},
        {"{\"mode\":\"auto\",\"mode\":\"auto\"}", "not JSON"},
        {"[]", "\"mode\" alone"},
        {"\"auto\"", "not JSON"},
        {"{}", "\"mode\" alone"},
        {"{\"mode\":1}", "\"mode\" alone"},
        {"{\"mode\":null}", "\"mode\" alone"},
        {"{\"mode\":\"auto\",\"x\":1}", "\"mode\" alone"},
        {"{\"mode\":\"nonsense\"}", "must be auto, forced-open or disabled"},
        {"{\"mode\":\"\"}", "must be auto, forced-open or disabled"},
        {"{\"mode\":\"shadow\"}", "not supported yet"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum breaker_mode mode = BREAKER_MODE_COUNT;
        struct error err;

        assert_false(admin_mode_parse(cases[i].body, strlen(cases[i].body), &mode, &err));
        assert_non_null(strstr(err.text, cases[i].words));
        assert_int_equal(mode, BREAKER_MODE_COUNT);
    }
}

static void test_no_body_is_no_json(void **state)
{
    enum breaker_mode mode;
    struct error err;

    (void)state;
    assert_false(admin_mode_parse(NULL, 0, &mode, &err));
    assert_non_null(strstr(err.text, "not JSON"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loopback_addresses_are_known_as_such),
        cmocka_unit_test(test_a_host_is_known_by_our_names_alone),
        cmocka_unit_test(test_an_unknown_name_of_ours_matches_nothing),
        cmocka_unit_test(test_the_token_must_be_the_whole_token),
        cmocka_unit_test(test_a_file_without_a_token_lets_nobody_in),
        cmocka_unit_test(test_each_mode_is_understood),
        cmocka_unit_test(test_a_wrong_body_is_refused_in_words),
        cmocka_unit_test(test_no_body_is_no_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

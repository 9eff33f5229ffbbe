/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cmocka_all.h"
#include "web/cors_internal.h"

static char first[] = "https://a.example", second[] = "http://localhost:3000", any[] = "*";

static struct raw_text raw(const char *text)
{
    return (struct raw_text){text, strlen(text)};
}

static void test_only_listed_origins_are_allowed(void **state)
{
    char *origins[] = {first, second};

    (void)state;
    assert_string_equal(cors_allowed_origin(origins, 2, raw("http://localhost:3000")), second);
    assert_null(cors_allowed_origin(origins, 2, raw("https://a.example.evil")));
    assert_null(cors_allowed_origin(origins, 2, raw("http://a.example")));
    assert_null(cors_allowed_origin(origins, 2, raw("null")));
    assert_null(cors_allowed_origin(origins, 2, (struct raw_text){0}));
    assert_null(cors_allowed_origin(origins, 0, raw("https://a.example")));
}

static void test_a_star_allows_all(void **state)
{
    char *origins[] = {any};

    (void)state;
    assert_string_equal(cors_allowed_origin(origins, 1, raw("https://b.example")), "*");
}

static void test_only_a_list_of_names_is_given_back(void **state)
{
    char text[1100];

    (void)state;
    assert_true(cors_is_token_list(raw("content-type")));
    assert_true(cors_is_token_list(raw("content-type, x-request-id ,x-a")));
    assert_false(cors_is_token_list(raw("")));
    assert_false(cors_is_token_list(raw("a,,b")));
    assert_false(cors_is_token_list(raw("a,")));
    assert_false(cors_is_token_list(raw("a b")));
    assert_false(cors_is_token_list(raw("a\r\nSet-Cookie: b")));
    assert_false(cors_is_token_list((struct raw_text){0}));
    memset(text, 'a', sizeof text);
    assert_false(cors_is_token_list((struct raw_text){text, sizeof text}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_listed_origins_are_allowed),
        cmocka_unit_test(test_a_star_allows_all),
        cmocka_unit_test(test_only_a_list_of_names_is_given_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

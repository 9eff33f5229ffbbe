/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cmocka_all.h"
#include "web/accept_internal.h"

static void test_json_is_sent_to_whoever_takes_it(void **state)
{
    static const struct {
        const char *accept;
        bool is_allowed;
    } cases[] = {
        {"", true},
        {" , ", true},
        {"*/*", true},
        {"application/*", true},
        {"application/json", true},
        {"Application/JSON; charset=utf-8", true},
        {"text/html, application/xhtml+xml, */*;q=0.8", true},
        {"application/json;q=0.001", true},
        {"application/json; q=1.000", true},
        {"application/json;q=nonsense", true},
        {"text/csv", false},
        {"application/x-ndjson", false},
        {"application/problem+json", false},
        {"application/json;q=0", false},
        {"application/json;q=0.0, */*", false},
        {"*/*, application/json ; Q=0", false},
        {"application/*;q=0, */*;q=1", false},
        {"application/*;q=0, application/json", true},
        {"*/*;q=0", false},
        {"json", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct accept accept = {0};

        accept_add(&accept, (struct raw_text){cases[i].accept, strlen(cases[i].accept)});
        if (accept_allows_json(&accept) != cases[i].is_allowed)
            fail_msg("%s", cases[i].accept);
    }
}

static void test_no_header_takes_anything(void **state)
{
    struct accept accept = {0};

    (void)state;
    assert_true(accept_allows_json(&accept));
}

static void test_several_headers_are_one_list(void **state)
{
    struct accept accept = {0};

    (void)state;
    accept_add(&accept, (struct raw_text){"text/csv", 8});
    assert_false(accept_allows_json(&accept));
    accept_add(&accept, (struct raw_text){"application/json", 16});
    assert_true(accept_allows_json(&accept));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_is_sent_to_whoever_takes_it),
        cmocka_unit_test(test_no_header_takes_anything),
        cmocka_unit_test(test_several_headers_are_one_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

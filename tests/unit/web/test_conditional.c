/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "web/conditional_internal.h"

/* The list lies in memory of its own size, so that a sanitizer sees what is read behind it. */
static bool names(const char *list, const char *etag)
{
    size_t size_bytes = strlen(list);
    char *copy = malloc(size_bytes + 1);
    char *exact = size_bytes > 0 ? malloc(size_bytes) : copy;
    bool is_named;

    assert_non_null(copy);
    assert_non_null(exact);
    for (size_t i = 0; i < size_bytes; i++)
        exact[i] = list[i];
    is_named = conditional_names((struct raw_text){exact, size_bytes}, etag);
    if (exact != copy)
        free(exact);
    free(copy);
    return is_named;
}

static void test_a_list_names_its_tags_and_no_others(void **state)
{
    static const struct {
        const char *list;
        bool is_named; /* of "abc" */
    } cases[] = {
        {"\"abc\"", true},
        {"W/\"abc\"", true},
        {"  \"abc\"\t", true},
        {"\"x\", \"abc\"", true},
        {"\"x\",\"abc\",\"y\"", true},
        {"\"x\" , W/\"abc\" , \"y\"", true},
        {", ,\"abc\"", true},
        {"\"x\",,\"abc\",", true},
        {"\"a,b\", \"abc\"", true},
        {"\"\", \"abc\"", true},
        {"*", true},
        {" * ", true},
        {"", false},
        {"   ", false},
        {",", false},
        {"\"ab\"", false},
        {"\"abcd\"", false},
        {"\"ABC\"", false},
        {"\"x,\"abc\"\"", false},
        {"abc", false},
        {"\"abc", false},
        {"abc\"", false},
        {"\"", false},
        {"W/", false},
        {"W/abc", false},
        {"w/\"abc\"", false},
        {"W /\"abc\"", false},
        {"W/W/\"abc\"", false},
        {"**", false},
        {"*, \"x\"", false},
        {"\"x\", *", false},
        {"\"x\" \"abc\"", false},
        {"\"abc\" junk", false},
        {"\"abc\"; q=1", false},
        {"junk, \"abc\"", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (names(cases[i].list, "\"abc\"") != cases[i].is_named)
            fail_msg("If-None-Match: %s", cases[i].list);
}

static void test_what_stands_before_a_mistake_counts(void **state)
{
    (void)state;
    assert_true(names("\"abc\", junk", "\"abc\""));
    assert_false(names("junk, \"abc\"", "\"abc\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_list_names_its_tags_and_no_others),
        cmocka_unit_test(test_what_stands_before_a_mistake_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

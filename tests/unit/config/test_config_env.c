/* ${NAME} in strings. SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "config/config_env.h"

static void assert_becomes(const char *text, const char *expected)
{
    struct error err;
    size_t offset;
    char *replaced = config_env_replace(text, &offset, &err);

    assert_non_null(replaced);
    assert_string_equal(replaced, expected);
    free(replaced);
}

static void assert_refused(const char *text, size_t at, const char *word)
{
    struct error err;
    size_t offset = SIZE_MAX;

    assert_null(config_env_replace(text, &offset, &err));
    assert_int_equal(offset, at);
    assert_non_null(strstr(err.text, word));
}

static void test_set_names_are_replaced(void **state)
{
    (void)state;
    assert_becomes("", "");
    assert_becomes("plain", "plain");
    assert_becomes("${WT_HOST}", "db.example");
    assert_becomes("host=${WT_HOST} port=${WT_PORT:-1}", "host=db.example port=5432");
    assert_becomes("${WT_HOST}${WT_HOST}", "db.exampledb.example");
    assert_becomes("[${WT_EMPTY}]", "[]");
}

static void test_defaults_stand_in_for_unset_and_empty(void **state)
{
    (void)state;
    assert_becomes("${WT_UNSET:-localhost}", "localhost");
    assert_becomes("${WT_UNSET:-}", "");
    assert_becomes("${WT_EMPTY:-x y:-z}", "x y:-z");
    assert_becomes("${WT_UNSET:-$HOME}", "$HOME");
}

static void test_what_is_put_in_is_not_looked_at_again(void **state)
{
    (void)state;
    assert_becomes("${WT_NESTED}", "${WT_HOST}");
}

static void test_a_dollar_alone_and_the_escape_are_plain_text(void **state)
{
    (void)state;
    assert_becomes("pa$$word $5 {x} $", "pa$$word $5 {x} $");
    assert_becomes("$${WT_HOST}", "${WT_HOST}");
}

static void test_mistakes_are_refused_where_they_stand(void **state)
{
    (void)state;
    assert_refused("a=${WT_UNSET}", 2, "WT_UNSET");
    assert_refused("${WT_HOST} ${WT_OPEN", 11, "closing brace");
    assert_refused("${}", 0, "${NAME}");
    assert_refused("${1X}", 0, "${NAME}");
    assert_refused("${WT HOST}", 0, "${NAME}");
    assert_refused("${WT_HOST-x}", 0, "${NAME}");
    assert_refused("${WT_HOST:x}", 0, "${NAME}");
}

static int environment_set(void **state)
{
    (void)state;
    return setenv("WT_HOST", "db.example", 1) | setenv("WT_PORT", "5432", 1) |
           setenv("WT_EMPTY", "", 1) | setenv("WT_NESTED", "${WT_HOST}", 1) | unsetenv("WT_UNSET");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_names_are_replaced),
        cmocka_unit_test(test_defaults_stand_in_for_unset_and_empty),
        cmocka_unit_test(test_what_is_put_in_is_not_looked_at_again),
        cmocka_unit_test(test_a_dollar_alone_and_the_escape_are_plain_text),
        cmocka_unit_test(test_mistakes_are_refused_where_they_stand),
    };

    return cmocka_run_group_tests(tests, environment_set, NULL);
}

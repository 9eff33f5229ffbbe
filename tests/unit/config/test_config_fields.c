/* The table of keys agrees with itself. SPDX-License-Identifier: MIT */
#include <string.h>

#include "cmocka_all.h"
#include "config/config_fields.h"

static void test_every_row_is_found_below_its_parent_and_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_field_count; i++) {
        const struct config_field *field = &config_fields[i];
        const char *dot = strrchr(field->path, '.');
        char parent[128] = "";

        if (strcmp(field->path, "dependencies.*") == 0)
            continue;
        if (dot != NULL)
            memcpy(parent, field->path, (size_t)(dot - field->path));
        assert_ptr_equal(config_field_find(parent, dot != NULL ? dot + 1 : field->path), field);
    }
}

static void test_every_row_explains_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_field_count; i++) {
        const struct config_field *field = &config_fields[i];
        char text[300] = "";

        config_field_describe(field, text, sizeof text);
        assert_memory_equal(text, "must be ", 8);
        assert_true(strlen(text) < sizeof text - 1);
        assert_true(field->help[strlen(field->help) - 1] == '.');
    }
}

static void test_a_row_is_null_only_where_null_is_its_default(void **state)
{
    (void)state;
    assert_true(config_field_may_be_null(config_field_find("admin", "token_file")));
    assert_false(config_field_may_be_null(config_field_find("admin", "port")));
    assert_false(config_field_may_be_null(config_field_find("dependencies.*", "conninfo")));
}

static void test_a_dotted_key_is_no_path(void **state)
{
    (void)state;
    assert_null(config_field_find("", "server.port"));
    assert_null(config_field_find("dependencies", "*"));
    assert_null(config_field_find("server", ""));
    assert_null(config_field_find("serve", "port"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_found_below_its_parent_and_once),
        cmocka_unit_test(test_every_row_explains_itself),
        cmocka_unit_test(test_a_row_is_null_only_where_null_is_its_default),
        cmocka_unit_test(test_a_dotted_key_is_no_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Places and raw bytes of keys and values. SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "config/config_scan.h"

static struct scan_node *scan(const char *text)
{
    struct scan_error error;

    return scan_text(text, strlen(text), &error);
}

static void assert_raw(const struct scan_node *node, const char *raw, int line, int column)
{
    assert_int_equal(node->raw_size_bytes, strlen(raw));
    assert_memory_equal(node->raw, raw, strlen(raw));
    assert_int_equal(node->line, line);
    assert_int_equal(node->column, column);
}

static void test_every_key_and_value_knows_its_place(void **state)
{
    struct scan_node *root =
        scan(" {\n\t\"a\" : 1.50,\r\n  \"b\":[ true,\n null , \"x\\\"]\" ]}\n");
    struct scan_node *a, *b;

    (void)state;
    assert_non_null(root);
    assert_int_equal(root->kind, SCAN_OBJECT);
    assert_int_equal(root->child_count, 2);
    a = scan_child(root, "a");
    assert_int_equal(a->kind, SCAN_NUMBER);
    assert_int_equal(a->key_line, 2);
    assert_int_equal(a->key_column, 2);
    assert_raw(a, "1.50", 2, 8);
    b = scan_child(root, "b");
    assert_int_equal(b->kind, SCAN_ARRAY);
    assert_int_equal(b->child_count, 3);
    assert_int_equal(b->key_column, 3);
    assert_raw(&b->children[0], "true", 3, 9);
    assert_raw(&b->children[1], "null", 4, 2);
    assert_raw(&b->children[2], "\"x\\\"]\"", 4, 9);
    assert_null(b->children[2].key);
    assert_null(scan_child(root, "c"));
    scan_destroy(root);
}

static void test_escapes_are_resolved_in_keys_and_strings(void **state)
{
    struct scan_node *root = scan("{\"\\u0061\\n\": \"\\\\ \\u00e4 \\ud83d\\ude00\"}");
    char *text;

    (void)state;
    assert_non_null(root);
    assert_string_equal(root->children[0].key, "a\n");
    text = scan_string(&root->children[0]);
    assert_string_equal(text, "\\ \xc3\xa4 \xf0\x9f\x98\x80");
    free(text);
    scan_destroy(root);
}

static void test_a_repeated_key_is_kept_and_the_first_is_found(void **state)
{
    struct scan_node *root = scan("{\"a\": 1, \"a\": 2}");

    (void)state;
    assert_int_equal(root->child_count, 2);
    assert_raw(scan_child(root, "a"), "1", 1, 7);
    scan_destroy(root);
}

static void test_broken_json_has_a_place_and_no_quotation(void **state)
{
    static const struct {
        const char *text;
        int line;
    } cases[] = {
        {"", 1},
        {"{", 1},
        {"{\n\"a\": 1,,\n}", 2},
        {"{\"a\": 1}\n x", 2},
        {"{\"a\": \"secret\n\"}", 1},
        {"{\n\n\"a\" \"secret\"}", 3},
        {"{\"a\": 99999999999999999999}", 1},
        {"{\"a\": \"\xff\"}", 1},
        {"{\"a\": \"\\u0000\"}", 1},
        {"\"a string\"", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scan_error error = {0};

        assert_null(scan_text(cases[i].text, strlen(cases[i].text), &error));
        assert_true(error.text[0] != '\0');
        assert_null(strstr(error.text, "secret"));
        assert_in_range(error.line, cases[i].line, cases[i].line + 1);
    }
}

static void test_a_syntax_error_is_where_the_wrong_token_starts(void **state)
{
    static const struct {
        const char *text;
        int line, column;
    } cases[] = {
        {"", 1, 1},
        {" \n ", 1, 1},
        {"{\"a\": 1,,}", 1, 9},
        {"{\"a\": 1\n  \"bcd\": 2}", 2, 3},
        {"{\"a\": truth}", 1, 7},
        {"{\"a\": \"\\\"b\", x}", 1, 14},
        {"{\"a\": \"b\\q\"}", 1, 10},
        {"{\"\xc3\xa4\": nil}", 1, 8},
        {"{\"a\": \"b", 1, 7},
        {"{\"a\": [1\n\n", 1, 9},
        {"{} \n}", 2, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scan_error error = {0};

        assert_null(scan_text(cases[i].text, strlen(cases[i].text), &error));
        if (error.line != cases[i].line || error.column != cases[i].column)
            fail_msg("%d:%d (%s) of: %s", error.line, error.column, error.text, cases[i].text);
    }
}

static void test_deep_nesting_is_refused_and_not_followed(void **state)
{
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH);
    struct scan_error error;

    (void)state;
    assert_non_null(text);
    memset(text, '[', DEPTH);
    assert_null(scan_text(text, DEPTH, &error));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_and_value_knows_its_place),
        cmocka_unit_test(test_escapes_are_resolved_in_keys_and_strings),
        cmocka_unit_test(test_a_repeated_key_is_kept_and_the_first_is_found),
        cmocka_unit_test(test_broken_json_has_a_place_and_no_quotation),
        cmocka_unit_test(test_a_syntax_error_is_where_the_wrong_token_starts),
        cmocka_unit_test(test_deep_nesting_is_refused_and_not_followed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

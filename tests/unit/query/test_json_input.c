#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "query/json_input.h"

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

static bool read_document(const char *text, struct json_input_value *out)
{
    struct json_input in;

    json_input_init(&in, text, strlen(text));
    return json_input_document(&in, out) && in.problem == NULL;
}

static void test_json_and_nothing_else_is_read(void **state)
{
    static const struct {
        const char *text;
        enum json_input_kind kind;
    } good[] = {
        {"null", JSON_INPUT_NULL},
        {" true\n", JSON_INPUT_TRUE},
        {"\t\rfalse", JSON_INPUT_FALSE},
        {"0", JSON_INPUT_NUMBER},
        {"-0.10e+5", JSON_INPUT_NUMBER},
        {"1E-7", JSON_INPUT_NUMBER},
        {"\"\"", JSON_INPUT_STRING},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"", JSON_INPUT_STRING},
        {"[]", JSON_INPUT_ARRAY},
        {"[ ]", JSON_INPUT_ARRAY},
        {"[1, [2], {}, \"]\"]", JSON_INPUT_ARRAY},
        {"{}", JSON_INPUT_OBJECT},
        {"{ \"a\" : [ { \"b\" : { } } ] , \"a\" : 1 }", JSON_INPUT_OBJECT},
    };
    static const char *const bad[] = {
        "",
        " ",
        "nul",
        "nulll",
        "True",
        "NaN",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "\"\\",
        "'a'",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":}",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "{\"a\" 1}",
        "{\"a\":1]",
        "{,}",
        "1 2",
        "{} x",
        "[[[[",
        "//x\n1",
        "{\"s\":\"a\"} x",
    };
    struct json_input_value value;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        if (!read_document(good[i].text, &value))
            fail_msg("%s is JSON", good[i].text);
        assert_int_equal(value.kind, good[i].kind);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (read_document(bad[i], &value))
            fail_msg("%s is no JSON", bad[i]);
}

static void test_a_nul_byte_is_no_json(void **state)
{
    struct json_input in;
    struct json_input_value value;

    (void)state;
    json_input_init(&in, "1\0", 2);
    assert_false(json_input_document(&in, &value));
    json_input_init(&in, "\"\\\0\"", 4);
    assert_false(json_input_document(&in, &value));
    json_input_init(&in, "\"a\0\"", 4);
    assert_false(json_input_document(&in, &value));
}

static void test_depth_is_limited(void **state)
{
    char text[2 * JSON_INPUT_MAX_DEPTH + 3];
    struct json_input_value value;
    size_t depth = JSON_INPUT_MAX_DEPTH;

    (void)state;
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    text[2 * depth] = '\0';
    assert_true(read_document(text, &value));

    depth++;
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    text[2 * depth] = '\0';
    assert_false(read_document(text, &value));
}

static void test_members_keep_their_raw_text(void **state)
{
    struct json_input_value object, name, value;
    struct json_input inside;

    (void)state;
    assert_true(read_document(" { \"n\" : 1.10 , \"j\" : { \"k\" : [ 1.50 ] } } ", &object));
    inside = json_input_open(&object);
    assert_true(json_input_next_member(&inside, &name, &value));
    assert_memory_equal(name.raw, "\"n\"", 3);
    assert_int_equal(value.raw_bytes, 4);
    assert_memory_equal(value.raw, "1.10", 4);
    assert_true(json_input_next_member(&inside, &name, &value));
    assert_int_equal(value.kind, JSON_INPUT_OBJECT);
    assert_int_equal(value.raw_bytes, strlen("{ \"k\" : [ 1.50 ] }"));
    assert_false(json_input_next_member(&inside, &name, &value));
}

static void test_elements_come_one_by_one(void **state)
{
    static const enum json_input_kind kinds[] = {JSON_INPUT_NUMBER, JSON_INPUT_ARRAY,
                                                 JSON_INPUT_NULL, JSON_INPUT_STRING};
    struct json_input_value array, element;
    struct json_input inside;

    (void)state;
    assert_true(read_document("[ 1,[2,3] , null,\"a,b\" ]", &array));
    inside = json_input_open(&array);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        assert_true(json_input_next_element(&inside, &element));
        assert_int_equal(element.kind, kinds[i]);
    }
    assert_false(json_input_next_element(&inside, &element));

    assert_true(read_document("[ ]", &array));
    inside = json_input_open(&array);
    assert_false(json_input_next_element(&inside, &element));
}

static void test_strings_are_decoded(void **state)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"\"\"", ""},
        {"\"plain\"", "plain"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00z\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"},
        {"\"\\\\u0041\"", "\\u0041"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct json_input_value value;
        char out[64];
        size_t size;

        assert_true(read_document(cases[i].json, &value));
        assert_false(value.has_nul || value.has_lone_surrogate);
        size = json_input_decode(&value, out);
        assert_int_equal(size, strlen(cases[i].text));
        assert_memory_equal(out, cases[i].text, size);
    }
}

static void test_nul_and_half_surrogates_are_noticed_at_any_depth(void **state)
{
    static const struct {
        const char *json;
        bool has_nul, has_lone_surrogate;
    } cases[] = {
        {"\"a\\u0000b\"", true, false},      {"[{\"a\":[\"\\u0000\"]}]", true, false},
        {"{\"\\u0000\":1}", true, false},    {"\"\\\\u0000\"", false, false},
        {"\"\\ud800\"", false, true},        {"\"\\ud800x\"", false, true},
        {"\"\\ud800\\ud800\"", false, true}, {"\"\\ud800\\n\"", false, true},
        {"[\"\\udc00\"]", false, true},      {"\"\\ud83d\\ude00\"", false, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct json_input_value value;

        assert_true(read_document(cases[i].json, &value));
        assert_int_equal(value.has_nul, cases[i].has_nul);
        assert_int_equal(value.has_lone_surrogate, cases[i].has_lone_surrogate);
    }
}

/* Appends what fits. */
static void append(char *text, size_t room, const char *piece)
{
    size_t size = strlen(text);

    (void)snprintf(text + size, room - size, "%s", piece);
}

/* Goes over all that a value holds, as the readers of parameters do. */
static void walk(const struct json_input_value *value, char *scratch)
{
    struct json_input inside;
    struct json_input_value name, part;

    if (value->kind == JSON_INPUT_STRING && !value->has_lone_surrogate)
        assert_true(json_input_decode(value, scratch) <= value->raw_bytes);
    if (value->kind == JSON_INPUT_ARRAY) {
        inside = json_input_open(value);
        while (json_input_next_element(&inside, &part))
            walk(&part, scratch);
    }
    if (value->kind == JSON_INPUT_OBJECT) {
        inside = json_input_open(value);
        while (json_input_next_member(&inside, &name, &part)) {
            walk(&name, scratch);
            walk(&part, scratch);
        }
    }
}

static void test_random_bytes_are_read_or_refused(void **state)
{
    static const char *const pieces[] = {
        "[",    "]",      "{",           "}",           ",",
        ":",    "\"",     "\"a\"",       "1",           "-0.5e1",
        "null", " ",      "true",        "\"\\u0000\"", "\"\\ud83d\\ude00\"",
        "\\",   "\"k\":", "\"\\ud800\"", "e",           "\xff"};
    unsigned seed = 7;
    size_t good_count = 0;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        char text[256] = "", scratch[256];
        int piece_count = rand_r(&seed) % 10;
        struct json_input in;
        struct json_input_value value;
        char *exact;

        for (int i = 0; i < piece_count; i++)
            append(text, sizeof text, pieces[(size_t)rand_r(&seed) % COUNT_OF(pieces)]);
        exact = malloc(strlen(text) + (text[0] == '\0'));
        assert_non_null(exact);
        memcpy(exact, text, strlen(text));
        json_input_init(&in, exact, strlen(text));
        if (json_input_document(&in, &value)) {
            good_count++;
            walk(&value, scratch);
        } else {
            assert_non_null(in.problem);
            assert_true(in.at <= in.size_bytes);
        }
        free(exact);
    }
    assert_true(good_count > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_and_nothing_else_is_read),
        cmocka_unit_test(test_a_nul_byte_is_no_json),
        cmocka_unit_test(test_depth_is_limited),
        cmocka_unit_test(test_members_keep_their_raw_text),
        cmocka_unit_test(test_elements_come_one_by_one),
        cmocka_unit_test(test_strings_are_decoded),
        cmocka_unit_test(test_nul_and_half_surrogates_are_noticed_at_any_depth),
        cmocka_unit_test(test_random_bytes_are_read_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

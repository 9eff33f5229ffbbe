#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "cmocka_all.h"
#include "json/row_writer.h"

/* OIDs of pg_type.dat. What is expected is what to_json() of PostgreSQL 15 gave. */
enum {
    OID_BOOL = 16,
    OID_INT2VECTOR = 22,
    OID_INT4 = 23,
    OID_TEXT = 25,
    OID_OID = 26,
    OID_OIDVECTOR = 30,
    OID_JSON = 114,
    OID_BOOL_ARRAY = 1000,
    OID_INT4_ARRAY = 1007,
    OID_TEXT_ARRAY = 1009,
    OID_BOX_ARRAY = 1020,
    OID_FLOAT8 = 701,
    OID_FLOAT8_ARRAY = 1022,
    OID_DATE = 1082,
    OID_TIMESTAMP = 1114,
    OID_TIMESTAMPTZ = 1184,
    OID_TIMESTAMPTZ_ARRAY = 1185,
    OID_INTERVAL = 1186,
    OID_NUMERIC = 1700,
    OID_RECORD = 2249,
    OID_JSONB = 3802,
    OID_JSONB_ARRAY = 3807,
};

static void expect(unsigned oid, const char *text, const char *want)
{
    struct buffer b;

    buffer_init(&b, 100000);
    value_write(&b, value_type_of(oid), text, strlen(text));
    if (b.failed || b.size_bytes != strlen(want) || memcmp(b.data, want, b.size_bytes) != 0)
        fail_msg("%s of type %u gave %.*s, not %s", text, oid, (int)b.size_bytes, b.data, want);
    buffer_fini(&b);
}

static void test_numbers_are_bare_and_keep_their_digits(void **state)
{
    (void)state;
    expect(OID_INT4, "-2147483648", "-2147483648");
    expect(OID_NUMERIC, "12345678901234567890.12345678901234567890",
           "12345678901234567890.12345678901234567890");
    expect(OID_NUMERIC, "1.50", "1.50");
    expect(OID_FLOAT8, "1e+100", "1e+100");
    expect(OID_FLOAT8, "-0", "-0");
}

static void test_numbers_that_json_lacks_are_quoted(void **state)
{
    (void)state;
    expect(OID_FLOAT8, "NaN", "\"NaN\"");
    expect(OID_NUMERIC, "-Infinity", "\"-Infinity\"");
    expect(OID_FLOAT8_ARRAY, "{NaN,1.5,Infinity}", "[\"NaN\",1.5,\"Infinity\"]");
}

static void test_an_oid_is_quoted(void **state)
{
    (void)state;
    expect(OID_OID, "1", "\"1\"");
}

static void test_booleans_and_json_are_bare(void **state)
{
    (void)state;
    expect(OID_BOOL, "t", "true");
    expect(OID_BOOL, "f", "false");
    expect(OID_JSON, "{\"a\":  [1]}", "{\"a\":  [1]}");
    expect(OID_JSONB, "null", "null");
}

static void test_other_types_are_their_text(void **state)
{
    (void)state;
    expect(OID_TEXT, "a \"b\"\n", "\"a \\\"b\\\"\\n\"");
    expect(OID_INTERVAL, "1 day 02:00:00", "\"1 day 02:00:00\"");
    expect(OID_DATE, "0044-03-15 BC", "\"0044-03-15 BC\"");
}

static void test_timestamps_get_a_t(void **state)
{
    (void)state;
    expect(OID_TIMESTAMP, "2026-01-01 00:00:00", "\"2026-01-01T00:00:00\"");
    expect(OID_TIMESTAMP, "12026-12-31 23:59:59.999999", "\"12026-12-31T23:59:59.999999\"");
    expect(OID_TIMESTAMP, "0044-03-15 01:02:03.004 BC", "\"0044-03-15T01:02:03.004 BC\"");
    expect(OID_TIMESTAMP, "-infinity", "\"-infinity\"");
}

static void test_zones_get_minutes_where_they_lack_them(void **state)
{
    (void)state;
    expect(OID_TIMESTAMPTZ, "2026-01-01 00:00:00+00", "\"2026-01-01T00:00:00+00:00\"");
    expect(OID_TIMESTAMPTZ, "2026-01-01 00:00:00.5-05", "\"2026-01-01T00:00:00.5-05:00\"");
    expect(OID_TIMESTAMPTZ, "2026-01-01 00:00:00+05:30", "\"2026-01-01T00:00:00+05:30\"");
    expect(OID_TIMESTAMPTZ, "1900-01-01 00:00:00-03:30:52", "\"1900-01-01T00:00:00-03:30:52\"");
    expect(OID_TIMESTAMPTZ, "1900-01-01 00:00:20+00:00:20", "\"1900-01-01T00:00:20+00:00:20\"");
    expect(OID_TIMESTAMPTZ, "2026-01-01 00:00:00+00 BC", "\"2026-01-01T00:00:00+00:00 BC\"");
    expect(OID_TIMESTAMPTZ, "0044-03-15 10:00:00+05:53:28 BC",
           "\"0044-03-15T10:00:00+05:53:28 BC\"");
    expect(OID_TIMESTAMPTZ, "infinity", "\"infinity\"");
}

static void test_another_datestyle_is_left_alone(void **state)
{
    (void)state;
    expect(OID_TIMESTAMP, "Thu Jan 01 00:00:00 2026", "\"Thu Jan 01 00:00:00 2026\"");
    expect(OID_TIMESTAMP, "01.01.2026 00:00:00", "\"01.01.2026 00:00:00\"");
    expect(OID_TIMESTAMPTZ, "", "\"\"");
}

static void test_arrays_are_arrays(void **state)
{
    (void)state;
    expect(OID_INT4_ARRAY, "{}", "[]");
    expect(OID_INT4_ARRAY, "{1}", "[1]");
    expect(OID_INT4_ARRAY, "{1,NULL,3}", "[1,null,3]");
    expect(OID_BOOL_ARRAY, "{t,f,NULL}", "[true,false,null]");
    expect(OID_INT4_ARRAY, "{{1,2},{3,4}}", "[[1,2],[3,4]]");
    expect(OID_INT4_ARRAY, "{{{1,2},{3,4}},{{5,6},{7,8}}}", "[[[1,2],[3,4]],[[5,6],[7,8]]]");
}

static void test_bounds_of_an_array_are_left_out(void **state)
{
    (void)state;
    expect(OID_INT4_ARRAY, "[2:3]={1,2}", "[1,2]");
    expect(OID_INT4_ARRAY, "[-1:0][5:6]={{1,2},{3,4}}", "[[1,2],[3,4]]");
}

static void test_quoted_elements_lose_their_quotes_and_backslashes(void **state)
{
    (void)state;
    expect(OID_TEXT_ARRAY, "{a,\"b c\",\"\",NULL,\"NULL\",null}",
           "[\"a\",\"b c\",\"\",null,\"NULL\",\"null\"]");
    expect(OID_TEXT_ARRAY, "{\"a,b\",\"{x}\",\"}\",\"{\"}", "[\"a,b\",\"{x}\",\"}\",\"{\"]");
    expect(OID_TEXT_ARRAY, "{\"q\\\"q\",\"b\\\\b\"}", "[\"q\\\"q\",\"b\\\\b\"]");
    expect(OID_JSONB_ARRAY, "{\"{\\\"a\\\": [1, 2]}\",1,NULL}", "[{\"a\": [1, 2]},1,null]");
    expect(OID_TIMESTAMPTZ_ARRAY, "{\"2026-01-01 01:02:03.5+00\",infinity,NULL}",
           "[\"2026-01-01T01:02:03.5+00:00\",\"infinity\",null]");
}

/* Longer than what is unescaped on the stack. */
static void test_a_long_quoted_element_is_whole(void **state)
{
    char text[2100] = {0}, want[2100] = {0};

    (void)state;
    memset(text, '"', 2003);
    memset(want, '"', 2003);
    for (size_t i = 2; i < 2002; i += 2)
        text[i] = want[i] = '\\';
    text[0] = '{';
    want[0] = '[';
    text[2003] = '}';
    want[2003] = ']';
    expect(OID_TEXT_ARRAY, text, want);
}

static void test_boxes_are_delimited_by_a_semicolon(void **state)
{
    (void)state;
    expect(OID_BOX_ARRAY, "{(3,4),(1,2);(7,8),(5,6)}", "[\"(3,4),(1,2)\",\"(7,8),(5,6)\"]");
}

static void test_vectors_are_arrays_delimited_by_spaces(void **state)
{
    (void)state;
    expect(OID_INT2VECTOR, "1 2 3", "[1,2,3]");
    expect(OID_INT2VECTOR, "", "[]");
    expect(OID_OIDVECTOR, "1 2", "[\"1\",\"2\"]");
}

static void test_what_is_no_array_is_given_as_text(void **state)
{
    static const char *const wrong[] = {
        "",    "{",    "}",      "x",       "{1",    "{1,",     "{1,}", "{,1}",
        "{}}", "{1}x", "{1}{2}", "[1:2]",   "[1:2]", "[1:2]={", "{{1}", "[",
        "{;",  "{1};", "{1,{",   "{1,NULL", "{{",    "{{}",     "{}1",  "[=1",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char want[32];

        (void)snprintf(want, sizeof want, "\"%s\"", wrong[i]);
        expect(OID_INT4_ARRAY, wrong[i], want);
    }
    expect(OID_TEXT_ARRAY, "{\"a", "\"{\\\"a\"");
    expect(OID_TEXT_ARRAY, "{\"a\\", "\"{\\\"a\\\\\"");
    expect(OID_TEXT_ARRAY, "{\"a\"b}", "\"{\\\"a\\\"b}\"");
}

static void test_types_that_only_the_server_knows_are_unknown(void **state)
{
    static const unsigned unknown[] = {0, OID_RECORD, 2287, 2277, 1006, 13221, 16384, 4000000000};

    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_int_equal(value_type_of(unknown[i]).kind, VALUE_UNKNOWN);
    assert_int_equal(value_type_of(OID_TEXT).kind, VALUE_TEXT);
}

static PGresult *result_of(int column_count, char *const names[])
{
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[8] = {0};

    assert_non_null(result);
    for (int c = 0; c < column_count; c++)
        columns[c].name = names[c];
    assert_true(column_count == 0 || PQsetResultAttrs(result, column_count, columns));
    return result;
}

static void set(PGresult *result, int row, int column, const char *text)
{
    char copy[64];

    (void)snprintf(copy, sizeof copy, "%s", text != NULL ? text : "");
    assert_true(PQsetvalue(result, row, column, copy, text != NULL ? (int)strlen(text) : -1));
}

static PGresult *two_books(void)
{
    static char id[] = "id", title[] = "the \"title\"", price[] = "price";
    PGresult *result = result_of(3, (char *[]){id, title, price});

    set(result, 0, 0, "1");
    set(result, 0, 1, "a\tb");
    set(result, 0, 2, "9.50");
    set(result, 1, 0, "2");
    set(result, 1, 1, "");
    set(result, 1, 2, NULL);
    return result;
}

static struct row_shape *shape_of_books(const PGresult *result)
{
    const struct value_type types[] = {value_type_of(OID_INT4), value_type_of(OID_TEXT),
                                       value_type_of(OID_NUMERIC)};
    struct row_shape *shape = row_shape_create(result, types);

    assert_non_null(shape);
    return shape;
}

static void expect_buffer(struct buffer *b, const char *want)
{
    assert_false(b->failed);
    buffer_append_char(b, '\0');
    assert_string_equal(b->data, want);
    buffer_clear(b);
}

static void test_a_row_is_an_object(void **state)
{
    PGresult *result = two_books();
    struct row_shape *shape = shape_of_books(result);
    struct buffer b;

    (void)state;
    buffer_init(&b, 1000);
    row_write(&b, shape, result, 0);
    expect_buffer(&b, "{\"id\":1,\"the \\\"title\\\"\":\"a\\tb\",\"price\":9.50}");
    row_write(&b, shape, result, 1);
    expect_buffer(&b, "{\"id\":2,\"the \\\"title\\\"\":\"\",\"price\":null}");
    row_write_cell(&b, shape, result, 0, 2);
    expect_buffer(&b, "9.50");
    buffer_fini(&b);
    row_shape_destroy(shape);
    PQclear(result);
}

static void test_a_shape_serves_other_results_of_its_statement(void **state)
{
    PGresult *first = two_books();
    struct row_shape *shape = shape_of_books(first);
    PGresult *second;
    struct buffer b;

    (void)state;
    PQclear(first);
    second = two_books();
    buffer_init(&b, 1000);
    row_write(&b, shape, second, 1);
    expect_buffer(&b, "{\"id\":2,\"the \\\"title\\\"\":\"\",\"price\":null}");
    buffer_fini(&b);
    row_shape_destroy(shape);
    PQclear(second);
}

static void test_a_row_without_columns_is_an_empty_object(void **state)
{
    PGresult *result = result_of(0, NULL);
    struct row_shape *shape = row_shape_create(result, NULL);
    struct buffer b;

    (void)state;
    assert_non_null(shape);
    buffer_init(&b, 10);
    row_write(&b, shape, result, 0);
    expect_buffer(&b, "{}");
    buffer_fini(&b);
    row_shape_destroy(shape);
    row_shape_destroy(NULL);
    PQclear(result);
}

static void test_a_row_past_the_limit_fails_the_buffer(void **state)
{
    PGresult *result = two_books();
    struct row_shape *shape = shape_of_books(result);
    size_t whole = strlen("{\"id\":1,\"the \\\"title\\\"\":\"a\\tb\",\"price\":9.50}");

    (void)state;
    for (size_t limit = 0; limit <= whole; limit++) {
        struct buffer b;

        buffer_init(&b, limit);
        row_write(&b, shape, result, 0);
        assert_int_equal(b.failed, limit < whole);
        assert_true(b.size_bytes <= limit);
        buffer_fini(&b);
    }
    row_shape_destroy(shape);
    PQclear(result);
}

static void test_an_array_past_the_limit_fails_the_buffer(void **state)
{
    (void)state;
    for (size_t limit = 0; limit <= 9; limit++) {
        struct buffer b;

        buffer_init(&b, limit);
        value_write(&b, value_type_of(OID_TEXT_ARRAY), "{\"\\\\\",NULL}", 11); /* ["\\",null] */
        assert_true(b.failed);
        assert_true(b.size_bytes <= limit);
        buffer_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_bare_and_keep_their_digits),
        cmocka_unit_test(test_numbers_that_json_lacks_are_quoted),
        cmocka_unit_test(test_an_oid_is_quoted),
        cmocka_unit_test(test_booleans_and_json_are_bare),
        cmocka_unit_test(test_other_types_are_their_text),
        cmocka_unit_test(test_timestamps_get_a_t),
        cmocka_unit_test(test_zones_get_minutes_where_they_lack_them),
        cmocka_unit_test(test_another_datestyle_is_left_alone),
        cmocka_unit_test(test_arrays_are_arrays),
        cmocka_unit_test(test_bounds_of_an_array_are_left_out),
        cmocka_unit_test(test_quoted_elements_lose_their_quotes_and_backslashes),
        cmocka_unit_test(test_a_long_quoted_element_is_whole),
        cmocka_unit_test(test_boxes_are_delimited_by_a_semicolon),
        cmocka_unit_test(test_vectors_are_arrays_delimited_by_spaces),
        cmocka_unit_test(test_what_is_no_array_is_given_as_text),
        cmocka_unit_test(test_types_that_only_the_server_knows_are_unknown),
        cmocka_unit_test(test_a_row_is_an_object),
        cmocka_unit_test(test_a_shape_serves_other_results_of_its_statement),
        cmocka_unit_test(test_a_row_without_columns_is_an_empty_object),
        cmocka_unit_test(test_a_row_past_the_limit_fails_the_buffer),
        cmocka_unit_test(test_an_array_past_the_limit_fails_the_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

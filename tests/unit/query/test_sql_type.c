#include <string.h>

#include "cmocka_all.h"
#include "query/sql_type.h"

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

static void test_names_and_aliases_have_their_oid(void **state)
{
    static const struct {
        const char *text;
        uint32_t oid, element_oid;
        enum param_check check;
    } cases[] = {
        {"int4", 23, 0, CHECK_INTEGER},
        {"INTEGER", 23, 0, CHECK_INTEGER},
        {"int", 23, 0, CHECK_INTEGER},
        {"bigint", 20, 0, CHECK_INTEGER},
        {"smallint", 21, 0, CHECK_INTEGER},
        {"oid", 26, 0, CHECK_INTEGER},
        {"text", 25, 0, CHECK_TEXT},
        {"varchar", 1043, 0, CHECK_TEXT},
        {"character varying", 1043, 0, CHECK_TEXT},
        {"char", 1042, 0, CHECK_TEXT},
        {"name", 19, 0, CHECK_TEXT},
        {"decimal", 1700, 0, CHECK_NUMERIC},
        {"real", 700, 0, CHECK_FLOAT},
        {"Double \t Precision", 701, 0, CHECK_FLOAT},
        {"double precision[]", 1022, 701, CHECK_FLOAT},
        {"boolean", 16, 0, CHECK_BOOL},
        {"uuid", 2950, 0, CHECK_UUID},
        {"jsonb", 3802, 0, CHECK_JSON},
        {"json[]", 199, 114, CHECK_JSON},
        {"timestamp with time zone", 1184, 0, CHECK_ZONED},
        {"timetz", 1266, 0, CHECK_ZONED},
        {"timestamp", 1114, 0, CHECK_SERVER},
        {"date", 1082, 0, CHECK_SERVER},
        {"int4range", 3904, 0, CHECK_SERVER},
        {"int4multirange[]", 6150, 4451, CHECK_SERVER},
        {"pg_catalog.int4[]", 1007, 23, CHECK_INTEGER},
        {"text[]", 1009, 25, CHECK_TEXT},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct param_type type;
        const char *problem = NULL;

        assert_int_equal(sql_type_parse(cases[i].text, &type, &problem), SQL_TYPE_BUILT_IN);
        assert_int_equal(type.oid, cases[i].oid);
        assert_int_equal(type.element_oid, cases[i].element_oid);
        assert_int_equal(type.is_array, cases[i].element_oid != 0);
        assert_int_equal(type.check, cases[i].check);
        assert_int_equal(type.delimiter, ',');
    }
}

static void test_integers_know_their_range(void **state)
{
    struct param_type type;
    const char *problem;

    (void)state;
    (void)sql_type_parse("int2", &type, &problem);
    assert_true(type.least == INT16_MIN && type.greatest == INT16_MAX);
    (void)sql_type_parse("int8[]", &type, &problem);
    assert_true(type.least == INT64_MIN && type.greatest == INT64_MAX);
    (void)sql_type_parse("oid", &type, &problem);
    assert_true(type.least == 0 && type.greatest == UINT32_MAX);
}

static void test_boxes_are_parted_by_semicolons(void **state)
{
    struct param_type type;
    const char *problem;

    (void)state;
    assert_int_equal(sql_type_parse("box[]", &type, &problem), SQL_TYPE_BUILT_IN);
    assert_int_equal(type.delimiter, ';');
}

static void test_other_names_are_taken_on_trust(void **state)
{
    static const char *const names[] = {"mood", "shop.mood", "mood[]", "_x1", "h\xc3\xb6he"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct param_type type;
        const char *problem;

        assert_int_equal(sql_type_parse(names[i], &type, &problem), SQL_TYPE_ON_TRUST);
        assert_int_equal(type.oid, 0);
        assert_int_equal(type.element_oid, 0);
        assert_int_equal(type.check, CHECK_SERVER);
    }
}

static void test_what_is_no_name_is_told_apart(void **state)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", "name"},
        {"nosuchtype[", "array"},
        {"int4[][]", "array"},
        {"int4[3]", "array"},
        {"numeric(10,2)", "length"},
        {"a.b.c", "name"},
        {"a.", "name"},
        {"1x", "name"},
        {"two words", "name"},
        {"a-b", "name"},
        {"[]", "name"},
        {"x234567890123456789012345678901234567890123456789012345678901234567890", "long"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct param_type type;
        const char *problem = NULL;

        assert_int_equal(sql_type_parse(cases[i].text, &type, &problem), SQL_TYPE_MALFORMED);
        if (strstr(problem, cases[i].word) == NULL)
            fail_msg("%s: %s", cases[i].text, problem);
    }
}

static void test_the_nearest_built_in_name_is_found(void **state)
{
    (void)state;
    assert_string_equal(sql_type_nearest("integr"), "integer");
    assert_string_equal(sql_type_nearest("timestmptz[]"), "timestamptz");
    assert_string_equal(sql_type_nearest("Txet"), "text");
    assert_null(sql_type_nearest("mood"));
    assert_null(sql_type_nearest("[]"));
    assert_null(
        sql_type_nearest("a name that is longer than any type's name could possibly be, or so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_aliases_have_their_oid),
        cmocka_unit_test(test_integers_know_their_range),
        cmocka_unit_test(test_boxes_are_parted_by_semicolons),
        cmocka_unit_test(test_other_names_are_taken_on_trust),
        cmocka_unit_test(test_what_is_no_name_is_told_apart),
        cmocka_unit_test(test_the_nearest_built_in_name_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "query/wrap.h"

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))
#define GUARD           " WHERE true OR EXISTS (VALUES (\"weir 0\".*), (NULL, NULL))"
#define COLUMNS         "SELECT \"weir 0\".\"id\", pg_catalog.to_json(\"weir 0\".\"p\") FROM "

static const struct wrap_column columns[] = {{"id", false}, {"p", true}};

static void assert_wrapped(const char *sql, const char *expected)
{
    char *text = wrap_statement(sql, columns, COUNT_OF(columns));

    if (expected == NULL) {
        assert_null(text);
        return;
    }
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

static void test_a_query_becomes_a_subquery(void **state)
{
    static const char *const queries[] = {
        "SELECT id, p FROM t ORDER BY id LIMIT 1 FOR UPDATE",
        "select id, p from t",
        "VALUES (1, 2)",
        "TABLE t",
        "(SELECT 1, 2) UNION ALL SELECT 3, 4",
        "/* what */ SELECT id, p FROM t -- and why",
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(queries); i++) {
        char expected[512];

        (void)snprintf(expected, sizeof expected, COLUMNS "(\n%s\n) AS \"weir 0\"" GUARD,
                       queries[i]);
        assert_wrapped(queries[i], expected);
    }
}

static void test_a_write_becomes_a_member_of_a_with_list(void **state)
{
    static const char *const writes[] = {
        "INSERT INTO t VALUES ($1) RETURNING id, p",
        "update t SET id = 1 RETURNING *",
        "DELETE FROM t RETURNING *",
        "MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE RETURNING t.*",
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(writes); i++) {
        char expected[512];

        (void)snprintf(expected, sizeof expected,
                       "WITH \"weir 0\" AS (\n%s\n) " COLUMNS "\"weir 0\"" GUARD, writes[i]);
        assert_wrapped(writes[i], expected);
    }
}

static void test_a_with_list_gets_its_main_part_as_last_member(void **state)
{
    /* What stands before the main part, and the main part. */
    static const char *const parts[][2] = {
        {"WITH a AS (SELECT 1) ", "SELECT * FROM a"},
        {"WITH a AS (DELETE FROM t RETURNING *) ", "INSERT INTO u SELECT * FROM a RETURNING *"},
        {"WITH RECURSIVE a (x, y) AS NOT MATERIALIZED (SELECT (1), 2), b AS MATERIALIZED (SELECT 3)"
         " ",
         "UPDATE t SET id = (SELECT x FROM a) RETURNING id, p"},
        {"with \"select\" as (values (1)) /* select */ ", "DELETE FROM t RETURNING *"},
        {"WITH a AS (SELECT 1), insert AS (SELECT 2) ", "TABLE a"},
        {"WITH a AS (SELECT 1)", "(SELECT * FROM a) LIMIT 1"},
        {"WITH a AS (SELECT 1) ", "VALUES (1, 2)"},
        {"WITH RECURSIVE a AS (SELECT 1) SEARCH DEPTH FIRST BY x, y SET z ", "SELECT 1, 2"},
        {"WITH RECURSIVE a AS (SELECT 1) SEARCH DEPTH FIRST BY x, y SET z ", "(SELECT 1, 2)"},
        {"WITH RECURSIVE a AS (SELECT 1) CYCLE x, y SET z TO true DEFAULT false USING w, b (k) AS "
         "(DELETE FROM t RETURNING *), c AS (SELECT 2) ",
         "SELECT * FROM b"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        char sql[512], expected[1024];

        (void)snprintf(sql, sizeof sql, "%s%s", parts[i][0], parts[i][1]);
        (void)snprintf(expected, sizeof expected,
                       "%s\n, \"weir 0\" AS (\n%s\n) " COLUMNS "\"weir 0\"" GUARD, parts[i][0],
                       parts[i][1]);
        assert_wrapped(sql, expected);
    }
}

static void test_other_statements_cannot_be_wrapped(void **state)
{
    (void)state;
    assert_wrapped("CALL p(1, NULL)", NULL);
    assert_wrapped("EXPLAIN SELECT 1", NULL);
    assert_wrapped("SHOW ALL", NULL);
    assert_wrapped("", NULL);
    assert_wrapped("WITH a AS (SELECT 1)", NULL);
    assert_wrapped("WITH a AS (SELECT 'open", NULL);
    assert_null(wrap_statement("SELECT", columns, 0));
}

static void test_a_quote_in_a_name_is_doubled(void **state)
{
    static const struct wrap_column odd[] = {{"a\"b", true}, {"?column?", false}};
    char *text = wrap_statement("TABLE t", odd, COUNT_OF(odd));

    (void)state;
    assert_string_equal(text, "SELECT pg_catalog.to_json(\"weir 0\".\"a\"\"b\"), "
                              "\"weir 0\".\"?column?\" FROM (\nTABLE t\n) AS \"weir 0\"" GUARD);
    free(text);
}

static void test_columns_of_one_name_go_by_number(void **state)
{
    static const struct wrap_column twice[] = {{"a", false}, {"a", true}};
    char *query = wrap_statement("TABLE t", twice, COUNT_OF(twice));
    char *write = wrap_statement("DELETE FROM t RETURNING a, a", twice, COUNT_OF(twice));

    (void)state;
    assert_string_equal(query, "SELECT \"weir 0\".c0, pg_catalog.to_json(\"weir 0\".c1) FROM "
                               "(\nTABLE t\n) AS \"weir 0\" (c0, c1)" GUARD);
    assert_string_equal(write, "WITH \"weir 0\" (c0, c1) AS (\nDELETE FROM t RETURNING a, a\n) "
                               "SELECT \"weir 0\".c0, pg_catalog.to_json(\"weir 0\".c1) FROM "
                               "\"weir 0\"" GUARD);
    free(query);
    free(write);
}

static void test_the_name_of_the_inner_one_is_not_used_by_it(void **state)
{
    char *text = wrap_statement("SELECT * FROM \"weir 0\", \"weir 1\"", columns, 1);

    (void)state;
    assert_string_equal(text, "SELECT \"weir 2\".\"id\" FROM (\nSELECT * FROM \"weir 0\", "
                              "\"weir 1\"\n) AS \"weir 2\" WHERE true OR EXISTS (VALUES "
                              "(\"weir 2\".*), (NULL))");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_query_becomes_a_subquery),
        cmocka_unit_test(test_a_write_becomes_a_member_of_a_with_list),
        cmocka_unit_test(test_a_with_list_gets_its_main_part_as_last_member),
        cmocka_unit_test(test_other_statements_cannot_be_wrapped),
        cmocka_unit_test(test_a_quote_in_a_name_is_doubled),
        cmocka_unit_test(test_columns_of_one_name_go_by_number),
        cmocka_unit_test(test_the_name_of_the_inner_one_is_not_used_by_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

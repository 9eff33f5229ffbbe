/* Columns that only the server can write as JSON, in every kind of statement: what the statement
 * does, its order, locks and effects are its own; types and tables change under it; what cannot be
 * done is said in words. One session serves all, so that what is prepared meets what has changed.
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "exchange.h"
#include "figure.h"
#include "scratch.h"

static const char seed[] =
    "CREATE TABLE things (id int PRIMARY KEY, p pair, note text DEFAULT 'n');"
    "INSERT INTO things SELECT g, ROW(g, 'thing ' || g)::pair FROM generate_series(1, 5) AS g;"
    "CREATE TABLE archive (id int, p pair, note text);"
    "CREATE TABLE queue (id int PRIMARY KEY, p pair);"
    "INSERT INTO queue SELECT g, ROW(g, 'q')::pair FROM generate_series(1, 3) AS g;"
    "CREATE TABLE ruled (p pair);"
    "CREATE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO archive VALUES (0);"
    "CREATE PROCEDURE give(INOUT p pair) LANGUAGE plpgsql AS $$BEGIN p := ROW(1, 'x'); END$$;"
    /* what changes */
    "CREATE TYPE grows AS (a int, b text); CREATE TABLE growing (g grows);"
    "INSERT INTO growing VALUES (ROW(1, 'x'));"
    "CREATE TABLE wide (id int, p pair); INSERT INTO wide VALUES (1, ROW(1, 'x'));"
    "CREATE TABLE plain (id int, v text); INSERT INTO plain VALUES (1, '(1,x)');"
    "CREATE TYPE colour AS ENUM ('red'); CREATE TYPE box_of AS (a int);"
    "CREATE TABLE painted (c colour, cs colour[]); INSERT INTO painted VALUES ('red', '{red}');"
    "CREATE TABLE sink (id int, p pair);"
    "GRANT ALL ON ALL TABLES IN SCHEMA public TO app;"
    "ALTER ROLE app SET log_min_duration_statement = 0;";

/* --- reads: the answer is the server's --- */

struct read {
    const char *name, *result, *sql;
};

static const struct read reads[] = {
    {"order", "many", "SELECT id, p FROM things ORDER BY id DESC LIMIT 2 OFFSET 1"},
    {"order-by-p", "many", "SELECT p FROM things ORDER BY (p).a DESC, 1"},
    {"names", "one",
     "SELECT 1 AS a, ROW(1, 'x')::pair AS a, 2 AS \"b \"\"c\\\", ROW(2, 'y') AS \"\xC3\x84 ?\", 3, "
     "4, NULL::pair AS \"weir 0\""},
    {"with", "many",
     "WITH a (n) AS (SELECT generate_series(1, 3)), b AS MATERIALIZED (SELECT * FROM a) SELECT "
     "n, ROW(n, 'x')::pair AS p FROM b ORDER BY n DESC"},
    {"recursive", "many",
     "WITH RECURSIVE a (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 3) SEARCH DEPTH "
     "FIRST BY n SET o (SELECT n, o FROM a ORDER BY n)"},
    {"values", "many", "VALUES (1, ROW(1, 'x')::pair), (2, NULL)"},
    {"table", "many", "TABLE things"},
    {"union", "many",
     "(SELECT id, p FROM things WHERE id = 1) UNION ALL SELECT 7, NULL ORDER BY id DESC"},
    {"comment", "many", "/* all */ SELECT p -- of them\nFROM things -- and no more"},
    {"group", "many",
     "SELECT array_agg(p ORDER BY id) AS ps, count(*) AS n FROM things GROUP BY id % 2 ORDER BY 2"},
    {"series", "many", "SELECT generate_series(1, 2) AS g, ROW(1, 'x')::pair AS p"},
    {"none", "many", "SELECT p FROM things WHERE false"},
    {"record", "one", "SELECT t, ROW(t, ARRAY[t]) AS r FROM things AS t WHERE id = 1"},
    {"whole", "one", "SELECT s FROM (SELECT 1 AS x, 'y' AS \"z z\") AS s"},
};
enum { READ_COUNT = sizeof reads / sizeof reads[0] };

/* --- writes --- */

struct write {
    const char *name, *result, *sql;
    const char *expected;
    const char *check, *after; /* what the database then says */
};

static const struct write writes[] = {
    {"insert", "one",
     "INSERT INTO things (id, p) VALUES (10, ROW(10, 'new')) RETURNING id, p, tick('insert')",
     "{\"id\":10,\"p\":{\"a\":10,\"b\":\"new\"},\"tick\":\"insert\"}",
     "SELECT count(*) FROM things WHERE id = 10", "1"},
    {"insert-many", "many",
     "INSERT INTO things (id, p) SELECT g, ROW(g, 'm')::pair FROM generate_series(22, 20, -1) AS g "
     "RETURNING id, p",
     "[{\"id\":22,\"p\":{\"a\":22,\"b\":\"m\"}},{\"id\":21,\"p\":{\"a\":21,\"b\":\"m\"}},"
     "{\"id\":20,\"p\":{\"a\":20,\"b\":\"m\"}}]",
     "SELECT count(*) FROM things WHERE id BETWEEN 20 AND 22", "3"},
    {"update", "value", "UPDATE things SET p.b = 'changed' WHERE id = 10 RETURNING p",
     "{\"a\":10,\"b\":\"changed\"}", "SELECT (p).b FROM things WHERE id = 10", "changed"},
    {"upsert", "one",
     "INSERT INTO things (id) VALUES (10) ON CONFLICT (id) DO UPDATE SET note = 'up' RETURNING *",
     "{\"id\":10,\"p\":{\"a\":10,\"b\":\"changed\"},\"note\":\"up\"}",
     "SELECT note FROM things WHERE id = 10", "up"},
    {"select", "many", "SELECT p, tick('select') FROM things WHERE id = 10",
     "[{\"p\":{\"a\":10,\"b\":\"changed\"},\"tick\":\"select\"}]", "SELECT 1", "1"},
    {"move", "many",
     "WITH gone AS (DELETE FROM things WHERE id >= 20 RETURNING *) INSERT INTO archive SELECT * "
     "FROM gone ORDER BY id RETURNING id, p",
     "[{\"id\":20,\"p\":{\"a\":20,\"b\":\"m\"}},{\"id\":21,\"p\":{\"a\":21,\"b\":\"m\"}},"
     "{\"id\":22,\"p\":{\"a\":22,\"b\":\"m\"}}]",
     "SELECT count(*) FILTER (WHERE id >= 20) || ' ' || (SELECT count(*) FROM archive) FROM things",
     "0 3"},
    {"with-delete", "many",
     "WITH gone AS (DELETE FROM archive WHERE id = 20 RETURNING *), more AS (SELECT 1 AS one) "
     "SELECT p, one FROM gone, more",
     "[{\"p\":{\"a\":20,\"b\":\"m\"},\"one\":1}]", "SELECT count(*) FROM archive WHERE id = 20",
     "0"},
    {"with-update", "one",
     "WITH wanted AS (SELECT 21 AS id) UPDATE archive SET note = 'w' FROM wanted WHERE archive.id "
     "= wanted.id RETURNING archive.*, wanted",
     "{\"id\":21,\"p\":{\"a\":21,\"b\":\"m\"},\"note\":\"w\",\"wanted\":{\"id\":21}}",
     "SELECT note FROM archive WHERE id = 21", "w"},
    {"delete", "many", "DELETE FROM archive WHERE id = 22 RETURNING p, p, id AS \"p\"",
     "[{\"p\":{\"a\":22,\"b\":\"m\"},\"p\":{\"a\":22,\"b\":\"m\"},\"p\":22}]",
     "SELECT count(*) FROM archive WHERE id = 22", "0"},
    {"exec", "exec", "UPDATE things SET note = 'e' WHERE id < 3 RETURNING p", "{\"rows\":2}",
     "SELECT count(*) FROM things WHERE note = 'e'", "2"},
    {"take", "one", "SELECT id, p FROM queue ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
     "{\"id\":2,\"p\":{\"a\":2,\"b\":\"q\"}}", "SELECT count(*) FROM queue", "3"},
};
enum { WRITE_COUNT = sizeof writes / sizeof writes[0] };

/* --- changes under what is prepared --- */

struct change {
    const char *name, *sql;
    const char *changes[4]; /* one after the other; NULL: no more */
};

static const struct change changes[] = {
    {"type-grows",
     "SELECT g FROM growing",
     {"ALTER TYPE grows ADD ATTRIBUTE c int", "ALTER TYPE grows RENAME ATTRIBUTE b TO \"b b\"",
      "ALTER TYPE grows DROP ATTRIBUTE a", "UPDATE growing SET g.c = 5"}},
    {"table-grows",
     "SELECT * FROM wide",
     {"ALTER TABLE wide ADD COLUMN extra text DEFAULT 'e'",
      "ALTER TABLE wide RENAME COLUMN id TO number",
      "ALTER TABLE wide ALTER COLUMN number TYPE text",
      "ALTER TABLE wide DROP COLUMN extra, ALTER COLUMN p TYPE text USING p::text"}},
    {"column-becomes-composite",
     "SELECT * FROM plain",
     {"ALTER TABLE plain ALTER COLUMN v TYPE pair USING v::pair",
      "ALTER TABLE plain ALTER COLUMN v TYPE hstore USING 'a=>1'",
      "ALTER TABLE plain ALTER COLUMN v TYPE jsonb USING to_json(v)"}},
    {"enum-grows",
     "SELECT c, cs, ROW(c, cs) AS r FROM painted",
     {"ALTER TYPE colour ADD VALUE 'dark blue'",
      "UPDATE painted SET c = 'dark blue', cs = '{red,\"dark blue\"}'",
      "ALTER TYPE colour RENAME VALUE 'red' TO 'rouge'"}},
    {"type-is-made-anew",
     "SELECT ROW(1)::box_of AS v",
     {"DROP TYPE box_of; CREATE TYPE box_of AS (z int)",
      "DROP TYPE box_of; CREATE TYPE box_of AS (y text)"}},
};
enum { CHANGE_COUNT = sizeof changes / sizeof changes[0] };

/* --- databases of other encodings --- */

static const char *const encoded[] = {
    "'caf\xC3\xA9 \"\xC3\xBC\"'::text",
    "ARRAY['\xC3\xA9', 'a\\b']",
    "ROW('\xC3\xA9', 1)",
    "'{\"\xC3\xA9\": \"\\u00e9\"}'::json",
    "'[\"\xC3\xA9\"]'::jsonb",
    "'\xC3\xA9'::char(3)",
    "'<a>\xC3\xA9</a>'::xml",
    "int4range(1, 2)",
};
enum { ENCODED_COUNT = sizeof encoded / sizeof encoded[0] };

static const char *const databases[][2] = {{"latin", "LATIN1"}, {"ascii", "SQL_ASCII"}};
enum { DATABASE_COUNT = sizeof databases / sizeof databases[0] };

/* --- the server and weir --- */

struct fixture {
    struct private_postgres *pg;
    struct weir_process *weir;
};

static void write_route(struct weir_process *weir, const char *method, const char *path,
                        const char *head, const char *sql)
{
    char *name = scratch_format("%s-%s.sql", method, path);
    char *text = scratch_format("-- %s /%s\n%s\n%s\n", method, path, head, sql);

    for (char *c = name; *c != '\0'; c++)
        if (*c == '/')
            *c = '-';
    weir_write(weir, name, text);
    free(text);
    free(name);
}

static void write_result_route(struct weir_process *weir, const char *method, const char *path,
                               const char *result, const char *sql)
{
    char *head = scratch_format("-- @result %s", result);

    write_route(weir, method, path, head, sql);
    free(head);
}

static void write_encoded_routes(struct weir_process *weir)
{
    for (size_t d = 0; d < DATABASE_COUNT; d++)
        for (size_t i = 0; i < ENCODED_COUNT; i++) {
            char *path = scratch_format("%s/%zu", databases[d][0], i);
            char *head = scratch_format("-- @from %s\n-- @result one", databases[d][0]);
            char *sql = scratch_format("SELECT %s AS \"\xC3\xA9\"", encoded[i]);

            write_route(weir, "GET", path, head, sql);
            free(sql);
            free(head);
            free(path);
        }
}

static void write_routes(struct weir_process *weir)
{
    for (size_t i = 0; i < READ_COUNT; i++)
        write_result_route(weir, "GET", reads[i].name, reads[i].result, reads[i].sql);
    for (size_t i = 0; i < WRITE_COUNT; i++)
        write_result_route(weir, "POST", writes[i].name, writes[i].result, writes[i].sql);
    for (size_t i = 0; i < CHANGE_COUNT; i++)
        write_result_route(weir, "GET", changes[i].name, "one", changes[i].sql);
    write_encoded_routes(weir);
    write_result_route(weir, "POST", "sink", "one",
                       "INSERT INTO sink VALUES (1, ROW(1, 'x')) "
                       "RETURNING *, tick('sink')");
    write_route(weir, "GET", "colour", "-- @param c colour\n-- @result one",
                "SELECT :c AS c, ROW(:c) AS r");
    write_result_route(weir, "POST", "call", "one", "CALL give(NULL)");
    write_result_route(weir, "POST", "ruled", "one",
                       "INSERT INTO ruled VALUES (ROW(1, 'x')) RETURNING p");
    write_result_route(weir, "POST", "nested", "one",
                       "(WITH a AS (DELETE FROM sink RETURNING p) SELECT p FROM a)");
}

static char *dependencies_of(const struct private_postgres *pg)
{
    char *conninfo = private_postgres_conninfo(pg, 0);
    char *text = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\", \"bulkhead\": "
        "{\"max_concurrent\": 1}}, \"latin\": {\"kind\": \"postgres\", \"conninfo\": \"%s "
        "dbname=latin\"}, \"ascii\": {\"kind\": \"postgres\", \"conninfo\": \"%s dbname=ascii\"}}",
        conninfo, conninfo, conninfo);

    free(conninfo);
    return text;
}

static int start_all(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char *dependencies;

    assert_non_null(f);
    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    private_postgres_exec(f->pg, "CREATE EXTENSION hstore");
    private_postgres_exec(f->pg, seed);
    for (size_t i = 0; i < DATABASE_COUNT; i++) {
        char *sql = scratch_format("CREATE DATABASE %s ENCODING '%s' TEMPLATE template0",
                                   databases[i][0], databases[i][1]);

        private_postgres_exec(f->pg, sql);
        free(sql);
    }
    dependencies = dependencies_of(f->pg);
    f->weir = weir_create(&(struct weir_setup){.dependencies = dependencies});
    write_routes(f->weir);
    weir_start(f->weir);
    assert_true(exchange_is_healthy_within(f->weir, 10000));
    free(dependencies);
    *state = f;
    return 0;
}

static int stop_all(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(weir_stop(f->weir, 20000), 0);
    weir_destroy(f->weir);
    private_postgres_destroy(f->pg);
    free(f);
    return 0;
}

/* --- asking --- */

static void assert_answer(struct fixture *f, const char *method, const char *path,
                          const char *expected)
{
    struct http_answer answer = exchange_ask(
        f->weir,
        &(struct exchange){.method = method, .path = path, .body = method != NULL ? "{}" : NULL});

    if (answer.status != 200 || strcmp(answer.body, expected) != 0)
        fail_msg("%s: %d %s, expected %s", path, answer.status, answer.body, expected);
    http_answer_fini(&answer);
}

static char *oracle(struct fixture *f, const char *result, const char *query)
{
    bool is_many = strcmp(result, "many") == 0;
    char *sql = scratch_format(is_many ? "SELECT '[' || coalesce(string_agg(to_json(w)::text, ','),"
                                         " '') || ']' FROM (\n%s\n) AS w"
                                       : "SELECT to_json(w) FROM (\n%s\n) AS w",
                               query);
    char *value = private_postgres_value(f->pg, sql);

    free(sql);
    return value;
}

static void assert_as_the_server(struct fixture *f, const char *name, const char *result,
                                 const char *query)
{
    char *path = scratch_format("/%s", name);
    char *expected = oracle(f, result, query);

    assert_answer(f, NULL, path, expected);
    free(expected);
    free(path);
}

/* --- tests --- */

static void test_reads_answer_what_the_server_would(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < READ_COUNT; i++)
        assert_as_the_server(f, reads[i].name, reads[i].result, reads[i].sql);
}

static void test_a_wrapped_statement_costs_one_execution_a_call(void **state)
{
    struct fixture *f = *state;
    size_t parsed, executed;

    for (int i = 0; i < 2; i++)
        assert_as_the_server(f, reads[0].name, reads[0].result, reads[0].sql);
    parsed = private_postgres_log_count(f->pg, " parse ");
    executed = private_postgres_log_count(f->pg, " execute ");
    for (int i = 0; i < 10; i++)
        assert_as_the_server(f, reads[0].name, reads[0].result, reads[0].sql);
    figure_count_is("Parse messages of 10 calls of a wrapped statement",
                    (int64_t)(private_postgres_log_count(f->pg, " parse ") - parsed), 0);
    figure_count_is("executions of 10 calls of a wrapped statement",
                    (int64_t)(private_postgres_log_count(f->pg, " execute ") - executed), 10);
}

static PGconn *lock_first(struct fixture *f)
{
    char *conninfo = private_postgres_conninfo(f->pg, 0);
    PGconn *conn = PQconnectdb(conninfo);

    PQclear(PQexec(conn, "BEGIN"));
    PQclear(PQexec(conn, "SELECT 1 FROM queue WHERE id = 1 FOR UPDATE"));
    assert_int_equal(PQtransactionStatus(conn), PQTRANS_INTRANS);
    free(conninfo);
    return conn;
}

static void test_writes_do_what_they_say_once(void **state)
{
    struct fixture *f = *state;
    PGconn *other = lock_first(f);

    for (size_t i = 0; i < WRITE_COUNT; i++) {
        char *path = scratch_format("/%s", writes[i].name), *after;

        assert_answer(f, "POST", path, writes[i].expected);
        after = private_postgres_value(f->pg, writes[i].check);
        assert_string_equal(after, writes[i].after);
        free(after);
        free(path);
    }
    assert_int_equal(private_postgres_ticks(f->pg, "insert"), 1);
    assert_int_equal(private_postgres_ticks(f->pg, "select"), 1);
    PQfinish(other);
}

static void test_types_and_tables_may_change_under_a_statement(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < CHANGE_COUNT; i++) {
        const struct change *c = &changes[i];

        assert_as_the_server(f, c->name, "one", c->sql);
        for (size_t k = 0; k < 4 && c->changes[k] != NULL; k++) {
            private_postgres_exec(f->pg, c->changes[k]);
            assert_as_the_server(f, c->name, "one", c->sql);
            assert_as_the_server(f, c->name, "one", c->sql);
        }
    }
}

static void test_a_write_meets_its_changed_table_once(void **state)
{
    struct fixture *f = *state;
    char *count;

    assert_answer(f, "POST", "/sink", "{\"id\":1,\"p\":{\"a\":1,\"b\":\"x\"},\"tick\":\"sink\"}");
    private_postgres_exec(f->pg, "ALTER TABLE sink ADD COLUMN more int");
    assert_answer(f, "POST", "/sink",
                  "{\"id\":1,\"p\":{\"a\":1,\"b\":\"x\"},\"more\":null,\"tick\":\"sink\"}");
    count = private_postgres_value(f->pg, "SELECT count(*) FROM sink");
    assert_string_equal(count, "2");
    assert_int_equal(private_postgres_ticks(f->pg, "sink"), 2);
    free(count);
}

static void test_a_parameters_type_may_be_made_anew(void **state)
{
    struct fixture *f = *state;

    assert_answer(f, NULL, "/colour?c=rouge", "{\"c\":\"rouge\",\"r\":{\"f1\":\"rouge\"}}");
    private_postgres_exec(f->pg, "DROP TABLE painted; DROP TYPE colour; "
                                 "CREATE TYPE colour AS ENUM ('green')");
    assert_answer(f, NULL, "/colour?c=green", "{\"c\":\"green\",\"r\":{\"f1\":\"green\"}}");
    assert_int_equal(exchange_status(f->weir, NULL, "/colour?c=rouge"), 400);
}

static void test_what_cannot_be_wrapped_says_what_to_do(void **state)
{
    static const char *const paths[] = {"/call", "/ruled", "/nested"};
    struct fixture *f = *state;
    int64_t left;

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct http_answer answer = exchange_ask(
            f->weir, &(struct exchange){.method = "POST", .path = paths[i], .body = "{}"});

        if (answer.status != 500 || strstr(answer.body, "\"reason\":\"query-invalid\"") == NULL ||
            strstr(answer.body, "column 1 of the result") == NULL ||
            strstr(answer.body, "write to_json(...) around that column") == NULL)
            fail_msg("%s: %d %s", paths[i], answer.status, answer.body);
        http_answer_fini(&answer);
    }
    left = private_postgres_number(f->pg, "SELECT count(*) FROM ruled");
    assert_int_equal(left, 0);
}

static void test_databases_of_other_encodings_answer_in_utf8(void **state)
{
    struct fixture *f = *state;

    for (size_t d = 0; d < DATABASE_COUNT; d++) {
        char *conninfo = private_postgres_conninfo(f->pg, 0);
        char *other =
            scratch_format("%s dbname=%s client_encoding=UTF8", conninfo, databases[d][0]);
        PGconn *conn = PQconnectdb(other);

        for (size_t i = 0; i < ENCODED_COUNT; i++) {
            char *path = scratch_format("/%s/%zu", databases[d][0], i);
            char *sql = scratch_format("SELECT to_json(w) FROM (SELECT %s AS \"\xC3\xA9\") AS w",
                                       encoded[i]);
            PGresult *expected = PQexec(conn, sql);

            assert_int_equal(PQresultStatus(expected), PGRES_TUPLES_OK);
            assert_answer(f, NULL, path, PQgetvalue(expected, 0, 0));
            PQclear(expected);
            free(sql);
            free(path);
        }
        PQfinish(conn);
        free(other);
        free(conninfo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_answer_what_the_server_would),
        cmocka_unit_test(test_a_wrapped_statement_costs_one_execution_a_call),
        cmocka_unit_test(test_writes_do_what_they_say_once),
        cmocka_unit_test(test_types_and_tables_may_change_under_a_statement),
        cmocka_unit_test(test_a_write_meets_its_changed_table_once),
        cmocka_unit_test(test_a_parameters_type_may_be_made_anew),
        cmocka_unit_test(test_what_cannot_be_wrapped_says_what_to_do),
        cmocka_unit_test(test_databases_of_other_encodings_answer_in_utf8),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}

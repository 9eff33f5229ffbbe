/* Types in and out: every value as the server's own to_json gives it, and every type as a
 * parameter from each place it can come from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "exchange.h"
#include "patience.h"
#include "scratch.h"

/* --- out: expressions whose answer must be the server's to_json, byte for byte --- */

static const char *const values[] = {
    /* whole numbers */
    "0::int2",
    "32767::int2",
    "(-2147483648)::int4",
    "9007199254740993::int8",
    "(-9223372036854775808)::int8",
    "4294967295::oid",
    /* numerics keep their digits */
    "0.10::numeric(6,2)",
    "12345678901234567890.123456789012345678901234567890::numeric",
    "1e400::numeric",
    "(-1e-40)::numeric",
    "'NaN'::numeric",
    "'Infinity'::numeric",
    "'-Infinity'::numeric",
    "1.000::numeric",
    /* floats */
    "0.1::float4",
    "0.1::float8",
    "1e300::float8",
    "'1e-320'::float8",
    "'-0'::float8",
    "'NaN'::float8",
    "'Infinity'::float8",
    "'-Infinity'::float4",
    "1e21::float8",
    "123456789.125::float4",
    /* text */
    "''::text",
    "'null'::text",
    "'a\"b\\c/d'::text",
    "E'tab\\tnew\\nret\\rbell\\x07del\\x7f'::text",
    "E'\\x01\\x1f\\b\\f'::text",
    "U&'\\00fc\\20ac\\+01f600 \\2028\\2029'::text",
    "'<script>&amp;'::text",
    "'ab'::char(5)",
    "'x'::\"char\"",
    "'abc'::varchar(9)",
    "'pg_class'::name",
    "repeat('x', 5000)",
    /* booleans and NULL */
    "true",
    "false",
    "NULL::int",
    "NULL::text",
    /* dates and times */
    "'2026-02-28'::date",
    "'infinity'::date",
    "'-infinity'::date",
    "'0044-03-15 BC'::date",
    "'10000-01-01'::date",
    "'2026-02-28 23:59:59.123456'::timestamp",
    "'2026-02-28 23:59:59'::timestamp",
    "'infinity'::timestamp",
    "'0044-03-15 12:00:00 BC'::timestamp",
    "'2026-02-28 23:59:59.5+05:30'::timestamptz",
    "'2026-07-01 00:00:00+00'::timestamptz",
    "'-infinity'::timestamptz",
    "'0044-03-15 12:00:00+00 BC'::timestamptz",
    "'1850-01-01 00:00:00+00'::timestamptz",
    "'23:59:59.999'::time",
    "'24:00:00'::time",
    "'12:00:00+02'::timetz",
    "'1 year 2 mons -3 days 04:05:06.7'::interval",
    "'-00:00:01'::interval",
    "'178956970 years'::interval",
    /* json */
    "'{\"a\": [1, 2.50, null, \"x\"], \"a\": 2}'::json",
    "'  [ 1 , 2 ]  '::json",
    "'{\"b\":1,\"a\":{\"c\":1e2}}'::jsonb",
    "'\"text\"'::jsonb",
    "'null'::jsonb",
    "'1.10'::jsonb",
    "E'{\"s\": \"line\\\\nend \\\\u00e9\"}'::json",
    /* bytes, ids, addresses, bits, money, places, xml */
    "'\\x00ff10'::bytea",
    "''::bytea",
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
    "'192.168.0.1/24'::inet",
    "'::1'::inet",
    "'10.0.0.0/8'::cidr",
    "'08:00:2b:01:02:03'::macaddr",
    "B'1010'::bit(4)",
    "B'101'::varbit",
    "12.34::money",
    "'(1.5,-2)'::point",
    "'(1,1),(0,0)'::box",
    "'<(0,0),2>'::circle",
    "'a & !c'::tsquery",
    "'a:1 b:2'::tsvector",
    "'$.a[*]'::jsonpath",
    "'16/B374D848'::pg_lsn",
    "'app'::regrole",
    "'int4'::regtype",
    /* of one's own */
    "'so happy'::mood",
    "7::positive",
    "NULL::mood",
    "ROW(1, 'a \"b\", \\c')::pair",
    "ROW(NULL, NULL)::pair",
    "ROW(1, 'x', ROW(2, 'y')::pair)",
    "NULL::pair",
    /* ranges */
    "int4range(1, 5)",
    "numrange(NULL, 1.50, '[]')",
    "'empty'::int8range",
    "tstzrange('2026-01-01 00:00+00', NULL)",
    "daterange('2026-01-01', '2026-02-01')",
    "int4multirange(int4range(1, 2), int4range(5, 7))",
    /* arrays */
    "'{}'::int4[]",
    "ARRAY[1, NULL, 3]",
    "ARRAY[[1, 2], [3, 4]]",
    "'[2:3]={7,8}'::int4[]",
    "ARRAY['a,b', 'c\"d', 'NULL', NULL, '', E'e\\\\f', '{}']::text[]",
    "ARRAY[true, false]",
    "ARRAY[1.50, 'NaN']::numeric[]",
    "ARRAY['2026-01-01 10:00:00+00'::timestamptz, NULL]",
    "ARRAY['{\"a\": 1}'::jsonb, 'null'::jsonb]",
    "ARRAY['{\"a\":  1}'::json]",
    "ARRAY['sad', 'so happy']::mood[]",
    "ARRAY[ROW(1, 'a,b')::pair, NULL]::pair[]",
    "ARRAY['(1,1),(0,0)'::box, '(3,3),(2,2)'::box]",
    "ARRAY['\\x00ff'::bytea]",
    "ARRAY[1, 2]::positive[]",
    "ARRAY[int4range(1, 2)]",
    "'1 2 3'::int2vector",
    "'10 20'::oidvector",
    "ARRAY['1 day'::interval]",
    "ARRAY['Infinity'::float8, 1]",
    "ARRAY[[['a']]]::varchar[]",
};
enum { VALUE_COUNT = sizeof values / sizeof values[0] };

/* Settings of a server that change how it writes values. */
static const char *const server_settings[] = {
    "DateStyle = 'ISO, MDY'",
    "DateStyle = 'German, DMY'; IntervalStyle = 'iso_8601'; bytea_output = 'escape'; "
    "extra_float_digits = 0; TimeZone = 'Asia/Kolkata'",
    "DateStyle = 'SQL, DMY'; IntervalStyle = 'sql_standard'; extra_float_digits = 3; "
    "TimeZone = 'America/St_Johns'; xmlbinary = 'hex'",
};

/* --- in: a parameter of each type, from each place --- */

struct sent {
    const char *type;
    const char *query;    /* as in the URL */
    const char *json;     /* as in a body; NULL: not sent that way */
    const char *expected; /* the answer's body; NULL: 400 bad-parameter */
};

static const struct sent sent[] = {
    {"int2", "-5", "-5", "-5"},
    {"int2", "40000", "40000", NULL},
    {"int4", "%2B7", "\"7\"", "7"},
    {"int4", "2147483648", "2147483648", NULL},
    {"int4", "", "\"\"", NULL},
    {"int4", "1.0", "1.5", NULL},
    {"int4", "0x10", "\"0x10\"", NULL},
    {"int4", "1%00", "\"1\\u0000\"", NULL},
    {"int8", "9007199254740993", "9007199254740993", "9007199254740993"},
    {"int8", "9223372036854775808", "9223372036854775808", NULL},
    {"numeric", "0.10", "0.10", "0.10"},
    {"numeric", "1234567890123456789012345678.90", "1234567890123456789012345678.90",
     "1234567890123456789012345678.90"},
    {"numeric", "NaN", "\"NaN\"", "\"NaN\""},
    {"numeric", "abc", "true", NULL},
    {"float8", "1e21", "1e21", "1e+21"},
    {"float8", "-0", "-0", "-0"},
    {"float8", "Infinity", "\"Infinity\"", "\"Infinity\""},
    {"float8", "1e999", "1e999", NULL},
    {"float4", "0.1", "0.1", "0.1"},
    {"bool", "true", "true", "true"},
    {"bool", "off", "\"off\"", "false"},
    {"bool", "maybe", "2", NULL},
    {"text", "a%20b+c%2B", "\"a b c+\"", "\"a b c+\""},
    {"text", "", "\"\"", "\"\""},
    {"text", "%F0%9F%98%80%22%5C", "\"\\ud83d\\ude00\\\"\\\\\"", "\"\xF0\x9F\x98\x80\\\"\\\\\""},
    {"text", "'%3B%20DROP%20TABLE%20items%3B--", "\"'; DROP TABLE items;--\"",
     "\"'; DROP TABLE items;--\""},
    {"text", "%ff", NULL, NULL},
    {"text", "%c0%80", NULL, NULL},
    {"text", "%ed%a0%80", "\"\\ud800\"", NULL},
    {"text", "%zz", NULL, NULL},
    {"text", "a%00b", "\"a\\u0000b\"", NULL},
    {"uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"",
     "\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\""},
    {"uuid", "a0eebc99", "\"a0eebc99\"", NULL},
    {"date", "2026-02-28", "\"2026-02-28\"", "\"2026-02-28\""},
    {"date", "2026-02-30", "\"2026-02-30\"", NULL},
    {"timestamp", "2026-02-28T01:02:03", "\"2026-02-28 01:02:03\"", "\"2026-02-28T01:02:03\""},
    {"timestamptz", "2026-01-01T00:00:00%2B02:00", "\"2026-01-01T00:00:00+02:00\"",
     "\"2025-12-31T22:00:00+00:00\""},
    {"timestamptz", "2026-01-01T00:00:00+02:00", NULL, NULL},
    {"interval", "1%20day", "\"1 day\"", "\"1 day\""},
    {"bytea", "%5Cx00ff", "\"\\\\x00ff\"", "\"\\\\x00ff\""},
    {"json", "%7B%22a%22:%201.10%7D", "{\"a\": 1.10}", "{\"a\": 1.10}"},
    {"jsonb", "%5B1,2%5D", "[1,2]", "[1, 2]"},
    {"jsonb", "%7Bx", NULL, NULL},
    {"inet", "10.0.0.1", "\"10.0.0.1\"", "\"10.0.0.1\""},
    {"inet", "10.0.0.999", "\"10.0.0.999\"", NULL},
    {"mood", "so%20happy", "\"so happy\"", "\"so happy\""},
    {"mood", "furious", "\"furious\"", NULL},
    {"positive", "7", "7", "7"},
    {"int4range", "%5B1,5)", "\"[1,5)\"", "\"[1,5)\""},
    {"int4range", "%5B5,1)", "\"[5,1)\"", NULL},
    {"int4[]", "1&v=2&v=3", "[1,2,3]", "[1,2,3]"},
    {"int4[]", "1&v=x", "[1,\"x\"]", NULL},
    {"text[]", "a,b&v=&v=NULL&v=%22&v=%5C", "[\"a,b\",\"\",\"NULL\",\"\\\"\",\"\\\\\"]",
     "[\"a,b\",\"\",\"NULL\",\"\\\"\",\"\\\\\"]"},
    {"text[]", "x", "[\"x\"]", "[\"x\"]"},
    {"mood[]", "sad&v=ok", "[\"sad\",\"ok\"]", "[\"sad\",\"ok\"]"},
    {"numeric[]", "1.50&v=2", "[1.50,2]", "[1.50,2]"},
};
enum { SENT_COUNT = sizeof sent / sizeof sent[0] };

/* --- the server and weir --- */

struct fixture {
    struct private_postgres *pg;
    struct weir_process *weir;
};

static void write_value_routes(struct weir_process *weir)
{
    for (size_t i = 0; i < VALUE_COUNT; i++) {
        char *name = scratch_format("v%zu.sql", i);
        char *text =
            scratch_format("-- GET /v/%zu\n-- @result value\nSELECT %s AS v\n", i, values[i]);

        weir_write(weir, name, text);
        free(text);
        free(name);
    }
}

static void write_object_route(struct weir_process *weir)
{
    char *list = scratch_format("%s AS \"c 0\\\"\"\"", values[0]);
    char *text;

    for (size_t i = 1; i < VALUE_COUNT; i++) {
        char *longer = scratch_format("%s, %s AS \"c%zu\"", list, values[i], i);

        free(list);
        list = longer;
    }
    text = scratch_format("-- GET /object\n-- @result one\nSELECT %s\n", list);
    weir_write(weir, "object.sql", text);
    free(text);
    free(list);
}

static void write_sent_routes(struct weir_process *weir)
{
    for (size_t i = 0; i < SENT_COUNT; i++) {
        static const char *const methods[] = {"GET", "POST"};

        for (size_t m = 0; m < 2; m++) {
            char *name = scratch_format("s%zu-%zu.sql", i, m);
            char *text = scratch_format("-- %s /s/%zu\n-- @param v %s\n-- @result value\n"
                                        "SELECT :v AS v\n",
                                        methods[m], i, sent[i].type);

            weir_write(weir, name, text);
            free(text);
            free(name);
        }
    }
}

static int start_all(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char *dependencies;

    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    dependencies = exchange_primary(f->pg, 0, NULL);
    f->weir = weir_create(&(struct weir_setup){.dependencies = dependencies});
    write_value_routes(f->weir);
    write_object_route(f->weir);
    write_sent_routes(f->weir);
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

/* --- out --- */

static char *oracle(struct private_postgres *pg, const char *expression)
{
    char *sql = scratch_format("SELECT coalesce(pg_catalog.to_json(v)::text, 'null') "
                               "FROM (SELECT %s AS v) AS one",
                               expression);
    char *value = private_postgres_value(pg, sql);

    free(sql);
    return value;
}

/* 1: as the server says. */
static bool is_same(struct fixture *f, size_t i, const char *settings)
{
    char *path = scratch_format("/v/%zu", i);
    char *expected = oracle(f->pg, values[i]);
    struct http_answer answer = exchange_ask(f->weir, &(struct exchange){.path = path});
    bool is_equal = answer.status == 200 && strcmp(answer.body, expected) == 0;

    if (!is_equal)
        print_error("%s (%s): %d %s, to_json: %s\n", values[i], settings, answer.status,
                    answer.body, expected);
    http_answer_fini(&answer);
    free(expected);
    free(path);
    return is_equal;
}

static bool has_no_sessions(void *context)
{
    const struct fixture *f = context;

    return weir_metric(f->weir, "weir_connections", "state=\"idle\"") < 1;
}

static void open_anew(struct fixture *f)
{
    private_postgres_exec(f->pg, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                 "WHERE usename = 'app'");
    assert_true(poll_until(has_no_sessions, f, 2000));
}

/* For the role of weir's sessions, and for the session of the oracle; weir's are opened anew. */
static void apply_settings(struct fixture *f, const char *settings)
{
    char *list = scratch_format("%s", settings), *rest = NULL;

    for (char *one = strtok_r(list, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest)) {
        char *sql = scratch_format("ALTER ROLE app SET %s; SET %s", one, one);

        private_postgres_exec(f->pg, sql);
        free(sql);
    }
    free(list);
    open_anew(f);
}

static void test_every_value_is_what_to_json_gives(void **state)
{
    struct fixture *f = *state;
    size_t settings_count = sizeof server_settings / sizeof server_settings[0], wrong = 0;

    for (size_t s = 0; s < settings_count; s++) {
        apply_settings(f, server_settings[s]);
        for (size_t i = 0; i < VALUE_COUNT; i++)
            wrong += is_same(f, i, server_settings[s]) ? 0 : 1;
    }
    private_postgres_exec(f->pg, "ALTER ROLE app RESET ALL; RESET ALL");
    open_anew(f);
    print_message("[figure] values equal to to_json: %zu of %zu (limit: all)\n",
                  VALUE_COUNT * settings_count - wrong, VALUE_COUNT * settings_count);
    assert_int_equal(wrong, 0);
}

static void test_an_object_holds_each_value_under_its_name(void **state)
{
    struct fixture *f = *state;
    struct http_answer answer = exchange_ask(f->weir, &(struct exchange){.path = "/object"});
    const char *at = answer.body;

    assert_int_equal(answer.status, 200);
    for (size_t i = 0; i < VALUE_COUNT; i++) {
        char *value = oracle(f->pg, values[i]);
        char *member = i == 0 ? scratch_format("{\"c 0\\\\\\\"\":%s", value)
                              : scratch_format(",\"c%zu\":%s", i, value);

        if (strncmp(at, member, strlen(member)) != 0)
            fail_msg("expected %s, found %.200s", member, at);
        at += strlen(member);
        free(member);
        free(value);
    }
    assert_string_equal(at, "}");
    http_answer_fini(&answer);
}

/* --- in --- */

static bool is_as_expected(struct fixture *f, const struct sent *s, const struct exchange *e)
{
    struct http_answer answer = exchange_ask(f->weir, e);
    char *reason = http_answer_reason(&answer);
    bool is_right = s->expected != NULL
                        ? answer.status == 200 && strcmp(answer.body, s->expected) == 0
                        : answer.status == 400 && strcmp(reason, "bad-parameter") == 0 &&
                              (strstr(answer.body, "\\\"v\\\"") != NULL ||
                               strstr(answer.body, "SQLSTATE 22") != NULL);

    if (!is_right)
        print_error("%s from %s: %d %s, expected %s\n", s->type,
                    e->body != NULL ? e->body : s->query, answer.status, answer.body,
                    s->expected != NULL ? s->expected : "400 bad-parameter that names \"v\"");
    free(reason);
    http_answer_fini(&answer);
    return is_right;
}

static void test_every_type_comes_in_by_query(void **state)
{
    struct fixture *f = *state;
    size_t wrong = 0;

    for (size_t i = 0; i < SENT_COUNT; i++) {
        char *path = scratch_format("/s/%zu?v=%s", i, sent[i].query);

        wrong += is_as_expected(f, &sent[i], &(struct exchange){.path = path}) ? 0 : 1;
        free(path);
    }
    assert_int_equal(wrong, 0);
}

static void test_every_type_comes_in_by_body(void **state)
{
    struct fixture *f = *state;
    size_t wrong = 0;

    for (size_t i = 0; i < SENT_COUNT; i++) {
        char *path, *body;

        if (sent[i].json == NULL)
            continue;
        path = scratch_format("/s/%zu", i);
        body = scratch_format("{\"v\": %s}", sent[i].json);
        wrong +=
            is_as_expected(f, &sent[i], &(struct exchange){.path = path, .body = body}) ? 0 : 1;
        free(body);
        free(path);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value_is_what_to_json_gives),
        cmocka_unit_test(test_an_object_holds_each_value_under_its_name),
        cmocka_unit_test(test_every_type_comes_in_by_query),
        cmocka_unit_test(test_every_type_comes_in_by_body),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}

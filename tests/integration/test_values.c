/* Types in: every type as a parameter from each place it can come from. (Out: test_types.c.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "exchange.h"
#include "scratch.h"

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
        cmocka_unit_test(test_every_type_comes_in_by_query),
        cmocka_unit_test(test_every_type_comes_in_by_body),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}

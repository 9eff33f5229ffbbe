#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/complaint.h"
#include "cmocka_all.h"
#include "query/params.h"
#include "query/query_file_internal.h"

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

/* Appends what fits. */
static void append(char *text, size_t room, const char *piece)
{
    size_t size = strlen(text);

    (void)snprintf(text + size, room - size, "%s", piece);
}

/* A route whose every parameter is bound in the order of its @param lines. */
static void make_route(struct route *route, const char *first_line, const char *specs)
{
    struct complaints complaints;
    struct catalog_source source = {"primary", false};
    struct query_file file = {.shown = "a.sql",
                              .sources = &source,
                              .source_count = 1,
                              .request_timeout_us = 5000000,
                              .complaints = &complaints,
                              .route = route};
    char text[2048], *spec_list = strdup(specs), *rest = spec_list;
    char select[512] = "SELECT ";

    assert_non_null(spec_list);
    (void)snprintf(text, sizeof text, "-- %s\n", first_line);
    for (char *spec = strsep(&rest, "\n"); spec != NULL; spec = strsep(&rest, "\n")) {
        size_t used = strlen(text), selected = strlen(select);

        (void)snprintf(text + used, sizeof text - used, "-- @param %s\n", spec);
        (void)snprintf(select + selected, sizeof select - selected, ":%.*s, ",
                       (int)strcspn(spec, " "), spec);
    }
    append(text, sizeof text, select);
    append(text, sizeof text, "1");

    memset(route, 0, sizeof *route);
    complaints_init(&complaints);
    file.text = text;
    file.size_bytes = strlen(text);
    assert_true(query_file_read(&file));
    for (size_t i = 0; i < complaints.count; i++)
        if (!complaints.items[i].is_warning)
            fail_msg("%s", complaints.items[i].text);
    complaints_fini(&complaints);
    free(spec_list);
}

struct binding {
    bool is_bound;
    struct bound_params params;
    enum reason reason;
    struct error err;
};

static void bind(struct binding *b, const struct route *route, struct raw_inputs inputs)
{
    memset(b, 0, sizeof *b);
    b->is_bound = params_bind(route, &inputs, &b->params, &b->reason, &b->err);
    if (!b->is_bound)
        assert_true(b->params.count == 0 && b->params.memory == NULL);
}

/* Copies, so that a byte read past the end is seen. */
static void bind_bytes(struct binding *b, const struct route *route, bool is_body, const char *data,
                       size_t size_bytes)
{
    char *copy = malloc(size_bytes > 0 ? size_bytes : 1);
    struct raw_text raw = {copy, size_bytes};

    assert_non_null(copy);
    memcpy(copy, data, size_bytes);
    bind(b, route, is_body ? (struct raw_inputs){.body = raw} : (struct raw_inputs){.query = raw});
    free(copy);
}

static void bind_query_text(struct binding *b, const struct route *route, const char *query)
{
    bind_bytes(b, route, false, query, strlen(query));
}

static void bind_body_text(struct binding *b, const struct route *route, const char *body)
{
    bind_bytes(b, route, true, body, strlen(body));
}

static void expect_bound(const struct binding *b, const char *input, const char *value)
{
    if (!b->is_bound)
        fail_msg("%s: %s", input, b->err.text);
    if (value == NULL ? b->params.values[0] != NULL
                      : b->params.values[0] == NULL || strcmp(b->params.values[0], value) != 0)
        fail_msg("%s: got %s, not %s", input,
                 b->params.values[0] != NULL ? b->params.values[0] : "NULL",
                 value != NULL ? value : "NULL");
}

static void expect_refused(const struct binding *b, const char *input, enum reason reason,
                           const char *word)
{
    if (b->is_bound)
        fail_msg("%s is accepted", input);
    if (b->reason != reason || strstr(b->err.text, word) == NULL)
        fail_msg("%s: %s, %s; not ... %s", input, reason_word(b->reason), b->err.text, word);
}

static void test_percent_decoding(void **state)
{
    static const struct {
        const char *raw;
        bool is_form;
        const char *text; /* NULL: refused */
    } cases[] = {
        {"", true, ""},        {"abc", true, "abc"},    {"a+b", true, "a b"},
        {"a+b", false, "a+b"}, {"%2F%2f", false, "//"}, {"%C3%A9", false, "\xc3\xa9"},
        {"%2B", true, "+"},    {"%25", true, "%"},      {"%", true, NULL},
        {"%4", true, NULL},    {"a%2", false, NULL},    {"%z0", true, NULL},
        {"%0z", true, NULL},   {"%%41", true, NULL},    {"%-1", true, NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char out[16];
        size_t size = 0;
        bool is_good =
            percent_decode(cases[i].raw, strlen(cases[i].raw), cases[i].is_form, out, &size);

        assert_int_equal(is_good, cases[i].text != NULL);
        if (is_good) {
            assert_int_equal(size, strlen(cases[i].text));
            assert_memory_equal(out, cases[i].text, size);
        }
    }
}

struct value_case {
    const char *spec, *query;
    const char *value; /* what is bound; NULL: SQL NULL */
};

static void test_query_values_are_bound(void **state)
{
    static const struct value_case cases[] = {
        {"x text optional", "", NULL},
        {"x text optional", "x=", ""},
        {"x text optional", "x", ""},
        {"x text optional", "x=a=b", "a=b"},
        {"x text optional", "x=a+b%26c", "a b&c"},
        {"x text optional", "x=a;y=b", "a;y=b"},
        {"x text optional", "&&x=1&", "1"},
        {"x text optional", "%78=1", "1"},
        {"x text optional", "x=%F0%9F%98%80", "\xf0\x9f\x98\x80"},
        {"x text optional", "x=e%CC%81", "e\xcc\x81"},
        {"x text optional", "x=%09%0A%27%22%5C", "\t\n'\"\\"},
        {"x text optional", "x=' OR '1'%3D'1", "' OR '1'='1"},
        {"x text default=", "", ""},
        {"x text default=id", "", "id"},
        {"x text default=id", "x=", ""},
        {"x int4", "x=1", "1"},
        {"x int4", "x=%2B1", "+1"},
        {"x int4", "x=-0", "-0"},
        {"x int4", "x=007", "007"},
        {"x int4", "x=2147483647", "2147483647"},
        {"x int4", "x=-2147483648", "-2147483648"},
        {"x int2", "x=-32768", "-32768"},
        {"x int8", "x=9223372036854775807", "9223372036854775807"},
        {"x int8", "x=-9223372036854775808", "-9223372036854775808"},
        {"x oid", "x=4294967295", "4294967295"},
        {"x int4 min=1 max=10", "x=10", "10"},
        {"x numeric", "x=123456789012345678901234567890.10", "123456789012345678901234567890.10"},
        {"x numeric", "x=NaN", "NaN"},
        {"x numeric min=0.1 max=1e3", "x=1000.000", "1000.000"},
        {"x float8", "x=1e-7", "1e-7"},
        {"x float8", "x=-Infinity", "-Infinity"},
        {"x float8 max=5", "x=-inf", "-inf"},
        {"x bool", "x=TRUE", "TRUE"},
        {"x bool", "x=off", "off"},
        {"x bool", "x=0", "0"},
        {"x uuid", "x=A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
         "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"},
        {"x uuid", "x={a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
         "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}"},
        {"x uuid", "x=a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"},
        {"x jsonb", "x=%7B%22k%22:%5B1.50%5D%7D", "{\"k\":[1.50]}"},
        {"x jsonb", "x=null", "null"},
        {"x date", "x=2026-02-30", "2026-02-30"},
        {"x date", "x=", ""},
        {"x mood", "x=so%20happy", "so happy"},
        {"x timestamptz", "x=2026-01-01T00:00:00%2B02:00", "2026-01-01T00:00:00+02:00"},
        {"x timestamptz", "x=2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"},
        {"x timestamptz", "x=2026-01-01+00:00", "2026-01-01 00:00"},
        {"x timestamptz", "x=2026-01-01+10:00+PM", "2026-01-01 10:00 PM"},
        {"x timestamptz", "x=Jan+1+00:00:00+2026", "Jan 1 00:00:00 2026"},
        {"x timestamptz", "x=2026-01-01+00:00-05", "2026-01-01 00:00-05"},
        {"x text minlen=2 maxlen=5 pattern=^[a-z]+$", "x=abcde", "abcde"},
        {"x text maxlen=2", "x=%C3%A9%F0%9F%98%80", "\xc3\xa9\xf0\x9f\x98\x80"},
        {"x text pattern=.{2}", "x=%C3%A9%F0%9F%98%80", "\xc3\xa9\xf0\x9f\x98\x80"},
        {"x text pattern=a|bc", "x=bc", "bc"},
        {"x text enum=a,b", "x=b", "b"},
        {"x numeric enum=1,2.50", "x=2.5", "2.5"},
        {"x int4[] optional", "", NULL},
        {"x int4[]", "x=1&x=2&x=3", "{\"1\",\"2\",\"3\"}"},
        {"x int4[] default=4,5", "", "{\"4\",\"5\"}"},
        {"x text[]", "x=NULL&x=%22q%22&x=a,b&x={}&x=&x=%5C&x=x+y&x",
         "{\"NULL\",\"\\\"q\\\"\",\"a,b\",\"{}\",\"\",\"\\\\\",\"x y\",\"\"}"},
        {"x box[]", "x=(1,1),(0,0)&x=(2,2),(1,1)", "{\"(1,1),(0,0)\";\"(2,2),(1,1)\"}"},
        {"x text[]\ny text optional", "x=1&y=z&%78=2", "{\"1\",\"2\"}"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct route route;
        struct binding b;

        make_route(&route, "GET /a", cases[i].spec);
        bind_query_text(&b, &route, cases[i].query);
        expect_bound(&b, cases[i].query, cases[i].value);
        bound_params_fini(&b.params);
        route_fini(&route);
    }
}

static void test_wrong_query_values_name_the_parameter(void **state)
{
    static const struct {
        const char *spec, *query, *word;
    } cases[] = {
        {"x text", "", "parameter \"x\": missing"},
        {"x text optional", "x=a%00b", "parameter \"x\": holds a NUL"},
        {"x text optional", "x=%00", "NUL"},
        {"x text optional", "x=%ff", "parameter \"x\": not valid UTF-8"},
        {"x text optional", "x=%c0%80", "UTF-8"},
        {"x text optional", "x=%ed%a0%80", "UTF-8"},
        {"x text optional", "x=%f4%90%80%80", "UTF-8"},
        {"x text optional", "x=%e2%82", "UTF-8"},
        {"x text optional", "x=\xff", "UTF-8"},
        {"x text optional", "x=%", "parameter \"x\": a percent sign"},
        {"x text optional", "x=%zz", "percent"},
        {"x text optional", "x=a%2", "percent"},
        {"x text optional", "%=1", "name has a percent"},
        {"x text optional", "x%00x=1", "name holds a NUL"},
        {"x text optional", "%ff=1", "name is not valid UTF-8"},
        {"x text optional", "zzz=1", "unknown parameter \"zzz\""},
        {"x text optional", "X=1", "unknown parameter \"X\""},
        {"x text optional", "=1", "unknown parameter \"\""},
        {"x text optional", "x[]=1", "unknown parameter \"x[]\""},
        {"x text optional", "a%0Ab=1", "unknown parameter \"a?b\""},
        {"x text optional", "x=1&x=1", "parameter \"x\": given more than once"},
        {"x text[]\ny text optional", "x=1&y=z&x=2&y=", "\"y\": given more than once"},
        {"x int4", "x=", "not an integer"},
        {"x int4", "x=1.5", "not an integer"},
        {"x int4", "x=abc", "not an integer"},
        {"x int4", "x=1e1", "not an integer"},
        {"x int4", "x=0x1", "not an integer"},
        {"x int4", "x=+1x", "not an integer"},
        {"x int4", "x=%201", "not an integer"},
        {"x int4", "x=1%20", "not an integer"},
        {"x int4", "x=--1", "not an integer"},
        {"x int4", "x=-", "not an integer"},
        {"x int4", "x=1_0", "not an integer"},
        {"x int4", "x=%D9%A1", "not an integer"},
        {"x int4", "x=2147483648", "out of range for int4"},
        {"x int4", "x=99999999999999999999", "out of range"},
        {"x int4", "x=99999999999999999999x", "not an integer"},
        {"x int2", "x=32768", "out of range"},
        {"x int8", "x=9223372036854775808", "out of range"},
        {"x int8", "x=-9223372036854775809", "out of range"},
        {"x oid", "x=-1", "out of range"},
        {"x int4 min=1 max=10", "x=0", "less than 1"},
        {"x int4 min=1 max=10", "x=11", "greater than 10"},
        {"x numeric", "x=", "not a number"},
        {"x numeric", "x=1e", "not a number"},
        {"x numeric max=0.3", "x=0.30000000000000000001", "greater than 0.3"},
        {"x numeric max=1", "x=NaN", "NaN"},
        {"x numeric max=1", "x=Infinity", "greater"},
        {"x float8", "x=1e999x", "not a number"},
        {"x float8", "x=0x1p3", "not a number"},
        {"x bool", "x=maybe", "not a boolean"},
        {"x bool", "x=", "not a boolean"},
        {"x uuid", "x=not-a-uuid", "not a uuid"},
        {"x uuid", "x=", "not a uuid"},
        {"x uuid", "x=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1", "not a uuid"},
        {"x uuid", "x=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111", "not a uuid"},
        {"x uuid", "x=a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11", "not a uuid"},
        {"x uuid", "x=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-", "not a uuid"},
        {"x uuid", "x={a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "not a uuid"},
        {"x jsonb", "x=", "not JSON"},
        {"x jsonb", "x={a:1}", "not JSON"},
        {"x jsonb", "x=%22%5Cu0000%22", "NUL"},
        {"x jsonb", "x=%22%5Cud800%22", "surrogate"},
        {"x timestamptz", "x=2026-01-01T00:00:00+02:00", "%2B"},
        {"x timestamptz", "x=2026-01-01T00:00:00+02", "%2B"},
        {"x timestamptz", "x=2026-01-01+00:00:00+0530", "%2B"},
        {"x timetz", "x=10:00:00+02:00", "%2B"},
        {"x timestamptz[]", "x=2026-01-01T00:00:00Z&x=2026-01-01T00:00:00+02:00", "%2B"},
        {"x text minlen=2", "x=a", "shorter than 2"},
        {"x text maxlen=5", "x=abcdef", "longer than 5"},
        {"x text pattern=^[a-z]+$", "x=AB", "pattern"},
        {"x text pattern=^[a-z]+$", "x=ab%0a", "pattern"},
        {"x text pattern=[a-z]", "x=ab", "pattern"},
        {"x text pattern=a|bc", "x=ac", "pattern"},
        {"x text enum=a,b", "x=c", "not one of"},
        {"x int4[]", "", "missing"},
        {"x int4[]", "x=1&x=x", "\"x\": not an integer"},
        {"x int4[]", "x=1,2", "not an integer"},
        {"x int4[] max=2", "x=1&x=3", "greater than 2"},
        {"x text[]", "x=a&x=%00", "\"x\": holds a NUL"},
        {"x text[]", "x=a&x=%", "percent"},
        {"x text in=header", "x=1", "unknown parameter \"x\""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct route route;
        struct binding b;

        make_route(&route, "GET /a", cases[i].spec);
        bind_query_text(&b, &route, cases[i].query);
        expect_refused(&b, cases[i].query, REASON_BAD_PARAMETER, cases[i].word);
        route_fini(&route);
    }
}

static void test_long_names_are_cut_between_characters(void **state)
{
    char query[300];
    struct route route;
    struct binding b;

    (void)state;
    memset(query, 'n', sizeof query);
    for (size_t i = 1; i < 299; i += 2)
        memcpy(query + i, "\xc3\xa9", 2);
    query[299] = '\0';
    make_route(&route, "GET /a", "x text optional");
    bind_query_text(&b, &route, query);
    assert_false(b.is_bound);
    assert_int_equal(strlen(b.err.text), strlen("unknown parameter \"\"") + 63);
    route_fini(&route);
}

static void test_errors_never_hold_the_value(void **state)
{
    static const char *const specs[] = {
        "x int4",          "x numeric",     "x bool",           "x uuid",           "x jsonb",
        "x text maxlen=2", "x text enum=a", "x text pattern=a", "x text minlen=99", "x int4[]"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct route route;
        struct binding b;

        make_route(&route, "GET /a", specs[i]);
        bind_query_text(&b, &route, "x=SECRET");
        assert_false(b.is_bound);
        assert_null(strstr(b.err.text, "SECRET"));
        route_fini(&route);
    }
}

static void test_path_segments_are_data(void **state)
{
    static const struct {
        const char *segment, *value, *word;
    } cases[] = {
        {"a%2Fb", "a/b", NULL},
        {"a+b", "a+b", NULL},
        {"%C3%A9%20x", "\xc3\xa9 x", NULL},
        {"%zz", NULL, "percent"},
        {"%ff", NULL, "UTF-8"},
        {"admin%00x", NULL, "\"name\": holds a NUL"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct raw_text segments[] = {{"p", 1}, {cases[i].segment, strlen(cases[i].segment)}};
        struct route route;
        struct binding b;

        make_route(&route, "GET /p/{name}", "name text");
        bind(&b, &route, (struct raw_inputs){.segments = segments});
        if (cases[i].value != NULL)
            expect_bound(&b, cases[i].segment, cases[i].value);
        else
            expect_refused(&b, cases[i].segment, REASON_BAD_PARAMETER, cases[i].word);
        bound_params_fini(&b.params);
        route_fini(&route);
    }
}

static size_t look_up_header(void *ctx, const char *name, struct raw_text *out)
{
    const char *const *pairs = ctx;
    size_t count = 0;

    for (; pairs[0] != NULL; pairs += 2)
        if (strcasecmp(pairs[0], name) == 0 && count++ == 0)
            *out = (struct raw_text){pairs[1], strlen(pairs[1])};
    return count;
}

static void test_headers_are_looked_up(void **state)
{
    static const struct {
        const char *spec, *pairs[5], *value, *word;
    } cases[] = {
        {"tenant text in=header", {"Tenant", "a%20b+c"}, "a%20b+c", NULL},
        {"x_tenant text in=header", {"X-Tenant", "dash"}, "dash", NULL},
        {"x_tenant text in=header", {"x_tenant", "line"}, "line", NULL},
        {"tenant text in=header optional", {NULL}, NULL, NULL},
        {"tenant text in=header default=none", {NULL}, "none", NULL},
        {"tenant text in=header", {"tenant", ""}, "", NULL},
        {"tenant text in=header", {NULL}, NULL, "\"tenant\": missing"},
        {"tenant text in=header", {"tenant", "a\xff"}, NULL, "\"tenant\": not valid UTF-8"},
        {"tenant int4 in=header", {"tenant", "x"}, NULL, "not an integer"},
        {"tenant text in=header",
         {"tenant", "a", "Tenant", "b"},
         NULL,
         "\"tenant\": given more than once"},
        {"tenant text in=header",
         {"tenant", "", "Tenant", ""},
         NULL,
         "\"tenant\": given more than once"},
        {"x_tenant text in=header",
         {"x_tenant", "theirs", "X-Tenant", "ours"},
         NULL,
         "\"x_tenant\": given more than once"},
        {"x_tenant text in=header",
         {"X-Tenant", "a", "X-Tenant", "a"},
         NULL,
         "\"x_tenant\": given more than once"},
        {"tenant text in=header", {"other", "a", "tenant", "b"}, "b", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *pairs[5] = {cases[i].pairs[0], cases[i].pairs[1], cases[i].pairs[2],
                                cases[i].pairs[3], NULL};
        struct route route;
        struct binding b;

        make_route(&route, "GET /a", cases[i].spec);
        bind(&b, &route,
             (struct raw_inputs){.header = look_up_header, .header_ctx = (void *)pairs});
        if (cases[i].word == NULL)
            expect_bound(&b, cases[i].spec, cases[i].value);
        else
            expect_refused(&b, cases[i].spec, REASON_BAD_PARAMETER, cases[i].word);
        bound_params_fini(&b.params);
        route_fini(&route);
    }
}

static void test_body_values_are_bound(void **state)
{
    static const struct value_case cases[] = {
        {"x text optional", "{}", NULL},
        {"x text optional", " { \"x\" : null } ", NULL},
        {"x text default=d", "{\"x\":null}", "d"},
        {"x text default=d", "{}", "d"},
        {"x text", "{\"x\":\"\"}", ""},
        {"x text", "{\"x\":\"\\u00e9\\ud83d\\ude00\\n\"}", "\xc3\xa9\xf0\x9f\x98\x80\n"},
        {"x text", "{\"\\u0078\":\"a+b%20\"}", "a+b%20"},
        {"x int8", "{\"x\":9007199254740993}", "9007199254740993"},
        {"x int8", "{\"x\":\"5\"}", "5"},
        {"x int4", "{\"x\":-0}", "-0"},
        {"x numeric", "{\"x\":1.10}", "1.10"},
        {"x numeric", "{\"x\":1e400}", "1e400"},
        {"x numeric", "{\"x\":\"NaN\"}", "NaN"},
        {"x float8", "{\"x\":0.1}", "0.1"},
        {"x bool", "{\"x\":true}", "true"},
        {"x bool", "{\"x\":\"f\"}", "f"},
        {"x uuid", "{\"x\":\"a0eebc999c0b4ef8bb6d6bb9bd380a11\"}",
         "a0eebc999c0b4ef8bb6d6bb9bd380a11"},
        {"x jsonb", "{\"x\": {\"k\": [1.50, \"\\u00e9\"]} }", "{\"k\": [1.50, \"\\u00e9\"]}"},
        {"x jsonb", "{\"x\":\"s\"}", "\"s\""},
        {"x jsonb", "{\"x\":1.0}", "1.0"},
        {"x jsonb", "{\"x\":false}", "false"},
        {"x jsonb optional", "{\"x\":null}", NULL},
        {"x mood", "{\"x\":\"sad\"}", "sad"},
        {"x shop.count", "{\"x\":5}", "5"},
        {"x timestamptz", "{\"x\":\"2026-01-01T00:00:00+02:00\"}", "2026-01-01T00:00:00+02:00"},
        {"x text[]", "{\"x\":[\"x\",null,\"NULL\",\"\\\"\"]}", "{\"x\",NULL,\"NULL\",\"\\\"\"}"},
        {"x text[]", "{\"x\":[]}", "{}"},
        {"x text[] optional", "{\"x\":null}", NULL},
        {"x int4[]", "{\"x\":[3,null,4]}", "{\"3\",NULL,\"4\"}"},
        {"x bool[]", "{\"x\":[true,\"no\"]}", "{\"true\",\"no\"}"},
        {"x jsonb[]", "{\"x\":[\"\",{\"a\":\"b\"},[1],null]}",
         "{\"\\\"\\\"\",\"{\\\"a\\\":\\\"b\\\"}\",\"[1]\",NULL}"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct route route;
        struct binding b;

        make_route(&route, "POST /a", cases[i].spec);
        bind_body_text(&b, &route, cases[i].query);
        expect_bound(&b, cases[i].query, cases[i].value);
        bound_params_fini(&b.params);
        route_fini(&route);
    }
}

static void test_wrong_bodies_are_refused(void **state)
{
    static const struct {
        const char *spec, *body;
        enum reason reason;
        const char *word;
    } cases[] = {
        {"x text optional", "", REASON_BAD_BODY, "there is none"},
        {"x text optional", " ", REASON_BAD_BODY, "not JSON"},
        {"x text optional", "[]", REASON_BAD_BODY, "must be a JSON object"},
        {"x text optional", "1", REASON_BAD_BODY, "must be a JSON object"},
        {"x text optional", "\"x\"", REASON_BAD_BODY, "must be a JSON object"},
        {"x text optional", "{", REASON_BAD_BODY, "at byte 2"},
        {"x text optional", "{\"x\":}", REASON_BAD_BODY, "at byte 6"},
        {"x text optional", "{'x':1}", REASON_BAD_BODY, "not JSON"},
        {"x text optional", "{\"x\":\"a\"} x", REASON_BAD_BODY, "nothing may follow"},
        {"x numeric", "{\"x\":NaN}", REASON_BAD_BODY, "not JSON"},
        {"x text", "{}", REASON_BAD_PARAMETER, "\"x\": missing"},
        {"x text", "{\"x\":null}", REASON_BAD_PARAMETER, "\"x\": missing"},
        {"x text", "{\"x\":\"\xff\"}", REASON_BAD_PARAMETER, "\"x\": not valid UTF-8"},
        {"x text", "{\"x\":\"a\\u0000b\"}", REASON_BAD_PARAMETER, "\"x\": holds a NUL"},
        {"x text", "{\"x\":\"\\ud800\"}", REASON_BAD_PARAMETER, "\"x\": holds half"},
        {"x text", "{\"zzz\":1}", REASON_BAD_PARAMETER, "unknown parameter \"zzz\""},
        {"x text", "{\"x\\u0000\":1}", REASON_BAD_PARAMETER, "name holds a NUL"},
        {"x text", "{\"\\ud800\":1}", REASON_BAD_PARAMETER, "surrogate"},
        {"x text", "{\"\xff\":1}", REASON_BAD_PARAMETER, "name is not valid UTF-8"},
        {"x int8", "{\"x\":1,\"x\":2}", REASON_BAD_PARAMETER, "\"x\": given more than once"},
        {"x int8 optional", "{\"x\":null,\"x\":null}", REASON_BAD_PARAMETER, "more than once"},
        {"x int8", "{\"x\":\"x\"}", REASON_BAD_PARAMETER, "not an integer"},
        {"x int8", "{\"x\":1.5}", REASON_BAD_PARAMETER, "not an integer"},
        {"x int8", "{\"x\":1e2}", REASON_BAD_PARAMETER, "not an integer"},
        {"x int8", "{\"x\":[1]}", REASON_BAD_PARAMETER, "array does not fit"},
        {"x int8", "{\"x\":{}}", REASON_BAD_PARAMETER, "object does not fit"},
        {"x int8", "{\"x\":true}", REASON_BAD_PARAMETER, "boolean does not fit"},
        {"x bool", "{\"x\":\"maybe\"}", REASON_BAD_PARAMETER, "not a boolean"},
        {"x bool", "{\"x\":1}", REASON_BAD_PARAMETER, "number does not fit"},
        {"x text", "{\"x\":[\"x\"]}", REASON_BAD_PARAMETER, "array does not fit"},
        {"x text", "{\"x\":5}", REASON_BAD_PARAMETER, "number does not fit"},
        {"x date", "{\"x\":{}}", REASON_BAD_PARAMETER, "object does not fit"},
        {"x uuid", "{\"x\":5}", REASON_BAD_PARAMETER, "number does not fit"},
        {"x text[]", "{\"x\":\"x\"}", REASON_BAD_PARAMETER, "not a JSON array"},
        {"x text[]", "{\"x\":{}}", REASON_BAD_PARAMETER, "not a JSON array"},
        {"x text[]", "{\"x\":[[\"a\"]]}", REASON_BAD_PARAMETER, "array does not fit"},
        {"x text[]", "{\"x\":[\"a\",\"\\u0000\"]}", REASON_BAD_PARAMETER, "\"x\": holds a NUL"},
        {"x text[]", "{\"x\":[1]}", REASON_BAD_PARAMETER, "number does not fit"},
        {"x int4[]", "{\"x\":[1,\"b\"]}", REASON_BAD_PARAMETER, "not an integer"},
        {"x jsonb", "{\"x\":[\"\\u0000\"]}", REASON_BAD_PARAMETER, "\"x\": holds a NUL"},
        {"x jsonb", "{\"x\":[\"\\udc00\"]}", REASON_BAD_PARAMETER, "surrogate"},
        {"x jsonb", "{\"x\":[\"\xc3\"]}", REASON_BAD_PARAMETER, "UTF-8"},
        {"x text in=query optional", "{\"x\":\"a\"}", REASON_BAD_PARAMETER, "unknown"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct route route;
        struct binding b;

        make_route(&route, "POST /a", cases[i].spec);
        bind_body_text(&b, &route, cases[i].body);
        expect_refused(&b, cases[i].body, cases[i].reason, cases[i].word);
        route_fini(&route);
    }
}

static void test_deep_bodies_are_refused(void **state)
{
    enum { SIZE = 20000 };
    char *body = malloc(SIZE);
    struct route route;
    struct binding b;

    (void)state;
    assert_non_null(body);
    memset(body, '[', SIZE);
    make_route(&route, "POST /a", "x text optional");
    bind_bytes(&b, &route, true, body, SIZE);
    expect_refused(&b, "[[[[", REASON_BAD_BODY, "deep");
    route_fini(&route);
    free(body);
}

static void test_a_write_without_body_parameters_needs_no_body(void **state)
{
    struct route route;
    struct binding b;

    (void)state;
    make_route(&route, "DELETE /a", "x text optional");
    bind_query_text(&b, &route, "x=1");
    expect_bound(&b, "x=1", "1");
    bound_params_fini(&b.params);
    bind_body_text(&b, &route, "");
    expect_bound(&b, "no body", NULL);
    bound_params_fini(&b.params);
    bind_body_text(&b, &route, "{}");
    expect_bound(&b, "{}", NULL);
    bound_params_fini(&b.params);
    bind_body_text(&b, &route, "{\"x\":1}");
    expect_refused(&b, "{\"x\":1}", REASON_BAD_PARAMETER, "unknown parameter \"x\"");
    bind_body_text(&b, &route, "x=1");
    expect_refused(&b, "x=1", REASON_BAD_BODY, "not JSON");
    route_fini(&route);
}

static void test_the_body_of_a_get_is_not_looked_at(void **state)
{
    struct route route;
    struct binding b;

    (void)state;
    make_route(&route, "GET /a", "x text optional");
    bind_body_text(&b, &route, "rubbish");
    expect_bound(&b, "rubbish", NULL);
    bound_params_fini(&b.params);
    route_fini(&route);
}

static void test_values_come_from_all_places_in_the_order_of_use(void **state)
{
    static const char *const pairs[] = {"h", "head er", NULL};
    struct raw_text segments[] = {{"where", 5}, {"a%2Fb%20c", 9}};
    struct route route;
    struct binding b;

    (void)state;
    make_route(&route, "POST /where/{p}",
               "q text in=query\np text\nb int4[]\nh text in=header\nd text default=x");
    bind(&b, &route,
         (struct raw_inputs){.segments = segments,
                             .query = {"q=x+y", 5},
                             .body = {"{\"b\": [3, null, 4]}", 19},
                             .header = look_up_header,
                             .header_ctx = (void *)pairs});
    assert_true(b.is_bound);
    assert_int_equal(b.params.count, 5);
    assert_string_equal(b.params.values[0], "x y");
    assert_string_equal(b.params.values[1], "a/b c");
    assert_string_equal(b.params.values[2], "{\"3\",NULL,\"4\"}");
    assert_string_equal(b.params.values[3], "head er");
    assert_string_equal(b.params.values[4], "x");
    bound_params_fini(&b.params);
    bound_params_fini(&b.params);
    route_fini(&route);
}

/* Copies, so that a byte read past the end is seen. */
static void bind_object_bytes(struct binding *b, const struct route *route, const char *data,
                              size_t size_bytes)
{
    char *copy = malloc(size_bytes > 0 ? size_bytes : 1);
    struct raw_text object = {copy, size_bytes};

    assert_non_null(copy);
    memcpy(copy, data, size_bytes);
    memset(b, 0, sizeof *b);
    b->is_bound = params_bind_object(route, object, &b->params, &b->reason, &b->err);
    if (!b->is_bound)
        assert_true(b->params.count == 0 && b->params.memory == NULL);
    free(copy);
}

static void bind_object_text(struct binding *b, const struct route *route, const char *object)
{
    bind_object_bytes(b, route, object, strlen(object));
}

static void expect_same(const struct binding *a, const struct binding *b, const char *object)
{
    if (!a->is_bound || !b->is_bound)
        fail_msg("%s: %s%s", object, a->err.text, b->err.text);
    assert_int_equal(a->params.count, b->params.count);
    for (size_t i = 0; i < a->params.count; i++) {
        const char *x = a->params.values[i], *y = b->params.values[i];

        if (x == NULL ? y != NULL : y == NULL || strcmp(x, y) != 0)
            fail_msg("%s: $%zu is %s, not %s", object, i + 1, x != NULL ? x : "NULL",
                     y != NULL ? y : "NULL");
    }
}

#define EVERY_PLACE                                                                                \
    "id int4 min=1\nq text optional\nn int4 default=7\ntags text[] optional\n"                     \
    "j jsonb optional\nat timestamptz optional\nx_tenant text in=header optional"

/* A literal with its size. */
#define RAW(text)                                                                                  \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

static void test_an_object_names_parameters_of_every_place(void **state)
{
    static const struct {
        const char *object;
        struct raw_text id, query;
        const char *tenant;
    } cases[] = {
        {"{\"id\": 42}", RAW("42"), RAW(""), NULL},
        {" { \"id\" : \"42\", \"q\": null } ", RAW("42"), RAW(""), NULL},
        {"{\"id\":1,\"q\":\"a b&\\u00e9\"}", RAW("1"), RAW("q=a+b%26%C3%A9"), NULL},
        {"{\"q\":\"\",\"id\":1,\"n\":8}", RAW("1"), RAW("n=8&q="), NULL},
        {"{\"id\":1,\"tags\":[\"a\",\"b\\\"c\"]}", RAW("1"), RAW("tags=a&tags=b%22c"), NULL},
        {"{\"id\":1,\"j\":{\"k\": [1.50]}}", RAW("1"), RAW("j=%7B%22k%22:+[1.50]%7D"), NULL},
        {"{\"id\":1,\"at\":\"2026-01-01T00:00:00+02:00\"}", RAW("1"),
         RAW("at=2026-01-01T00:00:00%2B02:00"), NULL},
        {"{\"x_tenant\":\"t 1\",\"id\":1}", RAW("1"), RAW(""), "t 1"},
    };
    struct route route;

    (void)state;
    make_route(&route, "GET /a/{id}", EVERY_PLACE);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *headers[] = {cases[i].tenant != NULL ? "x-tenant" : NULL, cases[i].tenant,
                                 NULL};
        struct raw_text segments[] = {RAW("a"), cases[i].id};
        struct binding object, request;

        bind_object_text(&object, &route, cases[i].object);
        bind(&request, &route,
             (struct raw_inputs){.segments = segments,
                                 .query = cases[i].query,
                                 .header = look_up_header,
                                 .header_ctx = headers});
        expect_same(&object, &request, cases[i].object);
        bound_params_fini(&object.params);
        bound_params_fini(&request.params);
    }
    route_fini(&route);
}

static void test_an_object_may_leave_out_what_a_request_may(void **state)
{
    struct route route;
    struct binding b;

    (void)state;
    make_route(&route, "GET /a", "q text optional\nn int4 default=7");
    for (int is_there = 0; is_there < 2; is_there++) {
        memset(&b, 0, sizeof b);
        b.is_bound =
            params_bind_object(&route, is_there ? (struct raw_text){"{}", 2} : (struct raw_text){0},
                               &b.params, &b.reason, &b.err);
        assert_true(b.is_bound);
        assert_int_equal(b.params.count, 2);
        assert_null(b.params.values[0]);
        assert_string_equal(b.params.values[1], "7");
        bound_params_fini(&b.params);
    }
    route_fini(&route);
}

static void test_wrong_objects_are_refused(void **state)
{
    static const struct {
        const char *object;
        enum reason reason;
        const char *word;
    } cases[] = {
        {"", REASON_BAD_BODY, "the text of the parameters is not JSON"},
        {"{\"id\":1", REASON_BAD_BODY, "is not JSON"},
        {"{} {}", REASON_BAD_BODY, "nothing may follow"},
        {"[]", REASON_BAD_BODY, "must be a JSON object"},
        {"null", REASON_BAD_BODY, "must be a JSON object"},
        {"{}", REASON_BAD_PARAMETER, "parameter \"id\": missing"},
        {"{\"id\":null}", REASON_BAD_PARAMETER, "parameter \"id\": missing"},
        {"{\"id\":0}", REASON_BAD_PARAMETER, "parameter \"id\": less than 1"},
        {"{\"id\":1.5}", REASON_BAD_PARAMETER, "parameter \"id\": not an integer"},
        {"{\"id\":true}", REASON_BAD_PARAMETER, "a JSON boolean does not fit"},
        {"{\"id\":1,\"id\":1}", REASON_BAD_PARAMETER, "given more than once"},
        {"{\"id\":1,\"ID\":1}", REASON_BAD_PARAMETER, "unknown parameter \"ID\""},
        {"{\"id\":1,\"x-tenant\":\"\"}", REASON_BAD_PARAMETER, "unknown parameter"},
        {"{\"id\":1,\"tags\":\"a\"}", REASON_BAD_PARAMETER, "not a JSON array"},
        {"{\"id\":1,\"q\":\"\\u0000\"}", REASON_BAD_PARAMETER, "NUL"},
        {"{\"id\":1,\"q\":\"\xff\"}", REASON_BAD_PARAMETER, "UTF-8"},
    };
    struct route route;

    (void)state;
    make_route(&route, "GET /a/{id}", EVERY_PLACE);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct binding b;

        bind_object_text(&b, &route, cases[i].object);
        expect_refused(&b, cases[i].object, cases[i].reason, cases[i].word);
    }
    route_fini(&route);
}

static void test_a_large_body_leaves_no_slack(void **state)
{
    enum { SIZE = 1 << 20 };
    static const char head[] = {'{', '"', 'x', '"', ':', '[', '"'}, tail[] = {'"', ']', '}'};
    char *body = malloc(SIZE + 16);
    struct route route;
    struct binding b;

    (void)state;
    assert_non_null(body);
    memset(body, 'x', SIZE + 16);
    for (size_t i = 0; i < sizeof head; i++)
        body[i] = head[i];
    for (size_t i = 0; i < sizeof tail; i++)
        body[sizeof head + SIZE + i] = tail[i];
    make_route(&route, "POST /a", "x text[]");
    bind_bytes(&b, &route, true, body, SIZE + 10);
    assert_true(b.is_bound);
    assert_int_equal(strlen(b.params.values[0]), SIZE + 4);
    assert_true(b.params.memory_bytes < SIZE + 256);
    bound_params_fini(&b.params);
    route_fini(&route);
    free(body);
}

/* The most that escaping can add, in every shape: the block must hold it. */
static void test_arrays_of_nothing_but_escapes_fit(void **state)
{
    static const char *const elements[] = {"\"\"", "\"\\\\\"", "\"\\\"\\\"\"", "null",
                                           "\"\\\\\\\\\""};
    struct route route;
    struct binding b;

    (void)state;
    make_route(&route, "POST /a", "x jsonb[] optional\nt text[] optional");
    for (size_t i = 0; i < COUNT_OF(elements); i++) {
        for (size_t count = 1; count < 400; count += 37) {
            for (int is_text = 0; is_text < 2; is_text++) {
                char body[4096];
                size_t size = (size_t)snprintf(body, sizeof body, "{\"%s\":[", is_text ? "t" : "x");

                for (size_t k = 0; k < count; k++)
                    size += (size_t)snprintf(body + size, sizeof body - size, "%s%s",
                                             k > 0 ? "," : "", elements[i]);
                memcpy(body + size, "]}", 3);
                bind_body_text(&b, &route, body);
                assert_true(b.is_bound);
                bound_params_fini(&b.params);
                bind_object_text(&b, &route, body);
                assert_true(b.is_bound);
                bound_params_fini(&b.params);
            }
        }
    }
    route_fini(&route);
}

static void test_random_inputs_are_bound_or_refused(void **state)
{
    static const char *const pieces[] = {"x",           "t",      "n",        "j",
                                         "=",           "&",      "%",        "%22",
                                         "%5C",         "+",      "1",        "{",
                                         "}",           "[",      "]",        ",",
                                         ":",           "\"x\":", "\"t\":[",  "\"\"",
                                         "\"\\\"\"",    "null",   "\"j\":",   "{\"t\":[\"\\\\\",",
                                         "t=%5C&",      "t&t&t&", "\xc3\xa9", "\xff",
                                         "\"\\u0000\"", "]}"};
    struct route get, post;
    unsigned seed = 99;

    (void)state;
    make_route(&get, "GET /a",
               "x text optional\nt text[] optional\nn int4[] optional\nj jsonb optional");
    make_route(&post, "POST /a",
               "x text optional\nt text[] optional\nn int4[] optional\nj jsonb[] optional");
    for (int round = 0; round < 100000; round++) {
        bool is_body = rand_r(&seed) % 2 == 0;
        char text[512] = "";
        struct binding b;

        if (is_body && rand_r(&seed) % 2 == 0)
            append(text, sizeof text, "{\"t\":[");
        for (int i = rand_r(&seed) % 14; i > 0; i--)
            append(text, sizeof text, pieces[(size_t)rand_r(&seed) % COUNT_OF(pieces)]);
        if (is_body && rand_r(&seed) % 4 == 0)
            bind_object_text(&b, &get, text);
        else
            bind_bytes(&b, is_body ? &post : &get, is_body, text, strlen(text));
        if (!b.is_bound)
            assert_true(b.err.text[0] != '\0' && b.reason != REASON_NONE);
        bound_params_fini(&b.params);
    }
    route_fini(&get);
    route_fini(&post);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percent_decoding),
        cmocka_unit_test(test_query_values_are_bound),
        cmocka_unit_test(test_wrong_query_values_name_the_parameter),
        cmocka_unit_test(test_long_names_are_cut_between_characters),
        cmocka_unit_test(test_errors_never_hold_the_value),
        cmocka_unit_test(test_path_segments_are_data),
        cmocka_unit_test(test_headers_are_looked_up),
        cmocka_unit_test(test_body_values_are_bound),
        cmocka_unit_test(test_wrong_bodies_are_refused),
        cmocka_unit_test(test_deep_bodies_are_refused),
        cmocka_unit_test(test_a_write_without_body_parameters_needs_no_body),
        cmocka_unit_test(test_the_body_of_a_get_is_not_looked_at),
        cmocka_unit_test(test_values_come_from_all_places_in_the_order_of_use),
        cmocka_unit_test(test_an_object_names_parameters_of_every_place),
        cmocka_unit_test(test_an_object_may_leave_out_what_a_request_may),
        cmocka_unit_test(test_wrong_objects_are_refused),
        cmocka_unit_test(test_a_large_body_leaves_no_slack),
        cmocka_unit_test(test_arrays_of_nothing_but_escapes_fit),
        cmocka_unit_test(test_random_inputs_are_bound_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/complaint.h"
#include "cmocka_all.h"
#include "query/query_file_internal.h"

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

static const struct catalog_source sources[] = {{"replica", true}, {"primary", false}};

struct reading {
    struct route route;
    struct complaints complaints;
    struct purge_list purges;
    bool is_route;
};

static void read_with(struct reading *r, const char *text, size_t size_bytes,
                      const struct catalog_source *some, size_t count)
{
    struct query_file file = {.shown = "api/a.sql",
                              .text = text,
                              .size_bytes = size_bytes,
                              .sources = some,
                              .source_count = count,
                              .request_timeout_us = 5000000,
                              .complaints = &r->complaints,
                              .route = &r->route,
                              .purges = &r->purges};

    memset(r, 0, sizeof *r);
    complaints_init(&r->complaints);
    r->is_route = query_file_read(&file);
}

static void read_text(struct reading *r, const char *text)
{
    read_with(r, text, strlen(text), sources, COUNT_OF(sources));
}

static void forget(struct reading *r)
{
    route_fini(&r->route);
    purge_list_fini(&r->purges);
    complaints_fini(&r->complaints);
}

static void print_all(const struct reading *r)
{
    for (size_t i = 0; i < r->complaints.count; i++)
        print_message("  %d:%d: %s\n", r->complaints.items[i].line, r->complaints.items[i].column,
                      r->complaints.items[i].text);
}

/* Reads a file that must be without any complaint. */
static void read_good(struct reading *r, const char *text)
{
    read_text(r, text);
    if (r->complaints.count > 0 || !r->is_route) {
        print_all(r);
        fail_msg("complaints about:\n%s", text);
    }
}

static bool has_complaint(const struct reading *r, int line, int column, const char *word,
                          bool is_warning)
{
    for (size_t i = 0; i < r->complaints.count; i++) {
        const struct complaint *c = &r->complaints.items[i];

        if (c->line == line && c->column == column && c->is_warning == is_warning &&
            strstr(c->text, word) != NULL)
            return true;
    }
    return false;
}

struct wrong_file {
    const char *text;
    int line, column;
    const char *word;
};

static void expect_complaints(const struct wrong_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct reading r;

        read_text(&r, files[i].text);
        if (!has_complaint(&r, files[i].line, files[i].column, files[i].word, false)) {
            print_all(&r);
            fail_msg("no %d:%d ... %s about:\n%s", files[i].line, files[i].column, files[i].word,
                     files[i].text);
        }
        forget(&r);
    }
}

/* The mistake is told, and nothing else is. */
static void expect_only_complaints(const struct wrong_file *files, size_t count)
{
    expect_complaints(files, count);
    for (size_t i = 0; i < count; i++) {
        struct reading r;

        read_text(&r, files[i].text);
        if (r.complaints.count != 1) {
            print_all(&r);
            fail_msg("%zu complaints about:\n%s", r.complaints.count, files[i].text);
        }
        forget(&r);
    }
}

static void test_a_file_becomes_a_route(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r, "\n-- GET /books/{id}\n"
                  "-- One book with its author.\n"
                  "--\n"
                  "-- Second paragraph.\n"
                  "-- @param    id int4 min=1 example=42\n"
                  "-- @from     primary\n"
                  "-- @result   one\n"
                  "-- @timeout  800ms\n"
                  "-- @limit 7\n"
                  "-- @exclusive\n"
                  "-- @max_rows 5\n"
                  "-- @max_bytes 64KiB\n"
                  "-- @status 203\n"
                  "SELECT b.id FROM books b WHERE b.id = :id ;\n-- the end\n");
    assert_string_equal(r.route.label, "GET /books/{id}");
    assert_string_equal(r.route.template, "/books/{id}");
    assert_string_equal(r.route.description, "One book with its author.\n\nSecond paragraph.");
    assert_string_equal(r.route.sql, "SELECT b.id FROM books b WHERE b.id = $1");
    assert_string_equal(r.route.file, "api/a.sql");
    assert_int_equal(r.route.segment_count, 2);
    assert_string_equal(r.route.segments[0].text, "books");
    assert_true(r.route.segments[1].is_parameter);
    assert_int_equal(r.route.params[0].place, IN_PATH);
    assert_int_equal(r.route.params[0].path_segment, 1);
    assert_string_equal(r.route.params[0].min_text, "1");
    assert_string_equal(r.route.params[0].example_text, "42");
    assert_int_equal(r.route.source, 1);
    assert_int_equal(r.route.source_line, 7);
    assert_int_equal(r.route.source_column, 14);
    assert_int_equal(r.route.result, RESULT_ONE);
    assert_int_equal(r.route.timeout_us, 800000);
    assert_int_equal(r.route.timeout_line, 9);
    assert_int_equal(r.route.limit, 7);
    assert_true(r.route.is_exclusive);
    assert_int_equal(r.route.max_rows, 5);
    assert_int_equal(r.route.max_bytes, 65536);
    assert_int_equal(r.route.success_status, 203);
    assert_false(r.route.is_write);
    assert_true(r.route.is_idempotent);
    assert_int_equal(r.route.sql_line, 15);
    assert_int_equal(r.route.sql_column, 1);
    assert_int_equal(r.route.first_line, 2);
    assert_int_equal(r.route.first_column, 4);
    forget(&r);
}

static void test_what_is_not_said_is_the_default(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r, "-- GET /\nSELECT 1");
    assert_int_equal(r.route.segment_count, 0);
    assert_int_equal(r.route.source, 1);
    assert_int_equal(r.route.result, RESULT_MANY);
    assert_int_equal(r.route.success_status, 200);
    assert_int_equal(r.route.timeout_us, 0);
    assert_int_equal(r.route.limit, 0);
    assert_int_equal(r.route.max_rows, 10000);
    assert_int_equal(r.route.max_bytes, 8 << 20);
    assert_string_equal(r.route.description, "");
    assert_int_equal(r.route.source_line, 1);
    assert_int_equal(r.route.bind_count, 0);
    forget(&r);
}

static void test_the_method_decides_places_and_repetition(void **state)
{
    static const struct {
        const char *text;
        bool is_write, is_idempotent;
        enum param_place place;
    } cases[] = {
        {"-- GET /a\n-- @param x int4\nSELECT :x", false, true, IN_QUERY},
        {"-- DELETE /a\n-- @param x int4\nDELETE FROM t WHERE i = :x", true, true, IN_QUERY},
        {"-- POST /a\n-- @param x int4\nINSERT INTO t VALUES (:x)", true, false, IN_BODY},
        {"-- PUT /a\n-- @param x int4\nUPDATE t SET i = :x", true, true, IN_BODY},
        {"-- PATCH /a\n-- @param x int4\nUPDATE t SET i = :x", true, false, IN_BODY},
        {"-- PATCH /a\n-- @idempotent\n-- @param x int4 in=query\nSELECT :x", true, true, IN_QUERY},
        {"-- GET /a\n-- @param x int4 in=header\nSELECT :x", false, true, IN_HEADER},
        {"-- GET /a/{x}\n-- @param x int4 in=path\nSELECT :x", false, true, IN_PATH},
        {"-- DELETE /a\n-- @param x int4 in=body\nDELETE FROM t WHERE i = :x", true, true, IN_BODY},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct reading r;

        read_good(&r, cases[i].text);
        assert_int_equal(r.route.is_write, cases[i].is_write);
        assert_int_equal(r.route.is_idempotent, cases[i].is_idempotent);
        assert_int_equal(r.route.params[0].place, cases[i].place);
        forget(&r);
    }
}

static void test_parameters_keep_what_they_declare(void **state)
{
    struct reading r;
    const struct param *p;

    (void)state;
    read_good(&r, "-- GET /a\n"
                  "-- @param s text default= minlen=0 maxlen=5 pattern=^[a-z]*$ enum=,a,bc\n"
                  "-- @param q \"double precision\" optional\n"
                  "-- @param t text default=\"it's \"\"here\"\"\"\n"
                  "-- @param a int4[] default=1,2 example=3\n"
                  "-- @param e text[] default=\n"
                  "SELECT :s, :q, :t, :a, :e");
    p = r.route.params;
    assert_string_equal(p[0].default_text, "");
    assert_int_equal(p[0].min_length, 0);
    assert_int_equal(p[0].max_length, 5);
    assert_string_equal(p[0].pattern_text, "^[a-z]*$");
    assert_int_equal(p[0].enum_count, 3);
    assert_string_equal(p[0].enum_texts[0], "");
    assert_string_equal(p[0].enum_texts[2], "bc");
    assert_int_equal(p[1].type.oid, 701);
    assert_true(p[1].is_optional);
    assert_string_equal(p[2].default_text, "it's \"here\"");
    assert_string_equal(p[3].default_text, "{\"1\",\"2\"}");
    assert_string_equal(p[3].example_text, "3");
    assert_string_equal(p[4].default_text, "{}");
    assert_int_equal(p[4].line, 6);
    assert_int_equal(p[4].column, 11);
    forget(&r);
}

static void test_names_become_numbers_in_order_of_first_use(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r, "-- GET /a\n-- @param a int4\n-- @param b text\n"
                  "SELECT :b, :a::int8, :b, ':a', x:a, :b\xc3\xa9 -- :a\n, '1'::int");
    assert_string_equal(r.route.sql,
                        "SELECT $1, $2::int8, $1, ':a', x $2, $1 \xc3\xa9 -- :a\n, '1'::int");
    assert_int_equal(r.route.bind_count, 2);
    assert_int_equal(r.route.bind_params[0], 1);
    assert_int_equal(r.route.bind_params[1], 0);
    assert_int_equal(strncmp(r.route.statement_name, "w_", 2), 0);
    assert_int_equal(strlen(r.route.statement_name), 18);
    forget(&r);
}

static void test_the_hash_tells_text_and_types_apart(void **state)
{
    static const char *const texts[] = {"-- GET /a\n-- @param a int4\nSELECT :a",
                                        "-- GET /a\n-- @param a int8\nSELECT :a",
                                        "-- GET /a\n-- @param a int4\nSELECT  :a"};
    uint64_t hashes[COUNT_OF(texts)];
    struct reading r;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        read_good(&r, texts[i]);
        hashes[i] = r.route.sql_hash;
        forget(&r);
    }
    assert_true(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    read_good(&r, "-- GET /b\n-- @param z int4\n-- other words\n\nSELECT :z ;");
    assert_true(r.route.sql_hash == hashes[0]);
    forget(&r);
}

static void test_places_lead_back_to_the_file(void **state)
{
    static const struct {
        size_t character;
        int line, column;
    } cases[] = {{0, 5, 3},   {1, 5, 3},  {8, 5, 10}, {10, 5, 20}, {11, 5, 21},
                 {14, 5, 25}, {17, 6, 1}, {20, 6, 4}, {999, 6, 6}};
    struct reading r;

    (void)state;
    /* SELECT $1,'é' ,<newline>nope$ */
    read_good(&r, "-- GET /a\n-- @param long_name text\n\n/* c */\n"
                  "  SELECT :long_name,'\xc3\xa9' ,\nnope1");
    assert_string_equal(r.route.sql, "SELECT $1,'\xc3\xa9' ,\nnope1");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int line, column;

        route_place_of(&r.route, cases[i].character, &line, &column);
        if (line != cases[i].line || column != cases[i].column)
            fail_msg("character %zu is at %d:%d, not %d:%d", cases[i].character, line, column,
                     cases[i].line, cases[i].column);
    }
    forget(&r);
}

static void test_the_only_dependency_needs_no_from(void **state)
{
    static const struct catalog_source one[] = {{"db", false}},
                                       two[] = {{"db", false}, {"other", false}};
    static const char text[] = "-- GET /a\nSELECT 1";
    struct reading r;

    (void)state;
    read_with(&r, text, strlen(text), one, 1);
    assert_int_equal(r.complaints.count, 0);
    assert_int_equal(r.route.source, 0);
    forget(&r);

    read_with(&r, text, strlen(text), two, 2);
    assert_true(has_complaint(&r, 1, 4, "@from", false));
    forget(&r);

    /* The config has a complaint of its own then. */
    read_with(&r, text, strlen(text), NULL, 0);
    assert_int_equal(r.complaints.count, 0);
    forget(&r);
}

static void test_wrong_first_lines_are_told(void **state)
{
    static const struct wrong_file files[] = {
        {"", 1, 1, "METHOD /path"},
        {"\n \n", 3, 1, "METHOD /path"},
        {"SELECT 1", 1, 1, "METHOD /path"},
        {"\n\nSELECT 1", 3, 1, "METHOD /path"},
        {"--\nSELECT 1", 1, 3, "METHOD"},
        {"-- @result one\nSELECT 1", 1, 4, "METHOD"},
        {"-- FETCH /a\nSELECT 1", 1, 4, "FETCH"},
        {"-- PSOT /a\nSELECT 1", 1, 4, "did you mean POST"},
        {"-- get /a\nSELECT 1", 1, 4, "get"},
        {"-- GET\nSELECT 1", 1, 7, "path"},
        {"-- GET a\nSELECT 1", 1, 8, "starts with /"},
        {"-- GET /a b\nSELECT 1", 1, 11, "nothing may follow"},
        {"-- GET /a/{id\nSELECT 1", 1, 11, "brace"},
        {"-- GET /a/x{id}\nSELECT 1", 1, 11, "whole segment"},
        {"-- GET /a/{id}x\nSELECT 1", 1, 11, "whole segment"},
        {"-- GET /a/{}\nSELECT 1", 1, 11, "name"},
        {"-- GET /a/{Id}\nSELECT 1", 1, 11, "small letters"},
        {"-- GET /a/{1d}\nSELECT 1", 1, 11, "digit"},
        {"-- GET /{x}/{x}\nSELECT 1", 1, 13, "twice"},
        {"-- GET /a/\nSELECT 1", 1, 11, "empty"},
        {"-- GET //a\nSELECT 1", 1, 9, "empty"},
        {"-- GET /a?b\nSELECT 1", 1, 9, "%XX"},
        {"-- GET /a%2\nSELECT 1", 1, 9, "%XX"},
        {"-- GET /a%00\nSELECT 1", 1, 9, "NUL"},
        {"-- GET /%ff\nSELECT 1", 1, 9, "UTF-8"},
        {"-- GET /a/../b\nSELECT 1", 1, 11, ".."},
        {"-- GET /health\nSELECT 1", 1, 8, "taken"},
        {"-- GET /health/deep\nSELECT 1", 1, 8, "taken"},
        {"-- GET /pr%6fblems\nSELECT 1", 1, 8, "taken"},
        {"-- GET /1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g/1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g/1\nSELECT 1", 1,
         73, "32"},
        {"-- GET /a/{id}\nSELECT 1", 1, 11, "{id}"},
        /* All of one line's mistakes, and the rest of the file's. */
        {"-- FETCH a\nSELECT 1", 1, 10, "starts with /"},
        {"-- FETCH /a\n-- @result some\nSELECT 1", 2, 12, "some"},
        {"-- FETCH /a\nSELECT :x", 2, 8, ":x"},
    };

    (void)state;
    expect_complaints(files, COUNT_OF(files));
}

static void test_literal_segments_are_decoded(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r, "-- GET /a%20b/caf\xc3\xa9/x%2Fy/healthy\nSELECT 1");
    assert_string_equal(r.route.segments[0].text, "a b");
    assert_string_equal(r.route.segments[1].text, "caf\xc3\xa9");
    assert_string_equal(r.route.segments[2].text, "x/y");
    assert_string_equal(r.route.label, "GET /a%20b/caf\xc3\xa9/x%2Fy/healthy");
    forget(&r);
}

static void test_wrong_settings_are_told(void **state)
{
    static const struct wrong_file files[] = {
        {"-- GET /a\n-- @parm x int4\nSELECT 1", 2, 4, "did you mean @param"},
        {"-- GET /a\n--   @zzzzzz\nSELECT 1", 2, 6, "@zzzzzz"},
        {"-- GET /a\n-- @\nSELECT 1", 2, 4, "no setting"},
        {"-- GET /a\n-- @timeout soon\nSELECT 1", 2, 13, "@timeout"},
        {"-- GET /a\n-- @timeout 0s\nSELECT 1", 2, 13, "@timeout"},
        {"-- GET /a\n-- @timeout\nSELECT 1", 2, 12, "needs a duration"},
        {"-- GET /a\n-- @timeout 1s 2s\nSELECT 1", 2, 16, "nothing else"},
        {"-- GET /a\n-- @timeout 9s\nSELECT 1", 2, 13, "longer than request_timeout (5s)"},
        {"-- GET /a\n-- @timeout 1s\n-- @timeout 1s\nSELECT 1", 3, 4, "twice"},
        {"-- GET /a\n-- @result some\nSELECT 1", 2, 12, "'some'"},
        {"-- GET /a\n-- @result mony\nSELECT 1", 2, 12, "did you mean many"},
        {"-- GET /a\n-- @result a=b\nSELECT 1", 2, 12, "without ="},
        {"-- GET /a\n-- @status 404\nSELECT 1", 2, 12, "from 200 to 299"},
        {"-- GET /a\n-- @status 199\nSELECT 1", 2, 12, "from 200 to 299"},
        {"-- GET /a\n-- @limit 0\nSELECT 1", 2, 11, "@limit"},
        {"-- GET /a\n-- @limit 99999999999\nSELECT 1", 2, 11, "@limit"},
        {"-- GET /a\n-- @limit -1\nSELECT 1", 2, 11, "@limit"},
        {"-- GET /a\n-- @limit ''\nSELECT 1", 2, 11, "@limit"},
        {"-- GET /a\n-- @max_rows 0\nSELECT 1", 2, 14, "@max_rows"},
        {"-- GET /a\n-- @max_rows 99999999999999999999999\nSELECT 1", 2, 14, "@max_rows"},
        {"-- GET /a\n-- @max_bytes 0B\nSELECT 1", 2, 15, "@max_bytes"},
        {"-- GET /a\n-- @max_bytes 8\nSELECT 1", 2, 15, "@max_bytes"},
        {"-- GET /a\n-- @exclusive yes\nSELECT 1", 2, 15, "no value"},
        {"-- POST /a\n-- @idempotent 1\nSELECT 1", 2, 16, "no value"},
        {"-- GET /a\n-- @from nope\nSELECT 1", 2, 10, "'nope'"},
        {"-- GET /a\n-- @from primry\nSELECT 1", 2, 10, "did you mean primary"},
        {"-- GET /a\n-- @from\nSELECT 1", 2, 9, "needs the name"},
        {"-- GET /a\n-- @from replica, primary\nSELECT 1", 2, 10, "not supported yet"},
        {"-- GET /a\n-- @from replica | primary\nSELECT 1", 2, 18, "not supported yet"},
        {"-- POST /a\n-- @from replica\nINSERT INTO t DEFAULT VALUES", 2, 10, "access: read"},
        {"-- GET /a\n-- @auth public\nSELECT 1", 2, 4, "@auth is not supported yet"},
        {"-- GET /a\n-- @rate 5/s\nSELECT 1", 2, 4, "@rate is not supported yet"},
        {"-- GET /a\n-- @part x\nSELECT 1", 2, 4, "@part is not supported yet"},
    };

    (void)state;
    expect_complaints(files, COUNT_OF(files));
}

static void test_cache_says_how_long_answers_are_good(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r,
              "-- GET /a\n"
              "-- @cache stale-if-error=10m max-age=1.5s private stale-while-revalidate=\"0s\"\n"
              "SELECT 1");
    assert_true(r.route.is_cached);
    assert_int_equal(r.route.cache.max_age_us, 1500000);
    assert_int_equal(r.route.cache.stale_while_revalidate_us, 0);
    assert_int_equal(r.route.cache.stale_if_error_us, INT64_C(600000000));
    assert_true(r.route.cache.is_private);
    assert_string_equal(r.route.vary, "Accept");
    forget(&r);

    read_good(&r, "-- GET /a\n-- @status 200\n-- @cache max-age=0s\nSELECT 1");
    assert_true(r.route.is_cached);
    assert_int_equal(r.route.cache.max_age_us, 0);
    assert_int_equal(r.route.cache.stale_if_error_us, 0);
    assert_false(r.route.cache.is_private);
    forget(&r);

    read_good(&r, "-- GET /a\n-- @param x text in=header\nSELECT :x");
    assert_false(r.route.is_cached);
    assert_null(r.route.vary);
    forget(&r);
}

static void test_answers_of_a_cached_route_vary_by_its_headers(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r, "-- GET /a\n"
                  "-- @cache max-age=5s\n"
                  "-- @param x_tenant_id text in=header\n"
                  "-- @param q text optional\n"
                  "-- @param accept text in=header optional\n"
                  "-- @param lang text in=header optional\n"
                  "SELECT :x_tenant_id, :q, :accept, :lang");
    assert_string_equal(r.route.vary, "Accept, x_tenant_id, x-tenant-id, lang");
    forget(&r);
}

#define WITH_CACHE(words) "-- GET /a\n-- @cache" words "\nSELECT 1"

static void test_wrong_caches_are_told(void **state)
{
    static const struct wrong_file files[] = {
        {WITH_CACHE(""), 2, 10, "@cache needs max-age"},
        {WITH_CACHE(" private"), 2, 18, "@cache needs max-age"},
        {WITH_CACHE(" stale-if-error=5s"), 2, 28, "@cache needs max-age"},
        {WITH_CACHE(" max-age"), 2, 11, "@cache: max-age needs a duration"},
        {WITH_CACHE(" max-age="), 2, 19, "@cache: max-age must be a duration"},
        {WITH_CACHE(" max-age=5"), 2, 19, "max-age must be a duration"},
        {WITH_CACHE(" max-age=-5s"), 2, 19, "max-age must be a duration"},
        {WITH_CACHE(" max-age=8761h"), 2, 19, "max-age must be a duration"},
        {WITH_CACHE(" max-age=\"5s"), 2, 19, "@cache: the quote is never closed"},
        {WITH_CACHE(" max-age=5s mx-age=5s"), 2, 22, "no 'mx-age'; did you mean max-age"},
        {WITH_CACHE(" max-age=5s stale-on-error=5s"), 2, 22, "did you mean stale-if-error"},
        {WITH_CACHE(" max-age=5s zzzzzzzzzzzzz"), 2, 22, "@cache: there is no 'zzzzzzzzzzzzz'"},
        {WITH_CACHE(" max-age=5s max-age=6s"), 2, 22, "@cache: max-age is given twice"},
        {WITH_CACHE(" max-age=5s stale-if-error"), 2, 22, "stale-if-error needs a duration"},
        {WITH_CACHE(" max-age=5s stale-while-revalidate=soon"), 2, 45,
         "stale-while-revalidate must be a duration"},
        {WITH_CACHE(" max-age=5s private=yes"), 2, 22, "private takes no value"},
        {WITH_CACHE(" max-age=5s private private"), 2, 30, "private is given twice"},
        {WITH_CACHE(" max-age=5s until=notify:books"), 2, 22, "until= is not supported yet"},
        {WITH_CACHE(" max-age=5s\n-- @cache max-age=5s"), 3, 4, "@cache is given twice"},
        {WITH_CACHE(" max-age=5s\n-- @status 201"), 2, 4, "only 200s are stored"},
        {"-- GET /a\n-- @status 204\n-- @cache max-age=5s\nSELECT 1", 3, 4,
         "@cache: only 200s are stored, and @status says 204"},
        {"-- POST /a\n-- @cache max-age=5s\n-- @result exec\nDELETE FROM t", 2, 4,
         "@cache is for GET: the answer to a POST is not stored"},
        /* Which method is right is not known. */
        {"-- FETCH /a\n-- @cache max-age=5s\nSELECT 1", 1, 4, "METHOD /path"},
    };

    (void)state;
    expect_only_complaints(files, COUNT_OF(files));
}

struct good_fallback {
    const char *result, *text;
};

static void test_fallbacks_are_kept_as_they_are_written(void **state)
{
    static const struct good_fallback cases[] = {
        {"many", "[]"},
        {"many", "[{}, {\"n\":  12345678901234567890123.10, \"it's\": [\"a \\\" b\", \"'\"] }]"},
        {"many", "[ {\"a\": {\"a\": 1}, \"b\": [{\"a\": 1}, {\"a\": 1}]} ]"},
        {"one", "{}"},
        {"one", "{\"id\": null, \"\\u00e9\": \"\xc3\xa9\"}"},
        {"value", "null"},
        {"value", "1e999"},
        {"value", "\"-- text\""},
        {"value", "[1, \"a\"]"},
        {"exec", "{\"rows\": 0}"},
        {"exec", "{ \"rows\" :12345678901234567890 }"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct reading r;
        char text[256];

        (void)snprintf(text, sizeof text,
                       "-- GET /a\n--  @fallback \t %s \t\r\n-- @result %s\nSELECT 1",
                       cases[i].text, cases[i].result);
        read_good(&r, text);
        assert_string_equal(r.route.fallback, cases[i].text);
        assert_int_equal(r.route.fallback_bytes, strlen(cases[i].text));
        forget(&r);
    }
}

#define WITH_FALLBACK(text) "-- GET /a\n-- @fallback" text "\nSELECT 1"
#define RESULT(kind)        "\n-- @result " kind

static void test_wrong_fallbacks_are_told(void **state)
{
    static const struct wrong_file files[] = {
        {WITH_FALLBACK(""), 2, 13, "@fallback needs a JSON value"},
        {WITH_FALLBACK("   "), 2, 13, "@fallback needs a JSON value"},
        {WITH_FALLBACK(" {nope"), 2, 15, "@fallback is no valid JSON: a name"},
        {WITH_FALLBACK("   {nope"), 2, 17, "@fallback is no valid JSON: a name"},
        {WITH_FALLBACK(" {\"a\": \"b}"), 2, 23, "a string is never closed"},
        {WITH_FALLBACK(" [{}, {}"), 2, 21, "a comma or ]"},
        {WITH_FALLBACK(" [] x"), 2, 17, "nothing may follow"},
        {WITH_FALLBACK(" [01]"), 2, 16, "does not start with 0"},
        {WITH_FALLBACK(" '[]'"), 2, 14, "a value was expected"},
        {WITH_FALLBACK(" nope"), 2, 14, "a value was expected"},
        {WITH_FALLBACK(" [\"\\ud800\"]"), 2, 14, "surrogate"},
        {WITH_FALLBACK(" [{\"a\": 1, \"b\": 2, \"\\u0061\": 3}]"), 2, 32, "this name twice"},
        {WITH_FALLBACK(" {\"a\": {\"b\": 1, \"b\": 1}}" RESULT("one")), 2, 29, "this name twice"},
        {WITH_FALLBACK(" []\n-- @fallback []"), 3, 4, "@fallback is given twice"},
        {WITH_FALLBACK(" {}"), 2, 14, "@fallback must be an array of objects, as @result many"},
        {WITH_FALLBACK(" null" RESULT("many")), 2, 14, "an array of objects"},
        {WITH_FALLBACK(" [{}, 1]"), 2, 19, "an array of objects"},
        {WITH_FALLBACK(" []" RESULT("one")), 2, 14, "@fallback must be an object, as @result one"},
        {WITH_FALLBACK(" null" RESULT("one")), 2, 14, "an object"},
        {WITH_FALLBACK(" {\"rows\": -1}" RESULT("exec")), 2, 14, "must be {\"rows\": N}"},
        {WITH_FALLBACK(" {\"rows\": 1.0}" RESULT("exec")), 2, 14, "must be {\"rows\": N}"},
        {WITH_FALLBACK(" {\"rows\": \"1\"}" RESULT("exec")), 2, 14, "must be {\"rows\": N}"},
        {WITH_FALLBACK(" {\"row\": 1}" RESULT("exec")), 2, 14, "must be {\"rows\": N}"},
        {WITH_FALLBACK(" {\"rows\": 1, \"a\": 1}" RESULT("exec")), 2, 14, "{\"rows\": N}"},
        {WITH_FALLBACK(" {}" RESULT("exec")), 2, 14, "must be {\"rows\": N}"},
        {WITH_FALLBACK(" 1" RESULT("exec")), 2, 14, "must be {\"rows\": N}"},
        {"-- GET /a\n-- @result one\n-- @fallback 1\nSELECT 1", 3, 14, "must be an object"},
        {"-- DELETE /a\n-- @fallback []\nDELETE FROM t", 2, 4,
         "@fallback is for GET: who sends a DELETE must know that it failed"},
        /* What @result makes of it is not known. */
        {WITH_FALLBACK(" {}" RESULT("some")), 3, 12, "@result"},
        {"-- FETCH /a\n-- @fallback []\nSELECT 1", 1, 4, "METHOD /path"},
    };

    (void)state;
    expect_only_complaints(files, COUNT_OF(files));
}

/* Names are compared in an order, not each with each. */
static void test_many_names_in_a_fallback_are_no_long_work(void **state)
{
    enum { NAME_COUNT = 60000, ROOM = NAME_COUNT * 12 + 64 };
    char *text = malloc(ROOM);
    size_t used;
    struct reading r;

    (void)state;
    assert_non_null(text);
    used = (size_t)snprintf(text, ROOM, "-- GET /a\n-- @result one\n-- @fallback {\"x\":1");
    for (int i = 0; i < NAME_COUNT; i++)
        used += (size_t)snprintf(text + used, ROOM - used, ",\"%d\":1", i);
    (void)snprintf(text + used, ROOM - used, "}\nSELECT 1");
    read_good(&r, text);
    assert_non_null(r.route.fallback);
    forget(&r);
    free(text);
}

static void test_purges_are_wishes_until_all_files_are_read(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r, "-- POST /a\n"
                  "-- @purges GET   /books/{id}\n"
                  "--   @purges GET /b='c'\n"
                  "INSERT INTO t DEFAULT VALUES");
    assert_int_equal(r.purges.count, 2);
    assert_string_equal(r.purges.items[0].file, "api/a.sql");
    assert_string_equal(r.purges.items[0].label, "GET /books/{id}");
    assert_int_equal(r.purges.items[0].line, 2);
    assert_int_equal(r.purges.items[0].column, 12);
    assert_string_equal(r.purges.items[1].label, "GET /b='c'");
    assert_int_equal(r.purges.items[1].line, 3);
    assert_int_equal(r.purges.items[1].column, 14);
    assert_int_equal(r.route.purge_count, 0);
    forget(&r);
}

#define WITH_PURGES(words) "-- POST /a\n-- @purges" words "\nINSERT INTO t DEFAULT VALUES"

static void test_wrong_purges_are_told(void **state)
{
    static const struct wrong_file files[] = {
        {WITH_PURGES(""), 2, 11, "@purges needs GET /path"},
        {WITH_PURGES(" /b"), 2, 12, "@purges takes GET /path"},
        {WITH_PURGES(" POST /b"), 2, 12, "not 'POST'"},
        {WITH_PURGES(" get /b"), 2, 12, "not 'get'"},
        {WITH_PURGES(" GETS /b"), 2, 12, "not 'GETS'"},
        {WITH_PURGES(" GET"), 2, 15, "@purges GET needs a path"},
        {WITH_PURGES(" GET b"), 2, 16, "a path starts with /"},
        {WITH_PURGES(" GET /b c"), 2, 19, "@purges: nothing may follow the path"},
        {WITH_PURGES(" GET /b\n-- @purges GET /c\n-- @purges GET  /b"), 4, 12,
         "@purges names GET /b twice"},
        {"-- GET /a\n-- @purges GET /b\nSELECT 1", 2, 4, "@purges is for writes"},
        {"-- FETCH /a\n-- @purges GET /b\nSELECT 1", 1, 4, "METHOD /path"},
    };

    (void)state;
    expect_only_complaints(files, COUNT_OF(files));
}

#define WITH_PARAM(spec) "-- GET /a\n-- @param " spec "\nSELECT :x"

static void test_wrong_parameters_are_told(void **state)
{
    static const struct wrong_file files[] = {
        {"-- GET /a\n-- @param\nSELECT 1", 2, 10, "a name and a type"},
        {WITH_PARAM("x"), 2, 12, "a name and a type"},
        {WITH_PARAM("X int4"), 2, 11, "'X'"},
        {WITH_PARAM("1x int4"), 2, 11, "digit"},
        {WITH_PARAM("x-y int4"), 2, 11, "small letters"},
        {WITH_PARAM("x=1 int4"), 2, 11, "small letters"},
        {WITH_PARAM("x nosuchtype["), 2, 13, "nosuchtype["},
        {WITH_PARAM("x numeric(5,2)"), 2, 13, "length"},
        {WITH_PARAM("x min=1"), 2, 13, "type"},
        {WITH_PARAM("x double precision"), 2, 20, "'precision'"},
        {WITH_PARAM("x int4 mni=1"), 2, 18, "did you mean min"},
        {WITH_PARAM("x int4 zzzzzzzzz"), 2, 18, "'zzzzzzzzz'"},
        {WITH_PARAM("x int4 min=1 min=2"), 2, 24, "twice"},
        {WITH_PARAM("x int4 optional=yes"), 2, 18, "no value"},
        {WITH_PARAM("x int4 default"), 2, 18, "needs =value"},
        {WITH_PARAM("x int4 min=5 max=1"), 2, 18, "min=5 is more than max=1"},
        {WITH_PARAM("x numeric min=1e3 max=999.9"), 2, 21, "is more than"},
        {WITH_PARAM("x int4 min=one"), 2, 22, "not an integer"},
        {WITH_PARAM("x int2 max=70000"), 2, 22, "out of range"},
        {WITH_PARAM("x float8 max=NaN"), 2, 24, "NaN"},
        {WITH_PARAM("x text min=1"), 2, 18, "for numbers"},
        {WITH_PARAM("x int4 minlen=1"), 2, 18, "for text"},
        {WITH_PARAM("x text minlen=-1"), 2, 25, "number of characters"},
        {WITH_PARAM("x text minlen="), 2, 25, "number of characters"},
        {WITH_PARAM("x text maxlen=99999999999999999999"), 2, 25, "number of characters"},
        {WITH_PARAM("x text minlen=5 maxlen=4"), 2, 18, "minlen is more"},
        {WITH_PARAM("x int4 default=abc"), 2, 26, "default: not an integer"},
        {WITH_PARAM("x int4 default="), 2, 26, "default: not an integer"},
        {WITH_PARAM("x int4 min=3 default=2"), 2, 32, "default: less than 3"},
        {WITH_PARAM("x text maxlen=2 default=abc"), 2, 35, "longer"},
        {WITH_PARAM("x text pattern=^a default=b"), 2, 37, "pattern"},
        {WITH_PARAM("x int4[] default=1,b"), 2, 28, "not an integer"},
        {WITH_PARAM("x int4 example=b"), 2, 26, "example: not an integer"},
        {WITH_PARAM("x int4 enum=1,b"), 2, 23, "enum: not an integer"},
        {WITH_PARAM("x int4 max=1 enum=1,2"), 2, 29, "enum: greater than 1"},
        {WITH_PARAM("x text enum=a,b default=c"), 2, 35, "default: not one of"},
        {WITH_PARAM("x int4 optional default=1"), 2, 27, "not both"},
        {WITH_PARAM("x text pattern=["), 2, 26, "pattern"},
        {WITH_PARAM("x text pattern=a("), 2, 26, "pattern"},
        {WITH_PARAM("x text pattern=(a)\\1"), 2, 26, "back-reference"},
        {WITH_PARAM("x text default=\"a b"), 2, 26, "quote"},
        {WITH_PARAM("x int4 in=path"), 2, 21, "no {x}"},
        {WITH_PARAM("x int4 in=body"), 2, 21, "a GET has no body"},
        {WITH_PARAM("x int4 in=cookie"), 2, 21, "path, query, body or header"},
        {WITH_PARAM("x text in=claim claim=sub"), 2, 27, "not supported yet"},
        {WITH_PARAM("x text in=claim"), 2, 18, "not supported yet"},
        {WITH_PARAM("x int4[] in=header"), 2, 23, "array"},
        {"-- GET /a/{x}\n-- @param x int4 in=query\nSELECT :x", 2, 21, "the path has {x}"},
        {"-- GET /a/{x}\n-- @param x int4[]\nSELECT :x", 2, 11, "array"},
        {"-- GET /a/{x}\n-- @param x int4 optional\nSELECT :x", 2, 11, "always there"},
        {"-- GET /a/{x}\n-- @param x int4 default=1\nSELECT :x", 2, 11, "always there"},
        {"-- GET /a\n-- @param x int4\n-- @param x int4\nSELECT :x", 3, 11,
         "x is already declared on line 2"},
        {"-- GET /a\n-- @param x int4\nSELECT 1", 2, 11, "not used"},
        {"-- GET /a/{id}\n-- @param id int4\nSELECT 1", 2, 11, "id is not used"},
    };

    (void)state;
    expect_complaints(files, COUNT_OF(files));
}

static void test_what_may_be_left_out_may_be_unused(void **state)
{
    struct reading r;

    (void)state;
    read_text(&r, "-- GET /a\n-- @param x int4 optional\n-- @param y text default=id\nSELECT 1");
    assert_int_equal(r.complaints.error_count, 0);
    assert_true(has_complaint(&r, 2, 11, "x is not used", true));
    assert_true(has_complaint(&r, 3, 11, "y is not used", true));
    forget(&r);
}

static void test_types_that_are_not_built_in_are_a_warning(void **state)
{
    struct reading r;

    (void)state;
    read_text(&r, WITH_PARAM("x shop.mood"));
    assert_int_equal(r.complaints.error_count, 0);
    assert_true(has_complaint(&r, 2, 13, "shop.mood", true));
    assert_int_equal(r.route.params[0].type.oid, 0);
    forget(&r);
}

static void test_wrong_statements_are_told(void **state)
{
    static const struct wrong_file files[] = {
        {"-- GET /a\n", 2, 1, "no statement"},
        {"-- GET /a", 1, 1, "no statement"},
        {"-- GET /a\n\n ; ;\n", 2, 1, "no statement"},
        {"-- GET /a\n/* nothing */\n", 2, 1, "no statement"},
        {"-- GET /a\nSELECT 1 AS a; SELECT 2", 2, 16, "second statement"},
        {"-- GET /a\nSELECT 1;\n-- c\n;\nx", 5, 1, "second statement"},
        {"-- GET /a\nSELECT 'open AS a", 2, 8, "never closed"},
        {"-- GET /a\nSELECT 1 /* open", 2, 10, "never closed"},
        {"-- GET /a/{id}\nSELECT :id", 2, 8, ":id has no @param"},
        {"-- GET /a\nSELECT 1 AS a,\n       :nope AS b", 3, 8, ":nope has no @param"},
        {"-- GET /a\n-- @param name text\nSELECT :name, :nmae", 3, 15, "did you mean :name"},
        {"-- GET /a\nSELECT $1", 2, 8, "$1: write :name"},
        {"-- GET /a\nDELETE FROM notes", 2, 1, "a write (DELETE) in a GET"},
        {"-- GET /a\n  insert into t values (1)", 2, 3, "a write"},
        {"-- GET /a\n(UPDATE t SET a = 1)", 2, 2, "a write"},
        {"-- GET /a\nMERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", 2, 1, "a write"},
        {"-- GET /a\nTRUNCATE t", 2, 1, "a write"},
        {"-- GET /a\nCREATE TABLE t ()", 2, 1, "a write"},
        {"-- GET /a\nCALL p()", 2, 1, "a write"},
        {"-- GET /a\n\nWITH x AS (DELETE FROM notes RETURNING id) SELECT id FROM x", 3, 12,
         "DELETE"},
        {"-- GET /a\nWITH x AS NOT MATERIALIZED (UPDATE t SET a = 1 RETURNING a) TABLE x", 2, 29,
         "UPDATE"},
        {"-- GET /a\nWITH RECURSIVE x (a) AS (SELECT 1), y AS (INSERT INTO t SELECT 1 RETURNING 1) "
         "SELECT 1",
         2, 43, "INSERT"},
        {"-- GET /a\nWITH x AS (SELECT 1) DELETE FROM t", 2, 22, "DELETE"},
        {"-- GET /a\nSELECT 1 AS a INTO t", 2, 15, "INTO"},
        {"-- POST /a\nBEGIN", 2, 1, "transaction control"},
        {"-- POST /a\ncommit", 2, 1, "transaction control"},
        {"-- POST /a\nROLLBACK TO x", 2, 1, "transaction control"},
        {"-- GET /a\nSTART TRANSACTION", 2, 1, "transaction control"},
        {"-- POST /a\nSET x = 1", 2, 1, "SET is not possible"},
        {"-- GET /a\nRESET ALL", 2, 1, "RESET"},
        {"-- POST /a\nLISTEN x", 2, 1, "LISTEN"},
        {"-- POST /a\nCOPY t FROM STDIN", 2, 1, "COPY"},
        {"-- POST /a\nLOCK t", 2, 1, "LOCK"},
        {"-- POST /a\nPREPARE x AS SELECT 1", 2, 1, "PREPARE"},
    };

    (void)state;
    expect_complaints(files, COUNT_OF(files));
}

static void test_reads_that_look_like_writes_are_left_alone(void **state)
{
    static const char *const texts[] = {
        "-- GET /a\nSELECT \"update\", delete FROM t",
        "-- GET /a\nSELECT 1 FROM t FOR UPDATE",
        "-- GET /a\nWITH x AS (SELECT count(*) update FROM t) SELECT (1) delete FROM x",
        "-- GET /a\nSELECT a AS into, t.into FROM t",
        "-- GET /a\nSELECT 'DELETE FROM t'",
        "-- GET /a\n(SELECT 1) UNION (SELECT 2)",
        "-- GET /a\nVALUES (1)",
        "-- GET /a\nTABLE t;",
        "-- GET /a\nWITH delete AS (SELECT 1) SELECT * FROM delete",
        "-- GET /a\nSELECT f(update) FROM t WHERE (insert) > 1",
        "-- POST /a\nUPDATE t SET a = 1",
        "-- POST /a\nWITH x AS (DELETE FROM t RETURNING 1) INSERT INTO u SELECT * FROM x;;",
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct reading r;

        read_good(&r, texts[i]);
        forget(&r);
    }
}

static void test_call_and_do_may_commit_inside(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r, "-- POST /a\n-- @param x int4\ncall p(:x)");
    assert_true(r.route.may_commit_inside);
    forget(&r);
    read_good(&r, "-- POST /a\nDO $$ BEGIN NULL; END $$");
    assert_true(r.route.may_commit_inside);
    forget(&r);
    read_good(&r, "-- POST /a\nUPDATE t SET a = 1");
    assert_false(r.route.may_commit_inside);
    forget(&r);
}

static void test_all_mistakes_of_a_file_are_told(void **state)
{
    struct reading r;

    (void)state;
    read_text(&r, "-- GET /a\n-- @result some\n-- @param x int4 min=z\n-- @nope\nSELECT :y, :z");
    assert_int_equal(r.complaints.error_count, 6);
    forget(&r);
}

static void test_windows_lines_and_a_byte_order_mark_are_fine(void **state)
{
    struct reading r;

    (void)state;
    read_good(&r, "\xEF\xBB\xBF-- GET /a\r\n-- Words.\r\n-- @param x int4\r\n-- @exclusive\r\n"
                  "SELECT\r\n:x\r\n");
    assert_string_equal(r.route.description, "Words.");
    assert_string_equal(r.route.sql, "SELECT\r\n$1");
    forget(&r);
}

static void test_files_are_utf8_without_nul(void **state)
{
    struct reading r;

    (void)state;
    read_text(&r, "-- GET /a\nSELECT '\xff'");
    assert_false(r.is_route);
    assert_true(has_complaint(&r, 2, 9, "UTF-8", false));
    forget(&r);
    read_with(&r, "-- GET /a\nSELECT '\0'", 20, sources, COUNT_OF(sources));
    assert_false(r.is_route);
    assert_true(has_complaint(&r, 2, 9, "NUL", false));
    forget(&r);
}

/* Appends what fits. */
static void append(char *text, size_t room, const char *piece)
{
    size_t size = strlen(text);

    (void)snprintf(text + size, room - size, "%s", piece);
}

static void test_random_files_are_read_or_refused(void **state)
{
    static const char *const pieces[] = {
        "-- ",     "\n",          "GET ",       "POST ",    "/a",        "/{x}",     "@param ",
        "x ",      "int4 ",       "text[] ",    "@result ", "one",       "@from ",   "primary",
        "=",       "min=",        "default=",   "enum=a,",  "pattern=(", "\"",       "'",
        "SELECT ", ":x",          "$1",         ";",        "[",         "]",        "(",
        ")",       "WITH x AS (", "DELETE ",    "\xc3\xa9", "%41",       " ",        "in=body",
        "@cache",  "optional ",   "@fallback ", "{\"a\":",  "1}",        "@purges ", "max-age=5s "};
    unsigned seed = 42;
    size_t route_count = 0;

    (void)state;
    for (int round = 0; round < 50000; round++) {
        char text[512] = "";
        int piece_count = rand_r(&seed) % 16;
        struct reading r;
        char *exact;

        if (rand_r(&seed) % 2 == 0)
            append(text, sizeof text, "-- GET /{x}\n-- @param x int4 ");
        for (int i = 0; i < piece_count; i++)
            append(text, sizeof text, pieces[(size_t)rand_r(&seed) % COUNT_OF(pieces)]);
        if (text[0] != '\0' && rand_r(&seed) % 16 == 0)
            text[(size_t)rand_r(&seed) % strlen(text)] = (char)rand_r(&seed);
        exact = strdup(text);
        assert_non_null(exact);
        read_with(&r, exact, strlen(exact), sources, COUNT_OF(sources));
        assert_true(r.is_route || r.complaints.error_count > 0);
        route_count += r.is_route;
        forget(&r);
        free(exact);
    }
    assert_true(route_count > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_becomes_a_route),
        cmocka_unit_test(test_what_is_not_said_is_the_default),
        cmocka_unit_test(test_the_method_decides_places_and_repetition),
        cmocka_unit_test(test_parameters_keep_what_they_declare),
        cmocka_unit_test(test_names_become_numbers_in_order_of_first_use),
        cmocka_unit_test(test_the_hash_tells_text_and_types_apart),
        cmocka_unit_test(test_places_lead_back_to_the_file),
        cmocka_unit_test(test_the_only_dependency_needs_no_from),
        cmocka_unit_test(test_wrong_first_lines_are_told),
        cmocka_unit_test(test_literal_segments_are_decoded),
        cmocka_unit_test(test_wrong_settings_are_told),
        cmocka_unit_test(test_cache_says_how_long_answers_are_good),
        cmocka_unit_test(test_answers_of_a_cached_route_vary_by_its_headers),
        cmocka_unit_test(test_wrong_caches_are_told),
        cmocka_unit_test(test_fallbacks_are_kept_as_they_are_written),
        cmocka_unit_test(test_wrong_fallbacks_are_told),
        cmocka_unit_test(test_many_names_in_a_fallback_are_no_long_work),
        cmocka_unit_test(test_purges_are_wishes_until_all_files_are_read),
        cmocka_unit_test(test_wrong_purges_are_told),
        cmocka_unit_test(test_wrong_parameters_are_told),
        cmocka_unit_test(test_what_may_be_left_out_may_be_unused),
        cmocka_unit_test(test_types_that_are_not_built_in_are_a_warning),
        cmocka_unit_test(test_wrong_statements_are_told),
        cmocka_unit_test(test_reads_that_look_like_writes_are_left_alone),
        cmocka_unit_test(test_call_and_do_may_commit_inside),
        cmocka_unit_test(test_all_mistakes_of_a_file_are_told),
        cmocka_unit_test(test_windows_lines_and_a_byte_order_mark_are_fine),
        cmocka_unit_test(test_files_are_utf8_without_nul),
        cmocka_unit_test(test_random_files_are_read_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

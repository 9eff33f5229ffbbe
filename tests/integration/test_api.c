/* The contract as a caller sees it: kinds of results, where parameters come from, writes, what is
 * refused and how it is said, and the headers around an answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cmocka_all.h"
#include "crowd.h"
#include "exchange.h"
#include "fault_proxy.h"
#include "patience.h"
#include "scratch.h"

/* --- the API under test --- */

static const struct weir_file files[] = {
    /* kinds of results */
    {"many.sql", "-- GET /many\n-- @param n int4 default=2\n"
                 "SELECT g AS a, 'x' AS \"b c\" FROM generate_series(1, :n) g\n"},
    {"one.sql", "-- GET /items/{id}\n-- @param id int4 min=1 max=100000\n-- @result one\n"
                "SELECT id, name, price FROM items WHERE id = :id\n"},
    {"value.sql", "-- GET /names/{id}\n-- @param id int4\n-- @result value\n"
                  "SELECT name FROM items WHERE id = :id\n"},
    {"two.sql", "-- GET /two\n-- @result one\nSELECT id FROM items WHERE id < 3 ORDER BY id\n"},
    {"cells.sql", "-- GET /cells\n-- @result value\nSELECT 1 AS a, 2 AS b\n"},
    {"exec.sql", "-- DELETE /notes/{token}\n-- @param token text\n-- @result exec\n"
                 "DELETE FROM notes WHERE token = :token\n"},
    {"create.sql", "-- POST /notes\n-- @param token text minlen=1 maxlen=20\n"
                   "-- @param body text optional\n-- @result one\n-- @status 201\n"
                   "INSERT INTO notes (token, body) VALUES (:token, :body) "
                   "RETURNING token, body, tick('create')\n"},
    {"put.sql", "-- PUT /notes/{token}\n-- @param token text\n-- @param body text\n"
                "-- @result exec\nUPDATE notes SET body = :body WHERE token = :token\n"},
    {"patch.sql", "-- PATCH /notes/{token}\n-- @param token text\n-- @param body text\n"
                  "-- @result many\nUPDATE notes SET body = :body WHERE token = :token "
                  "RETURNING token\n"},
    {"nothing.sql", "-- POST /nothing\n-- @status 204\n-- @result exec\nDELETE FROM notes WHERE "
                    "false\n"},
    {"many-writes.sql", "-- POST /too-many\n-- @param token text\n-- @max_rows 3\n"
                        "INSERT INTO notes (token) SELECT :token FROM generate_series(1, 10) "
                        "RETURNING id\n"},
    /* where parameters come from */
    {"places.sql", "-- POST /places/{p}\n-- @param p text\n-- @param q text in=query\n"
                   "-- @param b text\n-- @param h text in=header optional\n-- @result one\n"
                   "SELECT :p AS p, :q AS q, :b AS b, :h AS h\n"},
    {"rules.sql", "-- GET /rules\n-- @param low int4 optional min=10 max=20\n"
                  "-- @param word text optional pattern=[a-c]+ minlen=2 maxlen=4\n"
                  "-- @param pick text optional enum=red,green\n"
                  "-- @param list int4[] optional\n-- @param text text optional\n"
                  "-- @result one\n"
                  "SELECT tick('rules') AS t, :low AS low, :word AS word, :pick AS pick, "
                  ":list AS list, :text AS text\n"},
    /* caps */
    {"rows.sql", "-- GET /rows\n-- @param n int4\n-- @max_rows 5\n"
                 "SELECT generate_series(1, :n) AS g\n"},
    {"bytes.sql", "-- GET /bytes\n-- @param n int4\n-- @max_bytes 1KiB\n-- @result value\n"
                  "SELECT repeat('x', :n)\n"},
    /* what goes wrong at the database */
    {"fail.sql", "-- GET /fail/{state}\n-- @param state text\n-- @result value\n"
                 "SELECT fail_with(:state)\n"},
    {"fail-write.sql", "-- POST /fail/{state}\n-- @param state text\n-- @result value\n"
                       "SELECT fail_with(:state)\n"},
    {"strict.sql", "-- POST /strict\n-- @param id int4\n-- @param name text optional\n"
                   "-- @param amount int4 optional\n-- @param parent int4 optional\n"
                   "-- @result exec\nINSERT INTO strict VALUES (:id, :name, :amount, :parent)\n"},
    {"closed.sql", "-- GET /closed\nSELECT id FROM closed\n"},
    {"gone.sql", "-- GET /gone\n-- @param secret text optional\n"
                 "SELECT no_such_column FROM items WHERE name = :secret\n"},
    {"kill.sql", "-- GET /kill\n-- @result value\nSELECT pg_terminate_backend(pg_backend_pid())\n"},
    {"slow.sql", "-- GET /slow\n-- @param s float8\n-- @timeout 300ms\n-- @result value\n"
                 "SELECT tick('slow') FROM pg_sleep(:s)\n"},
    {"cast.sql", "-- GET /cast\n-- @param v text\n-- @result value\nSELECT :v::int4\n"},
    /* other dependencies */
    {"shut.sql", "-- GET /shut\n-- @from shut\nSELECT 1 AS a\n"},
    {"nowhere.sql", "-- GET /nowhere\n-- @from nowhere\nSELECT 1 AS a\n"},
    {"small.sql", "-- GET /small\n-- @from small\n-- @param s float8 default=0\n-- @result value\n"
                  "SELECT tick('small') FROM pg_sleep(:s)\n"},
    {"queued.sql", "-- GET /queued\n-- @from queued\n-- @param s float8 default=0\n"
                   "-- @result value\nSELECT tick('queued') FROM pg_sleep(:s)\n"},
    /* one session: whoever comes next gets what was left */
    {"kind.sql", "-- GET /kind\n-- @from small\n-- @result value\n"
                 "SELECT current_setting('transaction_read_only')\n"},
    {"kind-write.sql", "-- POST /kind\n-- @from small\n-- @result value\n"
                       "INSERT INTO notes (token) VALUES ('kind') RETURNING "
                       "current_setting('transaction_read_only')\n"},
    {"left.sql", "-- GET /left/{state}\n-- @from small\n-- @param state text\n-- @result value\n"
                 "SELECT fail_with(:state)\n"},
    {"forget.sql", "-- GET /forget\n-- @from small\n-- @result value\nSELECT forget()\n"},
    {"forget-write.sql", "-- POST /forget\n-- @from small\n-- @result exec\nSELECT forget()\n"},
    {"commit.sql", "-- POST /commit/{state}\n-- @from small\n-- @param state text\n"
                   "-- @result exec\nCALL commit_and_fail(:state)\n"},
    {"forced.sql", "-- GET /forced\n-- @from forced\nSELECT 1 AS a\n"},
    {"cut.sql", "-- GET /cut\n-- @from cut\n-- @param s float8\n-- @result value\n"
                "SELECT tick('cut') FROM pg_sleep(:s)\n"},
    {"cut-write.sql", "-- POST /cut\n-- @from cut\n-- @param s float8 in=query\n-- @result exec\n"
                      "INSERT INTO notes (token) SELECT 'cut' FROM pg_sleep(:s)\n"},
    {NULL, NULL},
};

static const char more_sql[] =
    "CREATE FUNCTION forget() RETURNS int LANGUAGE plpgsql AS $$BEGIN"
    "  EXECUTE 'DEALLOCATE ALL'; RETURN 1; END$$;"
    "CREATE PROCEDURE commit_and_fail(state text) LANGUAGE plpgsql AS $$BEGIN"
    "  INSERT INTO notes (token) VALUES (state); COMMIT;"
    "  RAISE EXCEPTION 'words of the server' USING ERRCODE = state; END$$";

struct fixture {
    struct private_postgres *pg;
    struct fault_proxy *proxy;
    struct weir_process *weir;
};

static char *dependencies_of(const struct fixture *f)
{
    char *direct = private_postgres_conninfo(f->pg, 0);
    char *proxied = private_postgres_conninfo(f->pg, fault_proxy_port(f->proxy));
    /* No breaker opens by itself here: each reason is to be seen as what it is. */
    char *text = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"breaker\": {\"failure_threshold\": 1000}},"
        " \"shut\": {\"kind\": \"postgres\", \"conninfo\": \"host=127.0.0.1 port=%u dbname=app "
        "user=app password=hush-hush-7\", \"breaker\": {\"failure_threshold\": 1000}},"
        " \"nowhere\": {\"kind\": \"postgres\", \"conninfo\": \"host=no.such.host.invalid "
        "dbname=app user=app\", \"breaker\": {\"failure_threshold\": 1000}},"
        " \"small\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": 1}},"
        " \"queued\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": 1, \"max_queued\": 4, \"queue_timeout\": \"100ms\"}},"
        " \"forced\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"breaker\": {\"mode\": \"forced-open\"}},"
        " \"cut\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"breaker\": {\"failure_threshold\": 1000}}}",
        direct, scratch_port(), direct, direct, direct, proxied);

    free(proxied);
    free(direct);
    return text;
}

static bool is_primary_reached(void *context)
{
    const struct fixture *f = context;

    return exchange_status(f->weir, "GET", "/many") == 200 &&
           exchange_status(f->weir, "GET", "/small") == 200 &&
           exchange_status(f->weir, "GET", "/queued") == 200 &&
           exchange_status(f->weir, "GET", "/cut?s=0") == 200;
}

static int start_all(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char *dependencies;

    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    private_postgres_exec(f->pg, more_sql);
    f->proxy = fault_proxy_create(private_postgres_port(f->pg));
    dependencies = dependencies_of(f);
    f->weir = weir_create(&(struct weir_setup){
        .dependencies = dependencies,
        .files = files,
        .server = "\"max_body\": \"2KiB\", \"max_uri\": \"1KiB\", \"cors_origins\": "
                  "[\"https://shop.example\"]"});
    weir_start(f->weir);
    assert_true(poll_until(is_primary_reached, f, 15000));
    free(dependencies);
    *state = f;
    return 0;
}

static int stop_all(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(weir_stop(f->weir, 20000), 0);
    weir_destroy(f->weir);
    fault_proxy_destroy(f->proxy);
    private_postgres_destroy(f->pg);
    free(f);
    return 0;
}

/* --- asking and judging --- */

/* A row of a table: the answer is either a body, or a reason. */
struct told {
    const char *method, *path, *headers, *body;
    int status;
    const char *expected; /* the whole body, or the reason from 400 on; NULL: any */
};

static bool is_told(const struct fixture *f, const struct told *t)
{
    struct http_answer answer =
        exchange_ask(f->weir, &(struct exchange){t->method, t->path, t->headers, t->body});
    char *found = t->status < 400 ? scratch_format("%s", answer.body) : http_answer_reason(&answer);
    bool is_right =
        answer.status == t->status && (t->expected == NULL || strcmp(found, t->expected) == 0);

    if (!is_right)
        print_error("%s %.100s %s: %d %s (expected %d %s) %s\n", t->method, t->path,
                    t->body != NULL ? t->body : "", answer.status, found, t->status,
                    t->expected != NULL ? t->expected : "", answer.body);
    free(found);
    http_answer_fini(&answer);
    return is_right;
}

static void judge(const struct fixture *f, const struct told *table, size_t count)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++)
        wrong += is_told(f, &table[i]) ? 0 : 1;
    assert_int_equal(wrong, 0);
}

#define JUDGE(f, table) judge(f, table, sizeof(table) / sizeof((table)[0]))

static void assert_header(const struct http_answer *answer, const char *name, const char *expected)
{
    char *value = http_answer_header(answer, name);

    if (expected == NULL)
        assert_null(value);
    else if (value == NULL || strcmp(value, expected) != 0)
        fail_msg("%s: %s, expected %s", name, value != NULL ? value : "(none)", expected);
    free(value);
}

/* --- results and writes --- */

static void test_each_kind_of_result_has_its_body(void **state)
{
    static const struct told table[] = {
        {"GET", "/many", NULL, NULL, 200, "[{\"a\":1,\"b c\":\"x\"},{\"a\":2,\"b c\":\"x\"}]"},
        {"GET", "/many?n=0", NULL, NULL, 200, "[]"},
        {"GET", "/items/7", NULL, NULL, 200, "{\"id\":7,\"name\":\"item 7\",\"price\":8.75}"},
        {"GET", "/items/5000", NULL, NULL, 404, "no-row"},
        {"GET", "/names/3", NULL, NULL, 200, "\"item 3\""},
        {"GET", "/names/0", NULL, NULL, 404, "no-row"},
        {"GET", "/two", NULL, NULL, 500, "more-than-one-row"},
        {"GET", "/cells", NULL, NULL, 500, "more-than-one-row"},
        {"GET", "/rows?n=5", NULL, NULL, 200,
         "[{\"g\":1},{\"g\":2},{\"g\":3},{\"g\":4},{\"g\":5}]"},
        {"GET", "/rows?n=6", NULL, NULL, 500, "result-too-large"},
        {"GET", "/bytes?n=1022", NULL, NULL, 200, NULL},
        {"GET", "/bytes?n=1023", NULL, NULL, 500, "result-too-large"},
        {"GET", "/bytes?n=5000000", NULL, NULL, 500, "result-too-large"},
        {"GET", "/rows?n=1000000000", NULL, NULL, 500, "result-too-large"},
    };

    JUDGE((struct fixture *)*state, table);
}

static void test_writes_write_and_say_their_status(void **state)
{
    static const struct told table[] = {
        {"POST", "/notes", NULL, "{\"token\":\"w\",\"body\":\"b\"}", 201,
         "{\"token\":\"w\",\"body\":\"b\",\"tick\":\"create\"}"},
        {"POST", "/notes", NULL, "{\"token\":\"w\"}", 201,
         "{\"token\":\"w\",\"body\":null,\"tick\":\"create\"}"},
        {"POST", "/notes", NULL, "{\"token\":\"w\",\"body\":null}", 201,
         "{\"token\":\"w\",\"body\":null,\"tick\":\"create\"}"},
        {"PUT", "/notes/w", NULL, "{\"body\":\"new\"}", 200, "{\"rows\":3}"},
        {"PATCH", "/notes/w", NULL, "{\"body\":\"x\"}", 200,
         "[{\"token\":\"w\"},{\"token\":\"w\"},{\"token\":\"w\"}]"},
        {"DELETE", "/notes/w", NULL, NULL, 200, "{\"rows\":3}"},
        {"DELETE", "/notes/w", NULL, NULL, 200, "{\"rows\":0}"},
        {"POST", "/nothing", NULL, NULL, 204, ""},
        {"POST", "/too-many", NULL, "{\"token\":\"too-many\"}", 500, "result-too-large"},
    };
    struct fixture *f = *state;

    JUDGE(f, table);
    assert_int_equal(private_postgres_number(f->pg,
                                             "SELECT count(*) FROM notes WHERE token IN ('w', "
                                             "'too-many')"),
                     0);
}

/* --- parameters --- */

static void test_parameters_come_from_path_query_body_and_header(void **state)
{
    static const struct told table[] = {
        {"POST", "/places/a%2Fb%20c+d?q=1%2B1+x", "h: from header", "{\"b\":\"from body\"}", 200,
         "{\"p\":\"a/b c+d\",\"q\":\"1+1 x\",\"b\":\"from body\",\"h\":\"from header\"}"},
        {"POST", "/places/x?q", NULL, "{\"b\":\"\"}", 200,
         "{\"p\":\"x\",\"q\":\"\",\"b\":\"\",\"h\":null}"},
        {"POST", "/places/x", NULL, "{\"b\":\"\"}", 400, "bad-parameter"},
        {"POST", "/places/x?q=1&q=2", NULL, "{\"b\":\"\"}", 400, "bad-parameter"},
        {"POST", "/places/x?q=1", NULL, "{}", 400, "bad-parameter"},
        {"POST", "/places/x?q=1&b=2", NULL, "{\"b\":\"\"}", 400, "bad-parameter"},
        {"POST", "/places/x?q=1", NULL, "{\"b\":\"\",\"q\":\"2\"}", 400, "bad-parameter"},
        {"POST", "/places/x?q=1", NULL, "{\"b\":1,\"b\":2}", 400, NULL},
        {"POST", "/places/x?q=1", NULL, "{\"b\":{\"x\":1}}", 400, "bad-parameter"},
        {"POST", "/places/x?q=1", NULL, "{\"b\":\"\"", 400, "bad-body"},
        {"POST", "/places/x?q=1", NULL, "[1]", 400, "bad-body"},
        {"POST", "/places/x?q=1", NULL, "{\"b\":\"\"} x", 400, "bad-body"},
        {"POST", "/places/x?q=1", "Content-Type: text/plain", "{\"b\":\"\"}", 415,
         "unsupported-media-type"},
        {"POST", "/places/x?q=1", "Content-Type: application/json; charset=utf-8", "{\"b\":\"\"}",
         200, NULL},
        {"POST", "/places/%ff?q=1", NULL, "{\"b\":\"\"}", 400, "bad-parameter"},
        {"POST", "/places/a%00b?q=1", NULL, "{\"b\":\"\"}", 400, "bad-parameter"},
        {"POST", "/places/?q=1", NULL, "{\"b\":\"\"}", 404, "not-found"},
        {"POST", "/places/x/?q=1", NULL, "{\"b\":\"\"}", 404, "not-found"},
        {"GET", "/items/0", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/items/100001", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/items/7x", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/items/7?x=1", NULL, NULL, 400, "bad-parameter"},
    };

    JUDGE((struct fixture *)*state, table);
}

static void test_rules_are_checked_before_the_database(void **state)
{
    static const struct told refused[] = {
        {"GET", "/rules?low=9", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?low=21", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?low=", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?low=10&low=11", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?Low=10", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?word=a", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?word=abcab", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?word=abd", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?word=ab%0A", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?pick=blue", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?list=1&list=", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?text=%00", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?%00=1", NULL, NULL, 400, "bad-parameter"},
        {"GET", "/rules?text=%", NULL, NULL, 400, "bad-parameter"},
    };
    static const struct told accepted[] = {
        {"GET", "/rules", NULL, NULL, 200,
         "{\"t\":\"rules\",\"low\":null,\"word\":null,\"pick\":null,\"list\":null,\"text\":null}"},
        {"GET", "/rules?low=10&word=abc&pick=red&list=1&list=2&text=", NULL, NULL, 200,
         "{\"t\":\"rules\",\"low\":10,\"word\":\"abc\",\"pick\":\"red\",\"list\":[1,2],\"text\":"
         "\"\"}"},
    };
    struct fixture *f = *state;
    size_t before = private_postgres_ticks(f->pg, "rules");

    JUDGE(f, refused);
    assert_int_equal(private_postgres_ticks(f->pg, "rules"), before);
    JUDGE(f, accepted);
    assert_int_equal(private_postgres_ticks(f->pg, "rules"), before + 2);
}

/* --- paths, methods, formats, sizes --- */

static void test_what_http_refuses_has_its_status(void **state)
{
    static char long_path[1400] = "/rules?text=";
    static char long_body[3000] = "{\"token\":\"";
    const struct told table[] = {
        {"GET", "/nowhere-at-all", NULL, NULL, 404, "not-found"},
        {"GET", "/MANY", NULL, NULL, 404, "not-found"},
        {"GET", "/many/", NULL, NULL, 404, "not-found"},
        {"POST", "/many", NULL, "{}", 405, "method-not-allowed"},
        {"DELETE", "/many", NULL, NULL, 405, "method-not-allowed"},
        {"BREW", "/many", NULL, NULL, 405, "method-not-allowed"},
        {"GET", "/notes", NULL, NULL, 405, "method-not-allowed"},
        {"GET", "/many", "Accept: text/html", NULL, 406, "not-acceptable"},
        {"GET", "/many", "Accept: application/xml;q=1, application/json;q=0", NULL, 406,
         "not-acceptable"},
        {"GET", "/many", "Accept: text/html, */*;q=0.1", NULL, 200, NULL},
        {"GET", "/many", "Accept: application/*", NULL, 200, NULL},
        {"GET", long_path, NULL, NULL, 414, "uri-too-long"},
        {"POST", "/notes", NULL, long_body, 413, "body-too-large"},
        {"POST", "/notes", "Content-Type: text/plain", "token=a", 415, "unsupported-media-type"},
        {"POST", "/notes", "Content-Type: application/x-www-form-urlencoded", "token=a", 415,
         "unsupported-media-type"},
    };

    memset(long_path + strlen(long_path), 'x', sizeof long_path - strlen(long_path) - 1);
    memset(long_body + strlen(long_body), 'x', sizeof long_body - strlen(long_body) - 1);
    JUDGE((struct fixture *)*state, table);
}

static void test_head_is_get_without_its_body(void **state)
{
    struct fixture *f = *state;
    struct http_answer get = exchange_ask(f->weir, &(struct exchange){.path = "/items/7"});
    struct http_answer head =
        exchange_ask(f->weir, &(struct exchange){.method = "HEAD", .path = "/items/7"});
    char *length = scratch_format("%zu", get.body_bytes);

    assert_int_equal(head.status, 200);
    assert_int_equal(head.body_bytes, 0);
    assert_header(&head, "Content-Length", length);
    assert_header(&head, "Content-Type", "application/json");
    assert_int_equal(exchange_status(f->weir, "HEAD", "/items/5000"), 404);
    assert_int_equal(exchange_status(f->weir, "HEAD", "/notes"), 405);
    free(length);
    http_answer_fini(&head);
    http_answer_fini(&get);
}

static void test_options_and_405_say_what_is_allowed(void **state)
{
    static const struct {
        const char *path, *allow;
    } paths[] = {{"/many", "GET, HEAD, OPTIONS"},
                 {"/notes", "POST, OPTIONS"},
                 {"/notes/w", "PUT, PATCH, DELETE, OPTIONS"},
                 {"/health", "GET, HEAD, OPTIONS"}};
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct http_answer options =
            exchange_ask(f->weir, &(struct exchange){.method = "OPTIONS", .path = paths[i].path});
        struct http_answer brew =
            exchange_ask(f->weir, &(struct exchange){.method = "BREW", .path = paths[i].path});

        assert_int_equal(options.status, 204);
        assert_header(&options, "Allow", paths[i].allow);
        assert_int_equal(brew.status, 405);
        assert_header(&brew, "Allow", paths[i].allow);
        http_answer_fini(&brew);
        http_answer_fini(&options);
    }
}

static void test_cors_lets_only_the_known_origin_in(void **state)
{
    static const char preflight[] = "Origin: https://shop.example\n"
                                    "Access-Control-Request-Method: POST\n"
                                    "Access-Control-Request-Headers: content-type, x-request-id";
    struct fixture *f = *state;
    struct http_answer known = exchange_ask(
        f->weir, &(struct exchange){.path = "/many", .headers = "Origin: https://shop.example"});
    struct http_answer unknown = exchange_ask(
        f->weir, &(struct exchange){.path = "/many", .headers = "Origin: https://evil.example"});
    struct http_answer asked = exchange_ask(
        f->weir, &(struct exchange){.method = "OPTIONS", .path = "/notes", .headers = preflight});

    assert_header(&known, "Access-Control-Allow-Origin", "https://shop.example");
    assert_header(&known, "Vary", "Origin");
    assert_int_equal(unknown.status, 200);
    assert_header(&unknown, "Access-Control-Allow-Origin", NULL);
    assert_header(&unknown, "Vary", "Origin");
    assert_int_equal(asked.status, 204);
    assert_header(&asked, "Access-Control-Allow-Methods", "POST, OPTIONS");
    assert_header(&asked, "Access-Control-Allow-Headers", "content-type, x-request-id");
    http_answer_fini(&asked);
    http_answer_fini(&unknown);
    http_answer_fini(&known);
}

/* --- headers around an answer --- */

static void test_request_ids_are_kept_when_they_are_ids(void **state)
{
    static const struct {
        const char *sent;
        bool is_kept;
    } ids[] = {
        {"abc-1_2.Z", true},
        {"0123456789012345678901234567890123456789012345678901234567890123", true},
        {"01234567890123456789012345678901234567890123456789012345678901234", false},
        {"a b", false},
        {"a\"b", false},
        {"<x>", false},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        char *header = scratch_format("X-Request-Id: %s", ids[i].sent);
        struct http_answer answer =
            exchange_ask(f->weir, &(struct exchange){.path = "/items/0", .headers = header});
        char *id = http_answer_header(&answer, "X-Request-Id");
        char *instance = scratch_format("\"instance\":\"%s\"", id);

        assert_int_equal(strcmp(id, ids[i].sent) == 0, ids[i].is_kept);
        assert_non_null(strstr(answer.body, instance));
        assert_true(weir_log_has_within(f->weir, id, 2000));
        free(instance);
        free(id);
        http_answer_fini(&answer);
        free(header);
    }
}

/* The number behind `label`, which *at must stand at; *at moves behind it. */
static double timing_after(const char **at, const char *label)
{
    size_t size = strlen(label);
    double value;
    char *end;

    if (*at == NULL || strncmp(*at, label, size) != 0) {
        fail_msg("\"%s\" does not start with \"%s\"", *at != NULL ? *at : "", label);
        return -1;
    }
    value = strtod(*at + size, &end);
    assert_ptr_not_equal(end, *at + size);
    *at = end;
    return value;
}

static void test_server_timing_says_where_the_time_went(void **state)
{
    struct fixture *f = *state;
    struct http_answer answer = exchange_ask(f->weir, &(struct exchange){.path = "/slow?s=0.05"});
    char *timing = http_answer_header(&answer, "Server-Timing");
    const char *at = timing;
    double queue_ms, db_ms, total_ms;

    assert_int_equal(answer.status, 200);
    assert_non_null(timing);
    queue_ms = timing_after(&at, "queue;dur=");
    db_ms = timing_after(&at, ", db;dur=");
    total_ms = timing_after(&at, ", total;dur=");
    assert_true(queue_ms >= 0 && db_ms >= 49 && total_ms >= db_ms);
    assert_true(total_ms * 1000 <= (double)answer.elapsed_us);
    free(timing);
    http_answer_fini(&answer);
}

/* --- problems --- */

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which a row is read */
struct problem_row {
    const char *method, *path, *body;
    int status;
    const char *reason;
    bool is_retryable;
    const char *dependency; /* NULL: none may be named */
    const char *member;     /* must stand in the body; NULL: nothing more */
};

static void expect_text(const json_t *problem, const char *key, const char *expected)
{
    const char *value = json_string_value(json_object_get(problem, key));

    if (value == NULL || strcmp(value, expected) != 0)
        fail_msg("%s is %s, expected %s", key, value != NULL ? value : "(none)", expected);
}

static void assert_no_leak(const struct problem_row *row, const struct http_answer *answer)
{
    /* The server's words, SQL text, values sent, secrets of the configuration. */
    static const char *const never[] = {
        "SELECT",   "INSERT", "no_such_column", "relation", "s3cr3t", "hush-hush-7", "password",
        "violates", "Key (",  "server closed",  "FATAL",    "ERROR:", ".sql"};

    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        if (strstr(answer->body, never[i]) != NULL || strstr(answer->headers, never[i]) != NULL)
            fail_msg("%s: the answer says \"%s\": %s", row->path, never[i], answer->body);
    if (strcmp(row->reason, "raised") != 0)
        assert_null(strstr(answer->body, "words of the server"));
}

static void assert_problem(const struct problem_row *row, const struct http_answer *answer)
{
    json_t *problem = exchange_json(answer);
    char *type = scratch_format("/problems/%s", row->reason);
    char *id = http_answer_header(answer, "X-Request-Id");
    char *retry_after = http_answer_header(answer, "Retry-After");

    if (answer->status != row->status ||
        strcmp(json_string_value(json_object_get(problem, "reason")), row->reason) != 0)
        fail_msg("%s: %d %s, expected %d %s", row->path, answer->status, answer->body, row->status,
                 row->reason);
    assert_header(answer, "Content-Type", "application/problem+json");
    assert_header(answer, "Cache-Control", "no-store");
    expect_text(problem, "type", type);
    expect_text(problem, "instance", id);
    assert_true(json_string_length(json_object_get(problem, "title")) > 0);
    assert_true(json_string_length(json_object_get(problem, "detail")) > 0);
    assert_int_equal(json_integer_value(json_object_get(problem, "status")), row->status);
    assert_int_equal(json_is_true(json_object_get(problem, "retryable")), row->is_retryable);
    if (row->dependency != NULL)
        expect_text(problem, "dependency", row->dependency);
    else if (json_object_get(problem, "dependency") != NULL)
        fail_msg("%s: a dependency is named: %s", row->path, answer->body);
    if (row->member != NULL && strstr(answer->body, row->member) == NULL)
        fail_msg("%s: %s lacks %s", row->path, answer->body, row->member);
    assert_int_equal(retry_after != NULL, row->status == 503);
    if (retry_after != NULL)
        assert_true(strtol(retry_after, NULL, 10) >= 1);
    assert_no_leak(row, answer);
    free(retry_after);
    free(id);
    free(type);
    json_decref(problem);
}

static void ask_problem(const struct fixture *f, const struct problem_row *row)
{
    struct http_answer answer =
        exchange_ask(f->weir, &(struct exchange){row->method, row->path, NULL, row->body});

    assert_problem(row, &answer);
    http_answer_fini(&answer);
}

static const struct problem_row problems[] = {
    {"GET", "/items/s3cr3t", NULL, 400, "bad-parameter", false, NULL, "\\\"id\\\""},
    {"GET", "/cast?v=s3cr3t", NULL, 400, "bad-parameter", false, "primary", NULL},
    {"GET", "/fail/22012", NULL, 400, "bad-parameter", false, "primary", NULL},
    {"POST", "/notes", "{\"token\":s3cr3t}", 400, "bad-body", false, NULL, NULL},
    {"GET", "/fail/P0001", NULL, 400, "raised", false, "primary",
     "\"detail\":\"words of the server\""},
    {"GET", "/s3cr3t", NULL, 404, "not-found", false, NULL, NULL},
    {"GET", "/items/5000", NULL, 404, "no-row", false, "primary", NULL},
    {"PUT", "/many", NULL, 405, "method-not-allowed", false, NULL, NULL},
    {"POST", "/strict", "{\"id\":1,\"name\":\"s3cr3t\",\"amount\":1}", 409, "conflict", false,
     "primary", "\"constraint\":\"strict_pkey\""},
    {"POST", "/strict", "{\"id\":2,\"name\":\"s3cr3t\",\"amount\":1,\"parent\":99}", 409,
     "conflict", false, "primary", "\"constraint\":\"strict_parent_fkey\""},
    {"POST", "/strict", "{\"id\":3,\"name\":\"s3cr3t\",\"amount\":-1}", 422, "constraint", false,
     "primary", "\"constraint\":\"strict_amount_check\""},
    {"POST", "/strict", "{\"id\":4,\"amount\":1}", 422, "constraint", false, "primary", NULL},
    {"GET", "/fail/23P01", NULL, 409, "conflict", false, "primary", NULL},
    {"GET", "/closed", NULL, 403, "forbidden", false, "primary", NULL},
    {"GET", "/gone?secret=s3cr3t", NULL, 500, "query-invalid", false, "primary", NULL},
    {"GET", "/fail/42P01", NULL, 500, "query-invalid", false, "primary", NULL},
    {"GET", "/fail/25006", NULL, 500, "query-invalid", false, "primary", NULL},
    {"GET", "/fail/XX000", NULL, 500, "database-error", false, "primary", NULL},
    {"GET", "/fail/P0002", NULL, 500, "database-error", false, "primary", NULL},
    {"GET", "/fail/40001", NULL, 503, "conflict-retry", true, "primary", NULL},
    {"POST", "/fail/40P01", NULL, 503, "conflict-retry", true, "primary", NULL},
    {"GET", "/fail/55P03", NULL, 503, "conflict-retry", true, "primary", NULL},
    {"GET", "/fail/53100", NULL, 503, "database-unavailable", true, "primary", NULL},
    {"GET", "/fail/57P03", NULL, 503, "database-unavailable", true, "primary", NULL},
    {"GET", "/fail/58030", NULL, 503, "database-unavailable", true, "primary", NULL},
    {"GET", "/fail/XX001", NULL, 503, "database-unavailable", true, "primary", NULL},
    {"GET", "/fail/08006", NULL, 503, "connection-lost", true, "primary", NULL},
    {"POST", "/fail/25006", NULL, 503, "wrong-node", true, "primary", NULL},
    {"GET", "/kill", NULL, 503, "database-unavailable", true, "primary", NULL},
    {"GET", "/two", NULL, 500, "more-than-one-row", false, "primary", NULL},
    {"GET", "/rows?n=6", NULL, 500, "result-too-large", false, "primary", NULL},
    {"GET", "/slow?s=5", NULL, 504, "deadline", true, "primary", NULL},
    {"GET", "/shut", NULL, 503, "connect-failed", true, "shut", NULL},
    {"GET", "/nowhere", NULL, 503, "unresolved", true, "nowhere", NULL},
    {"GET", "/forced", NULL, 503, "breaker-open", true, "forced", NULL},
};

static void test_every_reason_is_a_whole_problem_and_says_no_secret(void **state)
{
    struct fixture *f = *state;
    size_t count = sizeof problems / sizeof problems[0];

    for (size_t i = 0; i < count; i++)
        ask_problem(f, &problems[i]);
    print_message("[figure] problems checked: %zu\n", count);
}

/* --- reasons that need a neighbour --- */

struct occupant {
    const struct fixture *f;
    const char *path;
    int status;
};

static void occupy(unsigned index, void *context)
{
    struct occupant *all = context;

    /* The first has the only permit; the others come while it has it. */
    if (index > 0)
        pass_ms(150);
    all[index].status = exchange_status(all[index].f->weir, "GET", all[index].path);
    if (index > 0) {
        struct problem_row row = {"GET", all[index].path, NULL, 503, NULL, true, NULL, NULL};

        row.reason = strcmp(row.path, "/small") == 0 ? "bulkhead-full" : "queue-timeout";
        row.dependency = row.path + 1;
        ask_problem(all[index].f, &row);
    }
}

static void test_a_full_bulkhead_refuses_and_a_slow_queue_times_out(void **state)
{
    struct fixture *f = *state;
    struct occupant small[] = {{f, "/small?s=0.9", 0}, {f, "/small", 0}};
    struct occupant queued[] = {{f, "/queued?s=0.9", 0}, {f, "/queued", 0}};
    size_t before =
        private_postgres_ticks(f->pg, "small") + private_postgres_ticks(f->pg, "queued");

    crowd_run(2, occupy, small);
    crowd_run(2, occupy, queued);
    assert_int_equal(small[0].status, 200);
    assert_int_equal(small[1].status, 503);
    assert_int_equal(queued[0].status, 200);
    assert_int_equal(queued[1].status, 503);
    assert_int_equal(private_postgres_ticks(f->pg, "small") +
                         private_postgres_ticks(f->pg, "queued"),
                     before + 2);
}

/* The statement of the row is running at the server, not only being prepared. */
static bool runs_cut(void *context)
{
    const void *const *both = context;
    const struct problem_row *row = both[1];
    const struct fixture *f = both[0];
    char *sql = scratch_format("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND "
                               "wait_event = 'PgSleep' AND query LIKE '%s%%''cut''%%'",
                               strcmp(row->method, "GET") == 0 ? "SELECT tick(" : "INSERT ");
    bool is_running = private_postgres_number(f->pg, sql) > 0;

    free(sql);
    return is_running;
}

static void cut_or_ask(unsigned index, void *context)
{
    const void *const *both = context;
    const struct problem_row *row = both[1];
    const struct fixture *f = both[0];

    if (index == 0) {
        ask_problem(f, row);
        return;
    }
    assert_true(poll_until(runs_cut, context, 2000));
    fault_proxy_reset_open(f->proxy);
}

static void test_a_connection_cut_under_a_read_is_lost_under_a_write_unknown(void **state)
{
    static const struct problem_row rows[] = {
        {"GET", "/cut?s=1", NULL, 503, "connection-lost", true, "cut", NULL},
        {"POST", "/cut?s=1", NULL, 503, "outcome-unknown", false, "cut", NULL},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < 2; i++) {
        const void *context[] = {f, &rows[i]};
        uint64_t before = fault_proxy_counters(f->proxy).reset_count;

        crowd_run(2, cut_or_ask, context);
        assert_true(fault_proxy_counters(f->proxy).reset_count > before);
        assert_true(poll_until(is_primary_reached, f, 5000));
    }
}

static void assert_each_kind_runs_in_its_session(const struct fixture *f)
{
    static const struct told table[] = {
        {"GET", "/kind", NULL, NULL, 200, "\"on\""},
        {"POST", "/kind", NULL, NULL, 200, "\"off\""},
        {"GET", "/kind", NULL, NULL, 200, "\"on\""},
    };

    JUDGE(f, table);
}

/* Whoever deallocates all takes weir's own statements too; whoever only says so, does not. */
static void test_a_session_is_of_the_right_kind_whatever_was_left_in_it(void **state)
{
    static const struct told leave[] = {
        {"GET", "/forget", NULL, NULL, 200, NULL},
        {"POST", "/forget", NULL, NULL, 200, NULL},
        {"GET", "/left/26000", NULL, NULL, 500, "query-invalid"},
        {"GET", "/left/42P05", NULL, NULL, 500, "query-invalid"},
        {"GET", "/left/0A000", NULL, NULL, 500, "database-error"},
    };
    static const struct told write = {"POST", "/kind", NULL, NULL, 200, "\"off\""};
    struct fixture *f = *state;

    assert_each_kind_runs_in_its_session(f);
    for (size_t i = 0; i < sizeof leave / sizeof leave[0]; i++) {
        assert_true(is_told(f, &leave[i]));
        assert_each_kind_runs_in_its_session(f);
        assert_true(is_told(f, &leave[i]));
        assert_true(is_told(f, &write));
    }
}

/* It committed, and then it failed: once is what the caller asked for. */
static void test_a_procedure_that_commits_inside_runs_once_and_is_not_asked_for_again(void **state)
{
    static const struct problem_row rows[] = {
        {"POST", "/commit/0A000", NULL, 500, "database-error", false, "small", NULL},
        {"POST", "/commit/26000", NULL, 500, "query-invalid", false, "small", NULL},
        {"POST", "/commit/42P05", NULL, 500, "query-invalid", false, "small", NULL},
        {"POST", "/commit/XX000", NULL, 500, "database-error", false, "small", NULL},
        {"POST", "/commit/40001", NULL, 503, "outcome-unknown", false, "small", NULL},
        {"POST", "/commit/57014", NULL, 503, "outcome-unknown", false, "small", NULL},
        {"POST", "/commit/57P01", NULL, 503, "outcome-unknown", false, "small", NULL},
        {"POST", "/commit/08006", NULL, 503, "outcome-unknown", false, "small", NULL},
        {"POST", "/commit/P0001", NULL, 400, "raised", false, "small", NULL},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *sql = scratch_format("SELECT count(*) FROM notes WHERE token = '%s'",
                                   rows[i].path + strlen("/commit/"));

        ask_problem(f, &rows[i]);
        assert_int_equal(private_postgres_number(f->pg, sql), 1);
        free(sql);
    }
    assert_each_kind_runs_in_its_session(f);
}

static void test_each_problem_has_a_page(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        char *path = scratch_format("/problems/%s", problems[i].reason);

        assert_int_equal(exchange_status(f->weir, "GET", path), 200);
        free(path);
    }
    assert_int_equal(exchange_status(f->weir, "GET", "/problems/none-such"), 404);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind_of_result_has_its_body),
        cmocka_unit_test(test_writes_write_and_say_their_status),
        cmocka_unit_test(test_parameters_come_from_path_query_body_and_header),
        cmocka_unit_test(test_rules_are_checked_before_the_database),
        cmocka_unit_test(test_what_http_refuses_has_its_status),
        cmocka_unit_test(test_head_is_get_without_its_body),
        cmocka_unit_test(test_options_and_405_say_what_is_allowed),
        cmocka_unit_test(test_cors_lets_only_the_known_origin_in),
        cmocka_unit_test(test_request_ids_are_kept_when_they_are_ids),
        cmocka_unit_test(test_server_timing_says_where_the_time_went),
        cmocka_unit_test(test_every_reason_is_a_whole_problem_and_says_no_secret),
        cmocka_unit_test(test_a_full_bulkhead_refuses_and_a_slow_queue_times_out),
        cmocka_unit_test(test_a_connection_cut_under_a_read_is_lost_under_a_write_unknown),
        cmocka_unit_test(test_a_session_is_of_the_right_kind_whatever_was_left_in_it),
        cmocka_unit_test(test_a_procedure_that_commits_inside_runs_once_and_is_not_asked_for_again),
        cmocka_unit_test(test_each_problem_has_a_page),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}

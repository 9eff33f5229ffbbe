/* What `weir check` says: each kind of mistake at its place, all of them at once, the nearest known
 * word, and what only a database knows. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "exchange.h"
#include "fault_proxy.h"
#include "scratch.h"

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

static const char good_sql[] = "-- GET /good\nSELECT 1 AS a\n";

struct fixture {
    struct private_postgres *pg;
};

static int start_all(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    *state = f;
    return 0;
}

static int stop_all(void **state)
{
    struct fixture *f = *state;

    private_postgres_destroy(f->pg);
    free(f);
    return 0;
}

/* --- one mistake a file --- */

struct mistake {
    const char *text; /* of the file */
    int line, column;
    const char *needle; /* in the words of the complaint */
};

#define DB "\"dependencies\": {\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=x\"}}"
#define DEPENDENCY(more)                                                                           \
    "{\"dependencies\": {\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=x\",\n" more   \
    "}}}"

/* Each is all that is wrong with its weir.json. */
static const struct mistake in_config[] = {
    /* the text itself */
    {"", 1, 1, "no valid JSON"},
    {"[]", 1, 1, "must be an object"},
    {"{\n " DB ",,\n}", 2, 74, "no valid JSON: string or '}' expected"},
    {"{\n \"api\": \"api\",\n}", 3, 1, "no valid JSON: string or '}' expected"},
    {"{\n \"server\": {\"port\": 80}\n \"api\": \"api\"}", 3, 2, "no valid JSON: '}' expected"},
    {"{\"log\": {\"parameters\": fals}}", 1, 24, "no valid JSON: invalid token"},
    {"{\"server\": {\"port\": 080}}", 1, 21, "no valid JSON: invalid token"},
    {"{\"api\": \"a\\pi\"}", 1, 12, "no valid JSON: invalid escape"},
    {"{\"api\":\n \"api}", 2, 2, "no valid JSON"},
    {"{\"api\": \"api\"\n\n", 1, 14, "no valid JSON: '}' expected"},
    {"{" DB "} {", 1, 75, "no valid JSON: end of file expected"},
    /* keys */
    {"{\n \"servre\": {},\n " DB "}", 2, 2, "servre: unknown key; did you mean \"server\"?"},
    {"{\"server\": {\n \"prot\": 80}, " DB "}", 2, 2,
     "server.prot: unknown key; did you mean \"port\"?"},
    {"{\"server\": {\"requestTimeout\": \"2s\"}, " DB "}", 1, 13,
     "did you mean \"request_timeout\"?"},
    {"{\"zebra\": 1, " DB "}", 1, 2, "zebra: unknown key"},
    {"{\"max_concurrent\": 4, " DB "}", 1, 2,
     "did you mean \"dependencies.*.bulkhead.max_concurrent\"?"},
    {DEPENDENCY(" \"max_concurrent\": 4"), 2, 2,
     "dependencies.primary.max_concurrent: unknown key here; did you mean "
     "\"bulkhead.max_concurrent\"?"},
    {DEPENDENCY(" \"bulkhead\": {\"max_concurent\": 4}"), 2, 15,
     "dependencies.primary.bulkhead.max_concurent: unknown key; did you mean \"max_concurrent\"?"},
    {"{\"server\": {\"port\": 1,\n \"port\": 2}, " DB "}", 2, 2, "server.port: given twice"},
    {"{\"auth\": {\"tokens_file\": \"x\"}, " DB "}", 1, 2, "auth: not supported yet; leave it out"},
    {"{}", 1, 1, "dependencies: at least one is needed"},
    {"{\"api\": \"api\",\n \"dependencies\": {}}", 2, 2, "dependencies: at least one is needed"},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"postgres\"}}}", 1, 19,
     "dependencies.primary.conninfo: is missing"},
    {"{\"dependencies\": {\"primary\": {\"conninfo\": \"host=x\"}}}", 1, 19,
     "dependencies.primary.kind: is missing"},
    {"{\"dependencies\": {\"Primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=x\"}}}", 1, 19,
     "dependencies.Primary: a name is"},
    /* values */
    {"{\"server\": 3, " DB "}", 1, 12, "server: must be an object"},
    {"{\"server\": {\"port\": 0}, " DB "}", 1, 21, "server.port: must be a whole number from 1"},
    {"{\"server\": {\"port\": \"80\"}, " DB "}", 1, 21, "server.port: must be a whole number"},
    {"{\"server\": {\"workers\": 2.5}, " DB "}", 1, 24, "server.workers: must be a whole number"},
    {"{\"server\": {\"address\": \"localhost\"}, " DB "}", 1, 24,
     "server.address: must be an IPv4 or IPv6 address"},
    {"{\"server\": {\"request_timeout\": \"5 parsecs\"}, " DB "}", 1, 32,
     "server.request_timeout: must be a duration"},
    {"{\"server\": {\"request_timeout\": 5}, " DB "}", 1, 32,
     "must be a duration such as \"250ms\""},
    {"{\"server\": {\"max_body\": \"1MB\"}, " DB "}", 1, 25, "server.max_body: must be a size"},
    {"{\"server\": {\"cors_origins\": [\"*\",\n \"https://a.example/x\"]}, " DB "}", 2, 2,
     "server.cors_origins: must be a list of origins"},
    {"{\"server\": {\"trusted_proxies\": [\"10.0.0.1\"]}, " DB "}", 1, 32,
     "server.trusted_proxies: anything but [] is not supported yet"},
    {"{\"admin\": {\"port\": 70000}, " DB "}", 1, 20, "admin.port: must be a whole number"},
    {"{\"api\": null, " DB "}", 1, 9, "api: must be a string"},
    {"{\"api\": \"no-such-folder\", " DB "}", 1, 9, "api: folder no-such-folder cannot be read"},
    {"{\"cache\": {\"max_bytes\": \"1KiB\"}, " DB "}", 1, 25, "cache.max_bytes: must be a size"},
    {"{\"cache\": {\"shared\": \"redis\"}, " DB "}", 1, 22,
     "cache.shared: anything but null is not supported yet"},
    {"{\"log\": {\"level\": \"wran\"}, " DB "}", 1, 19,
     "log.level: must be one of \"debug\", \"info\", \"warn\", \"error\"; did you mean \"warn\"?"},
    {"{\"log\": {\"parameters\": \"yes\"}, " DB "}", 1, 24,
     "log.parameters: must be true or false"},
    {"{\"dependencies\": [], \"api\": \"api\"}", 1, 18, "dependencies: must be an object"},
    {"{\"dependencies\": {\"primary\": 1}}", 1, 30, "must be an object"},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"oracle\", \"conninfo\": \"host=x\"}}}", 1, 39,
     "dependencies.primary.kind: must be \"postgres\""},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"redis\", \"url\": \"x\"}}}", 1, 39,
     "dependencies.primary.kind: \"redis\" is not supported yet"},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"hots=x\"}}}", 1, 63,
     "dependencies.primary.conninfo is not a connection string"},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"postgres\",\n \"conninfo\": \"dbname='a b' "
     "prot=1\"}}}",
     2, 14, "did you mean \"port\"?"},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=a,b,c "
     "port=1,2\"}}}",
     1, 63, "dependencies.primary.conninfo: 2 ports for 3 hosts"},
    {DEPENDENCY(" \"access\": \"readonly\""), 2, 12, "dependencies.primary.access: must be one of"},
    {DEPENDENCY(" \"connections\": 3"), 2, 17, "dependencies.primary.connections: fewer"},
    {DEPENDENCY(" \"prepare\": false"), 2, 13, "prepare: anything but true is not supported yet"},
    {DEPENDENCY(" \"max_lag\": \"5s\""), 2, 13, "max_lag: anything but null is not supported yet"},
    {DEPENDENCY(" \"breaker\": {\"failure_threshold\": -1}"), 2, 35,
     "must be a whole number from 1"},
    {DEPENDENCY(" \"breaker\": {\"failure_rate\": 1.5}"), 2, 30, "must be a number from 0 to 1"},
    {DEPENDENCY(" \"breaker\": {\"mode\": \"shadow\"}"), 2, 22, "\"shadow\" is not supported yet"},
    {DEPENDENCY(" \"breaker\": {\"mode\": \"disable\"}"), 2, 22, "did you mean \"disabled\"?"},
    {DEPENDENCY(" \"retry\": {\"budget\": 2}"), 2, 22,
     "retry.budget: must be a number from 0 to 1"},
    {DEPENDENCY(" \"probe\": {\"interval\": \"0s\"}"), 2, 24, "probe.interval: must be a duration"},
    /* the environment */
    {"{\"api\": \"x${WEIR_NOT_SET}\", " DB "}", 1, 11, "api: the environment has no WEIR_NOT_SET"},
    {"{\"api\": \"${WEIR NOT SET}\", " DB "}", 1, 10, "must be ${NAME} or ${NAME:-default}"},
    {"{\"api\": \"\\u0041${\", " DB "}", 1, 16, "api: ${ without a closing brace"},
    /* one value against another */
    {DEPENDENCY(" \"query_timeout\": \"6s\""), 2, 19,
     "query_timeout: 6s must not be longer than server.request_timeout, 5s"},
    {DEPENDENCY(" \"connect_timeout\": \"5s\""), 2, 21,
     "connect_timeout: 5s must be shorter than server.request_timeout, 5s"},
    {DEPENDENCY(" \"breaker\": {\"reset_timeout\": \"6m\"}"), 2, 31,
     "breaker.reset_timeout: 6m must not be longer than breaker.max_reset_timeout, 5m"},
    {"{\"server\": {\"caller_timeout\": \"5s\"}, " DB "}", 1, 31, "server.caller_timeout: 5s"},
    {"{\"server\": {\"request_timeout\": \"30s\"}, " DB "}", 1, 32,
     "must be shorter than server.caller_timeout, 30s"},
    {"{\"server\": {\"port\": 8081}, " DB "}", 1, 21, "server.port: 8081 is admin.port too"},
};

/* Each is all that is wrong with its api/a.sql, in a config with primary and replica (access:
 * read), next to GET /good, GET /kept (with @cache) and GET /rows/{id}. */
static const struct mistake in_sql[] = {
    /* the first line */
    {"", 1, 1, "the first line must be a comment: -- METHOD /path"},
    {"SELECT 1", 1, 1, "the first line must be a comment"},
    {"-- FETCH /a\nSELECT 1", 1, 4, "with GET, POST, PUT, PATCH or DELETE, not 'FETCH'"},
    {"--  get /a\nSELECT 1", 1, 5, "not 'get'; did you mean GET"},
    {"-- GET a\nSELECT 1", 1, 8, "a path starts with /"},
    {"-- GET /a b\nSELECT 1", 1, 11, "nothing may follow the path"},
    {"-- GET /a/\nSELECT 1", 1, 11, "a segment of the path is empty"},
    {"-- GET /a/{id\nSELECT 1", 1, 11, "the brace is not closed"},
    {"-- GET /a/{Id}\nSELECT 1", 1, 11, "the name in braces is small letters"},
    {"-- GET /{a}/{a}\n-- @param a int4\nSELECT :a", 1, 13, "the path names one parameter twice"},
    {"-- GET /a?b=1\nSELECT 1", 1, 9, "write it as %XX"},
    {"-- GET /a/%zz\nSELECT 1", 1, 11, "a % that starts no %XX"},
    {"-- GET /health\nSELECT 1", 1, 8, "/health and /problems are taken"},
    {"-- GET /rows/{key}\n-- @param key int4\nSELECT :key", 1, 4,
     "GET /rows/{key}: the same method and path as GET /rows/{id} in"},
    {"-- GET /a/{b}\nSELECT 1", 1, 11, "{b} in the path has no @param"},
    /* settings */
    {"-- GET /a\n-- @parm b int4\nSELECT 1", 2, 4, "@parm; did you mean @param"},
    {"-- GET /a\n-- @\nSELECT 1", 2, 4, "no setting is called @"},
    {"-- GET /a\n-- @timeout 1s\n-- @timeout 2s\nSELECT 1", 3, 4, "@timeout is given twice"},
    {"-- GET /a\n\n-- @cache max-age=5s\nSELECT 1", 3, 4,
     "@cache stands below the comment block, where it says nothing"},
    {"-- GET /a\nSELECT 1 -- @limit 3", 2, 13, "@limit stands below the comment block"},
    {"-- GET /a\n-- @from primry\nSELECT 1", 2, 10,
     "no dependency is called 'primry'; did you mean primary"},
    {"-- GET /a\n-- @from replica, primary\nSELECT 1", 2, 10, "are not supported yet"},
    {"-- POST /a\n-- @from replica\nDELETE FROM t", 2, 10,
     "a POST writes, and the dependency 'replica' is access: read"},
    {"-- GET /a\n-- @result mayn\nSELECT 1", 2, 12, "not 'mayn'; did you mean many"},
    {"-- GET /a\n-- @result\nSELECT 1", 2, 11, "@result needs many, one, value or exec"},
    {"-- GET /a\n-- @status 404\nSELECT 1", 2, 12,
     "@status must be a whole number from 200 to 299"},
    {"-- GET /a\n-- @timeout soon\nSELECT 1", 2, 13, "@timeout must be a duration"},
    {"-- GET /a\n-- @timeout 9s\nSELECT 1", 2, 13,
     "@timeout 9s is longer than request_timeout (5s)"},
    {"-- GET /a\n-- @limit 0\nSELECT 1", 2, 11, "@limit must be a whole number from 1"},
    {"-- GET /a\n-- @exclusive yes\nSELECT 1", 2, 15, "@exclusive takes no value"},
    {"-- GET /a\n-- @max_rows many\nSELECT 1", 2, 14, "@max_rows must be a whole number"},
    {"-- GET /a\n-- @max_bytes 8MB\nSELECT 1", 2, 15, "@max_bytes must be a size"},
    {"-- POST /a\n-- @idempotent no\nDELETE FROM t", 2, 16, "@idempotent takes no value"},
    {"-- GET /a\n-- @auth public\nSELECT 1", 2, 4, "@auth is not supported yet"},
    {"-- GET /a\n-- @rate 5/s\nSELECT 1", 2, 4, "@rate is not supported yet"},
    {"-- GET /a\n-- @part b from=primary\nSELECT 1", 2, 4, "@part is not supported yet"},
    /* @param */
    {"-- GET /a\n-- @param\nSELECT 1", 2, 10, "@param needs a name and a type"},
    {"-- GET /a\n-- @param B int4\nSELECT 1", 2, 11, "a name is small letters, digits and _"},
    {"-- GET /a\n-- @param b varchar(3)\nSELECT :b", 2, 13, "is no part of a parameter's type"},
    {"-- GET /a\n-- @param b int4\n-- @param b int4\nSELECT :b", 3, 11,
     "b is already declared on line 2"},
    {"-- GET /a\n-- @param b text mxlen=3\nSELECT :b", 2, 18,
     "there is no 'mxlen'; did you mean maxlen"},
    {"-- GET /a\n-- @param b int4 min=1 min=2\nSELECT :b", 2, 24, "min is given twice"},
    {"-- GET /a\n-- @param b int4 default\nSELECT :b", 2, 18, "default needs =value"},
    {"-- GET /a\n-- @param b int4 optional=yes\nSELECT :b", 2, 18, "optional takes no value"},
    {"-- GET /a\n-- @param b int4 optional default=1\nSELECT :b", 2, 27, "not both"},
    {"-- GET /a\n-- @param b int4 min=five\nSELECT :b", 2, 22, "min: not an integer"},
    {"-- GET /a\n-- @param b int4 min=5 max=1\nSELECT :b", 2, 18, "min=5 is more than max=1"},
    {"-- GET /a\n-- @param b text max=5\nSELECT :b", 2, 18, "max is for numbers"},
    {"-- GET /a\n-- @param b int4 maxlen=5\nSELECT :b", 2, 18, "maxlen is for text"},
    {"-- GET /a\n-- @param b text minlen=5 maxlen=1\nSELECT :b", 2, 18, "minlen is more than"},
    {"-- GET /a\n-- @param b text pattern=[\nSELECT :b", 2, 26, "pattern: "},
    {"-- GET /a\n-- @param b int4 max=5 default=6\nSELECT :b", 2, 32, "default: greater than 5"},
    {"-- GET /a\n-- @param b int4 example=six\nSELECT :b", 2, 26, "example: not an integer"},
    {"-- GET /a\n-- @param b int2 enum=1,70000\nSELECT :b", 2, 23, "enum: "},
    {"-- GET /a\n-- @param b int4 in=qurey\nSELECT :b", 2, 21, "did you mean query"},
    {"-- GET /a\n-- @param b int4 in=body\nSELECT :b", 2, 21, "a GET has no body"},
    {"-- GET /a\n-- @param b int4 in=path\nSELECT :b", 2, 21, "the path has no {b}"},
    {"-- GET /a/{b}\n-- @param b int4 in=query\nSELECT :b", 2, 21, "so it is in=path"},
    {"-- GET /a/{b}\n-- @param b int4 optional\nSELECT :b", 2, 11, "neither optional nor default"},
    {"-- GET /a/{b}\n-- @param b int4[]\nSELECT :b", 2, 11, "an array comes in the query"},
    {"-- GET /a\n-- @param b text in=claim claim=sub\nSELECT :b", 2, 27, "not supported yet"},
    {"-- GET /a\n-- @param b int4\nSELECT 1", 2, 11, "@param b is not used"},
    /* @cache, @purges, @fallback */
    {"-- GET /a\n-- @cache\nSELECT 1", 2, 10, "@cache needs max-age"},
    {"-- GET /a\n-- @cache max-age=5\nSELECT 1", 2, 19, "max-age must be a duration"},
    {"-- GET /a\n-- @cache max-age=5s stale_if_error=1m\nSELECT 1", 2, 22,
     "did you mean stale-if-error"},
    {"-- GET /a\n-- @cache max-age=5s private=yes\nSELECT 1", 2, 22, "private takes no value"},
    {"-- GET /a\n-- @cache max-age=5s until=notify:b\nSELECT 1", 2, 22, "not supported yet"},
    {"-- GET /a\n-- @status 201\n-- @cache max-age=5s\nSELECT 1", 3, 4, "only 200s are stored"},
    {"-- POST /a\n-- @cache max-age=5s\nDELETE FROM t", 2, 4, "@cache is for GET"},
    {"-- POST /a\n-- @purges\nDELETE FROM t", 2, 11, "@purges needs GET /path"},
    {"-- POST /a\n-- @purges POST /kept\nDELETE FROM t", 2, 12, "@purges takes GET /path"},
    {"-- POST /a\n-- @purges GET /kapt\nDELETE FROM t", 2, 12,
     "there is no route GET /kapt; did you mean GET /kept"},
    {"-- POST /a\n-- @purges GET /good\nDELETE FROM t", 2, 12, "GET /good has no @cache"},
    {"-- GET /a\n-- @purges GET /kept\nSELECT 1", 2, 4, "@purges is for writes"},
    {"-- GET /a\n-- @fallback\nSELECT 1", 2, 13, "@fallback needs a JSON value"},
    {"-- GET /a\n-- @fallback [{\"a\": nope}]\nSELECT 1", 2, 21, "@fallback is no valid JSON"},
    {"-- GET /a\n-- @fallback {}\nSELECT 1", 2, 14, "must be an array of objects"},
    {"-- GET /a\n-- @result one\n-- @fallback []\nSELECT 1", 3, 14, "must be an object"},
    {"-- GET /a\n-- @fallback [{\"a\": 1, \"a\": 2}]\nSELECT 1", 2, 24, "this name twice"},
    {"-- POST /a\n-- @fallback []\nDELETE FROM t", 2, 4, "@fallback is for GET"},
    /* the statement */
    {"-- GET /a\n", 2, 1, "there is no statement"},
    {"-- GET /a\nSELECT 1,\n       :nope", 3, 8, ":nope has no @param"},
    {"-- GET /a\n-- @param count int4 optional\nSELECT :count, :cuont", 3, 16,
     ":cuont has no @param; did you mean :count"},
    {"-- GET /a\nSELECT $1", 2, 8, "$1: write :name"},
    {"-- GET /a\nDELETE FROM t", 2, 1, "a write (DELETE) in a GET"},
    {"-- GET /a\nWITH b AS (\n  UPDATE t SET c = 1 RETURNING c) SELECT c FROM b", 3, 3,
     "a write (UPDATE) in a GET"},
    {"-- GET /a\nSELECT 1 AS b INTO c", 2, 15, "a write (INTO) in a GET"},
    {"-- POST /a\nBEGIN", 2, 1, "transaction control"},
    {"-- POST /a\n  SET TimeZone = 'UTC'", 2, 3, "SET is not possible here"},
    {"-- POST /a\nDELETE FROM t;\n DELETE FROM t", 3, 2, "a second statement"},
    {"-- GET /a\nSELECT 'open", 2, 8, "the string is never closed"},
    {"-- GET /a\nSELECT \"open", 2, 8, "the quoted name is never closed"},
    {"-- GET /a\nSELECT $b$ open $c$", 2, 8, "the dollar-quoted string is never closed"},
    {"-- GET /a\nSELECT 1 /* /* */", 2, 10, "the comment is never closed"},
    {"-- GET /a\nSELECT '\xff'", 2, 9, "not valid UTF-8"},
};

static const struct weir_file neighbours[] = {
    {"good.sql", good_sql},
    {"kept.sql", "-- GET /kept\n-- @cache max-age=5s\nSELECT 1 AS a\n"},
    {"rows.sql", "-- GET /rows/{id}\n-- @param id int4\nSELECT :id AS a\n"},
    {NULL, NULL},
};

static struct weir_process *folder_with(const char *dependencies, const struct weir_file *files)
{
    return weir_create(&(struct weir_setup){.dependencies = dependencies, .files = files});
}

/* Exactly this complaint, on standard output, and exit code 1. False: said why. */
static bool tells(struct weir_process *weir, const char *file, const struct mistake *m)
{
    struct weir_output check = weir_run(weir, (const char *[]){"check", NULL});
    char *place = scratch_format("%s:%d:%d: ", file, m->line, m->column);
    bool is_told = check.exit_code == 1 && strncmp(check.out, place, strlen(place)) == 0 &&
                   strstr(check.out, m->needle) != NULL && scratch_count(check.out, "\n") == 1 &&
                   check.err[0] == '\0';

    if (!is_told)
        print_message("wanted %s...%s\nof:\n%s\ngot %d: %s%s\n", place, m->needle, m->text,
                      check.exit_code, check.out, check.err);
    free(place);
    weir_output_fini(&check);
    return is_told;
}

static void expect_each(struct weir_process *weir, const char *name, const char *file,
                        const struct mistake *mistakes, size_t count)
{
    size_t told = 0;

    for (size_t i = 0; i < count; i++) {
        weir_write(weir, name, mistakes[i].text);
        told += tells(weir, file, &mistakes[i]);
    }
    print_message("[figure] mistakes told at their line and column: %zu of %zu in %s\n", told,
                  count, file);
    assert_int_equal(told, count);
}

static void test_each_mistake_in_the_config_has_its_place(void **state)
{
    struct weir_process *weir = folder_with("{}", neighbours);

    (void)state;
    expect_each(weir, "../weir.json", "weir.json", in_config, COUNT_OF(in_config));
    weir_destroy(weir);
}

static void test_each_mistake_in_an_sql_file_has_its_place(void **state)
{
    static const char dependencies[] =
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=x\"},"
        " \"replica\": {\"kind\": \"postgres\", \"conninfo\": \"host=x\", \"access\": \"read\"}}";
    struct weir_process *weir = folder_with(dependencies, neighbours);

    (void)state;
    expect_each(weir, "a.sql", "api/a.sql", in_sql, COUNT_OF(in_sql));
    weir_destroy(weir);
}

static void test_all_mistakes_of_all_files_are_told_in_one_run(void **state)
{
    static const struct weir_file files[] = {
        {"a.sql", "-- GET /a\n-- @timeout soon\n-- @param x int4 min=a\nSELECT :y\n"},
        {"sub/b.sql", "-- GET /b\n-- @param x mod\nDELETE FROM t WHERE x = :x\n"},
        {"good.sql", good_sql},
        {"../weir.json", "{\n \"server\": {\"prot\": 1, \"workers\": 0},\n \"dependencies\":\n"
                         " {\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=x\",\n"
                         "  \"query_timeout\": \"9s\"}}}\n"},
        {NULL, NULL},
    };
    static const char *const places[] = {
        "api/a.sql:2:13: @timeout must be",
        "api/a.sql:3:22: @param x: min:",
        "api/a.sql:4:8: :y has no @param",
        "api/sub/b.sql:2:13: warning: the type mod",
        "api/sub/b.sql:3:1: a write (DELETE)",
        "weir.json:2:13: server.prot: unknown key",
        "weir.json:2:35: server.workers: must",
        "weir.json:5:20: dependencies.primary.query_timeout",
    };
    struct weir_process *weir = folder_with("{}", files);
    struct weir_output check = weir_run(weir, (const char *[]){"check", NULL});
    struct weir_output serve = weir_run(weir, (const char *[]){"serve", NULL});
    const char *at = check.out;

    (void)state;
    assert_int_equal(check.exit_code, 1);
    assert_int_equal(serve.exit_code, 1);
    assert_string_equal(check.err, "");
    for (size_t i = 0; i < COUNT_OF(places); i++) { /* in the order of files and lines */
        at = strstr(at, places[i]);
        if (at == NULL) {
            fail_msg("no %s, or not in order, in:\n%s", places[i], check.out);
            break;
        }
        assert_non_null(strstr(serve.err, places[i]));
    }
    assert_null(strstr(check.out, "good.sql"));
    assert_null(strstr(check.out, "ok: "));
    weir_output_fini(&serve);
    weir_output_fini(&check);
    weir_destroy(weir);
}

static void test_a_good_config_is_told_with_its_worst_times(void **state)
{
    static const struct weir_file files[] = {
        {"a.sql", "-- GET /a/{id}\n-- @param id int4\n-- @timeout 800ms\nSELECT :id AS a\n"},
        {"b.sql", "-- POST /b\n-- @param x mod optional\nINSERT INTO t VALUES (:x)\n"},
        {NULL, NULL},
    };
    struct weir_process *weir =
        folder_with("{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=x\"}}", files);
    struct weir_output check = weir_run(weir, (const char *[]){"check", NULL});

    (void)state;
    assert_int_equal(check.exit_code, 0);
    assert_string_equal(check.err, "");
    assert_non_null(strstr(check.out, "api/b.sql:2:13: warning: the type mod is not built in"));
    assert_non_null(strstr(check.out, "     850ms  GET /a/{id}\n"));
    assert_non_null(strstr(check.out, "    5050ms  POST /b\n"));
    assert_non_null(strstr(check.out, "ok: 2 routes, 1 dependency\n"));
    weir_output_fini(&check);
    weir_destroy(weir);
}

/* --- with a database --- */

static const struct mistake on_server[] = {
    {"-- GET /a\nSELECT b FROM no_such_table", 2, 15, "relation \"no_such_table\" does not exist"},
    {"-- GET /a\nSELECT id,\n       nme FROM items", 3, 8, "column \"nme\" does not exist"},
    {"-- GET /a\n-- @param a int4\nSELECT id FROM items WHERE :a = id AND nme = 1", 3, 40,
     "column \"nme\" does not exist"},
    {"-- GET /a\nSELECT no_such_function(1) AS a", 2, 8, "function no_such_function(integer)"},
    {"-- GET /a\nSELEKT 1", 2, 1, "syntax error"},
    {"-- GET /a\n-- @param a int4\nSELECT name FROM items WHERE name = :a", 3, 35,
     "operator does not exist: text = integer"},
    {"-- GET /a\n-- @param a no_such_type\nSELECT :a AS a", 2, 11,
     "the type \"no_such_type\" of parameter \"a\" does not exist"},
    {"-- GET /a\nSELECT i.id, j.id FROM items i, items j", 2, 1, "column \"id\" comes twice"},
    {"-- GET /a\n-- @result value\nSELECT 1 AS a, 2 AS b", 3, 1, "@result value wants one column"},
    {"-- POST /a\n-- @param a text\nINSERT INTO notes (token) VALUES (:a)", 3, 1,
     "use @result exec, or RETURNING"},
    {"-- GET /a\n-- @param a int4\n\n SELECT id FROM items WHERE id = :a FOR UPDATE", 4, 2,
     "cannot execute SELECT FOR UPDATE in a read-only transaction (SQLSTATE 25006)"},
    {"-- GET /a\nWITH b AS (SELECT id FROM items FOR SHARE) SELECT id FROM b", 2, 1,
     "cannot execute SELECT FOR SHARE in a read-only transaction"},
    {"-- GET /a\nSELECT rolname FROM pg_authid", 2, 1, "permission denied for table pg_authid"},
    {"-- DELETE /a\n-- @result exec\nDELETE FROM pg_authid", 3, 1, "permission denied"},
};

static void test_each_mistake_that_the_server_knows_has_its_place(void **state)
{
    struct fixture *f = *state;
    char *dependencies = exchange_primary(f->pg, 0, NULL);
    struct weir_process *weir = folder_with(dependencies, neighbours);
    size_t told = 0;

    for (size_t i = 0; i < COUNT_OF(on_server); i++) {
        const struct mistake *m = &on_server[i];
        char *place = scratch_format("api/a.sql:%d:%d: on primary: ", m->line, m->column);
        struct weir_output check;
        const char *line;

        weir_write(weir, "a.sql", m->text);
        check = weir_run(weir, (const char *[]){"check", "--connect", NULL});
        line = strstr(check.out, place);
        if (check.exit_code == 1 && line != NULL && strstr(line, m->needle) != NULL &&
            scratch_count(check.out, ": on primary: ") == 1 && check.err[0] == '\0')
            told++;
        else
            print_message("wanted %s...%s of:\n%s\ngot %d: %s%s\n", place, m->needle, m->text,
                          check.exit_code, check.out, check.err);
        weir_output_fini(&check);
        free(place);
    }
    print_message("[figure] mistakes told that only the server knows: %zu of %zu\n", told,
                  COUNT_OF(on_server));
    assert_int_equal(told, COUNT_OF(on_server));
    weir_destroy(weir);
    free(dependencies);
}

/* tick() tells of every time it runs, also of those that were rolled back. */
static const struct weir_file harmless[] = {
    {"a.sql", "-- GET /a\nSELECT tick('read') AS a FROM items\n"},
    {"b.sql", "-- POST /b\n-- @param t text\n-- @result exec\nINSERT INTO notes (token, body) "
              "VALUES (:t, tick('write'))\n"},
    {"c.sql",
     "-- DELETE /c\n-- @result exec\nDELETE FROM items WHERE tick('delete') IS NOT NULL\n"},
    {"d.sql",
     "-- POST /d\n-- @result one\nWITH x AS (DELETE FROM notes RETURNING tick('with') AS t) "
     "SELECT count(*) AS n FROM x\n"},
    {"e.sql", "-- POST /e\n-- @result exec\nCREATE TABLE made_by_check (a int)\n"},
    {"f.sql", "-- POST /f\n-- @result exec\nDO $$ BEGIN PERFORM tick('do'); END $$\n"},
    {"g.sql",
     "-- POST /g\n-- @param i int4\n-- @result one\nSELECT id FROM items WHERE id = :i FOR "
     "UPDATE\n"},
    {"h.sql", "-- GET /h\n-- @result value\nSHOW timezone\n"},
    {"i.sql", "-- GET /i\nTABLE items\n"},
    {"j.sql", "-- GET /j\nVALUES (1)\n"},
    {NULL, NULL},
};

static void test_what_is_checked_is_not_run(void **state)
{
    struct fixture *f = *state;
    char *dependencies = exchange_primary(f->pg, 0, NULL);
    struct weir_process *weir = folder_with(dependencies, harmless);
    int64_t items = private_postgres_number(f->pg, "SELECT count(*) FROM items");
    struct weir_output check = weir_run(weir, (const char *[]){"check", "--connect", NULL});

    if (check.exit_code != 0)
        fail_msg("%s%s", check.out, check.err);
    assert_string_equal(check.err, "");
    assert_int_equal(private_postgres_ticks(f->pg, "read"), 0);
    assert_int_equal(private_postgres_ticks(f->pg, "write"), 0);
    assert_int_equal(private_postgres_ticks(f->pg, "delete"), 0);
    assert_int_equal(private_postgres_ticks(f->pg, "with"), 0);
    assert_int_equal(private_postgres_ticks(f->pg, "do"), 0);
    assert_int_equal(private_postgres_number(
                         f->pg, "SELECT count(*) FROM pg_class WHERE relname = 'made_by_check'"),
                     0);
    assert_int_equal(private_postgres_number(f->pg, "SELECT count(*) FROM items"), items);
    weir_output_fini(&check);
    weir_destroy(weir);
    free(dependencies);
}

static void test_a_database_that_is_down_is_one_line(void **state)
{
    struct fixture *f = *state;
    char *up = private_postgres_conninfo(f->pg, 0);
    char *dependencies = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\"},\n"
        " \"other\": {\"kind\": \"postgres\", \"conninfo\": \"host=127.0.0.1 port=%u dbname=a "
        "user=a password=s3cr3t\"}}",
        up, scratch_port());
    static const struct weir_file files[] = {
        {"a.sql", "-- GET /a\n-- @from other\nSELECT 1 AS a\n"},
        {"b.sql", "-- GET /b\n-- @from other\nSELECT 2 AS b\n"},
        {"c.sql", "-- GET /c\nSELECT nme FROM items\n"},
        {NULL, NULL},
    };
    struct weir_process *weir = folder_with(dependencies, files);
    struct weir_output check = weir_run(weir, (const char *[]){"check", "--connect", NULL});

    assert_int_equal(check.exit_code, 1);
    assert_int_equal(scratch_count(check.out, "\n"), 2);
    assert_non_null(strstr(check.out, "dependencies.other: cannot connect: "));
    assert_non_null(strstr(check.out, "api/c.sql:2:8: on primary: column \"nme\""));
    assert_null(strstr(check.out, "s3cr3t"));
    weir_output_fini(&check);
    weir_destroy(weir);
    free(dependencies);
    free(up);
}

/* Logged in, and then nothing: told once, whatever the number of routes. */
static void test_a_server_that_stops_answering_is_one_line(void **state)
{
    struct fixture *f = *state;
    struct fault_proxy *proxy = fault_proxy_create(private_postgres_port(f->pg));
    char *dependencies =
        exchange_primary(f->pg, fault_proxy_port(proxy), ", \"query_timeout\": \"500ms\"");
    struct weir_process *weir = folder_with(dependencies, harmless);
    struct weir_output check;

    fault_proxy_cut_after(proxy, FAULT_UP, 1500, 1);
    check = weir_run(weir, (const char *[]){"check", "--connect", NULL});
    assert_int_equal(check.exit_code, 1);
    assert_int_equal(scratch_count(check.out, "\n"), 1);
    assert_non_null(strstr(check.out, "dependencies.primary: the connection was lost"));
    assert_int_equal(fault_proxy_counters(proxy).cut_count, 1);
    weir_output_fini(&check);
    weir_destroy(weir);
    fault_proxy_destroy(proxy);
    free(dependencies);
}

static void test_a_lock_in_the_way_is_told_of_the_routes_it_stops(void **state)
{
    struct fixture *f = *state;
    char *dependencies = exchange_primary(f->pg, 0, ", \"query_timeout\": \"300ms\"");
    static const struct weir_file files[] = {
        {"a.sql", "-- GET /a\nSELECT id FROM items\n"},
        {"b.sql", "-- GET /b\nSELECT nope FROM notes\n"},
        {NULL, NULL},
    };
    struct weir_process *weir = folder_with(dependencies, files);
    struct weir_output check;

    private_postgres_exec(f->pg, "BEGIN; LOCK items IN ACCESS EXCLUSIVE MODE");
    check = weir_run(weir, (const char *[]){"check", "--connect", NULL});
    private_postgres_exec(f->pg, "ROLLBACK");
    assert_int_equal(check.exit_code, 1);
    assert_non_null(strstr(check.out, "api/a.sql:2:1: on primary: "));
    assert_non_null(strstr(check.out, "SQLSTATE 57014"));
    assert_non_null(strstr(check.out, "api/b.sql:2:8: on primary: column \"nope\""));
    weir_output_fini(&check);
    weir_destroy(weir);
    free(dependencies);
}

static void test_a_standby_is_told_once_whatever_writes_there(void **state)
{
    struct private_postgres *pg = private_postgres_create();
    struct weir_process *weir;
    struct weir_output check;
    char *folder, *dependencies;

    (void)state;
    private_postgres_start(pg);
    folder = private_postgres_value(pg, "SHOW data_directory");
    private_postgres_stop(pg, POSTGRES_FAST);
    scratch_write(folder, "standby.signal", "");
    private_postgres_start(pg);
    dependencies = exchange_primary(pg, 0, NULL);
    weir = folder_with(dependencies, harmless);
    check = weir_run(weir, (const char *[]){"check", "--connect", NULL});
    assert_int_equal(check.exit_code, 1);
    assert_string_equal(check.err, "");
    assert_int_equal(scratch_count(check.out, "\n"), 1);
    assert_non_null(strstr(check.out,
                           "dependencies.primary: the server is a standby, which refuses "
                           "writes, and 6 routes write there"));
    weir_output_fini(&check);
    weir_destroy(weir);
    private_postgres_destroy(pg);
    free(dependencies);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_mistake_in_the_config_has_its_place),
        cmocka_unit_test(test_each_mistake_in_an_sql_file_has_its_place),
        cmocka_unit_test(test_all_mistakes_of_all_files_are_told_in_one_run),
        cmocka_unit_test(test_a_good_config_is_told_with_its_worst_times),
        cmocka_unit_test(test_each_mistake_that_the_server_knows_has_its_place),
        cmocka_unit_test(test_what_is_checked_is_not_run),
        cmocka_unit_test(test_a_database_that_is_down_is_one_line),
        cmocka_unit_test(test_a_server_that_stops_answering_is_one_line),
        cmocka_unit_test(test_a_lock_in_the_way_is_told_of_the_routes_it_stops),
        cmocka_unit_test(test_a_standby_is_told_once_whatever_writes_there),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}

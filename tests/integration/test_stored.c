/* What a caller sees of a cached route while all is well: stored answers, how old they are, for
 * whom they are, and what makes them go. SPDX-License-Identifier: MIT */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "exchange.h"
#include "fault_proxy.h"
#include "figure.h"
#include "paced.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    MAX_AGE_S = 60,
    BITE_MS = 5000,
    START_MS = 10000,
    HITS = 50,
    WATCH_MS = 4000,
    NEIGHBOURS = 40,
    ETAG_LENGTH = 34,
};

static const struct weir_file files[] = {
    {"kept.sql", "-- GET /kept/{id}\n-- @param id int4\n-- @cache max-age=60s\n" PACED_SQL},
    {"brief.sql", "-- GET /brief/{id}\n-- @param id int4\n-- @cache max-age=1s\n" PACED_SQL},
    {"plain.sql", "-- GET /plain/{id}\n-- @param id int4\n" PACED_SQL},
    {"mine.sql", "-- GET /mine/{id}\n-- @param id int4\n-- @cache max-age=60s private\n" PACED_SQL},
    {"one.sql",
     "-- GET /one/{id}\n-- @param id int4\n-- @result one\n-- @cache max-age=60s\n" PACED_SQL},
    {"soft.sql",
     "-- GET /soft/{id}\n-- @param id int4\n-- @cache max-age=60s\n-- @fallback []\n" PACED_SQL},
    {"whose.sql", "-- GET /whose/{id}\n-- @param id int4\n"
                  "-- @param user_id text optional in=header\n-- @param a text optional\n"
                  "-- @param b text optional\n-- @result one\n-- @cache max-age=60s\n"
                  "SELECT tick('whose') AS what, :id AS id, :user_id AS who, :a AS a, :b AS b\n"},
    {"notes.sql", "-- GET /notes\n-- @result value\n-- @cache max-age=60s\n"
                  "SELECT count(*) FROM notes\n"},
    {"write.sql", "-- POST /notes\n-- @param token text maxlen=20\n-- @param s float8 default=0\n"
                  "-- @result exec\n-- @purges GET /notes\n"
                  "INSERT INTO notes (token) SELECT :token FROM pg_sleep(:s)\n"
                  "WHERE (SELECT tick('write')) IS NOT NULL\n"},
    {"fail.sql", "-- POST /failures\n-- @param state text\n-- @result exec\n-- @purges GET /notes\n"
                 "INSERT INTO notes (token) SELECT 'x' WHERE fail_with(:state) = 1\n"},
    {NULL, NULL}};

enum { ID_COUNT = 10 };

struct house {
    struct private_postgres *pg;
    struct fault_proxy *proxy;
    struct weir_process *weir;
    size_t runs_before[ID_COUNT], writes_before; /* of the test */
};

static int build(void **state)
{
    struct house *house = calloc(1, sizeof *house);

    assert_non_null(house);
    house->pg = private_postgres_create();
    private_postgres_start(house->pg);
    paced_create(house->pg);
    house->proxy = fault_proxy_create(private_postgres_port(house->pg));
    *state = house;
    return 0;
}

static int tear_down(void **state)
{
    struct house *house = *state;

    fault_proxy_destroy(house->proxy);
    private_postgres_destroy(house->pg);
    free(house);
    return 0;
}

static void count_before(struct house *house)
{
    for (int id = 0; id < ID_COUNT; id++)
        house->runs_before[id] = paced_runs(house->pg, id);
    house->writes_before = private_postgres_ticks(house->pg, "write");
}

/* Each test has a weir of its own, with nothing stored. */
static int open_weir(void **state)
{
    struct house *house = *state;
    char *dependencies = exchange_primary(house->pg, fault_proxy_port(house->proxy),
                                          ", \"bulkhead\": {\"max_concurrent\": 16}");

    private_postgres_exec(house->pg, "TRUNCATE notes");
    (void)paced_set(house->pg, PACED_WELL);
    fault_proxy_delay_cancels(house->proxy, 0);
    count_before(house);
    house->weir =
        weir_create(&(struct weir_setup){.dependencies = dependencies,
                                         .server = "\"cors_origins\": [\"https://shop.example\"]",
                                         .files = files,
                                         .log = "\"access\": \"none\""});
    weir_start(house->weir);
    assert_true(exchange_is_healthy_within(house->weir, START_MS));
    free(dependencies);
    return 0;
}

static int close_weir(void **state)
{
    struct house *house = *state;
    int code = weir_stop(house->weir, 10000);

    weir_destroy(house->weir);
    return code;
}

/* In this test. */
static size_t runs(const struct house *house, int id)
{
    return paced_runs(house->pg, id) - house->runs_before[id];
}

static void set_mode(const struct house *house, const char *mode)
{
    char *body = scratch_format("{\"mode\":\"%s\"}", mode);
    struct http_answer answer = exchange_ask_admin(
        house->weir, &(struct exchange){.path = "/breakers/primary", .body = body});

    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    free(body);
}

/* --- what came from where --- */

static int64_t max_age_s(const struct account *account)
{
    const char *text = strstr(account->cache_control, "max-age=");

    return text != NULL ? strtoll(text + strlen("max-age="), NULL, 10) : -1;
}

static bool is_hit(const struct account *account)
{
    return strncmp(account->cache_status, "weir; hit;", 10) == 0;
}

static struct account get_missed(const struct house *house, const char *path)
{
    struct account account = account_get(house->weir, path);

    assert_int_equal(account.status, 200);
    assert_string_equal(account.cache_status, "weir; fwd=miss; stored");
    assert_string_equal(account.age, "");
    assert_string_equal(account.degraded, "");
    assert_int_equal(strlen(account.etag), ETAG_LENGTH);
    assert_true(account.etag[0] == '"' && account.etag[ETAG_LENGTH - 1] == '"');
    return account;
}

/* How old by Age, how long by ttl: together its lifetime, which Cache-Control has. */
static void expect_times(const struct account *account, const struct account *stored)
{
    int64_t together_s = account_age_s(account) + account_ttl_s(account);

    account_assert_age(account, stored);
    assert_string_equal(account->cache_control, stored->cache_control);
    assert_in_range((uintmax_t)together_s, (uintmax_t)max_age_s(stored) - 1,
                    (uintmax_t)max_age_s(stored));
}

static void expect_hit(const struct account *account, const struct account *stored)
{
    char *status = scratch_format("weir; hit; ttl=%lld", (long long)account_ttl_s(account));

    assert_int_equal(account->status, 200);
    assert_string_equal(account->cache_status, status);
    assert_string_equal(account->body, stored->body);
    assert_string_equal(account->etag, stored->etag);
    assert_string_equal(account->content_type, "application/json");
    assert_string_equal(account->degraded, "");
    assert_string_equal(account->vary, stored->vary);
    expect_times(account, stored);
    free(status);
}

static void get_hit(const struct house *house, const char *path, const struct account *stored)
{
    struct account account = account_get(house->weir, path);

    expect_hit(&account, stored);
    account_fini(&account);
}

/* --- fresh --- */

static void test_a_fresh_answer_costs_no_statement(void **state)
{
    struct house *house = *state;
    struct account first = get_missed(house, "/kept/1");
    double calls = weir_metric(house->weir, "weir_dependency_calls_total", "");

    assert_in_range((uintmax_t)max_age_s(&first), MAX_AGE_S * 8 / 10, MAX_AGE_S);
    assert_non_null(strstr(first.headers, "Vary: Accept\r\n"));
    assert_non_null(strstr(first.headers, "Vary: Origin\r\n"));
    for (int i = 0; i < HITS; i++)
        get_hit(house, "/kept/1", &first);
    figure_count_is("statements for 1 miss and 50 hits", (int64_t)runs(house, 1), 1);
    assert_true(weir_metric(house->weir, "weir_dependency_calls_total", "") == calls);
    account_fini(&first);
}

/* What is fresh is whole, whatever the database does. */
static void test_a_fresh_answer_is_no_degraded_one_while_the_breaker_is_open(void **state)
{
    struct house *house = *state;
    struct account first = get_missed(house, "/kept/1");

    set_mode(house, "forced-open");
    get_hit(house, "/kept/1", &first);
    assert_int_equal(exchange_status(house->weir, "GET", "/kept/2"), 503);
    set_mode(house, "auto");
    account_fini(&first);
}

static void test_ages_are_right_within_a_second(void **state)
{
    struct house *house = *state;
    struct account first = get_missed(house, "/kept/1");
    int64_t until_ms = exchange_now_ms() + WATCH_MS, last_s = 0;

    while (exchange_now_ms() < until_ms) {
        struct account account = account_get(house->weir, "/kept/1");

        expect_hit(&account, &first);
        assert_true(account_age_s(&account) >= last_s);
        last_s = account_age_s(&account);
        account_fini(&account);
        pass_ms(90);
    }
    assert_in_range((uintmax_t)last_s, WATCH_MS / 1000 - 1, WATCH_MS / 1000);
    account_fini(&first);
}

/* Live again between 80 and 100 % of max-age. */
static void test_past_its_lifetime_an_answer_is_live_again(void **state)
{
    struct house *house = *state;
    struct account first = get_missed(house, "/brief/1"), account;
    int64_t version = paced_set(house->pg, PACED_WELL);

    for (;; account_fini(&account), pass_ms(20)) {
        account = account_get(house->weir, "/brief/1");
        assert_int_equal(account.status, 200);
        if (!is_hit(&account))
            break;
        assert_string_equal(account.body, first.body);
        assert_true(account.asked_ms - first.answered_ms <= 1000);
    }
    assert_true(account.answered_ms - first.asked_ms >= 800);
    assert_int_equal(account_number(&account, "version"), version);
    assert_non_null(strstr(account.cache_status, "; stored"));
    assert_string_equal(account.age, "");
    assert_string_not_equal(account.etag, first.etag);
    assert_int_equal(runs(house, 1), 2);
    account_fini(&account);
    account_fini(&first);
}

static void test_what_is_no_success_of_a_cached_route_is_not_stored(void **state)
{
    struct house *house = *state;

    (void)paced_set(house->pg, (struct pace){.row_count = 0});
    for (int i = 0; i < 3; i++) {
        struct account account = account_get(house->weir, "/one/1");

        assert_int_equal(account.status, 404);
        assert_string_equal(account.cache_status, "weir; fwd=miss; detail=no-row");
        assert_string_equal(account.cache_control, "no-store");
        assert_string_equal(account.etag, "");
        account_fini(&account);
    }
    (void)paced_set(house->pg, PACED_WELL);
    for (int i = 0; i < 3; i++) {
        struct account account = account_get(house->weir, "/plain/1");

        assert_int_equal(account.status, 200);
        assert_string_equal(account.cache_status, "");
        assert_string_equal(account.etag, "");
        assert_string_equal(account.age, "");
        account_fini(&account);
    }
    assert_true(weir_metric(house->weir, "weir_cache_entries", "") == 0);
    assert_int_equal(runs(house, 1), 6);
}

/* --- what the caller has already --- */

struct condition {
    const char *headers; /* %s: the entity tag */
    int status;
};

static const struct condition conditions[] = {
    {"If-None-Match: %s", 304},
    {"If-None-Match: W/%s", 304}, /* RFC 9110 13.1.2: the weak comparison */
    {"If-None-Match: \"other\", %s", 304},
    {"If-None-Match: W/\"other\",,%s , \"more\"", 304},
    {"If-None-Match: *", 304},
    {"If-None-Match: \"other\"\nIf-None-Match: %s", 304},
    {"if-none-match: %s", 304},
    {"If-None-Match: \"other\"", 200},
    {"If-None-Match: W/\"other\"", 200},
    {"If-None-Match: \"*\"", 200},
    {"If-None-Match: nonsense", 200},
    {"If-None-Match: \"open", 200},
    {"If-None-Match: ,", 200},
};

static char *condition_of(const struct condition *condition, const char *etag)
{
    const char *at = strstr(condition->headers, "%s");

    if (at == NULL)
        return scratch_format("%s", condition->headers);
    return scratch_format("%.*s%s%s", (int)(at - condition->headers), condition->headers, etag,
                          at + 2);
}

static void expect_unchanged(const struct account *account, const struct account *stored)
{
    assert_string_equal(account->body, "");
    assert_string_equal(account->etag, stored->etag);
    assert_string_equal(account->content_type, "");
    assert_string_equal(account->vary, "Accept");
    assert_true(is_hit(account));
    expect_times(account, stored);
}

static void try_condition(const struct house *house, const struct condition *condition,
                          const struct account *stored)
{
    char *headers = condition_of(condition, stored->etag);

    for (int i = 0; i < 2; i++) {
        struct account account =
            account_of(house->weir, &(struct exchange){.path = "/kept/1",
                                                       .method = i == 0 ? "GET" : "HEAD",
                                                       .headers = headers});

        if (account.status != condition->status)
            print_error("with %s\n", headers);
        assert_int_equal(account.status, condition->status);
        if (account.status == 304)
            expect_unchanged(&account, stored);
        account_fini(&account);
    }
    free(headers);
}

static void test_what_the_caller_has_is_not_sent_again(void **state)
{
    struct house *house = *state;
    struct account first = get_missed(house, "/kept/1");

    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++)
        try_condition(house, &conditions[i], &first);
    assert_int_equal(runs(house, 1), 1);
    account_fini(&first);
}

static struct account ask_any(const struct house *house, const char *path)
{
    return account_of(house->weir, &(struct exchange){.path = path, .headers = "If-None-Match: *"});
}

/* Only an answer that has a tag can be unchanged. */
static void test_a_condition_meets_no_error_and_no_fallback(void **state)
{
    struct house *house = *state;
    struct account account;

    set_mode(house, "forced-open");
    account = ask_any(house, "/kept/1");
    assert_int_equal(account.status, 503);
    account_fini(&account);
    account = ask_any(house, "/soft/1");
    assert_int_equal(account.status, 200);
    assert_string_equal(account.body, "[]");
    account_fini(&account);
    set_mode(house, "auto");
}

static void test_head_is_get_without_its_body(void **state)
{
    struct house *house = *state;
    struct account cold =
        account_of(house->weir, &(struct exchange){"HEAD", "/kept/1", NULL, NULL});
    struct account get = account_get(house->weir, "/kept/1");
    struct account head =
        account_of(house->weir, &(struct exchange){"HEAD", "/kept/1", NULL, NULL});

    assert_string_equal(cold.cache_status, "weir; fwd=miss; stored");
    assert_true(is_hit(&get) && is_hit(&head));
    assert_int_equal(head.status, 200);
    assert_string_equal(head.body, "");
    assert_string_equal(cold.body, "");
    assert_string_equal(head.content_length, get.content_length);
    assert_string_equal(cold.content_length, get.content_length);
    assert_string_equal(head.etag, get.etag);
    assert_string_equal(cold.etag, get.etag);
    assert_string_equal(head.cache_control, get.cache_control);
    assert_string_equal(head.vary, get.vary);
    expect_times(&head, &cold);
    assert_int_equal(runs(house, 1), 1);
    account_fini(&head);
    account_fini(&get);
    account_fini(&cold);
}

/* --- for whom --- */

static void test_a_private_answer_says_that_others_must_not_keep_it(void **state)
{
    struct house *house = *state;
    struct account first = get_missed(house, "/mine/1");
    char *control = scratch_format("private, max-age=%lld", (long long)max_age_s(&first));

    assert_string_equal(first.cache_control, control);
    get_hit(house, "/mine/1", &first);
    free(control);
    account_fini(&first);
}

/* A caller of /whose: what tells it from others, and what its answer must show. */
struct caller {
    const char *path, *headers;
    const char *body;
};

static const struct caller callers[] = {
    {"/whose/1", "user-id: ann",
     "{\"what\":\"whose\",\"id\":1,\"who\":\"ann\",\"a\":null,\"b\":null}"},
    {"/whose/1", "user-id: bob",
     "{\"what\":\"whose\",\"id\":1,\"who\":\"bob\",\"a\":null,\"b\":null}"},
    {"/whose/1", NULL, "{\"what\":\"whose\",\"id\":1,\"who\":null,\"a\":null,\"b\":null}"},
    {"/whose/1", "user-id;", "{\"what\":\"whose\",\"id\":1,\"who\":\"\",\"a\":null,\"b\":null}"},
    {"/whose/2", "user-id: ann",
     "{\"what\":\"whose\",\"id\":2,\"who\":\"ann\",\"a\":null,\"b\":null}"},
    {"/whose/1?a=xy&b=z", "user-id: ann",
     "{\"what\":\"whose\",\"id\":1,\"who\":\"ann\",\"a\":\"xy\",\"b\":\"z\"}"},
    {"/whose/1?a=x&b=yz", "user-id: ann",
     "{\"what\":\"whose\",\"id\":1,\"who\":\"ann\",\"a\":\"x\",\"b\":\"yz\"}"},
    {"/whose/1?a=&b=xyz", "user-id: ann",
     "{\"what\":\"whose\",\"id\":1,\"who\":\"ann\",\"a\":\"\",\"b\":\"xyz\"}"},
    {"/whose/1?b=xyz", "user-id: ann",
     "{\"what\":\"whose\",\"id\":1,\"who\":\"ann\",\"a\":null,\"b\":\"xyz\"}"},
    {"/whose/1?a=xyz", "user-id: ann",
     "{\"what\":\"whose\",\"id\":1,\"who\":\"ann\",\"a\":\"xyz\",\"b\":null}"},
};

enum { CALLER_COUNT = sizeof callers / sizeof callers[0] };

struct crowd_house {
    const struct house *house;
    _Atomic int wrong_count;
};

/* Also at the same instant, and while nothing is stored yet. */
static void ask_in_crowd(unsigned index, void *context)
{
    struct crowd_house *crowd = context;
    const struct caller *caller = &callers[index % CALLER_COUNT];

    for (int i = 0; i < 5; i++) {
        struct account account =
            account_of(crowd->house->weir,
                       &(struct exchange){.path = caller->path, .headers = caller->headers});

        if (account.status != 200 || strcmp(account.body, caller->body) != 0)
            crowd->wrong_count++;
        account_fini(&account);
    }
}

static void expect_nobody_elses(const struct house *house)
{
    struct account account =
        account_of(house->weir, &(struct exchange){.path = "/whose/1", .headers = "user-id: eve"});

    assert_int_equal(account.status, 503);
    assert_null(strstr(account.body, "ann"));
    assert_null(strstr(account.body, "bob"));
    account_fini(&account);
}

static void test_46_callers_with_different_headers_never_share_an_answer(void **state)
{
    struct crowd_house crowd = {.house = *state};
    struct account account;

    crowd_run(NEIGHBOURS, ask_in_crowd, &crowd);
    assert_int_equal(crowd.wrong_count, 0);
    figure_count_is("statements of 10 kinds of callers, 200 requests",
                    (int64_t)private_postgres_ticks(crowd.house->pg, "whose"), CALLER_COUNT);

    /* Nor when the database is away, which is when a stored answer is most welcome. */
    set_mode(crowd.house, "forced-open");
    crowd_run(NEIGHBOURS, ask_in_crowd, &crowd);
    assert_int_equal(crowd.wrong_count, 0);
    expect_nobody_elses(crowd.house);
    set_mode(crowd.house, "auto");

    /* And caches on the way are told what tells callers apart. */
    account = account_of(crowd.house->weir,
                         &(struct exchange){.path = "/whose/1", .headers = "user-id: ann"});
    assert_string_equal(account.vary, "Accept, user_id, user-id");
    account_fini(&account);
}

/* --- purged by a write --- */

static void expect_notes(const struct house *house, const char *count, bool is_stored)
{
    struct account account = account_get(house->weir, "/notes");

    assert_int_equal(account.status, 200);
    assert_string_equal(account.body, count);
    assert_int_equal(is_hit(&account), is_stored);
    account_fini(&account);
}

static int post(const struct house *house, const char *path, const char *body)
{
    struct http_answer answer =
        exchange_ask(house->weir, &(struct exchange){.path = path, .body = body});
    int status = answer.status;

    http_answer_fini(&answer);
    return status;
}

static void test_a_write_makes_what_it_names_old_and_nothing_else(void **state)
{
    struct house *house = *state;
    struct account other = get_missed(house, "/kept/1");

    expect_notes(house, "0", false);
    expect_notes(house, "0", true);
    assert_int_equal(post(house, "/notes", "{\"token\": \"a\"}"), 200);
    expect_notes(house, "1", false);
    expect_notes(house, "1", true);
    get_hit(house, "/kept/1", &other);
    account_fini(&other);
}

static void test_a_write_that_did_not_happen_makes_nothing_old(void **state)
{
    struct house *house = *state;

    expect_notes(house, "0", false);
    assert_int_equal(post(house, "/failures", "{\"state\": \"23514\"}"), 422);
    assert_int_equal(post(house, "/failures", "{\"state\": \"HV000\"}"), 500);
    assert_int_equal(post(house, "/notes", "{\"token\": \"longer than it may be at all\"}"), 400);
    set_mode(house, "forced-open");
    assert_int_equal(post(house, "/notes", "{\"token\": \"a\"}"), 503);
    set_mode(house, "auto");
    expect_notes(house, "0", true);
}

static bool is_writing(void *context)
{
    const struct house *house = context;

    return private_postgres_ticks(house->pg, "write") > house->writes_before;
}

static bool is_written(void *context)
{
    const struct house *house = context;

    return private_postgres_number(house->pg, "SELECT count(*) FROM notes") == 1;
}

static bool is_at_rest(void *context)
{
    const struct house *house = context;

    return weir_metric(house->weir, "weir_bulkhead_in_use", "") == 0;
}

/* How many entries it dropped; -1: it was refused. */
static int64_t purge(const struct house *house, const char *body)
{
    struct http_answer answer =
        exchange_ask_admin(house->weir, &(struct exchange){.path = "/cache/purge", .body = body});
    json_t *json = exchange_json(&answer);
    int64_t count =
        answer.status == 200 ? json_integer_value(json_object_get(json, "entries")) : -1;

    json_decref(json);
    http_answer_fini(&answer);
    return count;
}

static bool is_cancel_held(void *context)
{
    const struct house *house = context;

    return fault_proxy_counters(house->proxy).delayed_cancel_count == 1;
}

static bool is_read_anew(void *context)
{
    const struct house *house = context;
    struct account account = account_get(house->weir, "/notes");
    bool is_new = strcmp(account.body, "1") == 0;

    account_fini(&account);
    return is_new;
}

/* Its cancel comes too late: the write happens, and nobody waits for it. What was read and stored
 * after its caller left, and before it was over, is old as well. */
static void test_a_write_whose_caller_hung_up_makes_what_it_names_old(void **state)
{
    static const char body[] = "{\"token\": \"a\", \"s\": 0.7}";
    struct house *house = *state;
    int fd = raw_connect(weir_port(house->weir));
    char *request = scratch_format("POST /notes HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n"
                                   "Content-Type: application/json\r\n\r\n%s",
                                   sizeof body - 1, body);

    expect_notes(house, "0", false);
    fault_proxy_delay_cancels(house->proxy, 2000);
    assert_true(raw_send(fd, request));
    assert_true(poll_until(is_writing, house, BITE_MS));
    expect_notes(house, "0", true); /* it is not over */
    raw_close(fd);
    assert_true(poll_until(is_cancel_held, house, BITE_MS));
    assert_int_equal(purge(house, "{}"), 1);
    expect_notes(house, "0", false);
    expect_notes(house, "0", true);
    assert_true(poll_until(is_written, house, BITE_MS));
    assert_true(poll_until(is_read_anew, house, BITE_MS));
    expect_notes(house, "1", true);
    assert_true(poll_until(is_at_rest, house, BITE_MS));
    free(request);
}

/* --- purged by an operator --- */

static const char *const shelf[] = {"/kept/1", "/kept/2", "/mine/1"};
enum { SHELF_COUNT = sizeof shelf / sizeof shelf[0] };

struct purge_case {
    const char *body;
    int64_t entries;
    bool is_kept[SHELF_COUNT];
};

static const struct purge_case purges[] = {
    {"{}", 3, {false, false, false}},
    {"{\"route\": \"GET /kept/{id}\"}", 2, {false, false, true}},
    {"{\"route\": \"GET /kept/{id}\", \"parameters\": {\"id\": 1}}", 1, {false, true, true}},
    {"{\"route\": \"GET /kept/{id}\", \"parameters\": {\"id\": 7}}", 0, {true, true, true}},
    {"{\"route\": \"GET /keept/{id}\"}", -1, {true, true, true}},
    {"{\"route\": \"GET /kept/{id}\", \"parameters\": {\"idd\": 1}}", -1, {true, true, true}},
    {"{\"parameters\": {\"id\": 1}}", -1, {true, true, true}},
    {"[]", -1, {true, true, true}},
};

static void test_an_operator_purges_all_or_a_route_or_a_key(void **state)
{
    struct house *house = *state;

    for (size_t i = 0; i < sizeof purges / sizeof purges[0]; i++) {
        for (size_t s = 0; s < SHELF_COUNT; s++)
            assert_int_equal(exchange_status(house->weir, "GET", shelf[s]), 200);
        if (purge(house, purges[i].body) != purges[i].entries)
            fail_msg("%s", purges[i].body);
        for (size_t s = 0; s < SHELF_COUNT; s++) {
            struct account account = account_get(house->weir, shelf[s]);

            assert_int_equal(is_hit(&account), purges[i].is_kept[s]);
            account_fini(&account);
        }
    }
}

struct flier {
    const struct house *house;
    int id;
};

/* With its own view of the database. */
static bool is_running(void *context)
{
    const struct flier *flier = context;

    return runs(flier->house, flier->id) == 1;
}

/* It began before the purge, and does not know what is true after it. */
static void purge_beside_a_flight(const struct house *house, const char *body, int id)
{
    char *path = scratch_format("/kept/%d", id);
    char *request = scratch_format("GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
    int64_t before = paced_set(house->pg, (struct pace){.nap_s = 1, .row_count = 1}), after;
    char *version = scratch_format("\"version\":%lld,", (long long)before), *text;
    int fd = raw_connect(weir_port(house->weir));
    struct account account;

    assert_true(raw_send(fd, request));
    assert_true(poll_until(is_running, &(struct flier){house, id}, BITE_MS));
    after = paced_set(house->pg, PACED_WELL);
    assert_true(purge(house, body) >= 0);
    account = get_missed(house, path); /* does not join it either */
    assert_int_equal(account_number(&account, "version"), after);

    text = raw_read_answer(fd, BITE_MS);
    assert_non_null(strstr(text, version));
    assert_non_null(strstr(text, "Cache-Status: weir; fwd=miss\r\n"));
    assert_non_null(strstr(text, "Cache-Control: max-age=0, must-revalidate\r\n"));
    get_hit(house, path, &account);
    assert_int_equal(runs(house, id), 2);
    raw_close(fd);
    account_fini(&account);
    free(text);
    free(version);
    free(request);
    free(path);
}

static void test_a_purge_voids_flights_that_began_before(void **state)
{
    struct house *house = *state;

    purge_beside_a_flight(house, "{}", 1);
    purge_beside_a_flight(house, "{\"route\": \"GET /kept/{id}\"}", 2);
    purge_beside_a_flight(house, "{\"route\": \"GET /kept/{id}\", \"parameters\": {\"id\": 3}}", 3);
}

/* Reads of it take their time, while writes do not. */
static void make_notes_slow_to_read(const struct house *house)
{
    private_postgres_exec(house->pg, "ALTER TABLE notes RENAME TO all_notes;"
                                     "CREATE VIEW notes AS SELECT n.* FROM all_notes n, paced p"
                                     "  WHERE (SELECT tick('read')) IS NOT NULL AND"
                                     "        pg_sleep(p.nap_s) IS NOT NULL;"
                                     "CREATE RULE add AS ON INSERT TO notes DO INSTEAD"
                                     "  INSERT INTO all_notes (token) VALUES (NEW.token);"
                                     "GRANT SELECT, INSERT ON notes TO app;"
                                     "INSERT INTO all_notes (token) VALUES ('first')");
    (void)paced_set(house->pg, (struct pace){.nap_s = 1, .row_count = 1});
}

static void make_notes_as_before(const struct house *house)
{
    private_postgres_exec(house->pg, "DROP VIEW notes; ALTER TABLE all_notes RENAME TO notes");
}

static bool is_reading(void *context)
{
    const struct house *house = context;

    return private_postgres_ticks(house->pg, "read") > 0;
}

/* What it saw is from before. */
static void test_a_write_voids_reads_that_began_before_it_ended(void **state)
{
    struct house *house = *state;
    int fd = raw_connect(weir_port(house->weir));
    char *text;

    make_notes_slow_to_read(house);
    assert_true(raw_send(fd, "GET /notes HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(poll_until(is_reading, house, BITE_MS));
    (void)paced_set(house->pg, PACED_WELL);
    assert_int_equal(post(house, "/notes", "{\"token\": \"second\"}"), 200);
    text = raw_read_answer(fd, BITE_MS);
    assert_non_null(strstr(text, "Cache-Status: weir; fwd=miss\r\n"));
    assert_non_null(strstr(text, "\r\n\r\n1"));
    expect_notes(house, "2", false);
    expect_notes(house, "2", true);
    make_notes_as_before(house);
    free(text);
    raw_close(fd);
}

/* --- what operators see --- */

static int64_t status_of(const struct house *house, const char *member)
{
    struct http_answer answer =
        exchange_ask_admin(house->weir, &(struct exchange){.path = "/status"});
    json_t *json = exchange_json(&answer);
    json_t *value = json_object_get(json_object_get(json, "cache"), member);
    int64_t number = json_is_integer(value) ? json_integer_value(value) : -1;

    json_decref(json);
    http_answer_fini(&answer);
    return number;
}

static void expect_figure(const struct house *house, const char *metric, const char *labels,
                          const char *member, int64_t wanted)
{
    assert_int_equal((int64_t)weir_metric(house->weir, metric, labels), wanted);
    assert_int_equal(status_of(house, member), wanted);
}

static double answers(const struct house *house, const char *served)
{
    char *labels = scratch_format("route=\"GET /kept/{id}\",served=\"%s\",reason=\"none\"", served);
    double count = weir_metric(house->weir, "weir_answers_total", labels);

    free(labels);
    return count;
}

static void test_metrics_and_status_tell_what_is_stored(void **state)
{
    struct house *house = *state;
    int64_t empty_bytes = status_of(house, "bytes"), bytes;

    for (int i = 0; i < 10; i++)
        (void)exchange_status(house->weir, "GET", i < 6 ? "/kept/1" : "/kept/2");
    expect_figure(house, "weir_cache_entries", "", "entries", 2);
    expect_figure(house, "weir_cache_lookups_total", "result=\"miss\"", "misses", 2);
    expect_figure(house, "weir_cache_lookups_total", "result=\"hit\"", "hits", 8);
    expect_figure(house, "weir_cache_lookups_total", "result=\"stale\"", "stale", 0);
    assert_true(answers(house, "live") == 2 && answers(house, "stored") == 8);
    bytes = status_of(house, "bytes");
    assert_int_equal((int64_t)weir_metric(house->weir, "weir_cache_bytes", ""), bytes);
    assert_true(bytes > empty_bytes && bytes < status_of(house, "max_bytes"));
    assert_int_equal(purge(house, "{}"), 2);
    expect_figure(house, "weir_cache_entries", "", "entries", 0);
    assert_true(weir_log_has_within(house->weir, "\"event\":\"cache_purged\"", BITE_MS));
}

static void test_a_restart_forgets_all(void **state)
{
    struct house *house = *state;
    struct account before = get_missed(house, "/kept/1"), after;

    get_hit(house, "/kept/1", &before);
    assert_int_equal(weir_stop(house->weir, 10000), 0);
    weir_start(house->weir);
    assert_int_equal(status_of(house, "entries"), 0);
    after = get_missed(house, "/kept/1");
    assert_int_equal(runs(house, 1), 2);
    /* Equal bytes have equal tags: what callers have is still worth something. */
    assert_string_equal(after.body, before.body);
    assert_string_equal(after.etag, before.etag);
    account_fini(&before);
    account_fini(&after);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_weir, close_weir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_fresh_answer_costs_no_statement),
        TEST(test_a_fresh_answer_is_no_degraded_one_while_the_breaker_is_open),
        TEST(test_ages_are_right_within_a_second),
        TEST(test_past_its_lifetime_an_answer_is_live_again),
        TEST(test_what_is_no_success_of_a_cached_route_is_not_stored),
        TEST(test_what_the_caller_has_is_not_sent_again),
        TEST(test_a_condition_meets_no_error_and_no_fallback),
        TEST(test_head_is_get_without_its_body),
        TEST(test_a_private_answer_says_that_others_must_not_keep_it),
        TEST(test_46_callers_with_different_headers_never_share_an_answer),
        TEST(test_a_write_makes_what_it_names_old_and_nothing_else),
        TEST(test_a_write_that_did_not_happen_makes_nothing_old),
        TEST(test_a_write_whose_caller_hung_up_makes_what_it_names_old),
        TEST(test_an_operator_purges_all_or_a_route_or_a_key),
        TEST(test_a_purge_voids_flights_that_began_before),
        TEST(test_a_write_voids_reads_that_began_before_it_ended),
        TEST(test_metrics_and_status_tell_what_is_stored),
        TEST(test_a_restart_forgets_all),
    };

    return cmocka_run_group_tests(tests, build, tear_down);
}

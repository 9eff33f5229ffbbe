/* Stale forever, stale never: whatever happens to a refresh, its key is refreshed again; what fails
 * is asked for ever more seldom; nothing that fails replaces or rejuvenates what is stored; and
 * there is an end to it. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "cmocka_all.h"
#include "exchange.h"
#include "fault_proxy.h"
#include "figure.h"
#include "halt.h"
#include "load.h"
#include "paced.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    MAX_AGE_MS = 1000,
    DEADLINE_MS = 1500,
    LATE_MS = 50,
    BITE_MS = 5000,
    CANCEL_MS = 1000,
    RECOVER_MS = 5000,
    START_MS = 10000,
    MID_RESULT_BYTES = 100000,
};

#define ROUTE(path, cache, more)                                                                   \
    "-- GET /" path                                                                                \
    "/{id}\n-- @param id int4\n-- @timeout 1500ms\n-- @max_rows 500\n-- @cache " cache             \
    "\n" more PACED_SQL

static const struct weir_file files[] = {
    {"waiting.sql", ROUTE("waiting", "max-age=1s stale-if-error=10m", "")},
    {"behind.sql", ROUTE("behind", "max-age=1s stale-while-revalidate=10m stale-if-error=10m", "")},
    {"one.sql", ROUTE("one", "max-age=1s stale-if-error=10m", "-- @result one\n")},
    {"one-behind.sql",
     ROUTE("one-behind", "max-age=1s stale-while-revalidate=10m", "-- @result one\n")},
    {"capped.sql", ROUTE("capped", "max-age=1s stale-if-error=2s", "")},
    {"cushioned.sql", ROUTE("cushioned", "max-age=1s stale-if-error=2s", "-- @fallback []\n")},
    {"brief.sql", ROUTE("brief", "max-age=1s stale-while-revalidate=1s", "")},
    {NULL, NULL}};

struct house {
    struct private_postgres *pg;
    struct fault_proxy *proxy;
    struct weir_process *weir;
    struct fault_counters before;
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

/* Each test has a weir of its own, with nothing stored, and ids of its own. */
static int open_weir(void **state)
{
    struct house *house = *state;
    char *dependencies = exchange_primary(house->pg, fault_proxy_port(house->proxy),
                                          ", \"breaker\": {\"failure_threshold\": 1000000}");

    fault_proxy_set_mode(house->proxy, FAULT_PASS);
    (void)paced_set(house->pg, PACED_WELL);
    house->weir = weir_create(&(struct weir_setup){
        .dependencies = dependencies, .files = files, .log = "\"access\": \"none\""});
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

/* --- keys --- */

struct key {
    char path[32];
    int id;
    struct account stored;
};

static void store(const struct house *house, struct key *key, const char *folder, int id)
{
    (void)snprintf(key->path, sizeof key->path, "/%s/%d", folder, id);
    key->id = id;
    key->stored = account_get(house->weir, key->path);
    assert_int_equal(key->stored.status, 200);
    assert_string_equal(key->stored.cache_status, "weir; fwd=miss; stored");
}

static void outlive(void)
{
    pass_ms(MAX_AGE_MS + 50);
}

/* What was stored, no younger than it is. */
static void expect_stored(const struct key *key, const struct account *account)
{
    assert_int_equal(account->status, 200);
    assert_string_equal(account->body, key->stored.body);
    assert_string_equal(account->etag, key->stored.etag);
    account_assert_age(account, &key->stored);
    assert_true(account_ttl_s(account) < 0);
    assert_string_equal(account->cache_control, "max-age=0, must-revalidate");
}

static void expect_stale(const struct key *key, const struct account *account, const char *reason)
{
    char *degraded = scratch_format("stale; dependency=primary; reason=%s", reason);

    expect_stored(key, account);
    assert_string_equal(account->degraded, degraded);
    free(degraded);
}

static void ask_stale(const struct house *house, const struct key *key, const char *reason)
{
    struct account account = account_get(house->weir, key->path);

    expect_stale(key, &account, reason);
    account_fini(&account);
}

/* The answer comes at once, and a refresh is on its way behind it. */
static void ask_ahead_of_refresh(const struct house *house, const struct key *key)
{
    struct account account = account_get(house->weir, key->path);

    expect_stored(key, &account);
    assert_string_equal(account.degraded, "");
    account_fini(&account);
}

struct hope {
    const struct house *house;
    const struct key *key;
    int64_t version;
};

/* Never anything but 200 on the way there. */
static bool is_live(void *context)
{
    const struct hope *hope = context;
    struct account account = account_get(hope->house->weir, hope->key->path);
    bool is_well;

    assert_int_equal(account.status, 200);
    is_well = account_number(&account, "version") == hope->version;
    if (is_well)
        assert_string_equal(account.degraded, "");
    account_fini(&account);
    return is_well;
}

static void expect_live_within(const struct house *house, const struct key *key, int64_t version,
                               int64_t limit_ms)
{
    assert_true(poll_until(is_live, &(struct hope){house, key, version}, limit_ms));
}

static void expect_live_now(const struct house *house, const struct key *key, int64_t version)
{
    assert_true(is_live(&(struct hope){house, key, version}));
}

/* --- a refresh that ends too early --- */

struct stage {
    const char *name;
    void (*begin)(struct house *house);
    patience_condition *is_reached;
    const char *reason; /* when its connection is lost then */
};

static bool has_no_idle(void *context)
{
    const struct house *house = context;

    return weir_metric(house->weir, "weir_connections", "state=\"idle\"") <= 0;
}

/* Sessions have to be opened, and none gets through. */
static void hinder_connections(struct house *house)
{
    fault_proxy_set_mode(house->proxy, FAULT_STALL);
    fault_proxy_reset_open(house->proxy);
    assert_true(poll_until(has_no_idle, house, BITE_MS));
    house->before = fault_proxy_counters(house->proxy);
}

static bool is_connecting(void *context)
{
    const struct house *house = context;

    return fault_proxy_counters(house->proxy).stalled_count > house->before.stalled_count;
}

static void slow_down(struct house *house)
{
    (void)paced_set(house->pg, (struct pace){.nap_s = 20, .row_count = 1});
}

static bool is_running(void *context)
{
    const struct house *house = context;

    return paced_active(house->pg) > 0;
}

static void trickle(struct house *house)
{
    (void)paced_set(house->pg,
                    (struct pace){.nap_s = 0.02, .row_count = 400, .filler_bytes = 16000});
    house->before = fault_proxy_counters(house->proxy);
}

static bool is_in_mid_result(void *context)
{
    const struct house *house = context;

    return fault_proxy_counters(house->proxy).down_bytes >
               house->before.down_bytes + MID_RESULT_BYTES &&
           paced_active(house->pg) > 0;
}

static const struct stage stages[] = {
    {"before the connection", hinder_connections, is_connecting, "connect-failed"},
    {"while the statement runs", slow_down, is_running, "connection-lost"},
    {"in mid-result", trickle, is_in_mid_result, "connection-lost"},
};

enum { STAGE_COUNT = sizeof stages / sizeof stages[0] };

/* The refresh of this key is at this stage. Returns the socket of the caller. */
static int reach(struct house *house, const struct stage *stage, const struct key *key)
{
    char *head = scratch_format("GET %s HTTP/1.1\r\nHost: a\r\n\r\n", key->path);
    int fd = raw_connect(weir_port(house->weir));

    print_message("%s: %s\n", key->path, stage->name);
    stage->begin(house);
    assert_true(fd >= 0 && raw_send(fd, head));
    assert_true(poll_until(stage->is_reached, house, DEADLINE_MS));
    free(head);
    return fd;
}

static void mend(const struct house *house)
{
    fault_proxy_set_mode(house->proxy, FAULT_PASS);
}

static bool is_quiet(void *context)
{
    return !is_running(context);
}

/* Its only caller goes: nothing is stored, and whoever asks next gets a live answer. */
static void hang_up_at(struct house *house, const struct stage *stage, const struct key *key)
{
    raw_close(reach(house, stage, key));
    assert_true(poll_until(is_quiet, house, CANCEL_MS));
    mend(house);
    expect_live_now(house, key, paced_set(house->pg, PACED_WELL));
}

static char *next_answer(int fd)
{
    char *text = raw_read_answer(fd, DEADLINE_MS + 1000);

    raw_close(fd);
    return text;
}

/* A stored answer in the words of the wire; `reason` NULL: without Weir-Degraded. */
static void expect_raw_stale(int fd, const char *reason)
{
    char *text = next_answer(fd);
    char *degraded = scratch_format("Weir-Degraded: stale; dependency=primary; reason=%s\r\n",
                                    reason != NULL ? reason : "");

    assert_int_equal(exchange_raw_status(text), 200);
    assert_non_null(strstr(text, "Cache-Status: weir; hit; ttl=-"));
    assert_int_equal(strstr(text, "Weir-Degraded:") != NULL, reason != NULL);
    assert_int_equal(strstr(text, degraded) != NULL, reason != NULL);
    free(degraded);
    free(text);
}

static void expect_backed_off(const struct house *house, const struct key *key, const char *reason)
{
    size_t runs = paced_runs(house->pg, key->id);

    ask_stale(house, key, reason);
    ask_stale(house, key, reason);
    assert_int_equal(paced_runs(house->pg, key->id), runs);
}

/* The caller who waits for it gets what is stored; the next ones do not wait, until it is tried
 * again. */
static void lose_waiting_at(struct house *house, const struct stage *stage, const struct key *key)
{
    int fd = reach(house, stage, key);

    fault_proxy_reset_open(house->proxy);
    expect_raw_stale(fd, stage->reason);
    expect_backed_off(house, key, stage->reason);
    mend(house);
    expect_live_within(house, key, paced_set(house->pg, PACED_WELL), RECOVER_MS);
}

struct failed_refresh {
    const struct house *house;
    const struct key *key;
};

static bool is_told(void *context)
{
    const struct failed_refresh *refresh = context;
    struct account account = account_get(refresh->house->weir, refresh->key->path);
    bool is_degraded = account.degraded[0] != '\0';

    expect_stored(refresh->key, &account);
    account_fini(&account);
    return is_degraded;
}

static void lose_behind_at(struct house *house, const struct stage *stage, const struct key *key)
{
    int fd = reach(house, stage, key);

    expect_raw_stale(fd, NULL);
    ask_ahead_of_refresh(house, key); /* still under way */
    fault_proxy_reset_open(house->proxy);
    assert_true(poll_until(is_told, &(struct failed_refresh){house, key}, BITE_MS));
    expect_backed_off(house, key, stage->reason);
    mend(house);
    expect_live_within(house, key, paced_set(house->pg, PACED_WELL), RECOVER_MS);
}

static void test_47_a_refresh_that_is_cut_off_at_any_stage_is_made_again(void **state)
{
    static const struct {
        const char *folder;
        void (*end)(struct house *house, const struct stage *stage, const struct key *key);
    } ends[] = {{"waiting", hang_up_at}, {"waiting", lose_waiting_at}, {"behind", lose_behind_at}};
    enum { END_COUNT = sizeof ends / sizeof ends[0] };
    struct house *house = *state;
    struct key keys[END_COUNT * STAGE_COUNT];

    for (int i = 0; i < END_COUNT * STAGE_COUNT; i++)
        store(house, &keys[i], ends[i / STAGE_COUNT].folder, i);
    outlive();
    for (int i = 0; i < END_COUNT * STAGE_COUNT; i++) {
        ends[i / STAGE_COUNT].end(house, &stages[i % STAGE_COUNT], &keys[i]);
        account_fini(&keys[i].stored);
    }
}

/* --- a refresh that does not end --- */

/* By its deadline, with what is stored: the flight of the one before is over by then. */
static void ask_by_the_deadline(const struct house *house, const struct key *key)
{
    struct noise_meter *timers = noise_meter_start();
    struct figure_noise *ways = figure_noise_start();
    struct account account = account_get(house->weir, key->path);
    /* Its timer is late, and then its way from thread to thread. */
    int64_t noise_us = noise_meter_stop_us(timers) + figure_noise_stop(ways).worst_us;

    expect_stale(key, &account, "deadline");
    figure_at_most_us("answer while the refresh stands still", account.elapsed_us,
                      (DEADLINE_MS + LATE_MS) * INT64_C(1000), noise_us);
    account_fini(&account);
}

static void test_47_a_refresh_that_stands_still_is_a_lease_that_runs_out(void **state)
{
    struct house *house = *state;
    struct halt *halt = halt_take(weir_pid(house->weir), "dep-primary");
    struct key waiting, behind;
    int64_t version;

    store(house, &waiting, "waiting", 21);
    store(house, &behind, "behind", 22);
    outlive();
    version = paced_set(house->pg, PACED_WELL);
    assert_true(halt_now(halt));
    ask_ahead_of_refresh(house, &behind);
    ask_by_the_deadline(house, &waiting);
    ask_by_the_deadline(house, &waiting);
    ask_ahead_of_refresh(house, &behind);
    assert_int_equal(paced_runs(house->pg, 21), 1);
    assert_int_equal(paced_runs(house->pg, 22), 1);

    halt_release(halt);
    expect_live_within(house, &waiting, version, RECOVER_MS);
    expect_live_within(house, &behind, version, RECOVER_MS);
    account_fini(&waiting.stored);
    account_fini(&behind.stored);
}

/* --- a refresh that fails and fails --- */

enum { STEPS = 4, FAIL_MS = 8500, LOOK_EVERY_MS = 500, RATE_PER_S = 250, LOAD_THREADS = 4 };

/* Callers of one key. */
struct queue {
    struct key key;
    char *url; /* owned */
    struct load *load;
};

static void begin_queue(const struct house *house, struct queue *queue)
{
    queue->url = weir_url(house->weir, queue->key.path);
    queue->load = load_start(&(struct load_setup){
        .url = queue->url, .rate_per_s = RATE_PER_S, .thread_count = LOAD_THREADS});
}

/* Nobody got anything but an answer. */
static void end_queue(struct queue *queue)
{
    struct load_records records = load_stop(queue->load);
    struct load_filter all = {.to_us = INT64_MAX}, good = {.to_us = INT64_MAX, .status = 200};

    load_print(&records, &all);
    assert_true(load_count(&records, &all) > RATE_PER_S * FAIL_MS / 1000 / 2);
    assert_int_equal(load_count(&records, &good), load_count(&records, &all));
    load_records_fini(&records);
    free(queue->url);
}

/* The first at once, then one after each step: 80-100 % of 1, 2, 4 s. */
static void judge_steps(const struct house *house, const struct key *key, int64_t noise_us)
{
    int64_t at_ms[STEPS + 3];
    size_t count = paced_run_times(house->pg, key->id, at_ms, STEPS + 3);
    char *what = scratch_format("%s: refreshes tried in %d ms", key->path, FAIL_MS);

    for (size_t i = 1; i < count; i++)
        print_message("%s: try %zu after %lld ms\n", key->path, i,
                      (long long)(at_ms[i] - at_ms[1]));
    figure_count_is(what, (int64_t)count - 1, STEPS); /* the first run stored it */
    free(what);
    for (size_t i = 1; i < STEPS; i++) {
        int64_t step_us = INT64_C(1000000) << (i - 1);
        int64_t gap_us = (at_ms[i + 1] - at_ms[i]) * 1000;

        what = scratch_format("%s: back-off %zu", key->path, i);
        assert_true(gap_us >= step_us * 8 / 10 - 2000);
        figure_at_most_us(what, gap_us, step_us + 100000, noise_us);
        free(what);
    }
}

/* What everybody is told: its age grows, and why. */
static void watch_failures(const struct house *house, const struct queue queues[2])
{
    int64_t until_ms = exchange_now_ms() + FAIL_MS;

    for (pass_ms(LOOK_EVERY_MS); exchange_now_ms() < until_ms; pass_ms(LOOK_EVERY_MS))
        for (size_t i = 0; i < 2; i++)
            ask_stale(house, &queues[i].key, "database-error");
}

static void test_47_a_refresh_that_fails_under_load_is_tried_once_a_step(void **state)
{
    struct house *house = *state;
    struct noise_meter *meter = noise_meter_start();
    struct queue queues[2];
    int64_t noise_us, version;

    store(house, &queues[0].key, "waiting", 31);
    store(house, &queues[1].key, "behind", 32);
    outlive();
    (void)paced_set(house->pg, (struct pace){.row_count = 1, .state = "HV000"});
    for (size_t i = 0; i < 2; i++)
        begin_queue(house, &queues[i]);
    watch_failures(house, queues);
    noise_us = noise_meter_stop_us(meter);
    for (size_t i = 0; i < 2; i++)
        judge_steps(house, &queues[i].key, noise_us);

    version = paced_set(house->pg, PACED_WELL);
    for (size_t i = 0; i < 2; i++) {
        expect_live_within(house, &queues[i].key, version, 8000);
        end_queue(&queues[i]);
        account_fini(&queues[i].key.stored);
    }
}

/* --- refreshes that end in something else --- */

static void set_mode(const struct house *house, const char *mode)
{
    char *body = scratch_format("{\"mode\":\"%s\"}", mode);
    struct http_answer answer = exchange_ask_admin(
        house->weir, &(struct exchange){.path = "/breakers/primary", .body = body});

    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    free(body);
}

static void expect_problem(const struct house *house, const struct key *key, int status,
                           const char *reason)
{
    struct account account = account_get(house->weir, key->path);
    json_t *problem = json_loads(account.body, 0, NULL);

    assert_int_equal(account.status, status);
    assert_string_equal(json_string_value(json_object_get(problem, "reason")), reason);
    assert_string_equal(account.cache_control, "no-store");
    assert_string_equal(account.age, "");
    json_decref(problem);
    account_fini(&account);
}

static bool is_gone(void *context)
{
    const struct failed_refresh *refresh = context;

    return exchange_status(refresh->house->weir, "GET", refresh->key->path) == 404;
}

/* Nothing stands in for it, also when the database cannot be asked. */
static void expect_removed(const struct house *house, const struct key *key)
{
    expect_problem(house, key, 404, "no-row");
    set_mode(house, "forced-open");
    expect_problem(house, key, 503, "breaker-open");
    set_mode(house, "auto");
}

static void expect_stored_anew(const struct house *house, const struct key *key)
{
    struct account account;

    (void)paced_set(house->pg, PACED_WELL);
    account = account_get(house->weir, key->path);
    assert_int_equal(account.status, 200);
    assert_string_equal(account.cache_status, "weir; fwd=miss; stored");
    account_fini(&account);
}

static void test_47_a_row_that_is_gone_takes_its_stored_answer_along(void **state)
{
    struct house *house = *state;
    struct key waiting, behind;

    store(house, &waiting, "one", 41);
    store(house, &behind, "one-behind", 42);
    outlive();
    (void)paced_set(house->pg, (struct pace){.row_count = 0});
    expect_removed(house, &waiting);
    ask_ahead_of_refresh(house, &behind);
    assert_true(poll_until(is_gone, &(struct failed_refresh){house, &behind}, BITE_MS));
    expect_removed(house, &behind);
    expect_stored_anew(house, &waiting);
    expect_stored_anew(house, &behind);
    account_fini(&waiting.stored);
    account_fini(&behind.stored);
}

/* It is still there, and as old as it is. */
static void expect_left(const struct house *house, const struct key *key)
{
    set_mode(house, "forced-open");
    ask_stale(house, key, "breaker-open");
    set_mode(house, "auto");
}

static bool is_turned_down_twice(void *context)
{
    const struct house *house = context;

    return private_postgres_ticks(house->pg, "fail P0001") == 2;
}

static void test_47_a_refresh_that_the_database_turns_down_leaves_what_is_stored(void **state)
{
    struct house *house = *state;
    struct key waiting, behind;

    store(house, &waiting, "waiting", 51);
    store(house, &behind, "behind", 52);
    outlive();
    (void)paced_set(house->pg, (struct pace){.row_count = 1, .state = "P0001"});
    expect_problem(house, &waiting, 400, "raised");
    expect_left(house, &waiting);
    ask_ahead_of_refresh(house, &behind); /* it is nothing to tell those who did not ask for it */
    assert_true(poll_until(is_turned_down_twice, house, BITE_MS));
    ask_ahead_of_refresh(house, &behind);
    expect_live_within(house, &waiting, paced_set(house->pg, PACED_WELL), RECOVER_MS);
    account_fini(&waiting.stored);
    account_fini(&behind.stored);
}

/* As an operator would. Returns how many statements were told to stop. */
static int64_t cancel_at_server(const struct house *house)
{
    return private_postgres_number(
        house->pg,
        "WITH found AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE state = 'active' AND"
        " pid <> pg_backend_pid() AND query LIKE '%FROM paced p%')"
        " SELECT count(*) FROM found WHERE pg_cancel_backend(pid)");
}

static void test_47_a_refresh_that_somebody_cancels_replaces_nothing(void **state)
{
    static const struct stage running = {"while the statement runs", slow_down, is_running,
                                         "deadline"};
    struct house *house = *state;
    struct key key;
    int fd;

    store(house, &key, "waiting", 61);
    outlive();
    fd = reach(house, &running, &key);
    assert_int_equal(cancel_at_server(house), 1);
    expect_raw_stale(fd, running.reason);
    expect_backed_off(house, &key, running.reason);
    expect_live_within(house, &key, paced_set(house->pg, PACED_WELL), RECOVER_MS);
    account_fini(&key.stored);
}

static void test_47_a_refresh_that_is_too_large_replaces_nothing(void **state)
{
    struct house *house = *state;
    struct key waiting, behind;
    int64_t version;

    store(house, &waiting, "waiting", 71);
    store(house, &behind, "behind", 72);
    outlive();
    (void)paced_set(house->pg, (struct pace){.row_count = 501});
    ask_stale(house, &waiting, "result-too-large");
    expect_backed_off(house, &waiting, "result-too-large");
    ask_ahead_of_refresh(house, &behind);
    assert_true(poll_until(is_told, &(struct failed_refresh){house, &behind}, BITE_MS));
    expect_backed_off(house, &behind, "result-too-large");
    version = paced_set(house->pg, PACED_WELL);
    expect_live_within(house, &waiting, version, RECOVER_MS);
    expect_live_within(house, &behind, version, RECOVER_MS);
    account_fini(&waiting.stored);
    account_fini(&behind.stored);
}

/* --- the end of it --- */

struct cap {
    const char *folder;
    int64_t limit_ms; /* how old an answer may become */
    int status;       /* past it */
    const char *body; /* past it; NULL: a problem */
    const char *degraded;
    struct key key;
    int stale_count, over_count;
};

static void judge_past_cap(struct cap *cap, const struct account *account)
{
    /* By both clocks it could be too old. */
    assert_true(account->answered_ms - cap->key.stored.asked_ms >= cap->limit_ms);
    assert_int_equal(account->status, cap->status);
    assert_string_equal(account->degraded, cap->degraded);
    assert_string_equal(account->cache_control, "no-store");
    assert_string_equal(account->age, "");
    if (cap->body != NULL)
        assert_string_equal(account->body, cap->body);
    else
        assert_non_null(strstr(account->body, "\"reason\":\"database-error\""));
    cap->over_count++;
}

static void judge_before_cap(struct cap *cap, const struct account *account)
{
    assert_true(account->asked_ms - cap->key.stored.answered_ms <= cap->limit_ms);
    expect_stored(&cap->key, account);
    assert_true(account_age_s(account) <= cap->limit_ms / 1000);
    cap->stale_count++;
}

static void try_cap(const struct house *house, struct cap *cap)
{
    struct account account = account_get(house->weir, cap->key.path);

    if (account.age[0] == '\0') {
        judge_past_cap(cap, &account);
    } else {
        assert_int_equal(cap->over_count, 0);
        judge_before_cap(cap, &account);
    }
    account_fini(&account);
}

static void test_47_past_its_limits_a_stored_answer_is_none(void **state)
{
    static const char fallen_back[] = "fallback; dependency=primary; reason=database-error";
    struct house *house = *state;
    struct cap caps[] = {
        {.folder = "capped", .limit_ms = 3000, .status = 500, .degraded = ""},
        {.folder = "cushioned",
         .limit_ms = 3000,
         .status = 200,
         .body = "[]",
         .degraded = fallen_back},
        {.folder = "brief", .limit_ms = 2000, .status = 500, .degraded = ""},
    };
    int64_t version;

    for (int i = 0; i < 3; i++)
        store(house, &caps[i].key, caps[i].folder, 80 + i);
    outlive();
    (void)paced_set(house->pg, (struct pace){.row_count = 1, .state = "HV000"});
    for (int round = 0; round < 28; round++, pass_ms(100))
        for (int i = 0; i < 3; i++)
            try_cap(house, &caps[i]);
    version = paced_set(house->pg, PACED_WELL);
    for (int i = 0; i < 3; i++) {
        print_message("%s: %d stale, %d past the limit\n", caps[i].folder, caps[i].stale_count,
                      caps[i].over_count);
        assert_true(caps[i].stale_count >= 5 && caps[i].over_count >= 3);
        expect_live_now(house, &caps[i].key, version);
        account_fini(&caps[i].key.stored);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_weir, close_weir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_47_a_refresh_that_is_cut_off_at_any_stage_is_made_again),
        TEST(test_47_a_refresh_that_stands_still_is_a_lease_that_runs_out),
        TEST(test_47_a_refresh_that_fails_under_load_is_tried_once_a_step),
        TEST(test_47_a_row_that_is_gone_takes_its_stored_answer_along),
        TEST(test_47_a_refresh_that_the_database_turns_down_leaves_what_is_stored),
        TEST(test_47_a_refresh_that_somebody_cancels_replaces_nothing),
        TEST(test_47_a_refresh_that_is_too_large_replaces_nothing),
        TEST(test_47_past_its_limits_a_stored_answer_is_none),
    };

    return cmocka_run_group_tests(tests, build, tear_down);
}

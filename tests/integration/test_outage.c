/* What callers see while the database is stopped, swallowed by the network, frozen, cut off in
 * mid-answer or has its backends killed; and that all is well again afterwards.
 * SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "fault_proxy.h"
#include "figure.h"
#include "http_client.h"
#include "load.h"
#include "outage_times.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    RATE_PER_S = 200,
    LOAD_THREADS = 48, /* so many wait for a deadline at once that the pace is kept */
    PERMITS = 16,
    THRESHOLD = 5,
    PROBE_INTERVAL_MS = 1000,
    PROBE_TIMEOUT_MS = 1000,
    PROBE_JITTER_PERCENT = 20,
    DEADLINE_MS = 500,
    CALM_MS = 1000,  /* load before the fault */
    FAULT_MS = 4000, /* load with it */
    RECOVER_MS = 15000
};

static const struct weir_file files[] = {
    {"item.sql", "-- GET /items/{id}\n-- @param id int4\n-- @result one\n-- @timeout 500ms\n"
                 "SELECT id, name FROM items WHERE id = :id\n"},
    {"items.sql", "-- GET /items\n-- @param note text optional\n"
                  "SELECT id, name, repeat('x', 200) AS filler, :note::text AS note FROM items\n"},
    {"sleep.sql", "-- GET /sleep/{ms}\n-- @param ms int4\nSELECT pg_sleep(:ms / 1000.0)\n"},
    {"note.sql", "-- POST /notes\n-- @param token text\n-- @result exec\n"
                 "INSERT INTO notes (token) VALUES (:token)\n"},
    {NULL, NULL}};

struct house {
    struct private_postgres *pg;
    struct fault_proxy *proxy;
    struct weir_process *weir;
};

static int build_house(void **state, bool has_proxy)
{
    struct house *house = calloc(1, sizeof *house);
    char *conninfo, *dependencies;

    assert_non_null(house);
    house->pg = private_postgres_create();
    private_postgres_start(house->pg);
    house->proxy = fault_proxy_create(private_postgres_port(house->pg));
    conninfo = private_postgres_conninfo(house->pg, has_proxy ? fault_proxy_port(house->proxy) : 0);
    dependencies = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\", \"connect_timeout\": \"%ds\","
        "  \"bulkhead\": {\"max_concurrent\": %d}, \"breaker\": {\"failure_threshold\": %d},"
        "  \"probe\": {\"interval\": \"%dms\", \"timeout\": \"%dms\"}}}",
        conninfo, has_proxy ? 1 : 3, PERMITS, THRESHOLD, PROBE_INTERVAL_MS, PROBE_TIMEOUT_MS);
    house->weir = weir_create(&(struct weir_setup){
        .dependencies = dependencies, .files = files, .log = "\"access\": \"none\""});
    weir_start(house->weir);
    free(dependencies);
    free(conninfo);
    *state = house;
    return 0;
}

static int build(void **state)
{
    return build_house(state, true);
}

static int build_direct(void **state)
{
    return build_house(state, false);
}

static int tear_down(void **state)
{
    struct house *house = *state;

    assert_int_equal(weir_stop(house->weir, 10000), 0);
    weir_destroy(house->weir);
    fault_proxy_destroy(house->proxy);
    private_postgres_destroy(house->pg);
    free(house);
    return 0;
}

static int ask(const struct house *house, const char *path, char reason[24])
{
    char *url = weir_url(house->weir, path);
    struct http_answer answer = http_get(url);
    char *word = http_answer_reason(&answer);
    int status = answer.status;

    if (reason != NULL)
        (void)snprintf(reason, 24, "%s", word);
    free(word);
    http_answer_fini(&answer);
    free(url);
    return status;
}

static int health(const struct house *house, const char *path)
{
    char *url = weir_admin_url(house->weir, path);
    struct http_answer answer = http_get(url);
    int status = answer.status;

    http_answer_fini(&answer);
    free(url);
    return status;
}

static bool is_healed(void *context)
{
    const struct house *house = context;

    return weir_breaker_is(house->weir, "primary", "closed") && health(house, "/health") == 200 &&
           ask(house, "/items/1", NULL) == 200;
}

static bool is_at_rest(void *context)
{
    const struct house *house = context;

    return weir_metric(house->weir, "weir_bulkhead_in_use", "") == 0 &&
           weir_metric(house->weir, "weir_connections", "state=\"busy\"") == 0 &&
           weir_metric(house->weir, "weir_connections", "state=\"opening\"") == 0;
}

static void assert_recovered(struct house *house)
{
    assert_true(poll_until(is_healed, house, RECOVER_MS));
    assert_true(poll_until(is_at_rest, house, RECOVER_MS));
}

/* --- under load --- */

/* Opens a connection for each permit. */
static void sleep_a_little(unsigned index, void *context)
{
    (void)index;
    (void)ask(context, "/sleep/200", NULL);
}

struct siege {
    char *url; /* owned */
    struct load *load;
    struct instant fault_at, healed_at;
    bool was_closed;             /* the breaker, when the fault began */
    struct load_records records; /* owned */
};

static void siege_begin(struct siege *siege, struct house *house)
{
    crowd_run(PERMITS, sleep_a_little, house);
    siege->url = weir_url(house->weir, "/items/1");
    siege->load = load_start(&(struct load_setup){
        .url = siege->url, .rate_per_s = RATE_PER_S, .thread_count = LOAD_THREADS});
    pass_ms(CALM_MS);
    siege->was_closed = weir_breaker_is(house->weir, "primary", "closed");
    siege->fault_at = clock_now();
}

static void siege_end(struct siege *siege)
{
    siege->records = load_stop(siege->load);
}

static void siege_fini(struct siege *siege)
{
    load_records_fini(&siege->records);
    free(siege->url);
}

static struct load_filter during(const struct siege *siege, int status, const char *reason)
{
    return (struct load_filter){.from_us = siege->fault_at.us,
                                .to_us = siege->healed_at.us,
                                .status = status,
                                .reason = reason};
}

static void assert_was_served_before(const struct siege *siege)
{
    struct load_filter good = {.to_us = siege->fault_at.us, .status = 200};

    assert_true(siege->was_closed);
    assert_true(load_count(&siege->records, &good) > RATE_PER_S / 4);
}

/* --- stopped --- */

/* Probes come at most every interval less its jitter; a trial waits for reset_timeout, which is
 * longer than this outage. */
static int64_t most_probes(int64_t span_us)
{
    return span_us / (INT64_C(10) * PROBE_INTERVAL_MS * (100 - PROBE_JITTER_PERCENT)) + 1;
}

static void print_stopped(const struct siege *siege, int64_t ready_us, int64_t noise_us)
{
    struct load_filter refused = during(siege, 503, "breaker-open"), all = during(siege, 0, NULL);
    struct load_filter live = {.from_us = siege->fault_at.us, .to_us = INT64_MAX, .status = 200};
    const struct load_record *first;

    load_print(&siege->records, &all);
    assert_was_served_before(siege);
    (void)printf("figure: requests/s while stopped: %.0f\n",
                 (double)load_count(&siege->records, &all) * 1e6 /
                     (double)instant_span_us(siege->fault_at, siege->healed_at));
    first = load_first_answered(&siege->records, &refused);
    assert_non_null(first);
    figure_at_most_us("refused by the open breaker, p99",
                      load_percentile_us(&siege->records, &refused, 99),
                      INT64_C(5000) * FIGURE_SLOWDOWN, noise_us);
    /* Served before the stop took hold does not count. */
    live.from_us = first->start_us;
    first = load_first_answered(&siege->records, &live);
    assert_non_null(first);
    figure_at_most_us("first live answer after the server accepts",
                      first->start_us + first->elapsed_us - ready_us,
                      (int64_t)(PROBE_INTERVAL_MS + 1000) * 1000, noise_us);
}

/* Failures that callers saw until the breaker opened: the threshold, and who was under way then. */
static void check_threshold(const struct siege *siege)
{
    struct load_filter all = during(siege, 0, NULL), good = during(siege, 200, NULL);
    struct load_filter refused = during(siege, 503, "breaker-open");
    struct load_filter full = during(siege, 503, "bulkhead-full");
    size_t failed = load_count(&siege->records, &all) - load_count(&siege->records, &good) -
                    load_count(&siege->records, &refused) - load_count(&siege->records, &full);

    figure_count_at_most("callers who met the dead server before the breaker opened",
                         (int64_t)failed, (int64_t)THRESHOLD + PERMITS);
}

static void test_a_stopped_database_is_refused_at_once_and_back_within_a_probe(void **state)
{
    struct house *house = *state;
    struct siege siege = {0};
    struct figure_noise *noise = figure_noise_start();
    struct fault_counters open, closed;
    struct instant open_at;
    int64_t ready_us, span_us;

    siege_begin(&siege, house);
    private_postgres_stop(house->pg, POSTGRES_FAST);
    assert_true(weir_breaker_becomes(house->weir, "primary", "open", 5000));
    pass_ms(200); /* connects under way when it opened have failed */
    open = fault_proxy_counters(house->proxy);
    open_at = clock_now();
    assert_int_equal(health(house, "/health"), 503);
    assert_int_equal(health(house, "/health/live"), 200);
    pass_ms(FAULT_MS);
    closed = fault_proxy_counters(house->proxy);
    span_us = instant_span_us(open_at, clock_now());
    siege.healed_at = clock_now();
    private_postgres_start(house->pg);
    ready_us = outage_ready_us(house->pg);
    assert_recovered(house);
    pass_ms(500);
    siege_end(&siege);
    assert_true(closed.upstream_failed_count > 0); /* the server was away, and somebody asked */
    figure_count_at_most("connection attempts in 4 s of open, at 200 requests/s",
                         (int64_t)(closed.accepted_count - open.accepted_count),
                         most_probes(span_us));
    print_stopped(&siege, ready_us, figure_noise_stop(noise).p99_us);
    check_threshold(&siege);
    siege_fini(&siege);
}

/* --- silent --- */

struct silence {
    const char *name;
    enum fault_mode mode;
    bool is_frozen; /* SIGSTOP instead of the proxy's mode */
};

static void silence_begin(struct house *house, const struct silence *silence)
{
    if (silence->is_frozen)
        private_postgres_freeze(house->pg);
    else
        fault_proxy_set_mode(house->proxy, silence->mode);
}

static void silence_end(struct house *house, const struct silence *silence)
{
    if (silence->is_frozen)
        private_postgres_thaw(house->pg);
    else
        fault_proxy_set_mode(house->proxy, FAULT_PASS);
}

static void print_silence(const struct silence *silence, const struct siege *siege,
                          int64_t worst_noise_us, int64_t usual_noise_us)
{
    struct load_filter all = during(siege, 0, NULL), late = during(siege, 504, "deadline");
    struct load_filter refused = during(siege, 503, "breaker-open");
    struct load_filter none = during(siege, 0, NULL);
    char *what =
        scratch_format("%s: slowest answer with a deadline of %d ms", silence->name, DEADLINE_MS);

    (void)printf("%s\n", silence->name);
    load_print(&siege->records, &all);
    assert_was_served_before(siege);
    assert_true(load_count(&siege->records, &late) >= THRESHOLD);
    assert_true(load_count(&siege->records, &refused) > RATE_PER_S);
    figure_at_most_us(what, load_percentile_us(&siege->records, &none, 100),
                      (int64_t)(DEADLINE_MS + 50) * 1000, worst_noise_us);
    free(what);
    what = scratch_format("%s: refused by the open breaker, p99", silence->name);
    figure_at_most_us(what, load_percentile_us(&siege->records, &refused, 99),
                      INT64_C(5000) * FIGURE_SLOWDOWN, usual_noise_us);
    free(what);
}

/* Back within a probe: one that the silence swallowed may have to run out first. */
static void print_return(const struct silence *silence, const struct siege *siege, int64_t noise_us)
{
    struct load_filter live = {.from_us = siege->healed_at.us, .to_us = INT64_MAX, .status = 200};
    const struct load_record *first = load_first_answered(&siege->records, &live);
    char *what = scratch_format("%s: first live answer after it is healed", silence->name);

    assert_non_null(first);
    figure_at_most_us(what, first->start_us + first->elapsed_us - siege->healed_at.us,
                      (int64_t)(PROBE_INTERVAL_MS + 1000 + PROBE_TIMEOUT_MS) * 1000, noise_us);
    free(what);
}

static void check_silence(struct house *house, const struct silence *silence)
{
    struct siege siege = {0};
    struct noise_meter *meter = noise_meter_start();
    struct figure_noise *noise = figure_noise_start();
    struct figure_round round;
    int64_t worst_us;

    siege_begin(&siege, house);
    silence_begin(house, silence);
    siege.fault_at = clock_now();
    pass_ms(FAULT_MS);
    assert_int_equal(health(house, "/health/live"), 200);
    siege.healed_at = clock_now();
    silence_end(house, silence);
    assert_recovered(house);
    pass_ms(500);
    siege_end(&siege);
    round = figure_noise_stop(noise);
    worst_us = noise_meter_stop_us(meter) + round.worst_us;
    print_silence(silence, &siege, worst_us, round.p99_us);
    print_return(silence, &siege, worst_us);
    siege_fini(&siege);
}

static void test_a_black_hole_keeps_nobody_longer_than_the_deadline(void **state)
{
    struct house *house = *state;

    check_silence(house, &(struct silence){.name = "black hole", .mode = FAULT_BLACK_HOLE});
    assert_true(fault_proxy_counters(house->proxy).swallowed_bytes > 0);
}

static void test_unanswered_connects_keep_nobody_longer_than_the_deadline(void **state)
{
    struct house *house = *state;

    check_silence(house, &(struct silence){.name = "unanswered", .mode = FAULT_UNANSWERED});
    assert_true(fault_proxy_counters(house->proxy).stalled_count > 0);
}

static void test_a_frozen_server_keeps_nobody_longer_than_the_deadline(void **state)
{
    check_silence(*state, &(struct silence){.name = "SIGSTOP", .is_frozen = true});
}

/* --- cut off --- */

static void test_a_reset_in_mid_result_is_one_lost_answer(void **state)
{
    struct house *house = *state;
    char reason[24];

    assert_int_equal(ask(house, "/items", NULL), 200);
    for (unsigned round = 1; round <= 10; round++) {
        fault_proxy_cut_after(house->proxy, FAULT_DOWN, UINT64_C(20000) * round, 1);
        assert_int_equal(ask(house, "/items", reason), 503);
        assert_string_equal(reason, "connection-lost");
        assert_int_equal(fault_proxy_counters(house->proxy).cut_count, round);
        assert_int_equal(ask(house, "/items", NULL), 200);
    }
    assert_true(weir_breaker_is(house->weir, "primary", "closed"));
    assert_recovered(house);
}

struct write_caller {
    const struct house *house;
    int status;
    char reason[24], retryable[8];
};

static void post_note(struct write_caller *caller)
{
    char *url = weir_url(caller->house->weir, "/notes");
    struct http_answer answer =
        http_ask(&(struct http_request){.url = url, .body = "{\"token\": \"n\"}"});
    char *reason = http_answer_reason(&answer);

    caller->status = answer.status;
    (void)snprintf(caller->reason, sizeof caller->reason, "%s", reason);
    (void)snprintf(caller->retryable, sizeof caller->retryable, "%s",
                   strstr(answer.body, "\"retryable\":true") != NULL ? "true" : "false");
    free(reason);
    http_answer_fini(&answer);
    free(url);
}

static bool is_one_in_use(void *context)
{
    const struct house *house = context;

    return weir_metric(house->weir, "weir_connections", "state=\"busy\"") == 1;
}

static void write_or_reset(unsigned index, void *context)
{
    struct write_caller *caller = context;

    if (index == 0) {
        post_note(caller);
        return;
    }
    (void)poll_until(is_one_in_use, (void *)caller->house, 2000);
    pass_ms(50); /* sent, and lost on the way */
    fault_proxy_reset_open(caller->house->proxy);
}

static void test_a_write_cut_off_after_it_was_sent_is_of_unknown_outcome(void **state)
{
    struct house *house = *state;
    struct write_caller caller = {.house = house};

    post_note(&caller);
    assert_int_equal(caller.status, 200);
    fault_proxy_set_mode(house->proxy, FAULT_STALL);
    crowd_run(2, write_or_reset, &caller);
    fault_proxy_set_mode(house->proxy, FAULT_PASS);
    assert_int_equal(caller.status, 503);
    assert_string_equal(caller.reason, "outcome-unknown");
    assert_string_equal(caller.retryable, "false");
    assert_true(fault_proxy_counters(house->proxy).stalled_count > 0);
    assert_true(fault_proxy_counters(house->proxy).reset_count > 0);
    assert_recovered(house);
    assert_int_equal(private_postgres_number(house->pg, "SELECT count(*) FROM notes"), 1);
}

/* --- killed backends --- */

static const char kill_all[] = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                               "WHERE usename = 'app'";

static bool has_no_session(void *context)
{
    const struct house *house = context;

    return private_postgres_number(
               house->pg, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'") == 0;
}

/* The server's farewell is on our socket before its backend is gone from pg_stat_activity; the end
 * of the stream may follow later. */
static void test_backends_killed_while_idle_cost_no_caller_an_answer(void **state)
{
    struct house *house = *state;

    for (int round = 0; round < 5; round++) {
        crowd_run(PERMITS, sleep_a_little, house);
        assert_true(poll_until(is_at_rest, house, 5000));
        assert_true(private_postgres_number(house->pg, kill_all) >= 1);
        /* Half the rounds give weir's loop the time to see it by itself. */
        if (round % 2 == 0)
            assert_true(
                weir_metric_reaches(house->weir, "weir_connections", "state=\"idle\"", 0, 5000));
        else
            assert_true(poll_until(has_no_session, house, 5000));
        for (int i = 0; i < 10; i++)
            assert_int_equal(ask(house, "/items/1", NULL), 200);
    }
    assert_true(weir_breaker_is(house->weir, "primary", "closed"));
    assert_recovered(house);
}

struct killed {
    struct house *house;
    int status[3];
    char reasons[3][24];
};

static bool are_three_asleep(void *context)
{
    const struct house *house = context;

    return private_postgres_active(house->pg, "%pg_sleep(%") == 3;
}

static void sleep_or_kill(unsigned index, void *context)
{
    struct killed *killed = context;

    if (index < 3) {
        killed->status[index] = ask(killed->house, "/sleep/1500", killed->reasons[index]);
        return;
    }
    (void)poll_until(are_three_asleep, killed->house, 5000);
    private_postgres_exec(killed->house->pg, kill_all);
}

static bool answers_items(void *context)
{
    return ask(context, "/items/1", NULL) == 200;
}

static void test_backends_killed_while_busy_are_unavailable_and_replaced(void **state)
{
    struct house *house = *state;
    struct killed killed = {.house = house};

    assert_int_equal(ask(house, "/sleep/1", NULL), 200);
    crowd_run(4, sleep_or_kill, &killed);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(killed.status[i], 503);
        assert_string_equal(killed.reasons[i], "database-unavailable");
    }
    if (!FIGURE_IS_JUDGED) /* a new session takes longer there than the route's deadline */
        assert_true(poll_until(answers_items, house, 10000));
    for (int i = 0; i < 10; i++)
        assert_int_equal(ask(house, "/items/1", NULL), 200);
    assert_true(weir_breaker_is(house->weir, "primary", "closed"));
    assert_recovered(house);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, build, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_stopped_database_is_refused_at_once_and_back_within_a_probe),
        TEST(test_a_black_hole_keeps_nobody_longer_than_the_deadline),
        TEST(test_unanswered_connects_keep_nobody_longer_than_the_deadline),
        TEST(test_a_frozen_server_keeps_nobody_longer_than_the_deadline),
        TEST(test_a_reset_in_mid_result_is_one_lost_answer),
        TEST(test_a_write_cut_off_after_it_was_sent_is_of_unknown_outcome),
        cmocka_unit_test_setup_teardown(test_backends_killed_while_idle_cost_no_caller_an_answer,
                                        build_direct, tear_down),
        TEST(test_backends_killed_while_busy_are_unavailable_and_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The bulkhead against a real PostgreSQL: never more statements than permits, refusals at once, the
 * rest of the house untouched, the waiting line in order. SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "figure.h"
#include "http_client.h"
#include "load.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    PERMITS = 4,
    CALLERS = 50,
    SLEEP_MS = 600,        /* what a permitted caller's statement takes */
    SLICE_MS = 400,        /* how long the watchers watch; less than SLEEP_MS */
    SLICES = 12,           /* with callers, and as many without */
    SETTLE_MS = 60,        /* the crowd's arrival, left out of "exactly" but not of "never more" */
    SAMPLES_MAX = 4096,    /* of one watcher in one slice */
    LINE = 6,              /* max_queued of the dependency with a line */
    QUEUE_TIMEOUT_MS = 700 /* its queue_timeout */
};

static const struct weir_file files[] = {
    {"sleep.sql", "-- GET /sleep/{ms}\n-- @param ms int4\nSELECT pg_sleep(:ms / 1000.0)\n"},
    {"stubborn.sql", "-- GET /stubborn\n-- @timeout 100ms\n-- @result value\nSELECT stubborn()\n"},
    {"impatient.sql",
     "-- GET /impatient\n-- @timeout 100ms\n-- @result value\nSELECT pg_sleep(5)\n"},
    {"quick.sql", "-- GET /quick\n-- @from other\n-- @result value\nSELECT 1\n"},
    {"limited.sql", "-- GET /limited\n-- @from other\n-- @limit 2\n-- @result value\n"
                    "SELECT pg_sleep(0.5)\n"},
    {"lined.sql", "-- GET /lined/{name}/{ms}\n-- @from lined\n-- @param name text\n"
                  "-- @param ms int4\nSELECT tick(:name), pg_sleep(:ms / 1000.0)\n"},
    {NULL, NULL}};

/* Ends 1.5 s after it began, whatever tells it to stop; but for a cancel that comes before its loop
 * or between two rounds of it, which the server's log then tells. */
static const char stubborn[] =
    "CREATE OR REPLACE FUNCTION stubborn() RETURNS int LANGUAGE plpgsql AS $$"
    "DECLARE until timestamptz := clock_timestamp() + interval '1.5 s';"
    "BEGIN PERFORM tick('stubborn'); LOOP"
    "  BEGIN"
    "    WHILE clock_timestamp() < until LOOP PERFORM pg_sleep(0.05); END LOOP;"
    "    RETURN 1;"
    "  EXCEPTION WHEN query_canceled THEN NULL;"
    "  END;"
    "END LOOP; END$$";

static const char cancelled[] = "canceling statement due to";

struct house {
    struct private_postgres *pg;
    struct weir_process *weir;
};

static struct house house;

static int build(void **state)
{
    char *conninfo, *dependencies;

    (void)state;
    house.pg = private_postgres_create();
    private_postgres_start(house.pg);
    private_postgres_exec(house.pg, stubborn);
    conninfo = private_postgres_conninfo(house.pg, 0);
    dependencies = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": %d}, \"breaker\": {\"failure_threshold\": 1000}},"
        " \"other\": {\"kind\": \"postgres\", \"conninfo\": \"%s\"},"
        " \"lined\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": 1, \"max_queued\": %d,"
        "                 \"queue_timeout\": \"%dms\"}}}",
        conninfo, PERMITS, conninfo, conninfo, LINE, QUEUE_TIMEOUT_MS);
    house.weir = weir_create(&(struct weir_setup){.dependencies = dependencies, .files = files});
    weir_start(house.weir);
    free(dependencies);
    free(conninfo);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(weir_stop(house.weir, 10000), 0);
    weir_destroy(house.weir);
    private_postgres_destroy(house.pg);
    return 0;
}

static bool is_at_rest(void *context)
{
    (void)context;
    return weir_metric(house.weir, "weir_bulkhead_in_use", "") == 0 &&
           weir_metric(house.weir, "weir_bulkhead_queued", "") == 0 &&
           weir_metric(house.weir, "weir_connections", "state=\"busy\"") == 0 &&
           weir_metric(house.weir, "weir_connections", "state=\"opening\"") == 0;
}

static void assert_at_rest(void)
{
    assert_true(poll_until(is_at_rest, NULL, 5000));
    assert_int_equal(private_postgres_active(house.pg, "%pg_sleep%"), 0);
    assert_int_equal(private_postgres_active(house.pg, "%stubborn%"), 0);
}

static void warm_up(const char *path)
{
    char *url = weir_url(house.weir, path);
    struct http_answer answer = http_get(url);

    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    free(url);
}

/* --- 50 callers, and who watches them --- */

struct watch {
    int64_t *times_us; /* owned; SAMPLES_MAX */
    size_t count;
    size_t bad_count;
};

struct caller {
    int status;
    int64_t elapsed_us;
    bool is_full; /* refused as bulkhead-full, with Retry-After */
};

struct slice {
    bool has_callers;
    char *sleep_url, *live_url, *quick_url; /* owned by the test */
    struct watch live, quick;
    struct http_client *clients[CALLERS]; /* owned by the test; connected */
    int64_t most_active;
    int64_t least_active; /* between the crowd's arrival and the end of the slice */
    size_t sample_count;
    struct caller callers[CALLERS];
};

/* Each watcher counts from when the barrier let it go. */
static bool is_running(struct instant begin)
{
    return instant_span_us(begin, clock_now()) < INT64_C(1000) * SLICE_MS;
}

static void watch_activity(struct slice *slice)
{
    struct instant begin = clock_now();

    while (is_running(begin)) {
        int64_t since_us = instant_span_us(begin, clock_now());
        int64_t active = private_postgres_active(house.pg, "%pg_sleep(%");

        if (active > slice->most_active)
            slice->most_active = active;
        if (since_us > INT64_C(1000) * SETTLE_MS && active < slice->least_active)
            slice->least_active = active;
        slice->sample_count++;
        pass_ms(5);
    }
}

static void watch_url(const char *url, struct watch *watch)
{
    struct instant begin = clock_now();
    struct http_client *client = http_client_create();

    while (is_running(begin) && watch->count < SAMPLES_MAX) {
        struct http_answer answer = http_client_ask(client, &(struct http_request){.url = url});

        watch->bad_count += answer.status == 200 ? 0 : 1;
        watch->times_us[watch->count++] = answer.elapsed_us;
        http_answer_fini(&answer);
        pass_ms(2);
    }
    http_client_destroy(client);
}

static bool is_full(const struct http_answer *answer)
{
    char *reason = http_answer_reason(answer);
    char *retry_after = http_answer_header(answer, "Retry-After");
    bool is = answer->status == 503 && strcmp(reason, "bulkhead-full") == 0 &&
              retry_after != NULL && strtol(retry_after, NULL, 10) >= 1;

    free(reason);
    free(retry_after);
    return is;
}

static void call_once(const struct slice *slice, unsigned index, struct caller *caller)
{
    struct http_answer answer =
        http_client_ask(slice->clients[index], &(struct http_request){.url = slice->sleep_url});

    caller->status = answer.status;
    caller->elapsed_us = answer.elapsed_us;
    caller->is_full = is_full(&answer);
    http_answer_fini(&answer);
}

static void take_part(unsigned index, void *context)
{
    struct slice *slice = context;

    if (index == 0)
        watch_activity(slice);
    else if (index == 1)
        watch_url(slice->live_url, &slice->live);
    else if (index == 2)
        watch_url(slice->quick_url, &slice->quick);
    else if (slice->has_callers)
        call_once(slice, index - 3, &slice->callers[index - 3]);
}

static int64_t *samples(size_t count)
{
    int64_t *times_us = calloc(count, sizeof *times_us);

    if (times_us == NULL)
        scratch_give_up("out of memory");
    return times_us;
}

/* Callers keep their connections: what is measured is weir's refusal, not 50 handshakes. */
static void connect_callers(struct slice *slice)
{
    for (size_t i = 0; i < CALLERS; i++) {
        struct http_answer answer;

        slice->clients[i] = http_client_create();
        answer =
            http_client_ask(slice->clients[i], &(struct http_request){.url = slice->quick_url});
        assert_int_equal(answer.status, 200);
        http_answer_fini(&answer);
    }
}

static void run_slice(struct slice *slice, bool has_callers)
{
    slice->has_callers = has_callers;
    slice->live.count = slice->quick.count = slice->live.bad_count = slice->quick.bad_count = 0;
    slice->most_active = 0;
    slice->least_active = CALLERS;
    slice->sample_count = 0;
    crowd_run(3 + CALLERS, take_part, slice);
    assert_int_equal(slice->live.bad_count, 0);
    assert_int_equal(slice->quick.bad_count, 0);
}

struct totals {
    int64_t *refused_us, *live_us; /* owned */
    size_t refused_count, live_count;
    double ratios[SLICES];
    int64_t most_active;
    size_t sample_count;
};

static void add_callers(struct totals *totals, const struct slice *slice)
{
    size_t ok = 0, full = 0;

    for (size_t i = 0; i < CALLERS; i++) {
        ok += slice->callers[i].status == 200 ? 1 : 0;
        full += slice->callers[i].is_full ? 1 : 0;
        if (slice->callers[i].is_full)
            totals->refused_us[totals->refused_count++] = slice->callers[i].elapsed_us;
    }
    assert_int_equal(ok, PERMITS);
    assert_int_equal(full, CALLERS - PERMITS);
}

/* A slice without callers, and one with. */
static void run_pair(struct totals *totals, struct slice *slice, size_t index)
{
    int64_t quiet_us;

    run_slice(slice, false);
    assert_int_equal(slice->most_active, 0);
    quiet_us = crowd_median_us(slice->quick.times_us, slice->quick.count);
    run_slice(slice, true);
    totals->ratios[index] =
        (double)crowd_median_us(slice->quick.times_us, slice->quick.count) / (double)quiet_us;
    assert_int_equal(slice->most_active, PERMITS);
    assert_int_equal(slice->least_active, PERMITS);
    add_callers(totals, slice);
    memcpy(totals->live_us + totals->live_count, slice->live.times_us,
           slice->live.count * sizeof *totals->live_us);
    totals->live_count += slice->live.count;
    totals->sample_count += slice->sample_count;
    assert_at_rest();
}

static void print_totals(struct totals *totals, int64_t noise_us)
{
    figure_count_is("most and least statements active with 50 callers, 4 permits", PERMITS,
                    PERMITS);
    figure_count_is("samples of pg_stat_activity, at least 100: 1", totals->sample_count > 100, 1);
    figure_count_is("callers refused in 12 crowds of 50", (int64_t)totals->refused_count,
                    (int64_t)SLICES * (CALLERS - PERMITS));
    figure_at_most_us("refused with a full bulkhead, p99",
                      crowd_percentile_us(totals->refused_us, totals->refused_count, 99),
                      INT64_C(20000) * FIGURE_SLOWDOWN, noise_us);
    figure_at_most_us("admin /health/live meanwhile, p99",
                      crowd_percentile_us(totals->live_us, totals->live_count, 99),
                      INT64_C(10000) * FIGURE_SLOWDOWN, noise_us);
    figure_ratio_at_most("another dependency's p50, ratio over 12 pairs of slices",
                         crowd_median_ratio(totals->ratios, SLICES), 1.2);
}

static void test_fifty_callers_meet_four_permits_and_nobody_else_notices(void **state)
{
    struct slice slice = {.sleep_url = scratch_format("http://127.0.0.1:%u/sleep/%d",
                                                      weir_port(house.weir), SLEEP_MS),
                          .live_url = weir_admin_url(house.weir, "/health/live"),
                          .quick_url = weir_url(house.weir, "/quick"),
                          .live.times_us = samples(SAMPLES_MAX),
                          .quick.times_us = samples(SAMPLES_MAX)};
    struct totals totals = {.refused_us = samples((size_t)SLICES * CALLERS),
                            .live_us = samples((size_t)SLICES * SAMPLES_MAX)};
    struct figure_noise *noise;

    (void)state;
    connect_callers(&slice);
    run_slice(&slice, true); /* opens the connections */
    assert_at_rest();
    noise = figure_noise_start();
    for (size_t i = 0; i < SLICES; i++)
        run_pair(&totals, &slice, i);
    print_totals(&totals, figure_noise_stop(noise).p99_us);
    for (size_t i = 0; i < CALLERS; i++)
        http_client_destroy(slice.clients[i]);
    free(totals.refused_us);
    free(totals.live_us);
    free(slice.live.times_us);
    free(slice.quick.times_us);
    free(slice.sleep_url);
    free(slice.live_url);
    free(slice.quick_url);
}

/* --- a permit is held until the statement is really done --- */

struct siege {
    char *url; /* owned by the test */
    const char *like;
    int64_t length_ms;
    struct instant begin;
    int64_t most_active;
    size_t full_samples; /* with every permit's statement active */
    struct load_records records;
};

static void besiege(unsigned index, void *context)
{
    struct siege *siege = context;

    if (index == 0) {
        while (instant_span_us(siege->begin, clock_now()) < siege->length_ms * 1000) {
            int64_t active = private_postgres_active(house.pg, siege->like);

            if (active > siege->most_active)
                siege->most_active = active;
            siege->full_samples += active == PERMITS ? 1 : 0;
            pass_ms(5);
        }
    } else {
        struct load *load = load_start(
            &(struct load_setup){.url = siege->url, .rate_per_s = 40, .thread_count = 10});

        pass_ms(siege->length_ms);
        siege->records = load_stop(load);
    }
}

static struct load_filter any(int status, const char *reason)
{
    return (struct load_filter){
        .from_us = 0, .to_us = INT64_MAX, .status = status, .reason = reason};
}

static void run_siege(struct siege *siege, const char *path)
{
    struct load_filter late = any(504, "deadline"), full = any(503, "bulkhead-full");
    struct load_filter all = any(0, NULL);
    struct noise_meter *meter = noise_meter_start();
    struct figure_noise *noise = figure_noise_start();
    int64_t noise_us;

    siege->url = weir_url(house.weir, path);
    siege->begin = clock_now();
    crowd_run(2, besiege, siege);
    noise_us = noise_meter_stop_us(meter) + figure_noise_stop(noise).worst_us;
    load_print(&siege->records, &all);
    assert_true(load_count(&siege->records, &late) > 0);
    assert_int_equal(load_count(&siege->records, &late) + load_count(&siege->records, &full),
                     siege->records.count);
    figure_count_at_most("statements active, deadline 100 ms, 40 requests/s, 4 permits",
                         siege->most_active, PERMITS);
    figure_at_most_us("answered at a deadline of 100 ms, slowest",
                      load_percentile_us(&siege->records, &late, 100), INT64_C(150000), noise_us);
    assert_at_rest();
    free(siege->url);
}

static void test_a_statement_past_its_deadline_never_makes_room_for_a_fifth(void **state)
{
    struct siege siege = {.like = "%pg_sleep(5)%", .length_ms = 4000};

    (void)state;
    run_siege(&siege, "/impatient");
    load_records_fini(&siege.records);
}

static void test_a_statement_that_ignores_cancels_keeps_its_permit_until_it_ends(void **state)
{
    struct siege siege = {.like = "%stubborn()%", .length_ms = 5000};
    struct load_filter late = any(504, "deadline"), full = any(503, "bulkhead-full");
    size_t ended_early;

    (void)state;
    ended_early = private_postgres_log_count(house.pg, cancelled);
    run_siege(&siege, "/stubborn");
    ended_early = private_postgres_log_count(house.pg, cancelled) - ended_early;
    assert_int_equal(siege.most_active, PERMITS);
    assert_true(siege.full_samples > 10);
    /* 1.5 s each on 4 permits for 5 s: at most 4 rounds of 4, whatever the deadline says. */
    (void)printf("  ended early by their cancel: %zu\n", ended_early);
    figure_count_at_most("statements begun in 5 s that take 1.5 s whatever is cancelled",
                         (int64_t)private_postgres_ticks(house.pg, "stubborn"),
                         (int64_t)4 * PERMITS + (int64_t)ended_early);
    assert_true(load_count(&siege.records, &full) > load_count(&siege.records, &late));
    load_records_fini(&siege.records);
}

/* --- @limit --- */

struct crowd_of {
    char *url; /* owned by the test */
    atomic_int ok_count, full_count, other_count;
};

static void ask_and_count(unsigned index, void *context)
{
    struct crowd_of *crowd = context;
    struct http_answer answer = http_get(crowd->url);

    (void)index;
    if (answer.status == 200)
        (void)atomic_fetch_add(&crowd->ok_count, 1);
    else if (is_full(&answer))
        (void)atomic_fetch_add(&crowd->full_count, 1);
    else
        (void)atomic_fetch_add(&crowd->other_count, 1);
    http_answer_fini(&answer);
}

static void test_a_route_over_its_limit_is_refused_and_others_are_not(void **state)
{
    struct crowd_of crowd = {.url = weir_url(house.weir, "/limited")};

    (void)state;
    for (int round = 0; round < 3; round++) {
        atomic_store(&crowd.ok_count, 0);
        atomic_store(&crowd.full_count, 0);
        crowd_run(12, ask_and_count, &crowd);
        assert_int_equal(atomic_load(&crowd.ok_count), 2);
        assert_int_equal(atomic_load(&crowd.full_count), 10);
        assert_int_equal(atomic_load(&crowd.other_count), 0);
        warm_up("/quick");
    }
    assert_at_rest();
    free(crowd.url);
}

/* --- the waiting line --- */

struct visitor {
    pthread_t thread;
    char *url; /* owned */
    int status;
    int64_t elapsed_us;
    char reason[24];
};

static void *visit(void *context)
{
    struct visitor *visitor = context;
    struct http_answer answer = http_get(visitor->url);
    char *reason = http_answer_reason(&answer);

    visitor->status = answer.status;
    visitor->elapsed_us = answer.elapsed_us;
    (void)snprintf(visitor->reason, sizeof visitor->reason, "%s", reason);
    free(reason);
    http_answer_fini(&answer);
    return NULL;
}

static void visitor_start(struct visitor *visitor, const char *name, int sleep_ms)
{
    visitor->url =
        scratch_format("http://127.0.0.1:%u/lined/%s/%d", weir_port(house.weir), name, sleep_ms);
    if (pthread_create(&visitor->thread, NULL, visit, visitor) != 0)
        scratch_give_up("no thread for a caller");
}

static void visitor_join(struct visitor *visitor)
{
    (void)pthread_join(visitor->thread, NULL);
    free(visitor->url);
}

static const char lined[] = "dependency=\"lined\"";

static void wait_for_line(int in_use, int queued)
{
    assert_true(weir_metric_reaches(house.weir, "weir_bulkhead_in_use", lined, in_use, 2000));
    assert_true(weir_metric_reaches(house.weir, "weir_bulkhead_queued", lined, queued, 2000));
}

/* One permit is taken, then `count` callers join the line one after the other. */
static void fill_line(struct visitor *visitors, const char *family, int count, int first_sleep_ms,
                      int sleep_ms)
{
    for (int i = 0; i <= count; i++) {
        char name[24];

        (void)snprintf(name, sizeof name, "%s%d", family, i);
        visitor_start(&visitors[i], name, i == 0 ? first_sleep_ms : sleep_ms);
        wait_for_line(1, i);
    }
}

static struct http_answer visit_now(const char *name)
{
    char *url = scratch_format("http://127.0.0.1:%u/lined/%s/1", weir_port(house.weir), name);
    struct http_answer answer = http_get(url);

    free(url);
    return answer;
}

/* Only in the server's log does the order stand in which statements began: first the family, in
 * order, and `after` not before its last. */
static void assert_began_in_order(const char *family, int count, const char *after)
{
    char *folder = private_postgres_value(house.pg, "SHOW data_directory");
    char *path = scratch_format("%s/../log", folder);
    char *text = scratch_read(path, NULL);
    char *needle = scratch_format("tick <%s>", after);
    const char *at = text, *first_after = strstr(text, needle);

    free(needle);
    for (int i = 0; i <= count; i++) {
        needle = scratch_format("tick <%s%d>", family, i);
        at = strstr(at, needle);
        free(needle);
        if (at == NULL) {
            fail_msg("caller %d did not begin after caller %d", i, i - 1);
            break;
        }
    }
    assert_true(first_after == NULL || first_after > at);
    free(text);
    free(path);
    free(folder);
}

static void test_who_waits_is_served_in_order_and_nobody_passes(void **state)
{
    struct visitor visitors[LINE + 1] = {0};
    struct http_answer refused;

    (void)state;
    warm_up("/lined/warm/1");
    fill_line(visitors, "v", LINE, 400, 20);
    refused = visit_now("eighth"); /* the line is full */
    assert_true(is_full(&refused));
    http_answer_fini(&refused);
    for (int i = 0; i <= LINE; i++) {
        visitor_join(&visitors[i]);
        assert_int_equal(visitors[i].status, 200);
    }
    assert_int_equal(private_postgres_ticks(house.pg, "eighth"), 0);
    assert_began_in_order("v", LINE, "eighth");
    assert_at_rest();
}

static void test_who_waits_too_long_is_refused_at_the_queue_timeout(void **state)
{
    struct visitor visitors[3] = {0};
    struct noise_meter *meter = noise_meter_start();
    int64_t noise_us, slowest_us = 0;

    (void)state;
    warm_up("/lined/warm/1");
    fill_line(visitors, "x", 2, 1500, 20);
    for (int i = 0; i <= 2; i++)
        visitor_join(&visitors[i]);
    noise_us = noise_meter_stop_us(meter);
    assert_int_equal(visitors[0].status, 200);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(visitors[i].status, 503);
        assert_string_equal(visitors[i].reason, "queue-timeout");
        assert_true(visitors[i].elapsed_us >= (int64_t)QUEUE_TIMEOUT_MS * 1000);
        if (visitors[i].elapsed_us > slowest_us)
            slowest_us = visitors[i].elapsed_us;
    }
    figure_at_most_us("refused at a queue_timeout of 700 ms, slowest", slowest_us,
                      (int64_t)(QUEUE_TIMEOUT_MS + 50) * 1000, noise_us);
    assert_at_rest();
}

struct storm {
    char *url; /* owned by the test */
    atomic_bool is_over;
    atomic_int ok_count, refused_count, other_count;
};

static void *storm_on(void *context)
{
    struct storm *storm = context;
    struct http_client *client = http_client_create();

    while (!atomic_load(&storm->is_over)) {
        struct http_answer answer =
            http_client_ask(client, &(struct http_request){.url = storm->url});

        if (answer.status == 200)
            (void)atomic_fetch_add(&storm->ok_count, 1);
        else if (answer.status == 503)
            (void)atomic_fetch_add(&storm->refused_count, 1);
        else
            (void)atomic_fetch_add(&storm->other_count, 1);
        http_answer_fini(&answer);
    }
    http_client_destroy(client);
    return NULL;
}

/* Between two of the line the permit is free for a moment; newcomers who try all the time must not
 * get it. */
static void test_newcomers_never_pass_a_line_that_is_not_empty(void **state)
{
    struct visitor visitors[4] = {0};
    struct storm storm = {.url = weir_url(house.weir, "/lined/storm/1")};
    pthread_t threads[4];

    (void)state;
    warm_up("/lined/warm/1");
    fill_line(visitors, "w", 3, 300, 20);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, storm_on, &storm), 0);
    for (int i = 0; i <= 3; i++) {
        visitor_join(&visitors[i]);
        assert_int_equal(visitors[i].status, 200);
    }
    pass_ms(200); /* the storm comes to its turn */
    atomic_store(&storm.is_over, true);
    for (size_t i = 0; i < 4; i++)
        (void)pthread_join(threads[i], NULL);
    free(storm.url);
    assert_true(atomic_load(&storm.ok_count) > 10);
    assert_true(atomic_load(&storm.refused_count) > 0);
    assert_int_equal(atomic_load(&storm.other_count), 0);
    assert_began_in_order("w", 3, "storm");
    assert_at_rest();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fifty_callers_meet_four_permits_and_nobody_else_notices),
        cmocka_unit_test(test_a_statement_past_its_deadline_never_makes_room_for_a_fifth),
        cmocka_unit_test(test_a_statement_that_ignores_cancels_keeps_its_permit_until_it_ends),
        cmocka_unit_test(test_a_route_over_its_limit_is_refused_and_others_are_not),
        cmocka_unit_test(test_who_waits_is_served_in_order_and_nobody_passes),
        cmocka_unit_test(test_who_waits_too_long_is_refused_at_the_queue_timeout),
        cmocka_unit_test(test_newcomers_never_pass_a_line_that_is_not_empty),
    };

    return cmocka_run_group_tests(tests, build, tear_down);
}

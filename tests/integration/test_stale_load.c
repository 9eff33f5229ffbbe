/* Stored answers under load: ten thousand that were stored at once are not refreshed at once, and a
 * minute without the database is a minute of answers. Takes about two minutes, most of them that
 * outage. SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "exchange.h"
#include "fault_proxy.h"
#include "figure.h"
#include "outage_times.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "swarm.h"
#include "weir_process.h"

enum {
    PERMITS = 16,
    FILLERS = 12, /* callers who fill; fewer than permits, so that none is refused */
    THRESHOLD = 5,
    PROBE_INTERVAL_MS = 1000,
    PROBE_JITTER_PERCENT = 20,
    RESET_MS = 10000,
    RESET_JITTER_PERCENT = 10,
    RECOVER_MS = 20000,

    MANY_KEYS = FIGURE_IS_JUDGED ? 10000 : 1000, /* filled well before the first expires */
    MANY_MAX_AGE_S = 20,
    MANY_PERMITS = 64, /* so that refreshes come when they want to, not when there is room */
    DOOMED_MAX_AGE_S = 8,
    VISITORS = 16,
    VISITS_PER_S = MANY_KEYS, /* each key once a second */
    LIFETIME_MIN_PERCENT = 80,
    SPREAD_PERCENT = 10, /* of max-age, at least */

    KEYS = 200,
    RATE_PER_S = 1000,
    BESIEGERS = 32,
    SHORT_MAX_AGE_S = 5,
    CALM_MS = 3000,
    OUTAGE_MS = 60000,
    SLICE_MS = 500,
    SLICE_PER_S = 400,
    PAIRS = 40,
    PAIRS_MIN = 10,
    MISSING = INT_MIN
};

#define ROW       "SELECT :key::int AS key, repeat('x', 200) AS filler\n"
#define PARAMETER "-- @param key int4\n-- @result one\n"

static const struct weir_file files[] = {
    {"many.sql", "-- GET /many/{key}\n-- @from many\n" PARAMETER
                 "-- @cache max-age=20s stale-while-revalidate=1m stale-if-error=10m\n"
                 "SELECT tick('many-' || :key) AS what\n"},
    {"doomed.sql",
     "-- GET /doomed/{key}\n" PARAMETER "-- @cache max-age=8s stale-if-error=10m\n" ROW},
    {"short.sql",
     "-- GET /short/{key}\n" PARAMETER "-- @cache max-age=5s stale-if-error=10m\n" ROW},
    {"long.sql", "-- GET /long/{key}\n" PARAMETER "-- @cache max-age=1h\n" ROW},
    {NULL, NULL}};

struct house {
    struct private_postgres *pg;
    struct fault_proxy *proxy; /* counts who connects */
    struct weir_process *weir;
};

static struct house house;

static int build(void **state)
{
    char *conninfo, *direct, *dependencies;

    (void)state;
    house.pg = private_postgres_create();
    private_postgres_start(house.pg);
    house.proxy = fault_proxy_create(private_postgres_port(house.pg));
    conninfo = private_postgres_conninfo(house.pg, fault_proxy_port(house.proxy));
    direct = private_postgres_conninfo(house.pg, 0);
    dependencies = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": %d},"
        "  \"breaker\": {\"failure_threshold\": %d, \"reset_timeout\": \"%dms\"},"
        "  \"probe\": {\"interval\": \"%dms\"}},"
        " \"many\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": %d}}}",
        conninfo, PERMITS, THRESHOLD, RESET_MS, PROBE_INTERVAL_MS, direct, MANY_PERMITS);
    house.weir = weir_create(&(struct weir_setup){
        .dependencies = dependencies, .files = files, .log = "\"access\": \"none\""});
    weir_start(house.weir);
    free(dependencies);
    free(direct);
    free(conninfo);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(weir_stop(house.weir, 10000), 0);
    weir_destroy(house.weir);
    fault_proxy_destroy(house.proxy);
    private_postgres_destroy(house.pg);
    return 0;
}

static bool is_healed(void *context)
{
    (void)context;
    return weir_breaker_is(house.weir, "primary", "closed") &&
           weir_breaker_is(house.weir, "many", "closed");
}

static bool is_at_rest(void *context)
{
    (void)context;
    return weir_metric(house.weir, "weir_bulkhead_in_use", "") == 0 &&
           weir_metric(house.weir, "weir_connections", "state=\"busy\"") == 0 &&
           weir_metric(house.weir, "weir_connections", "state=\"opening\"") == 0;
}

static void assert_recovered(void)
{
    assert_true(poll_until(is_healed, NULL, RECOVER_MS));
    assert_true(poll_until(is_at_rest, NULL, RECOVER_MS));
    assert_true(exchange_is_healthy_within(house.weir, RECOVER_MS));
}

/* --- what is known of one answer --- */

struct record {
    uint32_t key;
    int status;
    int64_t due_us, sent_us, end_us;
    int64_t age_s, ttl_s, max_age_s; /* MISSING */
    bool is_live;                    /* asked for now */
    bool is_degraded;
    bool is_breaker_open; /* the reason */
};

static struct record read_record(const struct swarm_answer *answer)
{
    struct record record = {.key = (uint32_t)answer->tag,
                            .status = answer->status,
                            .due_us = answer->due_us,
                            .sent_us = answer->sent_us,
                            .end_us = answer->end_us};
    char value[128];

    (void)swarm_header(answer, "Cache-Status", value, sizeof value);
    record.is_live = strstr(value, "fwd=") != NULL;
    record.age_s = swarm_header_number(answer, "Age", "", MISSING);
    record.ttl_s = swarm_header_number(answer, "Cache-Status", "ttl=", MISSING);
    record.max_age_s = swarm_header_number(answer, "Cache-Control", "max-age=", MISSING);
    record.is_degraded = swarm_header(answer, "Weir-Degraded", value, sizeof value);
    record.is_breaker_open = strstr(value, "reason=breaker-open") != NULL;
    return record;
}

/* --- every key of a route once --- */

struct filling {
    const char *route;
    uint32_t key_count, next;
    size_t bad_count;
    struct record *records; /* of the keys; NULL: not wanted */
};

static bool filling_next(void *context, struct swarm_request *out)
{
    struct filling *filling = context;

    if (filling->next == filling->key_count)
        return false;
    out->tag = filling->next;
    (void)snprintf(out->path, sizeof out->path, "/%s/%" PRIu32, filling->route, filling->next++);
    return true;
}

static void filling_done(void *context, const struct swarm_answer *answer)
{
    struct filling *filling = context;

    filling->bad_count += answer->status != 200;
    if (filling->records != NULL)
        filling->records[answer->tag] = read_record(answer);
}

static void fill(struct filling *filling)
{
    struct swarm *swarm = swarm_create(weir_port(house.weir), FILLERS);
    int64_t begin_us = clock_now().us;

    swarm_run(swarm, filling_next, filling_done, filling);
    swarm_destroy(swarm);
    (void)printf("figure: %" PRIu32 " keys of %s filled in %.2f s\n", filling->key_count,
                 filling->route, (double)(clock_now().us - begin_us) / 1e6);
    (void)fflush(stdout);
    assert_int_equal(filling->bad_count, 0);
}

static void wait_until_us(int64_t at_us)
{
    int64_t left_us = at_us - clock_now().us;

    if (left_us > 0)
        pass_ms(left_us / 1000 + 1);
}

/* --- many keys, asked for in turn --- */

struct round {
    const char *route;
    const struct record *filled; /* how each key was filled */
    int64_t begin_us, until_us;
    uint64_t asked_count;
    uint32_t cursor;
    uint32_t open_count; /* keys still asked for */
    bool ends_when_past; /* a key is finished with the first answer past its lifetime; else with the
                            first after its refresh */
    struct visited {
        bool is_finished, was_past;
        int64_t past_us;     /* the first visit past its lifetime */
        int64_t lifetime_us; /* by the first answer, to half a second */
    } keys[MANY_KEYS];
    uint64_t error_count, past_count, degraded_count, false_count;
};

static bool round_next(void *context, struct swarm_request *out)
{
    struct round *round = context;

    if (round->open_count == 0 || clock_now().us >= round->until_us)
        return false;
    while (round->keys[round->cursor].is_finished)
        round->cursor = (round->cursor + 1) % MANY_KEYS;
    out->tag = round->cursor;
    out->due_us = round->begin_us + (int64_t)round->asked_count * 1000000 / VISITS_PER_S;
    (void)snprintf(out->path, sizeof out->path, "/%s/%" PRIu32, round->route, round->cursor);
    round->cursor = (round->cursor + 1) % MANY_KEYS;
    round->asked_count++;
    return true;
}

static void round_finish(struct round *round, struct visited *key)
{
    round->open_count -= !key->is_finished;
    key->is_finished = true;
}

static void round_done(void *context, const struct swarm_answer *answer)
{
    struct round *round = context;
    struct record record = read_record(answer);
    struct visited *key = &round->keys[record.key];
    bool is_past = record.ttl_s != MISSING && record.ttl_s < 0;

    round->error_count += record.status != 200;
    round->past_count += is_past;
    round->degraded_count += record.is_degraded;
    round->false_count += record.is_degraded && !is_past;
    if (is_past && !key->was_past) {
        key->was_past = true;
        key->past_us = record.sent_us;
    }
    if (key->lifetime_us == 0)
        key->lifetime_us =
            record.end_us - round->filled[record.key].end_us + record.ttl_s * 1000000 + 500000;
    if (key->was_past && (round->ends_when_past || !is_past))
        round_finish(round, key);
}

static struct round *round_create(const char *route, const struct record *filled, int64_t until_us,
                                  bool ends_when_past)
{
    struct round *round = calloc(1, sizeof *round);

    assert_non_null(round);
    round->route = route;
    round->filled = filled;
    round->begin_us = clock_now().us;
    round->until_us = until_us;
    round->open_count = MANY_KEYS;
    round->ends_when_past = ends_when_past;
    return round;
}

static void round_run(struct round *round)
{
    struct swarm *swarm = swarm_create(weir_port(house.weir), VISITORS);

    swarm_run(swarm, round_next, round_done, round);
    swarm_destroy(swarm);
    (void)printf("figure: %s: %" PRIu64 " visits in %.1f s, %" PRIu64 " past the lifetime, %" PRIu64
                 " degraded\n",
                 round->route, round->asked_count, (double)(clock_now().us - round->begin_us) / 1e6,
                 round->past_count, round->degraded_count);
    (void)fflush(stdout);
}

/* --- the refreshes, as the database saw them --- */

struct sightings {
    size_t counts[MANY_KEYS];
    int64_t refreshed_ms[MANY_KEYS]; /* since 1970 */
};

/* "2026-11-30 05:32:18.123 UTC [": milliseconds since 1970. */
static int64_t wall_ms_of(const char *line)
{
    struct tm tm = {0};
    const char *rest = strptime(line, "%Y-%m-%d %H:%M:%S", &tm);

    if (rest == NULL || *rest != '.')
        scratch_give_up("no time in the server's log line: %.40s", line);
    return (int64_t)timegm(&tm) * 1000 + strtoll(rest + 1, NULL, 10);
}

static void see(struct sightings *seen, const char *line, unsigned long key)
{
    assert_true(key < MANY_KEYS);
    if (seen->counts[key]++ > 0) /* the first filled it */
        seen->refreshed_ms[key] = wall_ms_of(line);
}

static struct sightings *read_sightings(void)
{
    static const char mark[] = "tick <many-";
    struct sightings *seen = calloc(1, sizeof *seen);
    char *folder = private_postgres_value(house.pg, "SHOW data_directory");
    char *path = scratch_format("%s/../log", folder);
    char *text = scratch_read(path, NULL);

    assert_non_null(seen);
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        const char *at;

        *end = '\0';
        at = strstr(line, mark);
        if (at != NULL)
            see(seen, line, strtoul(at + sizeof mark - 1, NULL, 10));
    }
    free(text);
    free(path);
    free(folder);
    return seen;
}

/* From the 5th to the 95th of a hundred. */
static int64_t bulk_of(int64_t *times)
{
    int64_t first = crowd_percentile_us(times, MANY_KEYS, 5);

    return crowd_percentile_us(times, MANY_KEYS, 95) - first;
}

static void check_refreshes(struct sightings *seen)
{
    int64_t wanted_ms = (int64_t)MANY_MAX_AGE_S * 10 * SPREAD_PERCENT, bulk_ms;
    size_t statements = 0;

    for (size_t i = 0; i < MANY_KEYS; i++) {
        assert_true(seen->counts[i] >= 2); /* filled, and refreshed */
        statements += seen->counts[i];
    }
    figure_count_at_most("statements for all keys, filled and refreshed", (int64_t)statements,
                         2 * (int64_t)MANY_KEYS);
    bulk_ms = bulk_of(seen->refreshed_ms);
    (void)printf("figure: nine of ten refreshes of %d keys reached the database within %" PRId64
                 " ms (limit at least %" PRId64 " ms)\n",
                 MANY_KEYS, bulk_ms, wanted_ms);
    assert_true(bulk_ms >= wanted_ms);
}

/* Nor is it the filling or the visits, one after the other, that spreads them. Lifetimes are known
 * to a second, so much is taken off. */
static void check_lifetimes(const struct round *round)
{
    static int64_t lifetimes_us[MANY_KEYS];
    int64_t wanted_us = INT64_C(10000) * MANY_MAX_AGE_S * SPREAD_PERCENT, bulk_us;

    for (size_t i = 0; i < MANY_KEYS; i++)
        lifetimes_us[i] = round->keys[i].lifetime_us;
    bulk_us = bulk_of(lifetimes_us) - 1000000;
    (void)printf("figure: nine of ten lifetimes lie within %.0f ms (limit at least %.0f ms)\n",
                 (double)bulk_us / 1000, (double)wanted_us / 1000);
    assert_true(bulk_us >= wanted_us);
}

/* Nobody is asked for before its time. */
static void check_first_past(const struct round *round)
{
    int64_t least_us = INT64_C(10000) * MANY_MAX_AGE_S * LIFETIME_MIN_PERCENT;

    for (size_t i = 0; i < MANY_KEYS; i++)
        assert_true(round->keys[i].past_us - round->filled[i].sent_us >= least_us);
}

static void test_what_was_stored_at_once_is_not_refreshed_at_once(void **state)
{
    static struct record filled[MANY_KEYS];
    int64_t begin_us = clock_now().us, filled_us;
    struct sightings *seen;
    struct round *round;

    (void)state;
    fill(&(struct filling){.route = "many", .key_count = MANY_KEYS, .records = filled});
    filled_us = clock_now().us;
    /* A round before the first of them expires. */
    wait_until_us(begin_us + INT64_C(10000) * MANY_MAX_AGE_S * LIFETIME_MIN_PERCENT - 1500000);
    round =
        round_create("many", filled, filled_us + INT64_C(1000000) * (MANY_MAX_AGE_S + 10), false);
    round_run(round);
    assert_true(poll_until(is_at_rest, NULL, 5000));
    figure_count_is("refreshed behind stored answers: callers who got an error",
                    (int64_t)round->error_count, 0);
    figure_count_is("keys that were not seen to be refreshed", round->open_count, 0);
    assert_int_equal(round->false_count, 0);
    seen = read_sightings();
    check_refreshes(seen);
    check_lifetimes(round);
    check_first_past(round);
    free(seen);
    free(round);
}

/* The first to expire find it gone, and all others after them. */
static void test_nobody_gets_an_error_when_the_database_stops_as_all_expire(void **state)
{
    static struct record filled[MANY_KEYS];
    int64_t begin_us = clock_now().us, filled_us;
    struct round *round;

    (void)state;
    fill(&(struct filling){.route = "doomed", .key_count = MANY_KEYS, .records = filled});
    filled_us = clock_now().us;
    wait_until_us(begin_us + INT64_C(10000) * DOOMED_MAX_AGE_S * LIFETIME_MIN_PERCENT - 300000);
    private_postgres_stop(house.pg, POSTGRES_FAST);
    round =
        round_create("doomed", filled, filled_us + INT64_C(1000000) * (DOOMED_MAX_AGE_S + 5), true);
    round_run(round);
    assert_true(weir_breaker_is(house.weir, "primary", "open"));
    figure_count_is("the database stopped as all keys expire: callers who got an error",
                    (int64_t)round->error_count, 0);
    figure_count_is("keys that never came past their lifetime", round->open_count, 0);
    /* Each answer past its lifetime says so, and no other. */
    figure_count_is("answers past their lifetime that say so", (int64_t)round->degraded_count,
                    (int64_t)round->past_count);
    assert_int_equal(round->false_count, 0);
    free(round);
    private_postgres_start(house.pg);
    assert_recovered();
}

/* --- a minute without the database --- */

struct siege {
    pthread_t thread;
    struct swarm *swarm; /* owned */
    int64_t begin_us;
    atomic_bool is_over;
    uint64_t asked_count;
    struct record *records; /* owned; by end; the thread's until it is joined */
    size_t count, room;
};

static void siege_keep(struct siege *siege, struct record record)
{
    if (siege->count == siege->room) {
        siege->room = siege->room == 0 ? 1 << 16 : siege->room * 2;
        siege->records = realloc(siege->records, siege->room * sizeof *siege->records);
        if (siege->records == NULL)
            scratch_give_up("out of memory");
    }
    siege->records[siege->count++] = record;
}

static bool siege_next(void *context, struct swarm_request *out)
{
    struct siege *siege = context;

    if (atomic_load_explicit(&siege->is_over, memory_order_relaxed))
        return false;
    out->tag = siege->asked_count % KEYS;
    out->due_us = siege->begin_us + (int64_t)siege->asked_count * 1000000 / RATE_PER_S;
    (void)snprintf(out->path, sizeof out->path, "/short/%u", (unsigned)out->tag);
    siege->asked_count++;
    return true;
}

static void siege_done(void *context, const struct swarm_answer *answer)
{
    siege_keep(context, read_record(answer));
}

static void *siege_on(void *context)
{
    struct siege *siege = context;

    swarm_run(siege->swarm, siege_next, siege_done, siege);
    return NULL;
}

/* When each key was stored first is known to it. */
static void siege_start(struct siege *siege)
{
    struct filling filling = {.route = "short", .key_count = KEYS};

    filling.records = calloc(KEYS, sizeof *filling.records);
    assert_non_null(filling.records);
    fill(&filling);
    for (size_t i = 0; i < KEYS; i++)
        siege_keep(siege, filling.records[i]);
    free(filling.records);
    siege->swarm = swarm_create(weir_port(house.weir), BESIEGERS);
    siege->begin_us = clock_now().us;
    assert_int_equal(pthread_create(&siege->thread, NULL, siege_on, siege), 0);
}

static void siege_stop(struct siege *siege)
{
    atomic_store_explicit(&siege->is_over, true, memory_order_relaxed);
    (void)pthread_join(siege->thread, NULL);
    swarm_destroy(siege->swarm);
}

/* --- slices: what a hit takes, what a stale answer takes --- */

struct slice {
    const char *route;
    int64_t begin_us;
    unsigned asked_count;
    int64_t elapsed_us[SLICE_MS * SLICE_PER_S / 1000];
    size_t count; /* answers of the wanted kind */
};

enum { SLICE_REQUESTS = SLICE_MS * SLICE_PER_S / 1000 };

static bool slice_next(void *context, struct swarm_request *out)
{
    struct slice *slice = context;

    if (slice->asked_count == SLICE_REQUESTS)
        return false;
    out->due_us = slice->begin_us + (int64_t)slice->asked_count * 1000000 / SLICE_PER_S;
    (void)snprintf(out->path, sizeof out->path, "/%s/%u", slice->route,
                   slice->asked_count++ * 7 % KEYS);
    return true;
}

/* From the moment it is sent: what the timers of this machine add would only hide a difference. */
static void slice_done(void *context, const struct swarm_answer *answer)
{
    struct slice *slice = context;
    struct record record = read_record(answer);
    bool is_hit = record.status == 200 && record.ttl_s >= 0 && !record.is_degraded;
    bool is_stale = record.status == 200 && record.ttl_s < 0 && record.is_breaker_open;

    if (strcmp(slice->route, "long") == 0 ? is_hit : is_stale)
        slice->elapsed_us[slice->count++] = record.end_us - record.sent_us;
}

static int64_t slice_median_us(struct swarm *swarm, const char *route)
{
    struct slice slice = {.route = route, .begin_us = clock_now().us};

    swarm_run(swarm, slice_next, slice_done, &slice);
    return slice.count > SLICE_REQUESTS / 2 ? crowd_median_us(slice.elapsed_us, slice.count) : 0;
}

static void measure_pairs(int64_t until_us)
{
    struct swarm *swarm = swarm_create(weir_port(house.weir), 8);
    int64_t hits_us[PAIRS], stales_us[PAIRS];
    double ratios[PAIRS];
    size_t count = 0;

    for (unsigned i = 0; i < PAIRS && clock_now().us + INT64_C(2000) * SLICE_MS < until_us; i++) {
        int64_t first = slice_median_us(swarm, i % 2 == 0 ? "long" : "short");
        int64_t second = slice_median_us(swarm, i % 2 == 0 ? "short" : "long");

        if (first == 0 || second == 0)
            continue; /* the breaker was half-open for long */
        hits_us[count] = i % 2 == 0 ? first : second;
        stales_us[count] = i % 2 == 0 ? second : first;
        ratios[count] = (double)stales_us[count] / (double)hits_us[count];
        count++;
    }
    swarm_destroy(swarm);
    assert_true(count >= PAIRS_MIN);
    (void)printf("figure: p50 over %zu pairs of slices: a hit %.3f ms, a stale answer %.3f ms\n",
                 count, (double)crowd_median_us(hits_us, count) / 1000,
                 (double)crowd_median_us(stales_us, count) / 1000);
    figure_ratio_at_most("p50 of a stale answer to a hit's, median of the pairs",
                         crowd_median_ratio(ratios, count), 1.5);
}

/* --- were they right? --- */

/* What the last two live answers of a key tell: it was stored between the two instants. */
struct known {
    struct birth {
        int64_t from_us, to_us, max_age_s;
    } births[2];
    unsigned count;
};

struct verdicts {
    uint64_t asked, not_ok, stale, stored, live;
    uint64_t wrong_age, wrong_word; /* Weir-Degraded there and not past, or past and not there */
};

static struct birth birth_of(const struct record *record)
{
    return (struct birth){
        .from_us = record->sent_us, .to_us = record->end_us, .max_age_s = record->max_age_s};
}

static void remember(struct known *known, const struct record *record)
{
    known->births[known->count++ % 2] = birth_of(record);
}

/* The header rounds down; so does what the instants allow. */
static bool is_age_of(const struct record *record, const struct birth *birth)
{
    int64_t least_us = record->sent_us - birth->to_us;

    if (least_us < 0)
        least_us = 0;
    return record->age_s >= least_us / 1000000 &&
           record->age_s <= (record->end_us - birth->from_us) / 1000000;
}

/* A live answer says its lifetime in whole seconds: in between both words may be right. */
static bool is_word_of(const struct record *record, const struct birth *birth)
{
    bool is_surely_fresh = record->end_us - birth->from_us < birth->max_age_s * 1000000;
    bool is_surely_past = record->sent_us - birth->to_us >= (birth->max_age_s + 1) * 1000000;

    return !(is_surely_fresh && record->is_degraded) && !(is_surely_past && !record->is_degraded);
}

struct right {
    bool age, word;
};

static void try_birth(struct right *right, const struct record *record, const struct birth *birth)
{
    if (!is_age_of(record, birth))
        return;
    right->age = true;
    right->word = right->word || is_word_of(record, birth);
}

/* A stored answer may be read just before the live one that it was stored with: both were on their
 * way at once. */
static void try_later_births(struct right *right, const struct siege *siege, size_t i)
{
    const struct record *record = &siege->records[i];

    for (size_t k = i + 1; k < siege->count && k <= i + BESIEGERS; k++) {
        const struct record *later = &siege->records[k];
        struct birth birth = birth_of(later);

        if (later->key == record->key && later->is_live && later->sent_us <= record->end_us)
            try_birth(right, record, &birth);
    }
}

static void judge_stored(const struct siege *siege, size_t i, const struct known *known,
                         struct verdicts *verdicts)
{
    const struct record *record = &siege->records[i];
    struct right right = {false, false};

    for (unsigned k = 0; k < 2 && k < known->count; k++)
        try_birth(&right, record, &known->births[k]);
    if (!right.age)
        try_later_births(&right, siege, i);
    verdicts->wrong_age += !right.age;
    verdicts->wrong_word += !right.word || (record->ttl_s < 0) != record->is_degraded;
    verdicts->stale += record->is_degraded;
    verdicts->stored += !record->is_degraded;
}

/* Of the requests begun in [from_us, to_us). */
static struct verdicts judge(const struct siege *siege, int64_t from_us, int64_t to_us)
{
    static struct known known[KEYS];
    struct verdicts verdicts = {0};

    memset(known, 0, sizeof known);
    for (size_t i = 0; i < siege->count; i++) {
        const struct record *record = &siege->records[i];
        bool is_within = record->sent_us >= from_us && record->sent_us < to_us;

        if (record->status == 200 && record->is_live)
            remember(&known[record->key], record);
        if (!is_within)
            continue;
        verdicts.asked++;
        if (record->status != 200)
            verdicts.not_ok++;
        else if (record->is_live)
            verdicts.live++;
        else
            judge_stored(siege, i, &known[record->key], &verdicts);
    }
    return verdicts;
}

static void check_verdicts(const struct siege *siege, int64_t from_us, int64_t to_us)
{
    struct verdicts verdicts = judge(siege, from_us, to_us);
    double span_s = (double)(to_us - from_us) / 1e6;

    (void)printf("figure: %.1f s without the database, %.0f requests/s: %" PRIu64 " stale, %" PRIu64
                 " still fresh, %" PRIu64 " live as it stopped\n",
                 span_s, (double)verdicts.asked / span_s, verdicts.stale, verdicts.stored,
                 verdicts.live);
    assert_true((double)verdicts.asked >= span_s * RATE_PER_S * 0.95);
    assert_true(verdicts.stale > verdicts.asked / 2);
    figure_count_is("answers other than 200 without the database", (int64_t)verdicts.not_ok, 0);
    figure_count_is("ages that cannot be", (int64_t)verdicts.wrong_age, 0);
    figure_count_is("Weir-Degraded missing past the lifetime, or there within it",
                    (int64_t)verdicts.wrong_word, 0);
}

static void check_whole_run(const struct siege *siege)
{
    struct verdicts verdicts = judge(siege, siege->begin_us, INT64_MAX);

    figure_count_is("answers other than 200, before and after too", (int64_t)verdicts.not_ok, 0);
    figure_count_is("ages that cannot be, before and after too", (int64_t)verdicts.wrong_age, 0);
}

/* Probes by probe.interval less its jitter, trials by reset_timeout less its own (were it never
 * doubled). */
static int64_t most_attempts(int64_t span_us)
{
    int64_t probes = span_us / (INT64_C(10) * PROBE_INTERVAL_MS * (100 - PROBE_JITTER_PERCENT));
    int64_t trials = span_us / (INT64_C(10) * RESET_MS * (100 - RESET_JITTER_PERCENT));

    return probes + 1 + trials + 1;
}

static void check_first_live(const struct siege *siege, int64_t ready_us, int64_t noise_us)
{
    int64_t first_us = INT64_MAX;

    for (size_t i = 0; i < siege->count; i++) {
        const struct record *record = &siege->records[i];

        if (record->status == 200 && record->is_live && record->end_us > ready_us &&
            record->end_us < first_us)
            first_us = record->end_us;
    }
    assert_true(first_us != INT64_MAX);
    figure_at_most_us("first live answer after the database is ready", first_us - ready_us,
                      (int64_t)(PROBE_INTERVAL_MS + 1000) * 1000, noise_us);
}

/* What was tried and failed backs off by itself for a while. */
static size_t count_keys_live_after(const struct siege *siege, int64_t from_us)
{
    bool is_live[KEYS] = {false};
    size_t count = 0;

    for (size_t i = 0; i < siege->count; i++) {
        const struct record *record = &siege->records[i];

        if (record->is_live && record->sent_us >= from_us)
            is_live[record->key] = true;
    }
    for (size_t i = 0; i < KEYS; i++)
        count += is_live[i];
    return count;
}

struct outage {
    int64_t from_us, open_us, to_us, ready_us;
    struct fault_counters before, opened, after;
};

static void suffer(struct outage *outage)
{
    outage->before = fault_proxy_counters(house.proxy);
    outage->from_us = clock_now().us;
    private_postgres_stop(house.pg, POSTGRES_FAST);
    assert_true(
        weir_breaker_becomes(house.weir, "primary", "open", INT64_C(1000) * SHORT_MAX_AGE_S));
    pass_ms(200); /* connects under way when it opened have failed */
    outage->open_us = clock_now().us;
    outage->opened = fault_proxy_counters(house.proxy);
    outage->to_us = outage->from_us + (int64_t)OUTAGE_MS * 1000;
    wait_until_us(outage->from_us + INT64_C(1000000) * (SHORT_MAX_AGE_S + 1));
    measure_pairs(outage->to_us - 2000000);
    wait_until_us(outage->to_us);
    outage->to_us = clock_now().us;
    outage->after = fault_proxy_counters(house.proxy);
    private_postgres_start(house.pg);
    outage->ready_us = outage_ready_us(house.pg);
}

static void check_attempts(const struct outage *outage)
{
    int64_t while_open = (int64_t)(outage->after.accepted_count - outage->opened.accepted_count);
    int64_t in_all = (int64_t)(outage->after.accepted_count - outage->before.accepted_count);

    assert_true(outage->after.upstream_failed_count > outage->before.upstream_failed_count);
    (void)printf(
        "figure: may connect while open: probes every %d ms -%d %%, trials every %d ms -%d "
        "%%\n",
        PROBE_INTERVAL_MS, PROBE_JITTER_PERCENT, RESET_MS, RESET_JITTER_PERCENT);
    figure_count_at_most("connection attempts while the breaker was open", while_open,
                         most_attempts(outage->to_us - outage->open_us));
    figure_count_at_most("and with those who met the stop", in_all,
                         most_attempts(outage->to_us - outage->from_us) + THRESHOLD + PERMITS);
}

static void test_a_minute_without_the_database_is_a_minute_of_answers(void **state)
{
    struct siege siege = {0};
    struct outage outage = {0};
    struct noise_meter *meter;
    int64_t noise_us;

    (void)state;
    fill(&(struct filling){.route = "long", .key_count = KEYS});
    siege_start(&siege);
    pass_ms(CALM_MS);
    suffer(&outage);
    meter = noise_meter_start();
    assert_recovered();
    pass_ms(INT64_C(1000) * (SHORT_MAX_AGE_S + 1));
    noise_us = noise_meter_stop_us(meter);
    siege_stop(&siege);
    check_verdicts(&siege, outage.from_us, outage.to_us);
    check_whole_run(&siege);
    check_attempts(&outage);
    check_first_live(&siege, outage.ready_us, noise_us);
    figure_count_is("keys that were live again",
                    (int64_t)count_keys_live_after(&siege, outage.to_us), KEYS);
    free(siege.records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_stored_at_once_is_not_refreshed_at_once),
        cmocka_unit_test(test_nobody_gets_an_error_when_the_database_stops_as_all_expire),
        cmocka_unit_test(test_a_minute_without_the_database_is_a_minute_of_answers),
    };

    return cmocka_run_group_tests(tests, build, tear_down);
}

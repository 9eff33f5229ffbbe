/* Many callers who miss one key are one statement at the database; each of them keeps its own
 * deadline, its own answer and the right to leave. SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rand.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "exchange.h"
#include "figure.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "swarm.h"
#include "weir_process.h"

enum {
    PERMITS = 40, /* more than keys in the chaos, and what is being cancelled beside them */
    NARROW_PERMITS = 2,

    CALLERS = 500,
    ROUNDS = 6,
    SLOW_MS = FIGURE_IS_JUDGED ? 1000 : 1800, /* all of them are to be heard meanwhile */
    FIRST_LEAVES_MS = 10,
    HEARD_MS = 10000,

    SHORT_MS = 50, /* deadlines of callers */
    LONG_MS = 5000,
    FLIGHT_MS = FIGURE_IS_JUDGED ? 700 : 1500,
    BRIEF_MAX_AGE_MS = 1000,
    MARGIN_MS = 50, /* past its deadline every request is answered by then */
    CANCEL_MS = 250,

    CHAOS_CLIENTS = 200,
    CHAOS_KEYS = 20,
    CHAOS_MS = 10000,
    CHAOS_PER_S = 1000,          /* less than what fills a core: it is not about throughput */
    CHAOS_LIFETIME_MIN_MS = 160, /* 80 % of its max-age */
    CHAOS_STATEMENT_MIN_MS = 20,
};

/* The id shows that everybody got the same answer, not just equal ones. */
#define SELECT_SLOWLY "SELECT tick(:key) AS key, gen_random_uuid() AS id, pg_sleep(:ms / 1000.0)\n"
#define PARAMETERS    "-- @param key text\n-- @param ms int4\n-- @result one\n"

static const struct weir_file files[] = {
    {"slow.sql", "-- GET /slow/{ms}/{key}\n" PARAMETERS "-- @cache max-age=1m\n" SELECT_SLOWLY},
    {"brief.sql", "-- GET /brief/{ms}/{key}\n" PARAMETERS
                  "-- @cache max-age=1s stale-if-error=10m\n" SELECT_SLOWLY},
    {"narrow.sql", "-- GET /narrow/{ms}/{key}\n-- @from narrow\n" PARAMETERS
                   "-- @cache max-age=1m\n" SELECT_SLOWLY},
    {"touchy.sql", "-- GET /touchy/{ms}/{key}\n-- @from touchy\n" PARAMETERS
                   "-- @cache max-age=1m\n" SELECT_SLOWLY},
    {"chaos.sql", "-- GET /chaos/{key}\n-- @param key text\n-- @result one\n"
                  "-- @cache max-age=200ms stale-if-error=1m\n"
                  "SELECT tick('chaos') AS what, :key AS key, pg_sleep(0.02 + random() * 0.06)\n"},
    {NULL, NULL}};

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
    conninfo = private_postgres_conninfo(house.pg, 0);
    dependencies = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": %d}},"
        " \"narrow\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": %d}},"
        " \"touchy\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
        "  \"bulkhead\": {\"max_concurrent\": 4}, \"breaker\": {\"failure_threshold\": 1}}}",
        conninfo, PERMITS, conninfo, NARROW_PERMITS, conninfo);
    house.weir = weir_create(&(struct weir_setup){.dependencies = dependencies,
                                                  .files = files,
                                                  .server = "\"request_timeout\": \"8s\"",
                                                  .log = "\"access\": \"none\""});
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

/* --- callers, and what each of them got --- */

struct heard {
    int status;
    bool is_hung_up;
    int64_t elapsed_us;
    char reason[24];  /* of Weir-Degraded, or of the problem */
    bool is_degraded; /* has Weir-Degraded: stale */
    bool is_collapsed;
    bool is_same; /* the body is that of the first who got 200 */
};

struct play {
    struct swarm *swarm;            /* owned */
    struct swarm_request *requests; /* owned; by due_us */
    struct heard *heard;            /* owned; by tag */
    size_t count, next;
    char *body; /* owned; of the first 200; NULL: none yet */
    pthread_t thread;
};

static bool greet_next(void *context, struct swarm_request *out)
{
    size_t *left = context;

    if (*left == 0)
        return false;
    --*left;
    (void)snprintf(out->path, sizeof out->path, "/health");
    return true;
}

static void greet_done(void *context, const struct swarm_answer *answer)
{
    (void)context;
    assert_int_not_equal(answer->status, 0);
}

/* With connections that are accepted, each by its worker. On the heap: a test that fails leaves a
 * thread behind that still plays. */
static struct play *play_create(size_t count)
{
    struct play *play = calloc(1, sizeof *play);
    size_t left = count;

    assert_non_null(play);
    play->count = count;
    play->swarm = swarm_create(weir_port(house.weir), (unsigned)count);
    play->requests = calloc(count, sizeof *play->requests);
    play->heard = calloc(count, sizeof *play->heard);
    assert_non_null(play->requests);
    assert_non_null(play->heard);
    for (size_t i = 0; i < count; i++)
        play->requests[i].tag = i;
    swarm_run(play->swarm, greet_next, greet_done, &left);
    return play;
}

static void play_destroy(struct play *play)
{
    swarm_destroy(play->swarm);
    free(play->requests);
    free(play->heard);
    free(play->body);
    free(play);
}

static bool play_next(void *context, struct swarm_request *out)
{
    struct play *play = context;

    if (play->next == play->count)
        return false;
    *out = play->requests[play->next++];
    return true;
}

/* "reason=deadline" of Weir-Degraded, `"reason":"deadline"` of a problem. */
static void read_reason(const struct swarm_answer *answer, struct heard *heard)
{
    static const char in_header[] = "reason=", in_body[] = "\"reason\":\"";
    char value[128];
    const char *at = NULL;

    heard->is_degraded = swarm_header(answer, "Weir-Degraded", value, sizeof value);
    if (heard->is_degraded) {
        assert_int_equal(strncmp(value, "stale; ", 7), 0);
        at = strstr(value, in_header);
        at = at != NULL ? at + sizeof in_header - 1 : NULL;
    } else if (answer->status >= 400) {
        at = strstr(answer->body, in_body);
        at = at != NULL ? at + sizeof in_body - 1 : NULL;
    }
    if (at != NULL)
        (void)snprintf(heard->reason, sizeof heard->reason, "%.*s", (int)strcspn(at, "\";"), at);
}

static void play_done(void *context, const struct swarm_answer *answer)
{
    struct play *play = context;
    struct heard *heard = &play->heard[answer->tag];
    char value[128];

    heard->status = answer->status;
    heard->is_hung_up = answer->is_hung_up;
    heard->elapsed_us = answer->end_us - answer->sent_us;
    read_reason(answer, heard);
    (void)swarm_header(answer, "Cache-Status", value, sizeof value);
    heard->is_collapsed = strstr(value, "collapsed") != NULL;
    if (answer->status == 200 && play->body == NULL)
        play->body = scratch_format("%s", answer->body);
    heard->is_same = play->body != NULL && strcmp(play->body, answer->body) == 0;
}

static void *play_on(void *context)
{
    struct play *play = context;

    swarm_run(play->swarm, play_next, play_done, play);
    return NULL;
}

static void play_start(struct play *play)
{
    assert_int_equal(pthread_create(&play->thread, NULL, play_on, play), 0);
}

static void play_join(struct play *play)
{
    (void)pthread_join(play->thread, NULL);
}

static void play_ask(struct play *play, size_t i, const char *route, int ms, const char *key)
{
    (void)snprintf(play->requests[i].path, sizeof play->requests[i].path, "/%s/%d/%s", route, ms,
                   key);
}

static void play_ask_all(struct play *play, const char *route, int ms, const char *key)
{
    for (size_t i = 0; i < play->count; i++)
        play_ask(play, i, route, ms, key);
}

static size_t count_status(const struct play *play, int status, const char *reason)
{
    size_t count = 0;

    for (size_t i = 0; i < play->count; i++) {
        const struct heard *heard = &play->heard[i];

        count += heard->status == status && !heard->is_hung_up &&
                 (reason == NULL || strcmp(heard->reason, reason) == 0);
    }
    return count;
}

static size_t count_same(const struct play *play)
{
    size_t count = 0;

    for (size_t i = 0; i < play->count; i++)
        count += play->heard[i].status == 200 && play->heard[i].is_same;
    return count;
}

/* One request alone. */
static int ask(const char *route, int ms, const char *key)
{
    char *path = scratch_format("/%s/%d/%s", route, ms, key);
    int status = exchange_status(house.weir, "GET", path);

    free(path);
    return status;
}

/* --- the house at rest --- */

static bool is_at_rest(void *context)
{
    (void)context;
    return weir_metric(house.weir, "weir_bulkhead_in_use", "") == 0 &&
           weir_metric(house.weir, "weir_connections", "state=\"busy\"") == 0 &&
           weir_metric(house.weir, "weir_connections", "state=\"opening\"") == 0;
}

static int64_t idle_in_transaction_count(void)
{
    return private_postgres_number(
        house.pg, "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'");
}

static void assert_at_rest(void)
{
    assert_true(poll_until(is_at_rest, NULL, 5000));
    assert_int_equal(private_postgres_active(house.pg, "%pg_sleep%"), 0);
    assert_int_equal(idle_in_transaction_count(), 0);
}

static double moves(const char *dependency)
{
    char *labels = scratch_format("dependency=\"%s\"", dependency);
    double count = weir_metric(house.weir, "weir_breaker_transitions_total", labels);

    free(labels);
    return count;
}

static double calls(const char *dependency, const char *outcome)
{
    char *labels = scratch_format("dependency=\"%s\",outcome=\"%s\"", dependency, outcome);
    double count = weir_metric(house.weir, "weir_dependency_calls_total", labels);

    free(labels);
    return count < 0 ? 0 : count;
}

/* All have asked, and none has an answer. */
struct turnout {
    double misses_before;
    size_t count;
};

static double misses(void)
{
    return weir_metric(house.weir, "weir_cache_lookups_total", "result=\"miss\"");
}

static bool have_all_asked(void *context)
{
    const struct turnout *turnout = context;

    return misses() >= turnout->misses_before + (double)turnout->count;
}

/* --- one statement for all --- */

/* Time on a core, when the thread has that name; else -1. */
static int64_t cpu_us_of(const char *folder, const char *id, const char *name)
{
    char *comm_path = scratch_format("%s/%s/comm", folder, id);
    char *stat_path = scratch_format("%s/%s/schedstat", folder, id);
    char *comm = scratch_read(comm_path, NULL), *stat = scratch_read(stat_path, NULL);
    int64_t cpu_us = -1;

    if (strncmp(comm, name, strlen(name)) == 0 && stat[0] != '\0')
        cpu_us = strtoll(stat, NULL, 10) / 1000;
    free(comm);
    free(stat);
    free(comm_path);
    free(stat_path);
    return cpu_us;
}

static int64_t thread_cpu_us(const char *name)
{
    char *folder = scratch_format("/proc/%d/task", (int)weir_pid(house.weir));
    DIR *threads = opendir(folder);
    int64_t cpu_us = -1;

    for (struct dirent *entry = NULL;
         threads != NULL && cpu_us < 0 && (entry = readdir(threads)) != NULL;)
        cpu_us = cpu_us_of(folder, entry->d_name, name);
    if (threads != NULL)
        (void)closedir(threads);
    free(folder);
    if (cpu_us < 0)
        scratch_give_up("no thread %s, or the kernel does not tell its time", name);
    return cpu_us;
}

/* Who leads the flight: a caller of the test's main thread. */
struct leader {
    int fd;
    int64_t sent_us, left_us;
};

static void leader_ask(struct leader *leader, const char *key)
{
    struct turnout turnout = {.misses_before = misses(), .count = 1};
    char *text = scratch_format("GET /slow/%d/%s HTTP/1.1\r\nHost: weir\r\n\r\n", SLOW_MS, key);

    leader->fd = raw_connect(weir_port(house.weir));
    leader->sent_us = clock_now().us;
    assert_true(raw_send(leader->fd, text));
    /* Hundreds of connections before its own are being accepted. */
    assert_true(poll_until(have_all_asked, &turnout, HEARD_MS));
    free(text);
}

/* Not before another was heard: alone it would be the last one, whose leaving cancels. */
static void leader_leave(struct leader *leader, struct turnout joined, unsigned round)
{
    int64_t left_us = leader->sent_us + (int64_t)FIRST_LEAVES_MS * 1000 - clock_now().us;

    if (left_us > 0)
        pass_ms((left_us + 999) / 1000);
    assert_true(poll_until(have_all_asked, &joined, SLOW_MS / 2));
    leader->left_us = clock_now().us;
    if (round % 2 == 0)
        raw_close(leader->fd);
    else
        raw_reset(leader->fd);
}

/* All at once, or some of them after it left. */
static void plan_round(struct play *play, unsigned round, const char *key)
{
    int64_t begin_us = clock_now().us;
    int64_t pause_us = round % 2 == 1 ? 200 : 0;

    play_ask_all(play, "slow", SLOW_MS, key);
    for (size_t i = 0; i < play->count; i++)
        play->requests[i].due_us = begin_us + (int64_t)i * pause_us;
}

static size_t count_collapsed(const struct play *play)
{
    size_t count = 0;

    for (size_t i = 0; i < play->count; i++)
        count += play->heard[i].is_collapsed && !play->heard[i].is_degraded;
    return count;
}

static void check_round(const struct play *play, unsigned round, const char *key, int64_t led_us)
{
    char *what = scratch_format("round %u: statements for %d callers", round, CALLERS);

    figure_count_is(what, (int64_t)private_postgres_ticks(house.pg, key), 1);
    free(what);
    what = scratch_format("round %u: answers 200, the first having left after %.1f ms", round,
                          (double)led_us / 1000);
    figure_count_is(what, (int64_t)count_status(play, 200, NULL), CALLERS - 1);
    free(what);
    assert_int_equal(count_same(play), CALLERS - 1);
    assert_int_equal(count_collapsed(play), CALLERS - 1);
}

static void round_of_callers(unsigned round)
{
    char *key = scratch_format("round-%u", round);
    struct turnout joined;
    struct leader leader;
    struct play *play;

    play = play_create(CALLERS - 1);
    leader_ask(&leader, key);
    joined = (struct turnout){.misses_before = misses(), .count = 1};
    plan_round(play, round, key);
    play_start(play);
    leader_leave(&leader, joined, round);
    play_join(play);
    check_round(play, round, key, leader.left_us - leader.sent_us);
    play_destroy(play);
    free(key);
}

static void test_five_hundred_callers_of_a_cold_key_are_one_statement(void **state)
{
    int64_t first_us = thread_cpu_us("worker-0"), second_us = thread_cpu_us("worker-1");

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++)
        round_of_callers(round);
    first_us = thread_cpu_us("worker-0") - first_us;
    second_us = thread_cpu_us("worker-1") - second_us;
    (void)printf("figure: work of the two workers: %.1f and %.1f ms (each at least a fifth)\n",
                 (double)first_us / 1000, (double)second_us / 1000);
    assert_true(first_us >= (first_us + second_us) / 5);
    assert_true(second_us >= (first_us + second_us) / 5);
    assert_at_rest();
}

/* --- everybody's own deadline --- */

struct haste {
    const char *name;
    bool is_short_first;
    bool is_warm; /* a stored answer past its lifetime is there */
};

enum { HASTY = 0, PATIENT = 1, PAIR = 2, PAIRS = 4 };

/* Pairs of one flight: one hasty, one patient caller each, over both workers. */
static void plan_haste(struct play *play, const struct haste *haste, const char *key)
{
    int64_t begin_us = clock_now().us + 1000;

    play_ask_all(play, "brief", FLIGHT_MS, key);
    for (size_t i = 0; i < play->count; i++) {
        bool is_short = (i % PAIR == 0) == haste->is_short_first;

        play->requests[i].tag = i / PAIR * PAIR + (is_short ? HASTY : PATIENT);
        play->requests[i].due_us = begin_us + (int64_t)i * 2000;
        (void)snprintf(play->requests[i].header, sizeof play->requests[i].header,
                       "X-Request-Timeout-Ms: %d", is_short ? SHORT_MS : LONG_MS);
    }
}

static int64_t slowest_hasty_us(const struct play *play)
{
    int64_t slowest_us = 0;

    for (size_t i = HASTY; i < play->count; i += PAIR) {
        assert_true(play->heard[i].elapsed_us >= (int64_t)SHORT_MS * 1000);
        if (play->heard[i].elapsed_us > slowest_us)
            slowest_us = play->heard[i].elapsed_us;
    }
    return slowest_us;
}

static void check_answers(const struct play *play, const struct haste *haste)
{
    for (size_t i = 0; i < play->count; i += PAIR) {
        const struct heard *hasty = &play->heard[i + HASTY], *patient = &play->heard[i + PATIENT];

        assert_int_equal(hasty->status, haste->is_warm ? 200 : 504);
        assert_int_equal(hasty->is_degraded, haste->is_warm);
        assert_string_equal(hasty->reason, "deadline");
        assert_int_equal(patient->status, 200);
        assert_false(patient->is_degraded);
        assert_true(patient->elapsed_us > (int64_t)FLIGHT_MS / 2 * 1000);
    }
}

static void check_haste(const struct haste *haste, unsigned index)
{
    char *key = scratch_format("haste-%u", index);
    struct play *play;
    struct noise_meter *meter;
    char *what;

    if (haste->is_warm) {
        assert_int_equal(ask("brief", FLIGHT_MS, key), 200);
        pass_ms(BRIEF_MAX_AGE_MS + 10); /* past the longest lifetime */
    }
    play = play_create((size_t)PAIR * PAIRS);
    meter = noise_meter_start();
    plan_haste(play, haste, key);
    (void)play_on(play);
    what = scratch_format("%s: answered at a deadline of %d ms, slowest", haste->name, SHORT_MS);
    figure_at_most_us(what, slowest_hasty_us(play), (int64_t)(SHORT_MS + MARGIN_MS) * 1000,
                      noise_meter_stop_us(meter));
    free(what);
    check_answers(play, haste);
    what = scratch_format("%s: statements for %zu callers", haste->name, play->count);
    figure_count_is(what, (int64_t)private_postgres_ticks(house.pg, key) - haste->is_warm, 1);
    free(what);
    play_destroy(play);
    free(key);
}

static void test_callers_of_one_flight_keep_their_own_deadlines(void **state)
{
    static const struct haste hastes[] = {
        {"cold, the hasty first", true, false},
        {"cold, the patient first", false, false},
        {"stored, the hasty first", true, true},
        {"stored, the patient first", false, true},
    };
    double moved = moves("primary");

    (void)state;
    for (unsigned i = 0; i < sizeof hastes / sizeof *hastes; i++)
        check_haste(&hastes[i], i);
    assert_true(moves("primary") == moved);
    assert_at_rest();
}

/* --- everybody leaves --- */

static bool is_gone(void *context)
{
    (void)context;
    return private_postgres_active(house.pg, "%pg_sleep%") == 0;
}

static void leave_together(unsigned round)
{
    enum { LEAVERS = 50, LEAVE_AFTER_MS = 300, LONG_STATEMENT_MS = 1800 };
    char *key = scratch_format("left-%u", round);
    struct noise_meter *meter = noise_meter_start();
    double hang_ups = calls("touchy", "hang-up");
    struct play *play;
    int64_t left_us;
    bool is_cancelled;

    play = play_create(LEAVERS);
    play_ask_all(play, "touchy", LONG_STATEMENT_MS, key);
    for (size_t i = 0; i < LEAVERS; i++)
        play->requests[i].hang_up_after_us = (int64_t)(LEAVE_AFTER_MS + (int)(i % 5) * 10) * 1000;
    (void)play_on(play);
    left_us = clock_now().us;
    assert_int_equal(private_postgres_ticks(house.pg, key), 1);
    is_cancelled = poll_until(is_gone, NULL, LONG_STATEMENT_MS);
    left_us = clock_now().us - left_us;
    assert_true(is_cancelled);
    figure_at_most_us("all callers of a flight left: its statement is gone after", left_us,
                      (int64_t)CANCEL_MS * 1000, noise_meter_stop_us(meter));
    for (size_t i = 0; i < LEAVERS; i++)
        assert_true(play->heard[i].is_hung_up);
    assert_at_rest(); /* the permit is back */
    assert_true(calls("touchy", "hang-up") == hang_ups + 1);
    play_destroy(play);
    free(key);
}

/* Its breaker would open at the first failure. */
static void
test_when_all_callers_leave_the_statement_ends_and_the_breaker_does_not_move(void **state)
{
    double moved = moves("touchy");

    (void)state;
    assert_int_equal(ask("touchy", 0, "warm-up"), 200);
    for (unsigned round = 0; round < 5; round++)
        leave_together(round);
    assert_true(moves("touchy") == moved);
    assert_true(weir_breaker_is(house.weir, "touchy", "closed"));
    assert_int_equal(ask("touchy", 1, "left-0"), 200); /* a flight anew */
}

/* --- a failure is everybody's --- */

static void terminate_sleepers(void)
{
    private_postgres_exec(house.pg, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                                    "pid <> pg_backend_pid() AND state = 'active' AND query LIKE "
                                    "'%pg_sleep%'");
}

static bool is_one_running(void *context)
{
    (void)context;
    return private_postgres_active(house.pg, "%pg_sleep%") == 1;
}

static bool is_reason_of_a_lost_backend(const char *reason)
{
    return strcmp(reason, "connection-lost") == 0 || strcmp(reason, "database-unavailable") == 0;
}

static void fail_together(const char *key, bool is_warm)
{
    enum { SHARERS = 100 };
    struct turnout turnout = {.misses_before = misses(), .count = SHARERS};
    struct play *play;

    play = play_create(SHARERS);
    play_ask_all(play, "brief", FLIGHT_MS, key);
    play_start(play);
    assert_true(poll_until(have_all_asked, &turnout, FLIGHT_MS * 4 / 5));
    assert_true(poll_until(is_one_running, NULL, FLIGHT_MS));
    terminate_sleepers();
    play_join(play);
    for (size_t i = 0; i < SHARERS; i++) {
        const struct heard *heard = &play->heard[i];

        assert_int_equal(heard->status, is_warm ? 200 : 503);
        assert_int_equal(heard->is_degraded, is_warm);
        assert_true(is_reason_of_a_lost_backend(heard->reason));
        assert_string_equal(heard->reason, play->heard[0].reason);
        assert_true(heard->elapsed_us < (int64_t)FLIGHT_MS * 1000);
    }
    assert_int_equal(private_postgres_ticks(house.pg, key), is_warm ? 2 : 1);
    (void)printf("figure: a lost backend: %d callers, all %d %s\n", SHARERS, is_warm ? 200 : 503,
                 play->heard[0].reason);
    play_destroy(play);
}

static void test_a_failed_flight_is_the_failure_of_all_its_callers(void **state)
{
    (void)state;
    fail_together("lost-cold", false);
    assert_int_equal(ask("brief", FLIGHT_MS, "lost-warm"), 200);
    pass_ms(BRIEF_MAX_AGE_MS + 10);
    fail_together("lost-warm", true);
    assert_true(weir_breaker_is(house.weir, "primary", "closed"));
    assert_int_equal(ask("brief", FLIGHT_MS, "lost-cold"), 200); /* not remembered */
    assert_at_rest();
}

/* --- who waits holds no permit --- */

static void test_callers_of_a_flight_leave_the_other_permits_to_others(void **state)
{
    enum { WAITERS = 200, OTHERS = 20 };
    struct turnout turnout = {.misses_before = misses(), .count = WAITERS};
    struct play *play;

    (void)state;
    play = play_create(WAITERS);
    play_ask_all(play, "narrow", SLOW_MS, "crowded");
    play_start(play);
    assert_true(poll_until(have_all_asked, &turnout, SLOW_MS * 4 / 5));
    figure_count_is(
        "permits that 200 callers of one flight hold, of two",
        (int64_t)weir_metric(house.weir, "weir_bulkhead_in_use", "dependency=\"narrow\""), 1);
    for (int i = 0; i < OTHERS; i++) {
        char *key = scratch_format("beside-%d", i);

        assert_int_equal(ask("narrow", 0, key), 200);
        free(key);
    }
    /* They were served beside the flight, not after it. */
    assert_int_equal(private_postgres_active(house.pg, "%pg_sleep%"), 1);
    play_join(play);
    figure_count_is("callers of one flight, answered", (int64_t)count_status(play, 200, NULL),
                    WAITERS);
    assert_int_equal(private_postgres_ticks(house.pg, "crowded"), 1);
    assert_at_rest();
    play_destroy(play);
}

/* --- chaos --- */

struct chaos {
    struct rand rand;
    int64_t begin_us, until_us;
    uint64_t asked_count;
    uint64_t current_count, stale_count, deadline_count, left_count, other_count;
    uint64_t late_count;                               /* 504 to one who set no deadline */
    int64_t overdue_us[CHAOS_MS / 1000 * CHAOS_PER_S]; /* past their deadlines; 0: before */
    size_t hasty_count;
};

enum { HASTE_LIMIT = 64 /* a tag is a number and, below it, the deadline in ms; 0: none */ };

static bool chaos_next(void *context, struct swarm_request *out)
{
    struct chaos *chaos = context;
    uint64_t fate = rand_below(&chaos->rand, 10);

    if (clock_now().us >= chaos->until_us)
        return false;
    *out = (struct swarm_request){.tag = chaos->asked_count * HASTE_LIMIT,
                                  .due_us = chaos->begin_us +
                                            (int64_t)chaos->asked_count * 1000000 / CHAOS_PER_S};
    chaos->asked_count++;
    (void)snprintf(out->path, sizeof out->path, "/chaos/key-%u",
                   (unsigned)rand_below(&chaos->rand, CHAOS_KEYS));
    if (fate < 3) {
        out->hang_up_after_us = 1 + (int64_t)rand_below(&chaos->rand, 60000);
    } else if (fate < 6) {
        unsigned deadline_ms = 1 + (unsigned)rand_below(&chaos->rand, HASTE_LIMIT - 1);

        out->tag += deadline_ms;
        (void)snprintf(out->header, sizeof out->header, "X-Request-Timeout-Ms: %u", deadline_ms);
    }
    return true;
}

static void note_overdue(struct chaos *chaos, const struct swarm_answer *answer)
{
    int64_t deadline_us = (int64_t)(answer->tag % HASTE_LIMIT) * 1000;
    int64_t overdue_us = answer->end_us - answer->sent_us - deadline_us;

    if (deadline_us > 0 && chaos->hasty_count < sizeof chaos->overdue_us / sizeof(int64_t))
        chaos->overdue_us[chaos->hasty_count++] = overdue_us > 0 ? overdue_us : 0;
}

static void note_other(struct chaos *chaos, const struct swarm_answer *answer,
                       const struct heard *heard)
{
    if (chaos->other_count++ < 5)
        (void)printf("  after %.0f ms: %d %s\n", (double)(answer->end_us - answer->sent_us) / 1000,
                     answer->status, heard->reason);
}

static void chaos_done(void *context, const struct swarm_answer *answer)
{
    struct chaos *chaos = context;
    struct heard heard = {.status = answer->status};

    if (answer->is_hung_up) {
        chaos->left_count++;
        return;
    }
    read_reason(answer, &heard);
    note_overdue(chaos, answer);
    if (answer->status == 200 && !heard.is_degraded)
        chaos->current_count++;
    else if (answer->status == 200 && strcmp(heard.reason, "deadline") == 0)
        chaos->stale_count++;
    else if (answer->status == 504)
        chaos->deadline_count++;
    else
        note_other(chaos, answer, &heard);
    if ((heard.is_degraded || answer->status == 504) && answer->tag % HASTE_LIMIT == 0)
        chaos->late_count++;
}

/* After a statement that ended well its key has an answer for at least its lifetime; one that was
 * cancelled leaves nothing, and is counted as such. */
static void check_statements(const struct chaos *chaos, double ok_count, double hang_up_count)
{
    int64_t span_us = chaos->until_us - chaos->begin_us;
    int64_t cycle_us = (int64_t)(CHAOS_LIFETIME_MIN_MS + CHAOS_STATEMENT_MIN_MS) * 1000;
    int64_t allowed = CHAOS_KEYS * (span_us / cycle_us + 1);

    figure_count_at_most("chaos: statements that ended well, (key, lifetime) misses",
                         (int64_t)ok_count, allowed);
    figure_count_at_most("chaos: statements begun, those and the cancelled",
                         (int64_t)private_postgres_ticks(house.pg, "chaos"),
                         allowed + (int64_t)hang_up_count);
    figure_count_at_most("chaos: flights cancelled, callers who left or ran out of time",
                         (int64_t)hang_up_count,
                         (int64_t)(chaos->left_count + chaos->deadline_count + chaos->stale_count));
    assert_true(chaos->asked_count > 5 * (uint64_t)ok_count);
}

/* Runs it; what the machine itself did to the times meanwhile. */
static struct figure_round chaos_run(struct chaos *chaos)
{
    struct swarm *swarm = swarm_create(weir_port(house.weir), CHAOS_CLIENTS);
    struct figure_noise *noise = figure_noise_start();

    rand_init(&chaos->rand, 20);
    chaos->begin_us = clock_now().us;
    chaos->until_us = chaos->begin_us + (int64_t)CHAOS_MS * 1000;
    swarm_run(swarm, chaos_next, chaos_done, chaos);
    chaos->until_us = clock_now().us;
    swarm_destroy(swarm);
    return figure_noise_stop(noise);
}

/* For the reader alone: where so many share two cores, what is late is whoever waits for one. The
 * promise itself is judged above, where few ask. */
static void print_overdue(struct chaos *chaos, struct figure_round noise)
{
    assert_true(chaos->hasty_count > 500);
    (void)printf("figure: chaos: past its caller's own deadline, p50 %.2f ms, p99 %.2f ms of %zu "
                 "(machine's p99 %.2f ms, no limit)\n",
                 (double)crowd_percentile_us(chaos->overdue_us, chaos->hasty_count, 50) / 1000,
                 (double)crowd_percentile_us(chaos->overdue_us, chaos->hasty_count, 99) / 1000,
                 chaos->hasty_count, (double)noise.p99_us / 1000);
}

static void check_answers_in_chaos(const struct chaos *chaos)
{
    (void)printf("figure: chaos: %" PRIu64 " asked, %" PRIu64 " current, %" PRIu64
                 " stale, %" PRIu64 " deadline, %" PRIu64 " left\n",
                 chaos->asked_count, chaos->current_count, chaos->stale_count,
                 chaos->deadline_count, chaos->left_count);
    assert_true(chaos->left_count > 100);
    assert_true(chaos->stale_count + chaos->deadline_count > 100);
    figure_count_is("chaos: answers of another kind", (int64_t)chaos->other_count, 0);
    figure_count_is("chaos: late answers to those who set no deadline", (int64_t)chaos->late_count,
                    0);
}

static void test_chaos_leaves_nothing_behind(void **state)
{
    static struct chaos chaos;
    struct figure_round noise;
    double ok_count = calls("primary", "ok"), hang_ups = calls("primary", "hang-up");
    double moved = moves("primary");

    (void)state;
    noise = chaos_run(&chaos);
    assert_at_rest();
    check_statements(&chaos, calls("primary", "ok") - ok_count,
                     calls("primary", "hang-up") - hang_ups);
    check_answers_in_chaos(&chaos);
    print_overdue(&chaos, noise);
    assert_true(moves("primary") == moved);
    assert_true(exchange_is_healthy_within(house.weir, 3000));
    assert_int_equal(exchange_status(house.weir, "GET", "/chaos/key-0"), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_five_hundred_callers_of_a_cold_key_are_one_statement),
        cmocka_unit_test(test_callers_of_one_flight_keep_their_own_deadlines),
        cmocka_unit_test(
            test_when_all_callers_leave_the_statement_ends_and_the_breaker_does_not_move),
        cmocka_unit_test(test_a_failed_flight_is_the_failure_of_all_its_callers),
        cmocka_unit_test(test_callers_of_a_flight_leave_the_other_permits_to_others),
        cmocka_unit_test(test_chaos_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, build, tear_down);
}

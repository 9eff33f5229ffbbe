/* A breaker that is half-open lets exactly one call through, whoever comes and however it ends. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "crowd.h"
#include "figure.h"
#include "http_client.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    CALLER_COUNT = 100,
    ROUND_COUNT = 50,
    RESET_MS = 150,
    MAX_RESET_MS = 500,
    THRESHOLD = 2,
    LIMIT_MS = 20000,
};

struct fixture {
    struct private_postgres *pg;
    struct weir_process *weir;
};

/* Ticks, waits until the gate is open, and fails where it is told to. */
static const char gate_sql[] =
    "CREATE FUNCTION gate(name text, state text) RETURNS text LANGUAGE plpgsql AS $$BEGIN"
    "  PERFORM tick(name); PERFORM pg_advisory_xact_lock_shared(7);"
    "  IF state <> '' THEN RAISE EXCEPTION 'told to' USING ERRCODE = state; END IF;"
    "  RETURN name; END$$";

/* Probes stay away: what moves the breaker here are calls and time. More permits than callers: what
 * refuses is the breaker. */
static const char dependencies[] =
    "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\", \"query_timeout\": \"5s\","
    " \"bulkhead\": {\"max_concurrent\": 104},"
    " \"breaker\": {\"failure_threshold\": %d, \"reset_timeout\": \"%dms\","
    " \"max_reset_timeout\": \"%dms\"}, \"probe\": {\"interval\": \"1h\", \"idle\": \"1h\"}}}";

static const struct weir_file files[] = {
    {"ok.sql", "-- GET /ok\n-- @result one\nSELECT 1 AS one"},
    {"fail.sql", "-- GET /fail\n-- @param state text\nSELECT fail_with(:state) AS x"},
    {"divide.sql", "-- GET /divide\n-- @param by int4\n-- @result one\nSELECT 1 / :by AS x"},
    {"gate.sql", "-- GET /gate\n-- @param name text\n-- @param state text default=\"\"\n"
                 "-- @result one\nSELECT gate(:name, :state) AS name"},
    {NULL, NULL},
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char *conninfo, *text;

    assert_non_null(f);
    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    private_postgres_exec(f->pg, gate_sql);
    conninfo = private_postgres_conninfo(f->pg, 0);
    text = scratch_format(dependencies, conninfo, THRESHOLD, RESET_MS, MAX_RESET_MS);
    f->weir = weir_create(
        &(struct weir_setup){.dependencies = text, .files = files, .log = "\"access\": \"none\""});
    weir_start(f->weir);
    free(text);
    free(conninfo);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    int code = weir_stop(f->weir, LIMIT_MS);
    char *log = weir_log(f->weir);

    if (code != 0)
        (void)fprintf(stderr, "weir ended with %d: %s\n", code, log);
    free(log);
    weir_destroy(f->weir);
    private_postgres_destroy(f->pg);
    free(f);
    return code == 0 ? 0 : -1;
}

/* ---- asking ---- */

/* The status, and whether the reason is that word. */
static int ask(const struct fixture *f, const char *path, const char *reason)
{
    char *url = weir_url(f->weir, path);
    struct http_answer answer = http_get(url);
    char *found = http_answer_reason(&answer);
    int status = answer.status;

    assert_string_equal(found, reason);
    free(found);
    http_answer_fini(&answer);
    free(url);
    return status;
}

static int send_get(const struct fixture *f, const char *path, const char *header)
{
    int fd = raw_connect(weir_port(f->weir));
    char *text = scratch_format("GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, header);

    assert_true(fd >= 0);
    assert_true(raw_send(fd, text));
    free(text);
    return fd;
}

static void expect_answer(int fd, const char *needle)
{
    char *text = raw_read_answer(fd, LIMIT_MS);

    if (strstr(text, needle) == NULL)
        fail_msg("expected %s in: %s", needle, text);
    free(text);
    raw_close(fd);
}

/* ---- the breaker ---- */

static void expect_state(const struct fixture *f, const char *state)
{
    assert_true(weir_breaker_becomes(f->weir, "primary", state, LIMIT_MS));
}

static void fail_once(const struct fixture *f)
{
    assert_int_equal(ask(f, "/fail?state=53200", "database-unavailable"), 503);
}

static void open_breaker(const struct fixture *f)
{
    for (int i = 0; i < THRESHOLD; i++)
        fail_once(f);
}

static void close_breaker(const struct fixture *f)
{
    expect_state(f, "half-open");
    assert_int_equal(ask(f, "/ok", ""), 200);
    expect_state(f, "closed");
}

static double move_count(const struct fixture *f)
{
    return weir_metric(f->weir, "weir_breaker_transitions_total", "");
}

static void close_gate(const struct fixture *f)
{
    private_postgres_exec(f->pg, "SELECT pg_advisory_lock(7)");
}

static void open_gate(const struct fixture *f)
{
    private_postgres_exec(f->pg, "SELECT pg_advisory_unlock(7)");
}

struct wanted_ticks {
    const struct fixture *f;
    const char *name;
    size_t count;
};

static bool has_ticks(void *context)
{
    const struct wanted_ticks *wanted = context;

    return private_postgres_ticks(wanted->f->pg, wanted->name) >= wanted->count;
}

static void expect_arrival(const struct fixture *f, const char *name)
{
    assert_true(poll_until(has_ticks, &(struct wanted_ticks){f, name, 1}, LIMIT_MS));
}

static int64_t held_count(const struct fixture *f)
{
    return private_postgres_active(f->pg, "%gate(%");
}

/* ---- a hundred at the instant ---- */

struct storm {
    const struct fixture *f;
    int fds[CALLER_COUNT];
    char request[128];
    bool is_hammering;            /* over the instant, instead of right behind it */
    pthread_barrier_t let_go;     /* callers and the conductor */
    atomic_bool is_over;          /* enough hammered */
    atomic_uint refused, odd;     /* of this round */
    atomic_uint answered_callers; /* who got an answer at all: all but the trial */
    atomic_int trial;             /* who waits for the trial's answer; -1: nobody */
};

/* One request; false: it is held at the gate. */
static bool ask_in_storm(struct storm *storm, unsigned index)
{
    char *text;

    if (!raw_send(storm->fds[index], storm->request)) {
        atomic_fetch_add(&storm->odd, 1);
        return false;
    }
    text = raw_read_answer(storm->fds[index], LIMIT_MS);
    if (strstr(text, "HTTP/1.1 503") != NULL && strstr(text, "breaker-open") != NULL) {
        atomic_fetch_add(&storm->refused, 1);
        free(text);
        return true;
    }
    if (strstr(text, "HTTP/1.1 200") == NULL || atomic_exchange(&storm->trial, (int)index) != -1)
        atomic_fetch_add(&storm->odd, 1);
    free(text);
    return false;
}

static void call_in_storm(struct storm *storm, unsigned index)
{
    bool is_refused;

    (void)pthread_barrier_wait(&storm->let_go);
    do {
        is_refused = ask_in_storm(storm, index);
        if (storm->is_hammering)
            pass_ms(1 + index % 4); /* leaves the two sides some time to answer */
    } while (is_refused && storm->is_hammering && !atomic_load(&storm->is_over));
    if (is_refused)
        atomic_fetch_add(&storm->answered_callers, 1);
}

static bool all_others_answered(void *context)
{
    struct storm *storm = context;

    return atomic_load(&storm->answered_callers) >= CALLER_COUNT - 1;
}

/* Lets them go, counts who arrived while all others were refused, and lets the trial pass. */
static void conduct(struct storm *storm)
{
    const struct fixture *f = storm->f;

    if (!storm->is_hammering)
        expect_state(f, "half-open");
    (void)pthread_barrier_wait(&storm->let_go);
    if (storm->is_hammering) {
        expect_state(f, "half-open");
        pass_ms(20); /* the subject: they come before, at and after the instant */
        atomic_store(&storm->is_over, true);
    }
    if (!poll_until(all_others_answered, storm, LIMIT_MS) || held_count(f) != 1)
        atomic_fetch_add(&storm->odd, 1);
    open_gate(f);
}

static void take_part(unsigned index, void *context)
{
    if (index == CALLER_COUNT)
        conduct(context);
    else
        call_in_storm(context, index);
}

/* Returns how many calls arrived at the database. */
static int64_t run_round(struct storm *storm, int round)
{
    char name[32];

    (void)snprintf(name, sizeof name, "storm-%d", round);
    (void)snprintf(storm->request, sizeof storm->request,
                   "GET /gate?name=%s HTTP/1.1\r\nHost: x\r\n\r\n", name);
    storm->is_hammering = round % 2 != 0;
    atomic_store(&storm->is_over, false);
    atomic_store(&storm->refused, 0);
    atomic_store(&storm->answered_callers, 0);
    atomic_store(&storm->trial, -1);
    close_gate(storm->f);
    open_breaker(storm->f);
    crowd_run(CALLER_COUNT + 1, take_part, storm);
    expect_state(storm->f, "closed");
    assert_int_equal(atomic_load(&storm->odd), 0);
    assert_true(atomic_load(&storm->trial) >= 0);
    assert_true(atomic_load(&storm->refused) >= CALLER_COUNT - 1);
    return (int64_t)private_postgres_ticks(storm->f->pg, name);
}

static void test_of_a_hundred_callers_at_the_instant_exactly_one_arrives(void **state)
{
    struct storm *storm = calloc(1, sizeof *storm);
    int64_t arrived, most = 0, fewest = CALLER_COUNT;
    double moves;

    assert_non_null(storm);
    storm->f = *state;
    (void)pthread_barrier_init(&storm->let_go, NULL, CALLER_COUNT + 1);
    for (int i = 0; i < CALLER_COUNT; i++)
        assert_true((storm->fds[i] = raw_connect(weir_port(storm->f->weir))) >= 0);
    moves = move_count(storm->f);
    for (int round = 0; round < ROUND_COUNT; round++) {
        arrived = run_round(storm, round);
        most = arrived > most ? arrived : most;
        fewest = arrived < fewest ? arrived : fewest;
    }
    figure_count_is("half-open: of 100 callers at the instant, 50 times, arrived at most", most, 1);
    figure_count_is("half-open: of 100 callers at the instant, 50 times, arrived at least", fewest,
                    1);
    /* open, half-open, closed: nothing else moved in any round */
    assert_true(move_count(storm->f) - moves <= 3 * ROUND_COUNT);
    assert_true(weir_metric_reaches(storm->f->weir, "weir_bulkhead_in_use", "", 0, LIMIT_MS));
    for (int i = 0; i < CALLER_COUNT; i++)
        raw_close(storm->fds[i]);
    (void)pthread_barrier_destroy(&storm->let_go);
    free(storm);
}

/* ---- how long it stays open ---- */

/* The number at *at, which `end` must follow; *at moves behind that. */
static int64_t number_before(const char **at, char end)
{
    char *behind;
    int64_t value = strtol(*at, &behind, 10);

    assert_ptr_not_equal(behind, *at);
    assert_int_equal(*behind, end);
    *at = behind + 1;
    return value;
}

/* The time of day of the last line that holds `needle`, in ms: "time":"2026-01-31T11:22:33.456Z".
 */
static int64_t last_time_ms(const char *log, const char *needle)
{
    const char *at = NULL, *start;
    int64_t hours, minutes, seconds, ms;

    for (const char *next = log; (next = strstr(next, needle)) != NULL; next++)
        at = next;
    if (at == NULL) {
        fail_msg("the log lacks %s", needle);
        return -1;
    }
    for (start = at; start > log && start[-1] != '\n';)
        start--;
    start = strchr(start, 'T');
    if (start == NULL) {
        fail_msg("no time in the line of %s", needle);
        return -1;
    }
    start++;
    hours = number_before(&start, ':');
    minutes = number_before(&start, ':');
    seconds = number_before(&start, '.');
    ms = number_before(&start, 'Z');
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms;
}

/* How long it was open last, by the log: the caller's own delays are not in it. */
static int64_t last_time_open_ms(const struct fixture *f)
{
    char *log = weir_log(f->weir);
    int64_t opened_ms = last_time_ms(log, "\"to\":\"open\"");
    int64_t ended_ms = last_time_ms(log, "\"from\":\"open\",\"to\":\"half-open\"");
    const int64_t day_ms = INT64_C(24) * 60 * 60 * 1000;

    free(log);
    return (ended_ms - opened_ms + day_ms) % day_ms;
}

static bool is_move_logged(void *context)
{
    const struct fixture *f = context;
    char *log = weir_log(f->weir);
    size_t opened = scratch_count(log, "\"to\":\"open\"");
    size_t ended = scratch_count(log, "\"from\":\"open\",\"to\":\"half-open\"");

    free(log);
    return opened == ended;
}

/* Two milliseconds: a timer's and the log's whole ones. */
static void expect_open_for(struct fixture *f, struct noise_meter *noise, int64_t nominal_ms)
{
    int64_t span_ms, noise_us;

    expect_state(f, "half-open");
    noise_us = noise_meter_stop_us(noise);
    assert_true(poll_until(is_move_logged, f, LIMIT_MS));
    span_ms = last_time_open_ms(f);
    figure_at_most_us("half-open: time open, nominal +10%", span_ms * 1000,
                      nominal_ms * 1100 + 2000, noise_us);
    assert_true(span_ms + 1 >= nominal_ms * 9 / 10);
}

static void test_failed_trials_double_the_time_open_up_to_its_maximum(void **state)
{
    static const int64_t spans_ms[] = {INT64_C(2) * RESET_MS, MAX_RESET_MS, MAX_RESET_MS};
    struct fixture *f = *state;
    struct noise_meter *noise = noise_meter_start();

    open_breaker(f);
    expect_open_for(f, noise, RESET_MS);
    for (size_t i = 0; i < sizeof spans_ms / sizeof spans_ms[0]; i++) {
        noise = noise_meter_start();
        fail_once(f); /* the trial */
        expect_open_for(f, noise, spans_ms[i]);
    }
    close_breaker(f);
    noise = noise_meter_start();
    open_breaker(f); /* a trial passed: it begins anew */
    expect_open_for(f, noise, RESET_MS);
    close_breaker(f);
}

static void test_failures_of_stragglers_do_not_extend_the_time_open(void **state)
{
    struct fixture *f = *state;
    struct noise_meter *noise = noise_meter_start();
    double moves;
    int fd;

    close_gate(f);
    fd = send_get(f, "/gate?name=straggler&state=53200", "");
    expect_arrival(f, "straggler");
    open_breaker(f);
    moves = move_count(f);
    pass_ms(RESET_MS / 2); /* the subject: a failure in the middle of its time open */
    open_gate(f);
    expect_answer(fd, "database-unavailable");
    expect_open_for(f, noise, RESET_MS);
    assert_true(move_count(f) <= moves + 1);
    close_breaker(f);
}

/* ---- the slot of the trial ---- */

static void expect_slot_taken(const struct fixture *f)
{
    assert_int_equal(ask(f, "/ok", "breaker-open"), 503);
}

static bool is_gate_deserted(void *context)
{
    return held_count(context) == 0;
}

/* The gauge first: the slot comes back with the call's outcome, before its permit. */
static void expect_slot_back(const struct fixture *f, double moves)
{
    assert_true(weir_metric_reaches(f->weir, "weir_bulkhead_in_use", "", 0, LIMIT_MS));
    assert_true(weir_breaker_is(f->weir, "primary", "half-open"));
    assert_true(move_count(f) - moves < 0.5);
    close_breaker(f);
}

static void hang_up_with_fin(int fd)
{
    raw_close(fd);
}

static void test_a_trial_whose_caller_hangs_up_returns_its_slot(void **state)
{
    static void (*const ways[])(int fd) = {hang_up_with_fin, raw_reset, raw_half_close};
    static const char *const names[] = {"fin", "rst", "half"};
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char *path = scratch_format("/gate?name=gone-%s", names[i]);
        double moves;
        int fd;

        close_gate(f);
        open_breaker(f);
        expect_state(f, "half-open");
        moves = move_count(f);
        fd = send_get(f, path, "");
        expect_arrival(f, strchr(path, '=') + 1);
        expect_slot_taken(f);
        ways[i](fd);
        assert_true(poll_until(is_gate_deserted, f, LIMIT_MS));
        open_gate(f);
        expect_slot_back(f, moves);
        if (ways[i] == raw_half_close)
            raw_close(fd);
        free(path);
    }
}

static void test_a_trial_with_a_callers_mistake_returns_its_slot(void **state)
{
    const struct fixture *f = *state;
    double moves;

    open_breaker(f);
    expect_state(f, "half-open");
    moves = move_count(f);
    assert_int_equal(ask(f, "/divide?by=0", "bad-parameter"), 400);
    expect_slot_back(f, moves);
}

static void test_a_trial_whose_caller_has_no_patience_returns_its_slot(void **state)
{
    struct fixture *f = *state;
    double moves;

    close_gate(f);
    open_breaker(f);
    expect_state(f, "half-open");
    moves = move_count(f);
    expect_answer(send_get(f, "/gate?name=hasty", "X-Request-Timeout-Ms: 200\r\n"), "deadline");
    assert_true(poll_until(is_gate_deserted, f, LIMIT_MS));
    open_gate(f);
    expect_slot_back(f, moves);
}

/* ---- late results ---- */

static void test_an_old_success_does_not_close_and_an_old_failure_does_not_open(void **state)
{
    const struct fixture *f = *state;
    double moves;
    int good, bad;

    close_gate(f);
    good = send_get(f, "/gate?name=old-good", "");
    bad = send_get(f, "/gate?name=old-bad&state=53200", "");
    expect_arrival(f, "old-good");
    expect_arrival(f, "old-bad");
    open_breaker(f);
    expect_state(f, "half-open");
    moves = move_count(f);
    open_gate(f);
    expect_answer(good, "HTTP/1.1 200");
    expect_answer(bad, "database-unavailable");
    expect_slot_back(f, moves); /* still half-open, and its slot still there */
}

static void test_old_failures_do_not_count_after_the_recovery(void **state)
{
    const struct fixture *f = *state;
    int fds[THRESHOLD + 1];
    double moves;

    close_gate(f);
    for (int i = 0; i <= THRESHOLD; i++)
        fds[i] = send_get(f, "/gate?name=old-bads&state=53200", "");
    assert_true(
        poll_until(has_ticks, &(struct wanted_ticks){f, "old-bads", THRESHOLD + 1}, LIMIT_MS));
    open_breaker(f);
    close_breaker(f);
    moves = move_count(f);
    open_gate(f);
    for (int i = 0; i <= THRESHOLD; i++)
        expect_answer(fds[i], "database-unavailable");
    assert_true(weir_metric_reaches(f->weir, "weir_bulkhead_in_use", "", 0, LIMIT_MS));
    assert_true(weir_breaker_is(f->weir, "primary", "closed"));
    assert_true(move_count(f) - moves < 0.5);
    assert_int_equal(ask(f, "/ok", ""), 200);
}

/* What a failed test left behind does not fail the next. */
static int settle(void **state)
{
    const struct fixture *f = *state;

    private_postgres_exec(f->pg, "SELECT pg_advisory_unlock_all()");
    if (!weir_breaker_is(f->weir, "primary", "closed"))
        close_breaker(f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_of_a_hundred_callers_at_the_instant_exactly_one_arrives,
                               settle),
        cmocka_unit_test_setup(test_failed_trials_double_the_time_open_up_to_its_maximum, settle),
        cmocka_unit_test_setup(test_failures_of_stragglers_do_not_extend_the_time_open, settle),
        cmocka_unit_test_setup(test_a_trial_whose_caller_hangs_up_returns_its_slot, settle),
        cmocka_unit_test_setup(test_a_trial_with_a_callers_mistake_returns_its_slot, settle),
        cmocka_unit_test_setup(test_a_trial_whose_caller_has_no_patience_returns_its_slot, settle),
        cmocka_unit_test_setup(test_an_old_success_does_not_close_and_an_old_failure_does_not_open,
                               settle),
        cmocka_unit_test_setup(test_old_failures_do_not_count_after_the_recovery, settle),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Whatever stops the thread of one dependency stops nothing else: its own callers are answered at
 * their deadline, everybody else does not notice. The thread is halted from outside, at the moments
 * that are worst. SPDX-License-Identifier: MIT */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "fault_proxy.h"
#include "figure.h"
#include "halt.h"
#include "http_client.h"
#include "lane.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    LANES = 4, /* who must not notice */
    CALLERS = 6,
    PERMITS = 4,
    DEADLINE_MS = 1000,
    LATE_MS = 50,
    ADMIN_MS = 100,
    HALT_MS = 10000,
    BRIEF_MS = 3000,
    SLICES = 20,
    SLICE_MS = 200,
    FIND_MS = 10000,
    HEAL_MS = 10000,
    PAUSE_US = 2000,
};

struct fixture {
    struct private_postgres *pg;
    struct fault_proxy *proxy_a, *proxy_b;
    struct weir_process *weir;
    struct halt *halt;
    struct lane *lanes[LANES];
    struct lane *lane_a, *lane_rows; /* those who ask the halted dependency; may be NULL */
};

static const struct weir_file files[] = {
    {"a_one.sql", "-- GET /a/one\n-- @from a\n-- @timeout 1s\n-- @result value\nSELECT 1"},
    {"a_sleep.sql", "-- GET /a/sleep\n-- @from a\n-- @result value\nSELECT 1 FROM pg_sleep(3)"},
    {"a_rows.sql",
     "-- GET /a/rows\n-- @from a\n-- @timeout 1s\n"
     "SELECT g AS id, 'a \"text\" of row ' || g AS name, g * 1.5 AS price, now() AS at "
     "FROM generate_series(1, 5000) g"},
    {"b_one.sql", "-- GET /b/one\n-- @from b\n-- @result value\nSELECT 1"},
    {NULL, NULL},
};

static char *dependency_json(const struct fixture *f, const struct fault_proxy *proxy,
                             int connect_timeout_ms, int query_timeout_ms)
{
    char *conninfo = private_postgres_conninfo(f->pg, fault_proxy_port(proxy));
    char *json = scratch_format(
        "{\"kind\": \"postgres\", \"conninfo\": \"%s\","
        " \"connect_timeout\": \"%dms\", \"query_timeout\": \"%dms\","
        " \"bulkhead\": {\"max_concurrent\": %d},"
        " \"breaker\": {\"reset_timeout\": \"500ms\", \"max_reset_timeout\": \"1s\"}}",
        conninfo, connect_timeout_ms, query_timeout_ms, PERMITS);

    free(conninfo);
    return json;
}

static struct weir_process *make_weir(const struct fixture *f)
{
    char *a = dependency_json(f, f->proxy_a, 500, 3500),
         *b = dependency_json(f, f->proxy_b, 3000, 3500);
    char *dependencies = scratch_format("{\"a\": %s, \"b\": %s}", a, b);
    struct weir_process *weir =
        weir_create(&(struct weir_setup){.dependencies = dependencies,
                                         .server = "\"request_timeout\": \"4s\","
                                                   " \"drain_timeout\": \"2s\"",
                                         .files = files});

    free(a);
    free(b);
    free(dependencies);
    return weir;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (f == NULL)
        return -1;
    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    f->proxy_a = fault_proxy_create(private_postgres_port(f->pg));
    f->proxy_b = fault_proxy_create(private_postgres_port(f->pg));
    f->weir = make_weir(f);
    *state = f;
    return 0;
}

static void stop_lanes(struct fixture *f)
{
    lane_fini(f->lane_a);
    lane_fini(f->lane_rows);
    f->lane_a = f->lane_rows = NULL;
    for (size_t i = 0; i < LANES; i++) {
        lane_fini(f->lanes[i]);
        f->lanes[i] = NULL;
    }
}

/* After each test, however it ended. */
static int clean_up(void **state)
{
    struct fixture *f = *state;

    halt_release(f->halt);
    f->halt = NULL;
    stop_lanes(f);
    weir_destroy(f->weir);
    f->weir = make_weir(f);
    fault_proxy_set_mode(f->proxy_a, FAULT_PASS);
    fault_proxy_delay_cancels(f->proxy_a, 0);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    weir_destroy(f->weir);
    fault_proxy_destroy(f->proxy_a);
    fault_proxy_destroy(f->proxy_b);
    private_postgres_destroy(f->pg);
    free(f);
    return 0;
}

static int64_t us_of_ms(int64_t ms)
{
    return ms * 1000;
}

/* --- asking --- */

static int status_of(const struct fixture *f, const char *path)
{
    char *url = weir_url(f->weir, path);
    struct http_answer answer = http_get(url);
    int status = answer.status;

    http_answer_fini(&answer);
    free(url);
    return status;
}

static bool a_answers(void *context)
{
    return status_of(context, "/a/one") == 200;
}

static bool b_answers(void *context)
{
    return status_of(context, "/b/one") == 200;
}

static struct lane *lane_to(const char *what, char *url, int64_t pause_us)
{
    struct lane *lane = lane_start(what, url, pause_us);

    free(url);
    return lane;
}

static void start_lanes(struct fixture *f)
{
    weir_start(f->weir);
    assert_true(poll_until(a_answers, f, HEAL_MS));
    assert_true(poll_until(b_answers, f, HEAL_MS));
    f->lanes[0] = lane_to("b", weir_url(f->weir, "/b/one"), PAUSE_US);
    f->lanes[1] = lane_to("b, another caller", weir_url(f->weir, "/b/one"), PAUSE_US);
    f->lanes[2] = lane_to("liveness, main port", weir_url(f->weir, "/health/live"), PAUSE_US);
    f->lanes[3] =
        lane_to("liveness, admin port", weir_admin_url(f->weir, "/health/live"), PAUSE_US);
}

struct crowd_answers {
    char *url;
    int statuses[CALLERS];
    int64_t elapsed_us[CALLERS];
};

static void ask_once(unsigned index, void *context)
{
    struct crowd_answers *answers = context;
    struct http_answer answer = http_get(answers->url);

    answers->statuses[index] = answer.status;
    answers->elapsed_us[index] = answer.elapsed_us;
    http_answer_fini(&answer);
}

/* Callers of the halted dependency: 503 or 504, by their deadline. Returns how many had to wait. */
static unsigned expect_answers_by_deadline(struct fixture *f)
{
    struct noise_meter *noise = noise_meter_start();
    struct crowd_answers answers = {.url = weir_url(f->weir, "/a/one")};
    int64_t noise_us;
    unsigned waited = 0;

    crowd_run(CALLERS, ask_once, &answers);
    noise_us = noise_meter_stop_us(noise);
    free(answers.url);
    for (unsigned i = 0; i < CALLERS; i++) {
        assert_true(answers.statuses[i] == 503 || answers.statuses[i] == 504);
        waited += answers.statuses[i] == 504;
    }
    figure_at_most_us("callers of the halted dependency, slowest answer",
                      crowd_percentile_us(answers.elapsed_us, CALLERS, 100),
                      us_of_ms(DEADLINE_MS + LATE_MS * FIGURE_SLOWDOWN), noise_us);
    return waited;
}

static int64_t admin_us(const struct fixture *f, const char *path, const char *body)
{
    char *url = weir_admin_url(f->weir, path);
    const char *const headers[] = {"Content-Type: application/json", NULL};
    struct http_answer answer =
        http_ask(&(struct http_request){.url = url, .body = body, .headers = headers});
    int64_t elapsed_us = answer.elapsed_us;

    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    free(url);
    return elapsed_us;
}

static void expect_admin_answers(struct fixture *f)
{
    struct noise_meter *noise = noise_meter_start();
    int64_t metrics_us = admin_us(f, "/metrics", NULL);
    int64_t status_us = admin_us(f, "/status", NULL);
    int64_t breaker_us = admin_us(f, "/breakers/a", "{\"mode\":\"auto\"}");
    int64_t noise_us = noise_meter_stop_us(noise);

    figure_at_most_us("admin port beside a halt: /metrics", metrics_us,
                      us_of_ms(ADMIN_MS) * FIGURE_SLOWDOWN, noise_us);
    figure_at_most_us("admin port beside a halt: /status", status_us,
                      us_of_ms(ADMIN_MS) * FIGURE_SLOWDOWN, noise_us);
    figure_at_most_us("admin port beside a halt: POST /breakers/a", breaker_us,
                      us_of_ms(ADMIN_MS) * FIGURE_SLOWDOWN, noise_us);
}

/* --- halts at one moment: short ones in turns with none, then a long one --- */

typedef void moment_find(struct fixture *f);

static void let_slice_pass(struct lane_slice *slice)
{
    slice->from_us = clock_now().us;
    pass_ms(SLICE_MS);
    slice->to_us = clock_now().us;
}

static void pass_until(int64_t at_us)
{
    int64_t left_us = at_us - clock_now().us;

    if (left_us > 0)
        pass_ms(left_us / 1000);
}

static void expect_unchanged(const struct lane *lane, const struct lane_slice *with,
                             const struct lane_slice *without)
{
    char what[96];

    (void)snprintf(what, sizeof what, "%s: p50 beside the fault / without", lane_what(lane));
    figure_ratio_at_most(what, lane_ratio(lane, with, without, SLICES, 50), 1.2);
    /* Of the hundred or so answers of a slice the p99 would be one, and the machine's. */
    (void)snprintf(what, sizeof what, "%s: p90 beside the fault / without", lane_what(lane));
    figure_ratio_at_most(what, lane_ratio(lane, with, without, SLICES, 90), 2);
    (void)snprintf(what, sizeof what, "%s: answers other than 200", lane_what(lane));
    lane_print_bad(lane);
    figure_count_is(what, (int64_t)lane_bad_count(lane), 0);
}

/* Whoever waits for the halted thread waits as long as it is halted, or to the deadline. */
static void expect_no_stall(const struct lane *lane, struct lane_slice halt, int64_t noise_us)
{
    char what[96];

    (void)snprintf(what, sizeof what, "%s: slowest answer beside the long halt", lane_what(lane));
    figure_at_most_us(what, lane_percentile_us(lane, halt, 100), us_of_ms(DEADLINE_MS) / 2,
                      noise_us);
}

static void stop_asking_a(struct fixture *f)
{
    lane_fini(f->lane_a);
    lane_fini(f->lane_rows);
    f->lane_a = f->lane_rows = NULL;
}

static bool a_is_at_rest(const struct fixture *f)
{
    return weir_metric_reaches(f->weir, "weir_bulkhead_in_use", "dependency=\"a\"", 0, HEAL_MS) &&
           weir_metric_reaches(f->weir, "weir_connections", "dependency=\"a\",state=\"busy\"", 0,
                               HEAL_MS) &&
           weir_metric_reaches(f->weir, "weir_connections", "dependency=\"a\",state=\"opening\"", 0,
                               HEAL_MS);
}

/* It works again by itself, and nothing of what was under way is left. */
static void expect_recovery(struct fixture *f)
{
    struct instant from = clock_now();

    assert_true(poll_until(a_answers, f, HEAL_MS));
    figure_at_most_us("the halted dependency answers again after",
                      instant_span_us(from, clock_now()), us_of_ms(HEAL_MS), 0);
    assert_true(weir_breaker_becomes(f->weir, "a", "closed", HEAL_MS));
    stop_asking_a(f);
    assert_true(a_is_at_rest(f));
    assert_true(weir_breaker_is(f->weir, "b", "closed"));
}

static void halt_in_turns(struct fixture *f, moment_find *find, struct lane_slice *with,
                          struct lane_slice *without)
{
    for (size_t i = 0; i < SLICES; i++) {
        let_slice_pass(&without[i]);
        find(f);
        let_slice_pass(&with[i]);
        halt_go_on(f->halt);
        fault_proxy_set_mode(f->proxy_a, FAULT_PASS);
        stop_asking_a(f);
        assert_true(poll_until(a_answers, f, HEAL_MS));
        assert_true(a_is_at_rest(f));
    }
}

static struct lane_slice halt_for_long(struct fixture *f, moment_find *find, int64_t halt_ms)
{
    struct lane_slice halted;
    unsigned waited;

    find(f);
    halted.from_us = clock_now().us;
    waited = expect_answers_by_deadline(f);
    expect_admin_answers(f);
    pass_until(halted.from_us + halt_ms * 1000 / 2);
    waited += expect_answers_by_deadline(f);
    assert_in_range(waited, 1, CALLERS); /* the halt bit */
    pass_until(halted.from_us + halt_ms * 1000);
    halted.to_us = clock_now().us;
    halt_release(f->halt);
    f->halt = NULL;
    return halted;
}

static void halt_at(struct fixture *f, moment_find *find, int64_t halt_ms)
{
    struct lane_slice with[SLICES], without[SLICES], halted;
    struct noise_meter *noise;
    int64_t noise_us;

    start_lanes(f);
    f->halt = halt_take(weir_pid(f->weir), "dep-a");
    halt_in_turns(f, find, with, without);
    noise = noise_meter_start();
    halted = halt_for_long(f, find, halt_ms);
    noise_us = noise_meter_stop_us(noise);
    fault_proxy_set_mode(f->proxy_a, FAULT_PASS);
    expect_recovery(f);
    for (size_t i = 0; i < LANES; i++)
        lane_stop(f->lanes[i]);
    for (size_t i = 0; i < LANES; i++) {
        expect_unchanged(f->lanes[i], with, without);
        expect_no_stall(f->lanes[i], halted, noise_us);
    }
    assert_int_equal(weir_stop(f->weir, 10000), 0);
}

/* --- at a turn of its loop --- */

static bool is_wait(const struct halt_call *call)
{
    bool is_it = call->number == SYS_epoll_pwait;

#ifdef SYS_epoll_wait
    is_it = is_it || call->number == SYS_epoll_wait;
#endif
    return is_it;
}

static void find_turn(struct fixture *f)
{
    assert_true(halt_before_call(f->halt, is_wait, FIND_MS));
}

static void test_a_halt_at_a_turn_of_its_loop_stays_in_its_compartment(void **state)
{
    halt_at(*state, find_turn, HALT_MS);
}

/* --- in connect --- */

struct stalled_before {
    struct fault_proxy *proxy;
    uint64_t count;
};

static bool login_is_stalled(void *context)
{
    const struct stalled_before *before = context;

    return fault_proxy_counters(before->proxy).stalled_count > before->count;
}

static void find_connect(struct fixture *f)
{
    struct stalled_before before = {.proxy = f->proxy_a};

    fault_proxy_reset_open(f->proxy_a);
    fault_proxy_set_mode(f->proxy_a, FAULT_STALL);
    before.count = fault_proxy_counters(f->proxy_a).stalled_count;
    f->lane_a = lane_to("a", weir_url(f->weir, "/a/one"), PAUSE_US);
    assert_true(poll_until(login_is_stalled, &before, FIND_MS));
    assert_true(halt_now(f->halt));
    assert_true(weir_metric(f->weir, "weir_connections", "dependency=\"a\",state=\"opening\"") > 0);
}

static void test_a_halt_in_connect_stays_in_its_compartment(void **state)
{
    halt_at(*state, find_connect, HALT_MS);
}

/* --- in cancel --- */

static bool is_cancel_request(const struct halt_call *call)
{
    return call->number == SYS_sendto && call->arguments[2] == 16;
}

static bool sleeps_in_server(void *context)
{
    return private_postgres_active(context, "%pg_sleep(3)%") > 0;
}

static void find_cancel(struct fixture *f)
{
    char *request =
        scratch_format("GET /a/sleep HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", weir_port(f->weir));
    int fd = raw_connect(weir_port(f->weir));

    fault_proxy_delay_cancels(f->proxy_a, 200);
    assert_true(raw_send(fd, request));
    assert_true(poll_until(sleeps_in_server, f->pg, 2000));
    assert_true(halt_now(f->halt)); /* so that its cancel is not sent before we look */
    raw_close(fd);
    assert_true(halt_before_call(f->halt, is_cancel_request, FIND_MS));
    free(request);
}

static void test_a_halt_in_cancel_stays_in_its_compartment(void **state)
{
    struct fixture *f = *state;
    uint64_t before = fault_proxy_counters(f->proxy_a).delayed_cancel_count;

    halt_at(f, find_cancel, HALT_MS);
    assert_true(fault_proxy_counters(f->proxy_a).delayed_cancel_count > before);
}

/* --- in row writing --- */

static void find_row_writing(struct fixture *f)
{
    static const char *const writing[] = {"row_write", "json_text", "buffer_append", NULL};

    f->lane_rows = lane_to("a, rows", weir_url(f->weir, "/a/rows"), (int64_t)20 * PAUSE_US);
    assert_true(halt_in_function(f->halt, writing, FIND_MS));
    (void)printf("halted in %s()\n", halt_function(f->halt));
}

static void test_a_halt_in_row_writing_stays_in_its_compartment(void **state)
{
    halt_at(*state, find_row_writing, HALT_MS);
}

/* --- who is stalled? --- */

enum {
    SHORT_MS = 30,
    HOLD_US = 3000000
}; /* more than a busy machine takes, less than the deadline */

static bool waits_for_the_halt(struct lane *lane)
{
    uint64_t count = lane_count(lane);
    struct instant from = clock_now();

    /* Only slow? Then it gets its answer although the halt lasts. */
    while (lane_count(lane) == count && lane_waited_us(lane) > 0) {
        if (instant_span_us(from, clock_now()) > HOLD_US)
            return true;
        (void)usleep(1000);
    }
    return false;
}

/* The thread stands still: whose request is out for nearly as long as that? */
static unsigned count_stalled(struct fixture *f, int64_t halt_us)
{
    unsigned stalled = 0;

    for (size_t i = 0; i < LANES; i++) {
        if (lane_waited_us(f->lanes[i]) < halt_us * 2 / 3 || !waits_for_the_halt(f->lanes[i]))
            continue;
        stalled++;
        (void)printf("stalled by a halt in %s(): %s\n", halt_function(f->halt),
                     lane_what(f->lanes[i]));
        halt_print_threads(f->halt);
    }
    return stalled;
}

/* --- between a reply's hand-over and its wake-up --- */

static bool is_wake_up(const struct halt_call *call)
{
    return call->number == SYS_write && call->arguments[2] == 8;
}

static void find_wake_up(struct fixture *f)
{
    f->lane_a = lane_to("a", weir_url(f->weir, "/a/one"), PAUSE_US);
    assert_true(halt_before_call(f->halt, is_wake_up, FIND_MS));
    pass_ms(SHORT_MS); /* long enough for the next reply of b */
    assert_int_equal(count_stalled(f, us_of_ms(SHORT_MS)), 0);
}

static void test_a_halt_before_a_wake_up_stays_in_its_compartment(void **state)
{
    halt_at(*state, find_wake_up, BRIEF_MS);
}

/* --- many short halts --- */

static void start_load(struct fixture *f)
{
    start_lanes(f);
    f->lane_a = lane_to("a", weir_url(f->weir, "/a/one"), 500);
    f->lane_rows = lane_to("a, rows", weir_url(f->weir, "/a/rows"), 10000);
    f->halt = halt_take(weir_pid(f->weir), "dep-a");
}

/* A sanitizer's runtime has locks of its own for the whole process (around its malloc, above all),
 * which a halted thread may hold: there the counts are shown, and say nothing. */
static void expect_none_stalled(const struct fixture *f, unsigned stalled, const char *what)
{
    size_t bad = 0;

    for (size_t i = 0; i < LANES; i++)
        bad += lane_bad_count(f->lanes[i]);
    if (FIGURE_SLOWDOWN > 1) {
        (void)printf("figure: %s: %u, and %zu bad answers (under a sanitizer: no limit)\n", what,
                     stalled, bad);
        return;
    }
    figure_count_is(what, stalled, 0);
    figure_count_is("answers of the others than 200", (int64_t)bad, 0);
}

static void end_load(struct fixture *f, unsigned stalled, const char *what)
{
    halt_release(f->halt);
    f->halt = NULL;
    expect_recovery(f);
    for (size_t i = 0; i < LANES; i++)
        lane_stop(f->lanes[i]);
    expect_none_stalled(f, stalled, what);
    assert_int_equal(weir_stop(f->weir, 10000), 0);
}

static void test_halts_at_random_instants_stall_nobody_else(void **state)
{
    enum { HALTS = 200 };
    struct fixture *f = *state;
    struct rand rand;
    unsigned stalled = 0;

    rand_init_from_system(&rand);
    start_load(f);
    for (int i = 0; i < HALTS; i++) {
        (void)usleep((useconds_t)rand_below(&rand, 10000));
        assert_true(halt_now(f->halt));
        pass_ms(SHORT_MS);
        stalled += count_stalled(f, us_of_ms(SHORT_MS));
        halt_go_on(f->halt);
    }
    end_load(f, stalled, "requests stalled by 200 halts of 30 ms at random instants");
}

static bool is_any_call(const struct halt_call *call)
{
    return call->number != SYS_epoll_pwait;
}

static void test_halts_at_system_calls_stall_nobody_else(void **state)
{
    enum { HALTS = 300, VERY_SHORT_MS = 12 };
    struct fixture *f = *state;
    unsigned stalled = 0;

    start_load(f);
    for (int i = 0; i < HALTS; i++) {
        if (i % 40 == 20) /* new sessions now and then */
            fault_proxy_reset_open(f->proxy_a);
        if (!halt_before_call(f->halt, is_any_call, FIND_MS))
            break;
        pass_ms(VERY_SHORT_MS);
        stalled += count_stalled(f, us_of_ms(VERY_SHORT_MS));
    }
    end_load(f, stalled, "requests stalled by 300 halts of 12 ms at system calls");
}

/* --- the end of the process --- */

struct last_caller {
    struct fixture *f;
    int status; /* what it got */
};

static void ask_or_stop(unsigned index, void *context)
{
    struct last_caller *caller = context;

    if (index == 0) { /* a caller whose answer nobody will bring */
        caller->status = status_of(caller->f, "/a/one");
    } else {
        pass_ms(100);
        weir_signal(caller->f->weir, SIGTERM);
    }
}

static void test_a_stop_signal_ends_weir_although_its_threads_are_halted(void **state)
{
    enum { DRAIN_MS = 2000, FEW_SECONDS_MS = 3000 };
    struct fixture *f = *state;
    struct last_caller caller = {.f = f};
    struct halt *other;
    struct instant from;

    weir_start(f->weir);
    assert_true(poll_until(a_answers, f, HEAL_MS));
    f->halt = halt_take(weir_pid(f->weir), "dep-a");
    other = halt_take(weir_pid(f->weir), "dep-b");
    assert_true(halt_now(f->halt) && halt_now(other));
    from = clock_now();
    crowd_run(2, ask_or_stop, &caller);
    assert_in_range(caller.status, 503, 504);
    assert_true(halt_reap(f->halt, DRAIN_MS + FEW_SECONDS_MS));
    assert_true(halt_reap(other, FEW_SECONDS_MS));
    halt_release(other);
    assert_int_equal(weir_wait(f->weir, 2000), 0);
    figure_at_most_us("SIGTERM to exit 0 beside two halted threads",
                      instant_span_us(from, clock_now()), us_of_ms(DRAIN_MS + FEW_SECONDS_MS), 0);
}

/* An argument names the tests to run, with * for any text. */
int main(int argc, char **argv)
{
#define IN_PLACE(test) cmocka_unit_test_teardown(test, clean_up)
    const struct CMUnitTest tests[] = {
        IN_PLACE(test_a_halt_at_a_turn_of_its_loop_stays_in_its_compartment),
        IN_PLACE(test_a_halt_in_connect_stays_in_its_compartment),
        IN_PLACE(test_a_halt_in_cancel_stays_in_its_compartment),
        IN_PLACE(test_a_halt_in_row_writing_stays_in_its_compartment),
        IN_PLACE(test_a_halt_before_a_wake_up_stays_in_its_compartment),
        IN_PLACE(test_halts_at_random_instants_stall_nobody_else),
        IN_PLACE(test_halts_at_system_calls_stall_nobody_else),
        IN_PLACE(test_a_stop_signal_ends_weir_although_its_threads_are_halted),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

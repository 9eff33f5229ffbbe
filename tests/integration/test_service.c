/* weir as a service: its health on both ports, its metrics and status, the switch of a breaker, and
 * how it ends. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "crowd.h"
#include "exchange.h"
#include "patience.h"
#include "scratch.h"

static const struct weir_file files[] = {
    {"hard.sql", "-- GET /hard\nSELECT 1 AS a\n"},
    {"sleep.sql", "-- GET /sleep\n-- @param s float8\n-- @result value\nSELECT tick('sleep') FROM "
                  "pg_sleep(:s)\n"},
    {NULL, NULL},
};

struct fixture {
    struct private_postgres *pg;
    struct weir_process *weir;
};

/* "spare" has no route: soft. */
static struct weir_process *service_create(const struct fixture *f, const char *server)
{
    char *conninfo = private_postgres_conninfo(f->pg, 0);
    char *dependencies = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\", \"bulkhead\": "
        "{\"max_concurrent\": 2}},"
        " \"spare\": {\"kind\": \"postgres\", \"conninfo\": \"%s\", \"access\": \"read\"}}",
        conninfo, conninfo);
    struct weir_process *weir = weir_create(
        &(struct weir_setup){.dependencies = dependencies, .files = files, .server = server});

    free(dependencies);
    free(conninfo);
    return weir;
}

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

static int start_usual(void **state)
{
    struct fixture *f = *state;

    f->weir = service_create(f, NULL);
    weir_start(f->weir);
    assert_true(exchange_is_healthy_within(f->weir, 15000));
    return 0;
}

static int stop_usual(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(weir_stop(f->weir, 20000), 0);
    weir_destroy(f->weir);
    return 0;
}

static void set_mode(const struct fixture *f, const char *dependency, const char *mode)
{
    char *path = scratch_format("/breakers/%s", dependency);
    char *body = scratch_format("{\"mode\":\"%s\"}", mode);
    struct http_answer answer =
        exchange_ask_admin(f->weir, &(struct exchange){.path = path, .body = body});

    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    free(body);
    free(path);
}

/* --- health --- */

static void expect_health(const struct fixture *f, int status, const char *word)
{
    char *expected = scratch_format("{\"status\":\"%s\"", word);
    struct http_answer main_port = exchange_ask(f->weir, &(struct exchange){.path = "/health"});
    struct http_answer admin = exchange_ask_admin(f->weir, &(struct exchange){.path = "/health"});
    char *type = http_answer_header(&main_port, "Content-Type");

    assert_int_equal(main_port.status, status);
    assert_int_equal(admin.status, status);
    assert_int_equal(strncmp(main_port.body, expected, strlen(expected)), 0);
    assert_int_equal(strncmp(admin.body, expected, strlen(expected)), 0);
    assert_string_equal(type, "application/health+json");
    /* Words only on the port of the callers; the operator's says more. */
    assert_null(strstr(main_port.body, "observedValue"));
    assert_null(strstr(main_port.body, "affectedEndpoints"));
    assert_non_null(strstr(admin.body, "\"observedValue\""));
    assert_non_null(strstr(admin.body, "\"affectedEndpoints\":[\"GET /hard\""));
    free(type);
    http_answer_fini(&admin);
    http_answer_fini(&main_port);
    free(expected);
}

static void test_health_passes_warns_and_fails_with_its_dependencies(void **state)
{
    struct fixture *f = *state;

    expect_health(f, 200, "pass");
    set_mode(f, "spare", "forced-open");
    expect_health(f, 200, "warn");
    set_mode(f, "primary", "forced-open");
    expect_health(f, 503, "fail");
    assert_int_equal(exchange_status(f->weir, "GET", "/hard"), 503);
    /* Neither restarting weir nor leaving it out would help. */
    assert_int_equal(exchange_status(f->weir, "GET", "/health/live"), 200);
    assert_int_equal(exchange_status(f->weir, "GET", "/health/ready"), 200);
    set_mode(f, "primary", "auto");
    set_mode(f, "spare", "auto");
    expect_health(f, 200, "pass");
    assert_int_equal(exchange_status(f->weir, "GET", "/hard"), 200);
}

static bool is_unready(void *context)
{
    const struct fixture *f = context;

    (void)exchange_status(f->weir, "GET", "/hard"); /* and is refused */
    return exchange_status(f->weir, "GET", "/health/ready") == 503;
}

static void hold(unsigned index, void *context)
{
    const struct fixture *f = context;
    int64_t end_ms = exchange_now_ms() + 15000;

    (void)index;
    while (exchange_now_ms() < end_ms)
        (void)exchange_status(f->weir, "GET", "/sleep?s=1.5");
}

static void saturate(unsigned index, void *context)
{
    int64_t *ready_for_ms = ((void **)context)[1];
    struct fixture *f = ((void **)context)[0];
    int64_t start_ms = exchange_now_ms();

    if (index < 8) { /* four callers for each permit: hardly a request is served */
        hold(index, f);
        return;
    }
    if (poll_until(is_unready, f, 15000))
        *ready_for_ms = exchange_now_ms() - start_ms;
}

static void test_readiness_falls_after_ten_seconds_of_refusing(void **state)
{
    struct fixture *f = *state;
    int64_t ready_for_ms = -1;
    void *context[] = {f, &ready_for_ms};

    crowd_run(9, saturate, context);
    print_message("[figure] saturated: ready for %lld ms (limit: 9000 to 15000)\n",
                  (long long)ready_for_ms);
    assert_true(ready_for_ms >= 9000 && ready_for_ms <= 15000);
    assert_int_equal(exchange_status(f->weir, "GET", "/health/live"), 200);
}

/* --- metrics and status --- */

static bool is_sample_line(const char *line, size_t size)
{
    const char *space = memrchr(line, ' ', size);
    char *end;

    if (space == NULL || (strncmp(line, "weir_", 5) != 0 && strncmp(line, "process_", 8) != 0))
        return false;
    (void)strtod(space + 1, &end);
    return end == line + size;
}

static void test_metrics_parse_and_their_gauges_are_the_truth_at_rest(void **state)
{
    static const char *const states[] = {"closed", "open", "half-open"};
    struct fixture *f = *state;
    struct http_answer answer;
    double one_hot = 0;

    for (int i = 0; i < 20; i++)
        assert_int_equal(exchange_status(f->weir, "GET", "/hard"), 200);
    answer = exchange_ask_admin(f->weir, &(struct exchange){.path = "/metrics"});
    for (const char *line = answer.body; *line != '\0';) {
        size_t size = strcspn(line, "\n");

        if (line[0] != '#' && !is_sample_line(line, size))
            fail_msg("not a sample: %.*s", (int)size, line);
        line += size + (line[size] != '\0' ? 1 : 0);
    }
    http_answer_fini(&answer);
    for (size_t i = 0; i < 3; i++) {
        char *labels = scratch_format("dependency=\"primary\",state=\"%s\"", states[i]);
        double value = weir_metric(f->weir, "weir_breaker_state", labels);

        one_hot += value > 0 ? value : 0;
        free(labels);
    }
    assert_int_equal((int)one_hot, 1);
    assert_int_equal((int)weir_metric(f->weir, "weir_bulkhead_limit", "dependency=\"primary\""), 2);
    assert_true(weir_metric_reaches(f->weir, "weir_bulkhead_in_use", "", 0, 2000));
    assert_true(weir_metric_reaches(f->weir, "weir_bulkhead_queued", "", 0, 2000));
    assert_true(weir_metric_reaches(f->weir, "weir_connections", "state=\"busy\"", 0, 2000));
    assert_int_equal((int)weir_metric(f->weir, "weir_connections", "state=\"idle\""),
                     (int)private_postgres_sessions(f->pg));
    assert_int_equal(
        (int)weir_metric(f->weir, "weir_http_requests_total", "route=\"GET /hard\",status=\"200\""),
        20);
    assert_true(weir_metric_reaches(f->weir, "weir_http_connections", "", 0, 2000));
}

static void test_status_is_json_that_names_every_part(void **state)
{
    static const char *const members[] = {"version", "uptime_s", "dependencies",
                                          "routes",  "threads",  "memory"};
    struct fixture *f = *state;
    struct http_answer answer = exchange_ask_admin(f->weir, &(struct exchange){.path = "/status"});
    json_t *status = exchange_json(&answer);

    assert_int_equal(answer.status, 200);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        assert_non_null(json_object_get(status, members[i]));
    assert_int_equal(json_array_size(json_object_get(status, "dependencies")), 2);
    assert_null(strstr(answer.body, "SELECT"));
    assert_null(strstr(answer.body, "host="));
    json_decref(status);
    http_answer_fini(&answer);
}

/* --- the switch of a breaker --- */

static void test_a_breaker_is_switched_only_by_a_proper_post(void **state)
{
    static const struct {
        const char *method, *path, *headers, *body;
        int status;
    } rows[] = {
        {"GET", "/breakers/primary", NULL, NULL, 405},
        {"POST", "/breakers/primary", "Content-Type: text/plain", "{\"mode\":\"forced-open\"}",
         415},
        {"POST", "/breakers/primary", "Content-Type: application/x-www-form-urlencoded",
         "{\"mode\":\"forced-open\"}", 415},
        {"POST", "/breakers/primary", "Host: evil.example.com", "{\"mode\":\"forced-open\"}", 403},
        {"POST", "/breakers/primary", NULL, "{\"mode\":\"shadow\"}", 400},
        {"POST", "/breakers/primary", NULL, "{\"mode\":\"open\"}", 400},
        {"POST", "/breakers/primary", NULL, "{\"mode\":", 400},
        {"POST", "/breakers/primary", NULL, "{}", 400},
        {"POST", "/breakers/nobody", NULL, "{\"mode\":\"auto\"}", 404},
        {"POST", "/metrics", NULL, "{}", 405},
        {"GET", "/nothing", NULL, NULL, 404},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct http_answer answer =
            exchange_ask_admin(f->weir, &(struct exchange){rows[i].method, rows[i].path,
                                                           rows[i].headers, rows[i].body});

        if (answer.status != rows[i].status)
            fail_msg("row %zu: %d %s", i, answer.status, answer.body);
        http_answer_fini(&answer);
    }
    assert_int_equal(exchange_status(f->weir, "GET", "/hard"), 200);
    set_mode(f, "primary", "forced-open");
    assert_int_equal(exchange_status(f->weir, "GET", "/hard"), 503);
    set_mode(f, "primary", "auto");
    assert_int_equal(exchange_status(f->weir, "GET", "/hard"), 200);
    assert_true(weir_log_has_within(f->weir, "\"event\":\"breaker_mode\"", 2000));
}

/* --- at rest as before --- */

static bool has_as_many(void *context)
{
    const int64_t *before = ((void **)context)[1];
    const struct fixture *f = ((void **)context)[0];

    return weir_fd_count(f->weir) <= before[0] && weir_thread_count(f->weir) == before[1];
}

static void test_files_and_threads_at_rest_are_as_many_as_before(void **state)
{
    struct fixture *f = *state;
    struct http_client *client = http_client_create();
    char *url = weir_url(f->weir, "/hard");
    int64_t before[2];
    void *context[] = {f, before};

    for (int i = 0; i < 50; i++)
        assert_int_equal(exchange_status(f->weir, "GET", "/hard"), 200);
    before[0] = weir_fd_count(f->weir);
    before[1] = weir_thread_count(f->weir);
    for (int i = 0; i < 1000; i++) {
        struct http_answer answer = http_client_ask(client, &(struct http_request){.url = url});

        http_answer_fini(&answer);
        if (i % 100 == 0)
            private_postgres_exec(f->pg, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                         "WHERE usename = 'app'");
    }
    http_client_destroy(client);
    assert_true(poll_until(has_as_many, context, 10000));
    print_message("[figure] after 1,000 requests and 10 reconnects: %lld descriptors (before: "
                  "%lld), %lld threads (before: %lld)\n",
                  (long long)weir_fd_count(f->weir), (long long)before[0],
                  (long long)weir_thread_count(f->weir), (long long)before[1]);
    assert_true(exchange_is_healthy_within(f->weir, 10000));
    free(url);
}

/* --- the end --- */

struct sleeper {
    const struct fixture *f;
    const char *path;
    struct http_answer answer;
};

static bool sleeps(void *context)
{
    const struct sleeper *sleeper = context;

    return private_postgres_number(sleeper->f->pg,
                                   "SELECT count(*) FROM pg_stat_activity WHERE wait_event = "
                                   "'PgSleep' AND query LIKE '%sleep%'") > 0;
}

static void be_drained(unsigned index, void *context)
{
    struct sleeper *sleeper = context;

    if (index == 0) {
        sleeper->answer = exchange_ask(sleeper->f->weir, &(struct exchange){.path = sleeper->path});
        return;
    }
    assert_true(poll_until(sleeps, sleeper, 5000));
    weir_signal(sleeper->f->weir, SIGTERM);
}

static void test_a_drain_ends_what_is_under_way_and_closes_what_is_idle(void **state)
{
    struct fixture *f = *state;
    struct sleeper sleeper = {.f = f, .path = "/sleep?s=1"};
    int64_t start_ms;
    char *closes;
    int idle, code;

    f->weir = service_create(f, NULL);
    weir_start(f->weir);
    assert_true(exchange_is_healthy_within(f->weir, 15000));
    idle = raw_connect(weir_port(f->weir));
    assert_true(raw_send(idle, "GET /hard HTTP/1.1\r\nHost: x\r\n\r\n"));
    free(raw_read_answer(idle, 5000));
    start_ms = exchange_now_ms();
    crowd_run(2, be_drained, &sleeper);
    closes = http_answer_header(&sleeper.answer, "Connection");
    assert_int_equal(sleeper.answer.status, 200);
    assert_non_null(closes);
    assert_string_equal(closes, "close");
    assert_true(raw_is_closed_within(idle, 2000));
    code = weir_wait(f->weir, 10000);
    print_message("[figure] drained within %lld ms (limit: 10000), exit %d\n",
                  (long long)(exchange_now_ms() - start_ms), code);
    assert_int_equal(code, 0);
    assert_true(weir_log_count(f->weir, "\"event\":\"stopped\"") == 1);
    assert_true(weir_log_count(f->weir, "\"drained\":true") == 1);
    raw_close(idle);
    free(closes);
    http_answer_fini(&sleeper.answer);
    weir_destroy(f->weir);
}

static bool says_draining(void *context)
{
    const struct fixture *f = context;

    return exchange_status(f->weir, "GET", "/health/ready") == 503;
}

static void test_during_the_drain_delay_readiness_falls_and_requests_are_served(void **state)
{
    struct fixture *f = *state;
    struct http_answer answer;
    int64_t start_ms;
    char *closes;

    f->weir = service_create(f, "\"drain_delay\": \"2s\"");
    weir_start(f->weir);
    assert_true(exchange_is_healthy_within(f->weir, 15000));
    start_ms = exchange_now_ms();
    weir_signal(f->weir, SIGTERM);
    assert_true(poll_until(says_draining, f, 1500));
    answer = exchange_ask(f->weir, &(struct exchange){.path = "/hard"});
    closes = http_answer_header(&answer, "Connection");
    assert_int_equal(answer.status, 200);
    assert_string_equal(closes, "close");
    assert_int_equal(exchange_status(f->weir, "GET", "/health"), 503);
    assert_int_equal(exchange_status(f->weir, "GET", "/health/live"), 200);
    assert_int_equal(weir_wait(f->weir, 10000), 0);
    assert_true(exchange_now_ms() - start_ms >= 2000);
    free(closes);
    http_answer_fini(&answer);
    weir_destroy(f->weir);
}

static void stop_twice(unsigned index, void *context)
{
    struct sleeper *sleeper = context;

    be_drained(index, context);
    if (index == 1) {
        assert_true(weir_log_has_within(sleeper->f->weir, "\"event\":\"draining\"", 2000));
        weir_signal(sleeper->f->weir, SIGTERM);
    }
}

static void test_a_second_signal_stops_at_once(void **state)
{
    struct fixture *f = *state;
    struct sleeper sleeper = {.f = f, .path = "/sleep?s=1.9"};

    f->weir = service_create(f, NULL);
    weir_start(f->weir);
    assert_true(exchange_is_healthy_within(f->weir, 15000));
    crowd_run(2, stop_twice, &sleeper);
    print_message("[figure] told twice: the call of 1900 ms was left after %lld ms\n",
                  (long long)(sleeper.answer.elapsed_us / 1000));
    assert_int_equal(sleeper.answer.status, 0);
    assert_int_equal(weir_wait(f->weir, 1000), 0);
    http_answer_fini(&sleeper.answer);
    weir_destroy(f->weir);
}

static void test_a_drain_during_an_outage_ends_in_time(void **state)
{
    struct fixture *f = *state;
    int64_t start_ms;

    f->weir = service_create(f, NULL);
    weir_start(f->weir);
    assert_true(exchange_is_healthy_within(f->weir, 15000));
    private_postgres_freeze(f->pg);
    start_ms = exchange_now_ms();
    assert_int_equal(weir_stop(f->weir, 10000), 0);
    print_message("[figure] drained in an outage within %lld ms (limit: 10000)\n",
                  (long long)(exchange_now_ms() - start_ms));
    private_postgres_thaw(f->pg);
    weir_destroy(f->weir);
}

#define USUAL(test) cmocka_unit_test_setup_teardown(test, start_usual, stop_usual)

int main(void)
{
    const struct CMUnitTest tests[] = {
        USUAL(test_health_passes_warns_and_fails_with_its_dependencies),
        USUAL(test_readiness_falls_after_ten_seconds_of_refusing),
        USUAL(test_metrics_parse_and_their_gauges_are_the_truth_at_rest),
        USUAL(test_status_is_json_that_names_every_part),
        USUAL(test_a_breaker_is_switched_only_by_a_proper_post),
        USUAL(test_files_and_threads_at_rest_are_as_many_as_before),
        cmocka_unit_test(test_a_drain_ends_what_is_under_way_and_closes_what_is_idle),
        cmocka_unit_test(test_during_the_drain_delay_readiness_falls_and_requests_are_served),
        cmocka_unit_test(test_a_second_signal_stops_at_once),
        cmocka_unit_test(test_a_drain_during_an_outage_ends_in_time),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}

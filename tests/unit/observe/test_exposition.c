#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "cmocka_all.h"
#include "observe/exposition.h"
#include "observe/metrics.h"
#include "observe/process.h"

/* Two routes, one dependency, two threads; `text` is what is exposed. */
struct fixture {
    struct metrics *metrics;
    struct admission admission;
    const struct admission *admissions[1];
    struct process_facts process;
    struct exposition exposition;
    struct buffer text;
};

static const char *const routes[] = {"GET /books/{id}", "POST /\"odd\\\n"};
static const char *const dependencies[] = {"primary"};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (f == NULL || (f->metrics = metrics_create(2, 1, 3)) == NULL) {
        free(f);
        return -1;
    }
    admission_init(&f->admission, 4, 2);
    f->admissions[0] = &f->admission;
    f->process = (struct process_facts){.cpu_us = 1500000,
                                        .started_wall_us = 1769860800250000,
                                        .resident_bytes = 4096,
                                        .virtual_bytes = 8192,
                                        .open_fds = 12,
                                        .max_fds = 1024};
    f->exposition = (struct exposition){.metrics = f->metrics,
                                        .route_labels = routes,
                                        .dependency_names = dependencies,
                                        .admissions = f->admissions,
                                        .process = &f->process,
                                        .version = "1.2.3",
                                        .http_connections = 7,
                                        .log_dropped_count = 3,
                                        .now = {10000000}};
    buffer_init(&f->text, 1 << 20);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    buffer_fini(&f->text);
    metrics_destroy(f->metrics);
    free(f);
    return 0;
}

static const char *expose(struct fixture *f)
{
    buffer_clear(&f->text);
    exposition_write(&f->text, &f->exposition);
    buffer_append_char(&f->text, '\0');
    assert_false(f->text.failed);
    return f->text.data;
}

/* `line` is there, whole. */
static bool has_line(const char *text, const char *line)
{
    size_t size = strlen(line);

    for (const char *at = text; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, line, size) == 0 && at[size] == '\n')
            return true;
    }
    return false;
}

static void test_each_metric_of_the_table_has_help_and_type(void **state)
{
    static const struct {
        const char *name, *type, *help;
    } table[] = {
#define ROW(code, name, type, help) {name, type, help},
        METRIC_TABLE(ROW)
#undef ROW
    };
    const char *text = expose(*state);
    char line[300];

    for (size_t i = 0; i < METRIC_COUNT; i++) {
        (void)snprintf(line, sizeof line, "# HELP %s %s", table[i].name, table[i].help);
        assert_true(has_line(text, line));
        (void)snprintf(line, sizeof line, "# TYPE %s %s", table[i].name, table[i].type);
        assert_true(has_line(text, line));
        assert_int_equal(strcmp(table[i].type, "counter") == 0,
                         strstr(table[i].name, "_total") != NULL);
    }
}

static void test_at_rest_bounded_series_are_there_and_the_others_are_not(void **state)
{
    static const char *const there[] = {
        "weir_build_info{version=\"1.2.3\"} 1",
        "weir_http_connections 7",
        "weir_log_dropped_total 3",
        "weir_dependency_calls_total{dependency=\"primary\",outcome=\"ok\"} 0",
        "weir_dependency_calls_total{dependency=\"primary\",outcome=\"hang-up\"} 0",
        "weir_dependency_call_duration_seconds_count{dependency=\"primary\"} 0",
        "weir_breaker_state{dependency=\"primary\",state=\"closed\"} 1",
        "weir_breaker_state{dependency=\"primary\",state=\"open\"} 0",
        "weir_breaker_state{dependency=\"primary\",state=\"half-open\"} 0",
        "weir_breaker_transitions_total{dependency=\"primary\",to=\"open\"} 0",
        "weir_bulkhead_in_use{dependency=\"primary\"} 0",
        "weir_bulkhead_limit{dependency=\"primary\"} 4",
        "weir_bulkhead_queued{dependency=\"primary\"} 0",
        "weir_bulkhead_refused_total{dependency=\"primary\",reason=\"breaker-open\"} 0",
        "weir_bulkhead_refused_total{dependency=\"primary\",reason=\"bulkhead-full\"} 0",
        "weir_bulkhead_refused_total{dependency=\"primary\",reason=\"queue-timeout\"} 0",
        "weir_connections{dependency=\"primary\",state=\"idle\"} 0",
        "weir_connections{dependency=\"primary\",state=\"busy\"} 0",
        "weir_connections{dependency=\"primary\",state=\"opening\"} 0",
        "weir_connects_total{dependency=\"primary\",result=\"ok\"} 0",
        "weir_connects_total{dependency=\"primary\",result=\"failed\"} 0",
        "weir_cancels_total{dependency=\"primary\",result=\"delivered\"} 0",
        "weir_cancels_total{dependency=\"primary\",result=\"failed\"} 0",
        "weir_probes_total{dependency=\"primary\",result=\"ok\"} 0",
        "weir_probes_total{dependency=\"primary\",result=\"failed\"} 0",
        "weir_cache_bytes 0",
        "weir_cache_limit_bytes 0",
        "weir_cache_entries 0",
        "weir_cache_lookups_total{result=\"hit\"} 0",
        "weir_cache_lookups_total{result=\"stale\"} 0",
        "weir_cache_lookups_total{result=\"miss\"} 0",
        "process_cpu_seconds_total 1.500000",
        "process_start_time_seconds 1769860800.250000",
        "process_resident_memory_bytes 4096",
        "process_virtual_memory_bytes 8192",
        "process_open_fds 12",
        "process_max_fds 1024",
    };
    const char *text = expose(*state);

    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++)
        assert_true(has_line(text, there[i]));
    assert_null(strstr(text, "weir_http_requests_total{"));
    assert_null(strstr(text, "weir_answers_total{"));
    assert_null(strstr(text, "weir_http_request_duration_seconds_bucket{"));
    assert_null(strstr(text, "outcome=\"deadline\""));
}

static void test_a_request_shows_in_its_three_metrics(void **state)
{
    struct fixture *f = *state;
    const char *text;

    route_metrics_count(&f->metrics->routes[0], 0, 503, SERVED_ERROR, REASON_BREAKER_OPEN, 700);
    text = expose(f);
    assert_true(has_line(text, "weir_http_requests_total{route=\"GET /books/{id}\",method=\"GET\","
                               "status=\"503\"} 1"));
    assert_true(has_line(text, "weir_answers_total{route=\"GET /books/{id}\",served=\"error\","
                               "reason=\"breaker-open\"} 1"));
    assert_true(has_line(text, "weir_http_request_duration_seconds_sum{route=\"GET /books/{id}\"}"
                               " 0.000700"));
}

static void test_every_way_to_answer_shows_with_its_reason(void **state)
{
    static const struct {
        enum served served;
        enum reason reason;
        const char *labels;
    } cases[] = {
        {SERVED_LIVE, REASON_NONE, "served=\"live\",reason=\"none\""},
        {SERVED_STORED, REASON_NONE, "served=\"stored\",reason=\"none\""},
        {SERVED_STALE, REASON_BREAKER_OPEN, "served=\"stale\",reason=\"breaker-open\""},
        {SERVED_FALLBACK, REASON_DEADLINE, "served=\"fallback\",reason=\"deadline\""},
        {SERVED_ERROR, REASON_CONSTRAINT, "served=\"error\",reason=\"constraint\""},
    };
    struct fixture *f = *state;
    const char *text;
    char line[200];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        route_metrics_count(&f->metrics->routes[0], 0, 200, cases[i].served, cases[i].reason, 1);
    route_metrics_count(&f->metrics->routes[0], 0, 304, SERVED_STORED, REASON_NONE, 1);
    text = expose(f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(line, sizeof line, "weir_answers_total{route=\"GET /books/{id}\",%s} %d",
                       cases[i].labels, cases[i].served == SERVED_STORED ? 2 : 1);
        assert_true(has_line(text, line));
    }
    assert_true(has_line(text, "weir_http_requests_total{route=\"GET /books/{id}\",method=\"GET\","
                               "status=\"304\"} 1"));
}

static void test_the_cache_shows_its_size_and_its_use(void **state)
{
    struct fixture *f = *state;
    const char *text;

    f->exposition.cache = (struct cache_facts){
        .bytes = 4711,
        .max_bytes = 67108864,
        .entries = 12,
        .lookups = {[CACHE_LOOKUP_HIT] = 100, [CACHE_LOOKUP_STALE] = 20, [CACHE_LOOKUP_MISS] = 3}};
    text = expose(f);
    assert_true(has_line(text, "weir_cache_bytes 4711"));
    assert_true(has_line(text, "weir_cache_limit_bytes 67108864"));
    assert_true(has_line(text, "weir_cache_entries 12"));
    assert_true(has_line(text, "weir_cache_lookups_total{result=\"hit\"} 100"));
    assert_true(has_line(text, "weir_cache_lookups_total{result=\"stale\"} 20"));
    assert_true(has_line(text, "weir_cache_lookups_total{result=\"miss\"} 3"));
}

static void test_buckets_add_up_to_the_count(void **state)
{
    struct fixture *f = *state;
    struct histogram *h = &f->metrics->dependencies[0].duration;
    const char *text;

#define PREFIX "weir_dependency_call_duration_seconds"
    histogram_observe(h, 400);
    histogram_observe(h, 900);
    histogram_observe(h, 60000000);
    text = expose(f);
    assert_true(has_line(text, PREFIX "_bucket{dependency=\"primary\",le=\"0.0005\"} 1"));
    assert_true(has_line(text, PREFIX "_bucket{dependency=\"primary\",le=\"0.001\"} 2"));
    assert_true(has_line(text, PREFIX "_bucket{dependency=\"primary\",le=\"10\"} 2"));
    assert_true(has_line(text, PREFIX "_bucket{dependency=\"primary\",le=\"+Inf\"} 3"));
    assert_true(has_line(text, PREFIX "_count{dependency=\"primary\"} 3"));
    assert_true(has_line(text, PREFIX "_sum{dependency=\"primary\"} 60.001300"));
#undef PREFIX
}

static void test_unmatched_requests_and_odd_statuses_have_words(void **state)
{
    struct fixture *f = *state;

    route_metrics_count(&f->metrics->routes[2], 6, 299, SERVED_LIVE, REASON_NONE, 1);
    assert_true(has_line(expose(f), "weir_http_requests_total{route=\"none\",method=\"OPTIONS\","
                                    "status=\"other\"} 1"));
}

static void test_label_values_are_escaped(void **state)
{
    struct fixture *f = *state;

    route_metrics_count(&f->metrics->routes[1], 2, 200, SERVED_LIVE, REASON_NONE, 1);
    assert_true(has_line(expose(f), "weir_http_requests_total{route=\"POST /\\\"odd\\\\\\n\","
                                    "method=\"POST\",status=\"200\"} 1"));
}

static void test_the_breaker_and_the_bulkhead_show_the_admission_word(void **state)
{
    struct fixture *f = *state;
    struct ticket ticket;
    const char *text;

    assert_int_equal(admission_ask(&f->admission, &ticket), ADMIT_RUN);
    (void)admission_publish(&f->admission, BREAKER_OPEN, 0, (struct instant){0});
    text = expose(f);
    assert_true(has_line(text, "weir_bulkhead_in_use{dependency=\"primary\"} 1"));
    assert_true(has_line(text, "weir_breaker_state{dependency=\"primary\",state=\"open\"} 1"));
    assert_true(has_line(text, "weir_breaker_state{dependency=\"primary\",state=\"closed\"} 0"));
}

static void test_a_stuck_loop_shows_for_how_long(void **state)
{
    struct fixture *f = *state;
    struct thread_metrics *threads = f->metrics->threads;
    const char *text;

    (void)snprintf(threads[0].name, sizeof threads[0].name, "worker-0");
    (void)snprintf(threads[1].name, sizeof threads[1].name, "worker-1");
    counter_set(&threads[0].loop_lag_us, 250);
    counter_set(&threads[0].heartbeat_us, 9500000);
    counter_set(&threads[1].loop_lag_us, 250);
    counter_set(&threads[1].heartbeat_us, 3000000);
    text = expose(f);
    assert_true(has_line(text, "weir_loop_lag_seconds{thread=\"worker-0\"} 0.000250"));
    assert_true(has_line(text, "weir_loop_lag_seconds{thread=\"worker-1\"} 6.000000"));
    assert_null(strstr(text, "thread=\"\""));
}

static void test_a_limit_fails_instead_of_cutting_silently(void **state)
{
    struct fixture *f = *state;
    struct buffer small;

    buffer_init(&small, 1000);
    exposition_write(&small, &f->exposition);
    assert_true(small.failed);
    buffer_fini(&small);
}

static void test_the_process_knows_itself(void **state)
{
    struct process_facts facts;

    (void)state;
    process_read(&facts, 42);
    assert_int_equal(facts.started_wall_us, 42);
    assert_true(facts.resident_bytes > 0 && facts.virtual_bytes >= facts.resident_bytes);
    assert_true(facts.open_fds >= 3 && facts.open_fds <= facts.max_fds);
    assert_true(facts.cpu_us >= 0);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_each_metric_of_the_table_has_help_and_type),
        WITH_FIXTURE(test_at_rest_bounded_series_are_there_and_the_others_are_not),
        WITH_FIXTURE(test_a_request_shows_in_its_three_metrics),
        WITH_FIXTURE(test_every_way_to_answer_shows_with_its_reason),
        WITH_FIXTURE(test_the_cache_shows_its_size_and_its_use),
        WITH_FIXTURE(test_buckets_add_up_to_the_count),
        WITH_FIXTURE(test_unmatched_requests_and_odd_statuses_have_words),
        WITH_FIXTURE(test_label_values_are_escaped),
        WITH_FIXTURE(test_the_breaker_and_the_bulkhead_show_the_admission_word),
        WITH_FIXTURE(test_a_stuck_loop_shows_for_how_long),
        WITH_FIXTURE(test_a_limit_fails_instead_of_cutting_silently),
        cmocka_unit_test(test_the_process_knows_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

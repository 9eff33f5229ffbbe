#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cmocka_all.h"
#include "config/config.h"
#include "dep/dependency.h"
#include "observe/metrics.h"
#include "query/catalog.h"
#include "query/route.h"
#include "web/admin_site_internal.h"
#include "web/service.h"

/* A service of two routes on one dependency and two workers, as the threads would publish it. */
struct fixture {
    struct config config;
    struct dependency_config dependency_config;
    struct dependency dependency;
    struct dependency *dependencies[1];
    struct catalog catalog;
    struct route routes[2];
    struct service service;
    struct admin_site *site;
    struct admin_question question;
    struct admin_reply reply;
};

static char address[] = "127.0.0.1";
static char dependency_name[] = "primary";
static char conninfo[] = "host=db password=hunter2";
static char first_label[] = "GET /books";
static char second_label[] = "GET /books/{id}";

static void fill_config(struct fixture *f)
{
    f->routes[0] = (struct route){.id = 0, .label = first_label};
    f->routes[1] = (struct route){.id = 1, .label = second_label, .is_cached = true};
    f->catalog = (struct catalog){.routes = f->routes, .route_count = 2};
    f->dependency_config.name = dependency_name;
    f->dependency_config.conninfo = conninfo;
    f->config.server.workers = 2;
    f->config.server.max_memory_bytes = 1000;
    f->config.admin.address = address;
    f->config.dependencies = &f->dependency_config;
    f->config.dependency_count = 1;
    f->config.catalog = &f->catalog;
}

static void fill_service(struct fixture *f)
{
    static const char *const threads[] = {"worker-0", "worker-1", "acceptor", "admin"};

    f->dependency.name = dependency_name;
    f->dependency.config = &f->dependency_config;
    f->dependency.metrics = &f->service.metrics->dependencies[0];
    admission_init(&f->dependency.admission, 4, 2);
    counter_set(&f->dependency.metrics->is_reached, 1);
    f->dependencies[0] = &f->dependency;
    f->service.config = &f->config;
    f->service.dependencies = f->dependencies;
    f->service.started_wall_us = 1769860800000000;
    for (size_t i = 0; i < 4; i++)
        (void)snprintf(f->service.metrics->threads[i].name, 32, "%s", threads[i]);
}

static void cancel(void *call, bool is_hang_up)
{
    (void)call;
    (void)is_hang_up;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->service.metrics = metrics_create(2, 1, 4);
    f->service.cache = cache_create(1 << 20, 2, 2, cancel);
    assert_non_null(f->service.metrics);
    assert_non_null(f->service.cache);
    fill_config(f);
    fill_service(f);
    f->site = admin_site_create(&f->service, (struct instant){1000000});
    f->question = (struct admin_question){.method = "GET",
                                          .path = "/",
                                          .host = "127.0.0.1:8081",
                                          .now = {2000000},
                                          .wall_us = 1769860802000000};
    *state = f;
    return f->site != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    buffer_fini(&f->reply.body);
    admin_site_destroy(f->site);
    metrics_destroy(f->service.metrics);
    cache_destroy(f->service.cache);
    free(f);
    return 0;
}

/* The reply's body, until the next question. */
static const char *ask(struct fixture *f, const char *method, const char *path)
{
    buffer_fini(&f->reply.body);
    f->question.method = method;
    f->question.path = path;
    admin_site_answer(f->site, &f->question, &f->reply);
    buffer_append_char(&f->reply.body, '\0');
    return f->reply.body.data;
}

static const char *post(struct fixture *f, const char *path, const char *body)
{
    f->question.content_type = "application/json; charset=utf-8";
    f->question.body = body;
    f->question.body_bytes = strlen(body);
    return ask(f, "POST", path);
}

static void test_health_says_what_why_and_for_whom(void **state)
{
    struct fixture *f = *state;
    const char *body = ask(f, "GET", "/health");

    assert_int_equal(f->reply.status, 200);
    assert_string_equal(f->reply.media_type, "application/health+json");
    assert_non_null(strstr(body, "\"status\":\"pass\""));
    assert_non_null(strstr(body, "\"affectedEndpoints\":[\"GET /books\",\"GET /books/{id}\"]"));

    (void)admission_publish(&f->dependency.admission, BREAKER_OPEN, 0, (struct instant){0});
    body = ask(f, "GET", "/health");
    assert_int_equal(f->reply.status, 503);
    assert_non_null(strstr(body, "\"observedValue\":\"open\""));
}

static void test_liveness_fails_only_when_a_worker_has_not_turned_for_5_s(void **state)
{
    struct fixture *f = *state;
    struct thread_metrics *threads = f->service.metrics->threads;

    (void)admission_publish(&f->dependency.admission, BREAKER_OPEN, 0, (struct instant){0});
    f->service.is_draining = true;
    f->question.now = (struct instant){20000000};
    counter_set(&threads[0].heartbeat_us, 19000000);
    counter_set(&threads[1].heartbeat_us, 15000000);
    assert_string_equal(ask(f, "GET", "/health/live"), "{\"status\":\"pass\"}");
    assert_int_equal(f->reply.status, 200);

    counter_set(&threads[1].heartbeat_us, 14999999);
    assert_string_equal(ask(f, "GET", "/health/live"),
                        "{\"status\":\"fail\",\"output\":\"the loop of worker-1 has not turned "
                        "for 5 s\"}");
    assert_int_equal(f->reply.status, 503);
}

static void test_a_worker_that_never_turned_has_5_s_from_the_start(void **state)
{
    struct fixture *f = *state;

    f->question.now = (struct instant){6000000};
    (void)ask(f, "GET", "/health/live");
    assert_int_equal(f->reply.status, 200);
    f->question.now = (struct instant){6000001};
    (void)ask(f, "GET", "/health/live");
    assert_int_equal(f->reply.status, 503);
}

static void test_readiness_falls_while_draining(void **state)
{
    struct fixture *f = *state;

    assert_string_equal(ask(f, "GET", "/health/ready"), "{\"status\":\"pass\"}");
    f->service.is_draining = true;
    assert_string_equal(ask(f, "HEAD", "/health/ready"),
                        "{\"status\":\"fail\",\"output\":\"draining\"}");
    assert_int_equal(f->reply.status, 503);
}

static void test_metrics_carry_the_labels_of_config_and_catalog(void **state)
{
    struct fixture *f = *state;
    const char *body;

    route_metrics_count(&f->service.metrics->routes[1], 0, 200, SERVED_LIVE, REASON_NONE, 5);
    f->service.connections = 9;
    body = ask(f, "GET", "/metrics");
    assert_int_equal(f->reply.status, 200);
    assert_string_equal(f->reply.media_type, "text/plain; version=0.0.4; charset=utf-8");
    assert_non_null(strstr(body, "{route=\"GET /books/{id}\",method=\"GET\",status=\"200\"} 1\n"));
    assert_non_null(strstr(body, "weir_bulkhead_limit{dependency=\"primary\"} 4\n"));
    assert_non_null(strstr(body, "weir_http_connections 9\n"));
    assert_non_null(strstr(body, "weir_cache_limit_bytes 1048576\n"));
    assert_non_null(strstr(body, "weir_cache_lookups_total{result=\"miss\"} 0\n"));
}

static json_t *status_of(struct fixture *f)
{
    json_error_t place;
    json_t *root = json_loads(ask(f, "GET", "/status"), JSON_REJECT_DUPLICATES, &place);

    assert_non_null(root);
    assert_int_equal(f->reply.status, 200);
    return root;
}

static void test_status_is_json_that_tells_the_guard(void **state)
{
    struct fixture *f = *state;
    struct ticket ticket;
    const json_t *primary;
    json_t *root;

    assert_int_equal(admission_ask(&f->dependency.admission, &ticket), ADMIT_RUN);
    (void)admission_publish(&f->dependency.admission, BREAKER_OPEN, 0, (struct instant){3500000});
    counter_set(&f->dependency.metrics->last_failure_reason, REASON_UNRESOLVED);
    counter_set(&f->dependency.metrics->last_failure_wall_us, 1769860801000000);
    root = status_of(f);
    primary = json_array_get(json_object_get(root, "dependencies"), 0);
    assert_string_equal(json_string_value(json_object_get(primary, "name")), "primary");
    assert_string_equal(json_string_value(json_object_get(primary, "state")), "open");
    assert_int_equal(json_integer_value(json_object_get(primary, "in_use")), 1);
    assert_true(json_real_value(json_object_get(primary, "retry_in_ms")) == 1500.0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(primary, "last_failure"), "reason")),
        "unresolved");
    assert_int_equal(json_integer_value(json_object_get(root, "uptime_s")), 2);
    json_decref(root);
}

static void test_status_counts_errors_of_routes_by_whose_they_are(void **state)
{
    struct fixture *f = *state;
    const json_t *route;
    json_t *root;

    route_metrics_count(&f->service.metrics->routes[0], 0, 200, SERVED_LIVE, REASON_NONE, 3000);
    route_metrics_count(&f->service.metrics->routes[0], 0, 404, SERVED_ERROR, REASON_NO_ROW, 0);
    route_metrics_count(&f->service.metrics->routes[0], 0, 503, SERVED_ERROR, REASON_DEADLINE, 0);
    root = status_of(f);
    route = json_array_get(json_object_get(root, "routes"), 0);
    assert_string_equal(json_string_value(json_object_get(route, "route")), "GET /books");
    assert_int_equal(json_integer_value(json_object_get(route, "requests")), 3);
    assert_int_equal(json_integer_value(json_object_get(route, "caller_errors")), 1);
    assert_int_equal(json_integer_value(json_object_get(route, "errors")), 1);
    assert_true(json_real_value(json_object_get(route, "mean_ms")) == 1.0);
    assert_int_equal(json_array_size(json_object_get(root, "routes")), 3);
    assert_int_equal(json_array_size(json_object_get(root, "threads")), 4);
    json_decref(root);
}

static void test_status_tells_the_cache(void **state)
{
    static const char *const counts[] = {"bytes", "entries", "hits", "stale", "misses"};
    json_t *root = status_of(*state);
    const json_t *cache = json_object_get(root, "cache");

    assert_int_equal(json_integer_value(json_object_get(cache, "max_bytes")), 1048576);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        assert_true(json_is_integer(json_object_get(cache, counts[i])));
    json_decref(root);
}

static void test_status_never_shows_how_to_connect(void **state)
{
    struct fixture *f = *state;

    assert_null(strstr(ask(f, "GET", "/status"), "hunter2"));
    assert_null(strstr(ask(f, "GET", "/status"), "host=db"));
}

static void test_unknown_paths_and_methods_are_problems(void **state)
{
    static const struct {
        const char *method, *path;
        int status;
        const char *allow;
    } cases[] = {
        {"GET", "/", 404, NULL},
        {"GET", "/health/", 404, NULL},
        {"GET", "/cache/purge", 405, "POST"},
        {"DELETE", "/cache/purge", 405, "POST"},
        {"POST", "/cache/purge/", 404, NULL},
        {"POST", "/cache", 404, NULL},
        {"POST", "/health", 405, "GET, HEAD"},
        {"OPTIONS", "/metrics", 405, "GET, HEAD"},
        {"get", "/status", 405, "GET, HEAD"},
        {"GET", "/breakers/primary", 405, "POST"},
        {"OPTIONS", "/breakers/primary", 405, "POST"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *body = ask(f, cases[i].method, cases[i].path);

        assert_int_equal(f->reply.status, cases[i].status);
        assert_string_equal(f->reply.media_type, "application/problem+json");
        assert_non_null(strstr(body, "\"instance\":\"admin-"));
        if (cases[i].allow == NULL)
            assert_null(f->reply.allow);
        else
            assert_string_equal(f->reply.allow, cases[i].allow);
    }
}

static void test_a_problem_bears_the_callers_request_id(void **state)
{
    struct fixture *f = *state;

    f->question.request_id = "abc-1";
    assert_non_null(strstr(ask(f, "GET", "/nope"), "\"instance\":\"abc-1\""));
    f->question.request_id = "no \"id\"";
    assert_non_null(strstr(ask(f, "GET", "/nope"), "\"instance\":\"admin-2\""));
}

static void test_a_mode_takes_effect_at_once(void **state)
{
    struct fixture *f = *state;
    struct ticket ticket;

    assert_string_equal(post(f, "/breakers/primary", "{\"mode\":\"forced-open\"}"),
                        "{\"name\":\"primary\",\"mode\":\"forced-open\",\"state\":\"closed\"}");
    assert_int_equal(f->reply.status, 200);
    assert_int_equal(admission_ask(&f->dependency.admission, &ticket), REFUSE_OPEN);
    (void)post(f, "/breakers/primary", "{\"mode\":\"auto\"}");
    assert_int_equal(admission_ask(&f->dependency.admission, &ticket), ADMIT_RUN);
}

static void test_a_wrong_change_changes_nothing(void **state)
{
    struct fixture *f = *state;

    (void)post(f, "/breakers/primary", "{\"mode\":\"nonsense\"}");
    assert_int_equal(f->reply.status, 400);
    assert_non_null(strstr(post(f, "/breakers/primary", "{\"mode\":\"shadow\"}"), "not supported"));
    assert_int_equal(f->reply.status, 400);
    (void)post(f, "/breakers/nope", "{\"mode\":\"forced-open\"}");
    assert_int_equal(f->reply.status, 404);
    (void)post(f, "/breakers/", "{\"mode\":\"forced-open\"}");
    assert_int_equal(f->reply.status, 404);
    assert_int_equal(admission_read(&f->dependency.admission).mode, BREAKER_AUTO);
}

static void test_a_purge_says_how_much_was_dropped(void **state)
{
    struct fixture *f = *state;

    assert_string_equal(post(f, "/cache/purge", "{}"), "{\"entries\":0}");
    assert_int_equal(f->reply.status, 200);
    assert_string_equal(f->reply.media_type, "application/json");
    assert_string_equal(post(f, "/cache/purge", "{\"route\":\"GET /books/{id}\"}"),
                        "{\"entries\":0}");
    assert_int_equal(f->reply.status, 200);
}

static void test_a_wrong_purge_is_a_problem(void **state)
{
    static const struct {
        const char *body;
        int status;
        const char *words;
    } cases[] = {
        {"", 400, "\"reason\":\"bad-body\""},
        {"{\"route\":\"GET /books\"}", 400, "no @cache"},
        {"{\"route\":\"GET /book/{id}\"}", 404, "did you mean \\\"GET /books/{id}\\\"?"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_non_null(strstr(post(f, "/cache/purge", cases[i].body), cases[i].words));
        assert_int_equal(f->reply.status, cases[i].status);
        assert_string_equal(f->reply.media_type, "application/problem+json");
    }
}

static void test_a_purge_is_guarded_like_every_change(void **state)
{
    static char everywhere[] = "0.0.0.0";
    struct fixture *f = *state;

    f->question.host = "evil.com:8081";
    (void)post(f, "/cache/purge", "{}");
    assert_int_equal(f->reply.status, 403);
    f->question.host = "localhost";
    f->question.content_type = "text/plain";
    (void)ask(f, "POST", "/cache/purge");
    assert_int_equal(f->reply.status, 415);
    f->config.admin.address = everywhere;
    (void)post(f, "/cache/purge", "{}");
    assert_int_equal(f->reply.status, 403);
}

static void test_a_strange_host_or_media_type_changes_nothing(void **state)
{
    struct fixture *f = *state;

    f->question.host = "evil.com:8081";
    (void)post(f, "/breakers/primary", "{\"mode\":\"forced-open\"}");
    assert_int_equal(f->reply.status, 403);
    f->question.host = "localhost";
    f->question.content_type = "text/plain";
    (void)ask(f, "POST", "/breakers/primary");
    assert_int_equal(f->reply.status, 415);
    f->question.content_type = "application/jsonp";
    (void)ask(f, "POST", "/breakers/primary");
    assert_int_equal(f->reply.status, 415);
    f->question.content_type = NULL;
    (void)ask(f, "POST", "/breakers/primary");
    assert_int_equal(f->reply.status, 415);
    assert_int_equal(admission_read(&f->dependency.admission).mode, BREAKER_AUTO);
}

static void test_where_others_can_connect_a_change_needs_a_token(void **state)
{
    static char everywhere[] = "0.0.0.0";
    struct fixture *f = *state;

    f->config.admin.address = everywhere;
    (void)post(f, "/breakers/primary", "{\"mode\":\"forced-open\"}");
    assert_int_equal(f->reply.status, 403);
    (void)ask(f, "GET", "/status");
    assert_int_equal(f->reply.status, 200);
}

static void test_the_token_opens_and_nothing_else_does(void **state)
{
    static char token_file[] = "/tmp/weir-admin-XXXXXX";
    struct fixture *f = *state;
    int fd = mkstemp(token_file);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "s3cret\n", 7), 7);
    assert_int_equal(close(fd), 0);
    f->config.admin.token_file = token_file;
    (void)post(f, "/breakers/primary", "{\"mode\":\"forced-open\"}");
    assert_int_equal(f->reply.status, 401);
    assert_true(f->reply.asks_for_token);
    f->question.authorization = "Bearer s3cret";
    (void)post(f, "/breakers/primary", "{\"mode\":\"forced-open\"}");
    assert_int_equal(f->reply.status, 200);
    assert_int_equal(unlink(token_file), 0);
    (void)post(f, "/breakers/primary", "{\"mode\":\"auto\"}");
    assert_int_equal(f->reply.status, 500);
    assert_int_equal(admission_read(&f->dependency.admission).mode, BREAKER_FORCED_OPEN);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_health_says_what_why_and_for_whom),
        WITH_FIXTURE(test_liveness_fails_only_when_a_worker_has_not_turned_for_5_s),
        WITH_FIXTURE(test_a_worker_that_never_turned_has_5_s_from_the_start),
        WITH_FIXTURE(test_readiness_falls_while_draining),
        WITH_FIXTURE(test_metrics_carry_the_labels_of_config_and_catalog),
        WITH_FIXTURE(test_status_is_json_that_tells_the_guard),
        WITH_FIXTURE(test_status_counts_errors_of_routes_by_whose_they_are),
        WITH_FIXTURE(test_status_tells_the_cache),
        WITH_FIXTURE(test_status_never_shows_how_to_connect),
        WITH_FIXTURE(test_unknown_paths_and_methods_are_problems),
        WITH_FIXTURE(test_a_problem_bears_the_callers_request_id),
        WITH_FIXTURE(test_a_mode_takes_effect_at_once),
        WITH_FIXTURE(test_a_wrong_change_changes_nothing),
        WITH_FIXTURE(test_a_purge_says_how_much_was_dropped),
        WITH_FIXTURE(test_a_wrong_purge_is_a_problem),
        WITH_FIXTURE(test_a_purge_is_guarded_like_every_change),
        WITH_FIXTURE(test_a_strange_host_or_media_type_changes_nothing),
        WITH_FIXTURE(test_where_others_can_connect_a_change_needs_a_token),
        WITH_FIXTURE(test_the_token_opens_and_nothing_else_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a caller of a cached route sees, over real sockets; the dependency is this test, which gets
 * the calls and sends them back when it likes. Time is not moved: an answer that shall be expired
 * has a lifetime of a microsecond. SPDX-License-Identifier: MIT */
#include <errno.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cmocka_all.h"
#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "plan/endpoint.h"
#include "query/catalog.h"
#include "query/route.h"
#include "web/router.h"
#include "web/service.h"
#include "web/worker.h"

enum { PATIENCE_S = 10, ROUTE_COUNT = 4 };

struct fixture {
    struct path_segment segments[ROUTE_COUNT];
    struct route routes[ROUTE_COUNT];
    struct catalog catalog;
    struct dependency_config dependency_config;
    struct config config;
    struct dependency dependency;
    struct dependency *dependencies[1];
    sem_t woken;
    struct router *router;
    struct service service;
    struct worker *worker;
    int listener;
    struct sockaddr_in address;
    char answer[64 * 1024];
};

static char primary[] = "primary", star[] = "*", vary[] = "Accept, X-Tenant";
static char fallback_body[] = "{\"id\": null}";
static char fresh[] = "fresh", expired[] = "expired", declared[] = "declared", plain[] = "plain";
static char fresh_label[] = "GET /fresh", expired_label[] = "GET /expired",
            declared_label[] = "GET /declared", plain_label[] = "GET /plain";
static char *origins[] = {star};

#define HOUR_US INT64_C(3600000000)

/* Cached for an hour; expired at once, good for an hour in need; the same with a declared answer;
 * not cached. */
static void fill_routes(struct fixture *f)
{
    static char *const names[ROUTE_COUNT] = {fresh, expired, declared, plain};
    static char *const labels[ROUTE_COUNT] = {fresh_label, expired_label, declared_label,
                                              plain_label};

    for (uint32_t i = 0; i < ROUTE_COUNT; i++) {
        f->segments[i].text = names[i];
        f->routes[i] = (struct route){.id = i,
                                      .label = labels[i],
                                      .segments = &f->segments[i],
                                      .segment_count = 1,
                                      .success_status = 200};
        if (i == 3)
            continue;
        f->routes[i].is_cached = true;
        f->routes[i].vary = vary;
        f->routes[i].cache =
            (struct cache_policy){.max_age_us = i == 0 ? HOUR_US : 1, .stale_if_error_us = HOUR_US};
    }
    f->routes[2].fallback = fallback_body;
    f->routes[2].fallback_bytes = strlen(fallback_body);
    f->catalog = (struct catalog){f->routes, ROUTE_COUNT};
}

static void fill_config(struct fixture *f)
{
    f->dependency_config.name = primary;
    f->config = (struct config){
        .server = {.workers = 1,
                   .max_connections = 8,
                   .max_body_bytes = 1000,
                   .max_uri_bytes = 500,
                   .header_timeout_us = 60000000,
                   .body_timeout_us = 60000000,
                   .idle_timeout_us = 60000000,
                   .write_timeout_us = 60000000,
                   .request_timeout_us = 60000000,
                   .max_memory_bytes = 1 << 20},
        .log = {.access = ACCESS_ALL},
        .dependencies = &f->dependency_config,
        .dependency_count = 1,
        .catalog = &f->catalog,
    };
}

static void wake(void *sem)
{
    (void)sem_post(sem);
}

static void fill_service(struct fixture *f)
{
    f->service.metrics = metrics_create(ROUTE_COUNT, 1, 2);
    f->service.config = &f->config;
    f->service.cache = cache_create(1 << 20, ROUTE_COUNT, 1, endpoint_cancel_flight);
    assert_non_null(f->service.cache);
    f->router = router_create(&f->catalog);
    f->service.router = f->router;
    f->service.dependencies = f->dependencies;
    f->dependencies[0] = &f->dependency;
    f->dependency.name = primary;
    f->dependency.config = &f->dependency_config;
    f->dependency.metrics = f->service.metrics->dependencies;
    admission_init(&f->dependency.admission, 1, 0);
    inbox_init(&f->dependency.inbox, wake, &f->woken);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    socklen_t size = sizeof f->address;
    struct error err = {0};

    assert_non_null(f);
    assert_int_equal(sem_init(&f->woken, 0, 0), 0);
    fill_routes(f);
    fill_config(f);
    fill_service(f);
    f->worker = worker_start(&f->service, 0, &err);
    assert_non_null(f->worker);
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    f->address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    assert_int_equal(bind(f->listener, (struct sockaddr *)&f->address, size), 0);
    assert_int_equal(listen(f->listener, 8), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&f->address, &size), 0);
    *state = f;
    return 0;
}

/* At rest each gauge equals the truth. */
static int teardown(void **state)
{
    struct fixture *f = *state;

    worker_stop(f->worker);
    worker_free(f->worker);
    assert_int_equal(counter_read(&f->service.metrics->memory_bytes), 0);
    assert_int_equal(admission_read(&f->dependency.admission).in_use, 0);
    cache_destroy(f->service.cache);
    router_destroy(f->router);
    metrics_destroy(f->service.metrics);
    (void)sem_destroy(&f->woken);
    (void)close(f->listener);
    free(f);
    return 0;
}

/* ---- the caller ---- */

/* Sends a request with these header lines, after which the server closes. */
static int ask(struct fixture *f, const char *method, const char *path, const char *lines)
{
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), accepted;
    char text[2000];
    int size =
        snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n",
                 method, path, lines);

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&f->address, sizeof f->address), 0);
    accepted = accept4(f->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(accepted >= 0);
    worker_give(f->worker, accepted, (struct sockaddr *)&f->address, sizeof f->address, false);
    assert_int_equal(send(fd, text, (size_t)size, MSG_NOSIGNAL), size);
    return fd;
}

/* EINTR without a signal: newer versions of libuv interrupt a wait in the thread that made a loop.
 */
static ssize_t receive(int fd, char *out, size_t size_bytes)
{
    ssize_t got;

    do
        got = recv(fd, out, size_bytes, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

static int read_all(struct fixture *f, int fd)
{
    size_t size = 0;
    ssize_t got;

    while ((got = receive(fd, f->answer + size, sizeof f->answer - 1 - size)) > 0)
        size += (size_t)got;
    assert_int_equal(got, 0);
    (void)close(fd);
    f->answer[size] = '\0';
    assert_int_equal(strncmp(f->answer, "HTTP/1.1 ", 9), 0);
    return (int)strtol(f->answer + 9, NULL, 10);
}

static int get(struct fixture *f, const char *path, const char *lines)
{
    return read_all(f, ask(f, "GET", path, lines));
}

static void assert_has(const struct fixture *f, const char *text)
{
    if (strstr(f->answer, text) == NULL)
        fail_msg("\"%s\" is missing in: %s", text, f->answer);
}

static void assert_lacks(const struct fixture *f, const char *text)
{
    if (strstr(f->answer, text) != NULL)
        fail_msg("\"%s\" may not be in: %s", text, f->answer);
}

static void assert_body(const struct fixture *f, const char *body)
{
    const char *blank = strstr(f->answer, "\r\n\r\n");

    assert_non_null(blank);
    assert_string_equal(blank + 4, body);
}

/* ---- the dependency ---- */

static void wait_for_wake(struct fixture *f)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    assert_int_equal(sem_timedwait(&f->woken, &until), 0);
}

static void answer_call(struct fixture *f, enum reason reason)
{
    struct inbox_item *item = inbox_drain(&f->dependency.inbox);
    struct call *call;

    while (item == NULL) {
        wait_for_wake(f);
        item = inbox_drain(&f->dependency.inbox);
    }
    assert_null(item->next);
    call = LIST_ITEM(item, struct call, item);
    call->outcome.reason = reason;
    if (reason == REASON_NONE)
        call->outcome.small_bytes = (size_t)snprintf(
            call->outcome.small_body, sizeof call->outcome.small_body, "[{\"id\":1}]");
    admission_leave(&f->dependency.admission);
    inbox_push(call->reply_to, &call->item);
}

static void get_live(struct fixture *f, const char *path)
{
    int fd = ask(f, "GET", path, "");

    answer_call(f, REASON_NONE);
    assert_int_equal(read_all(f, fd), 200);
}

static void break_dependency(struct fixture *f)
{
    (void)admission_publish(&f->dependency.admission, BREAKER_OPEN, 0, (struct instant){0});
}

/* The tag of the last answer, with its quotes. */
static void copy_etag(const struct fixture *f, char out[ETAG_BYTES + 1])
{
    const char *line = strstr(f->answer, "\r\nETag: \"");

    assert_non_null(line);
    memcpy(out, line + 8, ETAG_BYTES);
    out[ETAG_BYTES] = '\0';
    assert_int_equal(out[ETAG_BYTES - 1], '"');
}

/* ---- the tests ---- */

static void test_a_live_answer_says_that_it_was_stored(void **state)
{
    struct fixture *f = *state;

    get_live(f, "/fresh");
    assert_has(f, "\r\nCache-Status: weir; fwd=miss; stored\r\n");
    assert_has(f, "\r\nCache-Control: max-age=");
    assert_has(f, "\r\nETag: \"");
    assert_has(f, "\r\nVary: Accept, X-Tenant\r\n");
    assert_has(f, "\r\nContent-Type: application/json\r\n");
    assert_lacks(f, "\r\nAge:");
    assert_lacks(f, "Weir-Degraded");
    assert_body(f, "[{\"id\":1}]");
}

static void test_a_stored_answer_says_how_old_it_is(void **state)
{
    struct fixture *f = *state;
    char etag[ETAG_BYTES + 1];

    get_live(f, "/fresh");
    copy_etag(f, etag);
    assert_int_equal(get(f, "/fresh", ""), 200);
    assert_has(f, "\r\nCache-Status: weir; hit; ttl=");
    assert_has(f, "\r\nAge: ");
    assert_has(f, "\r\nCache-Control: max-age=");
    assert_has(f, etag);
    assert_has(f, "\r\nVary: Accept, X-Tenant\r\n");
    assert_has(f, "\r\nServer-Timing: queue;dur=0.0, db;dur=0.0, total;dur=");
    assert_lacks(f, "Weir-Degraded");
    assert_body(f, "[{\"id\":1}]");
}

static void test_head_is_get_without_the_body(void **state)
{
    struct fixture *f = *state;

    get_live(f, "/fresh");
    assert_int_equal(read_all(f, ask(f, "HEAD", "/fresh", "")), 200);
    assert_has(f, "\r\nContent-Length: 10\r\n");
    assert_has(f, "\r\nETag: \"");
    assert_has(f, "\r\nAge: ");
    assert_body(f, "");
}

static void test_what_the_caller_has_is_not_sent_again(void **state)
{
    static const char *const formats[] = {
        "If-None-Match: %s\r\n",
        "If-None-Match: \"other\", W/%s\r\n",
        "If-None-Match: \"other\"\r\nX-A: b\r\nif-none-match: %s\r\n",
    };
    struct fixture *f = *state;
    char etag[ETAG_BYTES + 1], lines[200];

    get_live(f, "/fresh");
    copy_etag(f, etag);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t size = strlen(formats[i]);
        const char *mark = strstr(formats[i], "%s");

        (void)snprintf(lines, sizeof lines, "%.*s%s%.*s", (int)(mark - formats[i]), formats[i],
                       etag, (int)size, mark + 2);
        assert_int_equal(get(f, "/fresh", lines), 304);
        assert_has(f, etag);
        assert_has(f, "\r\nCache-Control: max-age=");
        assert_has(f, "\r\nCache-Status: weir; hit; ttl=");
        assert_has(f, "\r\nAge: ");
        assert_has(f, "\r\nVary: Accept, X-Tenant\r\n");
        assert_lacks(f, "Content-Type");
        assert_lacks(f, "Content-Length: 0");
        assert_body(f, "");
    }
    assert_int_equal(read_all(f, ask(f, "HEAD", "/fresh", "If-None-Match: *\r\n")), 304);
    assert_int_equal(get(f, "/fresh", "If-None-Match: \"other\"\r\n"), 200);
    assert_body(f, "[{\"id\":1}]");
}

static void test_a_live_answer_may_be_known_too(void **state)
{
    struct fixture *f = *state;
    char etag[ETAG_BYTES + 1], lines[100];
    int fd;

    get_live(f, "/expired");
    copy_etag(f, etag);
    (void)snprintf(lines, sizeof lines, "If-None-Match: %s\r\n", etag);
    fd = ask(f, "GET", "/expired", lines);
    answer_call(f, REASON_NONE);
    assert_int_equal(read_all(f, fd), 304);
    assert_has(f, "\r\nCache-Status: weir; fwd=stale; stored\r\n");
}

static void test_what_is_not_cached_is_never_known(void **state)
{
    struct fixture *f = *state;
    int fd = ask(f, "GET", "/plain", "If-None-Match: *\r\n");

    answer_call(f, REASON_NONE);
    assert_int_equal(read_all(f, fd), 200);
    assert_lacks(f, "ETag");
    assert_lacks(f, "Cache-");
    assert_lacks(f, "Vary");
}

static void test_a_stale_answer_says_so_and_why(void **state)
{
    struct fixture *f = *state;

    get_live(f, "/expired");
    break_dependency(f);
    assert_int_equal(get(f, "/expired", ""), 200);
    assert_has(f, "\r\nWeir-Degraded: stale; dependency=primary; reason=breaker-open\r\n");
    assert_has(f, "; detail=breaker-open\r\n");
    assert_has(f, "\r\nCache-Status: weir; hit; ttl=-");
    assert_has(f, "\r\nCache-Control: max-age=0, must-revalidate\r\n");
    assert_has(f, "\r\nAge: ");
    assert_has(f, "\r\nETag: \"");
    assert_body(f, "[{\"id\":1}]");

    assert_int_equal(get(f, "/expired", "If-None-Match: *\r\n"), 304);
    assert_has(f, "\r\nWeir-Degraded: stale; dependency=primary; reason=breaker-open\r\n");
    assert_has(f, "\r\nCache-Control: max-age=0, must-revalidate\r\n");
}

static void test_a_fallback_is_no_cached_answer(void **state)
{
    struct fixture *f = *state;

    break_dependency(f);
    assert_int_equal(get(f, "/declared", "If-None-Match: *\r\n"), 200);
    assert_has(f, "\r\nWeir-Degraded: fallback; dependency=primary; reason=breaker-open\r\n");
    assert_has(f, "\r\nCache-Status: weir; fwd=miss; detail=breaker-open\r\n");
    assert_has(f, "\r\nCache-Control: no-store\r\n");
    assert_has(f, "\r\nContent-Type: application/json\r\n");
    assert_has(f, "\r\nVary: Accept, X-Tenant\r\n");
    assert_lacks(f, "ETag");
    assert_lacks(f, "\r\nAge:");
    assert_lacks(f, "Retry-After");
    assert_body(f, "{\"id\": null}");
}

static void test_an_error_of_a_cached_route_is_not_kept(void **state)
{
    struct fixture *f = *state;

    break_dependency(f);
    assert_int_equal(get(f, "/fresh", "If-None-Match: *\r\n"), 503);
    assert_has(f, "\r\nCache-Status: weir; fwd=miss; detail=breaker-open\r\n");
    assert_has(f, "\r\nCache-Control: no-store\r\n");
    assert_has(f, "\r\nVary: Accept, X-Tenant\r\n");
    assert_has(f, "\r\nRetry-After: ");
    assert_lacks(f, "Weir-Degraded");
    assert_lacks(f, "ETag");
    assert_int_equal(get(f, "/fresh?no=1", ""), 400);
    assert_lacks(f, "Cache-Status");
    assert_has(f, "\r\nCache-Control: no-store\r\n");
}

static void test_pages_of_other_origins_may_read_all_of_it(void **state)
{
    struct fixture *f = *state;
    int fd;

    f->config.server.cors_origins = origins;
    f->config.server.cors_origin_count = 1;
    fd = ask(f, "GET", "/fresh", "Origin: https://a.example\r\n");
    answer_call(f, REASON_NONE);
    assert_int_equal(read_all(f, fd), 200);
    assert_has(f, "\r\nVary: Accept, X-Tenant\r\n");
    assert_has(f, "\r\nVary: Origin\r\n");
    assert_has(f, "Access-Control-Expose-Headers: X-Request-Id, Retry-After, Weir-Degraded, "
                  "Server-Timing, Age, ETag, Cache-Status\r\n");
}

static void test_metrics_tell_the_ways_to_answer_apart(void **state)
{
    struct fixture *f = *state;
    const struct route_metrics *routes = f->service.metrics->routes;

    get_live(f, "/fresh");
    assert_int_equal(get(f, "/fresh", ""), 200);
    assert_int_equal(get(f, "/fresh", "If-None-Match: *\r\n"), 304);
    get_live(f, "/expired");
    break_dependency(f);
    assert_int_equal(get(f, "/expired", ""), 200);
    assert_int_equal(get(f, "/declared", ""), 200);
    assert_int_equal(counter_read(&routes[0].answers[SERVED_LIVE][REASON_NONE]), 1);
    assert_int_equal(counter_read(&routes[0].answers[SERVED_STORED][REASON_NONE]), 2);
    assert_int_equal(counter_read(&routes[1].answers[SERVED_STALE][REASON_BREAKER_OPEN]), 1);
    assert_int_equal(counter_read(&routes[2].answers[SERVED_FALLBACK][REASON_BREAKER_OPEN]), 1);
}

/* What is written to standard error while the request is answered. */
static void get_logged(struct fixture *f, const char *path, char *out, size_t size_bytes)
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    ssize_t got;

    assert_non_null(file);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    (void)get(f, path, "");
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    (void)close(before);
    got = pread(fileno(file), out, size_bytes - 1, 0);
    (void)fclose(file);
    assert_true(got >= 0);
    out[got] = '\0';
}

static void test_the_log_tells_the_age_of_what_was_stored(void **state)
{
    struct fixture *f = *state;
    char line[4096];

    get_live(f, "/fresh");
    get_live(f, "/expired");
    break_dependency(f);
    get_logged(f, "/fresh", line, sizeof line);
    assert_non_null(strstr(line, "\"served\":\"stored\",\"reason\":\"none\",\"age_ms\":"));
    get_logged(f, "/expired", line, sizeof line);
    assert_non_null(strstr(line, "\"served\":\"stale\",\"reason\":\"breaker-open\","
                                 "\"dependency\":\"primary\",\"age_ms\":"));
    get_logged(f, "/declared", line, sizeof line);
    assert_non_null(strstr(line, "\"served\":\"fallback\",\"reason\":\"breaker-open\""));
    assert_null(strstr(line, "age_ms"));
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_a_live_answer_says_that_it_was_stored),
        WITH_FIXTURE(test_a_stored_answer_says_how_old_it_is),
        WITH_FIXTURE(test_head_is_get_without_the_body),
        WITH_FIXTURE(test_what_the_caller_has_is_not_sent_again),
        WITH_FIXTURE(test_a_live_answer_may_be_known_too),
        WITH_FIXTURE(test_what_is_not_cached_is_never_known),
        WITH_FIXTURE(test_a_stale_answer_says_so_and_why),
        WITH_FIXTURE(test_a_fallback_is_no_cached_answer),
        WITH_FIXTURE(test_an_error_of_a_cached_route_is_not_kept),
        WITH_FIXTURE(test_pages_of_other_origins_may_read_all_of_it),
        WITH_FIXTURE(test_metrics_tell_the_ways_to_answer_apart),
        WITH_FIXTURE(test_the_log_tells_the_age_of_what_was_stored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

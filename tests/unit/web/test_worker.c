/* Acceptor and workers over real sockets; the dependency is this test, which gets the calls and
 * sends them back when it likes. SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
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
#include "web/acceptor.h"
#include "web/router.h"
#include "web/service.h"
#include "web/worker.h"

enum { WORKER_COUNT = 2, PATIENCE_S = 10 };

struct fixture {
    struct path_segment segment;
    struct route routes[2]; /* GET and POST /hello */
    struct catalog catalog;
    struct dependency_config dependency_config;
    struct config config;
    struct dependency dependency;
    struct dependency *dependencies[1];
    sem_t woken;
    struct router *router;
    struct service service;
    struct worker *workers[WORKER_COUNT];
    struct acceptor *acceptor;
    uint16_t port;
    char answer[64 * 1024];
};

static char hello[] = "hello", primary[] = "primary", loopback[] = "127.0.0.1";
static char get_label[] = "GET /hello", post_label[] = "POST /hello";

static void wake(void *sem)
{
    (void)sem_post(sem);
}

static void fill_config(struct fixture *f)
{
    f->segment.text = hello;
    f->routes[0] = (struct route){.label = get_label};
    f->routes[1] =
        (struct route){.id = 1, .method = METHOD_POST, .label = post_label, .is_write = true};
    for (int i = 0; i < 2; i++) {
        f->routes[i].segments = &f->segment;
        f->routes[i].segment_count = 1;
        f->routes[i].success_status = 200;
    }
    f->catalog = (struct catalog){f->routes, 2};
    f->dependency_config.name = primary;
    f->config = (struct config){
        .server = {.workers = WORKER_COUNT,
                   .max_connections = 8,
                   .max_body_bytes = 1000,
                   .max_uri_bytes = 500,
                   .header_timeout_us = 60000000,
                   .body_timeout_us = 60000000,
                   .idle_timeout_us = 60000000,
                   .write_timeout_us = 60000000,
                   .request_timeout_us = 60000000,
                   .max_memory_bytes = 1 << 20},
        .log = {.access = ACCESS_NONE},
        .dependencies = &f->dependency_config,
        .dependency_count = 1,
        .catalog = &f->catalog,
    };
}

static void find_port(struct fixture *f, int listener)
{
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;

    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    f->port = ntohs(address.sin_port);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct error err = {0};
    int listener;

    assert_non_null(f);
    fill_config(f);
    assert_int_equal(sem_init(&f->woken, 0, 0), 0);
    f->service.metrics = metrics_create(2, 1, WORKER_COUNT + 1);
    f->service.cache = cache_create(1 << 20, 2, WORKER_COUNT, endpoint_cancel_flight);
    assert_non_null(f->service.cache);
    f->service.config = &f->config;
    f->router = router_create(&f->catalog);
    f->service.router = f->router;
    f->service.dependencies = f->dependencies;
    f->dependencies[0] = &f->dependency;
    f->dependency.name = primary;
    f->dependency.config = &f->dependency_config;
    f->dependency.metrics = f->service.metrics->dependencies;
    counter_set(&f->dependency.metrics->is_reached, 1);
    admission_init(&f->dependency.admission, 1, 0);
    inbox_init(&f->dependency.inbox, wake, &f->woken);
    for (uint32_t i = 0; i < WORKER_COUNT; i++) {
        f->workers[i] = worker_start(&f->service, i, &err);
        assert_non_null(f->workers[i]);
    }
    listener = listener_open(loopback, 0, &err);
    assert_true(listener >= 0);
    find_port(f, listener);
    f->acceptor = acceptor_start(&f->service, listener, f->workers, WORKER_COUNT, &err);
    assert_non_null(f->acceptor);
    *state = f;
    return 0;
}

static void stop_all(struct fixture *f)
{
    acceptor_stop(f->acceptor);
    f->acceptor = NULL;
    for (int i = 0; i < WORKER_COUNT; i++)
        worker_stop(f->workers[i]);
    for (int i = 0; i < WORKER_COUNT; i++) {
        worker_free(f->workers[i]);
        f->workers[i] = NULL;
    }
}

/* At rest each gauge equals the truth. */
static int teardown(void **state)
{
    struct fixture *f = *state;

    stop_all(f);
    assert_int_equal(f->service.connections, 0);
    assert_int_equal(counter_read(&f->service.metrics->memory_bytes), 0);
    router_destroy(f->router);
    cache_destroy(f->service.cache);
    metrics_destroy(f->service.metrics);
    (void)sem_destroy(&f->woken);
    free(f);
    return 0;
}

/* ---- the caller ---- */

static int dial(const struct fixture *f)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(f->port)};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(inet_pton(AF_INET, loopback, &address.sin_addr), 1);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static int ask(const struct fixture *f, const char *bytes)
{
    int fd = dial(f);

    assert_int_equal(send(fd, bytes, strlen(bytes), MSG_NOSIGNAL), (ssize_t)strlen(bytes));
    return fd;
}

/* EINTR without a signal: newer versions of libuv use io_uring, whose work interrupts a wait with a
 * limit in the thread that made the loop. */
static ssize_t receive(int fd, char *out, size_t size_bytes)
{
    ssize_t got;

    do
        got = recv(fd, out, size_bytes, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Everything until the server closes; it has to. Returns the status, 0: nothing came. */
static int read_all(struct fixture *f, int fd)
{
    size_t size = 0;
    ssize_t got;

    while ((got = receive(fd, f->answer + size, sizeof f->answer - 1 - size)) > 0)
        size += (size_t)got;
    assert_int_equal(got, 0);
    (void)close(fd);
    f->answer[size] = '\0';
    return strncmp(f->answer, "HTTP/1.1 ", 9) == 0 ? (int)strtol(f->answer + 9, NULL, 10) : 0;
}

static int get(struct fixture *f, const char *bytes)
{
    return read_all(f, ask(f, bytes));
}

static void assert_answer_has(const struct fixture *f, const char *text)
{
    if (strstr(f->answer, text) == NULL)
        fail_msg("\"%s\" is missing in: %s", text, f->answer);
}

#define LAST      "Host: x\r\nConnection: close\r\n"
#define GET_HELLO "GET /hello HTTP/1.1\r\n" LAST "\r\n"

/* ---- the dependency ---- */

static void wait_for_wake(struct fixture *f)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    assert_int_equal(sem_timedwait(&f->woken, &until), 0);
}

static struct call *next_call(struct fixture *f)
{
    struct inbox_item *item = inbox_drain(&f->dependency.inbox);

    while (item == NULL) {
        wait_for_wake(f);
        item = inbox_drain(&f->dependency.inbox);
    }
    assert_null(item->next);
    return LIST_ITEM(item, struct call, item);
}

static void wait_for_cancel(struct fixture *f, struct call *call)
{
    while (!atomic_load(&call->is_cancelled))
        wait_for_wake(f);
}

static void send_back(struct fixture *f, struct call *call, enum reason reason)
{
    call->outcome.reason = reason;
    if (reason == REASON_NONE)
        call->outcome.small_bytes = (size_t)snprintf(
            call->outcome.small_body, sizeof call->outcome.small_body, "[{\"id\":1}]");
    admission_leave(&f->dependency.admission);
    inbox_push(call->reply_to, &call->item);
}

/* ---- the tests ---- */

static void test_the_answer_comes_when_the_call_comes_back(void **state)
{
    struct fixture *f = *state;
    int fd = ask(f, "GET /hello HTTP/1.1\r\n" LAST "X-Request-Id: mine\r\n\r\n");

    send_back(f, next_call(f), REASON_NONE);
    assert_int_equal(read_all(f, fd), 200);
    assert_answer_has(f, "\r\nX-Request-Id: mine\r\n");
    assert_answer_has(f, "\r\nServer-Timing: queue;dur=");
    assert_answer_has(f, "\r\nContent-Type: application/json\r\n");
    assert_answer_has(f, "\r\n\r\n[{\"id\":1}]");
}

static void test_what_is_refused_is_answered_while_others_wait(void **state)
{
    struct fixture *f = *state;
    int waiting = ask(f, GET_HELLO);
    struct call *call = next_call(f);

    assert_int_equal(get(f, GET_HELLO), 503);
    assert_answer_has(f, "\"reason\":\"bulkhead-full\"");
    assert_answer_has(f, "\"dependency\":\"primary\"");
    assert_answer_has(f, "\r\nRetry-After: ");
    assert_answer_has(f, "\r\nCache-Control: no-store\r\n");
    assert_answer_has(f, "\r\nContent-Type: application/problem+json\r\n");
    send_back(f, call, REASON_NONE);
    assert_int_equal(read_all(f, waiting), 200);
}

static void test_the_deadline_answers_when_the_dependency_does_not(void **state)
{
    struct fixture *f = *state;
    int fd = ask(f, "GET /hello HTTP/1.1\r\n" LAST "X-Request-Timeout-Ms: 20\r\n\r\n");
    struct call *call = next_call(f);

    assert_int_equal(read_all(f, fd), 504);
    assert_answer_has(f, "\"reason\":\"deadline\"");
    assert_true(atomic_load(&call->is_cancelled));
    assert_false(call->is_hung_up);
    send_back(f, call, REASON_NONE); /* too late: it is thrown away */
}

static void test_a_hang_up_cancels_the_call(void **state)
{
    struct fixture *f = *state;
    int fd = ask(f, GET_HELLO);
    struct call *call = next_call(f);

    (void)close(fd);
    wait_for_cancel(f, call);
    assert_true(call->is_hung_up);
    send_back(f, call, REASON_NONE);
}

static void test_a_half_close_counts_as_a_hang_up(void **state)
{
    struct fixture *f = *state;
    int fd = ask(f, GET_HELLO);
    struct call *call = next_call(f);

    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    wait_for_cancel(f, call);
    send_back(f, call, REASON_NONE);
    assert_int_equal(read_all(f, fd), 0);
}

static void test_pipelined_requests_are_no_hang_up_and_keep_their_order(void **state)
{
    struct fixture *f = *state;
    int fd = ask(f, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\n" LAST "\r\n");
    struct call *call = next_call(f);

    assert_false(atomic_load(&call->is_cancelled));
    send_back(f, call, REASON_NONE);
    assert_int_equal(read_all(f, fd), 200);
    assert_answer_has(f, "[{\"id\":1}]HTTP/1.1 404 ");
}

struct late_reply {
    struct fixture *fixture;
    struct call *call;
};

static void *reply_when_cancelled(void *ctx)
{
    struct late_reply *late = ctx;

    wait_for_cancel(late->fixture, late->call);
    send_back(late->fixture, late->call, REASON_CONNECTION_LOST);
    return NULL;
}

/* Stops everything while a call is under way; returns the status of its request. */
static int stop_during_call(struct fixture *f, const char *request, bool is_sent)
{
    int fd = ask(f, request);
    struct late_reply late = {f, next_call(f)};
    pthread_t dependency;

    atomic_store(&late.call->is_sent, is_sent);
    assert_int_equal(pthread_create(&dependency, NULL, reply_when_cancelled, &late), 0);
    stop_all(f);
    (void)pthread_join(dependency, NULL);
    return read_all(f, fd);
}

static void test_stop_answers_what_still_waits(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(stop_during_call(f, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", true), 503);
    assert_answer_has(f, "\"reason\":\"draining\"");
    assert_answer_has(f, "\r\nConnection: close\r\n");
}

static void test_stop_does_not_call_a_sent_write_repeatable(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(
        stop_during_call(f, "POST /hello HTTP/1.1\r\nContent-Length: 0\r\n" LAST "\r\n", true),
        503);
    assert_answer_has(f, "\"reason\":\"outcome-unknown\"");
    assert_answer_has(f, "\"retryable\":false");
}

static void test_draining_says_so_and_closes_after_each_answer(void **state)
{
    struct fixture *f = *state;

    atomic_store(&f->service.is_draining, true);
    assert_int_equal(get(f, "GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n"), 503);
    assert_answer_has(f, "\r\nConnection: close\r\n");
    assert_answer_has(f, "\"draining\"");
}

static void test_draining_closes_idle_connections(void **state)
{
    struct fixture *f = *state;
    int fd = ask(f, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n");

    assert_true(receive(fd, f->answer, 1) == 1); /* the answer began */
    for (int i = 0; i < WORKER_COUNT; i++)
        worker_begin_drain(f->workers[i]);
    assert_int_equal(read_all(f, fd), 0); /* its rest, then the end */
    assert_answer_has(f, "{\"status\":\"pass\"}");
}

static void test_ambiguous_requests_are_refused_and_closed(void **state)
{
    static const char *const heads[] = {
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\nHost: x\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\nHost: x\r\n",
        "Content-Length : 3\r\nHost: x\r\n",
        "Content-Length: 3x\r\nHost: x\r\n",
        "Transfer-Encoding: gzip\r\nHost: x\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\nHost: x\r\n",
        "Host: x\r\nHost: y\r\n",
        "X-A: b\r\n",
        "X-A: a\rb\r\nHost: x\r\n",
        "X-A: a\x01\r\nHost: x\r\n",
        "X(A: b\r\nHost: x\r\n",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        char bytes[256];

        (void)snprintf(bytes, sizeof bytes, "POST /hello HTTP/1.1\r\n%s\r\nabc", heads[i]);
        if (get(f, bytes) != 400)
            fail_msg("%s: %s", heads[i], f->answer);
    }
}

static void test_what_needs_no_dependency_is_answered_by_the_worker(void **state)
{
    static const struct {
        const char *head;
        int status;
        const char *part;
    } cases[] = {
        {"GET /nowhere HTTP/1.1\r\n" LAST, 404, "\"not-found\""},
        {"DELETE /hello HTTP/1.1\r\n" LAST, 405, "\r\nAllow: GET, HEAD, POST, OPTIONS\r\n"},
        {"OPTIONS /hello HTTP/1.1\r\n" LAST, 204, "\r\nAllow: GET, HEAD, POST, OPTIONS\r\n"},
        {"GET /hello HTTP/1.1\r\nAccept: text/csv\r\n" LAST, 406, "\"not-acceptable\""},
        {"GET /hello?a=%zz HTTP/1.1\r\n" LAST, 400, "\"bad-parameter\""},
        {"POST /hello HTTP/1.1\r\nContent-Length: 1001\r\nHost: x\r\n", 413, "\"body-too-large\""},
        {"GET /health HTTP/1.1\r\n" LAST, 200, "{\"status\":\"pass\""},
        {"GET /health/live HTTP/1.1\r\n" LAST, 200, "{\"status\":\"pass\"}"},
        {"POST /health HTTP/1.1\r\nContent-Length: 0\r\n" LAST, 405, "Allow: GET, HEAD, OPTIONS"},
        {"GET /problems/deadline HTTP/1.1\r\n" LAST, 200, "/problems/deadline"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char bytes[256];

        (void)snprintf(bytes, sizeof bytes, "%s\r\n", cases[i].head);
        if (get(f, bytes) != cases[i].status)
            fail_msg("%s: %s", cases[i].head, f->answer);
        assert_answer_has(f, cases[i].part);
    }
}

static void test_a_long_uri_is_a_414(void **state)
{
    struct fixture *f = *state;
    char path[600], bytes[700];

    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    (void)snprintf(bytes, sizeof bytes, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    assert_int_equal(get(f, bytes), 414);
    assert_answer_has(f, "\"uri-too-long\"");
}

static void test_connections_in_reserve_are_for_health_alone(void **state)
{
    struct fixture *f = *state;
    int held[8];

    for (int i = 0; i < 8; i++) {
        held[i] = ask(f, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(receive(held[i], f->answer, sizeof f->answer) > 0);
    }
    assert_int_equal(get(f, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"), 503);
    assert_answer_has(f, "\"reason\":\"overloaded\"");
    assert_int_equal(get(f, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    for (int i = 0; i < 8; i++)
        (void)close(held[i]);
}

static void test_a_taken_port_says_so(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    char text[128];

    (void)snprintf(text, sizeof text, "cannot listen on 127.0.0.1:%u: Address already in use",
                   f->port);
    assert_int_equal(listener_open(loopback, f->port, &err), -1);
    assert_string_equal(err.text, text);
    assert_int_equal(listener_open("db.example", 1, &err), -1);
    assert_string_equal(err.text,
                        "cannot listen on db.example:1: not a numeric address or localhost");
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_the_answer_comes_when_the_call_comes_back),
        SERVED(test_what_is_refused_is_answered_while_others_wait),
        SERVED(test_the_deadline_answers_when_the_dependency_does_not),
        SERVED(test_a_hang_up_cancels_the_call),
        SERVED(test_a_half_close_counts_as_a_hang_up),
        SERVED(test_pipelined_requests_are_no_hang_up_and_keep_their_order),
        SERVED(test_stop_answers_what_still_waits),
        SERVED(test_stop_does_not_call_a_sent_write_repeatable),
        SERVED(test_draining_says_so_and_closes_after_each_answer),
        SERVED(test_draining_closes_idle_connections),
        SERVED(test_ambiguous_requests_are_refused_and_closed),
        SERVED(test_what_needs_no_dependency_is_answered_by_the_worker),
        SERVED(test_a_long_uri_is_a_414),
        SERVED(test_connections_in_reserve_are_for_health_alone),
        SERVED(test_a_taken_port_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

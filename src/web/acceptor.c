#include "web/acceptor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wakeup.h"
#include "config/config.h"
#include "web/service.h"
#include "web/worker.h"

enum {
    BACKLOG = 1024,
    RESERVE_CONNECTIONS = 64,
    ACCEPTS_A_TURN = 64,
    FULL_PAUSE_MS = 25,
    NO_DESCRIPTOR_PAUSE_MS = 100,
    TICK_MS = 250,
};

struct acceptor {
    struct service *service;
    struct worker *const *workers; /* borrowed from app */
    uint32_t worker_count, next_worker;
    int listener; /* owned */
    pthread_t thread;
    uv_loop_t loop;
    struct wakeup stop;
    uv_poll_t poll;
    uv_timer_t pause, tick;
    struct thread_metrics *metrics;
    struct instant next_tick_at;
    struct log_limit complaint;
};

/* ---- the listener ---- */

union any_address {
    struct sockaddr plain;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Size of the address; 0: it is none. */
static socklen_t address_of(const char *text, uint16_t port, union any_address *out)
{
    if (strcmp(text, "localhost") == 0)
        text = "127.0.0.1";
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(port);
        return sizeof out->v4;
    }
    if (inet_pton(AF_INET6, text, &out->v6.sin6_addr) == 1) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(port);
        return sizeof out->v6;
    }
    return 0;
}

int listener_open(const char *address, uint16_t port, struct error *err)
{
    union any_address any;
    socklen_t size = address_of(address, port, &any);
    bool is_v6 = strchr(address, ':') != NULL;
    int fd, one = 1, saved;

    if (size == 0) {
        (void)error_set(err, "cannot listen on %s:%u: not a numeric address or localhost", address,
                        port);
        return -1;
    }
    fd = socket(any.plain.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* Only to bind while old connections linger; another listener still keeps us out. */
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, &any.plain, size) == 0 && listen(fd, BACKLOG) == 0)
        return fd;

    saved = errno;
    if (fd >= 0)
        (void)close(fd);
    (void)error_set(err, "cannot listen on %s%s%s:%u: %s", is_v6 ? "[" : "", address,
                    is_v6 ? "]" : "", port, error_of_errno(saved));
    return -1;
}

/* ---- accepting ---- */

static struct worker *least_busy(struct acceptor *a)
{
    uint32_t first = a->next_worker++ % a->worker_count; /* turns among equals */
    struct worker *best = a->workers[first];

    for (uint32_t i = 1; i < a->worker_count; i++) {
        struct worker *other = a->workers[(first + i) % a->worker_count];

        if (worker_connection_count(other) < worker_connection_count(best))
            best = other;
    }
    return best;
}

static void on_acceptable(uv_poll_t *poll, int status, int events);

static void listen_again(uv_timer_t *timer)
{
    struct acceptor *a = timer->data;

    (void)uv_poll_start(&a->poll, UV_READABLE, on_acceptable);
}

static void pause_for(struct acceptor *a, uint64_t pause_ms)
{
    (void)uv_poll_stop(&a->poll);
    (void)uv_timer_start(&a->pause, listen_again, pause_ms, 0);
}

static void give(struct acceptor *a, int fd, const struct sockaddr_storage *address, socklen_t size)
{
    uint32_t before = atomic_fetch_add_explicit(&a->service->connections, 1, memory_order_relaxed);
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    worker_give(least_busy(a), fd, (const struct sockaddr *)address, size,
                before >= a->service->config->server.max_connections);
}

static bool is_full(const struct acceptor *a)
{
    return atomic_load_explicit(&a->service->connections, memory_order_relaxed) >=
           a->service->config->server.max_connections + RESERVE_CONNECTIONS;
}

static void complain(struct acceptor *a, int error)
{
    struct log_line line;

    if (!log_limit_pass(&a->complaint, clock_now().us))
        return;
    log_begin(&line, LOG_ERROR, "accept_failed");
    log_str(&line, "error", error_of_errno(error));
    log_int(&line, "left_out", (int64_t)a->complaint.left_out_count);
    log_end(&line);
    a->complaint.left_out_count = 0;
}

/* True: there may be more to accept. */
static bool accept_one(struct acceptor *a)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int fd = accept4(a->listener, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0) {
        give(a, fd, &address, size);
        return true;
    }
    if (errno == EINTR || errno == ECONNABORTED)
        return true;
    if (errno != EAGAIN) { /* no descriptors, no memory: the callers wait in the kernel */
        complain(a, errno);
        pause_for(a, NO_DESCRIPTOR_PAUSE_MS);
    }
    return false;
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct acceptor *a = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        if (is_full(a)) {
            pause_for(a, FULL_PAUSE_MS);
            return;
        }
        if (!accept_one(a))
            return;
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct acceptor *a = timer->data;
    struct instant now = clock_now();
    int64_t lag_us = instant_span_us(a->next_tick_at, now);

    counter_set(&a->metrics->heartbeat_us, (uint64_t)now.us);
    counter_set(&a->metrics->loop_lag_us, lag_us > 0 ? (uint64_t)lag_us : 0);
    a->next_tick_at = instant_after(now, (int64_t)TICK_MS * 1000);
}

/* ---- start and stop ---- */

static void on_stop(void *ctx)
{
    struct acceptor *a = ctx;

    uv_close((uv_handle_t *)&a->poll, NULL);
    uv_close((uv_handle_t *)&a->pause, NULL);
    uv_close((uv_handle_t *)&a->tick, NULL);
    wakeup_close(&a->stop);
    (void)close(a->listener);
}

static void *acceptor_run(void *ctx)
{
    struct acceptor *a = ctx;

    (void)uv_run(&a->loop, UV_RUN_DEFAULT);
    return NULL;
}

static bool start_loop(struct acceptor *a)
{
    if (uv_loop_init(&a->loop) != 0 || wakeup_init(&a->stop, &a->loop, on_stop, a) != 0 ||
        uv_poll_init(&a->loop, &a->poll, a->listener) != 0 ||
        uv_timer_init(&a->loop, &a->pause) != 0 || uv_timer_init(&a->loop, &a->tick) != 0)
        return false;
    a->poll.data = a->pause.data = a->tick.data = a;
    a->next_tick_at = instant_after(clock_now(), (int64_t)TICK_MS * 1000);
    return uv_poll_start(&a->poll, UV_READABLE, on_acceptable) == 0 &&
           uv_timer_start(&a->tick, on_tick, TICK_MS, TICK_MS) == 0;
}

static bool start_thread(struct acceptor *a)
{
    sigset_t all, before;
    int failed;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&a->thread, NULL, acceptor_run, a);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0;
}

struct acceptor *acceptor_start(struct service *service, int listener,
                                struct worker *const *workers, uint32_t worker_count,
                                struct error *err)
{
    struct acceptor *a = calloc(1, sizeof *a);

    if (a == NULL) {
        (void)error_set(err, "acceptor: out of memory");
        (void)close(listener);
        return NULL;
    }
    a->service = service;
    a->workers = workers;
    a->worker_count = worker_count;
    a->listener = listener;
    a->metrics = &service->metrics->threads[worker_count];
    counter_set(&a->metrics->heartbeat_us, (uint64_t)clock_now().us);
    /* What fails here ends the process: the loop's own memory is left to that. */
    if (!start_loop(a) || !start_thread(a)) {
        (void)error_set(err, "acceptor: no event loop or no thread");
        (void)close(listener);
        return NULL;
    }
    (void)pthread_setname_np(a->thread, "acceptor");
    return a;
}

void acceptor_stop(struct acceptor *a)
{
    if (a == NULL)
        return;
    wakeup_send(&a->stop);
    (void)pthread_join(a->thread, NULL);
    ENSURE(uv_loop_close(&a->loop) == 0);
    wakeup_fini(&a->stop);
    free(a);
}

#include "web/worker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/log.h"
#include "config/config.h"
#include "dep/call.h"
#include "web/saturation_internal.h"
#include "web/service.h"
#include "web/worker_internal.h"

enum {
    TICK_MS = 250,
    TICKS_A_SECOND = 1000 / TICK_MS,
    PUMP_ROUNDS = 4,
    HEAD_POOL_BYTES = 24 * 1024, /* headers, their records, and the head of the answer */
    RESERVE_CONNECTIONS = 64,
    SPARE_CONNECTIONS = 256, /* the library's own limit is never what stops a caller */
    STOP_POLL_MS = 5,
    STOP_PATIENCE_US = 1000000,
};

/* ---- one turn of the loop ---- */

static void resume_ready(struct worker *worker)
{
    while (!list_is_empty(&worker->ready_requests)) {
        struct request *r = LIST_ITEM(worker->ready_requests.next, struct request, ready_link);

        list_remove(&r->ready_link);
        MHD_resume_connection(r->connection->mhd);
        worker->needs_pump = true;
    }
}

static void on_pump_timer(uv_timer_t *timer)
{
    struct worker *worker = timer->data;

    worker->needs_pump = true;
}

/* Lets the library work. What it has left over is announced by no descriptor, only by a timeout of
 * 0; and a connection that ended may have made room for another, which it looks for in its next
 * run. */
static void pump(struct worker *worker)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms;

    for (int i = 0; i < PUMP_ROUNDS; i++) {
        worker->needs_pump = worker->took_piece = false;
        worker->run_at = clock_now();
        (void)MHD_run(worker->daemon);
        if (worker->needs_pump)
            continue;
        if (MHD_get_timeout(worker->daemon, &timeout_ms) != MHD_YES) {
            (void)uv_timer_stop(&worker->pump_timer);
            return;
        }
        if (timeout_ms > 0) {
            (void)uv_timer_start(&worker->pump_timer, on_pump_timer, timeout_ms, 0);
            return;
        }
        if (worker->open_waits > 0 && !worker->took_piece) {
            /* What it would do at once is ask again for the answers that are not there yet. */
            (void)uv_timer_start(&worker->pump_timer, on_pump_timer, OPEN_WAIT_US / 1000, 0);
            return;
        }
    }
    (void)uv_timer_start(&worker->pump_timer, on_pump_timer, 0, 0); /* the others' turn first */
}

static void on_daemon(uv_poll_t *poll, int status, int events)
{
    struct worker *worker = poll->data;

    (void)status;
    (void)events;
    worker->needs_pump = true;
}

/* ---- every 250 ms ---- */

static void publish_health(struct worker *worker, struct instant now)
{
    struct thread_metrics *metrics = &worker->service->metrics->threads[worker->index];
    int64_t lag_us = instant_span_us(worker->next_tick_at, now);

    counter_set(&metrics->heartbeat_us, (uint64_t)now.us);
    counter_set(&metrics->loop_lag_us, lag_us > 0 ? (uint64_t)lag_us : 0);
    worker->next_tick_at = instant_after(now, (int64_t)TICK_MS * 1000);
}

static void on_tick(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    struct instant now = clock_now();

    publish_health(worker, now);
    connections_sweep(worker, now);
    saturation_count(&worker->service->saturation, worker->refused_count, worker->other_count);
    worker->refused_count = worker->other_count = 0;
    if (worker->index != 0)
        return;
    (void)cache_sweep_step(worker->service->cache, &worker->sweep_cursor);
    if (++worker->tick_count % TICKS_A_SECOND == 0)
        saturation_tick(&worker->service->saturation);
}

/* ---- what other threads want ---- */

static void take_arrivals(struct worker *worker)
{
    struct inbox_item *item = inbox_drain(&worker->arrivals);

    while (item != NULL) {
        struct inbox_item *next = item->next;

        connection_admit(worker, LIST_ITEM(item, struct connection, item));
        item = next;
    }
}

static void take_replies(struct worker *worker)
{
    for (size_t i = 0; i < worker->config->dependency_count; i++) {
        struct inbox_item *item = inbox_drain(&worker->replies[i]);

        while (item != NULL) {
            struct inbox_item *next = item->next;

            request_came_back(worker, LIST_ITEM(item, struct call, item));
            item = next;
        }
    }
}

static void take_landed(struct worker *worker)
{
    struct inbox_item *item = inbox_drain(&worker->landed);

    while (item != NULL) {
        struct inbox_item *next = item->next;

        flight_deliver(item, request_landed, worker);
        item = next;
    }
}

static void on_stop_poll(uv_timer_t *timer);

static void begin_stop(struct worker *worker)
{
    worker->is_stopping = true;
    worker->stop_at = instant_after(clock_now(), STOP_PATIENCE_US);
    connections_close_idle(worker);
    requests_stop(worker);
    cache_cancel_refreshes(worker->service->cache);
    (void)uv_timer_start(&worker->stop_timer, on_stop_poll, STOP_POLL_MS, STOP_POLL_MS);
}

static void on_woken(void *ctx)
{
    struct worker *worker = ctx;

    take_arrivals(worker);
    take_replies(worker);
    take_landed(worker); /* what just came back may have landed here */
    if (!worker->is_draining && atomic_load_explicit(&worker->should_drain, memory_order_acquire)) {
        worker->is_draining = true;
        connections_close_idle(worker);
    }
    if (!worker->is_stopping && atomic_load_explicit(&worker->should_stop, memory_order_acquire))
        begin_stop(worker);
}

/* Something that others pushed, and nobody took yet. */
static bool has_news(const struct worker *worker)
{
    if (!inbox_is_empty(&worker->arrivals) || !inbox_is_empty(&worker->landed))
        return true;
    for (size_t i = 0; i < worker->config->dependency_count; i++)
        if (!inbox_is_empty(&worker->replies[i]))
            return true;
    return (!worker->is_draining && atomic_load(&worker->should_drain)) ||
           (!worker->is_stopping && atomic_load(&worker->should_stop));
}

/* Before the loop waits: everything that this turn brought shares one pass, and what comes
 * meanwhile another, so that nobody need wake us for it. */
static void on_turn(uv_prepare_t *turn)
{
    struct worker *worker = turn->data;

    for (int i = 0; i < PUMP_ROUNDS; i++) {
        wakeup_rise(&worker->wakeup);
        on_woken(worker);
        resume_ready(worker);
        if (worker->needs_pump)
            pump(worker);
        endpoint_send_calls(&worker->env);
        wakeup_doze(&worker->wakeup);
        if (!has_news(worker) && !worker->needs_pump)
            return;
    }
    (void)uv_timer_start(&worker->pump_timer, on_pump_timer, 0, 0); /* the others' turn first */
}

/* ---- the end ---- */

/* The library aborts the process when it is stopped with a suspended connection. */
static void stop_daemon(struct worker *worker)
{
    resume_ready(worker);
    pump(worker);
    uv_close((uv_handle_t *)&worker->daemon_poll, NULL);
    MHD_stop_daemon(worker->daemon);
    worker->daemon = NULL;
    uv_close((uv_handle_t *)&worker->hang_up_poll, NULL);
    (void)close(worker->hang_up_epoll);
}

static void close_handles(struct worker *worker)
{
    uv_close((uv_handle_t *)&worker->turn, NULL);
    uv_close((uv_handle_t *)&worker->pump_timer, NULL);
    uv_close((uv_handle_t *)&worker->tick, NULL);
    uv_close((uv_handle_t *)&worker->stop_timer, NULL);
    for (struct request *r = worker->made_requests; r != NULL; r = r->next_made)
        uv_close((uv_handle_t *)&r->timer, NULL);
}

/* A call that is still with a dependency will be pushed into our inbox: then the inbox and its
 * wake-up stay, for the little that is left of the process. */
static void on_stop_poll(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    bool is_late = instant_reached(clock_now(), worker->stop_at);
    bool is_quiet = worker_is_quiet(worker) && worker->calls_under_way == 0;

    if (!is_quiet && !is_late)
        return;
    stop_daemon(worker);
    worker->is_abandoned = worker->calls_under_way > 0;
    close_handles(worker);
    if (worker->is_abandoned)
        uv_stop(&worker->loop);
    else
        wakeup_close(&worker->wakeup);
}

static void *worker_run(void *ctx)
{
    struct worker *worker = ctx;

    (void)uv_run(&worker->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* ---- the library ---- */

static size_t leave_escapes(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls;
    (void)mhd;
    return strlen(text);
}

/* Its lines are caused by callers and may hold their URLs: they are counted, not written. */
static void count_complaint(void *cls, const char *format, va_list args)
{
    struct worker *worker = cls;
    struct log_line line;

    (void)format;
    (void)args;
    worker->library_complaint_count++;
    log_begin(&line, LOG_DEBUG, "http_library_complained");
    log_int(&line, "count", (int64_t)worker->library_complaint_count);
    log_end(&line);
}

/* The strictest reading that each version has: see head_internal.h for what it still lets through.
 */
#if MHD_VERSION >= 0x00097701
#define STRICTNESS MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1
#else
#define STRICTNESS MHD_OPTION_STRICT_FOR_CLIENT, -1
#endif

static struct MHD_Daemon *daemon_start(struct worker *worker)
{
    const struct server_config *server = &worker->config->server;
    unsigned int flags =
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG;

    return MHD_start_daemon(
        flags, 0, NULL, NULL, request_handle, worker, MHD_OPTION_EXTERNAL_LOGGER, count_complaint,
        worker, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned int)(server->max_connections + RESERVE_CONNECTIONS + SPARE_CONNECTIONS),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(HEAD_POOL_BYTES + server->max_uri_bytes),
        MHD_OPTION_URI_LOG_CALLBACK, connection_take_uri, worker, MHD_OPTION_UNESCAPE_CALLBACK,
        leave_escapes, worker, MHD_OPTION_NOTIFY_COMPLETED, request_completed, worker,
        MHD_OPTION_NOTIFY_CONNECTION, connection_notify, worker, STRICTNESS, MHD_OPTION_END);
}

static bool poll_daemon(struct worker *worker)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(worker->daemon, MHD_DAEMON_INFO_EPOLL_FD);

    if (info == NULL || uv_poll_init(&worker->loop, &worker->daemon_poll, info->epoll_fd) != 0)
        return false;
    worker->daemon_poll.data = worker;
    return uv_poll_start(&worker->daemon_poll, UV_READABLE, on_daemon) == 0;
}

/* ---- the beginning; what fails here ends the process, so it only says why ---- */

static bool start_timers(struct worker *worker)
{
    if (uv_prepare_init(&worker->loop, &worker->turn) != 0 ||
        uv_timer_init(&worker->loop, &worker->pump_timer) != 0 ||
        uv_timer_init(&worker->loop, &worker->tick) != 0 ||
        uv_timer_init(&worker->loop, &worker->stop_timer) != 0)
        return false;
    worker->turn.data = worker->pump_timer.data = worker->tick.data = worker->stop_timer.data =
        worker;
    worker->next_tick_at = instant_after(clock_now(), (int64_t)TICK_MS * 1000);
    return uv_prepare_start(&worker->turn, on_turn) == 0 &&
           uv_timer_start(&worker->tick, on_tick, TICK_MS, TICK_MS) == 0;
}

static bool start_loop(struct worker *worker)
{
    return uv_loop_init(&worker->loop) == 0 &&
           wakeup_init(&worker->wakeup, &worker->loop, on_woken, worker) == 0 &&
           start_timers(worker) && hang_ups_start(worker);
}

static void init_fields(struct worker *worker, struct service *service, uint32_t index)
{
    worker->service = service;
    worker->config = service->config;
    worker->index = index;
    inbox_init(&worker->arrivals, wakeup_send, &worker->wakeup);
    inbox_init(&worker->landed, wakeup_send, &worker->wakeup);
    for (size_t i = 0; i < service->config->dependency_count; i++)
        inbox_init(&worker->replies[i], wakeup_send, &worker->wakeup);
    list_init(&worker->connections);
    list_init(&worker->arriving);
    list_init(&worker->free_requests);
    list_init(&worker->active_requests);
    list_init(&worker->ready_requests);
    rand_init_from_system(&worker->rand);
    worker->env = (struct endpoint_env){
        .config = service->config,
        .dependencies = service->dependencies,
        .cache = service->cache,
        .worker = index,
        .landed = &worker->landed,
        .has_calls = worker->has_calls,
        .reply_to = worker->replies,
        .calls_under_way = &worker->calls_under_way,
        .rand = &worker->rand,
        .memory_bytes = &service->metrics->memory_bytes,
    };
}

/* Signals are main's. */
static int start_thread(struct worker *worker)
{
    sigset_t all, before;
    int failed;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&worker->thread, NULL, worker_run, worker);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static struct worker *worker_make(size_t dependency_count)
{
    struct worker *worker = calloc(1, sizeof *worker);

    if (worker == NULL)
        return NULL;
    worker->replies = calloc(dependency_count + 1, sizeof *worker->replies);
    worker->has_calls = calloc(dependency_count + 1, sizeof *worker->has_calls);
    if (worker->replies == NULL || worker->has_calls == NULL) {
        free(worker->replies);
        free(worker->has_calls);
        free(worker);
        return NULL;
    }
    return worker;
}

struct worker *worker_start(struct service *service, uint32_t index, struct error *err)
{
    struct thread_metrics *metrics = &service->metrics->threads[index];
    struct worker *worker = worker_make(service->config->dependency_count);
    int failed;

    if (worker == NULL) {
        (void)error_set(err, "worker %u: out of memory", index);
        return NULL;
    }
    init_fields(worker, service, index);
    if (!start_loop(worker)) {
        (void)error_set(err, "worker %u: no event loop", index);
        return NULL;
    }
    worker->daemon = daemon_start(worker);
    if (worker->daemon == NULL || !poll_daemon(worker)) {
        (void)error_set(err, "worker %u: the HTTP library does not start", index);
        return NULL;
    }
    (void)snprintf(metrics->name, sizeof metrics->name, "worker-%u", index);
    counter_set(&metrics->heartbeat_us, (uint64_t)clock_now().us);
    failed = start_thread(worker);
    if (failed != 0) {
        (void)error_set(err, "worker %u: no thread: %s", index, error_of_errno(failed));
        return NULL;
    }
    (void)pthread_setname_np(worker->thread, metrics->name);
    return worker;
}

void worker_give(struct worker *worker, int fd, const struct sockaddr *address, socklen_t size,
                 bool is_reserve)
{
    struct connection *c = calloc(1, sizeof *c);

    if (c == NULL || size > sizeof c->address) {
        free(c);
        (void)close(fd);
        (void)atomic_fetch_sub_explicit(&worker->service->connections, 1, memory_order_relaxed);
        return;
    }
    memcpy(&c->address, address, size);
    c->address_bytes = size;
    c->fd = fd;
    c->is_reserve = is_reserve;
    c->worker = worker;
    list_init(&c->link);
    (void)atomic_fetch_add_explicit(&worker->connection_count, 1, memory_order_relaxed);
    inbox_push(&worker->arrivals, &c->item);
}

uint32_t worker_connection_count(const struct worker *worker)
{
    return atomic_load_explicit(&worker->connection_count, memory_order_relaxed);
}

void worker_begin_drain(struct worker *worker)
{
    atomic_store_explicit(&worker->should_drain, true, memory_order_release);
    wakeup_send(&worker->wakeup);
}

bool worker_is_quiet(const struct worker *worker)
{
    return atomic_load_explicit(&worker->request_count, memory_order_acquire) == 0;
}

void worker_free(struct worker *worker)
{
    struct inbox_item *item, *after;

    if (worker == NULL || worker->is_abandoned)
        return;
    for (item = inbox_drain(&worker->landed); item != NULL; item = after) {
        after = item->next;
        flight_discard(item);
    }
    wakeup_fini(&worker->wakeup);
    while (worker->made_requests != NULL) {
        struct request *next = worker->made_requests->next_made;

        free(worker->made_requests);
        worker->made_requests = next;
    }
    free(worker->replies);
    free(worker->has_calls);
    free(worker);
}

void worker_tell_to_stop(struct worker *worker)
{
    if (worker == NULL)
        return;
    atomic_store_explicit(&worker->should_stop, true, memory_order_release);
    wakeup_send(&worker->wakeup);
}

void worker_stop(struct worker *worker)
{
    struct log_line line;

    if (worker == NULL)
        return;
    worker_tell_to_stop(worker);
    (void)pthread_join(worker->thread, NULL);
    if (!worker->is_abandoned) {
        ENSURE(uv_loop_close(&worker->loop) == 0);
        return;
    }
    log_begin(&line, LOG_WARN, "calls_never_came_back");
    log_int(&line, "worker", worker->index);
    log_int(&line, "calls", worker->calls_under_way);
    log_end(&line);
}

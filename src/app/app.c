#include "app/app.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/cache.h"
#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "dep/postgres.h"
#include "observe/metrics.h"
#include "plan/endpoint.h"
#include "query/catalog.h"
#include "web/acceptor.h"
#include "web/admin.h"
#include "web/router.h"
#include "web/service.h"
#include "web/worker.h"

enum { FILES_RESERVE = 128, STOP_TIMEOUT_US = 2000000, LOOK_EVERY_US = 20000 };

struct app {
    const struct config *config; /* borrowed */
    struct metrics *metrics;
    struct router *router;
    struct cache *cache;
    struct dependency *dependencies; /* dependency_count */
    struct dependency **dependency_list;
    struct postgres **postgres; /* dependency_count; NULL: not started */
    struct worker **workers;
    uint32_t worker_count;
    struct acceptor *acceptor;
    struct admin *admin;
    struct service service;
    int listener, admin_listener;
    sigset_t signals;
    bool is_stuck; /* a thread did not end: nothing may be freed */
};

/* ---- the process ---- */

/* A thread that is halted inside malloc holds the lock of its arena. With an arena for each thread
 * that stops nobody else; glibc would share a few among all. */
static void give_each_thread_its_arena(const struct config *config)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before the first thread */
    (void)mallopt(M_ARENA_MAX, (int)(16 + config->server.workers + 2 * config->dependency_count));
}

static void raise_file_limit(const struct config *config)
{
    struct rlimit limit;
    struct log_line line;
    rlim_t wanted = (rlim_t)config->server.max_connections + FILES_RESERVE;

    for (size_t i = 0; i < config->dependency_count; i++)
        wanted += 3 * config->dependencies[i].connections + 4; /* two a session, one a cancel */
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= wanted)
        return;
    log_begin(&line, LOG_WARN, "few_file_descriptors");
    log_int(&line, "limit", (int64_t)limit.rlim_cur);
    log_int(&line, "wanted", (int64_t)wanted);
    log_str(&line, "detail", "raise the limit (ulimit -n) or lower server.max_connections");
    log_end(&line);
}

/* All threads inherit the mask, so that signals come to sigtimedwait() alone. */
static void block_signals(struct app *app)
{
    (void)sigemptyset(&app->signals);
    (void)sigaddset(&app->signals, SIGTERM);
    (void)sigaddset(&app->signals, SIGINT);
    (void)sigaddset(&app->signals, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &app->signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* ---- start ---- */

static bool name_threads(struct app *app)
{
    size_t n = app->worker_count + 2 + app->config->dependency_count;
    struct thread_metrics *t;

    app->metrics =
        metrics_create(app->config->catalog->route_count, app->config->dependency_count, n);
    if (app->metrics == NULL)
        return false;
    t = app->metrics->threads;
    for (uint32_t i = 0; i < app->worker_count; i++)
        (void)snprintf(t[i].name, sizeof t[i].name, "worker-%u", i);
    t += app->worker_count;
    (void)snprintf(t[0].name, sizeof t[0].name, "acceptor");
    (void)snprintf(t[1].name, sizeof t[1].name, "admin");
    for (size_t i = 0; i < app->config->dependency_count; i++)
        (void)snprintf(t[2 + i].name, sizeof t[2 + i].name, "dependency-%.20s",
                       app->config->dependencies[i].name);
    return true;
}

static void init_dependency(struct app *app, size_t i)
{
    const struct dependency_config *config = &app->config->dependencies[i];
    struct dependency *dep = &app->dependencies[i];

    dep->name = config->name;
    dep->config = config;
    dep->metrics = &app->metrics->dependencies[i];
    admission_init(&dep->admission, config->bulkhead.max_concurrent, config->bulkhead.max_queued);
    admission_set_mode(&dep->admission, config->breaker.mode);
    inbox_init(&dep->inbox, NULL, NULL);
    atomic_init(&dep->has_cancels, false);
    app->dependency_list[i] = dep;
}

static bool make_objects(struct app *app)
{
    size_t n = app->config->dependency_count;

    app->worker_count = app->config->server.workers;
    app->dependencies = calloc(n + 1, sizeof *app->dependencies);
    app->dependency_list = calloc(n + 1, sizeof *app->dependency_list);
    app->postgres = calloc(n + 1, sizeof *app->postgres);
    app->workers = calloc(app->worker_count, sizeof *app->workers);
    app->router = router_create(app->config->catalog);
    app->cache =
        cache_create(app->config->cache.max_bytes, (uint32_t)app->config->catalog->route_count,
                     app->worker_count, endpoint_cancel_flight);
    if (app->dependencies == NULL || app->dependency_list == NULL || app->postgres == NULL ||
        app->workers == NULL || app->router == NULL || app->cache == NULL || !name_threads(app))
        return false;
    for (size_t i = 0; i < n; i++)
        init_dependency(app, i);
    app->service.config = app->config;
    app->service.router = app->router;
    app->service.dependencies = app->dependency_list;
    app->service.cache = app->cache;
    app->service.metrics = app->metrics;
    app->service.started_wall_us = app->metrics->started_wall_us = clock_wall_us();
    return true;
}

static bool open_listeners(struct app *app, struct error *err)
{
    const struct config *c = app->config;

    app->listener = listener_open(c->server.address, c->server.port, err);
    if (app->listener < 0)
        return false;
    app->admin_listener = listener_open(c->admin.address, c->admin.port, err);
    return app->admin_listener >= 0 ? true : error_prefix(err, "admin port");
}

static bool start_dependencies(struct app *app, struct error *err)
{
    for (size_t i = 0; i < app->config->dependency_count; i++) {
        app->postgres[i] = postgres_start(&app->dependencies[i], app->config->catalog->route_count,
                                          &app->metrics->threads[app->worker_count + 2 + i], err);
        if (app->postgres[i] == NULL)
            return false;
    }
    return true;
}

static bool start_callers(struct app *app, struct error *err)
{
    for (uint32_t i = 0; i < app->worker_count; i++) {
        app->workers[i] = worker_start(&app->service, i, err);
        if (app->workers[i] == NULL)
            return false;
    }
    app->admin = admin_start(&app->service, app->admin_listener, err);
    app->admin_listener = -1; /* adopted, also on failure */
    if (app->admin == NULL)
        return false;
    app->acceptor =
        acceptor_start(&app->service, app->listener, app->workers, app->worker_count, err);
    app->listener = -1; /* adopted, also on failure */
    return app->acceptor != NULL;
}

static bool start(struct app *app, struct error *err)
{
    if (!make_objects(app))
        return error_set(err, "out of memory");
    return open_listeners(app, err) && start_dependencies(app, err) && start_callers(app, err);
}

static void say_started(const struct app *app)
{
    const struct config *c = app->config;
    struct log_line line;

    log_begin(&line, LOG_INFO, "started");
    log_str(&line, "version", WEIR_VERSION);
    log_str(&line, "address", c->server.address);
    log_int(&line, "port", c->server.port);
    log_str(&line, "admin_address", c->admin.address);
    log_int(&line, "admin_port", c->admin.port);
    log_int(&line, "workers", app->worker_count);
    log_int(&line, "routes", (int64_t)c->catalog->route_count);
    log_int(&line, "dependencies", (int64_t)c->dependency_count);
    log_end(&line);
}

/* ---- stop ---- */

static bool is_stop(int signal_number)
{
    return signal_number == SIGTERM || signal_number == SIGINT;
}

/* A signal, or 0 when `span_us` is over. */
static int wait_for_signal(struct app *app, int64_t span_us)
{
    struct timespec span = {.tv_sec = (time_t)(span_us / 1000000),
                            .tv_nsec = (long)(span_us % 1000000) * 1000};
    int got = sigtimedwait(&app->signals, NULL, &span);

    return got > 0 ? got : 0;
}

static void wait_for_stop(struct app *app)
{
    struct log_line line;
    int got;

    do {
        (void)sigwait(&app->signals, &got);
        if (got != SIGHUP)
            continue;
        log_begin(&line, LOG_WARN, "reload_refused");
        log_str(&line, "detail", "SIGHUP does not reload yet: restart weir");
        log_end(&line);
    } while (!is_stop(got));
}

static bool is_quiet(const struct app *app)
{
    for (uint32_t i = 0; i < app->worker_count; i++)
        if (!worker_is_quiet(app->workers[i]))
            return false;
    return true;
}

/* False: told again to stop. */
static bool wait_while(struct app *app, int64_t span_us, bool (*is_over)(const struct app *))
{
    struct instant end = instant_after(clock_now(), span_us);

    while (!instant_reached(clock_now(), end) && (is_over == NULL || !is_over(app)))
        if (is_stop(wait_for_signal(app, LOOK_EVERY_US)))
            return false;
    return true;
}

static bool drain(struct app *app)
{
    const struct server_config *server = &app->config->server;
    struct log_line line;

    log_begin(&line, LOG_INFO, "draining");
    log_ms(&line, "delay_ms", server->drain_delay_us);
    log_ms(&line, "timeout_ms", server->drain_timeout_us);
    log_end(&line);
    atomic_store(&app->service.is_draining, true);
    if (!wait_while(app, server->drain_delay_us, NULL))
        return false;
    acceptor_stop(app->acceptor);
    app->acceptor = NULL;
    for (uint32_t i = 0; i < app->worker_count; i++)
        worker_begin_drain(app->workers[i]);
    return wait_while(app, server->drain_timeout_us, is_quiet);
}

static void stop_workers(struct app *app)
{
    uint32_t count = app->workers != NULL ? app->worker_count : 0;

    for (uint32_t i = 0; i < count; i++)
        worker_tell_to_stop(app->workers[i]);
    for (uint32_t i = 0; i < count; i++)
        worker_stop(app->workers[i]);
    for (uint32_t i = 0; i < count; i++)
        worker_free(app->workers[i]);
}

static void stop_dependencies(struct app *app)
{
    size_t count = app->postgres != NULL ? app->config->dependency_count : 0;
    struct instant limit;

    for (size_t i = 0; i < count; i++)
        postgres_tell_to_stop(app->postgres[i]);
    limit = instant_after(clock_now(), STOP_TIMEOUT_US);
    for (size_t i = 0; i < count; i++)
        if (!postgres_stop(app->postgres[i], limit))
            app->is_stuck = true;
}

/* Callers first: a worker answers what still waits, and its calls come home while the dependencies
 * are still there to send them back. All of a kind stop at once: however many are stuck, the end is
 * not put off more than by one. */
static void stop_threads(struct app *app)
{
    acceptor_stop(app->acceptor);
    stop_workers(app);
    stop_dependencies(app);
    admin_stop(app->admin);
}

static void free_objects(struct app *app)
{
    /* Calls that came when their dependency was already gone. */
    for (size_t i = 0; app->dependencies != NULL && i < app->config->dependency_count; i++) {
        struct inbox_item *item = inbox_drain(&app->dependencies[i].inbox), *next;

        for (; item != NULL; item = next) {
            next = item->next;
            call_destroy(LIST_ITEM(item, struct call, item));
        }
    }
    router_destroy(app->router);
    cache_destroy(app->cache);
    metrics_destroy(app->metrics);
    free(app->workers);
    free(app->postgres);
    free(app->dependency_list);
    free(app->dependencies);
    if (app->listener >= 0)
        (void)close(app->listener);
    if (app->admin_listener >= 0)
        (void)close(app->admin_listener);
}

static void say_stopped(bool was_drained)
{
    struct log_line line;

    log_begin(&line, LOG_INFO, "stopped");
    log_bool(&line, "drained", was_drained);
    log_end(&line);
}

int app_run(const struct config *config)
{
    struct app app = {.config = config, .listener = -1, .admin_listener = -1};
    struct error err;
    bool is_started, was_drained = false;

    give_each_thread_its_arena(config);
    block_signals(&app);
    if (!log_start(STDERR_FILENO, config->log.level, config->log.format)) {
        (void)fprintf(stderr, "weir: no thread for the log\n");
        return 1;
    }
    raise_file_limit(config);
    is_started = start(&app, &err);
    if (is_started) {
        say_started(&app);
        wait_for_stop(&app);
        was_drained = drain(&app);
        if (was_drained)
            stop_threads(&app);
        say_stopped(was_drained);
    } else {
        stop_threads(&app);
    }
    log_stop();
    if (!is_started)
        (void)fprintf(stderr, "weir: %s\n", err.text);
    if (app.is_stuck || (is_started && !was_drained))
        _exit(0); /* told twice, or a thread is stuck: nothing may be freed under those that run */
    free_objects(&app);
    return is_started ? 0 : 1;
}

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "dep/postgres_internal.h"

/* An idle session is not asked again whether it still lives when it worked, or the loop looked at
 * its socket and had nothing to tell, this short a time ago. */
enum { FRESH_FOR_US = 5000 };

static const bool may_follow[SESSION_STATE_COUNT][SESSION_STATE_COUNT] = {
    [SESSION_OPENING] = {[SESSION_IDLE] = true, [SESSION_CLOSED] = true},
    [SESSION_IDLE] = {[SESSION_BUSY] = true, [SESSION_CLOSED] = true},
    [SESSION_BUSY] = {[SESSION_IDLE] = true, [SESSION_CLEANING] = true, [SESSION_CLOSED] = true},
    [SESSION_CLEANING] = {[SESSION_IDLE] = true, [SESSION_CLOSED] = true},
};

static void publish_counts(const struct postgres *p)
{
    counter *gauges = p->dep->metrics->connections;

    counter_set(&gauges[CONNECTION_IDLE], p->session_counts[SESSION_IDLE]);
    counter_set(&gauges[CONNECTION_BUSY],
                p->session_counts[SESSION_BUSY] + p->session_counts[SESSION_CLEANING]);
    counter_set(&gauges[CONNECTION_OPENING], p->session_counts[SESSION_OPENING]);
}

void session_move(struct postgres_session *s, enum session_state to)
{
    struct postgres *p = s->owner;

    ENSURE(may_follow[s->state][to]);
    if (!s->is_probe) {
        p->session_counts[s->state]--;
        p->session_counts[to]++;
        publish_counts(p);
    }
    s->state = to;
}

static void on_timer(uv_timer_t *timer)
{
    struct postgres_session *s = timer->data;

    if (!instant_reached(clock_now(), s->timer_at)) {
        if (s->timer_at.us != INSTANT_NEVER.us)
            session_timer(s, s->timer_at);
        return; /* it was set for something that ended in time */
    }
    if (s->state == SESSION_OPENING && s->goal == GOAL_NONE)
        connect_on_timeout(s);
    else
        run_timeout(s);
    postgres_rearm(s->owner);
}

struct postgres_session *session_create(struct postgres *p, bool is_probe)
{
    struct postgres_session *s = calloc(1, sizeof *s);

    if (s == NULL)
        return NULL;
    s->statements = calloc(p->route_count + 1, sizeof *s->statements);
    if (s->statements == NULL) {
        free(s);
        return NULL;
    }
    s->owner = p;
    s->is_probe = is_probe;
    s->state = SESSION_OPENING;
    s->poll_fd = -1;
    list_init(&s->resolve_link);
    list_init(&s->link);
    (void)uv_timer_init(&p->loop, &s->timer);
    s->timer.data = s;
    buffer_init_mapped(&s->rows, 0);
    if (!is_probe) {
        list_push_back(&p->sessions, &s->link);
        p->session_counts[SESSION_OPENING]++;
        publish_counts(p);
    }
    return s;
}

/* A timer that is set, and fires early enough, stays: it looks again then. Most calls end before,
 * and so the loop's heap is left alone. */
void session_timer(struct postgres_session *s, struct instant at)
{
    int64_t wait_us;

    s->timer_at = at;
    if (uv_is_active((uv_handle_t *)&s->timer) != 0 && s->fires_at.us <= at.us)
        return;
    s->fires_at = at;
    wait_us = instant_span_us(clock_now(), at);
    uv_update_time(&s->owner->loop);
    (void)uv_timer_start(&s->timer, on_timer, wait_us > 0 ? (uint64_t)(wait_us + 999) / 1000 : 0,
                         0);
}

void session_timer_off(struct postgres_session *s)
{
    s->timer_at = INSTANT_NEVER;
}

/* ---- the socket ---- */

/* An error on the socket shows when libpq reads, but only behind all that came before it: one read
 * may not be enough to reach it. */
static void watch_again(struct postgres_session *s, const uv_poll_t *poll)
{
    if (s->state != SESSION_CLOSED && s->poll == poll && s->poll_events == 0)
        session_watch(s, UV_READABLE);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct postgres_session *s = poll->data;
    struct postgres *p = s->owner;

    wakeup_rise(&p->wakeup);
    if (status != 0)
        s->poll_events = 0; /* libuv has stopped watching */
    if (s->state == SESSION_OPENING && s->goal == GOAL_NONE)
        connect_on_event(s);
    else if ((events & UV_WRITABLE) != 0 && !session_flush(s))
        run_lost(s);
    else if ((events & UV_READABLE) != 0 || status != 0)
        session_read(s);
    if (status != 0)
        watch_again(s, poll);
    postgres_rearm(p);
}

static void free_poll(uv_handle_t *handle)
{
    free(handle);
}

void session_drop_watch(struct postgres_session *s)
{
    if (s->poll == NULL)
        return;
    (void)uv_poll_stop(s->poll);
    uv_close((uv_handle_t *)s->poll, free_poll);
    (void)close(s->poll_fd); /* uv_close() was the last to name it to the kernel */
    s->poll = NULL;
    s->poll_fd = -1;
    s->poll_events = 0;
}

void session_unwatch(struct postgres_session *s)
{
    if (s->poll != NULL)
        (void)uv_poll_stop(s->poll);
    s->poll_events = 0;
}

/* The loop watches a number of its own for libpq's socket. libpq closes its one whenever it likes,
 * in the middle of a read, and by the time the loop is told to forget it, the number may be
 * another thread's. */
static bool open_watch(struct postgres_session *s)
{
    int fd = fcntl(PQsocket(s->conn), F_DUPFD_CLOEXEC, 0);
    uv_poll_t *poll = malloc(sizeof *poll);

    if (fd < 0 || poll == NULL || uv_poll_init(&s->owner->loop, poll, fd) != 0) {
        free(poll);
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    poll->data = s;
    s->poll = poll;
    s->poll_fd = fd;
    return true;
}

void session_watch(struct postgres_session *s, int events)
{
    if (s->poll == NULL && !open_watch(s))
        return; /* the timer of what goes on ends it */
    if (s->poll_events != events)
        (void)uv_poll_start(s->poll, events, on_event);
    s->poll_events = events;
}

bool session_flush(struct postgres_session *s)
{
    int left = PQflush(s->conn);

    if (left < 0)
        return false;
    session_watch(s, left > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE);
    return true;
}

/* ---- the pipeline: what was sent, in order ---- */

static enum step head(const struct postgres_session *s)
{
    return s->steps[s->first_step % STEPS_MAX];
}

/* Rows come one by one (in chunks where libpq can), so that a result over its cap is never whole in
 * memory. libpq takes the wish only when the statement is the next to be answered. */
static void wish_for_single_rows(struct postgres_session *s)
{
    if (s->step_count == 0 || head(s) != STEP_STATEMENT)
        return;
#ifdef LIBPQ_HAS_CHUNK_MODE
    (void)PQsetChunkedRowsMode(s->conn, 256);
#else
    (void)PQsetSingleRowMode(s->conn);
#endif
}

void session_push(struct postgres_session *s, enum step step)
{
    ENSURE(s->step_count < STEPS_MAX);
    s->steps[(s->first_step + s->step_count) % STEPS_MAX] = step;
    s->step_count++;
    if (s->step_count == 1)
        wish_for_single_rows(s);
}

static void pop(struct postgres_session *s)
{
    s->first_step++;
    s->step_count--;
}

/* NULL from PQgetResult: the head has told all. */
static void end_of_step(struct postgres_session *s)
{
    enum step step = head(s);

    if (step == STEP_SYNC)
        return; /* the NULL behind an error that belongs to no statement; the sync comes next */
    pop(s);
    wish_for_single_rows(s);
    run_step_done(s, step);
}

static bool is_copy(ExecStatusType status)
{
    return status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH;
}

/* Takes one result off libpq. False: nothing more for now, or the session is gone. */
static bool take_result(struct postgres_session *s)
{
    PGresult *result = PQgetResult(s->conn);
    ExecStatusType status = PQresultStatus(result);

    if (is_copy(status) || (result == NULL && PQstatus(s->conn) != CONNECTION_OK)) {
        PQclear(result); /* libpq would answer the same for ever */
        session_unwatch(s);
        run_lost(s);
        return false;
    }
    if (result == NULL) {
        end_of_step(s);
    } else if (status == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        ENSURE(head(s) == STEP_SYNC);
        pop(s);
        wish_for_single_rows(s);
        if (s->step_count == 0)
            run_batch_done(s);
        return s->state != SESSION_CLOSED && s->step_count > 0;
    } else {
        run_result(s, head(s), result);
        PQclear(result);
    }
    return s->state != SESSION_CLOSED && s->step_count > 0;
}

void session_read(struct postgres_session *s)
{
    if (PQconsumeInput(s->conn) == 0) {
        session_unwatch(s);
        run_lost(s);
        return;
    }
    if (s->step_count == 0) {
        /* Readable while nothing was asked: nearly always the server's farewell, which libpq does
         * not look at between two calls of a pipeline. Whatever it is, another session is cheap. */
        run_lost(s);
        return;
    }
    while (s->state != SESSION_CLOSED && s->step_count > 0 && PQisBusy(s->conn) == 0)
        if (!take_result(s))
            break;
}

bool session_is_fresh(struct postgres_session *s)
{
    struct pollfd ask = {.fd = PQsocket(s->conn), .events = POLLIN};
    struct instant heard_at = s->owner->heard_at;

    if (s->saw_fatal || PQstatus(s->conn) != CONNECTION_OK ||
        PQtransactionStatus(s->conn) != PQTRANS_IDLE)
        return false;
    if (heard_at.us < s->idle_since.us)
        heard_at = s->idle_since;
    if (instant_span_us(heard_at, clock_now()) < FRESH_FOR_US)
        return true;
    return poll(&ask, 1, 0) == 0;
}

/* ---- the end ---- */

static void free_session(uv_handle_t *handle)
{
    struct postgres_session *s = handle->data;

    for (size_t i = 0; i < s->owner->route_count; i++)
        statement_fini(&s->statements[i]);
    free(s->statements);
    buffer_fini(&s->rows);
    free(s);
}

void session_reply_late(struct postgres_session *s)
{
    struct call *call = s->late_call;

    s->late_call = NULL;
    if (call != NULL)
        postgres_reply(s->owner, call);
}

void session_close(struct postgres_session *s)
{
    struct postgres *p = s->owner;

    ENSURE(s->call == NULL);
    session_move(s, SESSION_CLOSED);
    list_remove(&s->link);
    list_remove(&s->resolve_link);
    if (s->cancel != NULL)
        cancel_abandon(s->cancel);
    s->cancel = NULL;
    session_drop_watch(s);
    connect_end_trace(s);
    PQfinish(
        s->conn); /* the socket is non-blocking: a farewell that does not fit is not waited for */
    s->conn = NULL;
    uv_close((uv_handle_t *)&s->timer, free_session);
    session_reply_late(s);
    if (s->holds_permit) {
        s->holds_permit = false;
        postgres_permit_back(p);
    }
    pool_serve(p);
}

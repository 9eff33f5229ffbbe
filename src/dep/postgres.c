#include "dep/postgres.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "dep/postgres_internal.h"
#include "query/route.h"

enum { HEARTBEAT_US = 250000 };

/* ---- logs: on change, or at most one line a second ---- */

void postgres_log_connect_failure(struct postgres *p, const struct failure *failure)
{
    struct log_line line;
    bool is_news = !p->is_lost && !pool_has_connection(p);

    if (is_news)
        p->is_lost = true;
    if (!log_limit_pass(&p->connect_log, clock_now().us) && !is_news)
        return;
    log_begin(&line, LOG_WARN, is_news ? "dependency_lost" : "connect_failed");
    log_str(&line, "dependency", p->dep->name);
    log_str(&line, "reason", reason_word(failure->reason));
    log_str(&line, "sqlstate", failure->sqlstate[0] != '\0' ? failure->sqlstate : NULL);
    log_str(&line, "detail", failure->log_text[0] != '\0' ? failure->log_text : failure->detail);
    log_int(&line, "left_out", (int64_t)p->connect_log.left_out_count);
    log_end(&line);
    p->connect_log.left_out_count = 0;
}

void postgres_note_reached(struct postgres *p)
{
    struct log_line line;
    bool is_first = counter_read(&p->dep->metrics->is_reached) == 0;

    counter_set(&p->dep->metrics->is_reached, 1);
    if (!is_first && !p->is_lost)
        return;
    p->is_lost = false;
    log_begin(&line, LOG_INFO, "dependency_reached");
    log_str(&line, "dependency", p->dep->name);
    log_end(&line);
}

/* What the operator needs to find the statement; never its text, and not the server's message,
 * which may hold values. */
static void log_statement_failure(struct postgres *p, const struct call *call,
                                  const struct failure *failure)
{
    struct log_line line;
    int at_line, at_column;

    if (failure->reason != REASON_QUERY_INVALID && failure->reason != REASON_DATABASE_ERROR)
        return;
    if (!log_limit_pass(&p->statement_log, clock_now().us))
        return;
    log_begin(&line, LOG_ERROR, "statement_failed");
    log_str(&line, "dependency", p->dep->name);
    log_str(&line, "route", call->route->label);
    log_str(&line, "reason", reason_word(failure->reason));
    log_str(&line, "sqlstate", failure->sqlstate[0] != '\0' ? failure->sqlstate : NULL);
    log_str(&line, "file", call->route->file);
    if (failure->position > 0) {
        route_place_of(call->route, (size_t)failure->position, &at_line, &at_column);
        log_int(&line, "line", at_line);
        log_int(&line, "column", at_column);
    }
    log_str(&line, "detail", failure->detail[0] != '\0' ? failure->detail : NULL);
    log_int(&line, "left_out", (int64_t)p->statement_log.left_out_count);
    log_end(&line);
    p->statement_log.left_out_count = 0;
}

static void on_breaker_moved(void *ctx, enum breaker_state from, enum breaker_state to)
{
    struct postgres *p = ctx;
    struct log_line line;
    enum reason cause = (enum reason)counter_read(&p->dep->metrics->last_failure_reason);

    counter_add(&p->dep->metrics->transitions[to], 1);
    counter_set(&p->dep->metrics->last_move_wall_us, (uint64_t)clock_wall_us());
    log_begin(&line, to == BREAKER_OPEN ? LOG_WARN : LOG_INFO, "breaker_moved");
    log_str(&line, "dependency", p->dep->name);
    log_str(&line, "from", breaker_state_name(from));
    log_str(&line, "to", breaker_state_name(to));
    if (to == BREAKER_OPEN)
        log_str(&line, "cause", reason_word(cause));
    log_end(&line);
    if (to == BREAKER_OPEN)
        probe_schedule(p, clock_now());
}

/* ---- outcomes ---- */

void postgres_note_failure(struct postgres *p, const struct failure *failure)
{
    counter_set(&p->dep->metrics->last_failure_reason, (uint64_t)failure->reason);
    counter_set(&p->dep->metrics->last_failure_wall_us, (uint64_t)clock_wall_us());
}

void postgres_settle(struct postgres *p, struct call *call, const struct failure *failure)
{
    enum evidence evidence = failure->evidence;
    struct instant now = clock_now();

    if (call->is_settled)
        return;
    call->is_settled = true;
    if (failure->blames_only_without_connection && pool_has_connection(p))
        evidence = EVIDENCE_NONE;
    if (evidence == EVIDENCE_GOOD)
        p->last_good_at = now;
    else if (evidence != EVIDENCE_NONE)
        postgres_note_failure(p, failure);
    breaker_record(&p->breaker, call->ticket, evidence, now);
}

static void count_outcome(struct postgres *p, const struct call *call)
{
    struct dependency_metrics *m = p->dep->metrics;

    if (atomic_load_explicit(&call->is_cancelled, memory_order_acquire) && call->is_hung_up)
        counter_add(&m->calls_hung_up, 1);
    else
        counter_add(&m->calls[call->outcome.reason], 1);
    if (call->outcome.served_us > 0)
        histogram_observe(&m->duration, call->outcome.served_us);
}

/* A worker that is woken for each call handles each alone; together they share its turn. */
static void send_later(struct postgres *p, struct call *call)
{
    call->item.next = NULL;
    if (p->replies == NULL)
        p->replies = &call->item;
    else
        p->last_reply->next = &call->item;
    p->last_reply = &call->item;
}

static void send_replies(struct postgres *p)
{
    struct inbox_item *item = p->replies;

    p->replies = p->last_reply = NULL;
    while (item != NULL) {
        struct call *call = LIST_ITEM(item, struct call, item);

        item = item->next;
        inbox_push(call->reply_to, &call->item); /* from here on it is the worker's */
    }
}

void postgres_reply(struct postgres *p, struct call *call)
{
    bool had_permit = call->has_permit;

    count_outcome(p, call);
    call->has_permit = false;
    if (had_permit)
        postgres_permit_back(p);
    send_later(p, call);
}

static void set_outcome(struct call *call, const struct failure *failure)
{
    struct outcome *out = &call->outcome;

    out->reason = failure->reason;
    if (failure->reason == REASON_NONE)
        return;
    memcpy(out->sqlstate, failure->sqlstate, sizeof out->sqlstate);
    memcpy(out->detail, failure->detail, sizeof out->detail);
    memcpy(out->constraint, failure->constraint, sizeof out->constraint);
}

void postgres_end(struct postgres *p, struct call *call, const struct failure *failure)
{
    log_statement_failure(p, call, failure);
    set_outcome(call, failure);
    postgres_settle(p, call, failure);
}

void postgres_fail(struct postgres *p, struct call *call, const struct failure *failure)
{
    postgres_end(p, call, failure);
    postgres_reply(p, call);
}

/* ---- the waiting line: calls without a permit, and without a ticket ---- */

static struct call *first_of(const struct list *list)
{
    return LIST_ITEM(list->next, struct call, link);
}

static void leave_line(struct postgres *p, struct call *call, enum reason reason)
{
    struct failure failure;

    failure_set(&failure, reason, EVIDENCE_NONE, "%s", "");
    list_remove(&call->link);
    admission_leave_line(&p->dep->admission);
    set_outcome(call, &failure);
    send_later(p, call);
}

static bool is_refusing(const struct postgres *p)
{
    struct admission_view view = admission_read(&p->dep->admission);

    return view.mode == BREAKER_FORCED_OPEN ||
           (view.mode == BREAKER_AUTO &&
            (view.state == BREAKER_OPEN ||
             (view.state == BREAKER_HALF_OPEN && view.trials_left == 0)));
}

/* First come, first served: whoever heads the line gets the next permit. */
static void move_line(struct postgres *p)
{
    while (!list_is_empty(&p->line)) {
        struct call *call = first_of(&p->line);

        if (admission_promote(&p->dep->admission, &call->ticket)) {
            list_remove(&call->link);
            call->has_permit = true;
            call->give_up_at = call->deadline;
            list_push_back(&p->waiting, &call->link);
        } else if (is_refusing(p)) {
            counter_add(&p->dep->metrics->refused_open, 1);
            leave_line(p, call, REASON_BREAKER_OPEN);
        } else {
            return;
        }
    }
}

void postgres_permit_back(struct postgres *p)
{
    admission_leave(&p->dep->admission);
    move_line(p);
}

static void expire_line(struct postgres *p, struct instant now)
{
    for (struct list *i = p->line.next, *next; i != &p->line; i = next) {
        struct call *call = LIST_ITEM(i, struct call, link);

        next = i->next;
        if (!instant_reached(now, call->give_up_at))
            continue;
        counter_add(&p->dep->metrics->refused_queue_timeout, 1);
        leave_line(p, call, REASON_QUEUE_TIMEOUT);
    }
}

/* ---- calls with a permit that wait for a session: one is being opened for each ---- */

static void fail_waiting(struct postgres *p, struct call *call)
{
    struct failure failure;
    bool is_haste = call->is_short_by_caller;

    list_remove(&call->link);
    failure_set(&failure, REASON_DEADLINE, is_haste ? EVIDENCE_NONE : EVIDENCE_BAD_CONNECTION,
                "no connection to the database was made in time");
    postgres_fail(p, call, &failure);
}

static void expire_waiting(struct postgres *p, struct instant now)
{
    for (struct list *i = p->waiting.next, *next; i != &p->waiting; i = next) {
        struct call *call = LIST_ITEM(i, struct call, link);

        next = i->next;
        if (instant_reached(now, call->deadline))
            fail_waiting(p, call);
    }
}

static bool is_cancelled(const struct call *call)
{
    return atomic_load_explicit(&call->is_cancelled, memory_order_acquire);
}

static void drop_waiting(struct postgres *p, struct call *call)
{
    struct failure failure;

    if (!call->is_hung_up) {
        fail_waiting(p, call);
        return;
    }
    failure_set(&failure, REASON_DEADLINE, EVIDENCE_NONE, "the caller hung up");
    list_remove(&call->link);
    postgres_fail(p, call, &failure);
}

static struct postgres_session *find_cancelled(const struct postgres *p)
{
    for (const struct list *i = p->sessions.next; i != &p->sessions; i = i->next) {
        struct postgres_session *s = LIST_ITEM(i, struct postgres_session, link);

        if (s->call != NULL && is_cancelled(s->call))
            return s;
    }
    return NULL;
}

static void drop_cancelled(struct postgres *p)
{
    struct postgres_session *s;

    while ((s = find_cancelled(p)) != NULL)
        run_cancelled(s);
    for (struct list *i = p->waiting.next, *next; i != &p->waiting; i = next) {
        next = i->next;
        if (is_cancelled(LIST_ITEM(i, struct call, link)))
            drop_waiting(p, LIST_ITEM(i, struct call, link));
    }
    for (struct list *i = p->line.next, *next; i != &p->line; i = next) {
        next = i->next;
        if (is_cancelled(LIST_ITEM(i, struct call, link)))
            leave_line(p, LIST_ITEM(i, struct call, link), REASON_DEADLINE);
    }
}

/* ---- the inbox ---- */

static void take_calls(struct postgres *p)
{
    struct inbox_item *item = inbox_drain(&p->dep->inbox), *next;

    for (; item != NULL; item = next) {
        struct call *call = LIST_ITEM(item, struct call, item);

        next = item->next;
        call->give_up_at = call->deadline;
        if (call->has_permit) {
            list_push_back(&p->waiting, &call->link);
        } else {
            call->give_up_at = instant_earlier(
                call->deadline,
                instant_after(call->created_at, p->config->bulkhead.queue_timeout_us));
            list_push_back(&p->line, &call->link);
        }
    }
}

static void refuse_all(struct postgres *p)
{
    struct failure draining;

    failure_set(&draining, REASON_DRAINING, EVIDENCE_NONE, "%s", "");
    while (!list_is_empty(&p->line))
        leave_line(p, first_of(&p->line), REASON_DRAINING);
    while (!list_is_empty(&p->waiting)) {
        struct call *call = first_of(&p->waiting);

        list_remove(&call->link);
        postgres_fail(p, call, &draining);
    }
}

/* ---- time ---- */

static void on_tick(uv_timer_t *timer)
{
    struct postgres *p = timer->data;
    struct instant now = clock_now();

    p->tick_at = INSTANT_NEVER;
    breaker_tick(&p->breaker, now);
    expire_line(p, now);
    expire_waiting(p, now);
    probe_give_up_if_due(p, now);
    probe_start_if_due(p, now);
    pool_sweep(p, now);
    pool_serve(p);
    postgres_rearm(p);
}

static struct instant earliest_of(const struct list *list, struct instant at)
{
    for (const struct list *i = list->next; i != list; i = i->next)
        at = instant_earlier(at, LIST_ITEM(i, struct call, link)->give_up_at);
    return at;
}

/* For Retry-After: when the next trial, or the next probe where a good one is enough, may end a
 * refusal. */
static void publish_retry_at(struct postgres *p)
{
    struct instant at = p->breaker.reopen_at;

    if (p->breaker.state != BREAKER_OPEN)
        return;
    if (p->breaker.may_probe_end_open && p->probe.session == NULL)
        at = instant_earlier(at, p->probe.next_at);
    atomic_store_explicit(&p->dep->admission.retry_at_us, at.us, memory_order_relaxed);
}

void postgres_rearm(struct postgres *p)
{
    struct instant at = instant_earlier(p->next_sweep_at, breaker_next_tick(&p->breaker));
    int64_t wait_us;

    if (p->is_closed)
        return;
    publish_retry_at(p);
    if (!list_is_empty(&p->line))
        move_line(p);
    if (!list_is_empty(&p->waiting))
        pool_serve(p);
    at = instant_earlier(at, probe_next(p));
    at = earliest_of(&p->line, earliest_of(&p->waiting, at));
    if (p->tick_at.us <= at.us)
        return; /* it ticks early enough, and looks again then */
    p->tick_at = at;
    uv_update_time(&p->loop);
    wait_us = instant_span_us(clock_now(), at);
    (void)uv_timer_start(&p->tick, on_tick, wait_us > 0 ? (uint64_t)(wait_us + 999) / 1000 : 0, 0);
}

static void on_heartbeat(uv_timer_t *timer)
{
    struct postgres *p = timer->data;
    struct instant now = clock_now();
    int64_t late_us = instant_span_us(p->heartbeat_due, now);

    p->heartbeat_due = instant_after(now, HEARTBEAT_US);
    counter_set(&p->thread_metrics->loop_lag_us, late_us > 0 ? (uint64_t)late_us : 0);
    counter_set(&p->thread_metrics->heartbeat_us, (uint64_t)now.us);
}

/* ---- start and stop ---- */

static void close_down(struct postgres *p)
{
    p->is_closed = true;
    resolver_stop(p->resolver); /* from here on it does not wake this loop */
    p->resolver = NULL;
    refuse_all(p);
    pool_close_all(p);
    if (p->probe.session != NULL)
        session_close(p->probe.session);
    p->probe.session = NULL;
    send_replies(p);
    uv_close((uv_handle_t *)&p->turn, NULL);
    uv_close((uv_handle_t *)&p->heard, NULL);
    uv_close((uv_handle_t *)&p->tick, NULL);
    uv_close((uv_handle_t *)&p->heartbeat, NULL);
    wakeup_close(&p->wakeup);
}

static void on_woken(void *ctx)
{
    struct postgres *p = ctx;
    bool has_cancels;

    if (p->is_closed)
        return;
    /* The flag before the calls: a call is cancelled after it was pushed, so that whoever is meant
     * is found. */
    has_cancels = atomic_exchange_explicit(&p->dep->has_cancels, false, memory_order_acq_rel);
    take_calls(p);
    if (has_cancels)
        drop_cancelled(p);
    if (atomic_exchange(&p->has_answer, false))
        connect_resolved(p);
    pool_serve(p);
    if (atomic_load_explicit(&p->is_stopping, memory_order_acquire))
        close_down(p);
    else
        postgres_rearm(p);
}

static bool has_news(const struct postgres *p)
{
    return !inbox_is_empty(&p->dep->inbox) ||
           atomic_load_explicit(&p->dep->has_cancels, memory_order_relaxed) ||
           atomic_load_explicit(&p->has_answer, memory_order_relaxed) ||
           atomic_load_explicit(&p->is_stopping, memory_order_relaxed);
}

/* Before the loop waits: takes what came while it was busy, so that nobody need wake it for that.
 */
static void on_turn(uv_prepare_t *turn)
{
    struct postgres *p = turn->data;

    do {
        wakeup_rise(&p->wakeup);
        if (has_news(p))
            on_woken(p);
        send_replies(p);
        wakeup_doze(&p->wakeup);
    } while (!p->is_closed && has_news(p));
}

static void on_heard(uv_check_t *heard)
{
    struct postgres *p = heard->data;

    p->heard_at = clock_now();
}

static void on_resolved(void *ctx)
{
    struct postgres *p = ctx;

    atomic_store(&p->has_answer, true);
    wakeup_send(&p->wakeup);
}

static bool open_loop(struct postgres *p, struct error *err)
{
    int failed = uv_loop_init(&p->loop);

    if (failed != 0)
        return error_set(err, "loop: %s", uv_strerror(failed));
    (void)uv_prepare_init(&p->loop, &p->turn);
    (void)uv_check_init(&p->loop, &p->heard);
    (void)uv_timer_init(&p->loop, &p->tick);
    (void)uv_timer_init(&p->loop, &p->heartbeat);
    p->turn.data = p->heard.data = p->tick.data = p->heartbeat.data = p;
    failed = wakeup_init(&p->wakeup, &p->loop, on_woken, p);
    if (failed != 0)
        return error_set(err, "wake-up: %s", uv_strerror(failed));
    inbox_init(&p->dep->inbox, wakeup_send, &p->wakeup);
    return true;
}

/* What a new thread tells the one that waits for it. */
struct start {
    struct postgres *p; /* borrowed */
    struct error *err;  /* borrowed */
    bool is_open;
    sem_t is_known;
};

/* The loop is opened by its own thread: what it grows later must be memory of that thread. A piece
 * that main allocated is grown under the lock that main and the workers need for theirs. */
static void *run(void *arg)
{
    struct start *start = arg;
    struct postgres *p = start->p;
    bool is_open = open_loop(p, start->err);

    start->is_open = is_open;
    (void)sem_post(&start->is_known); /* *start is gone from here on */
    if (!is_open)
        return NULL;
    p->heartbeat_due = instant_after(clock_now(), HEARTBEAT_US);
    (void)uv_prepare_start(&p->turn, on_turn);
    (void)uv_check_start(&p->heard, on_heard);
    (void)uv_timer_start(&p->heartbeat, on_heartbeat, HEARTBEAT_US / 1000, HEARTBEAT_US / 1000);
    on_tick(&p->tick);
    (void)uv_run(&p->loop, UV_RUN_DEFAULT);
    (void)sem_post(&p->is_over);
    return NULL;
}

static void init(struct postgres *p, struct dependency *dep, size_t route_count,
                 struct thread_metrics *thread)
{
    const struct dependency_config *config = dep->config;
    struct breaker_config breaker = {
        .failure_threshold = config->breaker.failure_threshold,
        .reset_timeout_us = config->breaker.reset_timeout_us,
        .max_reset_timeout_us = config->breaker.max_reset_timeout_us,
        .half_open_calls = config->breaker.half_open_calls,
    };

    (void)sem_init(&p->is_over, 0, 0);
    p->dep = dep;
    p->config = config;
    p->route_count = route_count;
    p->thread_metrics = thread;
    list_init(&p->line);
    list_init(&p->waiting);
    list_init(&p->sessions);
    list_init(&p->resolve_waiters);
    rand_init_from_system(&p->rand);
    p->tick_at = INSTANT_NEVER;
    p->last_good_at = p->probe.next_at = clock_now();
    breaker_init(&p->breaker, &breaker, &dep->admission, &p->rand, on_breaker_moved, p);
}

static bool start_thread(struct postgres *p, struct error *err)
{
    struct start start = {.p = p, .err = err};
    char name[16];
    int failed;

    (void)sem_init(&start.is_known, 0, 0);
    failed = pthread_create(&p->thread, NULL, run, &start);
    if (failed == 0)
        while (sem_wait(&start.is_known) != 0) /* a signal */
            continue;
    (void)sem_destroy(&start.is_known);
    if (failed != 0)
        return error_set(err, "thread: %s", error_of_errno(failed));
    if (!start.is_open) {
        (void)pthread_join(p->thread, NULL);
        return false;
    }
    (void)snprintf(name, sizeof name, "dep-%.11s", p->dep->name);
    (void)pthread_setname_np(p->thread, name);
    return true;
}

static void destroy(struct postgres *p)
{
    resolver_stop(p->resolver);
    connect_close_trace(p);
    targets_fini(&p->targets);
    free(p->known_types);
    (void)sem_destroy(&p->is_over);
    free(p);
}

static bool start_all(struct postgres *p, struct error *err)
{
    if (!targets_parse(&p->targets, p->config->conninfo, err))
        return false;
    if (!connect_open_trace(p))
        return error_set(err, "out of memory");
    p->resolver = resolver_start(on_resolved, p, err);
    return p->resolver != NULL && start_thread(p, err);
}

struct postgres *postgres_start(struct dependency *dep, size_t route_count,
                                struct thread_metrics *thread, struct error *err)
{
    struct postgres *p = calloc(1, sizeof *p);

    if (p == NULL) {
        (void)error_set(err, "dependency %s: out of memory", dep->name);
        return NULL;
    }
    init(p, dep, route_count, thread);
    if (!start_all(p, err)) {
        (void)error_prefix(err, "dependency %s", dep->name);
        destroy(p);
        return NULL;
    }
    return p;
}

void postgres_tell_to_stop(struct postgres *p)
{
    if (p == NULL)
        return;
    atomic_store_explicit(&p->is_stopping, true, memory_order_release);
    wakeup_send(&p->wakeup);
}

bool postgres_stop(struct postgres *p, struct instant limit)
{
    struct timespec until = {.tv_sec = (time_t)(limit.us / 1000000),
                             .tv_nsec = (long)(limit.us % 1000000) * 1000};

    if (p == NULL)
        return true;
    postgres_tell_to_stop(p);
    while (sem_clockwait(&p->is_over, CLOCK_MONOTONIC, &until) != 0)
        if (errno != EINTR)
            return false;
    (void)pthread_join(p->thread, NULL);
    (void)uv_loop_close(&p->loop);
    wakeup_fini(&p->wakeup);
    destroy(p);
    return true;
}

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "dep/postgres_internal.h"
#include "query/route.h"

enum {
    LARGE_RESULT_BYTES = 16 << 20, /* libpq's buffers never shrink: such a session retires */
    PREPARE_AGAIN_MAX = 3,
    CHECK_INTERVAL_MS = 1000, /* how often PostgreSQL looks whether we are still there */
};

static const char set_name[] = "weir_set"; /* prepared, for what is set within a batch */
static const char set_sql[] = "SELECT pg_catalog.set_config($1, $2, false)";

/* ---- times ---- */

/* The server stops a statement a little before our own timer does, so that its answer, which says
 * that nothing happened, arrives in time. */
static int64_t less_margin_ms(int64_t span_us)
{
    int64_t margin_us = span_us / 10 < 50000 ? span_us / 10 : 50000;
    int64_t ms = (span_us - margin_us) / 1000;

    return ms > 1 ? ms : 1;
}

static int64_t base_timeout_ms(const struct dependency_config *config)
{
    return less_margin_ms(config->query_timeout_us);
}

/* The session's own value serves unless less than that is left: a shorter @timeout, or a caller
 * with less patience. A tenth of tolerance keeps a call that waited a moment from costing a
 * statement. */
static int64_t wanted_timeout_ms(const struct postgres_session *s, struct instant now)
{
    int64_t base_us = s->owner->config->query_timeout_us;
    int64_t left_us = instant_span_us(now, s->call->deadline);
    int64_t route_us = s->route->timeout_us != 0 ? s->route->timeout_us : INT64_MAX;
    int64_t usual_us = route_us < base_us ? route_us : base_us;

    if (left_us < usual_us - usual_us / 10)
        return less_margin_ms(left_us > 0 ? left_us : 1);
    return less_margin_ms(usual_us);
}

static struct instant clean_until(const struct postgres_session *s)
{
    return instant_after(clock_now(), s->owner->config->connect_timeout_us);
}

/* ---- sending ---- */

static bool send_sync(struct postgres_session *s)
{
    session_push(s, STEP_SYNC);
#if defined(LIBPQ_HAS_SEND_PIPELINE_SYNC)
    return PQsendPipelineSync(s->conn) != 0 && session_flush(s);
#else
    return PQpipelineSync(s->conn) != 0 && session_flush(s);
#endif
}

static bool send_plain(struct postgres_session *s, enum step step, const char *sql)
{
    session_push(s, step);
    return PQsendQueryParams(s->conn, sql, 0, NULL, NULL, NULL, NULL, 0) != 0;
}

static bool send_set(struct postgres_session *s, enum step step, const char *name,
                     const char *value)
{
    const char *values[] = {name, value};

    if (!s->has_set_statement) {
        session_push(s, STEP_PREPARE_SET);
        if (PQsendPrepare(s->conn, set_name, set_sql, 2, NULL) == 0)
            return false;
        s->has_set_statement = true;
    }
    session_push(s, step);
    return PQsendQueryPrepared(s->conn, set_name, 2, values, NULL, NULL, 0) != 0;
}

static bool send_set_timeout(struct postgres_session *s, int64_t ms)
{
    char text[24];

    s->asked_timeout_ms = ms;
    (void)snprintf(text, sizeof text, "%" PRId64, ms);
    return send_set(s, STEP_SET_TIMEOUT, "statement_timeout", text);
}

static void begin_batch(struct postgres_session *s, enum session_goal goal)
{
    s->goal = goal;
    s->batch_failure.reason = REASON_NONE;
    s->asked_timeout_ms = 0;
}

/* Every session bounds what the server does for it, so that PostgreSQL lets go even if weir
 * freezes. */
bool run_set_up(struct postgres_session *s)
{
    static const char sql[] =
        "SELECT pg_catalog.set_config('statement_timeout', $1, false),"
        " pg_catalog.set_config('idle_in_transaction_session_timeout', $2, false),"
        " pg_catalog.set_config('tcp_user_timeout', $2, false),"
        " pg_catalog.set_config('default_transaction_read_only', 'on', false),"
        " CASE WHEN pg_catalog.current_setting('server_version_num')::int4 >= 140000 THEN"
        " pg_catalog.set_config('client_connection_check_interval', $3, false) END";
    char timeout[24], idle[24], check[24];
    const char *values[] = {timeout, idle, check};
    const struct dependency_config *config = s->owner->config;

    begin_batch(s, GOAL_SET_UP);
    s->timeout_ms = base_timeout_ms(config);
    (void)snprintf(timeout, sizeof timeout, "%" PRId64, s->timeout_ms);
    (void)snprintf(idle, sizeof idle, "%" PRId64, config->query_timeout_us / 1000);
    (void)snprintf(check, sizeof check, "%d", CHECK_INTERVAL_MS);
    session_push(s, STEP_SET_UP);
    return PQsendQueryParams(s->conn, sql, 3, NULL, values, NULL, NULL, 0) != 0 && send_sync(s);
}

/* A write whose rows must fit runs in a transaction: COMMIT goes out when they did. */
static bool needs_transaction(const struct route *route)
{
    return route->is_write && route->result != RESULT_EXEC;
}

static bool send_statement(struct postgres_session *s)
{
    const struct call *call = s->call;
    char name[48];

    statement_name(s->route, &s->statements[s->route->id], name);
    if (PQsendQueryPrepared(s->conn, name, (int)call->params.count, call->params.values, NULL, NULL,
                            0) == 0)
        return false;
    session_push(s,
                 STEP_STATEMENT); /* after the send: only then libpq takes a wish for single rows */
    return true;
}

/* What nobody waits for any more is not sent. Both sides write before they read, in one order for
 * all threads: a worker that found it unsent may say that nothing happened. */
static bool may_send(struct call *call)
{
    atomic_store(&call->is_sent, true);
    return !atomic_load(&call->is_cancelled);
}

static bool send_execute(struct postgres_session *s)
{
    struct instant now = clock_now();
    int64_t timeout_ms = wanted_timeout_ms(s, now);

    begin_batch(s, GOAL_EXECUTE);
    s->call->sent_at = now;
    if (!may_send(s->call)) {
        run_cancelled(s);
        return true;
    }
    s->is_in_transaction = needs_transaction(s->route);
    s->is_commit_sent = false;
    if (timeout_ms != s->timeout_ms && !send_set_timeout(s, timeout_ms))
        return false;
    if (s->is_in_transaction && !send_plain(s, STEP_BEGIN, "BEGIN"))
        return false;
    if (!send_statement(s))
        return false;
    if (s->is_in_transaction)
        return PQsendFlushRequest(s->conn) != 0 && session_flush(s);
    return send_sync(s);
}

static bool send_prepare(struct postgres_session *s)
{
    int unknown = statement_unknown_param(s->owner, s->route);

    if (unknown >= 0) {
        begin_batch(s, GOAL_LOOK_UP_PARAMS);
        return statement_send_param_lookup(s, s->route, unknown) && send_sync(s);
    }
    begin_batch(s, GOAL_PREPARE);
    return statement_send_prepare(s, s->route) && send_sync(s);
}

static bool is_in_its_mode(const struct postgres_session *s)
{
    return s->is_read_write == s->route->is_write;
}

/* Reads use only read-only sessions, writes only the others; an idle one of the wrong kind is
 * switched by a statement with a sync of its own. What comes behind that runs even if the switch
 * fails, so it is not left to a prepared statement, which somebody may have deallocated. */
static bool send_mode(struct postgres_session *s)
{
    const char *values[] = {"default_transaction_read_only", s->route->is_write ? "off" : "on"};

    if (is_in_its_mode(s))
        return true;
    session_push(s, STEP_SET_MODE);
    return PQsendQueryParams(s->conn, set_sql, 2, NULL, values, NULL, NULL, 0) != 0 && send_sync(s);
}

static void go_on(struct postgres_session *s)
{
    if (!(s->statements[s->route->id].is_prepared ? send_execute(s) : send_prepare(s)))
        run_lost(s);
}

void run_call(struct postgres_session *s, struct call *call)
{
    struct instant now = clock_now();

    session_move(s, SESSION_BUSY);
    s->call = call;
    s->route = call->route;
    s->holds_permit = call->has_permit;
    call->has_permit = false;
    s->is_stopped = s->is_ending = s->is_in_transaction = s->is_commit_sent = false;
    rows_begin(s);
    call->session = s;
    call->outcome.waited_us = instant_span_us(call->created_at, now);
    call->give_up_at =
        instant_earlier(call->deadline, instant_after(now, s->owner->config->query_timeout_us));
    session_timer(s, call->give_up_at);
    if (!send_mode(s))
        run_lost(s);
    else
        go_on(s);
}

/* ---- cleaning up: the call was answered, the session is not yet at rest ---- */

static void become_idle(struct postgres_session *s)
{
    struct postgres *p = s->owner;
    bool had_permit = s->holds_permit;

    session_timer_off(s);
    s->goal = GOAL_NONE;
    s->route = NULL;
    s->idle_since = clock_now();
    pool_rest(s);
    s->holds_permit = false;
    if (p->is_closed || instant_reached(s->idle_since, s->retire_at))
        session_close(s);
    if (had_permit)
        postgres_permit_back(p);
    pool_serve(p);
}

static bool send_rollback(struct postgres_session *s)
{
    begin_batch(s, GOAL_CLEAN);
    return send_plain(s, STEP_ROLLBACK, "ROLLBACK") && send_sync(s);
}

/* Used again only when the cancel is known to be delivered or dropped, and the transaction is over.
 */
static void clean_on(struct postgres_session *s)
{
    if (s->step_count > 0)
        return;
    session_reply_late(s);
    if (s->cancel != NULL)
        return;
    if (PQtransactionStatus(s->conn) == PQTRANS_IDLE)
        become_idle(s);
    else if (!send_rollback(s))
        run_lost(s);
}

static void on_cancel_done(void *ctx, bool is_delivered)
{
    struct postgres_session *s = ctx;
    struct postgres *p = s->owner;

    s->cancel = NULL;
    counter_add(&p->dep->metrics->cancels[is_delivered ? CANCEL_DELIVERED : CANCEL_FAILED], 1);
    if (s->state == SESSION_CLEANING && !is_delivered)
        session_close(s); /* it may still arrive, and must not meet a neighbour */
    else if (s->state == SESSION_CLEANING)
        clean_on(s);
    else if (s->state == SESSION_BUSY && !is_delivered)
        s->retire_at = clock_now();
    postgres_rearm(p);
}

static void send_cancel(struct postgres_session *s)
{
    struct postgres *p = s->owner;

    if (s->cancel != NULL)
        return;
    s->cancel = cancel_start(&p->loop, s->conn, s->backend_pid, s->backend_key,
                             p->config->connect_timeout_us, on_cancel_done, s);
    if (s->cancel == NULL)
        counter_add(&p->dep->metrics->cancels[CANCEL_FAILED], 1);
}

/* From busy: whatever the statement still does is told to stop, and what it still sends is thrown
 * away. The permit is held until the server is really done. */
static void clean(struct postgres_session *s)
{
    ENSURE(s->call == NULL);
    session_move(s, SESSION_CLEANING);
    s->is_stopped = true;
    buffer_clear(&s->rows);
    session_timer(s, clean_until(s));
    if (s->step_count > 0) {
        send_cancel(s);
        if (s->cancel == NULL) {
            session_close(
                s); /* the socket's end stops it, client_connection_check_interval later */
            return;
        }
    }
    clean_on(s);
}

/* ---- outcomes ---- */

/* Ends the call with a failure, or with a success whose body is set. It is answered by
 * postgres_reply(), after the session has given back what it can: a caller that comes again at once
 * must find the permit free. */
static struct call *end_call(struct postgres_session *s, const struct failure *failure)
{
    struct call *call = s->call;

    if (atomic_load_explicit(&call->is_sent, memory_order_relaxed))
        call->outcome.served_us = instant_span_us(call->sent_at, clock_now());
    call->session = NULL;
    s->call = NULL;
    postgres_end(s->owner, call, failure);
    return call;
}

/* A write that was sent, and for all we know may have been committed. */
static bool may_have_happened(const struct postgres_session *s)
{
    return s->route->is_write && s->goal == GOAL_EXECUTE &&
           (!s->is_in_transaction || s->is_commit_sent);
}

/* Of a write that may still happen: whoever stores answers has to know when it is over. Its caller
 * does not wait for that: he is gone, or his worker answers him at his deadline. */
static bool must_see_the_end(const struct postgres_session *s)
{
    return s->route->purge_count > 0 && s->step_count > 0 && may_have_happened(s);
}

/* Answers with a failure, and leaves the session to clean up. */
static void fail_and_clean(struct postgres_session *s, const struct failure *failure)
{
    struct postgres *p = s->owner;
    bool is_late = must_see_the_end(s);
    struct call *call = end_call(s, failure);

    if (is_late)
        s->late_call = call;
    clean(s);
    if (!is_late)
        postgres_reply(p, call);
}

static bool is_callers_haste(const struct call *call)
{
    return call->is_short_by_caller && call->give_up_at.us == call->deadline.us;
}

static void deadline_failure(const struct call *call, struct failure *out)
{
    failure_set(out, REASON_DEADLINE, is_callers_haste(call) ? EVIDENCE_NONE : EVIDENCE_BAD,
                "the statement did not end in time");
}

static void unknown_failure(struct failure *out, enum evidence evidence)
{
    failure_set(out, REASON_OUTCOME_UNKNOWN, evidence,
                "the statement was sent, and whether it took effect is not known");
}

static struct call *succeed(struct postgres_session *s)
{
    struct failure failure = {.evidence = EVIDENCE_GOOD};

    (void)rows_finish(s, &s->call->outcome, &failure);
    return end_call(s, &failure);
}

/* A result over a cap is answered at once, whatever else the server would still send. A write was
 * not committed and will not be. */
static void take_rows(struct postgres_session *s, PGresult *result)
{
    struct failure failure;
    bool fits = s->is_stopped || rows_take(s, result, &failure);

    if (PQresultMemorySize(result) > LARGE_RESULT_BYTES)
        s->retire_at = clock_now();
    if (!fits)
        fail_and_clean(s, &failure);
}

/* In place of what the server says about a text that nobody wrote. */
static void cannot_wrap(struct postgres_session *s)
{
    failure_set(&s->batch_failure, REASON_QUERY_INVALID, EVIDENCE_NONE,
                "column %d of the result has a type that only the server can write as JSON, and "
                "not in a statement of this kind by itself; write to_json(...) around that column",
                statement_server_column(s, s->route) + 1);
}

/* ---- results ---- */

static void take_lookup(struct postgres_session *s, const PGresult *result)
{
    s->has_lookup_row = PQntuples(result) == 1 && PQgetisnull(result, 0, 0) == 0;
    if (!s->has_lookup_row)
        return;
    (void)snprintf(s->lookup_text, sizeof s->lookup_text, "%s", PQgetvalue(result, 0, 0));
    if (s->goal == GOAL_LOOK_UP_COLUMNS)
        statement_take_column_lookup(s, s->route, result);
}

static void take_description(struct postgres_session *s, const PGresult *result)
{
    if (s->goal == GOAL_WRAP) {
        if (!statement_wrapped_described(s, s->route, result)) {
            failure_set(&s->batch_failure, REASON_QUERY_INVALID, EVIDENCE_NONE,
                        "the columns of the result changed while the statement was prepared");
            s->batch_failure.again = AGAIN_PREPARE;
        }
    } else if (!statement_described(s, s->route, result)) {
        failure_set(&s->batch_failure, REASON_INTERNAL, EVIDENCE_NONE, "out of memory");
    }
}

static void take_good_result(struct postgres_session *s, enum step step, PGresult *result)
{
    switch (step) {
    case STEP_LOOK_UP:
        take_lookup(s, result);
        break;
    case STEP_DESCRIBE:
        take_description(s, result);
        break;
    case STEP_STATEMENT:
        take_rows(s, result);
        break;
    case STEP_SET_MODE:
        s->is_read_write = !s->is_read_write;
        break;
    case STEP_SET_UP:
    case STEP_PREPARE_SET:
    case STEP_SET_TIMEOUT:
    case STEP_DROP:
    case STEP_PREPARE:
    case STEP_BEGIN:
    case STEP_COMMIT:
    case STEP_ROLLBACK:
    case STEP_SYNC:
        break;
    }
}

void run_result(struct postgres_session *s, enum step step, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);

    if (status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE) {
        if (s->batch_failure.reason == REASON_NONE) {
            failure_from_result(&s->batch_failure, result);
            s->failed_step = step;
        }
    } else if (status != PGRES_PIPELINE_ABORTED) {
        take_good_result(s, step, result);
    }
}

/* In a transaction the end is decided here, between the rows and the commit. */
static bool end_transaction(struct postgres_session *s)
{
    if (s->batch_failure.reason != REASON_NONE)
        return send_sync(s); /* the pipeline is aborted: a commit would not be read */
    if (s->is_stopped || s->is_ending) {
        s->asked_timeout_ms = 0; /* rolled back with the rest */
        return send_plain(s, STEP_ROLLBACK, "ROLLBACK") && send_sync(s);
    }
    s->is_commit_sent = true;
    return send_plain(s, STEP_COMMIT, "COMMIT") && send_sync(s);
}

void run_step_done(struct postgres_session *s, enum step step)
{
    if (step == STEP_STATEMENT && s->is_in_transaction && !end_transaction(s))
        run_lost(s);
}

/* ---- batches ---- */

/* The text around the statement no longer fits its columns, or never did. */
static bool is_misfit(const struct postgres_session *s, const char *sqlstate)
{
    return (s->goal == GOAL_WRAP || s->statements[s->route->id].is_wrapped) &&
           (strncmp(sqlstate, "42", 2) == 0 ||
            (s->goal == GOAL_WRAP && strcmp(sqlstate, "0A000") == 0));
}

/* CALL and DO may have committed some of what they do before they failed. */
static bool may_have_committed_inside(const struct postgres_session *s)
{
    return s->route->may_commit_inside && s->goal == GOAL_EXECUTE &&
           s->failed_step == STEP_STATEMENT;
}

/* What is prepared is stale; or a type that it names was dropped and made anew, which the server
 * calls an internal error (XX000). What may also be just what it says is worth one try. */
static bool may_prepare_again(const struct postgres_session *s)
{
    const struct failure *failure = &s->batch_failure;
    uint32_t count = s->call->prepared_again_count;

    if (may_have_committed_inside(s))
        return false;
    if (is_misfit(s, failure->sqlstate) || strcmp(failure->sqlstate, "XX000") == 0)
        return count == 0;
    return failure->again == AGAIN_PREPARE && count < PREPARE_AGAIN_MAX;
}

static void forget_prepared(struct postgres_session *s)
{
    statement_forget_types(s->owner);
    if (strcmp(s->batch_failure.sqlstate, "26000") == 0)
        s->has_set_statement = false; /* somebody deallocated all */
    s->statements[s->route->id].is_prepared = false;
}

/* After a failure that another Parse may cure, unseen by the caller. A session that slept through
 * one change may wake in the middle of the next: each of them costs one try. */
static bool try_again(struct postgres_session *s)
{
    struct call *call = s->call;

    if (!may_prepare_again(s) || s->is_ending ||
        s->cancel != NULL) /* a cancel under way would meet the second try */
        return false;
    call->prepared_again_count++;
    forget_prepared(s);
    rows_begin(s);
    atomic_store_explicit(&call->is_sent, false, memory_order_relaxed);
    s->is_in_transaction = false;
    if (PQtransactionStatus(s->conn) != PQTRANS_IDLE && !send_rollback(s))
        run_lost(s);
    else
        go_on(s); /* behind the rollback, in the same flush */
    return true;
}

static void adjust_failure(struct postgres_session *s, struct failure *failure)
{
    if (strcmp(failure->sqlstate, "57014") == 0) {
        deadline_failure(s->call, failure);
        (void)snprintf(failure->sqlstate, sizeof failure->sqlstate, "57014");
    } else if (failure->reason == REASON_WRONG_NODE && !s->route->is_write) {
        failure_set(failure, REASON_QUERY_INVALID, EVIDENCE_NONE,
                    "the statement writes, but a GET runs in a read-only session");
    }
    /* Nobody is told to ask again for what may have happened by half. */
    if (may_have_committed_inside(s) && reason_is_retryable(failure->reason) &&
        failure->reason != REASON_WRONG_NODE)
        unknown_failure(failure, failure->evidence);
}

/* The batch is over (its sync came), and it failed. */
static void batch_failed(struct postgres_session *s)
{
    struct failure failure = s->batch_failure;

    if (try_again(s))
        return;
    if (failure.again == AGAIN_PREPARE)
        forget_prepared(s); /* for the next call */
    if (s->goal == GOAL_WRAP && is_misfit(s, failure.sqlstate)) {
        cannot_wrap(s);
        failure = s->batch_failure;
    }
    if (s->statements[s->route->id].is_wrapped)
        failure.position = 0; /* it is of the text around the statement, too */
    adjust_failure(s, &failure);
    if (failure.reason == REASON_WRONG_NODE)
        pool_drop_read_write(s->owner);
    fail_and_clean(s, &failure);
}

/* Whatever the statement did in a session of the wrong kind is not an answer. */
static void mode_failed(struct postgres_session *s)
{
    struct failure failure = s->batch_failure;

    adjust_failure(s, &failure);
    s->retire_at = clock_now();
    fail_and_clean(s, &failure);
}

static void statement_ready(struct postgres_session *s)
{
    if (statement_finish(s, s->route)) {
        go_on(s);
        return;
    }
    failure_set(&s->batch_failure, REASON_INTERNAL, EVIDENCE_NONE, "out of memory");
    batch_failed(s);
}

static void wrap(struct postgres_session *s)
{
    enum statement_sent sent;

    begin_batch(s, GOAL_WRAP);
    sent = statement_send_wrapped(s, s->route);
    if (sent == STATEMENT_REFUSED)
        cannot_wrap(s);
    if (sent == STATEMENT_LOST || !send_sync(s))
        run_lost(s);
}

/* Parse and Describe are through: are all column types known, and can we write them? */
static void columns_known_or_asked(struct postgres_session *s)
{
    int unknown = statement_unknown_column(s, s->route);

    if (unknown >= 0) {
        begin_batch(s, GOAL_LOOK_UP_COLUMNS);
        if (!statement_send_column_lookup(s, s->route, unknown) || !send_sync(s))
            run_lost(s);
    } else if (statement_server_column(s, s->route) >= 0) {
        wrap(s);
    } else {
        statement_ready(s);
    }
}

static void lookup_done(struct postgres_session *s, bool is_param)
{
    struct failure failure;

    if (!is_param && !s->has_lookup_row)
        failure_set(&s->batch_failure, REASON_QUERY_INVALID, EVIDENCE_NONE,
                    "a type of the result does not exist any more");
    else if (is_param && !statement_take_param_lookup(s, s->route, &failure))
        s->batch_failure = failure;
    if (s->batch_failure.reason != REASON_NONE) {
        batch_failed(s);
        return;
    }
    if (is_param)
        go_on(s);
    else
        columns_known_or_asked(s);
}

static void execute_done(struct postgres_session *s)
{
    struct postgres *p = s->owner;
    struct call *call = succeed(s);

    if (s->cancel != NULL)
        clean(s); /* it ended just before it could be stopped */
    else
        become_idle(s);
    postgres_reply(p, call);
}

static void busy_batch_done(struct postgres_session *s)
{
    switch (s->goal) {
    case GOAL_LOOK_UP_PARAMS:
        lookup_done(s, true);
        break;
    case GOAL_LOOK_UP_COLUMNS:
        lookup_done(s, false);
        break;
    case GOAL_PREPARE:
        columns_known_or_asked(s);
        break;
    case GOAL_WRAP:
        statement_ready(s);
        break;
    case GOAL_EXECUTE:
        execute_done(s);
        break;
    case GOAL_NONE:
    case GOAL_SET_UP:
    case GOAL_CLEAN:
        ENSURE(false && "a busy session has a call to run");
        break;
    }
}

static void set_up_batch_done(struct postgres_session *s)
{
    if (s->batch_failure.reason == REASON_NONE) {
        connect_set_up_done(s);
        return;
    }
    s->failure = s->batch_failure;
    if (s->failure.evidence != EVIDENCE_BAD_CONNECTION)
        failure_set(&s->failure, REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION,
                    "the server refused the session's settings");
    (void)snprintf(s->failure.log_text, sizeof s->failure.log_text,
                   "the server refused the session's settings: SQLSTATE %s",
                   s->batch_failure.sqlstate);
    connect_failed(s);
}

void run_batch_done(struct postgres_session *s)
{
    if (s->batch_failure.reason == REASON_NONE && s->asked_timeout_ms != 0)
        s->timeout_ms = s->asked_timeout_ms;
    s->asked_timeout_ms = 0;
    if (s->state == SESSION_OPENING)
        set_up_batch_done(s);
    else if (s->state == SESSION_CLEANING)
        clean_on(s);
    else if (!is_in_its_mode(s))
        mode_failed(s);
    else if (s->batch_failure.reason != REASON_NONE)
        batch_failed(s);
    else
        busy_batch_done(s);
}

/* ---- what may come at any time ---- */

void run_lost(struct postgres_session *s)
{
    struct postgres *p = s->owner;
    struct failure failure = s->batch_failure;
    struct call *call = NULL;

    if (s->state == SESSION_OPENING) {
        failure_from_connection(&s->failure, s->conn, false);
        connect_failed(s);
        return;
    }
    if (s->state == SESSION_CLOSED)
        return;
    if (s->call != NULL) {
        if (failure.reason == REASON_NONE || failure.sqlstate[0] == '\0') {
            failure_from_connection(&failure, s->conn, true);
            if (may_have_happened(s))
                unknown_failure(&failure, EVIDENCE_BAD_CONNECTION);
        } else {
            adjust_failure(s, &failure);
        }
        call = end_call(s, &failure);
    }
    session_close(s);
    if (call != NULL)
        postgres_reply(p, call);
}

/* A write over its time is cancelled, and answered when it was seen to stop: until the caller's
 * deadline that is worth waiting for. */
static void end_write(struct postgres_session *s)
{
    struct failure failure;

    deadline_failure(s->call, &failure);
    if (!s->is_ending && !instant_reached(clock_now(), s->call->deadline)) {
        s->is_ending = true;
        postgres_settle(s->owner, s->call, &failure);
        send_cancel(s);
        session_timer(s, s->call->deadline);
        return;
    }
    unknown_failure(&failure, failure.evidence);
    fail_and_clean(s, &failure);
}

void run_timeout(struct postgres_session *s)
{
    struct failure failure;

    switch (s->state) {
    case SESSION_OPENING:
        failure_set(&s->failure, REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION,
                    "the session was not set up within connect_timeout");
        connect_failed(s);
        break;
    case SESSION_BUSY:
        if (may_have_happened(s)) {
            end_write(s);
            break;
        }
        deadline_failure(s->call, &failure);
        fail_and_clean(s, &failure);
        break;
    case SESSION_CLEANING:
        session_close(s);
        break;
    case SESSION_IDLE:
    case SESSION_CLOSED:
    case SESSION_STATE_COUNT:
        break;
    }
}

void run_cancelled(struct postgres_session *s)
{
    struct failure failure;

    if (s->call->is_hung_up)
        failure_set(&failure, REASON_DEADLINE, EVIDENCE_NONE, "the caller hung up");
    else
        deadline_failure(s->call, &failure);
    fail_and_clean(s, &failure);
}

void run_shut_down(struct postgres_session *s)
{
    struct postgres *p = s->owner;
    struct failure failure;
    struct call *call = NULL;

    if (s->call != NULL) {
        failure_set(&failure, REASON_DRAINING, EVIDENCE_NONE, "the server is shutting down");
        if (may_have_happened(s))
            unknown_failure(&failure, EVIDENCE_NONE);
        call = end_call(s, &failure);
    }
    session_close(s);
    if (call != NULL)
        postgres_reply(p, call);
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "dep/postgres_internal.h"

/* A lookup's answer serves every session that opens within this time. */
enum { RESOLVED_FRESH_US = 1000000 };

static void start_next(struct postgres_session *s);

static struct target *target_of(struct postgres_session *s)
{
    return &s->owner->targets.items[s->target_index];
}

void connect_failed(struct postgres_session *s)
{
    struct postgres *p = s->owner;
    struct failure failure = s->failure;
    struct call *call = NULL;

    if (s->is_probe) {
        session_close(s);
        probe_ended(p, false, &failure);
        return;
    }
    counter_add(&p->dep->metrics->connects_failed, 1);
    memcpy(p->last_connect_sqlstate, failure.sqlstate, sizeof p->last_connect_sqlstate);
    postgres_log_connect_failure(p, &failure);
    if (!list_is_empty(&p->waiting)) {
        call = LIST_ITEM(p->waiting.next, struct call, link);
        list_remove(&call->link); /* before the close: it must not get a new session of its own */
    }
    session_close(s);
    if (call != NULL)
        postgres_fail(p, call, &failure);
}

/* ---- names ---- */

static void ask_resolver(struct postgres *p)
{
    struct postgres_session *first;

    if (p->resolver_ticket != 0 || list_is_empty(&p->resolve_waiters))
        return;
    first = LIST_ITEM(p->resolve_waiters.next, struct postgres_session, resolve_link);
    p->resolver_target = first->target_index;
    p->resolver_ticket = resolver_ask(p->resolver, target_of(first)->host);
}

static void resolve_failed(struct postgres_session *s, const char *why)
{
    failure_set(&s->failure, REASON_UNRESOLVED, EVIDENCE_BAD_CONNECTION,
                "the dependency's host name does not resolve");
    (void)snprintf(s->failure.log_text, sizeof s->failure.log_text, "%.120s: %.70s",
                   target_of(s)->host, why);
}

static void next_target(struct postgres_session *s)
{
    struct postgres *p = s->owner;

    s->address_index = -1;
    s->addresses_tried = 0;
    if (++s->targets_tried >= p->targets.count) {
        connect_failed(s);
        return;
    }
    s->target_index = (s->target_index + 1) % p->targets.count;
    start_next(s);
}

static bool is_resolved(const struct target *t, struct instant now)
{
    return t->resolved_at.us != INSTANT_NEVER.us && t->resolved.count > 0 &&
           instant_span_us(t->resolved_at, now) < RESOLVED_FRESH_US;
}

void connect_resolved(struct postgres *p)
{
    struct target *t = &p->targets.items[p->resolver_target];
    struct resolved answer;
    struct list ready;

    if (!resolver_take(p->resolver, &answer) || answer.ticket != p->resolver_ticket)
        return;
    p->resolver_ticket = 0;
    t->resolved = answer;
    t->resolved_at = clock_now();
    if (t->preferred >= answer.count)
        t->preferred = answer.count > 0 ? (int)rand_below(&p->rand, (uint64_t)answer.count) : 0;

    list_init(&ready);
    for (struct list *i = p->resolve_waiters.next, *next; i != &p->resolve_waiters; i = next) {
        struct postgres_session *s = LIST_ITEM(i, struct postgres_session, resolve_link);

        next = i->next;
        if (s->target_index == p->resolver_target) {
            list_remove(i);
            list_push_back(&ready, i);
        }
    }
    while (!list_is_empty(&ready)) {
        struct postgres_session *s = LIST_ITEM(ready.next, struct postgres_session, resolve_link);

        list_remove(&s->resolve_link);
        if (answer.count > 0) {
            start_next(s);
        } else {
            resolve_failed(s, answer.text);
            next_target(s);
        }
    }
    ask_resolver(p);
}

/* ---- one address ---- */

static void ignore_notice(void *arg, const PGresult *notice)
{
    struct postgres_session *s = arg;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);

    if (severity != NULL && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0))
        s->saw_fatal = true;
}

static void on_started(struct postgres_session *s)
{
    if (s->conn == NULL || PQstatus(s->conn) == CONNECTION_BAD) {
        failure_from_connection(&s->failure, s->conn, false);
        start_next(s);
        return;
    }
    (void)PQsetErrorVerbosity(s->conn, PQERRORS_SQLSTATE);
    (void)PQsetNoticeReceiver(s->conn, ignore_notice, s);
    session_watch(s, UV_WRITABLE);
}

static void start_address(struct postgres_session *s, const char *address)
{
    struct postgres *p = s->owner;
    char password[PASSWORD_MAX];
    /* The secret is read before each connect, so that a rotated one needs no restart. */
    bool has_password = targets_read_password(p->config->password_file, password);

    session_drop_watch(s);
    if (s->conn != NULL)
        connect_end_trace(s);
    PQfinish(s->conn);
    s->conn = targets_connect(&p->targets, target_of(s), address, has_password ? password : NULL,
                              p->config->query_timeout_us);
    explicit_bzero(password, sizeof password);
    session_timer(s, instant_after(clock_now(), p->config->connect_timeout_us));
    on_started(s);
}

static int address_count(const struct target *t)
{
    return t->is_local || t->address[0] != '\0' ? 1 : t->resolved.count;
}

/* The next address of this target, else the next target. */
static void start_next(struct postgres_session *s)
{
    struct postgres *p = s->owner;
    struct target *t = target_of(s);
    const char *address = t->address;

    if (!t->is_local && t->address[0] == '\0' && s->address_index < 0 &&
        !is_resolved(t, clock_now())) {
        session_timer(s, instant_after(clock_now(), p->config->connect_timeout_us));
        list_push_back(&p->resolve_waiters, &s->resolve_link);
        ask_resolver(p);
        return;
    }
    if (s->addresses_tried >= address_count(t)) {
        next_target(s);
        return;
    }
    if (!t->is_local && t->address[0] == '\0') {
        s->address_index =
            s->address_index < 0 ? t->preferred : (s->address_index + 1) % t->resolved.count;
        address = t->resolved.addresses[s->address_index];
    } else {
        s->address_index = 0;
    }
    s->addresses_tried++;
    start_address(s, address);
}

void connect_begin(struct postgres_session *s)
{
    s->target_index = s->owner->targets.preferred;
    s->address_index = -1;
    start_next(s);
}

void connect_on_timeout(struct postgres_session *s)
{
    struct target *t = target_of(s);

    if (s->resolve_link.next != &s->resolve_link) {
        list_remove(&s->resolve_link);
        resolve_failed(s, "no answer in time");
        next_target(s);
        return;
    }
    failure_set(&s->failure, REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION,
                "the connection was not made within connect_timeout");
    (void)snprintf(s->failure.log_text, sizeof s->failure.log_text, "%.120s port %s: timed out",
                   t->host[0] != '\0' ? t->host : t->address, t->port);
    start_next(s);
}

/* ---- logging in ---- */

#ifndef LIBPQ_HAS_ASYNC_CANCEL

static void take_key(struct postgres_session *s)
{
    const char *word = strstr(s->trace_line, "BackendKeyData");
    char *rest;

    if (word != NULL) {
        s->backend_pid = (int32_t)strtol(word + strlen("BackendKeyData"), &rest, 10);
        s->backend_key = (int32_t)strtol(rest, NULL, 10);
    }
    explicit_bzero(s->trace_line, sizeof s->trace_line);
    s->trace_line_size = 0;
}

/* The key that a cancel must show has no accessor before libpq 17, but PQtrace tells it, in a short
 * line. Everything else that the trace holds (the password's answer among it) is wiped as it comes.
 */
static ssize_t keep_key_line(void *cookie, const char *bytes, size_t size)
{
    struct postgres *p = cookie;
    struct postgres_session *s = p->traced;

    for (size_t i = 0; s != NULL && i < size; i++) {
        if (bytes[i] == '\n')
            take_key(s);
        else if (s->trace_line_size < sizeof s->trace_line - 1)
            s->trace_line[s->trace_line_size++] = bytes[i];
    }
    return (ssize_t)size;
}

bool connect_open_trace(struct postgres *p)
{
    cookie_io_functions_t functions = {.write = keep_key_line};

    p->trace = fopencookie(p, "w", functions);
    return p->trace != NULL && setvbuf(p->trace, NULL, _IOLBF, 1024) == 0;
}

void connect_close_trace(struct postgres *p)
{
    if (p->trace != NULL)
        (void)fclose(p->trace);
    p->trace = NULL;
}

static PostgresPollingStatusType poll_login(struct postgres_session *s)
{
    PostgresPollingStatusType next;
    ConnStatusType status;

    s->owner->traced = s;
    next = PQconnectPoll(s->conn);
    status = PQstatus(s->conn);
    if (!s->is_traced && status >= CONNECTION_AWAITING_RESPONSE &&
        status != CONNECTION_SSL_STARTUP) {
        PQtrace(s->conn, s->owner->trace);
        PQsetTraceFlags(s->conn, PQTRACE_SUPPRESS_TIMESTAMPS);
        s->is_traced = true;
    }
    return next;
}

void connect_end_trace(struct postgres_session *s)
{
    if (s->is_traced) {
        s->owner->traced = s;
        PQuntrace(s->conn);
        s->is_traced = false;
    }
    if (s->owner->traced == s)
        s->owner->traced = NULL;
    explicit_bzero(s->trace_line, sizeof s->trace_line);
    s->trace_line_size = 0;
}

#else

bool connect_open_trace(struct postgres *p)
{
    p->trace = NULL; /* PQcancelCreate() knows */
    return true;
}

void connect_close_trace(struct postgres *p)
{
    (void)p;
}

static PostgresPollingStatusType poll_login(struct postgres_session *s)
{
    return PQconnectPoll(s->conn);
}

void connect_end_trace(struct postgres_session *s)
{
    s->backend_pid = PQbackendPID(s->conn);
}

#endif

static void on_logged_in(struct postgres_session *s)
{
    struct postgres *p = s->owner;

    connect_end_trace(s);
    p->targets.preferred = s->target_index;
    target_of(s)->preferred = s->address_index;
    session_timer(s, instant_after(clock_now(), p->config->connect_timeout_us));
    if (PQsetnonblocking(s->conn, 1) != 0 || PQenterPipelineMode(s->conn) == 0 || !run_set_up(s))
        run_lost(s);
}

void connect_on_event(struct postgres_session *s)
{
    PostgresPollingStatusType next;

    session_drop_watch(s); /* libpq may go on with another socket */
    next = poll_login(s);
    switch (next) {
    case PGRES_POLLING_READING:
        session_watch(s, UV_READABLE);
        break;
    case PGRES_POLLING_WRITING:
        session_watch(s, UV_WRITABLE);
        break;
    case PGRES_POLLING_OK:
        on_logged_in(s);
        break;
    case PGRES_POLLING_FAILED:
    case PGRES_POLLING_ACTIVE:
    default:
        failure_from_connection(&s->failure, s->conn, false);
        connect_end_trace(s);
        start_next(s);
        break;
    }
}

/* The server tells after the login, and whenever it changes. */
static bool has_iso_dates(const PGconn *conn)
{
    const char *style = PQparameterStatus(conn, "DateStyle");

    return style != NULL && strncmp(style, "ISO", 3) == 0;
}

void connect_set_up_done(struct postgres_session *s)
{
    struct postgres *p = s->owner;
    struct instant now = clock_now();

    session_timer_off(s);
    s->goal = GOAL_NONE;
    postgres_note_reached(p);
    if (s->is_probe) {
        session_close(s);
        probe_ended(p, true, NULL);
        return;
    }
    counter_add(&p->dep->metrics->connects_ok, 1);
    p->last_connect_sqlstate[0] = '\0';
    s->idle_since = now;
    s->has_iso_dates = has_iso_dates(s->conn);
    /* Sessions that opened together must not retire together. */
    s->retire_at = instant_after(now, rand_jitter_us(&p->rand, p->config->max_lifetime_us, 10));
    pool_rest(s);
    pool_serve(p);
}

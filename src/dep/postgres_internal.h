/* postgres_internal.h - what the files of the PostgreSQL dependency share. SPDX-License-Identifier:
 * MIT
 *
 *   postgres.c            the thread: inbox, waiting line, timers, breaker
 *   postgres_pool.c       which session serves which call; opening, retiring
 *   postgres_connect.c    one session from nothing to logged in: addresses, deadlines, TLS, setup
 *   postgres_session.c    one session's socket, pipeline and states
 *   postgres_statement.c  prepared statements: parameter types, column types, shapes
 *   postgres_run.c        one call on one session: batches, deadlines, commit, cleaning up
 *   postgres_rows.c       what a statement gives, as the body of an answer, within its caps
 *   postgres_cancel.c     telling the server to stop a statement, without blocking
 *   postgres_probe.c      weir's own test call
 *   postgres_targets.c    conninfo: hosts, ports, what is set on top
 *   postgres_failure.c    what went wrong, from a result or a connection
 *
 * Threads  all of it is the dependency's thread, but postgres_start() and postgres_stop(). */
#ifndef DEP_POSTGRES_INTERNAL_H
#define DEP_POSTGRES_INTERNAL_H
#include <libpq-fe.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/instant.h"
#include "base/list.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/wakeup.h"
#include "dep/resolver.h"
#include "dep/sqlstate.h"
#include "guard/breaker.h"
#include "json/row_writer.h"
#include "observe/metrics.h"

struct call;
struct dependency;
struct dependency_config;
struct outcome;
struct postgres;
struct postgres_cancel;
struct route;
struct thread_metrics;

/* ---- targets: where to connect ---- */

enum { TARGETS_MAX = 8, CONNINFO_MAX = 64, PASSWORD_MAX = 4096 };

struct target {
    char host[256];   /* name for TLS and password files; a path: a Unix socket's folder */
    char address[64]; /* numeric; empty: host must be looked up */
    char port[8];
    bool is_local; /* Unix socket */
    /* The last answer for `host`. */
    struct resolved resolved;
    struct instant resolved_at; /* INSTANT_NEVER: never */
    int preferred;              /* index of the address that worked last */
};

struct targets {
    struct target items[TARGETS_MAX];
    int count;
    int preferred;             /* index of the target that worked last */
    PQconninfoOption *options; /* owned: the user's conninfo, parsed */
};

bool targets_parse(struct targets *t, const char *conninfo, struct error *err);
void targets_fini(struct targets *t);

/* The first line of a secret file, whatever kind of file it is: nobody waits for a pipe's writer.
 * False: there is none (`file` may be NULL). */
bool targets_read_password(const char *file, char out[PASSWORD_MAX]);

/* Starts a connection to one numeric address of one target. NULL: out of memory. `password` may be
 * NULL. tcp_user_timeout_us bounds unacknowledged sends. */
PGconn *targets_connect(const struct targets *t, const struct target *target, const char *address,
                        const char *password, int64_t tcp_user_timeout_us);

/* ---- how something failed ---- */

struct failure {
    enum reason reason; /* REASON_NONE: nothing failed */
    enum evidence evidence;
    enum again again;
    bool blames_only_without_connection;
    char sqlstate[6];
    char detail[240]; /* may be shown to callers */
    char constraint[64];
    int position;       /* in the statement, 1-based characters; 0: unknown */
    char log_text[200]; /* for the log only: address and SQLSTATE; never values */
};

void failure_from_result(struct failure *out, const PGresult *result);
/* Of the error, in 1-based characters of the statement; 0: unknown. */
int failure_position(const PGresult *result);
void failure_from_connection(struct failure *out, PGconn *conn, bool was_logged_in);
PRINTF_LIKE(4, 5)
void failure_set(struct failure *out, enum reason reason, enum evidence evidence, const char *fmt,
                 ...);

/* ---- sessions ---- */

enum session_state {
    SESSION_OPENING, /* resolving, connecting, logging in, setting up */
    SESSION_IDLE,
    SESSION_BUSY,     /* works for `call` */
    SESSION_CLEANING, /* its call was answered; ends what is left: cancel, rollback */
    SESSION_CLOSED,   /* waits for its handles to close */
    SESSION_STATE_COUNT
};

/* What the batch under way is for; when its last result is in, postgres_run.c goes on from here. */
enum session_goal {
    GOAL_NONE,
    GOAL_SET_UP,
    GOAL_LOOK_UP_PARAMS,
    GOAL_PREPARE,
    GOAL_LOOK_UP_COLUMNS,
    GOAL_WRAP,
    GOAL_EXECUTE,
    GOAL_CLEAN,
};

/* What was sent and not yet fully answered, in order. Sync markers are steps too: an error while
 * the head is one means that the whole batch was rolled back. */
enum step {
    STEP_SET_UP,
    STEP_PREPARE_SET, /* our own set_config statement */
    STEP_SET_MODE,
    STEP_SET_TIMEOUT,
    STEP_LOOK_UP,
    STEP_DROP, /* of a prepared statement */
    STEP_PREPARE,
    STEP_DESCRIBE,
    STEP_BEGIN,
    STEP_STATEMENT,
    STEP_COMMIT,
    STEP_ROLLBACK,
    STEP_SYNC,
};

enum { STEPS_MAX = 16 };

/* One route's statement on one session. */
struct statement {
    bool is_prepared;
    bool is_wrapped;  /* the server writes some of its columns: see query/wrap.h */
    uint32_t version; /* in its name; grows when it must be prepared again */
    int column_count;
    struct value_type *types; /* owned; column_count entries, from RowDescription */
    uint32_t *type_oids;      /* owned */
    PGresult *described;      /* owned; the columns, until the shape is made */
    struct row_shape *shape;  /* owned */
};

struct postgres_session {
    struct postgres *owner;   /* borrowed */
    struct list link;         /* in owner->sessions, or the probe's alone */
    enum session_state state; /* written by session_move() alone */
    bool is_probe;
    PGconn *conn;    /* owned; NULL before the first address */
    uv_poll_t *poll; /* owned; NULL: not watching */
    int poll_fd;     /* owned; the loop's own number for libpq's socket */
    int poll_events;
    uv_timer_t timer;        /* the deadline of what it does now */
    struct instant timer_at; /* that deadline; INSTANT_NEVER: none */
    struct instant fires_at; /* when `timer` fires, if it is active: not later than timer_at */

    /* Opening. */
    int target_index, address_index, addresses_tried, targets_tried;
    struct list resolve_link; /* in owner->resolve_waiters */
    struct failure failure;   /* the last, of this address */
    char trace_line[96];      /* the line that PQtrace is writing, or its beginning */
    size_t trace_line_size;
    bool is_traced; /* writes to owner->trace */

    /* Logged in. */
    int32_t backend_pid, backend_key; /* for cancels; 0: unknown */
    bool is_read_write;               /* default_transaction_read_only is off */
    bool has_iso_dates;               /* DateStyle: the server or the role may have another */
    int64_t timeout_ms;               /* what the server believes statement_timeout is */
    int64_t asked_timeout_ms;         /* what the batch under way sets it to; 0: nothing */
    struct instant retire_at, idle_since;
    bool saw_fatal;               /* a notice with severity FATAL came while idle */
    struct statement *statements; /* owned; one a route */

    /* The pipeline. */
    enum step steps[STEPS_MAX];
    unsigned first_step, step_count;
    enum session_goal goal;
    struct failure batch_failure; /* the first of the batch */
    enum step failed_step;        /* what it is of */
    bool has_lookup_row;
    char lookup_text[64]; /* what a STEP_LOOK_UP answered */
    int lookup_index;     /* which parameter or column it was for */

    /* The call. */
    struct call *call;         /* borrowed while busy; NULL once answered */
    struct call *late_call;    /* answered, but not to come back before its statement is over */
    const struct route *route; /* of the last call; what the statement under way belongs to */
    bool holds_permit;
    bool is_in_transaction; /* BEGIN was sent */
    bool is_commit_sent;
    bool is_ending;         /* a write over its time: cancelled, waiting to see it stop */
    bool has_set_statement; /* our own set_config is prepared */
    bool is_stopped;        /* rows are discarded: over a cap, or nobody waits */
    struct buffer rows;
    uint64_t row_count;
    uint64_t affected_count;

    struct postgres_cancel *cancel; /* under way; NULL: none */
};

/* ---- the dependency's thread ---- */

struct postgres_probe {
    struct postgres_session *session; /* under way; NULL: none */
    struct instant next_at;
    struct instant give_up_at; /* of the one under way */
    struct instant sure_at;    /* a refused password is not tried before this, */
    int64_t password_mtime_us; /* unless its file changed */
};

/* Types that are not built in, looked up once. */
struct known_type {
    uint32_t oid;
    char name[80]; /* of a parameter's type; empty: known by oid only */
    struct value_type type;
    bool is_column; /* `type` is valid */
};

struct postgres {
    struct dependency *dep;                 /* borrowed */
    const struct dependency_config *config; /* borrowed */
    size_t route_count;
    struct thread_metrics *thread_metrics; /* borrowed */
    pthread_t thread;
    sem_t is_over; /* posted by the thread as its last act, so that stop can wait with a limit */
    _Atomic bool is_stopping;
    bool is_closed; /* stop was seen; no new work */
    uv_loop_t loop;
    struct wakeup wakeup;
    uv_prepare_t turn;       /* before the loop waits */
    uv_check_t heard;        /* after it waited, and all that it was told was seen to */
    struct instant heard_at; /* when that was, last */
    _Atomic bool has_answer; /* the resolver's, not yet taken */
    uv_timer_t tick;         /* line, waiting calls, breaker, probe, retiring */
    struct instant tick_at;
    uv_timer_t heartbeat;
    struct instant heartbeat_due;
    struct rand rand;
    struct breaker breaker;

    struct inbox_item *replies, *last_reply; /* calls that ended in this turn; sent together */
    struct list line;                        /* calls without a permit, first come first served */
    struct list waiting;                     /* calls with a permit, waiting for a session */
    struct list sessions;                    /* of the pool, any state but closed */
    uint32_t session_counts[SESSION_STATE_COUNT];
    struct instant next_sweep_at;

    struct targets targets;
    struct resolver *resolver;
    uint64_t resolver_ticket; /* of the question under way; 0: none */
    int resolver_target;      /* which target it is about */
    struct list resolve_waiters;

    /* One stream for all logins: to open and close one is to take the lock of all open streams,
     * which would tie the dependencies together. */
    FILE *trace;                     /* owned; NULL where libpq needs none */
    struct postgres_session *traced; /* whose login writes to it now; NULL: nobody's */

    struct postgres_probe probe;
    struct instant last_good_at;
    struct known_type *known_types; /* owned */
    size_t known_type_count;

    char last_connect_sqlstate[6];
    bool is_lost; /* its fate, as last logged */
    struct log_limit connect_log, statement_log;
};

/* postgres.c */
void postgres_rearm(struct postgres *p); /* the tick timer, after anything changed */
/* A call's evidence goes to the breaker, once. */
void postgres_settle(struct postgres *p, struct call *call, const struct failure *failure);
/* The outcome is set: back to its worker. A permit that no session holds is given back. */
void postgres_reply(struct postgres *p, struct call *call);
/* Sets the outcome and settles; the reply is the caller's to send. */
void postgres_end(struct postgres *p, struct call *call, const struct failure *failure);
void postgres_fail(struct postgres *p, struct call *call, const struct failure *failure);
void postgres_permit_back(struct postgres *p);
void postgres_note_failure(struct postgres *p, const struct failure *failure);
void postgres_log_connect_failure(struct postgres *p, const struct failure *failure);
void postgres_note_reached(struct postgres *p);

/* postgres_pool.c */
void session_reply_late(struct postgres_session *s); /* its statement is over */
void pool_rest(struct postgres_session *s); /* it becomes idle, and is the next to be lent */
void pool_serve(struct postgres *p); /* waiting calls meet idle sessions; opens what is missing */
void pool_sweep(struct postgres *p, struct instant now); /* retires old and idle sessions */
void pool_close_all(struct postgres *p);
void pool_drop_read_write(struct postgres *p); /* wrong node */
bool pool_has_connection(const struct postgres *p);

/* postgres_connect.c */
void connect_begin(struct postgres_session *s);
void connect_on_event(struct postgres_session *s);
void connect_on_timeout(struct postgres_session *s);
void connect_resolved(struct postgres *p); /* the resolver answered */
bool connect_open_trace(struct postgres *p);
void connect_close_trace(struct postgres *p);
void connect_end_trace(struct postgres_session *s); /* the login is over; more than once is fine */
void connect_set_up_done(struct postgres_session *s);
/* The session could not be opened: tells its waiter or the probe, and closes it. */
void connect_failed(struct postgres_session *s);

/* postgres_session.c */
struct postgres_session *session_create(struct postgres *p, bool is_probe);
void session_move(struct postgres_session *s, enum session_state to);
void session_close(struct postgres_session *s); /* frees later; gives a held permit back */
void session_watch(struct postgres_session *s, int events);
void session_unwatch(struct postgres_session *s);
void session_drop_watch(struct postgres_session *s); /* the loop forgets the socket */
void session_timer(struct postgres_session *s, struct instant at);
void session_timer_off(struct postgres_session *s);
void session_push(struct postgres_session *s, enum step step);
/* Sends what is queued; watches for writability when the socket is full. False: connection lost. */
bool session_flush(struct postgres_session *s);
void session_read(struct postgres_session *s);
bool session_is_fresh(struct postgres_session *s); /* before reuse: nothing unexpected to read */

/* postgres_run.c */
void run_call(struct postgres_session *s, struct call *call);
void run_result(struct postgres_session *s, enum step step, PGresult *result); /* borrows result */
void run_step_done(struct postgres_session *s, enum step step);
void run_batch_done(struct postgres_session *s);
void run_lost(struct postgres_session *s);      /* the connection is gone */
void run_timeout(struct postgres_session *s);   /* the attempt's time, or the cleaning's */
void run_cancelled(struct postgres_session *s); /* nobody waits for s->call any more */
void run_shut_down(struct postgres_session *s);
bool run_set_up(struct postgres_session *s); /* first batch after login */

/* postgres_rows.c: for s->route */
void rows_begin(struct postgres_session *s);
/* False: the result is over a cap, *out says which. */
bool rows_take(struct postgres_session *s, PGresult *result, struct failure *out);
/* Moves the body into *out. False: there is none to give, *failure says why. */
bool rows_finish(struct postgres_session *s, struct outcome *out, struct failure *failure);

/* postgres_statement.c */
void statement_fini(struct statement *st);
void statement_name(const struct route *route, const struct statement *st, char out[48]);
/* Sends Parse and Describe (no sync). False: the connection is lost. */
/* $1 is a type's name; its OID, or NULL where there is none. */
extern const char statement_param_lookup_sql[];
bool statement_send_prepare(struct postgres_session *s, const struct route *route);
bool statement_described(struct postgres_session *s, const struct route *route,
                         const PGresult *result);
/* Of those that only the server can write, the index of the first column, or -1. */
int statement_server_column(const struct postgres_session *s, const struct route *route);
/* Prepares it again, around itself, so that the server writes those columns. STATEMENT_LOST: the
 * connection is; STATEMENT_REFUSED: one of this kind cannot be wrapped. */
enum statement_sent { STATEMENT_SENT, STATEMENT_LOST, STATEMENT_REFUSED };
enum statement_sent statement_send_wrapped(struct postgres_session *s, const struct route *route);
/* False: its columns are no longer those that were wrapped. */
bool statement_wrapped_described(struct postgres_session *s, const struct route *route,
                                 const PGresult *result);
/* Index of the next parameter or column whose type must be looked up, or -1. */
int statement_unknown_param(const struct postgres *p, const struct route *route);
/* Also takes over the types that are known by now. */
int statement_unknown_column(struct postgres_session *s, const struct route *route);
bool statement_send_param_lookup(struct postgres_session *s, const struct route *route, int index);
bool statement_send_column_lookup(struct postgres_session *s, const struct route *route, int index);
/* Takes the answer in s->lookup_*. False: no such type: *out. */
bool statement_take_param_lookup(struct postgres_session *s, const struct route *route,
                                 struct failure *out);
void statement_take_column_lookup(struct postgres_session *s, const struct route *route,
                                  const PGresult *row);
/* They may have been dropped, and made anew. */
void statement_forget_types(struct postgres *p);
/* All types are known: the statement is ready. */
bool statement_finish(struct postgres_session *s, const struct route *route);

/* postgres_cancel.c */
typedef void cancel_done_fn(void *ctx, bool is_delivered);
/* Tells the server to stop what `conn` runs. `done` is called once, on the loop; after
 * cancel_abandon() not at all. NULL: it cannot be sent. */
struct postgres_cancel *cancel_start(uv_loop_t *loop, PGconn *conn, int32_t pid, int32_t key,
                                     int64_t timeout_us, cancel_done_fn *done, void *ctx);
void cancel_abandon(struct postgres_cancel *cancel);

/* postgres_probe.c */
void probe_start_if_due(struct postgres *p, struct instant now);
void probe_schedule(struct postgres *p,
                    struct instant now); /* after the breaker moved or a probe */
void probe_give_up_if_due(struct postgres *p, struct instant now);
void probe_ended(struct postgres *p, bool is_good, const struct failure *failure);
struct instant probe_next(const struct postgres *p);
#endif

/* worker_internal.h - a worker from the inside: its connections and its requests.
 * SPDX-License-Identifier: MIT
 *
 *   connection:  NEW ──> HEAD ──> BODY ──> BUSY ──> WRITING ──> IDLE ──> HEAD ...
 *   request:                READING ──> WAITING ──> READY ──> SENT
 *                               │          └──────> GONE (the caller hung up)
 *                               └── answered here and now ──> SENT
 *
 * The HTTP library calls back only inside worker_pump(), which runs once a turn of the loop, after
 * everything else that the turn brought: resumed requests share one pass over its connections.
 *
 * Owner    the worker owns all; a request is the connection's from its headers to its end, then
 * goes back to the worker's free list. Threads  the worker's alone, but for what says otherwise. */
#ifndef WEB_WORKER_INTERNAL_H
#define WEB_WORKER_INTERNAL_H
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/inbox.h"
#include "base/instant.h"
#include "base/list.h"
#include "base/rand.h"
#include "base/wakeup.h"
#include "plan/endpoint.h"
#include "web/head_internal.h"
#include "web/router.h"

struct config;
struct service;

enum connection_phase {
    PHASE_NEW,     /* nothing came yet */
    PHASE_HEAD,    /* the request line came, headers are missing */
    PHASE_BODY,    /* the headers came, the body is missing */
    PHASE_BUSY,    /* the request is complete, no answer yet */
    PHASE_WRITING, /* the answer is on its way */
    PHASE_IDLE,    /* kept alive */
};

struct connection {
    struct inbox_item item; /* from the acceptor to the worker */
    struct list link;       /* arriving, or connections, of the worker */
    struct worker *worker;
    struct MHD_Connection *mhd; /* NULL: not started */
    int fd;                     /* the library's: never closed here */
    struct sockaddr_storage address;
    socklen_t address_bytes;
    bool is_reserve; /* only /health* is answered, then it is closed */
    bool is_hung_up; /* the caller closed, or half-closed */
    bool is_killed;  /* shut down by a timeout; the library will close it */

    enum connection_phase phase;
    struct instant since;    /* in this phase */
    struct instant check_at; /* PHASE_IDLE: when to look for a header that never ends */
    bool has_partial_head;   /* PHASE_IDLE: bytes had come at the last look */

    struct request *request; /* NULL: none under way */
    char *uri;               /* owned; of the request under way, raw; not NUL-terminated */
    size_t uri_bytes, uri_capacity_bytes;
    bool is_uri_too_long;
};

/* While a request waits, the library either forgets its connection (suspended: three system calls,
 * and then free of cost) or asks for its answer at each run (open: free of system calls, and a call
 * each run). So the first few of a worker wait openly, and only for as long as a quick call takes.
 */
enum { OPEN_WAITS_MAX = 32, OPEN_WAIT_US = 5000 };

enum request_state { REQUEST_READING, REQUEST_WAITING, REQUEST_READY, REQUEST_GONE, REQUEST_SENT };

/* What a path leads to. */
enum target {
    TARGET_NONE,
    TARGET_ROUTE,
    TARGET_HEALTH,
    TARGET_LIVE,
    TARGET_READY,
    TARGET_PROBLEM, /* /problems/REASON */
    TARGET_SERVER,  /* the path of OPTIONS * */
};

/* Methods as metrics count them. */
enum request_method {
    REQUEST_GET,
    REQUEST_HEAD,
    REQUEST_POST,
    REQUEST_PUT,
    REQUEST_PATCH,
    REQUEST_DELETE,
    REQUEST_OPTIONS,
    REQUEST_OTHER,
};

struct request {
    struct list link; /* free or active, of the worker */
    struct list ready_link;
    struct request *next_made; /* all that were ever made, for their timers' end */
    struct worker *worker;
    struct connection *connection;
    uv_timer_t timer;        /* of the deadline; initialised once */
    struct instant timer_at; /* when it fires, if it is active */
    bool is_suspended;       /* REQUEST_WAITING, REQUEST_READY, REQUEST_GONE */
    enum request_state state;

    enum request_method method;
    struct head head;
    struct raw_text path, query; /* into connection->uri */
    enum target target;
    enum reason problem_page; /* TARGET_PROBLEM: the document asked for */
    struct router_match match;
    struct route *route; /* NULL: none for this path and method */
    char id[65];
    char trace_id[33]; /* empty: none */

    bool wants_body; /* it is kept, not only swallowed */
    bool is_body_too_large, is_overloaded;
    size_t body_seen_bytes;
    struct buffer body;
    size_t counted_bytes; /* of ours in metrics.memory_bytes */

    struct instant started_at; /* the headers came; then: the request was complete */
    bool has_begun;            /* endpoint_begin() was called */
    struct endpoint endpoint;
    struct answer answer;
    const char *content_type; /* of an answer that is no problem */
    char allow[64];           /* methods of the path, for 405 and OPTIONS; empty: not told */
};

struct worker {
    struct service *service;
    const struct config *config;
    uint32_t index;
    pthread_t thread;
    uv_loop_t loop;
    struct wakeup wakeup;
    struct inbox arrivals; /* connections; pushed by the acceptor */
    bool *has_calls;       /* owned; see endpoint_env */
    struct inbox *replies; /* owned; calls, pushed by the dependency of that index */
    struct inbox landed;   /* flights that requests wait for; pushed by the worker that flew them */
    _Atomic bool should_drain, should_stop;
    _Atomic uint32_t connection_count; /* with those in arrivals */
    _Atomic uint32_t request_count;    /* headers came, not ended */

    struct MHD_Daemon *daemon;
    uv_poll_t daemon_poll;
    uv_prepare_t turn; /* once a turn: resume, pump */
    uv_timer_t pump_timer;
    bool needs_pump;
    bool took_piece;       /* of a body, in this run of the library: it has more to do at once */
    uint32_t open_waits;   /* requests that wait without being suspended */
    struct instant run_at; /* when this run of the library began */

    int hang_up_epoll; /* every caller's socket, for its end alone */
    uv_poll_t hang_up_poll;

    uv_timer_t tick; /* sweep, heartbeat, saturation */
    struct instant next_tick_at;
    uint64_t tick_count;
    size_t sweep_cursor;                 /* of the first worker alone, in what is stored */
    uint64_t refused_count, other_count; /* since the last tick */

    struct list connections, arriving;
    struct list free_requests, active_requests, ready_requests;
    struct request *made_requests;
    uint32_t calls_under_way; /* submitted, not come back */

    bool is_draining, is_stopping;
    bool is_abandoned; /* calls never came back: this memory has to outlive them */
    uv_timer_t stop_timer;
    struct instant stop_at;

    struct rand rand;
    struct endpoint_env env;
    uint64_t library_complaint_count;
};

/* connection.c */
void connection_admit(struct worker *worker, struct connection *connection);
void connection_notify(void *cls, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code);
void *connection_take_uri(void *cls, const char *uri, struct MHD_Connection *mhd);
struct connection *connection_of(struct MHD_Connection *mhd);
void connection_enter(struct connection *c, enum connection_phase phase, struct instant now);
/* Says `status` in a bare answer, if none was begun, and shuts the socket down. */
void connection_kill(struct connection *c, int status);
void connections_sweep(struct worker *worker, struct instant now);
void connections_close_idle(struct worker *worker);
bool hang_ups_start(struct worker *worker);
void hang_ups_read(struct worker *worker);

/* request.c */
enum MHD_Result request_handle(void *cls, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *upload_data,
                               size_t *upload_data_size, void **con_cls);
void request_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                       enum MHD_RequestTerminationCode code);
void request_end(struct request *r);
void request_came_back(struct worker *worker, struct call *call);
void request_landed(void *ctx, struct waiter *waiter); /* the flight it waited for */
void request_hang_up(struct request *r);
void requests_stop(struct worker *worker); /* those that wait are answered: draining, or degraded */

/* target.c: what the path and the method ask for. Fills target, match, route and allow. */
void target_find(struct request *r);

/* builtin.c: answers that need no dependency. */
void builtin_answer(struct request *r);

/* reply.c: writes r->answer. */
enum MHD_Result reply_queue(struct request *r, struct MHD_Connection *mhd, struct instant now);

/* record.c: counts and logs a request that ended. */
void request_record(struct request *r, struct instant now);

/* memory of bodies and answers */
void request_count_memory(struct request *r, size_t size_bytes);
#endif

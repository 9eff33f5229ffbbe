/* call.h - one statement for one source under one permit and one deadline, and how it ended.
 * SPDX-License-Identifier: MIT
 *
 *   worker ── dependency_submit() ──> dependency's thread ── reply inbox ──> worker
 *          ── dependency_cancel() ──>
 *
 * Owner    shared by count: call_create() gives the worker one, dependency_submit() adds one for the
 *          dependency, dependency_cancel() one more while its message is under way. call_unref() frees
 *          at zero.
 * Threads  the fields say whose they are. The outcome is written by the dependency's thread before
 *          the call is pushed into the reply inbox, and read by the worker after it was drained. */
#ifndef DEP_CALL_H
#define DEP_CALL_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/inbox.h"
#include "base/instant.h"
#include "base/list.h"
#include "base/reason.h"
#include "guard/admission.h"
#include "query/params.h"

struct route;

struct outcome {
    enum reason reason;   /* REASON_NONE: success */
    char *body;           /* owned: the JSON of a success, free(); NULL else */
    size_t body_bytes;
    char sqlstate[6];     /* empty: none */
    char *detail;         /* owned: for people; NULL: the reason's title. Never SQL or values */
    char *constraint;     /* owned: the name, for conflict and constraint; else NULL */
    int64_t waited_us;    /* for a permit and a connection */
    int64_t served_us;    /* from sent to done; 0: never sent */
};

struct call {
    _Atomic int refs;

    /* Set by the worker before dependency_submit(), immutable afterwards. */
    const struct route *route;
    struct bound_params params;  /* the call's own copy */
    struct instant deadline;     /* of the request */
    struct instant created_at;
    struct ticket ticket;        /* of the admission; set again when promoted from the line */
    bool has_permit;             /* false: it has a place in the waiting line */
    bool is_short_by_caller;     /* only the caller's header made the deadline that short */
    struct inbox *reply_to;      /* borrowed: the worker's inbox */

    /* The worker's alone. */
    void *request;               /* borrowed; NULL: nobody waits any more */

    /* Crossing. */
    struct inbox_item submit_item; /* dependency's inbox, then the reply inbox */
    struct inbox_item cancel_item; /* dependency's inbox */
    bool is_cancel_sent;         /* worker's */

    /* The dependency's thread, until it is pushed into reply_to. */
    struct list link;            /* waiting line, or waiting for a session */
    void *session;               /* borrowed; the session that runs it */
    bool is_replied;
    bool is_settled;             /* its evidence was recorded */
    struct instant give_up_at;   /* waiting: queue_timeout; running: its attempt's timeout */
    struct instant sent_at;
    struct outcome outcome;
};

/* Takes over `params` (its memory moves into the call). NULL: out of memory, params untouched. */
struct call *call_create(const struct route *route, struct bound_params *params,
                         struct instant deadline, struct instant now, struct inbox *reply_to);
void call_ref(struct call *call);
void call_unref(struct call *call);
#endif

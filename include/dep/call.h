/* call.h - one statement for one source under one permit and one deadline, and how it ended.
 * SPDX-License-Identifier: MIT
 *
 *   worker ── dependency_submit() ──> dependency's thread ── reply inbox ──> worker
 *          ── dependency_cancel(): a flag and a wake-up ──>
 *
 * Owner    the worker that made it, but from dependency_submit() until it is drained from the reply
 *          inbox the dependency's thread. It always comes back, also when nobody waits any more, so
 *          that only its maker's thread frees it (see struct body for why that matters).
 * Threads  the fields say whose they are. */
#ifndef DEP_CALL_H
#define DEP_CALL_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/inbox.h"
#include "base/instant.h"
#include "base/list.h"
#include "base/reason.h"
#include "guard/admission.h"
#include "query/params.h"

struct dependency;
struct flight;
struct postgres_session;
struct route;

struct outcome {
    enum reason reason;    /* REASON_NONE: success */
    struct body body;      /* owned: the JSON of a large success (a mapping); else empty */
    char small_body[4096]; /* the JSON of a small one */
    size_t small_bytes;
    char sqlstate[6];    /* empty: none */
    char detail[240];    /* for people; empty: the reason's title. Never SQL or values */
    char constraint[64]; /* the name, for conflict and constraint; else empty */
    int64_t waited_us;   /* for a permit and a connection */
    int64_t served_us;   /* from sent to done; 0: never sent */
};

struct call {
    /* Set by the worker before dependency_submit(), immutable afterwards. */
    const struct route *route;
    struct bound_params params; /* the call's own copy */
    struct instant deadline;    /* of the request */
    struct instant created_at;
    struct ticket ticket;    /* of the admission; set again when promoted from the line */
    bool has_permit;         /* the worker's word: false, it has a place in the waiting line; the
                              * dependency clears it when its session took the permit over */
    bool is_short_by_caller; /* only the caller's header made the deadline that short */
    struct inbox *reply_to;  /* borrowed: the worker's, for this dependency alone */

    struct dependency *dependency; /* borrowed: where it was submitted */

    /* The worker's alone. */
    void *request;               /* borrowed; NULL: nobody waits (any more), or a flight does */
    struct flight *flight;       /* counted by it; its call comes back to land it; NULL: none */
    struct route *limited_route; /* borrowed; it holds one of this route's @limit; NULL: none */

    /* Crossing. */
    struct inbox_item item;    /* in the dependency's inbox, then in reply_to */
    _Atomic bool is_cancelled; /* set by the worker: nobody waits any more */
    _Atomic bool is_sent; /* set by the dependency: the statement is on its way, so that a write may
                           * have happened */
    bool is_hung_up;      /* the worker's, written before is_cancelled: the caller went away
                           * (else the deadline passed) */

    /* The dependency's thread's, from submit to reply. */
    struct list link;                 /* the waiting line, or calls that wait for a session */
    struct postgres_session *session; /* borrowed; the one that runs it; NULL: it waits */
    bool is_settled;                  /* its evidence was recorded */
    uint32_t prepared_again_count;    /* unseen tries after changed tables or lost statements */
    struct instant give_up_at;        /* waiting: queue_timeout; running: its attempt's timeout */
    struct instant sent_at;
    struct outcome outcome; /* the worker reads it after the reply */
};

/* Takes over `params` (its memory moves into the call). NULL: out of memory, params untouched. */
struct call *call_create(const struct route *route, struct bound_params *params,
                         struct instant deadline, struct instant now, struct inbox *reply_to);
void call_destroy(struct call *call); /* NULL is fine */
#endif

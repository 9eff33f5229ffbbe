/* endpoint_internal.h - the story of a request from the inside: its chapters.
 * SPDX-License-Identifier: MIT
 *
 *   endpoint.c   the story
 *   start.c      a call on its way: overload, @limit, admission
 *   cached.c     routes with @cache: keys, stored answers, flights
 *   answer.c     what comes out: live, stored, stale, fallback, error
 *
 * Owner, threads: as in endpoint.h. */
#ifndef PLAN_ENDPOINT_INTERNAL_H
#define PLAN_ENDPOINT_INTERNAL_H
#include "plan/endpoint.h"

struct bound_params;
struct call;
struct outcome;

/* ---- endpoint.c ---- */

/* When its route's time is over, whatever the caller's header says. */
struct instant endpoint_route_deadline(const struct endpoint *e, struct instant now);

/* ---- start.c ---- */

struct departure {
    struct instant deadline; /* of the call */
    bool is_short_by_caller;
    void *request;         /* who waits; NULL: a flight's */
    struct flight *flight; /* NULL: the request's own call */
};

/* A call with these parameters (taken over, whatever happens) goes to e->dependency.
 * REASON_NONE: it is on its way, as *out_call; else why it was refused, here and now. */
enum reason call_start(struct endpoint *e, struct bound_params *params,
                       const struct departure *departure, struct instant now,
                       struct call **out_call);
const char *refusal_detail(enum reason reason);
void call_end(struct call *call); /* it came back: it is freed */

/* It is refused at the door: the dependency was never asked. */
bool reason_is_refusal(enum reason reason);

/* ---- cached.c ---- */

/* As endpoint_begin(), with the parameters bound; they are taken over. */
bool cached_begin(struct endpoint *e, struct bound_params *params, struct instant now,
                  struct answer *out);

/* ---- answer.c ---- */

void answer_error(const struct endpoint *e, enum reason reason, const char *detail,
                  struct instant now, struct answer *out);
void answer_live(const struct endpoint *e, struct outcome *outcome, struct instant now,
                 struct answer *out);
/* `entry`: the caller's reference moves into the answer. */
void answer_landed(const struct endpoint *e, struct entry *entry, bool is_stored,
                   struct answer *out);
void answer_stored(const struct endpoint *e, struct entry *entry, enum reason reason,
                   struct instant now, struct answer *out);

/* No source could answer: what is stored, the fallback, or the error. Takes e->stored. */
void answer_degraded(struct endpoint *e, enum reason reason, const char *detail, struct instant now,
                     struct answer *out);
#endif

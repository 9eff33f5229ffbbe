/* endpoint.h - the story of one request: parameters, admission, the call, and the answer.
 * SPDX-License-Identifier: MIT
 *
 * It knows no HTTP library: web/ gives it raw inputs and writes what comes out.
 *
 *   endpoint_begin() ── answered at once (bad parameter, refused) ──────────────────> answer
 *          └─ waits ── endpoint_outcome() (the call came back) ─────────────────────> answer
 *                   ── endpoint_deadline() (the worker's timer; the call goes on) ──> answer
 *                   ── endpoint_hang_up() (the caller is gone) ─────────────────────> nothing
 *
 * Owner    the worker's request embeds the struct; endpoint_fini() when the request ends.
 * Threads  the worker's alone.
 * Errors   every failure is an answer with a reason. */
#ifndef PLAN_ENDPOINT_H
#define PLAN_ENDPOINT_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/instant.h"
#include "base/rand.h"
#include "base/reason.h"
#include "observe/metrics.h"

struct call;
struct config;
struct dependency;
struct inbox;
struct raw_inputs;
struct route;

/* What the requests of one worker share; lives as long as the worker. */
struct endpoint_env {
    const struct config *config;
    struct dependency *const *dependencies; /* as in config.dependencies */
    bool *has_calls; /* one a dependency: calls were put into its inbox, and it was not yet woken */
    struct inbox *reply_to; /* the worker's; one a dependency, so that one that is halted between
                             * its push and its wake-up does not keep the others' replies */
    struct rand *rand;
    counter *memory_bytes; /* request bodies and answers not yet sent, all workers */
};

/* Wakes the dependencies that calls went to since the last time; after a batch of requests. */
void endpoint_send_calls(const struct endpoint_env *env);

struct answer {
    int status;
    enum reason reason; /* REASON_NONE: a whole, live answer */
    enum served served;
    struct body body;    /* owned: the JSON of a success; empty for problems (web renders those) */
    char detail[400];    /* of a problem; empty: the reason's title */
    char constraint[64]; /* empty: none */
    const char *dependency;       /* borrowed; NULL: none was involved */
    uint32_t retry_after_s;       /* 503 only; else 0 */
    int64_t waited_us, served_us; /* Server-Timing: queue, db */
    uint32_t attempts;            /* calls sent */
};

void answer_fini(struct answer *answer);

struct endpoint {
    const struct endpoint_env *env;
    struct route *route;
    struct dependency *dependency; /* of the call under way, or of the last refusal */
    struct call *call;             /* one count; NULL when none is under way */
    struct instant started_at;
    struct instant deadline;
    bool is_short_by_caller;
    uint32_t attempts;
};

/* The request is complete (headers and body). caller_timeout_us: from X-Request-Timeout-Ms or
 * X-Envoy-Expected-Rq-Timeout-Ms, 0: none. True: *out is the answer. False: it waits; the worker
 * sets a timer for e->deadline and keeps call->request = `request` to find its way back. */
bool endpoint_begin(struct endpoint *e, const struct endpoint_env *env, struct route *route,
                    const struct raw_inputs *inputs, int64_t caller_timeout_us, struct instant now,
                    void *request, struct answer *out);

/* A call came back through reply_to (it is call->item). Its request is call->request; NULL: nobody
 * waits, just endpoint_discard() it. True: *out is the answer (always, until there are several
 * sources). */
bool endpoint_outcome(struct endpoint *e, struct call *call, struct instant now,
                      struct answer *out);
void endpoint_discard(struct call *call);

/* The deadline passed: answers now; the call is told to stop and goes on without a request. */
void endpoint_deadline(struct endpoint *e, struct instant now, struct answer *out);

/* The caller hung up: the call is told to stop. No answer. */
void endpoint_hang_up(struct endpoint *e);

/* Frees what is left (a call under way is told to stop). */
void endpoint_fini(struct endpoint *e);
#endif

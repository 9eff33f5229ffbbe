/* endpoint.h - the story of one request: parameters, the cache, admission, the call, the answer.
 * SPDX-License-Identifier: MIT
 *
 * It knows no HTTP library: web/ gives it raw inputs and writes what comes out.
 *
 *   endpoint_begin() ── answered at once (bad parameter, stored, refused) ───────────> answer
 *          └─ waits ── endpoint_outcome() (its own call came back) ──────────────────> answer
 *                   ── endpoint_landed() (the flight it waited for landed) ──────────> answer
 *                   ── endpoint_give_up() (the worker's timer; the call goes on) ────> answer
 *                   ── endpoint_hang_up() (the caller is gone) ──────────────────────> nothing
 *
 * A request of a route without @cache makes a call of its own. One of a cached route waits for a
 * flight, which belongs to nobody: endpoint_land() ends it on the worker that made its call, for
 * everyone who waits, here or on another worker.
 *
 * However it ends, a request that no source could answer degrades: stale, fallback, error.
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
#include "cache/cache.h"
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
    struct cache *cache;
    uint32_t worker;      /* its index, for the cache */
    struct inbox *landed; /* the worker's: flights that its requests waited for */
    bool *has_calls; /* one a dependency: calls were put into its inbox, and it was not yet woken */
    struct inbox *reply_to;    /* the worker's; one a dependency, so that one that is halted between
                                * its push and its wake-up does not keep the others' replies */
    uint32_t *calls_under_way; /* the worker's: submitted, not come back */
    struct rand *rand;
    counter *memory_bytes; /* request bodies and answers not yet sent, all workers */
};

/* Wakes the dependencies that calls went to since the last time; after a batch of requests. */
void endpoint_send_calls(const struct endpoint_env *env);

/* What the cache did for an answer (RFC 9211). */
enum cache_use {
    CACHE_USE_NONE,  /* no cached route, or it was not looked up */
    CACHE_USE_HIT,   /* `entry` is the answer, fresh or not */
    CACHE_USE_MISS,  /* nothing was stored, so the request went on */
    CACHE_USE_STALE, /* what was stored is too old, so the request went on */
};

struct cache_note {
    enum cache_use use;
    bool is_stored;    /* the answer was, on its way here */
    bool is_collapsed; /* it is that of another's call */
    int64_t age_us;    /* CACHE_USE_HIT */
    int64_t ttl_us;    /* CACHE_USE_HIT: what is left of its lifetime; negative: stale */
};

struct answer {
    int status;
    enum reason reason; /* REASON_NONE: a whole, live (or fresh) answer */
    enum served served;
    struct body body;     /* owned: the JSON of a success; empty for problems (web writes them) */
    struct entry *entry;  /* counted: its body is the answer's, instead; NULL: none */
    const char *fallback; /* borrowed from the route; the answer's body, instead; NULL: none */
    size_t fallback_bytes;
    struct cache_note cache;
    char detail[400];             /* of a problem; empty: the reason's title */
    char constraint[64];          /* empty: none */
    const char *dependency;       /* borrowed; NULL: none was involved */
    uint32_t retry_after_s;       /* 503 only; else 0 */
    int64_t waited_us, served_us; /* Server-Timing: queue, db */
    uint32_t attempts;            /* calls sent */
};

void answer_fini(struct answer *answer);

/* What is sent, wherever it lies; valid as long as the answer. */
const char *answer_text(const struct answer *answer, size_t *out_size_bytes);

struct endpoint {
    const struct endpoint_env *env;
    struct route *route;
    struct dependency *dependency; /* of the call under way, or of the last refusal */
    struct call *call;             /* of its own, under way; NULL: none */
    struct waiter waiter;          /* of a flight */
    struct entry *stored;          /* counted: what may stand in for a live answer; NULL: nothing */
    enum cache_use cache_use;
    bool has_joined; /* a flight that was there before */
    struct instant started_at;
    struct instant deadline;
    bool is_short_by_caller;
    uint32_t attempts;
};

/* The request is complete (headers and body). caller_timeout_us: from X-Request-Timeout-Ms or
 * X-Envoy-Expected-Rq-Timeout-Ms, 0: none. True: *out is the answer. False: it waits; the worker
 * sets a timer for e->deadline. `request` comes back as call->request; a flight's waiter is found
 * by e->waiter. */
bool endpoint_begin(struct endpoint *e, const struct endpoint_env *env, struct route *route,
                    const struct raw_inputs *inputs, int64_t caller_timeout_us, struct instant now,
                    void *request, struct answer *out);

/* A call came back through reply_to (it is call->item). One that flies for a flight lands, and
 * true is returned; else the request is call->request: endpoint_outcome(), or endpoint_discard() if
 * that is NULL. */
bool endpoint_land(const struct endpoint_env *env, struct call *call, struct instant now);
void endpoint_outcome(struct endpoint *e, struct call *call, struct instant now,
                      struct answer *out);
void endpoint_discard(const struct endpoint_env *env, struct call *call);

/* The flight it waited for landed: flight_deliver() found e->waiter. */
void endpoint_landed(struct endpoint *e, struct instant now, struct answer *out);

/* REASON_DEADLINE: it passed; REASON_DRAINING: the worker stops. Answers now; the call is told to
 * stop, and goes on without a request. */
void endpoint_give_up(struct endpoint *e, enum reason reason, struct instant now,
                      struct answer *out);

/* The caller hung up: the call is told to stop, if nobody else waits for it. No answer. */
void endpoint_hang_up(struct endpoint *e);

/* Frees what is left (a call under way is told to stop). */
void endpoint_fini(struct endpoint *e);

/* For cache_create(). */
void endpoint_cancel_flight(void *call, bool is_hang_up);

/* The key of a route's answer to these parameters; free() its bytes. False: out of memory. */
struct bound_params;
bool endpoint_key(const struct cache *cache, const struct route *route,
                  const struct bound_params *params, struct cache_key *out);
#endif

#include <stdlib.h>
#include <string.h>

#include "dep/call.h"
#include "dep/dependency.h"
#include "plan/endpoint_internal.h"
#include "query/params.h"
#include "query/route.h"

/* ---- keys ---- */

/* The route, its SQL and each value with its length: all that the statement can see, so that no two
 * callers share an answer that could differ. NULL is no empty text. */
static size_t key_bytes_of(const struct route *route, const struct bound_params *params)
{
    size_t size = sizeof route->id + sizeof route->sql_hash;

    for (size_t i = 0; i < params->count; i++)
        size += 1 + (params->values[i] != NULL ? sizeof(size_t) + strlen(params->values[i]) : 0);
    return size;
}

static char *put(char *at, const void *bytes, size_t size_bytes)
{
    memcpy(at, bytes, size_bytes);
    return at + size_bytes;
}

static char *put_value(char *at, const char *value)
{
    size_t size_bytes = value != NULL ? strlen(value) : 0;

    *at++ = (char)(value != NULL);
    if (value == NULL)
        return at;
    at = put(at, &size_bytes, sizeof size_bytes);
    return put(at, value, size_bytes);
}

bool endpoint_key(const struct cache *cache, const struct route *route,
                  const struct bound_params *params, struct cache_key *out)
{
    size_t size_bytes = key_bytes_of(route, params);
    char *bytes = malloc(size_bytes), *at = bytes;

    if (bytes == NULL)
        return false;
    at = put(at, &route->id, sizeof route->id);
    at = put(at, &route->sql_hash, sizeof route->sql_hash);
    for (size_t i = 0; i < params->count; i++)
        at = put_value(at, params->values[i]);
    *out = (struct cache_key){.bytes = bytes,
                              .size_bytes = size_bytes,
                              .hash = cache_key_hash(cache, bytes, size_bytes),
                              .group = route->id};
    return true;
}

/* ---- flights ---- */

static void land_refused(struct endpoint *e, struct flight *flight, enum reason reason,
                         struct instant now)
{
    flight_land(e->env->cache, flight,
                &(struct flight_report){.now = now,
                                        .random = rand_next(e->env->rand),
                                        .policy = &e->route->cache,
                                        .reason = reason,
                                        .detail = refusal_detail(reason),
                                        .constraint = ""});
}

/* The flight's call has the route's time, whatever time the caller who began it has. REASON_NONE:
 * it flies; else it landed already. */
static enum reason fly(struct endpoint *e, struct flight *flight, struct bound_params *params,
                       struct instant now)
{
    struct departure departure = {.deadline = endpoint_route_deadline(e, now), .flight = flight};
    struct call *call;
    enum reason reason = call_start(e, params, &departure, now, &call);

    if (reason != REASON_NONE) {
        if (e->waiter.flight != NULL)
            flight_leave(e->env->cache, &e->waiter, true); /* it is answered here and now */
        land_refused(e, flight, reason, now);
    }
    return reason;
}

bool endpoint_land(const struct endpoint_env *env, struct call *call, struct instant now)
{
    const struct outcome *outcome = &call->outcome;
    bool is_large = outcome->body.data != NULL;

    if (call->flight == NULL)
        return false;
    flight_land(env->cache, call->flight,
                &(struct flight_report){.now = now,
                                        .random = rand_next(env->rand),
                                        .policy = &call->route->cache,
                                        .reason = outcome->reason,
                                        .body = is_large ? outcome->body.data : outcome->small_body,
                                        .body_bytes = is_large ? outcome->body.size_bytes
                                                               : outcome->small_bytes,
                                        .was_tried = !reason_is_refusal(outcome->reason),
                                        .detail = outcome->detail,
                                        .constraint = outcome->constraint,
                                        .waited_us = outcome->waited_us,
                                        .served_us = outcome->served_us});
    endpoint_discard(env, call);
    return true;
}

static int64_t earlier_us(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Who joined late saw only the end of the flight's times. */
void endpoint_landed(struct endpoint *e, struct instant now, struct answer *out)
{
    const struct landing *landing = flight_landing(e->waiter.flight);
    int64_t waited_us = instant_span_us(e->started_at, now);

    if (landing->reason == REASON_NONE) {
        answer_landed(e, entry_ref(landing->entry), landing->is_stored, out);
    } else {
        answer_degraded(e, landing->reason, landing->detail, now, out);
        memcpy(out->constraint, landing->constraint, sizeof out->constraint);
    }
    out->waited_us = earlier_us(landing->waited_us, waited_us);
    out->served_us = earlier_us(landing->served_us, waited_us);
    waiter_fini(&e->waiter);
}

void endpoint_cancel_flight(void *call, bool is_hang_up)
{
    struct call *c = call;

    dependency_cancel(c->dependency, c, is_hang_up);
}

/* ---- the story ---- */

/* What is stored, at once; a refresh may fly behind it. */
static bool answer_at_once(struct endpoint *e, enum cache_verdict verdict,
                           const struct cache_reply *reply, struct bound_params *params,
                           struct instant now, struct answer *out)
{
    enum reason reason = reply->failure;

    if (verdict == CACHE_REFRESH) {
        enum reason refused = fly(e, reply->flight, params, now);

        if (refused != REASON_NONE)
            reason = refused;
    } else {
        bound_params_fini(params);
    }
    answer_stored(e, reply->entry, verdict == CACHE_HIT ? REASON_NONE : reason, now, out);
    return true;
}

/* Waits for a live answer; `stored` may stand in for it. */
static bool wait_or_degrade(struct endpoint *e, enum cache_verdict verdict,
                            const struct cache_reply *reply, struct bound_params *params,
                            struct instant now, struct answer *out)
{
    enum reason reason;

    e->stored = reply->entry;
    e->cache_use = reply->was_stored ? CACHE_USE_STALE : CACHE_USE_MISS;
    e->has_joined = verdict == CACHE_JOIN;
    if (e->has_joined) {
        bound_params_fini(params);
        return false;
    }
    reason = fly(e, reply->flight, params, now);
    if (reason == REASON_NONE)
        return false;
    answer_degraded(e, reason, refusal_detail(reason), now, out);
    return true;
}

static bool out_of_memory(struct endpoint *e, struct bound_params *params, struct instant now,
                          struct answer *out)
{
    bound_params_fini(params);
    answer_degraded(e, REASON_INTERNAL, refusal_detail(REASON_INTERNAL), now, out);
    return true;
}

bool cached_begin(struct endpoint *e, struct bound_params *params, struct instant now,
                  struct answer *out)
{
    struct cache_question question = {.policy = &e->route->cache,
                                      .now = now,
                                      .lease_until = endpoint_route_deadline(e, now),
                                      .worker = e->env->worker,
                                      .inbox = e->env->landed};
    struct cache_reply reply;
    enum cache_verdict verdict;
    bool is_asked;

    if (!endpoint_key(e->env->cache, e->route, params, &question.key))
        return out_of_memory(e, params, now, out);
    is_asked = cache_ask(e->env->cache, &question, &e->waiter, &verdict, &reply);
    free((void *)question.key.bytes);
    if (!is_asked) {
        e->stored = reply.entry;
        return out_of_memory(e, params, now, out);
    }
    if (verdict == CACHE_LEAD || verdict == CACHE_JOIN)
        return wait_or_degrade(e, verdict, &reply, params, now, out);
    return answer_at_once(e, verdict, &reply, params, now, out);
}

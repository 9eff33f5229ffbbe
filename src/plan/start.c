#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "plan/endpoint_internal.h"
#include "query/params.h"
#include "query/route.h"

/* ---- refusals ---- */

const char *refusal_detail(enum reason reason)
{
    static const char *const details[REASON_COUNT] = {
        [REASON_BREAKER_OPEN] = "calls to the dependency are suspended while it recovers",
        [REASON_BULKHEAD_FULL] = "as many calls are under way as the dependency is given",
        [REASON_OVERLOADED] = "bodies and answers fill the memory meant for them",
        [REASON_INTERNAL] = "out of memory",
    };

    return details[reason] != NULL ? details[reason] : "";
}

bool reason_is_refusal(enum reason reason)
{
    return reason == REASON_BREAKER_OPEN || reason == REASON_BULKHEAD_FULL ||
           reason == REASON_QUEUE_TIMEOUT || reason == REASON_OVERLOADED ||
           reason == REASON_DRAINING;
}

static bool is_memory_full(const struct endpoint_env *env)
{
    return counter_read(env->memory_bytes) > env->config->server.max_memory_bytes;
}

/* ---- @limit: most calls of one route at once, whichever source they go to ---- */

static enum reason enter_limit(struct endpoint *e)
{
    _Atomic uint32_t *in_use = &e->route->limit_in_use;

    if (e->route->limit == 0 ||
        atomic_fetch_add_explicit(in_use, 1, memory_order_relaxed) < e->route->limit)
        return REASON_NONE;
    (void)atomic_fetch_sub_explicit(in_use, 1, memory_order_relaxed);
    counter_add(&e->dependency->metrics->refused_full, 1);
    return REASON_BULKHEAD_FULL;
}

static void leave_limit(struct route *route)
{
    if (route->limit != 0)
        (void)atomic_fetch_sub_explicit(&route->limit_in_use, 1, memory_order_relaxed);
}

/* ---- admission ---- */

static enum reason admit(struct dependency *dep, struct call *call)
{
    switch (admission_ask(&dep->admission, &call->ticket)) {
    case ADMIT_RUN:
        call->has_permit = true;
        return REASON_NONE;
    case ADMIT_WAIT:
        return REASON_NONE;
    case REFUSE_OPEN:
        counter_add(&dep->metrics->refused_open, 1);
        return REASON_BREAKER_OPEN;
    case REFUSE_FULL:
        break;
    }
    counter_add(&dep->metrics->refused_full, 1);
    return REASON_BULKHEAD_FULL;
}

/* From here on the call is the dependency's, until it comes back. */
static void submit(struct endpoint *e, struct call *call, const struct departure *departure)
{
    call->is_short_by_caller = departure->is_short_by_caller;
    call->request = departure->request;
    call->flight = departure->flight;
    call->dependency = e->dependency;
    call->limited_route = e->route->limit != 0 ? e->route : NULL;
    if (departure->flight != NULL)
        flight_take_off(e->env->cache, departure->flight, call);
    e->attempts++;
    ++*e->env->calls_under_way;
    dependency_submit(e->dependency, call);
    e->env->has_calls[e->route->source] = true;
}

enum reason call_start(struct endpoint *e, struct bound_params *params,
                       const struct departure *departure, struct instant now,
                       struct call **out_call)
{
    struct inbox *reply_to = &e->env->reply_to[e->route->source];
    struct call *call = call_create(e->route, params, departure->deadline, now, reply_to);
    enum reason reason;

    *out_call = NULL;
    if (call == NULL) {
        bound_params_fini(params);
        return REASON_INTERNAL;
    }
    reason = is_memory_full(e->env) ? REASON_OVERLOADED : enter_limit(e);
    if (reason == REASON_NONE) {
        reason = admit(e->dependency, call);
        if (reason != REASON_NONE)
            leave_limit(e->route);
    }
    if (reason != REASON_NONE) {
        call_destroy(call);
        return reason;
    }
    submit(e, call, departure);
    *out_call = call;
    return REASON_NONE;
}

void call_end(struct call *call)
{
    if (call->limited_route != NULL)
        leave_limit(call->limited_route);
    call_destroy(call);
}

void endpoint_send_calls(const struct endpoint_env *env)
{
    for (size_t i = 0; i < env->config->dependency_count; i++) {
        if (!env->has_calls[i])
            continue;
        env->has_calls[i] = false;
        inbox_wake(&env->dependencies[i]->inbox);
    }
}

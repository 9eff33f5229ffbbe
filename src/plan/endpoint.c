#include "plan/endpoint.h"

#include <string.h>

#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "plan/budget.h"
#include "plan/endpoint_internal.h"
#include "query/params.h"
#include "query/route.h"

static void set_deadline(struct endpoint *e, int64_t caller_timeout_us, struct instant now)
{
    int64_t span_us = route_budget_us(e->route, e->env->config);

    e->is_short_by_caller = caller_timeout_us > 0 && caller_timeout_us < span_us;
    e->deadline = instant_after(now, e->is_short_by_caller ? caller_timeout_us : span_us);
}

struct instant endpoint_route_deadline(const struct endpoint *e, struct instant now)
{
    return instant_after(now, route_budget_us(e->route, e->env->config));
}

static bool bind(struct endpoint *e, const struct raw_inputs *inputs, struct bound_params *params,
                 struct instant now, struct answer *out)
{
    enum reason reason;
    struct error err;

    if (params_bind(e->route, inputs, params, &reason, &err))
        return true;
    answer_error(e, reason, err.text, now, out);
    return false;
}

/* A call of its own. */
static bool call_begin(struct endpoint *e, struct bound_params *params, void *request,
                       struct instant now, struct answer *out)
{
    struct departure departure = {
        .deadline = e->deadline, .is_short_by_caller = e->is_short_by_caller, .request = request};
    enum reason reason = call_start(e, params, &departure, now, &e->call);

    if (reason == REASON_NONE)
        return false;
    answer_degraded(e, reason, refusal_detail(reason), now, out);
    return true;
}

bool endpoint_begin(struct endpoint *e, const struct endpoint_env *env, struct route *route,
                    const struct raw_inputs *inputs, int64_t caller_timeout_us, struct instant now,
                    void *request, struct answer *out)
{
    struct bound_params params;

    *e = (struct endpoint){.env = env, .route = route, .started_at = now};
    list_init(&e->waiter.link);
    set_deadline(e, caller_timeout_us, now);
    if (!bind(e, inputs, &params, now, out))
        return true;
    e->dependency = env->dependencies[route->source];
    return route->is_cached ? cached_begin(e, &params, now, out)
                            : call_begin(e, &params, request, now, out);
}

/* ---- the call came back ---- */

void endpoint_outcome(struct endpoint *e, struct call *call, struct instant now, struct answer *out)
{
    struct outcome *outcome = &call->outcome;

    e->call = NULL;
    if (outcome->reason == REASON_NONE) {
        answer_live(e, outcome, now, out);
    } else {
        answer_degraded(e, outcome->reason, outcome->detail, now, out);
        memcpy(out->constraint, outcome->constraint, sizeof out->constraint);
    }
    out->waited_us = outcome->waited_us;
    out->served_us = outcome->served_us;
    endpoint_discard(e->env, call);
}

/* For all we know: it was sent, and then stopped or lost; it was committed, but there is no row, or
 * no memory, to answer with; or it may commit before it fails. */
static bool may_have_written(const struct call *call)
{
    enum reason reason = call->outcome.reason;

    if (reason == REASON_OUTCOME_UNKNOWN || reason == REASON_NO_ROW)
        return true;
    return atomic_load(&call->is_sent) && (reason == REASON_DEADLINE || reason == REASON_INTERNAL ||
                                           call->route->may_commit_inside);
}

/* Also when nobody waited for it any more. What only may have happened must not take away what
 * callers will be given while the database is gone, but nothing of before is fresh after it. */
static void purge_after(const struct endpoint_env *env, const struct call *call)
{
    const struct route *route = call->route;

    if (call->outcome.reason != REASON_NONE && !may_have_written(call))
        return;
    for (size_t i = 0; i < route->purge_count; i++) {
        if (call->outcome.reason == REASON_NONE)
            cache_purge_group(env->cache, route->purges[i]);
        else
            cache_expire_group(env->cache, route->purges[i]);
    }
}

void endpoint_discard(const struct endpoint_env *env, struct call *call)
{
    --*env->calls_under_way;
    purge_after(env, call);
    call_end(call);
}

/* ---- nobody waits for it any more ---- */

/* A call goes on without a request, and comes back to be discarded; a flight without one waiter. */
static void let_go(struct endpoint *e, bool is_hang_up)
{
    if (e->waiter.flight != NULL)
        flight_leave(e->env->cache, &e->waiter, is_hang_up);
    if (e->call == NULL)
        return;
    e->call->request = NULL;
    dependency_cancel(e->dependency, e->call, is_hang_up);
    e->call = NULL;
}

/* A write that is on its way may happen yet; one in a transaction of ours too, if its commit is. */
static bool may_have_happened(const struct endpoint *e, const struct call *call)
{
    return call != NULL && e->route->is_write && atomic_load(&call->is_sent);
}

void endpoint_give_up(struct endpoint *e, enum reason reason, struct instant now,
                      struct answer *out)
{
    const struct call *call = e->call; /* freed on this thread, and not before it came back */
    /* A flight's call may have more time than this caller gave: it is not to blame then. */
    bool is_haste = call == NULL && (e->is_short_by_caller || reason != REASON_DEADLINE);

    let_go(e, is_haste); /* first: what was not sent by now is not sent any more */
    if (may_have_happened(e, call))
        answer_error(e, REASON_OUTCOME_UNKNOWN,
                     "the statement was sent, and whether it took effect is not known", now, out);
    else
        answer_degraded(e, reason, reason == REASON_DEADLINE ? "no answer came in time" : "", now,
                        out);
}

void endpoint_hang_up(struct endpoint *e)
{
    let_go(e, true);
}

void endpoint_fini(struct endpoint *e)
{
    let_go(e, true);
    entry_unref(e->stored);
    e->stored = NULL;
}

#include "plan/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "query/params.h"
#include "query/route.h"

void answer_fini(struct answer *answer)
{
    body_fini(&answer->body);
}

/* ---- answers ---- */

static void begin_answer(const struct endpoint *e, struct answer *out)
{
    out->body = (struct body){0};
    out->detail[0] = out->constraint[0] = '\0';
    out->dependency = e->dependency != NULL ? e->dependency->name : NULL;
    out->retry_after_s = 0;
    out->waited_us = out->served_us = 0;
    out->attempts = e->attempts;
}

static void answer_error(const struct endpoint *e, enum reason reason, const char *detail,
                         struct instant now, struct answer *out)
{
    begin_answer(e, out);
    out->status = reason_http(reason);
    out->reason = reason;
    out->served = SERVED_ERROR;
    (void)snprintf(out->detail, sizeof out->detail, "%s", detail);
    if (out->status != 503)
        return;
    out->retry_after_s = 1;
    if (e->dependency != NULL)
        out->retry_after_s = dependency_retry_after_s(e->dependency, now, rand_next(e->env->rand));
}

/* Small bodies are copied: the call goes back to be freed. Large ones move. */
static bool take_body(struct outcome *outcome, struct body *out)
{
    if (outcome->body.data != NULL) {
        *out = outcome->body;
        outcome->body = (struct body){0};
        return true;
    }
    out->data = malloc(outcome->small_bytes + 1);
    if (out->data == NULL)
        return false;
    memcpy(out->data, outcome->small_body, outcome->small_bytes);
    out->size_bytes = outcome->small_bytes;
    return true;
}

static void answer_outcome(const struct endpoint *e, struct outcome *outcome, struct instant now,
                           struct answer *out)
{
    if (outcome->reason != REASON_NONE) {
        answer_error(e, outcome->reason, outcome->detail, now, out);
        memcpy(out->constraint, outcome->constraint, sizeof out->constraint);
        return;
    }
    begin_answer(e, out);
    out->status = e->route->success_status;
    out->reason = REASON_NONE;
    out->served = SERVED_LIVE;
    if (!take_body(outcome, &out->body))
        answer_error(e, REASON_INTERNAL, "out of memory", now, out);
}

/* ---- @limit: most calls of one route at once, whichever source they go to ---- */

static bool enter_limit(struct endpoint *e)
{
    _Atomic uint32_t *in_use = &e->route->limit_in_use;

    if (e->route->limit == 0)
        return true;
    if (atomic_fetch_add_explicit(in_use, 1, memory_order_relaxed) >= e->route->limit) {
        (void)atomic_fetch_sub_explicit(in_use, 1, memory_order_relaxed);
        return false;
    }
    return true;
}

static void leave_limit(const struct call *call)
{
    struct route *route = call->limited_route;

    if (route != NULL)
        (void)atomic_fetch_sub_explicit(&route->limit_in_use, 1, memory_order_relaxed);
}

/* ---- admission ---- */

static void submit(struct endpoint *e, struct call *call, struct ticket ticket, bool has_permit)
{
    call->ticket = ticket;
    call->has_permit = has_permit;
    call->is_short_by_caller = e->is_short_by_caller;
    e->call = call;
    e->attempts++;
    dependency_submit(e->dependency, call);
    e->env->has_calls[e->route->source] = true;
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

static bool refuse(const struct endpoint *e, struct call *call, enum reason reason,
                   struct instant now, struct answer *out)
{
    static const char *const details[REASON_COUNT] = {
        [REASON_BREAKER_OPEN] = "calls to the dependency are suspended while it recovers",
        [REASON_BULKHEAD_FULL] = "as many calls are under way as the dependency is given",
    };

    leave_limit(call);
    call_destroy(call);
    answer_error(e, reason, details[reason], now, out);
    return true;
}

/* True: refused, *out says why. */
static bool admit(struct endpoint *e, struct call *call, struct instant now, struct answer *out)
{
    struct dependency_metrics *metrics = e->dependency->metrics;
    struct ticket ticket = {0};

    switch (admission_ask(&e->dependency->admission, &ticket)) {
    case ADMIT_RUN:
        submit(e, call, ticket, true);
        return false;
    case ADMIT_WAIT:
        submit(e, call, ticket, false);
        return false;
    case REFUSE_OPEN:
        counter_add(&metrics->refused_open, 1);
        return refuse(e, call, REASON_BREAKER_OPEN, now, out);
    case REFUSE_FULL:
        break;
    }
    counter_add(&metrics->refused_full, 1);
    return refuse(e, call, REASON_BULKHEAD_FULL, now, out);
}

/* ---- the story ---- */

static void set_deadline(struct endpoint *e, int64_t caller_timeout_us, struct instant now)
{
    int64_t span_us = e->route->timeout_us != 0 ? e->route->timeout_us
                                                : e->env->config->server.request_timeout_us;

    e->is_short_by_caller = caller_timeout_us > 0 && caller_timeout_us < span_us;
    e->deadline = instant_after(now, e->is_short_by_caller ? caller_timeout_us : span_us);
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

bool endpoint_begin(struct endpoint *e, const struct endpoint_env *env, struct route *route,
                    const struct raw_inputs *inputs, int64_t caller_timeout_us, struct instant now,
                    void *request, struct answer *out)
{
    struct bound_params params;
    struct call *call;

    *e = (struct endpoint){.env = env, .route = route, .started_at = now};
    set_deadline(e, caller_timeout_us, now);
    if (!bind(e, inputs, &params, now, out))
        return true;

    e->dependency = env->dependencies[route->source];
    call = call_create(route, &params, e->deadline, now, &env->reply_to[route->source]);
    if (call == NULL) {
        bound_params_fini(&params);
        answer_error(e, REASON_INTERNAL, "out of memory", now, out);
        return true;
    }
    call->request = request;
    if (!enter_limit(e)) {
        counter_add(&e->dependency->metrics->refused_full, 1);
        return refuse(e, call, REASON_BULKHEAD_FULL, now, out);
    }
    call->limited_route = route->limit != 0 ? route : NULL;
    return admit(e, call, now, out);
}

bool endpoint_outcome(struct endpoint *e, struct call *call, struct instant now, struct answer *out)
{
    e->call = NULL;
    answer_outcome(e, &call->outcome, now, out);
    out->waited_us = call->outcome.waited_us;
    out->served_us = call->outcome.served_us;
    endpoint_discard(call);
    return true;
}

void endpoint_discard(struct call *call)
{
    leave_limit(call);
    call_destroy(call);
}

/* The call goes on without a request, and comes back to be discarded. */
static void let_go(struct endpoint *e, bool is_hang_up)
{
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

void endpoint_deadline(struct endpoint *e, struct instant now, struct answer *out)
{
    const struct call *call = e->call; /* freed on this thread, and not before it came back */

    let_go(e, false); /* first: what was not sent by now is not sent any more */
    if (may_have_happened(e, call))
        answer_error(e, REASON_OUTCOME_UNKNOWN,
                     "the statement was sent, and whether it took effect is not known", now, out);
    else
        answer_error(e, REASON_DEADLINE, "no answer came in time", now, out);
}

void endpoint_hang_up(struct endpoint *e)
{
    let_go(e, true);
}

void endpoint_fini(struct endpoint *e)
{
    let_go(e, true);
}

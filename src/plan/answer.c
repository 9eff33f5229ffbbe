#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dep/call.h"
#include "dep/dependency.h"
#include "plan/endpoint_internal.h"
#include "query/route.h"

void answer_fini(struct answer *answer)
{
    body_fini(&answer->body);
    entry_unref(answer->entry);
    answer->entry = NULL;
    answer->fallback = NULL;
}

const char *answer_text(const struct answer *answer, size_t *out_size_bytes)
{
    if (answer->entry != NULL) {
        *out_size_bytes = answer->entry->body_bytes;
        return answer->entry->body;
    }
    if (answer->fallback != NULL) {
        *out_size_bytes = answer->fallback_bytes;
        return answer->fallback;
    }
    *out_size_bytes = answer->body.size_bytes;
    return answer->body.data;
}

static void begin_answer(const struct endpoint *e, enum served served, struct answer *out)
{
    out->status = e->route->success_status;
    out->reason = REASON_NONE;
    out->served = served;
    out->body = (struct body){0};
    out->entry = NULL;
    out->fallback = NULL;
    out->fallback_bytes = 0;
    out->cache = (struct cache_note){.use = e->cache_use};
    out->detail[0] = out->constraint[0] = '\0';
    out->dependency = e->dependency != NULL ? e->dependency->name : NULL;
    out->retry_after_s = 0;
    out->waited_us = out->served_us = 0;
    out->attempts = e->attempts;
}

/* ---- errors ---- */

/* Whose mistake it is not should not be named. */
static bool is_ours(enum reason reason)
{
    return reason == REASON_OVERLOADED || reason == REASON_DRAINING;
}

void answer_error(const struct endpoint *e, enum reason reason, const char *detail,
                  struct instant now, struct answer *out)
{
    begin_answer(e, SERVED_ERROR, out);
    out->status = reason_http(reason);
    out->reason = reason;
    (void)snprintf(out->detail, sizeof out->detail, "%s", detail);
    if (is_ours(reason))
        out->dependency = NULL;
    if (out->status != 503)
        return;
    out->retry_after_s = 1;
    if (out->dependency != NULL)
        out->retry_after_s = dependency_retry_after_s(e->dependency, now, rand_next(e->env->rand));
}

/* ---- live ---- */

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

void answer_live(const struct endpoint *e, struct outcome *outcome, struct instant now,
                 struct answer *out)
{
    begin_answer(e, SERVED_LIVE, out);
    if (!take_body(outcome, &out->body))
        answer_error(e, REASON_INTERNAL, "out of memory", now, out);
}

void answer_landed(const struct endpoint *e, struct entry *entry, bool is_stored,
                   struct answer *out)
{
    begin_answer(e, SERVED_LIVE, out);
    out->entry = entry;
    out->cache.is_stored = is_stored;
    out->cache.is_collapsed = e->has_joined;
}

/* ---- less than live ---- */

void answer_stored(const struct endpoint *e, struct entry *entry, enum reason reason,
                   struct instant now, struct answer *out)
{
    begin_answer(e, reason == REASON_NONE ? SERVED_STORED : SERVED_STALE, out);
    out->reason = reason;
    out->entry = entry;
    out->cache.use = CACHE_USE_HIT;
    out->cache.age_us = instant_span_us(entry->stored_at, now);
    out->cache.ttl_us = entry->lifetime_us - out->cache.age_us;
    if (reason != REASON_NONE && out->cache.ttl_us > 0)
        out->cache.ttl_us = 0; /* it expired before its time */
    if (reason == REASON_NONE)
        out->dependency = NULL; /* none was asked */
}

static void answer_fallback(const struct endpoint *e, enum reason reason, struct answer *out)
{
    begin_answer(e, SERVED_FALLBACK, out);
    out->reason = reason;
    out->fallback = e->route->fallback;
    out->fallback_bytes = e->route->fallback_bytes;
}

static bool may_stand_in(const struct endpoint *e, struct instant now)
{
    return e->stored != NULL && cache_is_current(e->env->cache, e->stored) &&
           freshness_allows_error(&e->route->cache, instant_span_us(e->stored->stored_at, now));
}

void answer_degraded(struct endpoint *e, enum reason reason, const char *detail, struct instant now,
                     struct answer *out)
{
    bool may_degrade = reason_is_server_side(reason);

    if (may_degrade && may_stand_in(e, now)) {
        answer_stored(e, e->stored, reason, now, out);
        e->stored = NULL;
    } else if (may_degrade && e->route->fallback != NULL) {
        answer_fallback(e, reason, out);
    } else {
        answer_error(e, reason, detail, now, out);
    }
}

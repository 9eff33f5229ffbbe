#include <string.h>

#include "base/log.h"
#include "config/config.h"
#include "query/route.h"
#include "web/saturation_internal.h"
#include "web/service.h"
#include "web/worker_internal.h"

static bool is_logged(const struct request *r, bool is_hang_up)
{
    switch (r->worker->config->log.access) {
    case ACCESS_ALL:
        return true;
    case ACCESS_ERRORS:
        return is_hang_up || r->answer.status >= 400 || r->answer.reason != REASON_NONE;
    case ACCESS_NONE:
        break;
    }
    return false;
}

static void write_log(const struct request *r, bool is_hang_up, int64_t duration_us)
{
    struct log_line line;

    log_begin(&line, LOG_INFO, "request");
    log_str(&line, "request_id", r->id);
    if (r->trace_id[0] != '\0')
        log_str(&line, "trace_id", r->trace_id);
    log_str(&line, "route", r->route != NULL ? r->route->label : "none");
    log_str(&line, "method", metric_method_name((unsigned)r->method));
    if (is_hang_up)
        log_bool(&line, "hang_up", true);
    else
        log_int(&line, "status", r->answer.status);
    log_ms(&line, "duration_ms", duration_us);
    log_str(&line, "served", served_name(is_hang_up ? SERVED_ERROR : r->answer.served));
    log_str(&line, "reason", reason_word(r->answer.reason));
    if (r->answer.dependency != NULL)
        log_str(&line, "dependency", r->answer.dependency);
    if (!is_hang_up && r->answer.cache.use == CACHE_USE_HIT)
        log_ms(&line, "age_ms", r->answer.cache.age_us > 0 ? r->answer.cache.age_us : 0);
    log_int(&line, "attempts", r->has_begun ? r->endpoint.attempts : 0);
    log_end(&line);
}

void request_record(struct request *r, struct instant now)
{
    struct metrics *metrics = r->worker->service->metrics;
    size_t route = r->route != NULL ? r->route->id : metrics->route_count;
    int64_t duration_us = instant_span_us(r->started_at, now);
    /* No answer was queued, and no timeout said one. */
    bool is_hang_up =
        r->state == REQUEST_GONE || (r->state != REQUEST_SENT && r->answer.status == 0);
    bool is_refusal = saturation_is_refusal(r->answer.served, r->answer.reason);

    if (r->state != REQUEST_SENT)
        r->answer.served = SERVED_ERROR;
    route_metrics_count(&metrics->routes[route], (unsigned)r->method, r->answer.status,
                        r->answer.served, r->answer.reason, duration_us);
    if (is_refusal)
        r->worker->refused_count++;
    else if (r->target == TARGET_ROUTE) /* health checks go on whatever else does */
        r->worker->other_count++;
    if (is_logged(r, is_hang_up))
        write_log(r, is_hang_up, duration_us);
}

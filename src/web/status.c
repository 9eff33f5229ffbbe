#include "web/status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/cache.h"
#include "config/config.h"
#include "dep/dependency.h"
#include "json/json_text.h"
#include "observe/exposition.h"
#include "observe/metrics.h"
#include "observe/process.h"
#include "query/catalog.h"
#include "query/route.h"
#include "web/service.h"

static const int statuses[METRIC_STATUS_COUNT] = METRIC_STATUSES;

/* Members are written with a comma behind the one before; the first of an object follows its brace.
 */

static void key_append(struct buffer *out, const char *key)
{
    bool is_first = out->size_bytes > 0 && out->data[out->size_bytes - 1] == '{';

    if (!is_first)
        buffer_append_char(out, ',');
    json_text_append(out, key, strlen(key));
    buffer_append_char(out, ':');
}

static void text_append(struct buffer *out, const char *key, const char *value)
{
    key_append(out, key);
    json_text_append(out, value, strlen(value));
}

static void count_append(struct buffer *out, const char *key, uint64_t value)
{
    key_append(out, key);
    buffer_append_format(out, "%" PRIu64, value);
}

static void counter_append(struct buffer *out, const char *key, const counter *c)
{
    count_append(out, key, counter_read(c));
}

static void bool_append(struct buffer *out, const char *key, bool value)
{
    key_append(out, key);
    buffer_append_text(out, value ? "true" : "false");
}

static void null_append(struct buffer *out, const char *key)
{
    key_append(out, key);
    buffer_append_text(out, "null");
}

static void ms_append(struct buffer *out, const char *key, int64_t us)
{
    if (us < 0)
        us = 0;
    key_append(out, key);
    buffer_append_format(out, "%" PRId64 ".%03" PRId64, us / 1000, us % 1000);
}

static void time_append(struct buffer *out, const char *key, int64_t wall_us)
{
    char text[32];

    clock_format_wall(wall_us, text);
    text_append(out, key, text);
}

static void object_begin(struct buffer *out, const char *key)
{
    key_append(out, key);
    buffer_append_char(out, '{');
}

static void object_end(struct buffer *out)
{
    buffer_append_char(out, '}');
}

static void connections_append(struct buffer *out, const struct dependency_metrics *m)
{
    object_begin(out, "connections");
    counter_append(out, "idle", &m->connections[CONNECTION_IDLE]);
    counter_append(out, "busy", &m->connections[CONNECTION_BUSY]);
    counter_append(out, "opening", &m->connections[CONNECTION_OPENING]);
    object_end(out);
}

/* Two counters side by side: how many went well, how many did not. */
static void pair_append(struct buffer *out, const char *key, const char *good_key,
                        const counter *good, const counter *bad)
{
    object_begin(out, key);
    counter_append(out, good_key, good);
    counter_append(out, "failed", bad);
    object_end(out);
}

static void refused_append(struct buffer *out, const struct dependency_metrics *m)
{
    object_begin(out, "refused");
    counter_append(out, reason_word(REASON_BREAKER_OPEN), &m->refused_open);
    counter_append(out, reason_word(REASON_BULKHEAD_FULL), &m->refused_full);
    counter_append(out, reason_word(REASON_QUEUE_TIMEOUT), &m->refused_queue_timeout);
    object_end(out);
}

static void last_failure_append(struct buffer *out, const struct dependency_metrics *m)
{
    uint64_t reason = counter_read(&m->last_failure_reason);
    uint64_t wall_us = counter_read(&m->last_failure_wall_us);

    if (reason == REASON_NONE || reason >= REASON_COUNT) {
        null_append(out, "last_failure");
        return;
    }
    object_begin(out, "last_failure");
    text_append(out, "reason", reason_word((enum reason)reason));
    time_append(out, "time", (int64_t)wall_us);
    object_end(out);
}

static void retry_append(struct buffer *out, const struct dependency *dep,
                         const struct admission_view *view, struct instant now)
{
    struct instant retry_at = {
        atomic_load_explicit(&dep->admission.retry_at_us, memory_order_relaxed)};

    if (view->state == BREAKER_OPEN && retry_at.us != INSTANT_NEVER.us)
        ms_append(out, "retry_in_ms", instant_span_us(now, retry_at));
    else
        null_append(out, "retry_in_ms");
}

static void guard_append(struct buffer *out, const struct dependency *dep, struct instant now)
{
    struct admission_view view = admission_read(&dep->admission);
    uint64_t moved_wall_us = counter_read(&dep->metrics->last_move_wall_us);

    text_append(out, "mode", breaker_mode_name(view.mode));
    text_append(out, "state", breaker_state_name(view.state));
    count_append(out, "generation", view.generation);
    if (moved_wall_us != 0)
        time_append(out, "since", (int64_t)moved_wall_us);
    retry_append(out, dep, &view, now);
    count_append(out, "in_use", view.in_use);
    count_append(out, "limit", dep->admission.max_concurrent);
    count_append(out, "queued", view.queued);
    count_append(out, "queue_limit", dep->admission.max_queued);
}

static void dependency_append(struct buffer *out, const struct dependency *dep, struct instant now)
{
    const struct dependency_metrics *m = dep->metrics;

    buffer_append_char(out, '{');
    text_append(out, "name", dep->name);
    text_append(out, "kind", "postgres");
    text_append(out, "access", dep->config->is_read_only ? "read" : "read-write");
    bool_append(out, "reached", counter_read(&m->is_reached) != 0);
    guard_append(out, dep, now);
    refused_append(out, m);
    connections_append(out, m);
    pair_append(out, "connects", "ok", &m->connects_ok, &m->connects_failed);
    pair_append(out, "probes", "ok", &m->probes_ok, &m->probes_failed);
    pair_append(out, "cancels", "delivered", &m->cancels[CANCEL_DELIVERED],
                &m->cancels[CANCEL_FAILED]);
    last_failure_append(out, m);
    object_end(out);
}

struct route_totals {
    uint64_t requests, caller_errors, errors;
};

static struct route_totals route_totals_read(const struct route_metrics *m)
{
    struct route_totals t = {0, 0, 0};

    for (unsigned method = 0; method < METRIC_METHOD_COUNT; method++) {
        for (size_t i = 0; i < METRIC_STATUS_COUNT; i++) {
            uint64_t count = counter_read(&m->requests[method][i]);

            t.requests += count;
            t.caller_errors += statuses[i] >= 400 && statuses[i] < 500 ? count : 0;
            t.errors += statuses[i] >= 500 ? count : 0;
        }
    }
    return t;
}

static void route_append(struct buffer *out, const char *label, const struct route_metrics *m)
{
    struct route_totals t = route_totals_read(m);

    buffer_append_char(out, '{');
    text_append(out, "route", label);
    count_append(out, "requests", t.requests);
    count_append(out, "caller_errors", t.caller_errors);
    count_append(out, "errors", t.errors);
    if (t.requests > 0)
        ms_append(out, "mean_ms", (int64_t)(counter_read(&m->duration.sum_us) / t.requests));
    object_end(out);
}

static void thread_append(struct buffer *out, const struct thread_metrics *t, struct instant now)
{
    int64_t beat_us = (int64_t)counter_read(&t->heartbeat_us);

    buffer_append_char(out, '{');
    text_append(out, "name", t->name);
    ms_append(out, "lag_ms", thread_lag_us(t, now));
    if (beat_us != 0)
        ms_append(out, "heartbeat_age_ms", now.us - beat_us);
    else
        null_append(out, "heartbeat_age_ms");
    object_end(out);
}

/* A comma between the elements of an array. */
static void element_begin(struct buffer *out)
{
    if (out->size_bytes > 0 && out->data[out->size_bytes - 1] != '[')
        buffer_append_char(out, ',');
}

static void dependencies_append(struct buffer *out, const struct service *s, struct instant now)
{
    key_append(out, "dependencies");
    buffer_append_char(out, '[');
    for (size_t i = 0; i < s->config->dependency_count; i++) {
        element_begin(out);
        dependency_append(out, s->dependencies[i], now);
    }
    buffer_append_char(out, ']');
}

static void routes_append(struct buffer *out, const struct service *s)
{
    const struct catalog *catalog = s->config->catalog;

    key_append(out, "routes");
    buffer_append_char(out, '[');
    for (size_t i = 0; i < catalog->route_count; i++) {
        element_begin(out);
        route_append(out, catalog->routes[i].label, &s->metrics->routes[i]);
    }
    element_begin(out);
    route_append(out, "none", &s->metrics->routes[s->metrics->route_count]);
    buffer_append_char(out, ']');
}

static void threads_append(struct buffer *out, const struct service *s, struct instant now)
{
    key_append(out, "threads");
    buffer_append_char(out, '[');
    for (size_t i = 0; i < s->metrics->thread_count; i++) {
        if (s->metrics->threads[i].name[0] == '\0')
            continue;
        element_begin(out);
        thread_append(out, &s->metrics->threads[i], now);
    }
    buffer_append_char(out, ']');
}

static void memory_append(struct buffer *out, const struct service *s,
                          const struct process_facts *process)
{
    object_begin(out, "memory");
    counter_append(out, "bodies_bytes", &s->metrics->memory_bytes);
    count_append(out, "limit_bytes", s->config->server.max_memory_bytes);
    count_append(out, "resident_bytes", process->resident_bytes);
    object_end(out);
}

static void cache_append(struct buffer *out, const struct service *s)
{
    struct cache_facts facts;

    cache_read(s->cache, &facts);
    object_begin(out, "cache");
    count_append(out, "bytes", facts.bytes);
    count_append(out, "max_bytes", facts.max_bytes);
    count_append(out, "entries", facts.entries);
    count_append(out, "hits", facts.lookups[CACHE_LOOKUP_HIT]);
    count_append(out, "stale", facts.lookups[CACHE_LOOKUP_STALE]);
    count_append(out, "misses", facts.lookups[CACHE_LOOKUP_MISS]);
    object_end(out);
}

void status_write(struct buffer *out, const struct service *service,
                  const struct process_facts *process, struct instant now, int64_t wall_us)
{
    buffer_append_char(out, '{');
    text_append(out, "version", WEIR_VERSION);
    time_append(out, "started", service->started_wall_us);
    count_append(out, "uptime_s",
                 wall_us > service->started_wall_us
                     ? (uint64_t)(wall_us - service->started_wall_us) / 1000000
                     : 0);
    bool_append(out, "draining", service->is_draining);
    count_append(out, "http_connections", service->connections);
    count_append(out, "log_dropped", log_dropped_count());
    memory_append(out, service, process);
    cache_append(out, service);
    dependencies_append(out, service, now);
    routes_append(out, service);
    threads_append(out, service, now);
    object_end(out);
}

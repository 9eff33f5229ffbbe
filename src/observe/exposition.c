#include "observe/exposition.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/buffer.h"
#include "observe/metrics.h"
#include "observe/process.h"

/* Loops beat at least once a second; what is older than that is overdue. */
enum { BEAT_US = 1000000 };

struct metric_row {
    const char *name;
    const char *type;
    const char *help;
};

#define METRIC_ROW(code, name, type, help) [code] = {name, type, help},
static const struct metric_row rows[METRIC_COUNT] = {METRIC_TABLE(METRIC_ROW)};

static const int statuses[METRIC_STATUS_COUNT] = METRIC_STATUSES;
static const int64_t bounds_us[HISTOGRAM_BOUND_COUNT] = HISTOGRAM_BOUNDS_US;

static const char *const connection_state_names[CONNECTION_STATE_COUNT] = {
    [CONNECTION_IDLE] = "idle", [CONNECTION_BUSY] = "busy", [CONNECTION_OPENING] = "opening"};
static const char *const cancel_result_names[CANCEL_RESULT_COUNT] = {
    [CANCEL_DELIVERED] = "delivered", [CANCEL_FAILED] = "failed"};

/* A series under construction: name{label="value",... value */
struct series {
    struct buffer *out;
    char before_label; /* '{', then ',' */
};

static void label_value_append(struct buffer *out, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '\n') {
            buffer_append_text(out, "\\n");
            continue;
        }
        if (*value == '\\' || *value == '"')
            buffer_append_char(out, '\\');
        buffer_append_char(out, *value);
    }
}

static struct series series_begin(struct buffer *out, enum metric metric, const char *suffix)
{
    buffer_append_text(out, rows[metric].name);
    buffer_append_text(out, suffix);
    return (struct series){out, '{'};
}

static void series_label(struct series *s, const char *name, const char *value)
{
    buffer_append_char(s->out, s->before_label);
    buffer_append_text(s->out, name);
    buffer_append_text(s->out, "=\"");
    label_value_append(s->out, value);
    buffer_append_char(s->out, '"');
    s->before_label = ',';
}

static void series_close_labels(const struct series *s)
{
    if (s->before_label == ',')
        buffer_append_char(s->out, '}');
}

static void series_end(const struct series *s, uint64_t value)
{
    series_close_labels(s);
    buffer_append_format(s->out, " %" PRIu64 "\n", value);
}

static void series_end_seconds(const struct series *s, uint64_t value_us)
{
    series_close_labels(s);
    buffer_append_format(s->out, " %" PRIu64 ".%06" PRIu64 "\n", value_us / 1000000,
                         value_us % 1000000);
}

static void plain_write(struct buffer *out, enum metric metric, uint64_t value)
{
    struct series s = series_begin(out, metric, "");

    series_end(&s, value);
}

/* A series of one dependency with one more label. */
static void dependency_write(struct buffer *out, enum metric metric, const char *dependency,
                             const char *label, const char *label_value, uint64_t value)
{
    struct series s = series_begin(out, metric, "");

    series_label(&s, "dependency", dependency);
    if (label != NULL)
        series_label(&s, label, label_value);
    series_end(&s, value);
}

static void bucket_write(struct buffer *out, enum metric metric, const char *label,
                         const char *label_value, const char *bound, uint64_t count)
{
    struct series s = series_begin(out, metric, "_bucket");

    series_label(&s, label, label_value);
    series_label(&s, "le", bound);
    series_end(&s, count);
}

/* Buckets are read once and added up here, so that they are cumulative and agree with _count
 * whatever is counted meanwhile. */
static void histogram_write(struct buffer *out, enum metric metric, const char *label,
                            const char *label_value, const struct histogram *h, bool is_shown_empty)
{
    uint64_t cumulative[HISTOGRAM_BOUND_COUNT + 1];
    uint64_t count = 0;
    struct series s;

    for (size_t i = 0; i <= HISTOGRAM_BOUND_COUNT; i++)
        cumulative[i] = count += counter_read(&h->buckets[i]);
    if (count == 0 && !is_shown_empty)
        return;
    for (size_t i = 0; i < HISTOGRAM_BOUND_COUNT; i++) {
        char bound[32];

        (void)snprintf(bound, sizeof bound, "%g", (double)bounds_us[i] / 1e6);
        bucket_write(out, metric, label, label_value, bound, cumulative[i]);
    }
    bucket_write(out, metric, label, label_value, "+Inf", count);
    s = series_begin(out, metric, "_sum");
    series_label(&s, label, label_value);
    series_end_seconds(&s, counter_read(&h->sum_us));
    s = series_begin(out, metric, "_count");
    series_label(&s, label, label_value);
    series_end(&s, count);
}

static const char *route_label(const struct exposition *e, size_t route)
{
    return route < e->metrics->route_count ? e->route_labels[route] : "none";
}

static void build_info_write(struct buffer *out, const struct exposition *e)
{
    struct series s = series_begin(out, METRIC_BUILD_INFO, "");

    series_label(&s, "version", e->version);
    series_end(&s, 1);
}

static void request_write(struct buffer *out, const char *route, unsigned method, int status,
                          uint64_t count)
{
    struct series s;
    char text[16];

    if (count == 0)
        return;
    (void)snprintf(text, sizeof text, "%d", status);
    s = series_begin(out, METRIC_HTTP_REQUESTS, "");
    series_label(&s, "route", route);
    series_label(&s, "method", metric_method_name(method));
    series_label(&s, "status", status != 0 ? text : "other");
    series_end(&s, count);
}

static void requests_write(struct buffer *out, const struct exposition *e)
{
    for (size_t route = 0; route <= e->metrics->route_count; route++) {
        const struct route_metrics *m = &e->metrics->routes[route];

        for (unsigned method = 0; method < METRIC_METHOD_COUNT; method++)
            for (size_t i = 0; i < METRIC_STATUS_COUNT; i++)
                request_write(out, route_label(e, route), method, statuses[i],
                              counter_read(&m->requests[method][i]));
    }
}

static void request_durations_write(struct buffer *out, const struct exposition *e)
{
    for (size_t route = 0; route <= e->metrics->route_count; route++)
        histogram_write(out, METRIC_HTTP_REQUEST_DURATION, "route", route_label(e, route),
                        &e->metrics->routes[route].duration, false);
}

static void answer_write(struct buffer *out, const char *route, enum served served,
                         enum reason reason, uint64_t count)
{
    struct series s;

    if (count == 0)
        return;
    s = series_begin(out, METRIC_ANSWERS, "");
    series_label(&s, "route", route);
    series_label(&s, "served", served_name(served));
    series_label(&s, "reason", reason_word(reason));
    series_end(&s, count);
}

static void answers_write(struct buffer *out, const struct exposition *e)
{
    for (size_t route = 0; route <= e->metrics->route_count; route++) {
        const struct route_metrics *m = &e->metrics->routes[route];

        for (unsigned served = 0; served < SERVED_COUNT; served++)
            for (unsigned reason = 0; reason < REASON_COUNT; reason++)
                answer_write(out, route_label(e, route), (enum served)served, (enum reason)reason,
                             counter_read(&m->answers[served][reason]));
    }
}

static void http_connections_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_HTTP_CONNECTIONS, e->http_connections);
}

/* What follows writes one metric of one dependency. */

static void calls_write(struct buffer *out, const struct exposition *e, size_t i)
{
    const struct dependency_metrics *m = &e->metrics->dependencies[i];
    const char *name = e->dependency_names[i];

    dependency_write(out, METRIC_DEPENDENCY_CALLS, name, "outcome", "ok",
                     counter_read(&m->calls[REASON_NONE]));
    dependency_write(out, METRIC_DEPENDENCY_CALLS, name, "outcome", "hang-up",
                     counter_read(&m->calls_hung_up));
    for (unsigned reason = REASON_NONE + 1; reason < REASON_COUNT; reason++) {
        uint64_t count = counter_read(&m->calls[reason]);

        if (count != 0)
            dependency_write(out, METRIC_DEPENDENCY_CALLS, name, "outcome",
                             reason_word((enum reason)reason), count);
    }
}

static void call_duration_write(struct buffer *out, const struct exposition *e, size_t i)
{
    histogram_write(out, METRIC_DEPENDENCY_CALL_DURATION, "dependency", e->dependency_names[i],
                    &e->metrics->dependencies[i].duration, true);
}

static void breaker_state_write(struct buffer *out, const struct exposition *e, size_t i)
{
    enum breaker_state now = admission_read(e->admissions[i]).state;

    for (unsigned state = 0; state < BREAKER_STATE_COUNT; state++)
        dependency_write(out, METRIC_BREAKER_STATE, e->dependency_names[i], "state",
                         breaker_state_name((enum breaker_state)state), state == now);
}

static void transitions_write(struct buffer *out, const struct exposition *e, size_t i)
{
    for (unsigned state = 0; state < BREAKER_STATE_COUNT; state++)
        dependency_write(out, METRIC_BREAKER_TRANSITIONS, e->dependency_names[i], "to",
                         breaker_state_name((enum breaker_state)state),
                         counter_read(&e->metrics->dependencies[i].transitions[state]));
}

static void in_use_write(struct buffer *out, const struct exposition *e, size_t i)
{
    dependency_write(out, METRIC_BULKHEAD_IN_USE, e->dependency_names[i], NULL, NULL,
                     admission_read(e->admissions[i]).in_use);
}

static void limit_write(struct buffer *out, const struct exposition *e, size_t i)
{
    dependency_write(out, METRIC_BULKHEAD_LIMIT, e->dependency_names[i], NULL, NULL,
                     e->admissions[i]->max_concurrent);
}

static void queued_write(struct buffer *out, const struct exposition *e, size_t i)
{
    dependency_write(out, METRIC_BULKHEAD_QUEUED, e->dependency_names[i], NULL, NULL,
                     admission_read(e->admissions[i]).queued);
}

static void refused_write(struct buffer *out, const struct exposition *e, size_t i)
{
    const struct dependency_metrics *m = &e->metrics->dependencies[i];
    const char *name = e->dependency_names[i];

    dependency_write(out, METRIC_BULKHEAD_REFUSED, name, "reason", reason_word(REASON_BREAKER_OPEN),
                     counter_read(&m->refused_open));
    dependency_write(out, METRIC_BULKHEAD_REFUSED, name, "reason",
                     reason_word(REASON_BULKHEAD_FULL), counter_read(&m->refused_full));
    dependency_write(out, METRIC_BULKHEAD_REFUSED, name, "reason",
                     reason_word(REASON_QUEUE_TIMEOUT), counter_read(&m->refused_queue_timeout));
}

static void connections_write(struct buffer *out, const struct exposition *e, size_t i)
{
    for (size_t state = 0; state < CONNECTION_STATE_COUNT; state++)
        dependency_write(out, METRIC_CONNECTIONS, e->dependency_names[i], "state",
                         connection_state_names[state],
                         counter_read(&e->metrics->dependencies[i].connections[state]));
}

static void connects_write(struct buffer *out, const struct exposition *e, size_t i)
{
    const struct dependency_metrics *m = &e->metrics->dependencies[i];
    const char *name = e->dependency_names[i];

    dependency_write(out, METRIC_CONNECTS, name, "result", "ok", counter_read(&m->connects_ok));
    dependency_write(out, METRIC_CONNECTS, name, "result", "failed",
                     counter_read(&m->connects_failed));
}

static void cancels_write(struct buffer *out, const struct exposition *e, size_t i)
{
    for (size_t result = 0; result < CANCEL_RESULT_COUNT; result++)
        dependency_write(out, METRIC_CANCELS, e->dependency_names[i], "result",
                         cancel_result_names[result],
                         counter_read(&e->metrics->dependencies[i].cancels[result]));
}

static void probes_write(struct buffer *out, const struct exposition *e, size_t i)
{
    const struct dependency_metrics *m = &e->metrics->dependencies[i];
    const char *name = e->dependency_names[i];

    dependency_write(out, METRIC_PROBES, name, "result", "ok", counter_read(&m->probes_ok));
    dependency_write(out, METRIC_PROBES, name, "result", "failed", counter_read(&m->probes_failed));
}

static void cache_bytes_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_CACHE_BYTES, e->cache.bytes);
}

static void cache_limit_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_CACHE_LIMIT, e->cache.max_bytes);
}

static void cache_entries_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_CACHE_ENTRIES, e->cache.entries);
}

static void cache_lookups_write(struct buffer *out, const struct exposition *e)
{
    for (unsigned lookup = 0; lookup < CACHE_LOOKUP_COUNT; lookup++) {
        struct series s = series_begin(out, METRIC_CACHE_LOOKUPS, "");

        series_label(&s, "result", cache_lookup_name((enum cache_lookup)lookup));
        series_end(&s, e->cache.lookups[lookup]);
    }
}

int64_t thread_lag_us(const struct thread_metrics *t, struct instant now)
{
    int64_t measured_us = (int64_t)counter_read(&t->loop_lag_us);
    int64_t beat_us = (int64_t)counter_read(&t->heartbeat_us);
    int64_t overdue_us = beat_us != 0 ? now.us - beat_us - BEAT_US : 0;

    return overdue_us > measured_us ? overdue_us : measured_us;
}

static void loop_lag_write(struct buffer *out, const struct exposition *e)
{
    for (size_t i = 0; i < e->metrics->thread_count; i++) {
        const struct thread_metrics *t = &e->metrics->threads[i];
        struct series s;

        if (t->name[0] == '\0')
            continue;
        s = series_begin(out, METRIC_LOOP_LAG, "");
        series_label(&s, "thread", t->name);
        series_end_seconds(&s, (uint64_t)thread_lag_us(t, e->now));
    }
}

static void log_dropped_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_LOG_DROPPED, e->log_dropped_count);
}

static void cpu_write(struct buffer *out, const struct exposition *e)
{
    struct series s = series_begin(out, METRIC_PROCESS_CPU, "");

    series_end_seconds(&s, (uint64_t)e->process->cpu_us);
}

static void start_write(struct buffer *out, const struct exposition *e)
{
    struct series s = series_begin(out, METRIC_PROCESS_START, "");

    series_end_seconds(&s, (uint64_t)e->process->started_wall_us);
}

static void resident_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_PROCESS_RESIDENT, e->process->resident_bytes);
}

static void virtual_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_PROCESS_VIRTUAL, e->process->virtual_bytes);
}

static void open_fds_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_PROCESS_OPEN_FDS, e->process->open_fds);
}

static void max_fds_write(struct buffer *out, const struct exposition *e)
{
    plain_write(out, METRIC_PROCESS_MAX_FDS, e->process->max_fds);
}

/* Who writes the series of a metric: all at once, or one dependency's. */
struct metric_writer {
    void (*all)(struct buffer *out, const struct exposition *e);
    void (*one)(struct buffer *out, const struct exposition *e, size_t dependency);
};

static const struct metric_writer writers[METRIC_COUNT] = {
    [METRIC_BUILD_INFO] = {.all = build_info_write},
    [METRIC_HTTP_REQUESTS] = {.all = requests_write},
    [METRIC_HTTP_REQUEST_DURATION] = {.all = request_durations_write},
    [METRIC_ANSWERS] = {.all = answers_write},
    [METRIC_HTTP_CONNECTIONS] = {.all = http_connections_write},
    [METRIC_DEPENDENCY_CALLS] = {.one = calls_write},
    [METRIC_DEPENDENCY_CALL_DURATION] = {.one = call_duration_write},
    [METRIC_BREAKER_STATE] = {.one = breaker_state_write},
    [METRIC_BREAKER_TRANSITIONS] = {.one = transitions_write},
    [METRIC_BULKHEAD_IN_USE] = {.one = in_use_write},
    [METRIC_BULKHEAD_LIMIT] = {.one = limit_write},
    [METRIC_BULKHEAD_QUEUED] = {.one = queued_write},
    [METRIC_BULKHEAD_REFUSED] = {.one = refused_write},
    [METRIC_CONNECTIONS] = {.one = connections_write},
    [METRIC_CONNECTS] = {.one = connects_write},
    [METRIC_CANCELS] = {.one = cancels_write},
    [METRIC_PROBES] = {.one = probes_write},
    [METRIC_CACHE_BYTES] = {.all = cache_bytes_write},
    [METRIC_CACHE_LIMIT] = {.all = cache_limit_write},
    [METRIC_CACHE_ENTRIES] = {.all = cache_entries_write},
    [METRIC_CACHE_LOOKUPS] = {.all = cache_lookups_write},
    [METRIC_LOOP_LAG] = {.all = loop_lag_write},
    [METRIC_LOG_DROPPED] = {.all = log_dropped_write},
    [METRIC_PROCESS_CPU] = {.all = cpu_write},
    [METRIC_PROCESS_START] = {.all = start_write},
    [METRIC_PROCESS_RESIDENT] = {.all = resident_write},
    [METRIC_PROCESS_VIRTUAL] = {.all = virtual_write},
    [METRIC_PROCESS_OPEN_FDS] = {.all = open_fds_write},
    [METRIC_PROCESS_MAX_FDS] = {.all = max_fds_write},
};

void exposition_write(struct buffer *out, const struct exposition *e)
{
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const struct metric_writer *w = &writers[i];

        buffer_append_format(out, "# HELP %s %s\n# TYPE %s %s\n", rows[i].name, rows[i].help,
                             rows[i].name, rows[i].type);
        if (w->all != NULL)
            w->all(out, e);
        for (size_t d = 0; w->one != NULL && d < e->metrics->dependency_count; d++)
            w->one(out, e, d);
    }
}

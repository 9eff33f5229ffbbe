/* exposition.h - the metrics as Prometheus reads them (text format 0.0.4). SPDX-License-Identifier:
 * MIT
 *
 * Counters that are 0 are left out where their labels multiply (route x method x status, answers,
 * outcomes, a route's durations); all others are always there.
 *
 * Owner    all pointers are borrowed for the call.
 * Threads  any: everything read is atomic or immutable.
 * Errors   out of memory or over the limit: the buffer's `failed`. */
#ifndef OBSERVE_EXPOSITION_H
#define OBSERVE_EXPOSITION_H
#include <stddef.h>
#include <stdint.h>

#include "base/instant.h"
#include "cache/cache.h"

struct admission;
struct buffer;
struct metrics;
struct process_facts;
struct thread_metrics;

/* clang-format off */
/*    code                               name                                      type         help */
#define METRIC_TABLE(X)                                                                                                                    \
    X(METRIC_BUILD_INFO,                 "weir_build_info",                        "gauge",     "Always 1; the label says which weir this is.") \
    X(METRIC_HTTP_REQUESTS,              "weir_http_requests_total",               "counter",   "Requests answered, by route, method and status.") \
    X(METRIC_HTTP_REQUEST_DURATION,      "weir_http_request_duration_seconds",     "histogram", "From the complete request to its answer.")    \
    X(METRIC_ANSWERS,                    "weir_answers_total",                     "counter",   "Answers, by where their body came from and why it was not a live one.") \
    X(METRIC_HTTP_CONNECTIONS,           "weir_http_connections",                  "gauge",     "Open connections of callers.")                \
    X(METRIC_DEPENDENCY_CALLS,           "weir_dependency_calls_total",            "counter",   "Calls that ended, by outcome.")               \
    X(METRIC_DEPENDENCY_CALL_DURATION,   "weir_dependency_call_duration_seconds",  "histogram", "From sending a call to its end.")             \
    X(METRIC_BREAKER_STATE,              "weir_breaker_state",                     "gauge",     "1 for the state the circuit breaker is in, 0 for the others.") \
    X(METRIC_BREAKER_TRANSITIONS,        "weir_breaker_transitions_total",         "counter",   "Moves of the circuit breaker, by the state moved to.") \
    X(METRIC_BULKHEAD_IN_USE,            "weir_bulkhead_in_use",                   "gauge",     "Permits that are taken.")                     \
    X(METRIC_BULKHEAD_LIMIT,             "weir_bulkhead_limit",                    "gauge",     "Permits there are (max_concurrent).")         \
    X(METRIC_BULKHEAD_QUEUED,            "weir_bulkhead_queued",                   "gauge",     "Calls that wait for a permit.")               \
    X(METRIC_BULKHEAD_REFUSED,           "weir_bulkhead_refused_total",            "counter",   "Calls that were not let in.")                 \
    X(METRIC_CONNECTIONS,                "weir_connections",                       "gauge",     "Connections to the dependency, by state.")    \
    X(METRIC_CONNECTS,                   "weir_connects_total",                    "counter",   "Attempts to connect that ended.")             \
    X(METRIC_CANCELS,                    "weir_cancels_total",                     "counter",   "Cancel requests that ended.")                 \
    X(METRIC_PROBES,                     "weir_probes_total",                      "counter",   "Probes that ended.")                          \
    X(METRIC_CACHE_BYTES,                "weir_cache_bytes",                       "gauge",     "Memory of the stored answers, with all overhead.") \
    X(METRIC_CACHE_LIMIT,                "weir_cache_limit_bytes",                 "gauge",     "Memory that stored answers may take (cache.max_bytes).") \
    X(METRIC_CACHE_ENTRIES,              "weir_cache_entries",                     "gauge",     "Answers that are stored.")                    \
    X(METRIC_CACHE_LOOKUPS,              "weir_cache_lookups_total",               "counter",   "Questions to the cache, by what was there.")  \
    X(METRIC_LOOP_LAG,                   "weir_loop_lag_seconds",                  "gauge",     "How late a thread's loop is; while it is stuck, for how long.") \
    X(METRIC_LOG_DROPPED,                "weir_log_dropped_total",                 "counter",   "Log lines given up because the log could not take them.") \
    X(METRIC_PROCESS_CPU,                "process_cpu_seconds_total",              "counter",   "CPU time used, user and system.")             \
    X(METRIC_PROCESS_START,              "process_start_time_seconds",             "gauge",     "When the process began, since 1970.")         \
    X(METRIC_PROCESS_RESIDENT,           "process_resident_memory_bytes",          "gauge",     "Resident memory.")                            \
    X(METRIC_PROCESS_VIRTUAL,            "process_virtual_memory_bytes",           "gauge",     "Virtual memory.")                             \
    X(METRIC_PROCESS_OPEN_FDS,           "process_open_fds",                       "gauge",     "Open file descriptors.")                      \
    X(METRIC_PROCESS_MAX_FDS,            "process_max_fds",                        "gauge",     "Most file descriptors the process may open.")
/* clang-format on */

#define METRIC_ENUM(code, name, type, help) code,
enum metric { METRIC_TABLE(METRIC_ENUM) METRIC_COUNT };
#undef METRIC_ENUM

struct exposition {
    const struct metrics *metrics;
    const char *const *route_labels;           /* metrics->route_count; the one after is "none" */
    const char *const *dependency_names;       /* metrics->dependency_count */
    const struct admission *const *admissions; /* metrics->dependency_count */
    const struct process_facts *process;
    struct cache_facts cache;
    const char *version;
    uint64_t http_connections;
    uint64_t log_dropped_count;
    struct instant now;
};

void exposition_write(struct buffer *out, const struct exposition *e);

/* How late a loop is: what it last measured, or how long its next beat is overdue. */
int64_t thread_lag_us(const struct thread_metrics *t, struct instant now);
#endif

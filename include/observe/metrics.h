/* metrics.h - the counters and gauges of weir, as relaxed atomics in structs that their writers
 * hold. SPDX-License-Identifier: MIT
 *
 * Measured code only adds; /metrics, /health and /status read. Labels are bounded: routes, methods,
 * known statuses, dependencies, reasons.
 *
 * Owner    metrics_create() .. metrics_destroy() by app; the pointers into it live as long.
 * Threads  any; relaxed: each counter is exact, sets of counters may be a moment apart. */
#ifndef OBSERVE_METRICS_H
#define OBSERVE_METRICS_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/reason.h"
#include "guard/admission.h"

typedef _Atomic uint64_t counter;

static inline void counter_add(counter *c, uint64_t n)
{
    (void)atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static inline uint64_t counter_read(const counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

static inline void counter_set(counter *c, uint64_t value)
{
    atomic_store_explicit(c, value, memory_order_relaxed);
}

/* Upper bounds in microseconds; the last bucket is +Inf. */
#define HISTOGRAM_BOUNDS_US                                                                        \
    {                                                                                              \
        500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000,      \
            5000000, 10000000                                                                      \
    }
enum { HISTOGRAM_BOUND_COUNT = 14 };

struct histogram {
    counter buckets[HISTOGRAM_BOUND_COUNT + 1]; /* not cumulative; exposition adds them up */
    counter sum_us;
};

void histogram_observe(struct histogram *h, int64_t value_us);

/* The statuses weir can answer, in ascending order; anything else counts as the last, 0. */
#define METRIC_STATUSES                                                                            \
    {                                                                                              \
        200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 406, 408, 409, 413, 414, 415, 422,  \
            429, 431, 500, 502, 503, 504, 0                                                        \
    }
enum { METRIC_STATUS_COUNT = 25 };

enum served {
    SERVED_LIVE,
    SERVED_STORED,
    SERVED_STALE,
    SERVED_FALLBACK,
    SERVED_ERROR,
    SERVED_COUNT
};
const char *served_name(enum served s);

enum { METRIC_METHOD_COUNT = 8 }; /* GET HEAD POST PUT PATCH DELETE OPTIONS other */
const char *metric_method_name(unsigned method);

/* One a route, and one more (the last) for requests that matched none: route="none". */
struct route_metrics {
    counter requests[METRIC_METHOD_COUNT][METRIC_STATUS_COUNT];
    struct histogram duration;
    counter answers[SERVED_COUNT][REASON_COUNT];
};

enum connection_state {
    CONNECTION_IDLE,
    CONNECTION_BUSY,
    CONNECTION_OPENING,
    CONNECTION_STATE_COUNT
};
enum cancel_result { CANCEL_DELIVERED, CANCEL_FAILED, CANCEL_RESULT_COUNT };

struct dependency_metrics {
    counter calls[REASON_COUNT]; /* by outcome; REASON_NONE is "ok" */
    counter calls_hung_up;       /* outcome="hang-up": nobody waited any more */
    struct histogram duration;
    counter transitions[BREAKER_STATE_COUNT]; /* by the state moved to */
    counter refused_full, refused_open, refused_queue_timeout;
    counter connections[CONNECTION_STATE_COUNT]; /* gauges: set by the owner thread */
    counter connects_ok, connects_failed;
    counter cancels[CANCEL_RESULT_COUNT];
    counter probes_ok, probes_failed;
    counter is_reached;          /* 1 once a session was open and its role right */
    counter last_failure_reason; /* enum reason of the last blamed outcome; REASON_NONE: none */
    counter last_failure_wall_us;
    counter last_move_wall_us; /* of the breaker */
};

struct thread_metrics {
    char name[32];        /* "worker-0", "dependency-primary", "acceptor", "admin" */
    counter loop_lag_us;  /* last measured */
    counter heartbeat_us; /* monotonic: when its loop last turned; at least once a second */
};

struct metrics {
    struct route_metrics *routes; /* owned: route_count + 1 */
    size_t route_count;
    struct dependency_metrics *dependencies; /* owned */
    size_t dependency_count;
    struct thread_metrics *threads; /* owned */
    size_t thread_count;
    counter memory_bytes; /* gauge: request bodies and answers not yet sent */
    int64_t started_wall_us;
};

struct metrics *metrics_create(size_t route_count, size_t dependency_count, size_t thread_count);
void metrics_destroy(struct metrics *m); /* NULL is fine */

void route_metrics_count(struct route_metrics *m, unsigned method, int status, enum served served,
                         enum reason reason, int64_t duration_us);
#endif

#include "observe/metrics.h"

#include <stdlib.h>

#include "base/ensure.h"

static const int64_t bounds_us[HISTOGRAM_BOUND_COUNT] = HISTOGRAM_BOUNDS_US;
static const int statuses[METRIC_STATUS_COUNT] = METRIC_STATUSES;

static const char *const served_names[SERVED_COUNT] = {
    [SERVED_LIVE] = "live",         [SERVED_STORED] = "stored", [SERVED_STALE] = "stale",
    [SERVED_FALLBACK] = "fallback", [SERVED_ERROR] = "error",
};

static const char *const method_names[METRIC_METHOD_COUNT] = {
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"};

void histogram_observe(struct histogram *h, int64_t value_us)
{
    size_t i = 0;

    if (value_us < 0)
        value_us = 0;
    while (i < HISTOGRAM_BOUND_COUNT && value_us > bounds_us[i])
        i++;
    counter_add(&h->buckets[i], 1);
    counter_add(&h->sum_us, (uint64_t)value_us);
}

const char *served_name(enum served s)
{
    ENSURE(s < SERVED_COUNT);
    return served_names[s];
}

const char *metric_method_name(unsigned method)
{
    ENSURE(method < METRIC_METHOD_COUNT);
    return method_names[method];
}

static size_t status_index(int status)
{
    size_t i = 0;

    while (i < METRIC_STATUS_COUNT - 1 && statuses[i] != status)
        i++;
    return i;
}

void route_metrics_count(struct route_metrics *m, unsigned method, int status, enum served served,
                         enum reason reason, int64_t duration_us)
{
    ENSURE(method < METRIC_METHOD_COUNT);
    ENSURE(served < SERVED_COUNT && reason < REASON_COUNT);
    counter_add(&m->requests[method][status_index(status)], 1);
    counter_add(&m->answers[served][reason], 1);
    histogram_observe(&m->duration, duration_us);
}

struct metrics *metrics_create(size_t route_count, size_t dependency_count, size_t thread_count)
{
    struct metrics *m = calloc(1, sizeof *m);

    if (m == NULL)
        return NULL;
    m->route_count = route_count;
    m->dependency_count = dependency_count;
    m->thread_count = thread_count;
    /* One more each: for "none" among the routes; elsewhere so that none is not out of memory. */
    m->routes = calloc(route_count + 1, sizeof *m->routes);
    m->dependencies = calloc(dependency_count + 1, sizeof *m->dependencies);
    m->threads = calloc(thread_count + 1, sizeof *m->threads);
    if (m->routes == NULL || m->dependencies == NULL || m->threads == NULL) {
        metrics_destroy(m);
        return NULL;
    }
    return m;
}

void metrics_destroy(struct metrics *m)
{
    if (m == NULL)
        return;
    free(m->routes);
    free(m->dependencies);
    free(m->threads);
    free(m);
}

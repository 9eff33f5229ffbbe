#include "web/health_facts.h"

#include "base/reason.h"
#include "config/config.h"
#include "dep/dependency.h"
#include "query/catalog.h"
#include "query/route.h"
#include "web/saturation_internal.h"
#include "web/service.h"

/* A stored answer alone helps only those whose key is warm; a declared one helps all. */
static bool is_hard(const struct catalog *catalog, size_t dependency)
{
    for (size_t i = 0; i < catalog->route_count; i++)
        if (catalog->routes[i].source == dependency && catalog->routes[i].fallback == NULL)
            return true;
    return false;
}

static struct health_fact fact_of(const struct service *service, size_t index)
{
    const struct dependency *dep = service->dependencies[index];
    struct admission_view view = admission_read(&dep->admission);
    enum reason failure = (enum reason)counter_read(&dep->metrics->last_failure_reason);

    return (struct health_fact){
        .name = dep->name,
        .is_hard = is_hard(service->config->catalog, index),
        .is_reached = counter_read(&dep->metrics->is_reached) != 0,
        .state = view.state,
        .mode = view.mode,
        .output = failure == REASON_NONE ? NULL : reason_title(failure),
        .time_wall_us = (int64_t)counter_read(&dep->metrics->last_move_wall_us),
    };
}

size_t health_facts_collect(const struct service *service, struct health_fact *out, size_t cap)
{
    size_t count = service->config->dependency_count;

    if (count > cap)
        count = cap;
    for (size_t i = 0; i < count; i++)
        out[i] = fact_of(service, i);
    return count;
}

const char *health_unready_reason(const struct service *service)
{
    if (atomic_load_explicit(&service->is_starting, memory_order_relaxed))
        return "starting";
    if (atomic_load_explicit(&service->is_draining, memory_order_relaxed))
        return "draining";
    return saturation_is_reached(&service->saturation) ? "saturated" : NULL;
}

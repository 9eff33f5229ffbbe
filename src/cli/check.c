#include "cli/check.h"

#include <stdio.h>

#include "base/complaint.h"
#include "base/quantity.h"
#include "config/config.h"
#include "dep/check_connect.h"
#include "plan/budget.h"
#include "query/catalog.h"
#include "query/route.h"

/* What each route promises, whatever fails. */
static void worst_times_print(const struct config *config)
{
    (void)puts(
        "Worst time to answer, from the complete request to its answer being queued: @timeout or\n"
        "request_timeout, and at most 50ms for a busy worker's turn. Whatever weir does for the\n"
        "request is in it: waiting for a permit, DNS, connecting, login, the statement, "
        "degrading.\n"
        "A caller's X-Request-Timeout-Ms shortens it. Not in it: the request's own way here, "
        "which\n"
        "header_timeout and body_timeout bound, and the answer's way back (write_timeout).");
    for (size_t i = 0; i < config->catalog->route_count; i++) {
        const struct route *route = &config->catalog->routes[i];
        char worst[32];

        duration_format(route_worst_us(route, config), worst);
        (void)printf("%10s  %s\n", worst, route->label);
    }
}

static void summary_print(const struct config *config)
{
    size_t routes = config->catalog->route_count, dependencies = config->dependency_count;

    if (routes > 0)
        worst_times_print(config);
    (void)printf("ok: %zu route%s, %zu %s\n", routes, routes == 1 ? "" : "s", dependencies,
                 dependencies == 1 ? "dependency" : "dependencies");
}

int check_run(const char *config_file, bool is_connecting)
{
    struct complaints complaints;
    struct config *config;
    bool is_good;

    complaints_init(&complaints);
    config = config_load(config_file, &complaints);
    if (config != NULL)
        check_conninfo(config, &complaints);
    is_good = config != NULL && complaints.error_count == 0;
    if (is_good && is_connecting)
        is_good = check_connect(config, &complaints) && complaints.error_count == 0;

    complaints_print(&complaints, stdout);
    if (is_good)
        summary_print(config);
    config_destroy(config);
    complaints_fini(&complaints);
    return is_good ? 0 : 1;
}

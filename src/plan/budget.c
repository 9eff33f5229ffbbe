#include "plan/budget.h"

#include "config/config.h"
#include "query/route.h"

int64_t route_budget_us(const struct route *route, const struct config *config)
{
    return route->timeout_us != 0 ? route->timeout_us : config->server.request_timeout_us;
}

int64_t route_worst_us(const struct route *route, const struct config *config)
{
    return route_budget_us(route, config) + ANSWER_SLACK_US;
}

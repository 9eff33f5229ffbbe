/* How long a request may take. SPDX-License-Identifier: MIT */
#include "cmocka_all.h"
#include "config/config.h"
#include "plan/budget.h"
#include "query/route.h"

static void test_a_route_without_timeout_has_the_servers(void **state)
{
    struct config config = {.server.request_timeout_us = 5000000};
    struct route route = {0};

    (void)state;
    assert_int_equal(route_budget_us(&route, &config), 5000000);
    assert_int_equal(route_worst_us(&route, &config), 5050000);
}

static void test_a_routes_own_timeout_is_its_budget(void **state)
{
    struct config config = {.server.request_timeout_us = 5000000};
    struct route route = {.timeout_us = 800000};

    (void)state;
    assert_int_equal(route_budget_us(&route, &config), 800000);
    assert_int_equal(route_worst_us(&route, &config), 850000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_route_without_timeout_has_the_servers),
        cmocka_unit_test(test_a_routes_own_timeout_is_its_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

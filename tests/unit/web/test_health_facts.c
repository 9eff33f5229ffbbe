/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cmocka_all.h"
#include "config/config.h"
#include "dep/dependency.h"
#include "query/catalog.h"
#include "query/route.h"
#include "web/health_facts.h"
#include "web/service.h"

enum { DEPENDENCY_COUNT = 3 };

static char fallback[] = "[]", vary[] = "Accept";

static void test_hard_is_what_some_route_cannot_do_without(void **state)
{
    struct route routes[] = {
        {.source = 0, .fallback = fallback},
        {.source = 0},
        {.source = 1, .fallback = fallback},
        {.source = 1, .fallback = fallback, .is_cached = true, .vary = vary},
        {.source = 2, .is_cached = true, .vary = vary}, /* its key may be cold */
    };
    static const bool is_hard[DEPENDENCY_COUNT] = {true, false, true};
    static struct dependency_metrics metrics;
    struct catalog catalog = {routes, sizeof routes / sizeof routes[0]};
    struct config config = {.dependency_count = DEPENDENCY_COUNT, .catalog = &catalog};
    struct dependency dependency = {.name = "any", .metrics = &metrics};
    struct dependency *dependencies[DEPENDENCY_COUNT] = {&dependency, &dependency, &dependency};
    struct service service = {.config = &config, .dependencies = dependencies};
    struct health_fact facts[DEPENDENCY_COUNT];

    (void)state;
    admission_init(&dependency.admission, 1, 0);
    assert_int_equal(health_facts_collect(&service, facts, DEPENDENCY_COUNT), DEPENDENCY_COUNT);
    for (int i = 0; i < DEPENDENCY_COUNT; i++)
        assert_int_equal(facts[i].is_hard, is_hard[i]);
}

static void test_what_nobody_uses_is_soft(void **state)
{
    static struct dependency_metrics metrics;
    struct catalog catalog = {NULL, 0};
    struct config config = {.dependency_count = 1, .catalog = &catalog};
    struct dependency dependency = {.name = "any", .metrics = &metrics};
    struct dependency *dependencies[1] = {&dependency};
    struct service service = {.config = &config, .dependencies = dependencies};
    struct health_fact fact;

    (void)state;
    admission_init(&dependency.admission, 1, 0);
    assert_int_equal(health_facts_collect(&service, &fact, 1), 1);
    assert_false(fact.is_hard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hard_is_what_some_route_cannot_do_without),
        cmocka_unit_test(test_what_nobody_uses_is_soft),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

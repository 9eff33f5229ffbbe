#include "cmocka_all.h"
#include "observe/metrics.h"

static void test_a_value_on_a_bound_belongs_below_it(void **state)
{
    struct histogram h = {0};

    (void)state;
    histogram_observe(&h, 500);
    histogram_observe(&h, 501);
    assert_int_equal(counter_read(&h.buckets[0]), 1);
    assert_int_equal(counter_read(&h.buckets[1]), 1);
    assert_int_equal(counter_read(&h.sum_us), 1001);
}

static void test_a_value_above_all_bounds_is_in_the_last_bucket(void **state)
{
    struct histogram h = {0};

    (void)state;
    histogram_observe(&h, 10000000);
    histogram_observe(&h, 10000001);
    histogram_observe(&h, INT64_MAX / 2);
    assert_int_equal(counter_read(&h.buckets[HISTOGRAM_BOUND_COUNT - 1]), 1);
    assert_int_equal(counter_read(&h.buckets[HISTOGRAM_BOUND_COUNT]), 2);
}

static void test_a_negative_span_counts_as_none(void **state)
{
    struct histogram h = {0};

    (void)state;
    histogram_observe(&h, -5);
    assert_int_equal(counter_read(&h.buckets[0]), 1);
    assert_int_equal(counter_read(&h.sum_us), 0);
}

static void test_a_request_counts_by_method_status_and_reason(void **state)
{
    static const int statuses[METRIC_STATUS_COUNT] = METRIC_STATUSES;
    struct metrics *m = metrics_create(2, 1, 3);
    struct route_metrics *route;

    (void)state;
    assert_non_null(m);
    route = &m->routes[1];
    for (size_t i = 0; i < METRIC_STATUS_COUNT - 1; i++)
        route_metrics_count(route, 2, statuses[i], SERVED_ERROR, REASON_DEADLINE, 1000);
    for (size_t i = 0; i < METRIC_STATUS_COUNT - 1; i++)
        assert_int_equal(counter_read(&route->requests[2][i]), 1);
    assert_int_equal(counter_read(&route->requests[2][METRIC_STATUS_COUNT - 1]), 0);
    assert_int_equal(counter_read(&route->answers[SERVED_ERROR][REASON_DEADLINE]),
                     METRIC_STATUS_COUNT - 1);
    metrics_destroy(m);
}

static void test_an_unknown_status_shares_the_last_slot(void **state)
{
    struct metrics *m = metrics_create(0, 0, 0);

    (void)state;
    assert_non_null(m);
    route_metrics_count(&m->routes[0], 0, 299, SERVED_LIVE, REASON_NONE, 1);
    route_metrics_count(&m->routes[0], 0, -1, SERVED_LIVE, REASON_NONE, 1);
    assert_int_equal(counter_read(&m->routes[0].requests[0][METRIC_STATUS_COUNT - 1]), 2);
    metrics_destroy(m);
}

static void test_names_are_those_of_the_contract(void **state)
{
    (void)state;
    assert_string_equal(served_name(SERVED_LIVE), "live");
    assert_string_equal(served_name(SERVED_STORED), "stored");
    assert_string_equal(served_name(SERVED_STALE), "stale");
    assert_string_equal(served_name(SERVED_FALLBACK), "fallback");
    assert_string_equal(served_name(SERVED_ERROR), "error");
    assert_string_equal(metric_method_name(0), "GET");
    assert_string_equal(metric_method_name(METRIC_METHOD_COUNT - 1), "other");
}

static void test_destroying_nothing_is_fine(void **state)
{
    (void)state;
    metrics_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_on_a_bound_belongs_below_it),
        cmocka_unit_test(test_a_value_above_all_bounds_is_in_the_last_bucket),
        cmocka_unit_test(test_a_negative_span_counts_as_none),
        cmocka_unit_test(test_a_request_counts_by_method_status_and_reason),
        cmocka_unit_test(test_an_unknown_status_shares_the_last_slot),
        cmocka_unit_test(test_names_are_those_of_the_contract),
        cmocka_unit_test(test_destroying_nothing_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

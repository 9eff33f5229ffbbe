/* SPDX-License-Identifier: MIT */
#include "cmocka_all.h"
#include "web/saturation_internal.h"

static void pass_second(struct saturation *s, uint64_t refused, uint64_t other)
{
    saturation_count(s, refused, other);
    saturation_tick(s);
}

static void test_ten_bad_seconds_are_saturation(void **state)
{
    struct saturation s = {0};

    (void)state;
    for (int i = 0; i < 9; i++)
        pass_second(&s, 11, 10);
    assert_false(saturation_is_reached(&s));
    pass_second(&s, 11, 10);
    assert_true(saturation_is_reached(&s));
}

static void test_one_better_second_ends_it(void **state)
{
    struct saturation s = {0};

    (void)state;
    for (int i = 0; i < 20; i++)
        pass_second(&s, 5, 0);
    assert_true(saturation_is_reached(&s));
    pass_second(&s, 5, 5);
    assert_false(saturation_is_reached(&s));
}

static void test_silence_is_not_saturation(void **state)
{
    struct saturation s = {0};

    (void)state;
    for (int i = 0; i < 9; i++)
        pass_second(&s, 1, 0);
    pass_second(&s, 0, 0);
    pass_second(&s, 1, 0);
    assert_false(saturation_is_reached(&s));
}

static void test_only_want_of_permits_and_memory_counts(void **state)
{
    (void)state;
    assert_true(saturation_is_refusal(SERVED_ERROR, REASON_BULKHEAD_FULL));
    assert_true(saturation_is_refusal(SERVED_ERROR, REASON_QUEUE_TIMEOUT));
    assert_true(saturation_is_refusal(SERVED_ERROR, REASON_OVERLOADED));
    assert_false(saturation_is_refusal(SERVED_ERROR, REASON_BREAKER_OPEN));
    assert_false(saturation_is_refusal(SERVED_ERROR, REASON_DEADLINE));
    assert_false(saturation_is_refusal(SERVED_ERROR, REASON_NONE));
    assert_false(saturation_is_refusal(SERVED_LIVE, REASON_NONE));
}

static void test_a_refusal_that_degraded_turned_nobody_away(void **state)
{
    (void)state;
    assert_false(saturation_is_refusal(SERVED_STALE, REASON_BULKHEAD_FULL));
    assert_false(saturation_is_refusal(SERVED_FALLBACK, REASON_QUEUE_TIMEOUT));
    assert_false(saturation_is_refusal(SERVED_FALLBACK, REASON_OVERLOADED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_bad_seconds_are_saturation),
        cmocka_unit_test(test_one_better_second_ends_it),
        cmocka_unit_test(test_silence_is_not_saturation),
        cmocka_unit_test(test_only_want_of_permits_and_memory_counts),
        cmocka_unit_test(test_a_refusal_that_degraded_turned_nobody_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

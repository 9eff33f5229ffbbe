#include "cache/freshness.h"
#include "cmocka_all.h"

#define SECOND_US INT64_C(1000000)
#define YEAR_US   (INT64_C(366) * 24 * 3600 * SECOND_US)

enum { DRAW_COUNT = 10000 };

struct age_case {
    int64_t max_age_s, revalidate_s, error_s, lifetime_us, age_us;
    enum freshness expected;
};

/* clang-format off */
static const struct age_case ages[] = {
    /* 10 s, revalidated for 5, on error for 20; this entry's own lifetime is 9 s. */
    {10, 5, 20, 9000000,        0, FRESHNESS_FRESH},
    {10, 5, 20, 9000000,  8999999, FRESHNESS_FRESH},
    {10, 5, 20, 9000000,  9000000, FRESHNESS_REVALIDATED},
    {10, 5, 20, 9000000, 10000000, FRESHNESS_REVALIDATED},
    {10, 5, 20, 9000000, 15000000, FRESHNESS_REVALIDATED},
    {10, 5, 20, 9000000, 15000001, FRESHNESS_ON_ERROR},
    {10, 5, 20, 9000000, 30000000, FRESHNESS_ON_ERROR},
    {10, 5, 20, 9000000, 30000001, FRESHNESS_EXPIRED},

    /* Neither: a live call past the lifetime, the stored one on error up to max-age. */
    {10, 0, 0, 9000000,  8999999, FRESHNESS_FRESH},
    {10, 0, 0, 9000000,  9000000, FRESHNESS_ON_ERROR},
    {10, 0, 0, 9000000, 10000000, FRESHNESS_ON_ERROR},
    {10, 0, 0, 9000000, 10000001, FRESHNESS_EXPIRED},

    /* One of them alone. */
    {10, 0, 20, 9000000,  9000000, FRESHNESS_ON_ERROR},
    {10, 0, 20, 9000000, 30000000, FRESHNESS_ON_ERROR},
    {10, 0, 20, 9000000, 30000001, FRESHNESS_EXPIRED},
    {10, 5,  0, 9000000, 15000000, FRESHNESS_REVALIDATED},
    {10, 5,  0, 9000000, 15000001, FRESHNESS_EXPIRED},

    /* Revalidated for longer than on error: the second window is over before it begins. */
    {10, 20, 5, 9000000, 30000000, FRESHNESS_REVALIDATED},
    {10, 20, 5, 9000000, 30000001, FRESHNESS_EXPIRED},
    {10, 20, 20, 9000000, 30000000, FRESHNESS_REVALIDATED},
    {10, 20, 20, 9000000, 30000001, FRESHNESS_EXPIRED},

    /* max-age=0 is never fresh, but of an age all the same. */
    {0, 0, 0, 0, 0, FRESHNESS_ON_ERROR},
    {0, 0, 0, 0, 1, FRESHNESS_EXPIRED},
    {0, 1, 0, 0, 0, FRESHNESS_REVALIDATED},
    {0, 1, 0, 0, 1000001, FRESHNESS_EXPIRED},

    /* Another thread's clock may be ahead: stored a moment from now is new. */
    {10, 5, 20, 9000000, -1, FRESHNESS_FRESH},
    {10, 5, 20, 9000000, INT64_MIN, FRESHNESS_FRESH},
    {0, 0, 0, 0, -1, FRESHNESS_FRESH},
};
/* clang-format on */

static void test_every_boundary_of_an_age_is_where_the_policy_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ages / sizeof *ages; i++) {
        const struct age_case *c = &ages[i];
        const struct cache_policy policy = {
            .max_age_us = c->max_age_s * SECOND_US,
            .stale_while_revalidate_us = c->revalidate_s * SECOND_US,
            .stale_if_error_us = c->error_s * SECOND_US,
        };

        if (freshness_of(&policy, c->lifetime_us, c->age_us) != c->expected)
            fail_msg("case %zu: %d", i, (int)freshness_of(&policy, c->lifetime_us, c->age_us));
    }
}

static void test_the_longest_durations_do_not_overflow(void **state)
{
    const struct cache_policy longest = {
        .max_age_us = INT64_MAX,
        .stale_while_revalidate_us = INT64_MAX,
        .stale_if_error_us = INT64_MAX,
    };
    const struct cache_policy years = {
        .max_age_us = 100 * YEAR_US,
        .stale_while_revalidate_us = 100 * YEAR_US,
        .stale_if_error_us = 300 * YEAR_US,
    };

    (void)state;
    assert_int_equal(freshness_of(&longest, INT64_MAX, INT64_MAX), FRESHNESS_REVALIDATED);
    assert_true(freshness_allows_error(&longest, INT64_MAX));
    assert_true(freshness_allows_error(&longest, INT64_MIN));
    assert_int_equal(freshness_of(&years, 80 * YEAR_US, 80 * YEAR_US - 1), FRESHNESS_FRESH);
    assert_int_equal(freshness_of(&years, 80 * YEAR_US, 200 * YEAR_US), FRESHNESS_REVALIDATED);
    assert_int_equal(freshness_of(&years, 80 * YEAR_US, 200 * YEAR_US + 1), FRESHNESS_ON_ERROR);
    assert_int_equal(freshness_of(&years, 80 * YEAR_US, 400 * YEAR_US + 1), FRESHNESS_EXPIRED);
    assert_true(freshness_draw_lifetime_us(&longest, UINT64_MAX) >= INT64_MAX / 5 * 4);
}

static void test_an_error_is_covered_up_to_max_age_and_stale_if_error(void **state)
{
    const struct cache_policy policy = {
        .max_age_us = 10 * SECOND_US,
        .stale_if_error_us = 20 * SECOND_US,
    };

    (void)state;
    assert_true(freshness_allows_error(&policy, 0));
    assert_true(freshness_allows_error(&policy, 30 * SECOND_US));
    assert_false(freshness_allows_error(&policy, 30 * SECOND_US + 1));
}

/* Every value lies in 80-100 % of `span_us`, and both ends are reached. */
struct spread {
    int64_t least_us, most_us;
};

static void spread_add(struct spread *s, int64_t value_us)
{
    s->least_us = value_us < s->least_us ? value_us : s->least_us;
    s->most_us = value_us > s->most_us ? value_us : s->most_us;
}

static void assert_spread(const struct spread *s, int64_t span_us)
{
    assert_int_equal(s->most_us, span_us);
    assert_int_equal(s->least_us, span_us / 5 * 4);
}

static void test_lifetimes_lie_between_four_fifths_and_the_whole_of_max_age(void **state)
{
    const struct cache_policy policy = {.max_age_us = 1000};
    const struct cache_policy nothing = {.max_age_us = 0};
    struct spread spread = {INT64_MAX, INT64_MIN};

    (void)state;
    for (uint64_t random = 0; random < DRAW_COUNT; random++)
        spread_add(&spread, freshness_draw_lifetime_us(&policy, random));
    assert_spread(&spread, 1000);
    assert_int_equal(freshness_draw_lifetime_us(&nothing, 12345), 0);
}

static void test_failed_refreshes_back_off_from_one_second_to_thirty(void **state)
{
    static const int64_t expected_s[] = {1, 2, 4, 8, 16, 30, 30, 30};

    (void)state;
    for (uint32_t i = 0; i < sizeof expected_s / sizeof *expected_s; i++) {
        int64_t whole_us = expected_s[i] * SECOND_US;

        assert_int_equal(freshness_backoff_us(i + 1, 0), whole_us);
        assert_int_equal(freshness_backoff_us(i + 1, (uint64_t)(whole_us / 5)), whole_us / 5 * 4);
        for (uint64_t random = 1; random < DRAW_COUNT; random++) {
            int64_t drawn_us = freshness_backoff_us(i + 1, random * UINT64_C(0x9e3779b97f4a7c15));

            assert_true(drawn_us >= whole_us / 5 * 4 && drawn_us <= whole_us);
        }
    }
    assert_int_equal(freshness_backoff_us(UINT32_MAX, 0), 30 * SECOND_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_boundary_of_an_age_is_where_the_policy_says),
        cmocka_unit_test(test_the_longest_durations_do_not_overflow),
        cmocka_unit_test(test_an_error_is_covered_up_to_max_age_and_stale_if_error),
        cmocka_unit_test(test_lifetimes_lie_between_four_fifths_and_the_whole_of_max_age),
        cmocka_unit_test(test_failed_refreshes_back_off_from_one_second_to_thirty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
#include "cache/freshness.h"

#include <stddef.h>

#define SECOND_US INT64_C(1000000)

enum { BACKOFF_STEP_COUNT = 6 };

static const int64_t backoff_us[BACKOFF_STEP_COUNT] = {
    1 * SECOND_US, 2 * SECOND_US, 4 * SECOND_US, 8 * SECOND_US, 16 * SECOND_US, 30 * SECOND_US,
};

/* Uniform in 80-100 % of the span. */
static int64_t draw_most_of_us(int64_t span_us, uint64_t random)
{
    uint64_t choices = (uint64_t)(span_us / 5) + 1;

    return span_us - (int64_t)(random % choices);
}

/* Clocks that were read on two threads may disagree: what is from the future is new. The difference
 * of two spans that are not negative cannot overflow, their sum could. */
static bool is_within(int64_t age_us, int64_t max_age_us, int64_t stale_us)
{
    return age_us <= 0 || age_us - max_age_us <= stale_us;
}

enum freshness freshness_of(const struct cache_policy *policy, int64_t lifetime_us, int64_t age_us)
{
    int64_t revalidate_us = policy->stale_while_revalidate_us;

    if (age_us < lifetime_us)
        return FRESHNESS_FRESH;
    /* Between a short lifetime and max-age there is a live call, unless the setting is there. */
    if (revalidate_us > 0 && is_within(age_us, policy->max_age_us, revalidate_us))
        return FRESHNESS_REVALIDATED;
    if (freshness_allows_error(policy, age_us))
        return FRESHNESS_ON_ERROR;
    return FRESHNESS_EXPIRED;
}

bool freshness_allows_error(const struct cache_policy *policy, int64_t age_us)
{
    return is_within(age_us, policy->max_age_us, policy->stale_if_error_us);
}

int64_t freshness_draw_lifetime_us(const struct cache_policy *policy, uint64_t random)
{
    return draw_most_of_us(policy->max_age_us, random);
}

int64_t freshness_backoff_us(uint32_t failures, uint64_t random)
{
    size_t step = failures > 0 ? failures - 1 : 0;

    if (step >= BACKOFF_STEP_COUNT)
        step = BACKOFF_STEP_COUNT - 1;
    return draw_most_of_us(backoff_us[step], random);
}

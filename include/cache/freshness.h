/* freshness.h - how good is a stored answer of this age? Pure. SPDX-License-Identifier: MIT
 *
 *   0 ........ lifetime ........ max-age + stale-while-revalidate ....... max-age + stale-if-error
 *      FRESH        REVALIDATED                  ON_ERROR                          EXPIRED
 *
 * RFC 9111 section 4.2 (freshness), RFC 5861 (the two stale times). The lifetime is each entry's
 * own, drawn from 80-100 % of max-age, so that what was stored at once is not refreshed at once;
 * the stale times count from the declared max-age.
 *
 * Units    _us microseconds.
 * Threads  any. */
#ifndef CACHE_FRESHNESS_H
#define CACHE_FRESHNESS_H
#include <stdbool.h>
#include <stdint.h>

/* What @cache says. */
struct cache_policy {
    int64_t max_age_us;
    int64_t stale_while_revalidate_us, stale_if_error_us;
    bool is_private; /* never shared downstream; the key holds who asked */
};

enum freshness {
    FRESHNESS_FRESH,       /* the answer */
    FRESHNESS_REVALIDATED, /* the answer at once, with a refresh behind it */
    FRESHNESS_ON_ERROR,    /* the answer only if a live one cannot be had */
    FRESHNESS_EXPIRED,     /* no answer */
};

enum freshness freshness_of(const struct cache_policy *policy, int64_t lifetime_us, int64_t age_us);

/* May it stand in when no live answer can be had? At most max-age + stale-if-error old. */
bool freshness_allows_error(const struct cache_policy *policy, int64_t age_us);

/* Uniform in 80-100 % of max-age. */
int64_t freshness_draw_lifetime_us(const struct cache_policy *policy, uint64_t random);

/* How long to leave an entry alone after its nth failed refresh (from 1): 1 s, doubling up to 30 s,
 * each drawn from 80-100 %. */
int64_t freshness_backoff_us(uint32_t failures, uint64_t random);
#endif

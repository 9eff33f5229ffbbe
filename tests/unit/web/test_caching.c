/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "cmocka_all.h"
#include "web/caching_internal.h"

static struct entry entry = {.lifetime_us = 4700000, .etag = "\"0123\""};

/* Headers that an answer has, NULL where it has none. */
struct expectation {
    const char *what;
    struct answer answer;
    const char *status, *control, *age, *degraded;
};

static void check(const char *what, const char *header, bool is_there, const struct header_text *is,
                  const char *expected)
{
    if (is_there != (expected != NULL) || (is_there && strcmp(is->text, expected) != 0))
        fail_msg("%s: %s: %s, not %s", what, header, is_there ? is->text : "none",
                 expected != NULL ? expected : "none");
}

static void check_all(const struct expectation *e)
{
    struct header_text text;
    bool is_there;

    is_there = caching_status(&e->answer, &text);
    check(e->what, "Cache-Status", is_there, &text, e->status);
    is_there = caching_control(&e->answer, false, &text);
    check(e->what, "Cache-Control", is_there, &text, e->control);
    is_there = caching_age(&e->answer, &text);
    check(e->what, "Age", is_there, &text, e->age);
    is_there = caching_degraded(&e->answer, &text);
    check(e->what, "Weir-Degraded", is_there, &text, e->degraded);
}

#define HIT(age, ttl)                                                                              \
    {                                                                                              \
        .use = CACHE_USE_HIT, .age_us = (age), .ttl_us = (ttl)                                     \
    }

static void test_headers_say_what_the_cache_did(void **state)
{
    const struct expectation cases[] = {
        {"live, route not cached", {.status = 200, .served = SERVED_LIVE}, NULL, NULL, NULL, NULL},
        {"live, nothing was there",
         {.served = SERVED_LIVE,
          .entry = &entry,
          .cache = {.use = CACHE_USE_MISS, .is_stored = true}},
         "weir; fwd=miss; stored",
         "max-age=4",
         NULL,
         NULL},
        {"live, an expired one was there",
         {.served = SERVED_LIVE,
          .entry = &entry,
          .cache = {.use = CACHE_USE_STALE, .is_stored = true}},
         "weir; fwd=stale; stored",
         "max-age=4",
         NULL,
         NULL},
        {"live, of another's call",
         {.served = SERVED_LIVE,
          .entry = &entry,
          .cache = {.use = CACHE_USE_MISS, .is_stored = true, .is_collapsed = true}},
         "weir; fwd=miss; stored; collapsed",
         "max-age=4",
         NULL,
         NULL},
        {"live, purged meanwhile",
         {.served = SERVED_LIVE, .entry = &entry, .cache = {.use = CACHE_USE_MISS}},
         "weir; fwd=miss",
         "max-age=0, must-revalidate",
         NULL,
         NULL},
        {"stored, fresh",
         {.served = SERVED_STORED, .entry = &entry, .cache = HIT(0, 4700000)},
         "weir; hit; ttl=4",
         "max-age=4",
         "0",
         NULL},
        {"stored, from a clock that is ahead",
         {.served = SERVED_STORED, .entry = &entry, .cache = HIT(-300, 4700300)},
         "weir; hit; ttl=4",
         "max-age=4",
         "0",
         NULL},
        {"stored, the last moment",
         {.served = SERVED_STORED, .entry = &entry, .cache = HIT(4699999, 1)},
         "weir; hit; ttl=0",
         "max-age=4",
         "4",
         NULL},
        {"stored, its time is just over",
         {.served = SERVED_STORED, .entry = &entry, .cache = HIT(4700000, 0)},
         "weir; hit; ttl=0",
         "max-age=0, must-revalidate",
         "4",
         NULL},
        {"stored, a refresh behind it",
         {.served = SERVED_STORED, .entry = &entry, .cache = HIT(4700001, -1)},
         "weir; hit; ttl=-1",
         "max-age=0, must-revalidate",
         "4",
         NULL},
        {"stored, expired by whole seconds",
         {.served = SERVED_STORED, .entry = &entry, .cache = HIT(7700000, -3000000)},
         "weir; hit; ttl=-3",
         "max-age=0, must-revalidate",
         "7",
         NULL},
        {"stale",
         {.served = SERVED_STALE,
          .reason = REASON_BREAKER_OPEN,
          .dependency = "primary",
          .entry = &entry,
          .cache = HIT(41700000, -37000000)},
         "weir; hit; ttl=-37; detail=breaker-open",
         "max-age=0, must-revalidate",
         "41",
         "stale; dependency=primary; reason=breaker-open"},
        {"fallback of a cached route",
         {.served = SERVED_FALLBACK,
          .reason = REASON_DEADLINE,
          .dependency = "primary",
          .fallback = "[]",
          .cache = {.use = CACHE_USE_MISS}},
         "weir; fwd=miss; detail=deadline",
         "no-store",
         NULL,
         "fallback; dependency=primary; reason=deadline"},
        {"fallback without a cache or a dependency",
         {.served = SERVED_FALLBACK, .reason = REASON_OVERLOADED, .fallback = "[]"},
         NULL,
         "no-store",
         NULL,
         "fallback; reason=overloaded"},
        {"error after the lookup",
         {.served = SERVED_ERROR,
          .reason = REASON_BULKHEAD_FULL,
          .dependency = "primary",
          .cache = {.use = CACHE_USE_STALE}},
         "weir; fwd=stale; detail=bulkhead-full",
         "no-store",
         NULL,
         NULL},
        {"error before the lookup",
         {.served = SERVED_ERROR, .reason = REASON_BAD_PARAMETER},
         NULL,
         "no-store",
         NULL,
         NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_all(&cases[i]);
}

static void test_private_answers_say_so_where_they_may_be_kept(void **state)
{
    struct answer answer = {.served = SERVED_LIVE,
                            .entry = &entry,
                            .cache = {.use = CACHE_USE_MISS, .is_stored = true}};
    struct header_text text;

    (void)state;
    assert_true(caching_control(&answer, true, &text));
    assert_string_equal(text.text, "private, max-age=4");

    answer.served = SERVED_STALE;
    answer.cache = (struct cache_note)HIT(9000000, -4300000);
    assert_true(caching_control(&answer, true, &text));
    assert_string_equal(text.text, "private, max-age=0, must-revalidate");

    answer.served = SERVED_FALLBACK;
    answer.entry = NULL;
    assert_true(caching_control(&answer, true, &text));
    assert_string_equal(text.text, "no-store");
}

static void test_every_reason_fits(void **state)
{
    static const char longest_name[] = "a-dependency-with-the-longest-nm";
    struct answer answer = {
        .served = SERVED_FALLBACK, .dependency = longest_name, .cache = {.use = CACHE_USE_MISS}};
    struct header_text text;

    (void)state;
    for (enum reason r = REASON_NONE + 1; r < REASON_COUNT; r++) {
        char expected[300];

        answer.reason = r;
        assert_true(caching_degraded(&answer, &text));
        (void)snprintf(expected, sizeof expected, "fallback; dependency=%s; reason=%s",
                       longest_name, reason_word(r));
        assert_string_equal(text.text, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_say_what_the_cache_did),
        cmocka_unit_test(test_private_answers_say_so_where_they_may_be_kept),
        cmocka_unit_test(test_every_reason_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

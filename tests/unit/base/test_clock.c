/* The calendar of log lines and answers. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/rand.h"
#include "cmocka_all.h"

static void expect_text(int64_t wall_us, const char *wanted)
{
    char text[32];

    clock_format_wall(wall_us, text);
    assert_string_equal(text, wanted);
}

static void test_known_instants_have_their_known_names(void **state)
{
    (void)state;
    expect_text(0, "1970-01-01T00:00:00.000Z");
    expect_text(999999, "1970-01-01T00:00:00.999Z");
    expect_text(-1, "1969-12-31T23:59:59.999Z");
    expect_text(INT64_C(951782400) * 1000000, "2000-02-29T00:00:00.000Z");
    expect_text(INT64_C(1709251199) * 1000000 + 123456, "2024-02-29T23:59:59.123Z");
    expect_text(INT64_C(4107542400) * 1000000, "2100-03-01T00:00:00.000Z");
}

/* The C library as the oracle: it knows the calendar, but takes a lock to say so. From the year
 * 1019 on, as it writes earlier ones with fewer digits. */
static void test_any_instant_has_the_name_that_the_library_gives_it(void **state)
{
    static const int64_t span_s = INT64_C(7000) * 365 * 86400;
    struct rand rand;

    (void)state;
    rand_init(&rand, 7);
    for (int i = 0; i < 200000; i++) {
        int64_t wall_us = (int64_t)rand_below(&rand, (uint64_t)span_s) * 1000000 +
                          (int64_t)rand_below(&rand, 1000000) - INT64_C(30000000000) * 1000000;
        int64_t us = ((wall_us % 1000000) + 1000000) % 1000000;
        time_t seconds = (time_t)((wall_us - us) / 1000000);
        char date[32], wanted[48];
        struct tm tm;

        assert_non_null(gmtime_r(&seconds, &tm));
        assert_int_not_equal(strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm), 0);
        (void)snprintf(wanted, sizeof wanted, "%s.%03dZ", date, (int)(us / 1000));
        expect_text(wall_us, wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_instants_have_their_known_names),
        cmocka_unit_test(test_any_instant_has_the_name_that_the_library_gives_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

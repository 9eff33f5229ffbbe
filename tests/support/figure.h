/* figure.h - the numbers that a test measures, each with the limit that it must keep.
 * SPDX-License-Identifier: MIT
 *
 * What     every figure is printed as one line, kept or not, so that a report can quote it.
 * Threads  the test's main thread: a figure over its limit fails the test. */
#ifndef SUPPORT_FIGURE_H
#define SUPPORT_FIGURE_H
#include <stdint.h>

/* How much slower than usual everything runs that is instrumented, the program under test too:
 * 1 without a sanitizer. A limit on the program's own speed is multiplied with it; limits that
 * timers decide are not. */
#if defined(__has_feature)
#define FIGURE_HAS_FEATURE(x) __has_feature(x)
#else
#define FIGURE_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || FIGURE_HAS_FEATURE(thread_sanitizer)
#define FIGURE_SLOWDOWN 10
#elif defined(__SANITIZE_ADDRESS__) || FIGURE_HAS_FEATURE(address_sanitizer)
#define FIGURE_SLOWDOWN 4
#else
#define FIGURE_SLOWDOWN 1
#endif

/* Times are promises of the release binary: sanitizers, which make everything many times slower and
 * less even, print them beside their verdict on memory and races, and no more. Counts are judged
 * everywhere. */
#define FIGURE_IS_JUDGED (FIGURE_SLOWDOWN == 1)

/* What this machine itself takes, beside a test, to carry a byte from one thread to another and
 * back: a percentile of answer times is widened by the same percentile of this. (patience.h
 * measures how late timers are, for the slowest answer at a deadline.) */
struct figure_noise;
struct figure_noise *figure_noise_start(void);
struct figure_round {
    int64_t p99_us, worst_us;
};
struct figure_round figure_noise_stop(struct figure_noise *noise);

/* `noise_us` is what was measured of the machine beside it; it widens the limit and is printed. */
void figure_at_most_us(const char *what, int64_t value_us, int64_t limit_us, int64_t noise_us);
void figure_ratio_at_most(const char *what, double ratio, double limit);
void figure_count_at_most(const char *what, int64_t count, int64_t limit);
void figure_count_is(const char *what, int64_t count, int64_t wanted);
#endif

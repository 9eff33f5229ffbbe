/* lane.h - one caller that asks the same thing again and again beside a test, and who can be looked
 * at while it waits. SPDX-License-Identifier: MIT
 *
 * What     a thread with a kept connection. Its records say what it got and when; lane_waited_us()
 *          says, at once, how long its request of this moment has been out.
 * Units    monotonic microseconds (base/clock.h).
 * Threads  lane_start(), _stop() and _fini() on one thread; the rest from any, and the records'
 *          readers only after lane_stop(). */
#ifndef SUPPORT_LANE_H
#define SUPPORT_LANE_H
#include <stddef.h>
#include <stdint.h>

struct lane;

struct lane_slice {
    int64_t from_us, to_us;
};

/* `url` is copied. It pauses that long after each answer. */
struct lane *lane_start(const char *what, const char *url, int64_t pause_us);
void lane_stop(struct lane *lane);
void lane_fini(struct lane *lane); /* stops it too; NULL is fine */

const char *lane_what(const struct lane *lane);
int64_t lane_waited_us(struct lane *lane); /* 0: between two requests */
uint64_t lane_count(struct lane *lane);    /* answers so far */

/* --- after lane_stop() --- */

/* Answers with another status than 200. */
size_t lane_bad_count(const struct lane *lane);
void lane_print_bad(const struct lane *lane); /* one line each, on stdout */
int64_t lane_worst_us(const struct lane *lane);

/* Of the requests begun within; -1: none. */
int64_t lane_percentile_us(const struct lane *lane, struct lane_slice slice, double percent);

/* The median over the pairs of slices: with the fault divided by without it. */
double lane_ratio(const struct lane *lane, const struct lane_slice *with,
                  const struct lane_slice *without, size_t count, double percent);
#endif

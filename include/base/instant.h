/* instant.h - monotonic time. SPDX-License-Identifier: MIT
 *
 * Units    microseconds since an arbitrary start (CLOCK_MONOTONIC).
 * Threads  values; nothing is shared. */
#ifndef BASE_INSTANT_H
#define BASE_INSTANT_H
#include <stdbool.h>
#include <stdint.h>

/* A point on the monotonic clock. A struct, so that the compiler refuses to mix it with a span;
 * spans are plain int64_t whose name ends in _us or _ms. */
struct instant {
    int64_t us;
};

/* Later than every real instant; "never" in deadlines and timers. */
#define INSTANT_NEVER ((struct instant){INT64_MAX})

static inline struct instant instant_after(struct instant t, int64_t span_us)
{
    return (struct instant){t.us + span_us};
}

static inline bool instant_reached(struct instant now, struct instant t)
{
    return now.us >= t.us;
}

static inline struct instant instant_earlier(struct instant a, struct instant b)
{
    return a.us < b.us ? a : b;
}

/* From `from` to `to`; negative when `to` is before `from`. */
static inline int64_t instant_span_us(struct instant from, struct instant to)
{
    return to.us - from.us;
}
#endif

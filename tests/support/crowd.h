/* crowd.h - many callers at the same instant, and what their times say.
 * SPDX-License-Identifier: MIT */
#ifndef SUPPORT_CROWD_H
#define SUPPORT_CROWD_H
#include <stddef.h>
#include <stdint.h>

typedef void crowd_member(unsigned index, void *context);

/* Runs `member` on `count` threads that a barrier lets go together; returns when all are done. */
void crowd_run(unsigned count, crowd_member *member, void *context);

/* The value that `percent` of the samples do not exceed (nearest rank). Sorts them. */
int64_t crowd_percentile_us(int64_t *samples_us, size_t count, double percent);
int64_t crowd_median_us(int64_t *samples_us, size_t count);

/* The median of ratios; for "unchanged" over interleaved slices. Sorts them. */
double crowd_median_ratio(double *ratios, size_t count);
#endif

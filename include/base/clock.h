/* clock.h - where the edges get `now`; deciding code takes it as an argument.
 * SPDX-License-Identifier: MIT */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <stdint.h>

#include "base/instant.h"

/* CLOCK_MONOTONIC; safe from any thread. */
struct instant clock_now(void);

/* Microseconds since 1970 (CLOCK_REALTIME); for logs and headers only, never for deciding. */
int64_t clock_wall_us(void);

/* Writes an RFC 3339 UTC time with milliseconds, 24 characters and NUL: 2026-01-31T12:00:00.123Z */
void clock_format_wall(int64_t wall_us, char out_text[32]);
#endif

/* quantity.h - durations and sizes as people write them: "250ms" "2s" "1m" "1h", "64KiB" "1MiB".
 * SPDX-License-Identifier: MIT
 *
 * A number (digits, no sign, optional fraction only for s, m, h) and a unit without a space.
 * Durations: ms s m h; at most 365 days. Sizes: B KiB MiB GiB; at most 1 TiB. */
#ifndef BASE_QUANTITY_H
#define BASE_QUANTITY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: `text` (size bytes, no NUL needed) is no duration. */
bool duration_parse(const char *text, size_t size_bytes, int64_t *out_us);
bool size_parse(const char *text, size_t size_bytes, size_t *out_bytes);

/* The shortest exact form: "2s", "250ms", "1m", "0s". */
void duration_format(int64_t us, char out_text[32]);

/* In the largest unit that it is a whole number of: "64KiB". */
void size_format(int64_t bytes, char out_text[32]);
#endif

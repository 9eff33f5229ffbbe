/* rand.h - randomness for jitter, shuffles and request ids. Not for secrets.
 * SPDX-License-Identifier: MIT
 *
 * Owner    the holder of the struct; deciding code takes it as an argument, so tests fix the seed.
 * Threads  one owner. */
#ifndef BASE_RAND_H
#define BASE_RAND_H
#include <stdint.h>

struct rand {
    uint64_t state;
};

void rand_init(struct rand *r, uint64_t seed);
void rand_init_from_system(struct rand *r); /* getrandom(2) */
uint64_t rand_next(struct rand *r);         /* splitmix64 */

/* Uniform in [0, bound); bound > 0. */
uint64_t rand_below(struct rand *r, uint64_t bound);

/* Uniform in [span - share, span + share], share = span * percent / 100. */
int64_t rand_jitter_us(struct rand *r, int64_t span_us, int percent);
#endif

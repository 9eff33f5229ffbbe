/* siphash.h - a short hash that nobody without the key can steer (SipHash-2-4, Aumasson and
 * Bernstein, 2012). SPDX-License-Identifier: MIT
 *
 * Threads  pure. */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H
#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t k0, k1;
};

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t size_bytes);
#endif

/* entry_internal.h - entries in a shard's own memory. SPDX-License-Identifier: MIT */
#ifndef CACHE_ENTRY_INTERNAL_H
#define CACHE_ENTRY_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/entry.h"

struct heap;

/* What an entry takes: struct, key, body. False: no memory is that large. */
bool entry_count_bytes(size_t key_bytes, size_t body_bytes, size_t *out_bytes);

/* entry_create() in `heap`. NULL: it has no room. */
struct entry *entry_create_in(struct heap *heap, const struct cache_key *key, const char *body,
                              size_t body_bytes, struct instant stored_at, int64_t lifetime_us,
                              uint64_t epoch);
#endif

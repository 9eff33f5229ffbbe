/* store_internal.h - one shard's entries: a hash table, and S3-FIFO, which says who goes.
 * SPDX-License-Identifier: MIT
 *
 *   new ──> [ small, a tenth of the bytes ] ── asked for again ──> [ main ] ◄─┐ asked for since:
 *                    │ not asked for again                            │  └────┘ once more around
 *                    v                                                v
 *             gone; its fingerprint is a ghost                       gone
 *
 * Who comes back while its ghost is there goes to main at once.
 *
 * Owner    the shard. The store holds one reference to each entry. What leaves it is handed to the
 *          caller as a chain, reference and all, so that memory is freed after the lock.
 * Threads  none of it locks: the shard's lock is held, but for entry_chain_unref().
 * Units    _bytes bytes, with malloc's overhead. */
#ifndef CACHE_STORE_INTERNAL_H
#define CACHE_STORE_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "cache/entry.h"

enum store_queue_name { STORE_SMALL, STORE_MAIN, STORE_QUEUE_COUNT };

struct store_queue {
    struct list entries; /* newest first */
    size_t bytes;
};

struct store_ghost {
    uint32_t fingerprint; /* 0: empty */
    uint32_t number;      /* of ghosts before it */
};

struct store {
    size_t limit_bytes; /* immutable; what `bytes` never exceeds */
    size_t bytes;       /* entries and tables */
    size_t entry_count;
    size_t bucket_count;        /* immutable; a power of two, or 0: too small to store anything */
    struct entry **buckets;     /* owned; the head of the block with all tables */
    struct store_ghost *ghosts; /* in the same block: as many as buckets, in sets */
    uint32_t *stretches; /* in it too: entries in every 1024 buckets, so that a sweep need not
                          * look where there is nothing */
    uint32_t ghost_number;
    struct store_queue queues[STORE_QUEUE_COUNT];
};

/* Sizes its tables for its budget, and counts them. False: out of memory. */
bool store_init(struct store *store, size_t limit_bytes);
void store_fini(struct store *store); /* unrefs every entry; fine after a failed store_init() */

/* Borrowed; NULL: not there. Says nothing of epochs or ages. */
struct entry *store_find(const struct store *store, const struct cache_key *key);
bool cache_key_equal(const struct cache_key *a, const struct cache_key *b);

/* It was asked for: counted, and nothing else. */
void store_use(struct entry *entry);

/* Takes a reference of its own. An entry of the same key is replaced: the new one has its place in
 * line and its uses, as it is the same answer to whoever asks. False: larger than half of the
 * store; nothing is changed. What had to go is put before *gone. */
bool store_put(struct store *store, struct entry *entry, struct entry **gone);

void store_remove(struct store *store, struct entry *entry, struct entry **gone);

/* Lets entries of that many bytes go, or all there are. False: there was none. */
bool store_evict(struct store *store, size_t bytes, struct entry **gone);

/* Removes what is dead in `count` buckets from `first` on. Returns how many entries. */
typedef bool store_is_dead_fn(const void *ctx, const struct entry *entry);
size_t store_sweep(struct store *store, size_t first, size_t count, store_is_dead_fn *is_dead,
                   const void *ctx, struct entry **gone);

void entry_chain_unref(struct entry *gone); /* no lock is held */
#endif

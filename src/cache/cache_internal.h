/* cache_internal.h - what cache.c and flight.c share: the shards, and what a flight is.
 * SPDX-License-Identifier: MIT
 *
 *   flight_create ── open: may be joined ──────────────> landed ── last reference ──> freed
 *                         └── closed: replaced, left or purged ──┘
 *
 * A flight is in its shard's table from its first question to its landing, so that a purge finds
 * it; of those of one key at most one is open.
 *
 * References    the leader (until flight_land), each waiter, each desk that was pushed.
 * Threads       `_locked` means that the shard's lock is held. */
#ifndef CACHE_CACHE_INTERNAL_H
#define CACHE_CACHE_INTERNAL_H
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/inbox.h"
#include "base/instant.h"
#include "base/list.h"
#include "base/siphash.h"
#include "cache/cache.h"
#include "cache/heap_internal.h"
#include "cache/store_internal.h"

enum { FLIGHT_BUCKET_COUNT = 256, CACHE_LINE_BYTES = 64 };

/* Its own cache lines: workers that look into different shards do not meet. */
struct shard {
    alignas(CACHE_LINE_BYTES) pthread_mutex_t lock; /* a leaf, but for a flight's cancel */
    struct heap *heap;                              /* immutable; owned: where what is stored is */
    struct store store;
    struct flight *flights[FLIGHT_BUCKET_COUNT]; /* borrowed: their leaders' references */

    /* Written with the lock, read without. */
    _Atomic uint64_t bytes, entries, lookups[CACHE_LOOKUP_COUNT];
};

struct cache {
    /* Immutable. */
    size_t max_bytes;
    uint32_t group_count, worker_count;
    flight_cancel_fn *cancel;
    struct siphash_key hash_key; /* drawn at the start */
    size_t shard_count;          /* a power of two */
    struct shard *shards;        /* owned */

    /* Owned; one a group: purges in the upper half, expiries in the lower. */
    _Atomic uint64_t *epochs;
};

/* The waiters of one worker at one flight. */
struct desk {
    struct inbox_item item; /* the worker's inbox's, once pushed */
    struct flight *flight;  /* immutable; counted while pushed */
    struct list waiters;    /* the worker's alone */

    struct inbox *inbox; /* borrowed; under the lock; set by who waits first */
    size_t waiter_count; /* under the lock, until it landed */
};

struct flight {
    /* Immutable. */
    struct cache_key key;       /* its bytes are in the flight's block */
    struct instant began_at;    /* when it was asked for */
    struct instant lease_until; /* not joined afterwards */
    uint64_t epoch;             /* of its group when it began */
    uint32_t desk_count;
    bool is_refresh; /* nobody has to wait for it */

    _Atomic uint32_t references;

    /* Under the lock of its shard. */
    struct flight *next_in_bucket;
    bool is_open;     /* may be joined */
    bool is_purged;   /* its key was, after it began */
    bool is_given_up; /* its last waiter left */
    bool is_hung_up;  /* ... because its caller did */
    bool has_landed;
    void *call;          /* borrowed; NULL: not submitted, or back */
    size_t waiter_count; /* of all desks, until it landed */

    struct landing landing; /* written by the leader before it lands; immutable afterwards */
    struct desk desks[];    /* one a worker */
};

struct shard *cache_shard(const struct cache *cache, uint64_t hash);
uint64_t cache_epoch(const struct cache *cache, uint32_t group);
bool cache_is_purged_since(const struct cache *cache, uint32_t group, uint64_t epoch);
void shard_lock(struct shard *shard);
/* Publishes its figures. */
void shard_unlock(struct shard *shard);

/* NULL: not stored, or purged. Borrowed. */
struct entry *shard_find_entry_locked(const struct cache *cache, const struct shard *shard,
                                      const struct cache_key *key);

/* One reference, which is the leader's. NULL: out of memory. */
struct flight *flight_create(const struct cache *cache, const struct cache_question *question);
void flight_unref(struct flight *flight); /* NULL is fine */

/* NULL: none that may be joined now. Borrowed. */
struct flight *shard_find_flight_locked(const struct cache *cache, const struct shard *shard,
                                        const struct cache_key *key, struct instant now);
/* Replaces the one of its key that was open. */
void shard_add_flight_locked(struct shard *shard, struct flight *flight);
void shard_purge_flights_locked(struct shard *shard, const struct cache_key *key);
void shard_cancel_refreshes_locked(const struct cache *cache, const struct shard *shard);
void shard_drop_flights(struct shard *shard); /* at the end: nobody will land them */

void flight_join_locked(struct flight *flight, const struct cache_question *question,
                        struct waiter *waiter);
#endif

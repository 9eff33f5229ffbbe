/* SPDX-License-Identifier: MIT */
#include "cache/cache.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/ensure.h"
#include "base/rand.h"
#include "cache/cache_internal.h"

#define SHARD_BYTES_MIN ((size_t)8 << 20)

enum {
    SHARD_COUNT_MAX = 16,      /* chosen by the highest four bits of the hash */
    SWEEP_BUCKET_COUNT = 1024, /* while the lock is held */
};

static const char *const lookup_names[CACHE_LOOKUP_COUNT] = {
    [CACHE_LOOKUP_HIT] = "hit",
    [CACHE_LOOKUP_STALE] = "stale",
    [CACHE_LOOKUP_MISS] = "miss",
};

/* One expiry is 1; so many that they become a purge would do no harm. */
#define EPOCH_PURGE (UINT64_C(1) << 32)

/* What a question finds. Borrowed from the shard, under its lock. */
struct sight {
    enum cache_verdict verdict;
    struct entry *entry;   /* the answer, or what may stand in; NULL: neither */
    bool was_stored;       /* though it may be too old even to stand in */
    struct flight *flight; /* that may be joined; NULL: none */
};

/* ---- shards ---- */

struct shard *cache_shard(const struct cache *cache, uint64_t hash)
{
    return &cache->shards[(hash >> 60) & (cache->shard_count - 1)];
}

uint64_t cache_epoch(const struct cache *cache, uint32_t group)
{
    ENSURE(group < cache->group_count);
    return atomic_load_explicit(&cache->epochs[group], memory_order_acquire);
}

bool cache_is_purged_since(const struct cache *cache, uint32_t group, uint64_t epoch)
{
    return cache_epoch(cache, group) / EPOCH_PURGE != epoch / EPOCH_PURGE;
}

void shard_lock(struct shard *shard)
{
    ENSURE(pthread_mutex_lock(&shard->lock) == 0);
}

void shard_unlock(struct shard *shard)
{
    atomic_store_explicit(&shard->bytes, shard->store.bytes, memory_order_relaxed);
    atomic_store_explicit(&shard->entries, shard->store.entry_count, memory_order_relaxed);
    ENSURE(pthread_mutex_unlock(&shard->lock) == 0);
}

struct entry *shard_find_entry_locked(const struct cache *cache, const struct shard *shard,
                                      const struct cache_key *key)
{
    struct entry *entry = store_find(&shard->store, key);

    return entry != NULL && cache_is_current(cache, entry) ? entry : NULL;
}

static bool shard_init(struct shard *shard, size_t limit_bytes)
{
    if (!store_init(&shard->store, limit_bytes))
        return false;
    shard->heap = heap_create(limit_bytes - shard->store.bytes);
    if (shard->heap == NULL) {
        store_fini(&shard->store);
        return false;
    }
    ENSURE(pthread_mutex_init(&shard->lock, NULL) == 0);
    atomic_init(&shard->bytes, shard->store.bytes);
    return true;
}

static void shard_fini(struct shard *shard)
{
    shard_drop_flights(shard);
    store_fini(&shard->store);
    heap_close(shard->heap);
    (void)pthread_mutex_destroy(&shard->lock);
}

static size_t count_shards(size_t max_bytes)
{
    size_t count = 1;

    while (count < SHARD_COUNT_MAX && max_bytes / (count * 2) >= SHARD_BYTES_MIN)
        count *= 2;
    return count;
}

/* ---- the cache ---- */

static bool create_shards(struct cache *cache)
{
    size_t count = count_shards(cache->max_bytes);
    struct shard *shards = aligned_alloc(CACHE_LINE_BYTES, count * sizeof *shards);

    if (shards == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        shards[i] = (struct shard){.bytes = 0};
    cache->shards = shards;
    for (; cache->shard_count < count; cache->shard_count++) {
        if (!shard_init(&shards[cache->shard_count], cache->max_bytes / count))
            return false;
    }
    return true;
}

/* Early in a machine's life there may be no entropy yet; a start does not wait for it. */
static struct siphash_key draw_key(void)
{
    struct siphash_key key;
    struct rand rand;

    if (getrandom(&key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key)
        return key;
    rand_init_from_system(&rand);
    key.k0 = rand_next(&rand);
    key.k1 = rand_next(&rand);
    return key;
}

struct cache *cache_create(size_t max_bytes, uint32_t group_count, uint32_t worker_count,
                           flight_cancel_fn *cancel)
{
    struct cache *cache = calloc(1, sizeof *cache);

    if (cache == NULL)
        return NULL;
    cache->max_bytes = max_bytes;
    cache->group_count = group_count;
    cache->worker_count = worker_count;
    cache->cancel = cancel;
    cache->hash_key = draw_key();
    cache->epochs = calloc((size_t)group_count + 1, sizeof *cache->epochs);
    if (cache->epochs == NULL || !create_shards(cache)) {
        cache_destroy(cache);
        return NULL;
    }
    return cache;
}

void cache_destroy(struct cache *cache)
{
    if (cache == NULL)
        return;
    for (size_t i = 0; i < cache->shard_count; i++)
        shard_fini(&cache->shards[i]);
    free(cache->shards);
    free((void *)cache->epochs);
    free(cache);
}

uint64_t cache_key_hash(const struct cache *cache, const char *bytes, size_t size_bytes)
{
    return siphash(&cache->hash_key, bytes, size_bytes);
}

/* ---- asking ---- */

static bool backs_off(const struct cache *cache, const struct entry *entry, struct instant now)
{
    return !instant_reached(now, entry->retry_at) &&
           entry->failure_epoch == cache_epoch(cache, entry->key.group);
}

/* Expired before its time: an old answer, whatever its age. */
static enum freshness freshness_of_entry(const struct cache *cache, const struct entry *entry,
                                         const struct cache_question *question)
{
    int64_t age_us = instant_span_us(entry->stored_at, question->now);

    if (entry->epoch == cache_epoch(cache, entry->key.group) && !entry->is_outdated)
        return freshness_of(question->policy, entry->lifetime_us, age_us);
    return freshness_allows_error(question->policy, age_us) ? FRESHNESS_ON_ERROR
                                                            : FRESHNESS_EXPIRED;
}

/* `entry` is the key's, `sight` says whether there is a flight. Past its stale times it is nothing.
 */
static void judge_entry(const struct cache *cache, struct sight *sight, struct entry *entry,
                        const struct cache_question *question)
{
    bool must_wait = backs_off(cache, entry, question->now);

    switch (freshness_of_entry(cache, entry, question)) {
    case FRESHNESS_FRESH:
        sight->entry = entry;
        sight->verdict = CACHE_HIT;
        break;
    case FRESHNESS_REVALIDATED:
        sight->entry = entry;
        sight->verdict = sight->flight != NULL || must_wait ? CACHE_STALE : CACHE_REFRESH;
        break;
    case FRESHNESS_ON_ERROR:
        sight->entry = entry;
        if (must_wait && reason_is_server_side(entry->failure))
            sight->verdict = CACHE_STALE;
        break;
    case FRESHNESS_EXPIRED:
        break;
    }
}

static struct sight look_locked(const struct cache *cache, const struct shard *shard,
                                const struct cache_question *question)
{
    struct sight sight = {.verdict = CACHE_LEAD};
    struct entry *entry = shard_find_entry_locked(cache, shard, &question->key);

    sight.flight = shard_find_flight_locked(cache, shard, &question->key, question->now);
    if (sight.flight != NULL)
        sight.verdict = CACHE_JOIN;
    sight.was_stored = entry != NULL;
    if (entry != NULL)
        judge_entry(cache, &sight, entry, question);
    return sight;
}

static bool needs_flight(enum cache_verdict verdict)
{
    return verdict == CACHE_LEAD || verdict == CACHE_REFRESH;
}

static enum cache_lookup lookup_of(enum cache_verdict verdict)
{
    switch (verdict) {
    case CACHE_HIT:
        return CACHE_LOOKUP_HIT;
    case CACHE_STALE:
    case CACHE_REFRESH:
        return CACHE_LOOKUP_STALE;
    case CACHE_LEAD:
    case CACHE_JOIN:
        break;
    }
    return CACHE_LOOKUP_MISS;
}

static void count_lookup_locked(struct shard *shard, const struct sight *sight)
{
    if (sight->entry != NULL)
        store_use(sight->entry);
    atomic_fetch_add_explicit(&shard->lookups[lookup_of(sight->verdict)], 1, memory_order_relaxed);
}

/* Puts a flight of the asker's on its way. */
static void lead_locked(const struct cache *cache, struct shard *shard, struct flight *flight,
                        const struct sight *sight, const struct cache_question *question,
                        struct waiter *waiter)
{
    flight->epoch = cache_epoch(cache, question->key.group);
    flight->is_refresh = sight->verdict == CACHE_REFRESH;
    shard_add_flight_locked(shard, flight);
    if (sight->verdict == CACHE_LEAD)
        flight_join_locked(flight, question, waiter);
}

static struct cache_reply reply_of(const struct sight *sight)
{
    if (sight->entry == NULL)
        return (struct cache_reply){.failure = REASON_NONE, .was_stored = sight->was_stored};
    return (struct cache_reply){
        .was_stored = true,
        .entry = entry_ref(sight->entry),
        .failure = sight->entry->failure,
    };
}

/* A flight's memory is fetched between two looks, not under the lock; the second look decides. */
static struct sight look_with_spare(const struct cache *cache, struct shard *shard,
                                    const struct cache_question *question,
                                    struct flight **out_spare)
{
    struct sight sight;

    *out_spare = NULL;
    shard_lock(shard);
    sight = look_locked(cache, shard, question);
    if (!needs_flight(sight.verdict))
        return sight;

    shard_unlock(shard);
    *out_spare = flight_create(cache, question);
    shard_lock(shard);
    sight = look_locked(cache, shard, question);
    if (sight.verdict == CACHE_REFRESH && *out_spare == NULL)
        sight.verdict = CACHE_STALE; /* somebody else may refresh it */
    return sight;
}

bool cache_ask(struct cache *cache, const struct cache_question *question, struct waiter *waiter,
               enum cache_verdict *out_verdict, struct cache_reply *out)
{
    struct shard *shard = cache_shard(cache, question->key.hash);
    struct flight *spare;
    struct sight sight = look_with_spare(cache, shard, question, &spare);
    bool is_answered = sight.verdict != CACHE_LEAD || spare != NULL;

    count_lookup_locked(shard, &sight);
    *out = reply_of(&sight);
    *out_verdict = sight.verdict;
    if (needs_flight(sight.verdict) && spare != NULL) {
        lead_locked(cache, shard, spare, &sight, question, waiter);
        out->flight = spare;
        spare = NULL;
    } else if (sight.verdict == CACHE_JOIN) {
        flight_join_locked(sight.flight, question, waiter);
    }
    shard_unlock(shard);
    flight_unref(spare); /* another was faster */
    return is_answered;
}

bool cache_is_current(const struct cache *cache, const struct entry *entry)
{
    return !atomic_load_explicit(&entry->is_void, memory_order_acquire) &&
           !cache_is_purged_since(cache, entry->key.group, entry->epoch);
}

/* ---- purges ---- */

void cache_purge_group(struct cache *cache, uint32_t group)
{
    ENSURE(group < cache->group_count);
    atomic_fetch_add_explicit(&cache->epochs[group], EPOCH_PURGE, memory_order_acq_rel);
}

void cache_expire_group(struct cache *cache, uint32_t group)
{
    ENSURE(group < cache->group_count);
    atomic_fetch_add_explicit(&cache->epochs[group], 1, memory_order_acq_rel);
}

bool cache_purge_key(struct cache *cache, const struct cache_key *key)
{
    struct shard *shard = cache_shard(cache, key->hash);
    struct entry *entry, *gone = NULL;

    shard_lock(shard);
    shard_purge_flights_locked(shard, key);
    entry = shard_find_entry_locked(cache, shard, key);
    if (entry != NULL) {
        atomic_store_explicit(&entry->is_void, true, memory_order_release);
        store_remove(&shard->store, entry, &gone);
    }
    shard_unlock(shard);
    entry_chain_unref(gone);
    return entry != NULL;
}

static bool is_purged(const void *ctx, const struct entry *entry)
{
    return !cache_is_current(ctx, entry);
}

size_t cache_sweep_step(struct cache *cache, size_t *cursor)
{
    size_t steps = cache->shards[0].store.bucket_count / SWEEP_BUCKET_COUNT + 1;
    struct shard *shard = &cache->shards[*cursor / steps % cache->shard_count];
    size_t first = *cursor % steps * SWEEP_BUCKET_COUNT, count;
    struct entry *gone = NULL;

    *cursor = (*cursor + 1) % (steps * cache->shard_count);
    shard_lock(shard);
    count = store_sweep(&shard->store, first, SWEEP_BUCKET_COUNT, is_purged, cache, &gone);
    shard_unlock(shard);
    entry_chain_unref(gone);
    return count;
}

size_t cache_sweep(struct cache *cache)
{
    size_t cursor = 0, count = 0;

    do
        count += cache_sweep_step(cache, &cursor);
    while (cursor != 0);
    return count;
}

void cache_cancel_refreshes(struct cache *cache)
{
    for (size_t i = 0; i < cache->shard_count; i++) {
        shard_lock(&cache->shards[i]);
        shard_cancel_refreshes_locked(cache, &cache->shards[i]);
        shard_unlock(&cache->shards[i]);
    }
}

/* ---- what is to be seen ---- */

const char *cache_lookup_name(enum cache_lookup lookup)
{
    ENSURE(lookup < CACHE_LOOKUP_COUNT);
    return lookup_names[lookup];
}

void cache_read(const struct cache *cache, struct cache_facts *out)
{
    *out = (struct cache_facts){.max_bytes = cache->max_bytes};
    for (size_t i = 0; i < cache->shard_count; i++) {
        const struct shard *shard = &cache->shards[i];

        out->bytes += atomic_load_explicit(&shard->bytes, memory_order_relaxed);
        out->entries += atomic_load_explicit(&shard->entries, memory_order_relaxed);
        for (size_t k = 0; k < CACHE_LOOKUP_COUNT; k++)
            out->lookups[k] += atomic_load_explicit(&shard->lookups[k], memory_order_relaxed);
    }
}

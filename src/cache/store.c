/* SPDX-License-Identifier: MIT */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "cache/store_internal.h"

enum {
    USE_COUNT_MAX = 3,
    GHOST_SET_SIZE = 4,       /* slots where a fingerprint may be */
    BYTES_PER_BUCKET = 512,   /* of the budget: few entries are smaller */
    BUCKET_COUNT_MIN = 16,    /* below this budget there is no store */
    SMALL_QUEUE_SHARE = 10,   /* of the limit: a tenth */
    MAIN_LOOK_COUNT_MAX = 64, /* in one eviction: the lock is held */
    STRETCH_BUCKET_COUNT = 1024,
};

/* ---- ghosts ---- */

/* Bits that choose neither shard (the highest four) nor bucket (the lowest). */
static uint32_t ghost_fingerprint(uint64_t hash)
{
    uint32_t fingerprint = (uint32_t)(hash >> 28);

    return fingerprint != 0 ? fingerprint : 1;
}

static struct store_ghost *ghost_set(const struct store *store, uint64_t hash)
{
    size_t set_count = store->bucket_count / GHOST_SET_SIZE;

    return &store->ghosts[(hash & (set_count - 1)) * GHOST_SET_SIZE];
}

static uint32_t ghost_age(const struct store *store, const struct store_ghost *ghost)
{
    return store->ghost_number - ghost->number;
}

static void ghost_remember(struct store *store, uint64_t hash)
{
    struct store_ghost *set = ghost_set(store, hash), *oldest = set;

    for (size_t i = 0; i < GHOST_SET_SIZE && oldest->fingerprint != 0; i++) {
        if (set[i].fingerprint == 0 || ghost_age(store, &set[i]) > ghost_age(store, oldest))
            oldest = &set[i];
    }
    *oldest = (struct store_ghost){ghost_fingerprint(hash), store->ghost_number++};
}

/* True once a ghost. One is forgotten after as many newer ones as there are entries: longer ago
 * means that it would not have stayed in the main queue either. */
static bool ghost_take(struct store *store, uint64_t hash)
{
    struct store_ghost *set = ghost_set(store, hash);

    for (size_t i = 0; i < GHOST_SET_SIZE; i++) {
        if (set[i].fingerprint != ghost_fingerprint(hash))
            continue;
        set[i].fingerprint = 0;
        return ghost_age(store, &set[i]) <= store->entry_count;
    }
    return false;
}

/* ---- table and queues ---- */

static struct entry **bucket_of(const struct store *store, uint64_t hash)
{
    return &store->buckets[hash & (store->bucket_count - 1)];
}

static uint32_t *stretch_of(const struct store *store, uint64_t hash)
{
    return &store->stretches[(hash & (store->bucket_count - 1)) / STRETCH_BUCKET_COUNT];
}

static void bucket_add(struct store *store, struct entry *entry)
{
    struct entry **bucket = bucket_of(store, entry->key.hash);

    entry->next_in_bucket = *bucket;
    *bucket = entry;
    ++*stretch_of(store, entry->key.hash);
}

static void bucket_remove(struct store *store, const struct entry *entry)
{
    struct entry **at = bucket_of(store, entry->key.hash);

    while (*at != entry)
        at = &(*at)->next_in_bucket;
    *at = entry->next_in_bucket;
    --*stretch_of(store, entry->key.hash);
}

static void queue_add(struct store *store, struct entry *entry, enum store_queue_name name)
{
    struct store_queue *queue = &store->queues[name];

    entry->queue = (uint8_t)name;
    list_push_front(&queue->entries, &entry->queue_link);
    queue->bytes += entry->cost_bytes;
}

static void queue_remove(struct store *store, struct entry *entry)
{
    list_remove(&entry->queue_link);
    store->queues[entry->queue].bytes -= entry->cost_bytes;
}

/* NULL: it is empty. */
static struct entry *queue_oldest(const struct store_queue *queue)
{
    if (list_is_empty(&queue->entries))
        return NULL;
    return LIST_ITEM(queue->entries.prev, struct entry, queue_link);
}

/* ---- eviction ---- */

/* Whoever was asked for again moves on to main; the first that was not goes. */
static void evict_from_small(struct store *store, struct entry **gone)
{
    struct entry *entry;

    while ((entry = queue_oldest(&store->queues[STORE_SMALL])) != NULL) {
        if (entry->use_count == 0) {
            ghost_remember(store, entry->key.hash);
            store_remove(store, entry, gone);
            return;
        }
        entry->use_count = 0;
        queue_remove(store, entry);
        queue_add(store, entry, STORE_MAIN);
    }
}

/* Whoever was asked for since it was last looked at goes around once more. After so many looks the
 * oldest goes all the same. */
static void evict_from_main(struct store *store, struct entry **gone)
{
    struct store_queue *queue = &store->queues[STORE_MAIN];
    struct entry *entry = queue_oldest(queue);

    for (int looks = 0; looks < MAIN_LOOK_COUNT_MAX && entry->use_count > 0; looks++) {
        entry->use_count--;
        queue_remove(store, entry);
        queue_add(store, entry, STORE_MAIN);
        entry = queue_oldest(queue);
    }
    store_remove(store, entry, gone);
}

/* Nobody may be removed by it (all of small moved on): then small is empty next time. */
static void evict_some(struct store *store, struct entry **gone)
{
    const struct store_queue *small = &store->queues[STORE_SMALL];
    bool is_main_empty = list_is_empty(&store->queues[STORE_MAIN].entries);

    if (is_main_empty || small->bytes >= store->limit_bytes / SMALL_QUEUE_SHARE)
        evict_from_small(store, gone);
    else
        evict_from_main(store, gone);
}

static void make_room(struct store *store, size_t cost_bytes, struct entry **gone)
{
    while (store->entry_count > 0 && store->bytes + cost_bytes > store->limit_bytes)
        evict_some(store, gone);
}

/* ---- the store ---- */

/* The largest power of two of buckets that the budget is worth; 0: not even the least. */
static size_t count_buckets(size_t limit_bytes)
{
    size_t count = BUCKET_COUNT_MIN;

    if (limit_bytes / BYTES_PER_BUCKET < count)
        return 0;
    while (count * 2 <= limit_bytes / BYTES_PER_BUCKET)
        count *= 2;
    return count;
}

bool store_init(struct store *store, size_t limit_bytes)
{
    size_t bucket_count = count_buckets(limit_bytes);
    size_t stretch_count = bucket_count / STRETCH_BUCKET_COUNT + 1;

    *store = (struct store){.limit_bytes = limit_bytes};
    for (size_t i = 0; i < STORE_QUEUE_COUNT; i++)
        list_init(&store->queues[i].entries);
    if (bucket_count == 0)
        return true;

    store->buckets =
        calloc(1, bucket_count * (sizeof(struct entry *) + sizeof(struct store_ghost)) +
                      stretch_count * sizeof(uint32_t));
    if (store->buckets == NULL)
        return false;
    store->bucket_count = bucket_count;
    store->ghosts = (struct store_ghost *)(void *)(store->buckets + bucket_count);
    store->stretches = (uint32_t *)(void *)(store->ghosts + bucket_count);
    store->bytes = malloc_usable_size(store->buckets) + 2 * sizeof(size_t);
    return true;
}

void store_fini(struct store *store)
{
    struct entry *gone = NULL;

    /* By the queues: the table is as large as the budget, however little there is in it. */
    for (size_t i = 0; i < STORE_QUEUE_COUNT && store->bucket_count > 0; i++) {
        struct entry *entry;

        while ((entry = queue_oldest(&store->queues[i])) != NULL)
            store_remove(store, entry, &gone);
    }
    entry_chain_unref(gone);
    free(store->buckets);
    store->buckets = NULL;
    store->bucket_count = 0;
}

bool cache_key_equal(const struct cache_key *a, const struct cache_key *b)
{
    return a->hash == b->hash && a->group == b->group && a->size_bytes == b->size_bytes &&
           (a->size_bytes == 0 || memcmp(a->bytes, b->bytes, a->size_bytes) == 0);
}

struct entry *store_find(const struct store *store, const struct cache_key *key)
{
    struct entry *entry;

    if (store->bucket_count == 0)
        return NULL;
    entry = *bucket_of(store, key->hash);
    while (entry != NULL && !cache_key_equal(&entry->key, key))
        entry = entry->next_in_bucket;
    return entry;
}

void store_use(struct entry *entry)
{
    if (entry->use_count < USE_COUNT_MAX)
        entry->use_count++;
}

/* Leaves the place of what it replaces in `entry`, or that of a newcomer. */
static enum store_queue_name choose_queue(struct store *store, struct entry *entry,
                                          struct entry **gone)
{
    struct entry *old = store_find(store, &entry->key);
    enum store_queue_name name;

    if (old == NULL)
        return ghost_take(store, entry->key.hash) ? STORE_MAIN : STORE_SMALL;

    name = (enum store_queue_name)old->queue;
    entry->use_count = old->use_count;
    store_remove(store, old, gone);
    return name;
}

bool store_put(struct store *store, struct entry *entry, struct entry **gone)
{
    enum store_queue_name name;

    if (store->bucket_count == 0 || entry->cost_bytes > store->limit_bytes / 2)
        return false;

    name = choose_queue(store, entry, gone);
    make_room(store, entry->cost_bytes, gone);
    bucket_add(store, entry_ref(entry));
    queue_add(store, entry, name);
    store->bytes += entry->cost_bytes;
    store->entry_count++;
    return true;
}

void store_remove(struct store *store, struct entry *entry, struct entry **gone)
{
    bucket_remove(store, entry);
    queue_remove(store, entry);
    store->bytes -= entry->cost_bytes;
    store->entry_count--;

    entry->next_in_bucket = *gone;
    *gone = entry;
}

bool store_evict(struct store *store, size_t bytes, struct entry **gone)
{
    size_t before_bytes = store->bytes;

    while (store->entry_count > 0 && before_bytes - store->bytes < bytes)
        evict_some(store, gone);
    return store->bytes < before_bytes;
}

static size_t sweep_bucket(struct store *store, size_t i, store_is_dead_fn *is_dead,
                           const void *ctx, struct entry **gone)
{
    struct entry *next;
    size_t removed_count = 0;

    for (struct entry *entry = store->buckets[i]; entry != NULL; entry = next) {
        next = entry->next_in_bucket;
        if (!is_dead(ctx, entry))
            continue;
        store_remove(store, entry, gone);
        removed_count++;
    }
    return removed_count;
}

/* A table is as large as the budget: a page of it that nobody used is not to be read, for that
 * alone takes the system longer than all the rest. */
size_t store_sweep(struct store *store, size_t first, size_t count, store_is_dead_fn *is_dead,
                   const void *ctx, struct entry **gone)
{
    size_t end = first + count < store->bucket_count ? first + count : store->bucket_count;
    size_t removed_count = 0;

    for (size_t i = first; i < end; i++) {
        if (*stretch_of(store, i) == 0)
            i |= STRETCH_BUCKET_COUNT - 1; /* its last */
        else
            removed_count += sweep_bucket(store, i, is_dead, ctx, gone);
    }
    return removed_count;
}

void entry_chain_unref(struct entry *gone)
{
    while (gone != NULL) {
        struct entry *next = gone->next_in_bucket;

        entry_unref(gone);
        gone = next;
    }
}

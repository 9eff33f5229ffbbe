/* SPDX-License-Identifier: MIT */
#include "cache/entry.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"
#include "cache/entry_internal.h"
#include "cache/heap_internal.h"

/* What malloc keeps beside a block: two words at most. */
#define MALLOC_HEADER_BYTES (2 * sizeof(size_t))

/* Fixed, so that every instance gives a body the same tag, also after a restart. No secrets: who
 * can make two bodies collide only fools caches of their own answers. */
static const struct siphash_key etag_keys[2] = {
    {UINT64_C(0x243f6a8885a308d3), UINT64_C(0x13198a2e03707344)},
    {UINT64_C(0xa4093822299f31d0), UINT64_C(0x082efa98ec4e6c89)},
};

static void format_etag(char out_etag[ETAG_BYTES + 1], const char *body, size_t body_bytes)
{
    (void)snprintf(out_etag, ETAG_BYTES + 1, "\"%016" PRIx64 "%016" PRIx64 "\"",
                   siphash(&etag_keys[0], body, body_bytes),
                   siphash(&etag_keys[1], body, body_bytes));
}

/* Both into the block, behind the struct. Either may be empty, and then NULL. */
static void copy_in(struct entry *entry, const struct cache_key *key, const char *body,
                    size_t body_bytes)
{
    char *key_at = (char *)(entry + 1);
    char *body_at = key_at + key->size_bytes;

    if (key->size_bytes > 0)
        memcpy(key_at, key->bytes, key->size_bytes);
    if (body_bytes > 0)
        memcpy(body_at, body, body_bytes);
    entry->key.bytes = key_at;
    entry->body = body_at;
    entry->body_bytes = body_bytes;
}

bool entry_count_bytes(size_t key_bytes, size_t body_bytes, size_t *out_bytes)
{
    size_t bytes;

    if (__builtin_add_overflow(sizeof(struct entry), key_bytes, &bytes))
        return false;
    return !__builtin_add_overflow(bytes, body_bytes, out_bytes);
}

/* heap NULL: malloc's. */
static struct entry *block_alloc(struct heap *heap, size_t key_bytes, size_t body_bytes)
{
    size_t bytes;

    if (!entry_count_bytes(key_bytes, body_bytes, &bytes))
        return NULL;
    return heap != NULL ? heap_alloc(heap, bytes) : malloc(bytes);
}

static size_t block_cost_bytes(const struct heap *heap, struct entry *entry)
{
    if (heap != NULL)
        return heap_block_bytes(entry);
    return malloc_usable_size(entry) + MALLOC_HEADER_BYTES;
}

struct entry *entry_create_in(struct heap *heap, const struct cache_key *key, const char *body,
                              size_t body_bytes, struct instant stored_at, int64_t lifetime_us,
                              uint64_t epoch)
{
    struct entry *entry = block_alloc(heap, key->size_bytes, body_bytes);

    if (entry == NULL)
        return NULL;
    *entry = (struct entry){
        .heap = heap,
        .key = *key,
        .stored_at = stored_at,
        .lifetime_us = lifetime_us,
        .epoch = epoch,
        .cost_bytes = block_cost_bytes(heap, entry),
        .failure = REASON_NONE,
        .retry_at = {INT64_MIN},
    };
    copy_in(entry, key, body, body_bytes);
    format_etag(entry->etag, entry->body, body_bytes);
    list_init(&entry->queue_link);
    atomic_init(&entry->references, 1);
    atomic_init(&entry->is_void, false);
    return entry;
}

struct entry *entry_create(const struct cache_key *key, const char *body, size_t body_bytes,
                           struct instant stored_at, int64_t lifetime_us, uint64_t epoch)
{
    return entry_create_in(NULL, key, body, body_bytes, stored_at, lifetime_us, epoch);
}

struct entry *entry_ref(struct entry *entry)
{
    atomic_fetch_add_explicit(&entry->references, 1, memory_order_relaxed);
    return entry;
}

void entry_unref(struct entry *entry)
{
    if (entry == NULL)
        return;
    if (atomic_fetch_sub_explicit(&entry->references, 1, memory_order_acq_rel) > 1)
        return;
    if (entry->heap != NULL)
        heap_free(entry->heap, entry);
    else
        free(entry);
}

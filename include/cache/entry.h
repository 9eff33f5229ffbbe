/* entry.h - a stored answer: key, body, entity tag; shared by reference.
 * SPDX-License-Identifier: MIT
 *
 * One block of memory: of the shard that stores it, or malloc's where it is not stored. Whoever
 * holds a reference may read what is immutable, and send the body without copying it, also when the
 * entry was long thrown out.
 *
 * Owner    its references; the last entry_unref() frees it.
 * Threads  workers and the admin thread; never a dependency's: one that is halted could hold a lock
 *          of the memory's.
 * Units    _bytes bytes. */
#ifndef CACHE_ENTRY_H
#define CACHE_ENTRY_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/instant.h"
#include "base/list.h"
#include "base/reason.h"

/* Which answer: a route, its SQL and the bound parameters as bytes. `group` is the route, for
 * purges. */
struct cache_key {
    const char *bytes; /* borrowed by questions, owned by entries */
    size_t size_bytes;
    uint64_t hash; /* keyed, so that callers cannot choose collisions: cache_key_hash() */
    uint32_t group;
};

enum { ETAG_BYTES = 34 }; /* 128 bits in hexadecimal, and the quotes */

struct heap;

struct entry {
    /* Immutable. */
    struct heap *heap; /* whose memory it is, which lasts as long; NULL: malloc's */
    struct cache_key key;
    const char *body;
    size_t body_bytes;
    char etag[ETAG_BYTES + 1]; /* strong (RFC 9110 section 8.8.3): equal bodies, equal tags */
    struct instant stored_at;  /* when the answer came */
    int64_t lifetime_us;
    uint64_t epoch;    /* of its group when its call began */
    size_t cost_bytes; /* of max_bytes, with all overhead */

    _Atomic uint32_t references;
    _Atomic bool is_void; /* purged, or its row is gone: not to be served again, not even stale */

    /* Under the lock of its shard. */
    struct entry *next_in_bucket;
    struct list queue_link;
    uint8_t queue, use_count;
    bool is_outdated;        /* a newer answer came, which is not stored */
    uint32_t failure_count;  /* refreshes that failed since it was stored */
    uint64_t failure_epoch;  /* of the last one: what expired since is asked for at once */
    enum reason failure;     /* of the last one; REASON_NONE: none */
    struct instant retry_at; /* not refreshed before */
};

/* NULL: out of memory. One reference, the caller's. Copies key and body. */
struct entry *entry_create(const struct cache_key *key, const char *body, size_t body_bytes,
                           struct instant stored_at, int64_t lifetime_us, uint64_t epoch);
struct entry *entry_ref(struct entry *entry);
void entry_unref(struct entry *entry); /* NULL is fine */
#endif

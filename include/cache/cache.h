/* cache.h - stored answers and the flights that fetch them, in shards. SPDX-License-Identifier: MIT
 *
 *   cache_ask() ── HIT, STALE ─────────────────────────────> answer now
 *           ├──── REFRESH ── answer now, and fly ──┐
 *           ├──── LEAD ───── wait, and fly ────────┼── flight_take_off() ── flight_land() ──┐
 *           └──── JOIN ───── wait                  │                                        │
 *                  every waiting worker's inbox <──┴────────────────────────────────────────┘
 *
 * Concurrent misses of one key are one flight: it belongs to no caller. Whoever leads it makes the
 * call on its own worker, and lands it there; the others only wait. Who stops waiting leaves; when
 * the last one leaves, the call is cancelled (a refresh flies on: nobody waits for it anyway).
 *
 * Bounded in bytes, including every entry's overhead and the tables: each shard's entries live in
 * one mapping of its own, so the process grows by no more, whoever fills it. Eviction is S3-FIFO
 * (Yang et al., SOSP 2023): what is asked for once passes through a small queue and never reaches
 * the main one, so a scan cannot flush what is in use; a hit only counts, it moves nothing.
 *
 * A purge of a group moves its epoch: entries of an older one are not served, and flights that took
 * off before are not joined and not stored. An expiry does half of it: what is older is fresh no
 * more, but may stand in on error.
 *
 * Locks    one mutex a shard, held for a lookup or an insertion and never while anything waits;
 *          dependency threads never take one. A leaf but for the flight's `cancel`.
 * Threads  any worker and the admin thread. A flight's waiters belong to their workers.
 * Units    _us microseconds, _bytes bytes. */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/inbox.h"
#include "base/instant.h"
#include "base/list.h"
#include "base/reason.h"
#include "cache/entry.h"
#include "cache/freshness.h"

struct cache;
struct flight;

/* Stops a flight's call, whose last waiter left: a flag and a wake-up, nothing that waits. Called
 * with the shard locked, so that the call cannot come back and be freed meanwhile. */
typedef void flight_cancel_fn(void *call, bool is_hang_up);

/* NULL: out of memory. group_count: of routes. worker_count: who may wait for flights. */
struct cache *cache_create(size_t max_bytes, uint32_t group_count, uint32_t worker_count,
                           flight_cancel_fn *cancel);
void cache_destroy(struct cache *cache); /* after all threads ended; NULL is fine */

uint64_t cache_key_hash(const struct cache *cache, const char *bytes, size_t size_bytes);

/* ---- asking ---- */

/* Somebody who waits for a flight; embedded in whatever waits. Its worker's alone. */
struct waiter {
    struct list link;      /* of its worker's desk at the flight */
    struct flight *flight; /* counted; NULL: does not wait */
    uint32_t worker;       /* whose desk; set with `flight` */
};

enum cache_verdict {
    CACHE_HIT,     /* entry is fresh */
    CACHE_STALE,   /* entry is not, and is the answer: a refresh is under way, or backs off */
    CACHE_REFRESH, /* the same, and the asker flies `flight` behind it (no waiter) */
    CACHE_LEAD,    /* the asker flies `flight`, and waits for it */
    CACHE_JOIN,    /* it waits for `flight`, which another flies */
};

struct cache_question {
    struct cache_key key; /* borrowed */
    const struct cache_policy *policy;
    struct instant now;
    struct instant lease_until; /* when a flight that begins now is given up: its call's deadline */
    uint32_t worker;            /* index of the asker */
    struct inbox *inbox;        /* the asker's, for flights that landed */
};

struct cache_reply {
    struct entry *entry;   /* counted, the asker's to unref. LEAD, JOIN: what may stand in on error,
                            * or NULL */
    bool was_stored;       /* something was, though it may be too old for anything */
    enum reason failure;   /* why the last refresh of `entry` failed; REASON_NONE: it did not */
    struct flight *flight; /* REFRESH, LEAD: counted, until flight_land() */
};

/* `waiter` (its link initialised) waits after LEAD and JOIN. False: out of memory for a flight; it
 * is then answered as a failed one would be: *out has the entry. */
bool cache_ask(struct cache *cache, const struct cache_question *question, struct waiter *waiter,
               enum cache_verdict *out_verdict, struct cache_reply *out);

/* May this entry, got from an earlier cache_ask(), still be served? No purge came since. */
bool cache_is_current(const struct cache *cache, const struct entry *entry);

/* ---- flights ---- */

/* How a call ended, for everyone who waits. */
struct landing {
    enum reason reason;  /* REASON_NONE: entry is the answer */
    struct entry *entry; /* counted by the flight */
    bool is_stored;      /* as fresh */
    char detail[240], constraint[64];
    int64_t waited_us, served_us;
};

/* The leader's worker, before the call is submitted. */
void flight_take_off(struct cache *cache, struct flight *flight, void *call);

/* What the leader's worker knows when the call came back, or was refused. */
struct flight_report {
    struct instant now;
    uint64_t random;
    const struct cache_policy *policy;
    enum reason reason; /* REASON_NONE: body is the answer */
    const char *body;   /* copied */
    size_t body_bytes;
    bool was_tried; /* the dependency was asked: a failure backs off. False: refused at the door */
    const char *detail, *constraint;
    int64_t waited_us, served_us;
};

/* Stores a success (unless purged meanwhile, larger than half of a shard, or overtaken by a later
 * flight), removes the entry of a row that is
 * gone, notes a failure with the entry that stays; and tells every worker with waiters, through its
 * inbox. The leader's worker; the call is not the flight's any more afterwards. Ends the leader's
 * reference. */
void flight_land(struct cache *cache, struct flight *flight, const struct flight_report *report);

/* The workers stop: the calls of refreshes that nobody waits for are cancelled. */
void cache_cancel_refreshes(struct cache *cache);

/* A waiter gives up. is_hang_up: its caller went away, or its caller's own header made its deadline
 * short (else the route's deadline passed). */
void flight_leave(struct cache *cache, struct waiter *waiter, bool is_hang_up);

/* A worker's inbox had `item`: calls `landed` for each of its waiters, which wait no more then
 * (waiter->flight is still set, for flight_landing(); end it with waiter_fini()). */
void flight_deliver(struct inbox_item *item, void (*landed)(void *ctx, struct waiter *waiter),
                    void *ctx);
void flight_discard(struct inbox_item *item); /* a worker that ended: nobody waits */

const struct landing *flight_landing(const struct flight *flight);
void waiter_fini(struct waiter *waiter); /* ends its reference, if it has one */

/* ---- purges ---- */

void cache_purge_group(struct cache *cache, uint32_t group); /* O(1); memory is taken back later */
/* What is stored may be old: a live answer is asked for first, and by a new flight. It may still
 * stand in on error. */
void cache_expire_group(struct cache *cache, uint32_t group);
bool cache_purge_key(struct cache *cache, const struct cache_key *key); /* true: it was stored */
/* Takes back the memory of what was purged, in small steps; returns how many entries. */
size_t cache_sweep(struct cache *cache);
/* One of these steps; *cursor, 0 at first, goes round. For somebody with a timer. */
size_t cache_sweep_step(struct cache *cache, size_t *cursor);

/* ---- what is to be seen ---- */

enum cache_lookup { CACHE_LOOKUP_HIT, CACHE_LOOKUP_STALE, CACHE_LOOKUP_MISS, CACHE_LOOKUP_COUNT };
const char *cache_lookup_name(enum cache_lookup lookup);

struct cache_facts {
    uint64_t bytes, max_bytes, entries;
    uint64_t lookups[CACHE_LOOKUP_COUNT];
};

void cache_read(const struct cache *cache, struct cache_facts *out); /* atomics alone */
#endif

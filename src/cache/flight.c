/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "cache/cache_internal.h"
#include "cache/entry_internal.h"

enum {
    ROOM_STEP_SHARE = 4, /* a step lets a quarter of what is needed go */
    ROOM_STEP_COUNT_MAX = 64,
};

/* ---- one flight ---- */

static struct flight *flight_ref(struct flight *flight)
{
    atomic_fetch_add_explicit(&flight->references, 1, memory_order_relaxed);
    return flight;
}

void flight_unref(struct flight *flight)
{
    if (flight == NULL)
        return;
    if (atomic_fetch_sub_explicit(&flight->references, 1, memory_order_acq_rel) > 1)
        return;
    entry_unref(flight->landing.entry);
    free(flight);
}

static void copy_key(struct flight *flight, const struct cache_key *key)
{
    char *bytes = (char *)&flight->desks[flight->desk_count];

    if (key->size_bytes > 0)
        memcpy(bytes, key->bytes, key->size_bytes);
    flight->key = *key;
    flight->key.bytes = bytes;
}

struct flight *flight_create(const struct cache *cache, const struct cache_question *question)
{
    size_t desks_bytes = cache->worker_count * sizeof(struct desk);
    struct flight *flight = calloc(1, sizeof *flight + desks_bytes + question->key.size_bytes);

    if (flight == NULL)
        return NULL;
    flight->began_at = question->now;
    flight->lease_until = question->lease_until;
    flight->desk_count = cache->worker_count;
    copy_key(flight, &question->key);
    atomic_init(&flight->references, 1);
    for (uint32_t i = 0; i < flight->desk_count; i++) {
        flight->desks[i].flight = flight;
        list_init(&flight->desks[i].waiters);
    }
    return flight;
}

/* ---- the table of a shard ---- */

static struct flight *const *bucket_of(const struct shard *shard, uint64_t hash)
{
    return &shard->flights[hash % FLIGHT_BUCKET_COUNT];
}

static bool may_be_joined(const struct cache *cache, const struct flight *flight,
                          struct instant now)
{
    return flight->is_open && !instant_reached(now, flight->lease_until) &&
           flight->epoch == cache_epoch(cache, flight->key.group);
}

struct flight *shard_find_flight_locked(const struct cache *cache, const struct shard *shard,
                                        const struct cache_key *key, struct instant now)
{
    for (struct flight *f = *bucket_of(shard, key->hash); f != NULL; f = f->next_in_bucket) {
        if (cache_key_equal(&f->key, key) && may_be_joined(cache, f, now))
            return f;
    }
    return NULL;
}

static void close_flights_locked(const struct shard *shard, const struct cache_key *key,
                                 bool is_purge)
{
    for (struct flight *f = *bucket_of(shard, key->hash); f != NULL; f = f->next_in_bucket) {
        if (!cache_key_equal(&f->key, key))
            continue;
        f->is_open = false;
        f->is_purged = f->is_purged || is_purge;
    }
}

void shard_add_flight_locked(struct shard *shard, struct flight *flight)
{
    struct flight **bucket = &shard->flights[flight->key.hash % FLIGHT_BUCKET_COUNT];

    close_flights_locked(shard, &flight->key, false);
    flight->is_open = true;
    flight->next_in_bucket = *bucket;
    *bucket = flight;
}

static void remove_flight_locked(struct shard *shard, const struct flight *flight)
{
    struct flight **at = &shard->flights[flight->key.hash % FLIGHT_BUCKET_COUNT];

    while (*at != flight)
        at = &(*at)->next_in_bucket;
    *at = flight->next_in_bucket;
}

void shard_purge_flights_locked(struct shard *shard, const struct cache_key *key)
{
    close_flights_locked(shard, key, true);
}

void shard_cancel_refreshes_locked(const struct cache *cache, const struct shard *shard)
{
    for (size_t i = 0; i < FLIGHT_BUCKET_COUNT; i++)
        for (struct flight *f = shard->flights[i]; f != NULL; f = f->next_in_bucket)
            if (f->is_refresh && f->waiter_count == 0 && f->call != NULL)
                cache->cancel(f->call, true);
}

void shard_drop_flights(struct shard *shard)
{
    for (size_t i = 0; i < FLIGHT_BUCKET_COUNT; i++) {
        struct flight *next;

        for (struct flight *f = shard->flights[i]; f != NULL; f = next) {
            next = f->next_in_bucket;
            flight_unref(f);
        }
        shard->flights[i] = NULL;
    }
}

/* ---- waiting ---- */

void flight_join_locked(struct flight *flight, const struct cache_question *question,
                        struct waiter *waiter)
{
    struct desk *desk;

    ENSURE(question->worker < flight->desk_count);
    ENSURE(waiter->flight == NULL);
    desk = &flight->desks[question->worker];
    desk->inbox = question->inbox;
    desk->waiter_count++;
    flight->waiter_count++;
    list_push_back(&desk->waiters, &waiter->link);
    waiter->flight = flight_ref(flight);
    waiter->worker = question->worker;
}

/* Nobody waits for it any more, and nobody joins it. */
static void give_up_locked(const struct cache *cache, struct flight *flight, bool is_hang_up)
{
    flight->is_open = false;
    flight->is_given_up = true;
    flight->is_hung_up = is_hang_up;
    if (flight->call != NULL)
        cache->cancel(flight->call, is_hang_up);
}

static void leave_locked(const struct cache *cache, struct flight *flight, uint32_t worker,
                         bool is_hang_up)
{
    if (flight->has_landed)
        return; /* its desks are the inboxes' */
    flight->desks[worker].waiter_count--;
    flight->waiter_count--;
    if (flight->waiter_count == 0 && !flight->is_refresh)
        give_up_locked(cache, flight, is_hang_up);
}

void flight_leave(struct cache *cache, struct waiter *waiter, bool is_hang_up)
{
    struct flight *flight = waiter->flight;
    struct shard *shard;

    if (flight == NULL)
        return;
    list_remove(&waiter->link);
    shard = cache_shard(cache, flight->key.hash);
    shard_lock(shard);
    leave_locked(cache, flight, waiter->worker, is_hang_up);
    shard_unlock(shard);
    waiter_fini(waiter);
}

void waiter_fini(struct waiter *waiter)
{
    if (waiter->flight == NULL)
        return;
    ENSURE(list_is_empty(&waiter->link)); /* who still waits has to leave */
    flight_unref(waiter->flight);
    waiter->flight = NULL;
}

/* ---- flying ---- */

void flight_take_off(struct cache *cache, struct flight *flight, void *call)
{
    struct shard *shard = cache_shard(cache, flight->key.hash);

    shard_lock(shard);
    flight->call = call;
    if (flight->is_given_up)
        cache->cancel(call, flight->is_hung_up);
    shard_unlock(shard);
}

static void copy_text(char *out_text, size_t size_bytes, const char *text)
{
    (void)snprintf(out_text, size_bytes, "%s", text != NULL ? text : "");
}

static struct entry *make_entry_in(struct heap *heap, const struct flight *flight,
                                   const struct flight_report *report)
{
    return entry_create_in(heap, &flight->key, report->body, report->body_bytes, report->now,
                           freshness_draw_lifetime_us(report->policy, report->random),
                           flight->epoch);
}

/* False: nothing is stored that could make room. */
static bool make_room(struct shard *shard, size_t bytes)
{
    struct entry *gone = NULL;
    bool is_evicted;

    shard_lock(shard);
    is_evicted = store_evict(&shard->store, bytes, &gone);
    shard_unlock(shard);
    entry_chain_unref(gone);
    return is_evicted;
}

/* In the shard's memory; room for it is made in steps, as what goes need not be in one piece. NULL:
 * too large, or what went is still being sent. */
static struct entry *make_entry_to_store(struct shard *shard, const struct flight *flight,
                                         const struct flight_report *report)
{
    size_t bytes;

    if (!entry_count_bytes(flight->key.size_bytes, report->body_bytes, &bytes) ||
        bytes > shard->store.limit_bytes / 2)
        return NULL;
    for (int steps = 0; steps < ROOM_STEP_COUNT_MAX; steps++) {
        struct entry *entry = make_entry_in(shard->heap, flight, report);

        if (entry != NULL || !make_room(shard, bytes / ROOM_STEP_SHARE))
            return entry;
    }
    return NULL;
}

/* What cannot be stored is still an answer. NULL: out of memory. */
static struct entry *make_entry(struct shard *shard, const struct flight *flight,
                                const struct flight_report *report)
{
    struct entry *entry = make_entry_to_store(shard, flight, report);

    return entry != NULL ? entry : make_entry_in(NULL, flight, report);
}

/* Before anybody else can look. */
static void write_landing(struct shard *shard, struct flight *flight,
                          const struct flight_report *report)
{
    struct landing *landing = &flight->landing;

    landing->reason = report->reason;
    landing->waited_us = report->waited_us;
    landing->served_us = report->served_us;
    copy_text(landing->detail, sizeof landing->detail, report->detail);
    copy_text(landing->constraint, sizeof landing->constraint, report->constraint);
    if (report->reason != REASON_NONE)
        return;

    landing->entry = make_entry(shard, flight, report);
    if (landing->entry == NULL) {
        landing->reason = REASON_INTERNAL;
        copy_text(landing->detail, sizeof landing->detail, "out of memory");
    }
}

/* A purge came after it began: what it found out may be from before. */
static bool is_outdated_locked(const struct cache *cache, const struct flight *flight)
{
    return flight->is_purged || cache_is_purged_since(cache, flight->key.group, flight->epoch);
}

/* Of two that flew at once, the one that began later knows better. */
static bool is_overtaken_locked(const struct flight *flight, const struct entry *stored)
{
    return !flight->is_open && stored != NULL && stored->stored_at.us > flight->began_at.us;
}

static void note_failure_locked(const struct cache *cache, const struct flight *flight,
                                struct entry *stored, const struct flight_report *report)
{
    enum reason reason = flight->landing.reason;

    /* Nobody is served less than live for a mistake that is his own. */
    stored->failure = reason_is_server_side(reason) ? reason : REASON_NONE;
    stored->failure_epoch = cache_epoch(cache, flight->key.group);
    if (!report->was_tried)
        return;
    stored->failure_count++;
    stored->retry_at =
        instant_after(report->now, freshness_backoff_us(stored->failure_count, report->random));
}

static void void_entry_locked(struct shard *shard, struct entry *stored, struct entry **gone)
{
    atomic_store_explicit(&stored->is_void, true, memory_order_release);
    store_remove(&shard->store, stored, gone);
}

/* What does not fit leaves an old answer behind, which is good for errors alone. */
static void keep_locked(const struct cache *cache, struct shard *shard, struct flight *flight,
                        struct entry *stored, struct entry **gone)
{
    struct entry *entry = flight->landing.entry;

    if (entry->heap != NULL && store_put(&shard->store, entry, gone))
        flight->landing.is_stored = flight->epoch == cache_epoch(cache, flight->key.group);
    else if (stored != NULL)
        stored->is_outdated = true;
}

/* What its end means for what is stored. */
static void settle_locked(const struct cache *cache, struct shard *shard, struct flight *flight,
                          const struct flight_report *report, struct entry **gone)
{
    struct landing *landing = &flight->landing;
    struct entry *stored = shard_find_entry_locked(cache, shard, &flight->key);

    if (is_outdated_locked(cache, flight) || is_overtaken_locked(flight, stored))
        return;
    if (landing->reason == REASON_NONE)
        keep_locked(cache, shard, flight, stored, gone);
    else if (stored == NULL || flight->is_hung_up)
        return; /* a call that was stopped says nothing of the dependency */
    else if (landing->reason != REASON_NO_ROW)
        note_failure_locked(cache, flight, stored, report);
    else if (flight->is_open)
        void_entry_locked(shard, stored, gone);
}

/* From here on nobody joins, and who leaves changes nothing. Desks with waiters are to be pushed.
 */
static void close_desks_locked(struct shard *shard, struct flight *flight)
{
    remove_flight_locked(shard, flight);
    flight->is_open = false;
    flight->has_landed = true;
    flight->call = NULL;
    for (uint32_t i = 0; i < flight->desk_count; i++) {
        if (flight->desks[i].waiter_count > 0)
            (void)flight_ref(flight);
    }
}

/* Without the lock: a push may wake somebody. */
static void push_desks(struct flight *flight)
{
    for (uint32_t i = 0; i < flight->desk_count; i++) {
        struct desk *desk = &flight->desks[i];

        if (desk->waiter_count > 0)
            inbox_push(desk->inbox, &desk->item);
    }
}

void flight_land(struct cache *cache, struct flight *flight, const struct flight_report *report)
{
    struct shard *shard = cache_shard(cache, flight->key.hash);
    struct entry *gone = NULL;

    write_landing(shard, flight, report);
    shard_lock(shard);
    settle_locked(cache, shard, flight, report, &gone);
    close_desks_locked(shard, flight);
    shard_unlock(shard);

    entry_chain_unref(gone);
    push_desks(flight);
    flight_unref(flight);
}

/* ---- arriving ---- */

static struct desk *desk_of(struct inbox_item *item)
{
    return LIST_ITEM(item, struct desk, item);
}

void flight_deliver(struct inbox_item *item, void (*landed)(void *ctx, struct waiter *waiter),
                    void *ctx)
{
    struct desk *desk = desk_of(item);

    while (!list_is_empty(&desk->waiters)) {
        struct waiter *waiter = LIST_ITEM(desk->waiters.next, struct waiter, link);

        list_remove(&waiter->link);
        landed(ctx, waiter);
    }
    flight_unref(desk->flight);
}

void flight_discard(struct inbox_item *item)
{
    struct desk *desk = desk_of(item);

    ENSURE(list_is_empty(&desk->waiters));
    flight_unref(desk->flight);
}

const struct landing *flight_landing(const struct flight *flight)
{
    return &flight->landing;
}

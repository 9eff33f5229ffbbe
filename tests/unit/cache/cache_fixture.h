/* cache_fixture.h - a cache of a fake clock, three workers without threads, and askers.
 * SPDX-License-Identifier: MIT */
#ifndef TESTS_CACHE_FIXTURE_H
#define TESTS_CACHE_FIXTURE_H
#include <string.h>

#include "cache/cache.h"
#include "cmocka_all.h"

#define SECOND_US INT64_C(1000000)

enum { GROUP_COUNT = 3, WORKER_COUNT = 3, CACHE_BYTES = 1 << 20 };

/* What the cache's cancel did last. */
struct cancel_log {
    int count;
    void *call;
    bool is_hang_up;
};

struct fixture {
    struct cache *cache;
    struct instant now;
    struct cache_policy policy;
    int64_t lease_us;
    uint32_t group;
    uint64_t random; /* 0: each lifetime and back-off is the longest */
    struct inbox inboxes[WORKER_COUNT];
};

/* One request. */
struct asker {
    struct waiter waiter;
    enum cache_verdict verdict;
    struct cache_reply reply;
    int told_count;
    enum reason reason;
    char body[64];
    bool is_stored;
};

extern struct cancel_log cancels; /* defined by each test */

static inline void note_cancel(void *call, bool is_hang_up)
{
    cancels.count++;
    cancels.call = call;
    cancels.is_hang_up = is_hang_up;
}

/* max-age 10 s, revalidated for 5 s more, on error for 20 s more; leases of 2 s. */
static inline void begin(struct fixture *f)
{
    *f = (struct fixture){
        .now = {1000 * SECOND_US},
        .policy =
            {
                .max_age_us = 10 * SECOND_US,
                .stale_while_revalidate_us = 5 * SECOND_US,
                .stale_if_error_us = 20 * SECOND_US,
            },
        .lease_us = 2 * SECOND_US,
    };
    cancels = (struct cancel_log){.count = 0};
    for (int i = 0; i < WORKER_COUNT; i++)
        inbox_init(&f->inboxes[i], NULL, NULL);
    f->cache = cache_create(CACHE_BYTES, GROUP_COUNT, WORKER_COUNT, note_cancel);
    assert_non_null(f->cache);
}

static inline void end(struct fixture *f)
{
    for (int i = 0; i < WORKER_COUNT; i++)
        assert_null(inbox_drain(&f->inboxes[i]));
    cache_destroy(f->cache);
}

static inline void pass_s(struct fixture *f, int64_t seconds)
{
    f->now = instant_after(f->now, seconds * SECOND_US);
}

static inline struct cache_key key_of(const struct fixture *f, const char *name)
{
    return (struct cache_key){
        .bytes = name,
        .size_bytes = strlen(name),
        .hash = cache_key_hash(f->cache, name, strlen(name)),
        .group = f->group,
    };
}

static inline enum cache_verdict ask_on(struct fixture *f, struct asker *a, const char *name,
                                        uint32_t worker)
{
    const struct cache_question question = {
        .key = key_of(f, name),
        .policy = &f->policy,
        .now = f->now,
        .lease_until = instant_after(f->now, f->lease_us),
        .worker = worker,
        .inbox = &f->inboxes[worker],
    };

    *a = (struct asker){.told_count = 0};
    list_init(&a->waiter.link);
    assert_true(cache_ask(f->cache, &question, &a->waiter, &a->verdict, &a->reply));
    return a->verdict;
}

static inline enum cache_verdict ask(struct fixture *f, struct asker *a, const char *name)
{
    return ask_on(f, a, name, 0);
}

/* Ends what the asker got with its answer. */
static inline void done(struct asker *a)
{
    waiter_fini(&a->waiter);
    entry_unref(a->reply.entry);
    a->reply.entry = NULL;
}

static inline void land(struct fixture *f, struct flight *flight,
                        const struct flight_report *report)
{
    struct flight_report whole = *report;

    whole.now = f->now;
    whole.random = f->random;
    whole.policy = &f->policy;
    flight_land(f->cache, flight, &whole);
}

static inline void land_with(struct fixture *f, struct flight *flight, const char *body)
{
    land(f, flight,
         &(struct flight_report){.body = body, .body_bytes = strlen(body), .was_tried = true});
}

static inline void land_failed(struct fixture *f, struct flight *flight, enum reason reason)
{
    land(f, flight, &(struct flight_report){.reason = reason, .was_tried = true});
}

static inline void land_refused(struct fixture *f, struct flight *flight, enum reason reason)
{
    land(f, flight, &(struct flight_report){.reason = reason, .was_tried = false});
}

static inline void tell(void *ctx, struct waiter *waiter)
{
    struct asker *a = LIST_ITEM(waiter, struct asker, waiter);
    const struct landing *landing = flight_landing(waiter->flight);

    (void)ctx;
    a->told_count++;
    a->reason = landing->reason;
    a->is_stored = landing->is_stored;
    if (landing->entry != NULL)
        memcpy(a->body, landing->entry->body, landing->entry->body_bytes);
    waiter_fini(waiter);
}

/* Returns how many flights the worker heard of. */
static inline int drain(struct fixture *f, uint32_t worker)
{
    struct inbox_item *next;
    int count = 0;

    for (struct inbox_item *i = inbox_drain(&f->inboxes[worker]); i != NULL; i = next, count++) {
        next = i->next;
        flight_deliver(i, tell, NULL);
    }
    return count;
}

/* Stores an answer for a key that has none that is served. */
static inline void store(struct fixture *f, const char *name, const char *body)
{
    struct asker a;

    assert_int_equal(ask(f, &a, name), CACHE_LEAD);
    land_with(f, a.reply.flight, body);
    assert_int_equal(drain(f, 0), 1);
    assert_true(a.is_stored);
    done(&a);
}

/* Asks, expects the verdict and the stored body (NULL: none), ends the asker. For verdicts without
 * a flight of the asker's. */
static inline void expect(struct fixture *f, const char *name, enum cache_verdict verdict,
                          const char *body)
{
    struct asker a;

    assert_int_equal(ask(f, &a, name), verdict);
    if (body != NULL) {
        assert_non_null(a.reply.entry);
        assert_int_equal(a.reply.entry->body_bytes, strlen(body));
        assert_memory_equal(a.reply.entry->body, body, strlen(body));
    } else {
        assert_null(a.reply.entry);
    }
    done(&a);
}

/* The asker flies, and its flight fails. */
static inline void fail_refresh(struct fixture *f, const char *name, enum cache_verdict verdict,
                                enum reason reason, bool was_tried)
{
    struct asker a;

    assert_int_equal(ask(f, &a, name), verdict);
    land(f, a.reply.flight, &(struct flight_report){.reason = reason, .was_tried = was_tried});
    assert_int_equal(drain(f, 0), verdict == CACHE_LEAD);
    done(&a);
}

/* What a key without an answer that may be served looks like. */
static inline void expect_cold(struct fixture *f, const char *name)
{
    struct asker a;

    assert_int_equal(ask(f, &a, name), CACHE_LEAD);
    assert_null(a.reply.entry);
    assert_int_equal(a.reply.failure, REASON_NONE);
    land_refused(f, a.reply.flight, REASON_BREAKER_OPEN);
    assert_int_equal(drain(f, 0), 1);
    done(&a);
}
#endif

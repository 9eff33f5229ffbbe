/* inbox.h - how one thread hands work to another: many may push, one owner drains the whole.
 * SPDX-License-Identifier: MIT
 *
 *   pusher ── compare-and-swap ──> [ newest .. oldest ] ── one exchange ──> owner, oldest first
 *
 * Owner    the draining thread. An item belongs to the inbox from push until it is drained.
 * Threads  inbox_push() from any thread; inbox_drain() from the owner alone.
 * Wake-up  push calls `wake` only when the inbox was empty: one wake-up a batch. `wake` may be NULL
 *          when both ends live on one loop and the loop drains after each turn. */
#ifndef BASE_INBOX_H
#define BASE_INBOX_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct inbox_item {
    struct inbox_item *next; /* the inbox's while the item is inside */
};

struct inbox {
    _Atomic(struct inbox_item *) newest;
    void (*wake)(void *ctx); /* immutable after init; called on the pusher's thread */
    void *ctx;               /* borrowed; immutable after init */
};

void inbox_init(struct inbox *in, void (*wake)(void *ctx), void *ctx);
void inbox_push(struct inbox *in, struct inbox_item *item);

/* The two halves of inbox_push(), for a pusher with more to come: it wakes once, after the last. */
bool inbox_put(struct inbox *in, struct inbox_item *item); /* true: it was empty */
void inbox_wake(const struct inbox *in);

static inline bool inbox_is_empty(const struct inbox *in)
{
    return atomic_load_explicit(&in->newest, memory_order_relaxed) == NULL;
}

/* All items, oldest first, linked by `next`; NULL when empty. */
struct inbox_item *inbox_drain(struct inbox *in);
#endif

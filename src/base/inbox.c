#include "base/inbox.h"

#include <stddef.h>

void inbox_init(struct inbox *in, void (*wake)(void *ctx), void *ctx)
{
    atomic_init(&in->newest, NULL);
    in->wake = wake;
    in->ctx = ctx;
}

bool inbox_put(struct inbox *in, struct inbox_item *item)
{
    struct inbox_item *newest = atomic_load_explicit(&in->newest, memory_order_relaxed);

    do
        item->next = newest;
    while (!atomic_compare_exchange_weak_explicit(&in->newest, &newest, item, memory_order_release,
                                                  memory_order_relaxed));
    return newest == NULL;
}

void inbox_wake(const struct inbox *in)
{
    if (in->wake != NULL)
        in->wake(in->ctx);
}

void inbox_push(struct inbox *in, struct inbox_item *item)
{
    if (inbox_put(in, item))
        inbox_wake(in);
}

struct inbox_item *inbox_drain(struct inbox *in)
{
    struct inbox_item *newest, *oldest = NULL;

    if (inbox_is_empty(in))
        return NULL; /* without a write to the pushers' cache line */
    newest = atomic_exchange_explicit(&in->newest, NULL, memory_order_acquire);

    while (newest != NULL) {
        struct inbox_item *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

/* list.h - intrusive doubly linked list; an item is in at most one. SPDX-License-Identifier: MIT
 *
 * Owner    the list owns nothing; items belong to whoever made them.
 * Threads  none of it locks: one owner thread a list. */
#ifndef BASE_LIST_H
#define BASE_LIST_H
#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

#define LIST_ITEM(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline bool list_is_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_push_back(struct list *l, struct list *item)
{
    item->prev = l->prev;
    item->next = l;
    l->prev->next = item;
    l->prev = item;
}

static inline void list_push_front(struct list *l, struct list *item)
{
    list_push_back(l->next, item);
}

/* Fine for an item that is in no list, if list_init() was called on it. */
static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}
#endif

/* heap_internal.h - the memory of one shard's entries: one mapping, never more.
 * SPDX-License-Identifier: MIT
 *
 *   [ block | block | free ...... | block | free | block ]     free ones are in bins by size
 *
 * Not malloc: each worker has an arena of its own there, and keeps what others free in it. A cache
 * that several workers fill would take up to a third more than its bytes. Here what was given out
 * by one is given back by another, and the mapping is the bound, whatever the sizes.
 *
 * A block is found among those of its size class, or is cut from the next larger one there is; what
 * is freed grows together with its free neighbours. Both take a bounded number of steps.
 *
 * Owner    the shard; the mapping lasts until its last block came back, for answers still being
 * sent. Threads  any; locks itself. The lock is a leaf, held for a few steps. Units    _bytes
 * bytes. */
#ifndef CACHE_HEAP_INTERNAL_H
#define CACHE_HEAP_INTERNAL_H
#include <stddef.h>

struct heap;

/* Takes up no more than limit_bytes, itself included. Where those are not worth a mapping there is
 * a heap without room. NULL: out of memory. */
struct heap *heap_create(size_t limit_bytes);
void heap_close(struct heap *heap); /* no more heap_alloc(); NULL is fine */

/* Aligned for anything. NULL: nothing that large is free. */
void *heap_alloc(struct heap *heap, size_t size_bytes);
void heap_free(struct heap *heap, void *memory); /* also after heap_close() */

size_t heap_block_bytes(const void *memory); /* what it takes up, with its header */
#endif

/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/ensure.h"
#include "cache/heap_internal.h"

#if defined(__SANITIZE_ADDRESS__)
#define HEAP_IS_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEAP_IS_WATCHED 1
#endif
#endif

/* AddressSanitizer is told what is free, so that it sees a use after heap_free(). */
#ifdef HEAP_IS_WATCHED
#include <sanitizer/asan_interface.h>
#define FORBID(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define PERMIT(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define FORBID(at, bytes) ((void)(at), (void)(bytes))
#define PERMIT(at, bytes) ((void)(at), (void)(bytes))
#endif

enum {
    ALIGNMENT_BYTES = 16,
    BLOCK_BYTES_MIN = 64, /* what is cut off and smaller stays with the block */
    BLOCK_BITS_MIN = 6,   /* of that size */
    STEP_BITS = 3,        /* eight bins from a power of two to the next */
    BIN_COUNT = 256,      /* up to 2^38; what is larger is in the last */
    BIN_WORD_COUNT = BIN_COUNT / 64,
    LOOK_COUNT_MAX = 8, /* blocks of its own bin, which may be too small */
};

/* In front of what is given out. */
struct block {
    size_t bytes;          /* with this header; a multiple of the alignment. 0: the end */
    size_t previous_bytes; /* of the block before it; 0: it is the first. The lowest bit of it says
                            * whether this one is free */
};

/* A free block goes on with its place in a bin. */
struct free_block {
    struct block block; /* first */
    struct free_block *next, *previous;
};

struct heap {
    pthread_mutex_t lock; /* protects all below, and the blocks' headers */
    char *base;           /* owned mapping; NULL: no room */
    size_t size_bytes;
    size_t given_count; /* blocks that are out */
    bool is_closed;
    uint64_t filled[BIN_WORD_COUNT]; /* bits: bins that are not empty */
    struct free_block *bins[BIN_COUNT];
};

_Static_assert(sizeof(struct block) == ALIGNMENT_BYTES, "what follows a header is aligned");
_Static_assert(sizeof(struct free_block) <= BLOCK_BYTES_MIN, "links fit into the smallest block");

/* ---- blocks ---- */

#define FREE_BIT ((size_t)1)

static bool block_is_free(const struct block *block)
{
    return (block->previous_bytes & FREE_BIT) != 0;
}

static void block_set_free(struct block *block, bool is_free)
{
    block->previous_bytes = (block->previous_bytes & ~FREE_BIT) | (is_free ? FREE_BIT : 0);
}

static struct block *block_next(struct block *block)
{
    return (struct block *)(void *)((char *)block + block->bytes);
}

/* NULL: it is the first. */
static struct block *block_previous(struct block *block)
{
    size_t bytes = block->previous_bytes & ~FREE_BIT;

    return bytes > 0 ? (struct block *)(void *)((char *)block - bytes) : NULL;
}

/* Both neighbours know the size of a block. */
static void block_resize(struct block *block, size_t bytes)
{
    struct block *next;

    block->bytes = bytes;
    next = block_next(block);
    next->previous_bytes = bytes | (next->previous_bytes & FREE_BIT);
}

/* ---- bins ---- */

/* Sizes of a bin are within an eighth of a power of two. */
static size_t bin_of(size_t bytes)
{
    unsigned bits = 63 - (unsigned)__builtin_clzll(bytes);
    size_t step = (bytes >> (bits - STEP_BITS)) & (((size_t)1 << STEP_BITS) - 1);
    size_t bin = ((size_t)(bits - BLOCK_BITS_MIN) << STEP_BITS) + step;

    return bin < BIN_COUNT ? bin : BIN_COUNT - 1;
}

static void bin_add(struct heap *heap, struct block *block)
{
    struct free_block *added = (struct free_block *)(void *)block;
    size_t bin = bin_of(block->bytes);

    block_set_free(block, true);
    added->previous = NULL;
    added->next = heap->bins[bin];
    if (added->next != NULL)
        added->next->previous = added;
    heap->bins[bin] = added;
    heap->filled[bin / 64] |= UINT64_C(1) << bin % 64;
}

static void bin_remove(struct heap *heap, struct block *block)
{
    const struct free_block *removed = (struct free_block *)(void *)block;
    size_t bin = bin_of(block->bytes);

    block_set_free(block, false);
    if (removed->next != NULL)
        removed->next->previous = removed->previous;
    if (removed->previous != NULL)
        removed->previous->next = removed->next;
    else
        heap->bins[bin] = removed->next;
    if (heap->bins[bin] == NULL)
        heap->filled[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

/* The first bin from `from` on that is not empty; BIN_COUNT: none. */
static size_t next_filled_bin(const struct heap *heap, size_t from)
{
    for (size_t word = from / 64; word < BIN_WORD_COUNT; word++) {
        uint64_t bits = heap->filled[word];

        if (word == from / 64)
            bits &= ~UINT64_C(0) << from % 64;
        if (bits != 0)
            return word * 64 + (size_t)__builtin_ctzll(bits);
    }
    return BIN_COUNT;
}

static struct block *find_in_bin(const struct heap *heap, size_t bin, size_t bytes)
{
    struct free_block *at = heap->bins[bin];

    for (int looks = 0; at != NULL && looks < LOOK_COUNT_MAX; looks++, at = at->next) {
        if (at->block.bytes >= bytes)
            return &at->block;
    }
    return NULL;
}

/* One of its own size if there is, else the smallest kind that is surely large enough. */
static struct block *find_free(const struct heap *heap, size_t bytes)
{
    size_t bin = bin_of(bytes);
    struct block *found = find_in_bin(heap, bin, bytes);

    if (found != NULL)
        return found;
    bin = next_filled_bin(heap, bin + 1);
    return bin < BIN_COUNT ? find_in_bin(heap, bin, bytes) : NULL;
}

/* ---- giving out and taking back ---- */

/* Header and all; 0: no block is that large. */
static size_t count_block_bytes(size_t size_bytes)
{
    size_t bytes;

    if (size_bytes > SIZE_MAX / 2)
        return 0;
    bytes = (sizeof(struct block) + size_bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES *
            ALIGNMENT_BYTES;
    return bytes > BLOCK_BYTES_MIN ? bytes : BLOCK_BYTES_MIN;
}

static void cut_off_rest(struct heap *heap, struct block *block, size_t bytes)
{
    size_t rest_bytes = block->bytes - bytes;
    struct block *rest;

    if (rest_bytes < BLOCK_BYTES_MIN)
        return;
    rest = (struct block *)(void *)((char *)block + bytes);
    PERMIT(rest, sizeof(struct free_block));
    *rest = (struct block){.bytes = rest_bytes};
    block_resize(rest, rest_bytes);
    block_resize(block, bytes);
    bin_add(heap, rest);
}

/* `block` and the free one after it are one. */
static void grow_together(struct heap *heap, struct block *block)
{
    struct block *next = block_next(block);

    bin_remove(heap, next);
    block_resize(block, block->bytes + next->bytes);
}

static void take_back(struct heap *heap, struct block *block)
{
    struct block *previous = block_previous(block);

    if (block_is_free(block_next(block)))
        grow_together(heap, block);
    if (previous != NULL && block_is_free(previous)) {
        bin_remove(heap, previous);
        block_resize(previous, previous->bytes + block->bytes);
        block = previous;
    }
    bin_add(heap, block);
    FORBID((char *)block + sizeof(struct free_block), block->bytes - sizeof(struct free_block));
}

/* ---- the heap ---- */

static void heap_lock(struct heap *heap)
{
    ENSURE(pthread_mutex_lock(&heap->lock) == 0);
}

static void heap_unlock(struct heap *heap)
{
    ENSURE(pthread_mutex_unlock(&heap->lock) == 0);
}

static void heap_destroy(struct heap *heap)
{
    if (heap->base != NULL) {
        PERMIT(heap->base, heap->size_bytes);
        (void)munmap(heap->base, heap->size_bytes);
    }
    (void)pthread_mutex_destroy(&heap->lock);
    free(heap);
}

/* One free block, and the end, which is never free. */
static bool heap_map(struct heap *heap, size_t size_bytes)
{
    struct block *first;
    char *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED)
        return false;
    heap->base = base;
    heap->size_bytes = size_bytes;
    first = (struct block *)(void *)base;
    block_resize(first, size_bytes - sizeof(struct block));
    bin_add(heap, first);
    return true;
}

struct heap *heap_create(size_t limit_bytes)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), size_bytes = 0;
    struct heap *heap = calloc(1, sizeof *heap);

    if (heap == NULL)
        return NULL;
    ENSURE(pthread_mutex_init(&heap->lock, NULL) == 0);
    if (limit_bytes > sizeof *heap)
        size_bytes = (limit_bytes - sizeof *heap) / page_bytes * page_bytes;
    if (size_bytes > 0 && !heap_map(heap, size_bytes)) {
        heap_destroy(heap);
        return NULL;
    }
    return heap;
}

void heap_close(struct heap *heap)
{
    bool is_last;

    if (heap == NULL)
        return;
    heap_lock(heap);
    heap->is_closed = true;
    is_last = heap->given_count == 0;
    heap_unlock(heap);
    if (is_last)
        heap_destroy(heap);
}

void *heap_alloc(struct heap *heap, size_t size_bytes)
{
    size_t bytes = count_block_bytes(size_bytes);
    struct block *block = NULL;

    if (bytes == 0)
        return NULL;
    heap_lock(heap);
    ENSURE(!heap->is_closed);
    block = find_free(heap, bytes);
    if (block != NULL) {
        bin_remove(heap, block);
        cut_off_rest(heap, block, bytes);
        heap->given_count++;
        PERMIT(block, block->bytes);
    }
    heap_unlock(heap);
    return block != NULL ? block + 1 : NULL;
}

void heap_free(struct heap *heap, void *memory)
{
    struct block *block = (struct block *)memory - 1;
    bool is_last;

    heap_lock(heap);
    ENSURE(!block_is_free(block));
    take_back(heap, block);
    heap->given_count--;
    is_last = heap->is_closed && heap->given_count == 0;
    heap_unlock(heap);
    if (is_last)
        heap_destroy(heap);
}

size_t heap_block_bytes(const void *memory)
{
    return ((const struct block *)memory - 1)->bytes;
}

/* buffer.h - bytes that grow, up to a limit. SPDX-License-Identifier: MIT
 *
 * Units    bytes.
 * Owner    whoever holds the struct; buffer_take() hands the memory to the caller (free()).
 * Errors   past `limit_bytes`, or out of memory, the buffer becomes `failed`: every later append
 *          does nothing, so a writer may check once at the end. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct buffer {
    char *data; /* owned; not NUL-terminated */
    size_t size_bytes;
    size_t capacity_bytes;
    size_t limit_bytes;
    bool failed;
    bool is_mapped; /* from mmap(2), not malloc(): see struct body */
};

void buffer_init(struct buffer *b, size_t limit_bytes);
void buffer_init_mapped(struct buffer *b, size_t limit_bytes); /* memory in whole pages */
void buffer_fini(struct buffer *b);
void buffer_clear(struct buffer *b); /* keeps the memory; forgets a failure */

/* Room for `more` bytes at the end, or false (and failed). */
bool buffer_reserve_slow(struct buffer *b, size_t more);
void buffer_append(struct buffer *b, const void *bytes, size_t size_bytes);
void buffer_append_text(struct buffer *b, const char *text);
PRINTF_LIKE(2, 3)
void buffer_append_format(struct buffer *b, const char *fmt, ...);

/* Bytes that cross threads. malloc's locks are shared by whoever frees what another allocated, so a
 * thread that is halted inside malloc could halt its neighbours; a mapping has no such lock. Bodies
 * made on a dependency's thread and freed on a worker's are therefore mappings. */
struct body {
    char *data; /* owned; NULL: empty */
    size_t size_bytes;
    size_t mapped_bytes; /* 0: data is from malloc() */
};

/* The memory; the buffer is empty afterwards. */
struct body buffer_take(struct buffer *b);
void body_fini(struct body *body); /* leaves it empty */

static inline bool buffer_reserve(struct buffer *b, size_t more)
{
    return !b->failed && b->capacity_bytes - b->size_bytes >= more ? true
                                                                   : buffer_reserve_slow(b, more);
}

static inline void buffer_append_char(struct buffer *b, char c)
{
    if (buffer_reserve(b, 1))
        b->data[b->size_bytes++] = c;
}
#endif

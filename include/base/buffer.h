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
};

void buffer_init(struct buffer *b, size_t limit_bytes);
void buffer_fini(struct buffer *b);
void buffer_clear(struct buffer *b); /* keeps the memory; forgets a failure */

/* Room for `more` bytes at the end, or false (and failed). */
bool buffer_reserve_slow(struct buffer *b, size_t more);
void buffer_append(struct buffer *b, const void *bytes, size_t size_bytes);
void buffer_append_text(struct buffer *b, const char *text);
PRINTF_LIKE(2, 3)
void buffer_append_format(struct buffer *b, const char *fmt, ...);

/* The memory, the caller's to free(); the buffer is empty afterwards. */
char *buffer_take(struct buffer *b, size_t *out_size_bytes);

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

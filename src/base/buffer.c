#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY_BYTES = 256 };

void buffer_init(struct buffer *b, size_t limit_bytes)
{
    *b = (struct buffer){.limit_bytes = limit_bytes};
}

void buffer_fini(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){.limit_bytes = b->limit_bytes};
}

void buffer_clear(struct buffer *b)
{
    b->size_bytes = 0;
    b->failed = false;
}

bool buffer_reserve_slow(struct buffer *b, size_t more)
{
    size_t capacity = b->capacity_bytes != 0 ? b->capacity_bytes : FIRST_CAPACITY_BYTES;
    char *data;

    if (b->failed)
        return false;
    if (more > b->limit_bytes || b->size_bytes > b->limit_bytes - more) {
        b->failed = true;
        return false;
    }
    while (capacity - b->size_bytes < more)
        capacity *= 2;
    data = realloc(b->data, capacity);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity_bytes = capacity;
    return true;
}

void buffer_append(struct buffer *b, const void *bytes, size_t size_bytes)
{
    if (size_bytes == 0 || !buffer_reserve(b, size_bytes))
        return;
    memcpy(b->data + b->size_bytes, bytes, size_bytes);
    b->size_bytes += size_bytes;
}

void buffer_append_text(struct buffer *b, const char *text)
{
    buffer_append(b, text, strlen(text));
}

void buffer_append_format(struct buffer *b, const char *fmt, ...)
{
    va_list args, again;
    int n;

    va_start(args, fmt);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    /* One byte more than is kept: vsnprintf ends with NUL. */
    if (n >= 0 && buffer_reserve(b, (size_t)n + 1)) {
        (void)vsnprintf(b->data + b->size_bytes, (size_t)n + 1, fmt, again);
        b->size_bytes += (size_t)n;
    }
    va_end(again);
}

char *buffer_take(struct buffer *b, size_t *out_size_bytes)
{
    char *data = b->data;

    *out_size_bytes = b->size_bytes;
    *b = (struct buffer){.limit_bytes = b->limit_bytes};
    return data;
}

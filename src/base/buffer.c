#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_CAPACITY_BYTES = 256, FIRST_MAPPING_BYTES = 65536 };

void buffer_init(struct buffer *b, size_t limit_bytes)
{
    *b = (struct buffer){.limit_bytes = limit_bytes};
}

void buffer_init_mapped(struct buffer *b, size_t limit_bytes)
{
    *b = (struct buffer){.limit_bytes = limit_bytes, .is_mapped = true};
}

void buffer_fini(struct buffer *b)
{
    struct body body = buffer_take(b);

    body_fini(&body);
}

void buffer_clear(struct buffer *b)
{
    b->size_bytes = 0;
    b->failed = false;
}

static char *grow_mapping(struct buffer *b, size_t capacity)
{
    void *data = b->data == NULL ? mmap(NULL, capacity, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                 : mremap(b->data, b->capacity_bytes, capacity, MREMAP_MAYMOVE);

    return data == MAP_FAILED ? NULL : data;
}

bool buffer_reserve_slow(struct buffer *b, size_t more)
{
    size_t capacity = b->capacity_bytes != 0 ? b->capacity_bytes
                      : b->is_mapped         ? FIRST_MAPPING_BYTES
                                             : FIRST_CAPACITY_BYTES;
    char *data;

    if (b->failed)
        return false;
    if (more > b->limit_bytes || b->size_bytes > b->limit_bytes - more) {
        b->failed = true;
        return false;
    }
    while (capacity - b->size_bytes < more)
        capacity *= 2;
    if (capacity > b->limit_bytes)
        capacity = b->limit_bytes; /* buffer_reserve() looks at the capacity alone */
    data = b->is_mapped ? grow_mapping(b, capacity) : realloc(b->data, capacity);
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

struct body buffer_take(struct buffer *b)
{
    struct body body = {.data = b->data,
                        .size_bytes = b->size_bytes,
                        .mapped_bytes = b->is_mapped ? b->capacity_bytes : 0};

    *b = (struct buffer){.limit_bytes = b->limit_bytes, .is_mapped = b->is_mapped};
    return body;
}

void body_fini(struct body *body)
{
    if (body->mapped_bytes > 0)
        (void)munmap(body->data, body->mapped_bytes);
    else
        free(body->data);
    *body = (struct body){0};
}

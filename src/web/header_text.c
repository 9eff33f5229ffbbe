#include <string.h>

#include "web/header_text_internal.h"

enum { LONGEST_NUMBER = 20 }; /* of int64_t, with its sign */

static void add_bytes(struct header_text *t, const char *bytes, size_t size_bytes)
{
    size_t room = HEADER_TEXT_BYTES - 1 - t->size_bytes;

    if (size_bytes > room)
        size_bytes = room;
    memcpy(t->text + t->size_bytes, bytes, size_bytes);
    t->size_bytes += size_bytes;
    t->text[t->size_bytes] = '\0';
}

void header_text_begin(struct header_text *t, const char *words)
{
    t->size_bytes = 0;
    add_bytes(t, words, strlen(words));
}

void header_text_add(struct header_text *t, const char *words)
{
    add_bytes(t, words, strlen(words));
}

void header_text_add_number(struct header_text *t, int64_t number)
{
    char digits[LONGEST_NUMBER];
    size_t first = sizeof digits;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;

    do {
        digits[--first] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (number < 0)
        digits[--first] = '-';
    add_bytes(t, digits + first, sizeof digits - first);
}

#include "json/json_text.h"

#include <stdint.h>
#include <string.h>

#include "base/buffer.h"

enum { LONGEST_ESCAPE_BYTES = 6 };

/* What stands for a byte: 0 the byte itself, 'u' the form \u00XX, else a backslash and this. */
/* clang-format off */
static const char escapes[256] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    ['"'] = '"', ['\\'] = '\\',
};
/* clang-format on */

static const uint64_t ONES = UINT64_C(0x0101010101010101);
static const uint64_t HIGH_BITS = UINT64_C(0x8080808080808080);

/* High bits where a byte of `word` is less than `limit` (at most 128): zero exactly if none is. */
static uint64_t bytes_below(uint64_t word, uint64_t limit)
{
    return (word - ONES * limit) & ~word & HIGH_BITS;
}

static bool has_escape(uint64_t word)
{
    return (bytes_below(word, 0x20) | bytes_below(word ^ (ONES * '"'), 1) |
            bytes_below(word ^ (ONES * '\\'), 1)) != 0;
}

/* How many bytes at the start stand for themselves; eight bytes a step, then one. */
static size_t plain_run(const char *text, size_t size_bytes)
{
    size_t i = 0;
    uint64_t word;

    while (size_bytes - i >= sizeof word) {
        memcpy(&word, text + i, sizeof word);
        if (has_escape(word))
            break;
        i += sizeof word;
    }
    while (i < size_bytes && escapes[(unsigned char)text[i]] == 0)
        i++;
    return i;
}

/* Room for the longest escape must be there. */
static size_t put_escape(char *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";

    out[0] = '\\';
    out[1] = escapes[c];
    if (out[1] != 'u')
        return 2;
    out[2] = out[3] = '0';
    out[4] = hex[c >> 4];
    out[5] = hex[c & 0xF];
    return LONGEST_ESCAPE_BYTES;
}

static size_t escape_bytes(unsigned char c)
{
    return escapes[c] == 'u' ? LONGEST_ESCAPE_BYTES : 2;
}

void json_text_append(struct buffer *b, const char *text, size_t size_bytes)
{
    size_t i = 0;

    /* All through the loop there is room for the rest as it is, and the closing quote. */
    if (!buffer_reserve(b, size_bytes + 2))
        return;
    b->data[b->size_bytes++] = '"';
    for (;;) {
        size_t run = plain_run(text + i, size_bytes - i);
        unsigned char c;

        if (run > 0)
            memcpy(b->data + b->size_bytes, text + i, run);
        b->size_bytes += run;
        i += run;
        if (i == size_bytes)
            break;
        c = (unsigned char)text[i++];
        if (!buffer_reserve(b, escape_bytes(c) + size_bytes - i + 1))
            return;
        b->size_bytes += put_escape(b->data + b->size_bytes, c);
    }
    b->data[b->size_bytes++] = '"';
}

static size_t skip_digits(const char *text, size_t i, size_t size_bytes)
{
    while (i < size_bytes && text[i] >= '0' && text[i] <= '9')
        i++;
    return i;
}

/* Past the digits that must be at i, or 0: none are. */
static size_t need_digits(const char *text, size_t i, size_t size_bytes)
{
    size_t end = skip_digits(text, i, size_bytes);

    return end > i ? end : 0;
}

static size_t skip_fraction(const char *text, size_t i, size_t size_bytes)
{
    return i < size_bytes && text[i] == '.' ? need_digits(text, i + 1, size_bytes) : i;
}

static size_t skip_exponent(const char *text, size_t i, size_t size_bytes)
{
    if (i >= size_bytes || (text[i] != 'e' && text[i] != 'E'))
        return i;
    i++;
    if (i < size_bytes && (text[i] == '+' || text[i] == '-'))
        i++;
    return need_digits(text, i, size_bytes);
}

bool json_text_is_number(const char *text, size_t size_bytes)
{
    size_t start = size_bytes > 0 && text[0] == '-';
    size_t i = need_digits(text, start, size_bytes);

    if (i == 0 || (text[start] == '0' && i > start + 1)) /* no leading zero */
        return false;
    i = skip_fraction(text, i, size_bytes);
    if (i == 0)
        return false;
    return skip_exponent(text, i, size_bytes) == size_bytes;
}

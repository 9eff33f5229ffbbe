#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

static const uint64_t HIGH_BITS = UINT64_C(0x8080808080808080);

static bool is_tail(unsigned char c)
{
    return (c & 0xC0U) == 0x80U;
}

/* The first byte decides the length and, for four of them, the range of the second: that is how
 * overlong forms (E0, F0), surrogates (ED) and what lies past U+10FFFF (F4) are kept out. */
static bool second_is_fine(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xE0:
        return second >= 0xA0 && second <= 0xBF;
    case 0xED:
        return second >= 0x80 && second <= 0x9F;
    case 0xF0:
        return second >= 0x90 && second <= 0xBF;
    case 0xF4:
        return second >= 0x80 && second <= 0x8F;
    default:
        return is_tail(second);
    }
}

static size_t length_by_first(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return 2;
    if ((first & 0xF0U) == 0xE0U)
        return 3;
    return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

size_t utf8_character(const char *text, size_t size_bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t length = size_bytes == 0 ? 0 : length_by_first(p[0]);

    if (length < 2)
        return length;
    if (length > size_bytes || !second_is_fine(p[0], p[1]))
        return 0;
    for (size_t i = 2; i < length; i++)
        if (!is_tail(p[i]))
            return 0;
    return length;
}

bool utf8_is_valid(const char *text, size_t size_bytes)
{
    size_t i = 0;

    while (i < size_bytes) {
        uint64_t word;
        size_t length;

        if (size_bytes - i >= sizeof word) { /* most text is ASCII: eight bytes a step */
            memcpy(&word, text + i, sizeof word);
            if ((word & HIGH_BITS) == 0) {
                i += sizeof word;
                continue;
            }
        }
        length = utf8_character(text + i, size_bytes - i);
        if (length == 0)
            return false;
        i += length;
    }
    return true;
}

size_t utf8_count(const char *text, size_t size_bytes)
{
    size_t count = 0;

    for (size_t i = 0; i < size_bytes; i++)
        count += !is_tail((unsigned char)text[i]);
    return count;
}

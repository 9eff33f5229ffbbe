#include "query/decimal.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { MAX_EXPONENT = 999999 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(const char *text, size_t size_bytes, const char *word)
{
    return strlen(word) == size_bytes && strncasecmp(text, word, size_bytes) == 0;
}

static bool parse_exponent(const char *text, size_t size_bytes, long *out)
{
    bool is_negative = size_bytes > 0 && text[0] == '-';
    size_t i = size_bytes > 0 && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    long value = 0;

    if (i == size_bytes)
        return false;
    for (; i < size_bytes; i++) {
        if (!is_digit(text[i]))
            return false;
        value = value * 10 + (text[i] - '0');
        if (value > MAX_EXPONENT)
            return false;
    }
    *out = is_negative ? -value : value;
    return true;
}

/* digits [. digits], at least one digit; the size of what was read, or 0. */
static size_t scan_mantissa(const char *text, size_t size_bytes, size_t *out_point)
{
    size_t i = 0, digit_count = 0;

    *out_point = SIZE_MAX;
    for (; i < size_bytes; i++) {
        if (is_digit(text[i]))
            digit_count++;
        else if (text[i] == '.' && *out_point == SIZE_MAX)
            *out_point = i;
        else
            break;
    }
    if (*out_point == SIZE_MAX)
        *out_point = i;
    return digit_count > 0 ? i : 0;
}

static bool parse_finite(const char *text, size_t size_bytes, struct decimal *out)
{
    size_t point, size = scan_mantissa(text, size_bytes, &point), first = 0;
    long exponent = 0;

    if (size == 0)
        return false;
    if (size < size_bytes && ((text[size] != 'e' && text[size] != 'E') ||
                              !parse_exponent(text + size + 1, size_bytes - size - 1, &exponent)))
        return false;

    while (first < size && (text[first] == '0' || text[first] == '.'))
        first++;
    out->kind = DECIMAL_FINITE;
    out->digits = text + first;
    out->size_bytes = size - first;
    out->magnitude =
        exponent + (first < point ? (long)(point - first) - 1 : (long)point - (long)first);
    if (first == size)
        out->sign = 0;
    return true;
}

bool decimal_parse(const char *text, size_t size_bytes, struct decimal *out)
{
    struct decimal d = {.sign = 1};
    bool has_sign = size_bytes > 0 && (text[0] == '-' || text[0] == '+');

    if (has_sign) {
        d.sign = text[0] == '-' ? -1 : 1;
        text++;
        size_bytes--;
    }
    if (is_word(text, size_bytes, "infinity") || is_word(text, size_bytes, "inf"))
        d.kind = DECIMAL_INFINITE;
    else if (is_word(text, size_bytes, "nan") && !has_sign)
        d.kind = DECIMAL_NAN;
    else if (!parse_finite(text, size_bytes, &d))
        return false;
    *out = d;
    return true;
}

/* The next digit of a mantissa; past its end there are only zeros. */
static char next_digit(const struct decimal *d, size_t *at)
{
    if (*at < d->size_bytes && d->digits[*at] == '.')
        ++*at;
    if (*at >= d->size_bytes)
        return '0';
    return d->digits[(*at)++];
}

static int compare_mantissas(const struct decimal *a, const struct decimal *b)
{
    size_t i = 0, k = 0;

    while (i < a->size_bytes || k < b->size_bytes) {
        char x = next_digit(a, &i), y = next_digit(b, &k);

        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

static int compare_sizes(const struct decimal *a, const struct decimal *b)
{
    if (a->kind != b->kind)
        return a->kind == DECIMAL_INFINITE ? 1 : -1;
    if (a->kind == DECIMAL_INFINITE)
        return 0;
    if (a->magnitude != b->magnitude)
        return a->magnitude < b->magnitude ? -1 : 1;
    return compare_mantissas(a, b);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->sign != b->sign)
        return a->sign < b->sign ? -1 : 1;
    return a->sign * compare_sizes(a, b);
}

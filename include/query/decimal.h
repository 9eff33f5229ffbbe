/* decimal.h - decimal numbers as text: is it one, and which of two is larger? Exact, never through
 * a double.
 * SPDX-License-Identifier: MIT
 *
 * The text is what PostgreSQL takes for numeric and float8: [+-] digits [. digits] [e [+-] digits],
 * NaN, [+-]Infinity, [+-]inf. No blanks, no hex, no underscores. */
#ifndef QUERY_DECIMAL_H
#define QUERY_DECIMAL_H
#include <stdbool.h>
#include <stddef.h>

struct decimal {
    enum { DECIMAL_FINITE, DECIMAL_INFINITE, DECIMAL_NAN } kind;
    int sign;           /* -1, 0 (finite only), 1 */
    const char *digits; /* borrowed: from the first digit that is not 0; may hold one '.' */
    size_t size_bytes;  /* of `digits` */
    long magnitude;     /* the first digit stands for digit * 10^magnitude */
};

/* False: not a number, or an exponent beyond +-999999. */
bool decimal_parse(const char *text, size_t size_bytes, struct decimal *out);

/* Negative, 0, positive. Neither may be NaN. */
int decimal_compare(const struct decimal *a, const struct decimal *b);
#endif

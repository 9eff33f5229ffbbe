/* error.h - what went wrong, as a sentence that each level up may prefix.
 * SPDX-License-Identifier: MIT
 *
 * Owner    the caller's, usually on its stack.
 * Errors   text that is too long is cut, never overrun. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H
#include <stdbool.h>

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

struct error {
    char text[400];
};

/* Returns false, so that a caller can write: return error_set(...). */
PRINTF_LIKE(2, 3)
bool error_set(struct error *err, const char *fmt, ...);

/* Puts "prefix: " before the text. Returns false. */
PRINTF_LIKE(2, 3)
bool error_prefix(struct error *err, const char *fmt, ...);

/* What an errno value means; never NULL. Any thread may ask (strerror() may write where another
 * thread reads), and it is English in every locale. */
const char *error_of_errno(int number);
#endif

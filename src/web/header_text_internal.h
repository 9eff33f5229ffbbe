/* header_text_internal.h - a header's value, put together from words and numbers.
 * SPDX-License-Identifier: MIT
 *
 * Each answer has several of these: nothing is parsed and nothing allocated.
 *
 * Owner    the caller's, usually on its stack.
 * Errors   what does not fit is cut; values of headers are short by what goes into them.
 * Threads  pure. */
#ifndef WEB_HEADER_TEXT_INTERNAL_H
#define WEB_HEADER_TEXT_INTERNAL_H
#include <stddef.h>
#include <stdint.h>

enum { HEADER_TEXT_BYTES = 192 };

struct header_text {
    size_t size_bytes;
    char text[HEADER_TEXT_BYTES]; /* always ends in NUL */
};

void header_text_begin(struct header_text *t, const char *words);
void header_text_add(struct header_text *t, const char *words);
void header_text_add_number(struct header_text *t, int64_t number);
#endif

/* utf8.h - is it UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF)?
 * SPDX-License-Identifier: MIT */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>

bool utf8_is_valid(const char *text,
                   size_t size_bytes); /* NUL bytes are valid UTF-8: check apart */

/* Bytes of the character that the text begins with; 0: none there, or not valid. */
size_t utf8_character(const char *text, size_t size_bytes);

size_t utf8_count(const char *text, size_t size_bytes); /* characters of valid UTF-8 */
#endif

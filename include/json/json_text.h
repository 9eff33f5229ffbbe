/* json_text.h - strings as JSON (RFC 8259). SPDX-License-Identifier: MIT
 *
 * The escapes are those of PostgreSQL's escape_json(): \b \f \n \r \t \" \\ and \u00XX for the
 * other control bytes; everything else is copied. Input is UTF-8. */
#ifndef JSON_JSON_TEXT_H
#define JSON_JSON_TEXT_H
#include <stdbool.h>
#include <stddef.h>

struct buffer;

void json_text_append(struct buffer *b, const char *text, size_t size_bytes); /* with its quotes */

/* Is the text, whole, a JSON number? (RFC 8259 section 6; no leading +, no hex, no NaN) */
bool json_text_is_number(const char *text, size_t size_bytes);
#endif

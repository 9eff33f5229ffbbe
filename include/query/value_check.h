/* value_check.h - is this text a value that a parameter may have? Type, bounds, lengths, pattern,
 * enum.
 * SPDX-License-Identifier: MIT
 *
 * The same judge for callers' values and for the defaults and examples that an SQL file declares.
 * Of an array it judges one element.
 *
 * Threads  any; the parameter is only read.
 * Errors   the sentence says what is wrong and what would be right, never the value. */
#ifndef QUERY_VALUE_CHECK_H
#define QUERY_VALUE_CHECK_H
#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "query/route.h"

/* `text` is NUL-terminated too, valid UTF-8 without NUL. */
bool value_check(const struct param *param, const char *text, size_t size_bytes, struct error *err);

/* The type alone, without the bounds: how the bounds themselves are judged. */
bool value_check_type(const struct param_type *type, const char *text, size_t size_bytes,
                      struct error *err);

/* UTF-8 and NUL, before anything else. */
bool value_check_text(const char *text, size_t size_bytes, struct error *err);

/* Compiles a POSIX ERE to match whole values, character by character whatever the process's locale.
 */
bool value_pattern_compile(regex_t *out, const char *pattern, struct error *err);
#endif

/* array_literal.h - writes PostgreSQL's text form of a one-dimensional array: {"a","b\"c",NULL}.
 * SPDX-License-Identifier: MIT
 *
 * Every element is quoted, so that commas, braces, quotes and the word NULL in it are data.
 *
 * Units    bytes. The caller brings the room: 2 + for each element 2 * size_bytes + 3 (NULL: 5),
 * + 1. Errors   none. */
#ifndef QUERY_ARRAY_LITERAL_H
#define QUERY_ARRAY_LITERAL_H
#include <stdbool.h>
#include <stddef.h>

struct array_literal {
    char *at; /* borrowed: where the next byte goes */
    char delimiter;
    bool has_elements;
};

void array_literal_begin(struct array_literal *a, char *out, char delimiter);
void array_literal_add(struct array_literal *a, const char *text, size_t size_bytes);
void array_literal_add_null(struct array_literal *a);

/* Closes it with a brace and a NUL; returns the place after the NUL. */
char *array_literal_end(struct array_literal *a);
#endif

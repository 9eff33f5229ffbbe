/* type_values.h - values of PostgreSQL's types, as SQL expressions. SPDX-License-Identifier: MIT
 *
 * Threads  constants. */
#ifndef SUPPORT_TYPE_VALUES_H
#define SUPPORT_TYPE_VALUES_H
#include <stddef.h>

/* For a superuser, once: extensions, types and functions that the others use. */
extern const char *const type_seed;

/* Ordinary ones and extremes. */
extern const char *const type_values[];
extern const size_t type_value_count;

/* An expression with another value each time; random_text() and the like are type_seed's. */
struct random_type {
    const char *name, *expression;
    const char *through; /* "::text" where ARRAY[..] would not make an array of the type */
};
extern const struct random_type random_types[];
extern const size_t random_type_count;
#endif

/* sql_word.h - what an SQL file may say, word by word, for documentation: from the tables that
 * reading it works by.
 * SPDX-License-Identifier: MIT
 *
 * Each function gives the row of that index, in the order in which people read them; false or NULL:
 * there is none, and so none after it. All texts are static.
 *
 * Threads  constant tables. */
#ifndef QUERY_SQL_WORD_H
#define QUERY_SQL_WORD_H
#include <stdbool.h>
#include <stddef.h>

#include "query/route.h"

struct sql_word {
    const char *name;
    const char *usage;     /* what follows the name; "" for nothing */
    const char *meaning;   /* in a phrase without a full stop */
    const char *otherwise; /* what holds without it; NULL: nothing to say */
    bool is_built;         /* false: known, and refused as not supported yet */
};

bool setting_word(size_t index, struct sql_word *out);      /* @result, ... */
bool param_option_word(size_t index, struct sql_word *out); /* of @param */
bool cache_word(size_t index, struct sql_word *out);        /* of @cache */

/* A built-in type, and how weir checks its values. */
const char *sql_type_name(size_t index, enum param_check *out_check);

/* Another name of a built-in type. */
const char *sql_type_alias(size_t index, const char **out_name);

/* The first word of a statement that is not for every route. */
enum statement_kind {
    STATEMENT_READ,
    STATEMENT_WRITE,       /* not in a GET */
    STATEMENT_COMMITS,     /* a write whose body may commit on its own */
    STATEMENT_TRANSACTION, /* weir's own business */
    STATEMENT_SESSION,     /* would outlive the request, or needs more than one answer */
};
const char *statement_word(size_t index, enum statement_kind *out_kind);
#endif

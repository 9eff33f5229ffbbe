/* wrap.h - a statement around a statement, so that the server itself writes some of the columns
 * with to_json(). SPDX-License-Identifier: MIT
 *
 *   SELECT .. FROM (statement) AS x               a query: its order, limits and locks are its own
 *   WITH x AS (INSERT ..) SELECT .. FROM x        a write with RETURNING
 *   WITH a AS (..), x AS (..) SELECT .. FROM x    one that begins with WITH: a WITH that writes
 * must stay outermost, so that x becomes its last member
 *
 * Parameters keep their numbers. When the statement's own columns change (ALTER TABLE under a
 * `SELECT *`), the wrapped one fails with a SQLSTATE 42* or 0A000, and does not go on as if nothing
 * had happened.
 *
 * Owner    the text is the caller's: free().
 * Threads  values. */
#ifndef QUERY_WRAP_H
#define QUERY_WRAP_H
#include <stdbool.h>
#include <stddef.h>

struct wrap_column {
    const char *name;      /* borrowed; several may be the same */
    bool is_given_as_json; /* through to_json() */
};

/* NULL: a statement of this kind (CALL, EXPLAIN, ..) cannot stand inside another, or out of memory.
 */
char *wrap_statement(const char *sql, const struct wrap_column *columns, size_t column_count);
#endif

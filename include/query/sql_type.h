/* sql_type.h - PostgreSQL's built-in types by name and alias: OID, array OID, how weir checks a
 * value.
 * SPDX-License-Identifier: MIT
 *
 * OIDs of built-in types never change between PostgreSQL versions (pg_type.dat).
 *
 * Threads  a constant table. */
#ifndef QUERY_SQL_TYPE_H
#define QUERY_SQL_TYPE_H
#include "query/route.h"

enum sql_type_found {
    SQL_TYPE_BUILT_IN,
    SQL_TYPE_ON_TRUST,  /* looks like a type's name (mood, shop.mood): oid 0, PostgreSQL judges */
    SQL_TYPE_MALFORMED, /* *out_problem says why; *out is untouched */
};

/* `text` as in @param: "int4", "Double  Precision", "text[]", "pg_catalog.int8". */
enum sql_type_found sql_type_parse(const char *text, struct param_type *out,
                                   const char **out_problem);

/* The built-in name nearest to one that is none, or NULL. */
const char *sql_type_nearest(const char *text);
#endif

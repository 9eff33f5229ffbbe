/* row_writer.h - rows of a libpq result as JSON, straight into one buffer, as PostgreSQL's to_json
 * gives each value. SPDX-License-Identifier: MIT
 *
 * A shape is made once a statement and session (column names escaped once, one kind a column) and
 * used for every row. Values come in PostgreSQL's text format; digits are copied, never converted.
 * What makes a kind: to_json's rule (PostgreSQL manual, functions-json): numbers and booleans bare,
 * json and jsonb as they are, dates and times in ISO 8601, arrays as arrays, all else its text.
 *
 * Owner    row_shape_create() .. row_shape_destroy() by the session's statement.
 * Session  client_encoding UTF8. With a DateStyle other than ISO, value_type_is_dated() types are
 *          the server's to write.
 * Threads  one owner.
 * Errors   through the buffer: past its limit it is `failed`. */
#ifndef JSON_ROW_WRITER_H
#define JSON_ROW_WRITER_H
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

struct buffer;

enum value_kind {
    VALUE_TEXT,        /* quoted */
    VALUE_NUMBER,      /* bare if it is a JSON number, else quoted (NaN, Infinity) */
    VALUE_BOOL,        /* t, f */
    VALUE_JSON,        /* as it is */
    VALUE_DATE,        /* as text: DateStyle ISO is what to_json writes */
    VALUE_TIMESTAMP,   /* T instead of the space */
    VALUE_TIMESTAMPTZ, /* and the zone as +HH:MM */
    VALUE_SERVER,      /* only the server can write it: let it, with to_json(), then VALUE_JSON */
    VALUE_UNKNOWN,     /* not built in: look it up in pg_type */
};

/* How values of one type are written. For an array: its element, and the delimiter. */
struct value_type {
    enum value_kind kind;
    bool is_array;
    char delimiter; /* of arrays: ',' but for box ';'; of int2vector and oidvector ' ' */
};

/* Of a built-in type's OID (also arrays of built-in types); VALUE_UNKNOWN for others. Built-in
 * means fixed by pg_type.dat. Unknown are also those whose text does not say enough: records,
 * anyarray, arrays of vectors, and arrays of information_schema's domains. */
struct value_type value_type_of(uint32_t type_oid);

/* Its text depends on DateStyle, and what to_json() writes does not. */
bool value_type_is_dated(struct value_type type);

struct row_shape;

/* From any result of the statement that has its columns. `types` has PQnfields() entries and is
 * copied. NULL: out of memory. */
struct row_shape *row_shape_create(const PGresult *result, const struct value_type *types);
void row_shape_destroy(struct row_shape *shape); /* NULL is fine */

/* Appends the row as an object: {"a":1,"b":null} */
void row_write(struct buffer *out, const struct row_shape *shape, const PGresult *result, int row);
/* Appends one cell. */
void row_write_cell(struct buffer *out, const struct row_shape *shape, const PGresult *result,
                    int row, int column);
/* One value of a type (what row_write_cell() does for each cell that is not NULL). */
void value_write(struct buffer *out, struct value_type type, const char *text, size_t size_bytes);
#endif

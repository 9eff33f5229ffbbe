/* route.h - one endpoint: what an SQL file says, checked, ready to serve.
 * SPDX-License-Identifier: MIT
 *
 * Owner    the catalog that read it; immutable after start.
 * Units    _us microseconds, _bytes bytes.
 * Threads  read by all. The one thing that changes, the count of calls under way for @limit, is an
 *          atomic. */
#ifndef QUERY_ROUTE_H
#define QUERY_ROUTE_H
#include <regex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/freshness.h"

enum http_method {
    METHOD_GET, /* HEAD comes with it */
    METHOD_POST,
    METHOD_PUT,
    METHOD_PATCH,
    METHOD_DELETE,
    METHOD_COUNT
};

enum param_place { IN_PATH, IN_QUERY, IN_BODY, IN_HEADER, PARAM_PLACE_COUNT };

/* How weir itself checks a value before a permit is taken. */
enum param_check {
    CHECK_TEXT,    /* text, varchar, bpchar, name: any UTF-8 */
    CHECK_INTEGER, /* int2 int4 int8 oid: see least/greatest of the type */
    CHECK_NUMERIC,
    CHECK_FLOAT,
    CHECK_BOOL,
    CHECK_UUID,
    CHECK_JSON,   /* json, jsonb: in a body the raw text of the value */
    CHECK_ZONED,  /* timestamptz, timetz: a space before the offset is a raw + (says %2B) */
    CHECK_SERVER, /* only PostgreSQL can judge */
};

/* A PostgreSQL type as a parameter. */
struct param_type {
    char name[64];        /* as written, without [] */
    uint32_t oid;         /* what is sent with Parse; 0: not built in, looked up when prepared */
    uint32_t element_oid; /* of an array's elements (equals the scalar's oid); else 0 */
    bool is_array;
    char delimiter; /* between elements of an array literal */
    enum param_check check;
    int64_t least, greatest; /* CHECK_INTEGER: the type's own range */
};

struct param {
    char *name; /* owned */
    struct param_type type;
    enum param_place place;
    int path_segment;   /* IN_PATH: which segment (from 0) */
    bool is_optional;   /* absent is NULL */
    char *default_text; /* owned; NULL: none. Already checked */
    char *min_text;     /* owned; NULL: none. Numbers compare as decimals */
    char *max_text;
    int64_t min_length, max_length; /* characters; -1: none */
    char *pattern_text;             /* owned; POSIX ERE on the whole value */
    regex_t pattern;   /* compiled when pattern_text is not NULL; regexec() is thread-safe */
    char **enum_texts; /* owned */
    size_t enum_count;
    char *example_text; /* owned; for docs and drills */
    int line, column;   /* of its @param */
};

enum result_kind { RESULT_MANY, RESULT_ONE, RESULT_VALUE, RESULT_EXEC, RESULT_KIND_COUNT };

struct path_segment {
    char *text; /* owned; literal text (percent-decoded), or the parameter's name */
    bool is_parameter;
    int column; /* in the first line */
};

/* Where a stretch of route->sql was copied from. */
struct sql_place {
    size_t offset_bytes; /* in route->sql; up to the next place the text is the file's */
    int line, column;
};

struct route {
    uint32_t id; /* index in the catalog; labels of metrics */
    enum http_method method;
    char *label;                   /* owned: "GET /books/{id}" */
    char *template;                /* owned: "/books/{id}" */
    struct path_segment *segments; /* owned */
    size_t segment_count;
    char *description; /* owned; may be empty */

    struct param *params; /* owned; in the order of @param */
    size_t param_count;
    char *sql;             /* owned: the statement with $1..$n; :names replaced */
    uint32_t *bind_params; /* owned: $k binds params[bind_params[k-1]] (each name once) */
    size_t bind_count;
    uint64_t sql_hash;
    char statement_name[32]; /* of the prepared statement: from the hash */

    uint32_t source; /* index in config.dependencies */
    enum result_kind result;
    int success_status;
    int64_t timeout_us; /* 0: request_timeout */
    uint32_t limit;     /* 0: none */
    _Atomic uint32_t limit_in_use;
    bool is_exclusive;
    bool is_write; /* not a GET: a read-write session */
    bool is_idempotent;
    bool may_commit_inside; /* CALL or DO: an error does not prove that nothing happened */
    uint64_t max_rows;
    size_t max_bytes;

    bool is_cached; /* @cache: only a GET */
    struct cache_policy cache;
    char *vary;     /* owned; value of the header Vary, without Origin. NULL: not cached */
    char *fallback; /* owned; the JSON as written; NULL: none. Only a GET */
    size_t fallback_bytes;
    uint32_t *purges; /* owned; ids of the cached routes that a success makes old */
    size_t purge_count;

    char *file;                     /* owned: path as it is reported */
    int source_line, source_column; /* of @from, else of the first line */
    int timeout_line, timeout_column;
    int sql_line; /* of the statement's first byte in the file */
    int sql_column;
    int first_line, first_column; /* of the METHOD /path line */
    struct sql_place *sql_places; /* owned; ascending */
    size_t sql_place_count;
};

void route_fini(struct route *route);
const char *http_method_name(enum http_method method);
bool http_method_parse(const char *text, size_t size_bytes, enum http_method *out_method);
const char *result_kind_name(enum result_kind kind);
bool route_has_body_params(const struct route *route);

/* "int4", "text[]": as PostgreSQL reads a type's name. */
enum { PARAM_TYPE_NAME_BYTES = 80 };
void param_type_name(const struct param_type *type, char out[PARAM_TYPE_NAME_BYTES]);

/* Place in the SQL file of a character of route->sql, counted from 1 as PostgreSQL reports it (0,
 * or one past the end, is the nearest place there is). */
void route_place_of(const struct route *route, size_t sql_character, int *out_line,
                    int *out_column);
#endif

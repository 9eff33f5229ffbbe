/* config_fields.h - the one table of all that weir.json may say. SPDX-License-Identifier: MIT
 *
 * A row is a key: what it takes, between which bounds, what it is when left out, where it is
 * stored, and a sentence for people. Parsing, checking, defaults and documentation all come from
 * it.
 *
 * Units    bounds: durations in microseconds, sizes in bytes, strings in characters.
 * Threads  immutable.
 * Errors   config_read_object() complains about everything it finds and goes on; what is wrong
 * keeps its default. */
#ifndef CONFIG_CONFIG_FIELDS_H
#define CONFIG_CONFIG_FIELDS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_type {
    FIELD_OBJECT,
    FIELD_MAP, /* names of the user's own, each with an object: "dependencies" */
    FIELD_INTEGER,
    FIELD_RATE, /* a fraction of 1 */
    FIELD_BOOL,
    FIELD_DURATION,
    FIELD_SIZE,
    FIELD_WORD, /* one of words */
    FIELD_STRING,
    FIELD_ADDRESS, /* IPv4 or IPv6 */
    FIELD_FILE,    /* stored absolute; relative ones start at the config's folder */
    FIELD_ORIGINS, /* a list of origins, or "*" */
    FIELD_LIST,    /* a list of strings */
    FIELD_TYPE_COUNT
};

struct field_word {
    const char *text; /* NULL ends the list */
    int value;
    bool is_not_built; /* known, and refused: not supported yet */
};

struct config_field {
    const char *path; /* "server.port"; any dependency is "*" */
    enum field_type type;
    size_t offset, size_bytes; /* of the member: in struct config, or for dependencies.*.X in struct
                                * dependency_config. Size 0: checked, not stored */
    int64_t min, max;
    const char *default_text; /* as JSON without quotes; NULL: must be given (not for objects) */
    const char *only;         /* the one value that is built so far; NULL: all are */
    const struct field_word *words;
    const char *help;
};

extern const struct config_field config_fields[];
extern const size_t config_field_count;

/* The key of a row directly below `parent` ("" is the root, "dependencies.*" any dependency), or
 * NULL if it is not directly below. */
const char *config_field_key(const struct config_field *field, const char *parent);

/* NULL: there is no such key below `parent`. */
const struct config_field *config_field_find(const char *parent, const char *key);

bool config_field_may_be_null(const struct config_field *field); /* where null is the default */

/* "must be a whole number from 1 to 65535" */
void config_field_describe(const struct config_field *field, char *out_text, size_t size_bytes);

const struct field_word *config_word_find(const struct field_word *words, const char *text);
#endif

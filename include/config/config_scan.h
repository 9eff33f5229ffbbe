/* config_scan.h - a JSON text as a tree that still knows where everything stood.
 * SPDX-License-Identifier: MIT
 *
 * jansson judges the text (syntax, escapes, UTF-8) but keeps neither places nor digits; the scan
 * goes over the same text once more and records, for every key and value, its raw bytes, line and
 * column.
 *
 * Units    lines and columns count from 1, columns in bytes.
 * Owner    scan_text() .. scan_destroy() by the caller; nodes borrow the text they were scanned
 * from, which must outlive them. NULs inside of the text are jansson's to refuse. Errors
 * scan_text() returns NULL with the first syntax error. Its words never quote the text: a config
 * may hold a password. Out of memory ends the process (this runs at start only). */
#ifndef CONFIG_CONFIG_SCAN_H
#define CONFIG_CONFIG_SCAN_H
#include <stdbool.h>
#include <stddef.h>

enum scan_kind {
    SCAN_OBJECT,
    SCAN_ARRAY,
    SCAN_STRING,
    SCAN_NUMBER,
    SCAN_TRUE,
    SCAN_FALSE,
    SCAN_NULL
};

struct scan_node {
    enum scan_kind kind;
    const char *raw; /* borrowed: the value's bytes, with quotes and brackets */
    size_t raw_size_bytes;
    int line, column; /* of the value */
    char *key;        /* owned; decoded. NULL in a list and at the root */
    int key_line, key_column;
    bool is_wrong;              /* for the caller: it was complained about */
    struct scan_node *children; /* owned; in the text's order, repeated keys included */
    size_t child_count;
};

struct scan_error {
    int line, column;
    char text[200];
};

struct scan_node *scan_text(const char *text, size_t size_bytes, struct scan_error *out_error);
void scan_destroy(struct scan_node *root); /* NULL is fine */

/* The characters of a SCAN_STRING, escapes resolved; the caller frees them. */
char *scan_string(const struct scan_node *node);

/* The first child of an object with this key, or NULL. */
struct scan_node *scan_child(const struct scan_node *object, const char *key);
#endif

/* complaint.h - every problem of a config or an SQL file, with its place; all are told at once.
 * SPDX-License-Identifier: MIT
 *
 * Units    lines and columns count from 1 (columns in bytes); 0 means "the file as a whole" and is
 *          printed as 1.
 * Owner    complaints_fini() by whoever holds the struct.
 * Errors   out of memory ends the process (this runs at start only). */
#ifndef BASE_COMPLAINT_H
#define BASE_COMPLAINT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

struct complaint {
    char *file; /* owned */
    int line, column;
    bool is_warning;
    char *text; /* owned */
};

struct complaints {
    struct complaint *items; /* owned */
    size_t count;
    size_t error_count; /* those that are not warnings */
};

void complaints_init(struct complaints *c);
void complaints_fini(struct complaints *c);
PRINTF_LIKE(5, 6)
void complaints_add(struct complaints *c, const char *file, int line, int column, const char *fmt,
                    ...);
PRINTF_LIKE(5, 6)
void complaints_warn(struct complaints *c, const char *file, int line, int column, const char *fmt,
                     ...);

/* Sorts by file, line, column; prints "FILE:LINE:COL: text" (warnings as "FILE:LINE:COL: warning:
 * text"). */
void complaints_print(struct complaints *c, FILE *out);
#endif

/* catalog.h - all routes of an api folder. SPDX-License-Identifier: MIT
 *
 * Owner    catalog_read() .. catalog_destroy() by the config that names the folder.
 * Errors   every mistake of every file goes to `complaints` with its place. A catalog comes back
 *          even then (for more checks); serve it only if there is no error. */
#ifndef QUERY_CATALOG_H
#define QUERY_CATALOG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct complaints;
struct route;

/* A dependency as the SQL files may name it in @from. */
struct catalog_source {
    const char *name;
    bool is_read_only; /* access: read: no write route may use it */
};

struct catalog {
    struct route *routes; /* owned; in the order of their labels */
    size_t route_count;
};

/* Reads folder/ ** / *.sql. `shown_folder` is how paths are reported (relative to the config file).
 * request_timeout_us: no @timeout may be longer. */
struct catalog *catalog_read(const char *folder, const char *shown_folder,
                             const struct catalog_source *sources, size_t source_count,
                             int64_t request_timeout_us, struct complaints *complaints);
void catalog_destroy(struct catalog *catalog); /* NULL is fine */
#endif

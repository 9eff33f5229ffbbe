/* admin_purge_internal.h - POST /cache/purge: stored answers that an operator wants forgotten.
 * SPDX-License-Identifier: MIT
 *
 *   {}                                                    all
 *   {"route":"GET /books/{id}"}                           those of a route
 *   {"route":"GET /books/{id}","parameters":{"id":1}}     one of them
 *
 * Whoever may not change anything never gets here.
 *
 * Threads  any; the cache locks itself.
 * Errors   a reason, with words that say what would be right; nothing is forgotten then. */
#ifndef WEB_ADMIN_PURGE_INTERNAL_H
#define WEB_ADMIN_PURGE_INTERNAL_H
#include <stdint.h>

#include "base/error.h"
#include "base/reason.h"
#include "query/params.h"

struct cache;
struct catalog;
struct route;

struct purge_place {
    struct cache *cache;
    const struct catalog *catalog;
    const char *const *route_labels; /* the catalog's, in its order */
};

struct purge {
    const struct route *route; /* borrowed from the catalog; NULL: all */
    uint64_t entry_count;      /* answers that were stored, and are not any more */
};

/* REASON_NONE: done, see *out. Else *err is the detail of the problem. */
enum reason admin_purge(const struct purge_place *place, struct raw_text body, struct purge *out,
                        struct error *err);
#endif

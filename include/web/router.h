/* router.h - which route is a path? Literal segments beat parameters, segment by segment from the
 * left. SPDX-License-Identifier: MIT
 *
 * Owner    app. Threads  immutable after router_create(). */
#ifndef WEB_ROUTER_H
#define WEB_ROUTER_H
#include <stdbool.h>
#include <stddef.h>

#include "query/params.h"
#include "query/route.h"

struct catalog;
struct router;

enum { ROUTER_MAX_SEGMENTS = 32 };

struct router *router_create(struct catalog *catalog); /* NULL: out of memory */
void router_destroy(struct router *router);

struct router_match {
    struct route *routes[METHOD_COUNT]; /* of this path, by method; all NULL: no such path */
    struct raw_text segments[ROUTER_MAX_SEGMENTS]; /* of the path, raw; point into `path` */
    size_t segment_count;
};

/* `path`: raw, without the query. Segments are compared percent-decoded; %2F is data, a trailing
 * slash is another path. False: no such path. */
bool router_find(const struct router *router, const char *path, size_t size_bytes,
                 struct router_match *out);
#endif

#include "web/router.h"

#include <stdlib.h>
#include <string.h>

#include "query/catalog.h"

/* One segment of the paths so far. Literal children are sorted by their text. */
struct node {
    const char *text;       /* borrowed from a route; NULL: a parameter, or the root */
    struct node **literals; /* owned */
    size_t literal_count;
    struct node *parameter;             /* owned; NULL: none */
    struct route *routes[METHOD_COUNT]; /* that end here; borrowed from the catalog */
    bool has_routes;
};

struct router {
    struct node root;
    size_t longest_literal_bytes;
};

static void node_fini(struct node *node)
{
    for (size_t i = 0; i < node->literal_count; i++) {
        node_fini(node->literals[i]);
        free(node->literals[i]);
    }
    free(node->literals);
    if (node->parameter != NULL)
        node_fini(node->parameter);
    free(node->parameter);
}

static int compare(const char *literal, const char *text, size_t size_bytes)
{
    int order = strncmp(literal, text, size_bytes);

    return order != 0 ? order : literal[size_bytes] != '\0';
}

/* The literal child; NULL: none, then *out_place is where it should be. */
static struct node *find_literal(const struct node *node, const char *text, size_t size_bytes,
                                 size_t *out_place)
{
    size_t low = 0, high = node->literal_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(node->literals[middle]->text, text, size_bytes);

        if (order == 0)
            return node->literals[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *out_place = low;
    return NULL;
}

static struct node *add_literal(struct node *node, const char *text)
{
    size_t place = 0;
    struct node *child = find_literal(node, text, strlen(text), &place);
    struct node **grown;

    if (child != NULL)
        return child;

    grown = realloc(node->literals, (node->literal_count + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    node->literals = grown;
    child = calloc(1, sizeof *child);
    if (child == NULL)
        return NULL;
    child->text = text;
    memmove(grown + place + 1, grown + place, (node->literal_count - place) * sizeof *grown);
    grown[place] = child;
    node->literal_count++;
    return child;
}

static struct node *add_segment(struct node *node, const struct path_segment *segment)
{
    if (!segment->is_parameter)
        return add_literal(node, segment->text);
    if (node->parameter == NULL)
        node->parameter = calloc(1, sizeof *node->parameter);
    return node->parameter;
}

static bool add_route(struct router *router, struct route *route)
{
    struct node *node = &router->root;

    for (size_t i = 0; i < route->segment_count && node != NULL; i++) {
        size_t size = strlen(route->segments[i].text);

        if (!route->segments[i].is_parameter && size > router->longest_literal_bytes)
            router->longest_literal_bytes = size;
        node = add_segment(node, &route->segments[i]);
    }
    if (node == NULL)
        return false;
    node->routes[route->method] = route;
    node->has_routes = true;
    return true;
}

struct router *router_create(struct catalog *catalog)
{
    struct router *router = calloc(1, sizeof *router);

    if (router == NULL)
        return NULL;
    for (size_t i = 0; i < catalog->route_count; i++) {
        if (!add_route(router, &catalog->routes[i])) {
            router_destroy(router);
            return NULL;
        }
    }
    return router;
}

void router_destroy(struct router *router)
{
    if (router == NULL)
        return;
    node_fini(&router->root);
    free(router);
}

/* The literal child for a raw segment; NULL: none. */
static const struct node *literal_child(const struct router *router, const struct node *node,
                                        struct raw_text segment)
{
    char decoded[256];
    size_t place;

    if (segment.size_bytes > 3 * router->longest_literal_bytes)
        return NULL;
    if (memchr(segment.data, '%', segment.size_bytes) != NULL) {
        size_t size;

        /* A longer literal that is also written with escapes is nobody's path. */
        if (segment.size_bytes > sizeof decoded ||
            !percent_decode(segment.data, segment.size_bytes, false, decoded, &size))
            return NULL;
        segment = (struct raw_text){decoded, size};
    }
    if (memchr(segment.data, '\0', segment.size_bytes) != NULL)
        return NULL;
    return find_literal(node, segment.data, segment.size_bytes, &place);
}

/* Depth first, literals first; no more steps than there are nodes. */
static const struct node *descend(const struct router *router, const struct node *node,
                                  const struct router_match *match, size_t depth)
{
    const struct node *child, *found;

    if (depth == match->segment_count)
        return node->has_routes ? node : NULL;

    child = literal_child(router, node, match->segments[depth]);
    found = child != NULL ? descend(router, child, match, depth + 1) : NULL;
    if (found != NULL)
        return found;
    if (node->parameter == NULL || match->segments[depth].size_bytes == 0)
        return NULL;
    return descend(router, node->parameter, match, depth + 1);
}

/* "/" has no segments, "/a/" has two: "a" and an empty one. False: too many, or no path at all. */
static bool split(const char *path, size_t size_bytes, struct router_match *out)
{
    size_t at = 1;

    out->segment_count = 0;
    if (size_bytes == 0 || path[0] != '/')
        return false;
    while (size_bytes > 1 && at <= size_bytes) {
        const char *slash = memchr(path + at, '/', size_bytes - at);
        size_t size = slash == NULL ? size_bytes - at : (size_t)(slash - (path + at));

        if (out->segment_count == ROUTER_MAX_SEGMENTS)
            return false;
        out->segments[out->segment_count++] = (struct raw_text){path + at, size};
        at += size + 1;
    }
    return true;
}

bool router_find(const struct router *router, const char *path, size_t size_bytes,
                 struct router_match *out)
{
    const struct node *found;

    if (!split(path, size_bytes, out))
        return false;
    found = descend(router, &router->root, out, 0);
    if (found == NULL)
        return false;
    memcpy(out->routes, found->routes, sizeof out->routes);
    return true;
}

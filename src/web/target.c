#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "query/route.h"
#include "web/problem_internal.h"
#include "web/service.h"
#include "web/worker_internal.h"

static const char problems_path[] = "/problems/";

static bool is_path(struct raw_text path, const char *text)
{
    return path.size_bytes == strlen(text) && memcmp(path.data, text, path.size_bytes) == 0;
}

/* "http://host/path" is "/path": every server has to take it, and a scheme's case says nothing. */
static struct raw_text without_authority(struct raw_text uri)
{
    size_t scheme = 0;
    const char *slash;

    if (uri.size_bytes >= 7 && strncasecmp(uri.data, "http://", 7) == 0)
        scheme = 7;
    else if (uri.size_bytes >= 8 && strncasecmp(uri.data, "https://", 8) == 0)
        scheme = 8;
    if (scheme == 0)
        return uri;

    for (size_t i = scheme; i < uri.size_bytes; i++) {
        if (uri.data[i] == '/')
            return (struct raw_text){uri.data + i, uri.size_bytes - i};
        if (uri.data[i] == '?')
            break;
    }
    /* No path is the root; the query, if there is one, stays behind it. */
    slash = "/";
    return (struct raw_text){slash, 1};
}

static void split_uri(struct request *r)
{
    struct raw_text uri = without_authority((struct raw_text){
        r->connection->uri != NULL ? r->connection->uri : "", r->connection->uri_bytes});
    const char *mark = uri.size_bytes == 0 ? NULL : memchr(uri.data, '?', uri.size_bytes);

    r->path = uri;
    r->query = (struct raw_text){0};
    if (mark != NULL) {
        r->path.size_bytes = (size_t)(mark - uri.data);
        r->query = (struct raw_text){mark + 1, uri.size_bytes - r->path.size_bytes - 1};
    }
}

static enum target target_of(struct request *r)
{
    size_t prefix = sizeof problems_path - 1;

    if (is_path(r->path, "/health"))
        return TARGET_HEALTH;
    if (is_path(r->path, "/health/live"))
        return TARGET_LIVE;
    if (is_path(r->path, "/health/ready"))
        return TARGET_READY;
    if (is_path(r->path, "*"))
        return TARGET_SERVER;
    if (r->path.size_bytes > prefix && memcmp(r->path.data, problems_path, prefix) == 0) {
        r->problem_page = problem_reason_of(r->path.data + prefix, r->path.size_bytes - prefix);
        return r->problem_page == REASON_COUNT ? TARGET_NONE : TARGET_PROBLEM;
    }
    return router_find(r->worker->service->router, r->path.data, r->path.size_bytes, &r->match)
               ? TARGET_ROUTE
               : TARGET_NONE;
}

static bool route_method_of(enum request_method method, enum http_method *out)
{
    static const int methods[] = {
        [REQUEST_GET] = METHOD_GET,     [REQUEST_HEAD] = METHOD_GET,
        [REQUEST_POST] = METHOD_POST,   [REQUEST_PUT] = METHOD_PUT,
        [REQUEST_PATCH] = METHOD_PATCH, [REQUEST_DELETE] = METHOD_DELETE,
        [REQUEST_OPTIONS] = -1,         [REQUEST_OTHER] = -1,
    };

    if (methods[method] < 0)
        return false;
    *out = (enum http_method)methods[method];
    return true;
}

static void write_allow(struct request *r)
{
    size_t at = 0;

    for (int m = 0; m < METHOD_COUNT; m++) {
        if (r->match.routes[m] == NULL)
            continue;
        at += (size_t)snprintf(r->allow + at, sizeof r->allow - at, "%s%s, ",
                               http_method_name((enum http_method)m),
                               m == METHOD_GET ? ", HEAD" : "");
    }
    (void)snprintf(r->allow + at, sizeof r->allow - at, "OPTIONS");
}

static void find_route(struct request *r)
{
    enum http_method method;

    if (route_method_of(r->method, &method))
        r->route = r->match.routes[method];
    if (r->route == NULL)
        write_allow(r);
}

void target_find(struct request *r)
{
    r->route = NULL;
    r->allow[0] = '\0';
    split_uri(r);
    r->target = target_of(r);
    switch (r->target) {
    case TARGET_NONE:
        break;
    case TARGET_ROUTE:
        find_route(r);
        break;
    case TARGET_HEALTH:
    case TARGET_LIVE:
    case TARGET_READY:
    case TARGET_PROBLEM:
        (void)snprintf(r->allow, sizeof r->allow, "GET, HEAD, OPTIONS");
        break;
    case TARGET_SERVER:
        (void)snprintf(r->allow, sizeof r->allow, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        break;
    }
}

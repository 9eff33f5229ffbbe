#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/complaint.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/quantity.h"
#include "config/config.h"
#include "config/config_read.h"
#include "config/config_scan.h"
#include "query/catalog.h"

enum { MOST_FILE_BYTES = 4 << 20 };

/* A config file while it is being read. */
struct source {
    struct buffer text;
    struct scan_node *root; /* owned; borrows text */
    struct config_reader reader;
};

/* --- reading the file --- */

static bool stream_read(FILE *stream, struct buffer *out)
{
    char block[4096];
    size_t size;

    while (!out->failed && (size = fread(block, 1, sizeof block, stream)) > 0)
        buffer_append(out, block, size);
    return ferror(stream) == 0;
}

static bool file_read(const char *file, struct buffer *out, struct complaints *complaints)
{
    FILE *stream = fopen(file, "re");
    bool is_read = stream != NULL && stream_read(stream, out);

    if (!is_read)
        complaints_add(complaints, file, 0, 0, "cannot be read: %s", error_of_errno(errno));
    else if (out->failed)
        complaints_add(complaints, file, 0, 0, "is larger than %d MiB", MOST_FILE_BYTES >> 20);
    if (stream != NULL)
        (void)fclose(stream);
    return is_read && !out->failed;
}

static char *folder_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    char *folder;

    if (slash == NULL)
        folder = strdup(".");
    else if (slash == file)
        folder = strdup("/");
    else
        folder = strndup(file, (size_t)(slash - file));
    ENSURE(folder != NULL);
    return folder;
}

static struct config *config_create(const char *file)
{
    struct config *config = calloc(1, sizeof *config);

    ENSURE(config != NULL);
    config->file = strdup(file);
    ENSURE(config->file != NULL);
    config->folder = folder_of(file);
    return config;
}

/* False: there is nothing to look at (complained). */
static bool source_open(struct source *s, const char *file, struct complaints *complaints)
{
    struct scan_error error;

    *s = (struct source){.reader = {.file = file, .complaints = complaints}};
    buffer_init(&s->text, MOST_FILE_BYTES);
    if (!file_read(file, &s->text, complaints))
        return false;

    s->root = scan_text(s->text.data != NULL ? s->text.data : "", s->text.size_bytes, &error);
    if (s->root == NULL) {
        complaints_add(complaints, file, error.line, error.column, "no valid JSON: %s", error.text);
        return false;
    }
    if (s->root->kind != SCAN_OBJECT) {
        complaints_add(complaints, file, s->root->line, s->root->column,
                       "must be an object: { ... }");
        return false;
    }
    s->reader.config = config_create(file);
    config_set_defaults(&s->reader, "", s->reader.config);
    return true;
}

static void source_close(struct source *s)
{
    scan_destroy(s->root);
    buffer_fini(&s->text);
}

/* --- what one value means for another --- */

/* The node at a dotted path below `object`, or the deepest one on the way to it. */
static struct scan_node *node_near(struct scan_node *object, const char *path, bool *out_is_there)
{
    struct scan_node *node = object;
    char rest[CONFIG_PATH_SIZE], *more = rest;

    (void)snprintf(rest, sizeof rest, "%s", path);
    for (const char *key; (key = strsep(&more, ".")) != NULL;) {
        struct scan_node *child = node->kind == SCAN_OBJECT ? scan_child(node, key) : NULL;

        if (child == NULL) {
            *out_is_there = false;
            return node;
        }
        node = child;
    }
    *out_is_there = true;
    return node;
}

/* Complained about already: then its default stands in, and comparing that would only confuse. */
static bool is_wrong(struct scan_node *object, const char *path)
{
    bool is_there;

    return node_near(object, path, &is_there)->is_wrong;
}

/* At the value; if it was left out, at the object that should hold it. */
__attribute__((format(printf, 5, 6))) static void complain_at(const struct source *s,
                                                              struct scan_node *object,
                                                              const char *shown, const char *path,
                                                              const char *fmt, ...)
{
    bool is_there;
    const struct scan_node *node = node_near(object, path, &is_there);
    bool has_key = !is_there && node->key != NULL;
    char *text, full[CONFIG_PATH_SIZE];
    va_list args;

    va_start(args, fmt);
    ENSURE(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    config_path_join(full, shown, path);
    complaints_add(s->reader.complaints, s->reader.file, has_key ? node->key_line : node->line,
                   has_key ? node->key_column : node->column, "%s%s: %s", full,
                   is_there ? "" : " (its default)", text);
    free(text);
}

/* A span and where it came from. */
struct span {
    struct scan_node *object;
    const char *shown; /* path of object; "" is the root */
    const char *path;  /* below object */
    int64_t us;
};

/* The first must not exceed the second, or must be below it. */
static void check_order(const struct source *s, const struct span *inner, const struct span *outer,
                        bool may_be_equal, const struct span *blamed)
{
    char inner_text[32], outer_text[32];
    const char *word = may_be_equal ? "not be longer" : "be shorter";

    if (inner->us < outer->us || (may_be_equal && inner->us == outer->us))
        return;
    if (is_wrong(inner->object, inner->path) || is_wrong(outer->object, outer->path))
        return;
    duration_format(inner->us, inner_text);
    duration_format(outer->us, outer_text);
    if (blamed == inner)
        complain_at(s, inner->object, inner->shown, inner->path, "%s must %s than %s, %s",
                    inner_text, word, outer->path, outer_text);
    else
        complain_at(s, outer->object, outer->shown, outer->path,
                    "%s is too short: %s, %s, must %s than it", outer_text, inner->path, inner_text,
                    word);
}

static struct span request_timeout_of(const struct source *s)
{
    return (struct span){s->root, "", "server.request_timeout",
                         s->reader.config->server.request_timeout_us};
}

/* The one that was given is wrong. */
static void check_ports(const struct source *s)
{
    bool is_given;

    (void)node_near(s->root, "admin.port", &is_given);
    complain_at(s, s->root, "", is_given ? "admin.port" : "server.port",
                "%u is %s too; they must differ", s->reader.config->admin.port,
                is_given ? "server.port" : "admin.port");
}

static void check_server(const struct source *s)
{
    const struct config *c = s->reader.config;
    struct span request = request_timeout_of(s);
    struct span caller = {s->root, "", "server.caller_timeout", c->server.caller_timeout_us};
    bool is_given;

    (void)node_near(s->root, caller.path, &is_given);
    check_order(s, &request, &caller, false, is_given ? &caller : &request);
    if (c->server.port == c->admin.port && !is_wrong(s->root, "server.port") &&
        !is_wrong(s->root, "admin.port"))
        check_ports(s);
}

static void check_connections(const struct source *s, struct scan_node *node, const char *shown,
                              struct dependency_config *d)
{
    if (d->connections == 0)
        d->connections = d->bulkhead.max_concurrent;
    if (d->connections < d->bulkhead.max_concurrent && !is_wrong(node, "connections") &&
        !is_wrong(node, "bulkhead.max_concurrent"))
        complain_at(s, node, shown, "connections",
                    "fewer connections than bulkhead.max_concurrent (%u) would be shared between "
                    "calls, which is not supported yet; leave it out, or give at least as many",
                    d->bulkhead.max_concurrent);
}

static void check_dependency(const struct source *s, struct scan_node *node,
                             struct dependency_config *d)
{
    char shown[CONFIG_PATH_SIZE];
    struct span request = request_timeout_of(s);
    struct span query = {node, shown, "query_timeout", d->query_timeout_us};
    struct span connect = {node, shown, "connect_timeout", d->connect_timeout_us};
    struct span reset = {node, shown, "breaker.reset_timeout", d->breaker.reset_timeout_us};
    struct span most = {node, shown, "breaker.max_reset_timeout", d->breaker.max_reset_timeout_us};
    bool is_given;

    if (node->is_wrong || is_wrong(node, "kind"))
        return;
    config_path_join(shown, "dependencies", d->name);
    check_order(s, &query, &request, true, &query);
    check_order(s, &connect, &request, false, &connect);
    (void)node_near(node, reset.path, &is_given);
    check_order(s, &reset, &most, true, is_given ? &reset : &most);
    check_connections(s, node, shown, d);
}

static void check_all(const struct source *s)
{
    const struct config *c = s->reader.config;
    struct scan_node *map = scan_child(s->root, "dependencies");

    check_server(s);
    if (c->dependency_count == 0 && (map == NULL || !map->is_wrong))
        complaints_add(s->reader.complaints, s->reader.file, map != NULL ? map->key_line : 1,
                       map != NULL ? map->key_column : 1,
                       "dependencies: at least one is needed, with its kind and conninfo");
    for (size_t i = 0; i < c->dependency_count; i++)
        check_dependency(s, scan_child(map, c->dependencies[i].name), &c->dependencies[i]);
}

/* --- the SQL files --- */

static void api_folder_resolve(struct config *config)
{
    char *joined;

    if (config->api_folder[0] == '/' || strcmp(config->folder, ".") == 0)
        return;
    ENSURE(asprintf(&joined, "%s%s%s", config->folder, strcmp(config->folder, "/") == 0 ? "" : "/",
                    config->api_folder) > 0);
    free(config->api_folder);
    config->api_folder = joined;
}

static bool is_folder(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(st.st_mode);
}

static struct catalog_source *sources_of(const struct config *config)
{
    struct catalog_source *sources = calloc(config->dependency_count + 1, sizeof *sources);

    ENSURE(sources != NULL);
    for (size_t i = 0; i < config->dependency_count; i++)
        sources[i] = (struct catalog_source){.name = config->dependencies[i].name,
                                             .is_read_only = config->dependencies[i].is_read_only};
    return sources;
}

static void catalog_load(const struct source *s)
{
    struct config *config = s->reader.config;
    bool is_limit_known = !is_wrong(s->root, "server.request_timeout");
    struct catalog_source *sources;

    if (is_wrong(s->root, "api"))
        return;
    api_folder_resolve(config);
    if (!is_folder(config->api_folder)) {
        complain_at(s, s->root, "", "api", "folder %s cannot be read: %s", config->api_folder,
                    error_of_errno(errno));
        return;
    }
    sources = sources_of(config);
    config->catalog = catalog_read(
        config->api_folder, config->api_folder, sources, config->dependency_count,
        is_limit_known ? config->server.request_timeout_us : INT64_MAX, s->reader.complaints);
    free(sources);
}

/* --- public --- */

const char *config_file_name(const char *given)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here writes the environment */
    const char *from_environment = getenv("WEIR_CONFIG");

    if (given != NULL)
        return given;
    return from_environment != NULL && from_environment[0] != '\0' ? from_environment : "weir.json";
}

struct config *config_load(const char *file, struct complaints *complaints)
{
    struct source s;

    if (source_open(&s, file, complaints)) {
        config_read_object(&s.reader, s.root, "", "", s.reader.config);
        check_all(&s);
        catalog_load(&s);
    }
    source_close(&s);
    return s.reader.config;
}

static void dependency_fini(struct dependency_config *d)
{
    free(d->name);
    free(d->conninfo);
    free(d->password_file);
}

void config_destroy(struct config *config)
{
    if (config == NULL)
        return;
    catalog_destroy(config->catalog);
    for (size_t i = 0; i < config->dependency_count; i++)
        dependency_fini(&config->dependencies[i]);
    free(config->dependencies);
    for (size_t i = 0; i < config->server.cors_origin_count; i++)
        free(config->server.cors_origins[i]);
    free(config->server.cors_origins);
    free(config->server.address);
    free(config->admin.address);
    free(config->admin.token_file);
    free(config->api_folder);
    free(config->folder);
    free(config->file);
    free(config);
}

/* Who listens everywhere is asked at home; an IPv6 address in a URL needs brackets. */
static void admin_url_format(const struct admin_config *admin, char *out_text, size_t size)
{
    const char *host = admin->address;
    bool is_v6 = strchr(host, ':') != NULL;

    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    else if (strcmp(host, "::") == 0)
        host = "::1";
    (void)snprintf(out_text, size, "http://%s%s%s:%u/health", is_v6 ? "[" : "", host,
                   is_v6 ? "]" : "", admin->port);
}

static void first_error_format(const struct complaints *complaints, char *out_text, size_t size)
{
    const struct complaint *c = complaints->items;

    while (c->is_warning)
        c++;
    (void)snprintf(out_text, size, "%s:%d:%d: %s", c->file, c->line, c->column, c->text);
}

/* Reads the admin section alone: what is wrong elsewhere does not make a running weir unhealthy. */
bool config_admin_health_url(const char *file, char *out_text, size_t size)
{
    struct complaints complaints;
    struct scan_node *admin;
    struct source s;
    bool is_good;

    complaints_init(&complaints);
    if (source_open(&s, file, &complaints)) {
        admin = scan_child(s.root, "admin");
        if (admin != NULL && admin->kind == SCAN_OBJECT)
            config_read_object(&s.reader, admin, "admin", "admin", s.reader.config);
    }
    is_good = complaints.error_count == 0;
    if (is_good)
        admin_url_format(&s.reader.config->admin, out_text, size);
    else
        first_error_format(&complaints, out_text, size);
    config_destroy(s.reader.config);
    source_close(&s);
    complaints_fini(&complaints);
    return is_good;
}

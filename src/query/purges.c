#include <stdio.h>

#include "base/complaint.h"
#include "base/nearest.h"
#include "query/query_file_internal.h"

static void complain_of_method(const struct query_file *file, const struct line *method)
{
    char *wrong = copy_text(method->text, method->size_bytes);

    query_file_complain(file, method->number, method->column,
                        "@purges takes GET /path, the first line of another file, not '%s': only "
                        "answers to GETs are stored",
                        wrong);
    free(wrong);
}

/* False: complained. */
static bool check_words(const struct query_file *file, const struct line *method,
                        const struct line *path, const struct line *rest)
{
    if (method->size_bytes == 0)
        query_file_complain(file, method->number, method->column,
                            "@purges needs GET /path, the first line of another file");
    else if (method->size_bytes != strlen("GET") || memcmp(method->text, "GET", 3) != 0)
        complain_of_method(file, method);
    else if (path->size_bytes == 0 || path->text[0] != '/')
        query_file_complain(file, path->number, path->column,
                            "@purges GET needs a path, and a path starts with /");
    else if (rest->size_bytes > 0)
        query_file_complain(file, rest->number, rest->column,
                            "@purges: nothing may follow the path");
    else
        return true;
    return false;
}

static bool is_named_before(const struct query_file *file, const char *label)
{
    for (size_t i = 0; i < file->purges->count; i++)
        if (strcmp(file->purges->items[i].file, file->shown) == 0 &&
            strcmp(file->purges->items[i].label, label) == 0)
            return true;
    return false;
}

static void add_wish(struct query_file *file, const struct line *method, const struct line *path)
{
    struct purge_list *list = file->purges;
    struct purge_wish *wish;
    char *label;

    ENSURE(asprintf(&label, "GET %.*s", (int)path->size_bytes, path->text) >= 0);
    if (is_named_before(file, label)) {
        query_file_complain(file, method->number, method->column, "@purges names %s twice", label);
        free(label);
        return;
    }
    list->items = grow_by_one(list->items, list->count, sizeof *list->items);
    wish = &list->items[list->count++];
    wish->file = copy_text(file->shown, strlen(file->shown));
    wish->label = label;
    wish->line = method->number;
    wish->column = method->column;
}

void purges_read(struct query_file *file, int column, struct line rest)
{
    struct line method = line_take_word(&rest), path = line_take_word(&rest);

    if (file->has_first_line && !file->route->is_write)
        query_file_complain(file, rest.number, column,
                            "@purges is for writes: a GET makes no answer old");
    if (check_words(file, &method, &path, &rest))
        add_wish(file, &method, &path);
}

static struct route *find_route(const struct catalog *catalog, const char *label)
{
    for (size_t i = 0; i < catalog->route_count; i++)
        if (strcmp(catalog->routes[i].label, label) == 0)
            return &catalog->routes[i];
    return NULL;
}

/* A file is one route. */
static struct route *route_of_file(const struct catalog *catalog, const char *file)
{
    for (size_t i = 0; i < catalog->route_count; i++)
        if (strcmp(catalog->routes[i].file, file) == 0)
            return &catalog->routes[i];
    return NULL;
}

/* The nearest of those that are cached: nothing else can be meant. */
static void complain_of_label(const struct catalog *catalog, const struct purge_wish *wish,
                              struct complaints *complaints)
{
    const char **labels = calloc(catalog->route_count + 1, sizeof *labels), *near;
    size_t count = 0;

    ENSURE(labels != NULL);
    for (size_t i = 0; i < catalog->route_count; i++)
        if (catalog->routes[i].is_cached)
            labels[count++] = catalog->routes[i].label;
    near = nearest_word(wish->label, labels, count);
    complaints_add(complaints, wish->file, wish->line, wish->column,
                   "@purges: there is no route %s%s%s", wish->label,
                   near != NULL ? "; did you mean " : "", near != NULL ? near : "");
    free(labels);
}

static void resolve(struct catalog *catalog, const struct purge_wish *wish,
                    struct complaints *complaints)
{
    const struct route *target = find_route(catalog, wish->label);
    struct route *route = route_of_file(catalog, wish->file);

    if (target == NULL) {
        complain_of_label(catalog, wish, complaints);
    } else if (!target->is_cached) {
        complaints_add(complaints, wish->file, wish->line, wish->column,
                       "@purges: %s has no @cache, so nothing of it is stored", wish->label);
    } else if (route != NULL) {
        route->purges = grow_by_one(route->purges, route->purge_count, sizeof *route->purges);
        route->purges[route->purge_count++] = target->id;
    }
}

void purges_resolve(struct catalog *catalog, const struct purge_list *list,
                    struct complaints *complaints)
{
    for (size_t i = 0; i < list->count; i++)
        resolve(catalog, &list->items[i], complaints);
}

void purge_list_fini(struct purge_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].file);
        free(list->items[i].label);
    }
    free(list->items);
    *list = (struct purge_list){0};
}

#include "query/catalog.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/complaint.h"
#include "base/ensure.h"
#include "base/error.h"
#include "query/query_file_internal.h"
#include "query/route.h"

enum { FILE_MAX_BYTES = 1 << 20, FOLDER_MAX_DEPTH = 16 };

/* What stays the same over a whole catalog_read(). */
struct reader {
    struct catalog *catalog;
    const struct catalog_source *sources;
    size_t source_count;
    int64_t request_timeout_us;
    struct complaints *complaints;
    struct purge_list purges;
    size_t file_count;
};

static char *join(const char *folder, const char *name)
{
    char *path;

    ENSURE(asprintf(&path, "%s/%s", folder, name) >= 0);
    return path;
}

/* The whole file, malloc()ed, or NULL: complained. */
static char *load_text(const struct reader *reader, const char *path, const char *shown,
                       size_t *out_size)
{
    FILE *file = fopen(path, "re");
    char *text;

    if (file == NULL) {
        complaints_add(reader->complaints, shown, 0, 0, "cannot read it: %s",
                       error_of_errno(errno));
        return NULL;
    }
    text = malloc(FILE_MAX_BYTES + 1);
    ENSURE(text != NULL);
    *out_size = fread(text, 1, FILE_MAX_BYTES + 1, file);
    if (ferror(file) == 0 && *out_size <= FILE_MAX_BYTES) {
        (void)fclose(file);
        return text;
    }
    complaints_add(reader->complaints, shown, 0, 0, "%s",
                   ferror(file) != 0 ? "cannot read it" : "larger than 1MiB");
    (void)fclose(file);
    free(text);
    return NULL;
}

static void read_file(struct reader *reader, const char *path, const char *shown)
{
    struct catalog *catalog = reader->catalog;
    struct route route = {0};
    struct query_file file = {.shown = shown,
                              .sources = reader->sources,
                              .source_count = reader->source_count,
                              .request_timeout_us = reader->request_timeout_us,
                              .complaints = reader->complaints,
                              .route = &route,
                              .purges = &reader->purges};
    char *text = load_text(reader, path, shown, &file.size_bytes);

    reader->file_count++;
    if (text == NULL)
        return;
    file.text = text;
    if (query_file_read(&file)) {
        catalog->routes =
            grow_by_one(catalog->routes, catalog->route_count, sizeof *catalog->routes);
        memcpy(&catalog->routes[catalog->route_count++], &route, sizeof route);
    } else {
        route_fini(&route);
    }
    free(text);
}

static bool ends_in_sql(const char *name)
{
    size_t size = strlen(name);

    return size > 4 && strcmp(name + size - 4, ".sql") == 0;
}

static void read_folder(struct reader *reader, const char *path, const char *shown, int depth);

/* Links are followed: that is how mounted folders often look. */
static void read_entry(struct reader *reader, const char *path, const char *shown, const char *name,
                       int depth)
{
    struct stat status;

    if (stat(path, &status) != 0) {
        if (ends_in_sql(name))
            complaints_add(reader->complaints, shown, 0, 0, "cannot read it: %s",
                           error_of_errno(errno));
    } else if (S_ISDIR(status.st_mode)) {
        read_folder(reader, path, shown, depth + 1);
    } else if (ends_in_sql(name)) {
        if (S_ISREG(status.st_mode))
            read_file(reader, path, shown);
        else
            complaints_add(reader->complaints, shown, 0, 0, "not a regular file");
    }
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void read_folder(struct reader *reader, const char *path, const char *shown, int depth)
{
    struct dirent **entries;
    int count;

    if (depth > FOLDER_MAX_DEPTH) {
        complaints_add(reader->complaints, shown, 0, 0, "folders nest more than %d deep",
                       FOLDER_MAX_DEPTH);
        return;
    }
    count = scandir(path, &entries, is_visible, alphasort);
    if (count < 0) {
        complaints_add(reader->complaints, shown, 0, 0, "cannot read the folder: %s",
                       error_of_errno(errno));
        return;
    }
    for (int i = 0; i < count; i++) {
        char *child = join(path, entries[i]->d_name);
        char *child_shown = join(shown, entries[i]->d_name);

        read_entry(reader, child, child_shown, entries[i]->d_name, depth);
        free(child);
        free(child_shown);
        free(entries[i]);
    }
    free(entries);
}

static int by_label(const void *a, const void *b)
{
    const struct route *x = a, *y = b;
    int labels = strcmp(x->label, y->label);

    return labels != 0 ? labels : strcmp(x->file, y->file);
}

/* One path, whatever the parameters are called. */
static bool have_one_path(const struct route *a, const struct route *b)
{
    if (a->method != b->method || a->segment_count != b->segment_count)
        return false;
    for (size_t i = 0; i < a->segment_count; i++) {
        const struct path_segment *x = &a->segments[i], *y = &b->segments[i];

        if (x->is_parameter != y->is_parameter ||
            (!x->is_parameter && strcmp(x->text, y->text) != 0))
            return false;
    }
    return true;
}

static void complain_of_doubles(struct catalog *catalog, struct complaints *complaints)
{
    for (size_t i = 0; i < catalog->route_count; i++) {
        for (size_t k = 0; k < i; k++) {
            const struct route *first = &catalog->routes[k], *second = &catalog->routes[i];

            if (have_one_path(first, second)) {
                complaints_add(complaints, second->file, second->first_line, second->first_column,
                               "%s: the same method and path as %s in %s:%d", second->label,
                               first->label, first->file, first->first_line);
                break;
            }
        }
    }
}

struct catalog *catalog_read(const char *folder, const char *shown_folder,
                             const struct catalog_source *sources, size_t source_count,
                             int64_t request_timeout_us, struct complaints *complaints)
{
    struct catalog *catalog = calloc(1, sizeof *catalog);
    struct reader reader = {.catalog = catalog,
                            .sources = sources,
                            .source_count = source_count,
                            .request_timeout_us = request_timeout_us,
                            .complaints = complaints};
    size_t errors_before = complaints->error_count;

    ENSURE(catalog != NULL);
    read_folder(&reader, folder, shown_folder, 0);
    if (reader.file_count == 0 && complaints->error_count == errors_before)
        complaints_warn(complaints, shown_folder, 0, 0, "the folder has no .sql file");
    if (catalog->route_count > 0)
        qsort(catalog->routes, catalog->route_count, sizeof *catalog->routes, by_label);
    for (size_t i = 0; i < catalog->route_count; i++)
        catalog->routes[i].id = (uint32_t)i;
    complain_of_doubles(catalog, complaints);
    purges_resolve(catalog, &reader.purges, complaints);
    purge_list_fini(&reader.purges);
    return catalog;
}

void catalog_destroy(struct catalog *catalog)
{
    if (catalog == NULL)
        return;
    for (size_t i = 0; i < catalog->route_count; i++)
        route_fini(&catalog->routes[i]);
    free(catalog->routes);
    free(catalog);
}

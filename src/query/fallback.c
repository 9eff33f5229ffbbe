#include <stdarg.h>
#include <stdio.h>

#include "query/json_input.h"
#include "query/query_file_internal.h"

/* An @fallback's JSON being judged. The same reader as for callers' JSON: it is strict, and leaves
 * digits alone, so that what is served is what was written. */
struct fallback {
    struct query_file *file;
    const char *text; /* borrowed */
    int line, column; /* of its first byte */
    bool is_wrong;    /* complained */
};

PRINTF_LIKE(3, 4)
static void complain(struct fallback *f, const char *at, const char *fmt, ...)
{
    char *text;
    va_list args;

    va_start(args, fmt);
    ENSURE(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    query_file_complain(f->file, f->line, f->column + (int)(at - f->text), "@fallback %s", text);
    free(text);
    f->is_wrong = true;
}

/* --- a name that stands twice in an object --- */

struct name {
    const char *text; /* decoded */
    size_t size_bytes;
    const char *at; /* where it stands */
};

static int by_text(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    size_t common = x->size_bytes < y->size_bytes ? x->size_bytes : y->size_bytes;
    int order = memcmp(x->text, y->text, common);

    if (order == 0)
        order = (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
    return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

static size_t count_members(const struct json_input_value *object)
{
    struct json_input inside = json_input_open(object);
    struct json_input_value name, value;
    size_t count = 0;

    while (json_input_next_member(&inside, &name, &value))
        count++;
    return count;
}

/* Sorted, so that many names cost little more than few. */
static void check_names(struct fallback *f, const struct json_input_value *object)
{
    struct json_input inside = json_input_open(object);
    struct json_input_value name, value;
    size_t count = 0;
    struct name *names = calloc(count_members(object) + 1, sizeof *names);
    char *texts = malloc(object->raw_bytes), *at = texts;

    ENSURE(names != NULL && texts != NULL);
    while (json_input_next_member(&inside, &name, &value)) {
        names[count] = (struct name){at, json_input_decode(&name, at), name.raw};
        at += names[count++].size_bytes;
    }
    qsort(names, count, sizeof *names, by_text);
    for (size_t i = 1; i < count; i++)
        if (names[i].size_bytes == names[i - 1].size_bytes &&
            memcmp(names[i].text, names[i - 1].text, names[i].size_bytes) == 0)
            complain(f, names[i].at, "holds this name twice in one object");
    free(texts);
    free(names);
}

/* As deep as json_input lets values nest. */
static void check_all_names(struct fallback *f, const struct json_input_value *value)
{
    struct json_input inside;
    struct json_input_value name, child;

    if (value->kind == JSON_INPUT_ARRAY) {
        inside = json_input_open(value);
        while (json_input_next_element(&inside, &child))
            check_all_names(f, &child);
    } else if (value->kind == JSON_INPUT_OBJECT) {
        check_names(f, value);
        inside = json_input_open(value);
        while (json_input_next_member(&inside, &name, &child))
            check_all_names(f, &child);
    }
}

/* --- reading --- */

static void check_text(struct fallback *f, size_t size_bytes)
{
    struct json_input in;
    struct json_input_value value;

    json_input_init(&in, f->text, size_bytes);
    if (!json_input_document(&in, &value))
        complain(f, f->text + in.at, "is no valid JSON: %s", in.problem);
    else if (value.has_lone_surrogate)
        complain(f, f->text, "holds half of a surrogate pair");
    else
        check_all_names(f, &value);
}

void fallback_read(struct query_file *file, int column, struct line rest)
{
    struct fallback f = {
        .file = file, .text = rest.text, .line = rest.number, .column = rest.column};
    struct route *route = file->route;

    if (file->has_first_line && route->is_write)
        query_file_complain(file, rest.number, column,
                            "@fallback is for GET: who sends a %s must know that it failed",
                            http_method_name(route->method));
    if (rest.size_bytes == 0) {
        query_file_complain(file, rest.number, rest.column, "@fallback needs a JSON value");
        return;
    }
    check_text(&f, rest.size_bytes);
    if (f.is_wrong)
        return;
    free(route->fallback); /* of one that was given before: complained */
    route->fallback = copy_text(rest.text, rest.size_bytes);
    route->fallback_bytes = rest.size_bytes;
    file->fallback_line = rest.number;
    file->fallback_column = rest.column;
}

/* --- what @result makes of it --- */

static bool is_whole(const struct json_input_value *value)
{
    if (value->kind != JSON_INPUT_NUMBER)
        return false;
    for (size_t i = 0; i < value->raw_bytes; i++)
        if (value->raw[i] < '0' || value->raw[i] > '9')
            return false;
    return true;
}

static bool is_rows_object(const struct json_input_value *value)
{
    struct json_input inside;
    struct json_input_value name, rows;

    if (value->kind != JSON_INPUT_OBJECT)
        return false;
    inside = json_input_open(value);
    return json_input_next_member(&inside, &name, &rows) && name.raw_bytes == strlen("\"rows\"") &&
           memcmp(name.raw, "\"rows\"", name.raw_bytes) == 0 && is_whole(&rows) &&
           !json_input_next_member(&inside, &name, &rows);
}

/* The value, or the element, that @result many would not make; NULL: none. */
static const char *find_no_object(const struct json_input_value *value)
{
    struct json_input inside;
    struct json_input_value element;

    if (value->kind != JSON_INPUT_ARRAY)
        return value->raw;
    inside = json_input_open(value);
    while (json_input_next_element(&inside, &element))
        if (element.kind != JSON_INPUT_OBJECT)
            return element.raw;
    return NULL;
}

static void check_shape(struct fallback *f, const struct json_input_value *value)
{
    const char *wrong = NULL;

    switch (f->file->route->result) {
    case RESULT_MANY:
        wrong = find_no_object(value);
        if (wrong != NULL)
            complain(f, wrong, "must be an array of objects, as @result many answers");
        break;
    case RESULT_ONE:
        if (value->kind != JSON_INPUT_OBJECT)
            complain(f, value->raw, "must be an object, as @result one answers");
        break;
    case RESULT_EXEC:
        if (!is_rows_object(value))
            complain(f, value->raw, "must be {\"rows\": N}, as @result exec answers");
        break;
    case RESULT_VALUE:
    case RESULT_KIND_COUNT:
        break;
    }
}

void fallback_finish(struct query_file *file)
{
    const struct route *route = file->route;
    struct fallback f = {.file = file,
                         .text = route->fallback,
                         .line = file->fallback_line,
                         .column = file->fallback_column};
    struct json_input in;
    struct json_input_value value;

    if (route->fallback == NULL || file->is_result_wrong)
        return;
    json_input_init(&in, route->fallback, route->fallback_bytes);
    ENSURE(json_input_document(&in, &value));
    check_shape(&f, &value);
}

#include <stdarg.h>
#include <stdio.h>

#include "base/complaint.h"
#include "base/nearest.h"
#include "base/quantity.h"
#include "base/utf8.h"
#include "query/params.h"
#include "query/query_file_internal.h"

void query_file_complain(const struct query_file *file, int line, int column, const char *fmt, ...)
{
    char *text;
    va_list args;

    va_start(args, fmt);
    ENSURE(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    complaints_add(file->complaints, file->shown, line, column, "%s", text);
    free(text);
}

void line_trim(struct line *line)
{
    while (line->size_bytes > 0 && is_blank(line->text[0])) {
        line->text++;
        line->size_bytes--;
        line->column++;
    }
    while (line->size_bytes > 0 && is_blank(line->text[line->size_bytes - 1]))
        line->size_bytes--;
}

struct line line_take_word(struct line *line)
{
    struct line word = *line;
    size_t size = 0;

    while (size < line->size_bytes && !is_blank(line->text[size]))
        size++;
    word.size_bytes = size;
    line->text += size;
    line->size_bytes -= size;
    line->column += (int)size;
    line_trim(line);
    return word;
}

static void read_method(struct query_file *file, const struct line *word)
{
    const char *names[METHOD_COUNT], *near;
    char *wrong;

    if (http_method_parse(word->text, word->size_bytes, &file->route->method)) {
        file->has_first_line = true;
        return;
    }
    for (unsigned i = 0; i < METHOD_COUNT; i++)
        names[i] = http_method_name((enum http_method)i);
    wrong = copy_text(word->text, word->size_bytes);
    near = nearest_word(wrong, names, METHOD_COUNT);
    query_file_complain(file, word->number, word->column,
                        "the first line must be METHOD /path, with GET, POST, PUT, PATCH or "
                        "DELETE, not '%s'%s%s",
                        wrong, near != NULL ? "; did you mean " : "", near != NULL ? near : "");
    free(wrong);
}

/* What may stand in a path as it is; anything else is written %XX. */
static bool is_path_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (unsigned char)c >= 0x80 || (c != '\0' && strchr("-._~!$&'()*+,;=:@%", c) != NULL);
}

static const char *literal_problem(const char *text, size_t size_bytes)
{
    if (size_bytes == 0)
        return "a segment of the path is empty (a trailing slash makes one)";
    if ((size_bytes == 1 && text[0] == '.') || (size_bytes == 2 && memcmp(text, "..", 2) == 0))
        return ". and .. are no segments of a path";
    for (size_t i = 0; i < size_bytes; i++) {
        if (text[i] == '{' || text[i] == '}')
            return "a parameter is a whole segment: /{name}";
        if (!is_path_character(text[i]))
            return "a character that a path does not hold: write it as %XX";
    }
    return NULL;
}

static const char *read_literal(struct path_segment *segment, const char *text, size_t size_bytes)
{
    const char *problem = literal_problem(text, size_bytes);
    size_t decoded;

    if (problem != NULL)
        return problem;
    segment->text = copy_text(text, size_bytes);
    if (!percent_decode(text, size_bytes, false, segment->text, &decoded))
        return "a % that starts no %XX";
    segment->text[decoded] = '\0';
    if (memchr(segment->text, '\0', decoded) != NULL || !utf8_is_valid(segment->text, decoded))
        return "the %XX of the path must be UTF-8 without NUL";
    return NULL;
}

static const char *read_parameter(const struct route *route, struct path_segment *segment,
                                  const char *text, size_t size_bytes)
{
    if (size_bytes < 2 || text[size_bytes - 1] != '}')
        return "the brace is not closed: a parameter is a whole segment, /{name}";
    text++;
    size_bytes -= 2;
    if (!param_name_is_valid(text, size_bytes))
        return "the name in braces is small letters, digits and _, and starts with no digit";
    segment->is_parameter = true;
    segment->text = copy_text(text, size_bytes);
    for (const struct path_segment *other = route->segments; other < segment; other++)
        if (other->is_parameter && strcmp(other->text, segment->text) == 0)
            return "the path names one parameter twice";
    return NULL;
}

static const char *read_segment(struct route *route, const char *text, size_t size_bytes,
                                int column)
{
    struct path_segment *segment;

    if (route->segment_count == SEGMENT_MAX_COUNT)
        return "a path has at most 32 segments";
    route->segments = grow_by_one(route->segments, route->segment_count, sizeof *route->segments);
    segment = &route->segments[route->segment_count++];
    *segment = (struct path_segment){.column = column};
    if (size_bytes > 0 && text[0] == '{')
        return read_parameter(route, segment, text, size_bytes);
    return read_literal(segment, text, size_bytes);
}

static bool is_taken(const struct route *route)
{
    return route->segment_count > 0 && !route->segments[0].is_parameter &&
           (strcmp(route->segments[0].text, "health") == 0 ||
            strcmp(route->segments[0].text, "problems") == 0);
}

static bool complain_of_path(struct query_file *file, const struct line *path, size_t at,
                             const char *problem)
{
    query_file_complain(file, path->number, path->column + (int)at, "%s", problem);
    return false;
}

static bool read_path(struct query_file *file, const struct line *path)
{
    const char *problem;
    size_t at = 1;

    if (path->size_bytes == 0 || path->text[0] != '/')
        return complain_of_path(file, path, 0,
                                "the first line must be METHOD /path: a path starts with /");
    while (path->size_bytes > 1 && at <= path->size_bytes) {
        const char *slash = memchr(path->text + at, '/', path->size_bytes - at);
        size_t size = slash != NULL ? (size_t)(slash - path->text) - at : path->size_bytes - at;

        problem = read_segment(file->route, path->text + at, size, path->column + (int)at);
        if (problem != NULL)
            return complain_of_path(file, path, at, problem);
        at += size + 1;
    }
    if (is_taken(file->route))
        return complain_of_path(file, path, 0, "/health and /problems are taken");
    return true;
}

static void read_first_line(struct query_file *file, struct line line)
{
    struct route *route = file->route;
    struct line method = line_take_word(&line), path = line_take_word(&line);
    size_t label_bytes;

    route->first_line = method.number;
    route->first_column = method.column;
    read_method(file, &method);
    /* Both are always read, so that all mistakes are told. */
    file->has_first_line = read_path(file, &path) && file->has_first_line;
    if (line.size_bytes > 0)
        query_file_complain(file, line.number, line.column, "nothing may follow the path");
    if (!file->has_first_line)
        return;
    route->is_write = route->method != METHOD_GET;
    route->is_idempotent = route->method != METHOD_POST && route->method != METHOD_PATCH;
    route->template = copy_text(path.text, path.size_bytes);
    label_bytes = strlen(http_method_name(route->method)) + path.size_bytes + 2;
    route->label = malloc(label_bytes);
    ENSURE(route->label != NULL);
    (void)snprintf(route->label, label_bytes, "%s %s", http_method_name(route->method),
                   route->template);
}

static void add_description(struct route *route, const struct line *line)
{
    size_t size = strlen(route->description), needed = size + line->size_bytes + 2;
    char *grown = realloc(route->description, needed);

    ENSURE(grown != NULL);
    route->description = grown;
    (void)snprintf(grown + size, needed - size, "%s%.*s", size > 0 ? "\n" : "",
                   (int)line->size_bytes, line->text);
}

static void trim_description(struct route *route)
{
    size_t size = strlen(route->description);

    while (size > 0 && route->description[size - 1] == '\n')
        route->description[--size] = '\0';
}

/* Where the reading of the file stands. */
struct cursor {
    size_t at;
    int line_number;
};

/* The line at the cursor, with everything on it; the cursor moves on. */
static struct line take_line(const struct query_file *file, struct cursor *cursor)
{
    const char *start = file->text + cursor->at;
    size_t left = file->size_bytes - cursor->at;
    const char *newline = memchr(start, '\n', left);
    struct line line = {.text = start,
                        .size_bytes = newline != NULL ? (size_t)(newline - start) : left,
                        .number = cursor->line_number,
                        .column = 1};

    cursor->at += line.size_bytes + (newline != NULL);
    cursor->line_number += newline != NULL;
    return line;
}

/* Skips blank lines, and takes the dashes off the next one. False: it is no comment (the cursor is
 * back at its start). */
static bool take_comment(const struct query_file *file, struct cursor *cursor, struct line *out)
{
    struct cursor before = *cursor;
    struct line line = take_line(file, cursor);

    line_trim(&line);
    if (line.size_bytes < 2 || memcmp(line.text, "--", 2) != 0) {
        *cursor = before;
        return false;
    }
    line.text += 2;
    line.size_bytes -= 2;
    line.column += 2;
    line_trim(&line);
    *out = line;
    return true;
}

static void skip_blank_lines(const struct query_file *file, struct cursor *cursor)
{
    while (cursor->at < file->size_bytes) {
        struct cursor before = *cursor;
        struct line line = take_line(file, cursor);

        line_trim(&line);
        if (line.size_bytes > 0) {
            *cursor = before;
            return;
        }
    }
}

static void read_block(struct query_file *file, struct cursor *cursor)
{
    struct line line;

    while (cursor->at < file->size_bytes && take_comment(file, cursor, &line)) {
        if (line.size_bytes > 0 && line.text[0] == '@')
            setting_read(file, &line);
        else if (line.size_bytes > 0 || file->route->description[0] != '\0')
            add_description(file->route, &line);
    }
    trim_description(file->route);
    settings_finish(file);
}

/* Nothing else is read of a file that holds what is no text. */
static bool check_characters(const struct query_file *file)
{
    int line = 1, column = 1;

    for (size_t i = 0; i < file->size_bytes;) {
        size_t bytes = utf8_character(file->text + i, file->size_bytes - i);

        if (bytes == 0 || file->text[i] == '\0') {
            query_file_complain(file, line, column, "%s",
                                bytes == 0 ? "a byte that is not valid UTF-8" : "a NUL character");
            return false;
        }
        column = file->text[i] == '\n' ? 1 : column + (int)bytes;
        line += file->text[i] == '\n';
        i += bytes;
    }
    return true;
}

static void set_defaults(struct query_file *file)
{
    struct route *route = file->route;

    route->file = copy_text(file->shown, strlen(file->shown));
    route->description = copy_text("", 0);
    route->success_status = 200;
    route->max_rows = strtoull(DEFAULT_MAX_ROWS_TEXT, NULL, 10);
    ENSURE(size_parse(DEFAULT_MAX_BYTES_TEXT, strlen(DEFAULT_MAX_BYTES_TEXT), &route->max_bytes));
}

bool query_file_read(struct query_file *file)
{
    struct cursor cursor = {.line_number = 1};
    struct line line;

    set_defaults(file);
    if (file->size_bytes >= 3 && memcmp(file->text, "\xEF\xBB\xBF", 3) == 0) {
        file->text += 3; /* a byte order mark, as some editors leave */
        file->size_bytes -= 3;
    }
    if (!check_characters(file))
        return false;
    skip_blank_lines(file, &cursor);
    if (cursor.at == file->size_bytes || !take_comment(file, &cursor, &line)) {
        query_file_complain(file, cursor.line_number, 1,
                            "the first line must be a comment: -- METHOD /path");
        return false;
    }
    read_first_line(file, line);
    read_block(file, &cursor);
    statement_read(file, file->text + cursor.at, file->size_bytes - cursor.at, cursor.line_number,
                   1);
    return file->has_first_line;
}

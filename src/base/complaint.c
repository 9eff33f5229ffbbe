#include "base/complaint.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

void complaints_init(struct complaints *c)
{
    *c = (struct complaints){0};
}

void complaints_fini(struct complaints *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->items[i].file);
        free(c->items[i].text);
    }
    free(c->items);
    complaints_init(c);
}

/* File names and texts quote what somebody wrote: a line stays a line, and a terminal is not told
 * anything. */
static void clean(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7F)
            *text = '?';
}

static void add(struct complaints *c, const char *file, int line, int column, bool is_warning,
                char *text) /* adopted */
{
    struct complaint *items = realloc(c->items, (c->count + 1) * sizeof *items);
    char *own_file = strdup(file);

    ENSURE(items != NULL && own_file != NULL);
    clean(own_file);
    clean(text);
    c->items = items;
    c->items[c->count++] = (struct complaint){.file = own_file,
                                              .line = line > 0 ? line : 1,
                                              .column = column > 0 ? column : 1,
                                              .is_warning = is_warning,
                                              .text = text};
    c->error_count += !is_warning;
}

void complaints_add(struct complaints *c, const char *file, int line, int column, const char *fmt,
                    ...)
{
    char *text;
    va_list args;

    va_start(args, fmt);
    ENSURE(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    add(c, file, line, column, false, text);
}

void complaints_warn(struct complaints *c, const char *file, int line, int column, const char *fmt,
                     ...)
{
    char *text;
    va_list args;

    va_start(args, fmt);
    ENSURE(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    add(c, file, line, column, true, text);
}

static int by_place(const void *a, const void *b)
{
    const struct complaint *x = a, *y = b;
    int files = strcmp(x->file, y->file);

    if (files != 0)
        return files;
    return x->line != y->line ? x->line - y->line : x->column - y->column;
}

void complaints_print(struct complaints *c, FILE *out)
{
    if (c->count > 0)
        qsort(c->items, c->count, sizeof *c->items, by_place);
    for (size_t i = 0; i < c->count; i++)
        (void)fprintf(out, "%s:%d:%d: %s%s\n", c->items[i].file, c->items[i].line,
                      c->items[i].column, c->items[i].is_warning ? "warning: " : "",
                      c->items[i].text);
}

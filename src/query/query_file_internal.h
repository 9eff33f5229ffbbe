/* query_file_internal.h - one SQL file on its way to a route: what the readers of its parts share.
 * SPDX-License-Identifier: MIT
 *
 *   query_file.c   comment block and statement; the METHOD /path line
 *   words.c        a setting's line, cut into words
 *   settings.c     @from, @result, @timeout ...
 *   param_spec.c   @param
 *   cache_spec.c   @cache
 *   fallback.c     @fallback
 *   purges.c       @purges, and what it names when all files are read
 *   statement.c    the SQL: :names to $n, and what no file may do
 *
 * Owner    everything read goes into `route` at once, so that route_fini() frees it after any
 * mistake. Errors   all mistakes go to `complaints`. Out of memory ends the process: this runs at
 * start. */
#ifndef QUERY_QUERY_FILE_INTERNAL_H
#define QUERY_QUERY_FILE_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/error.h"
#include "query/catalog.h"
#include "query/route.h"

struct complaints;

enum { SEGMENT_MAX_COUNT = 32, PARAM_MAX_COUNT = 1000 };

/* As people read them: they are documented in these words. */
#define DEFAULT_MAX_ROWS_TEXT  "10000"
#define DEFAULT_MAX_BYTES_TEXT "8MiB"

/* A line of the comment block, or its rest, without the dashes and the blanks around. */
struct line {
    const char *text; /* borrowed */
    size_t size_bytes;
    int number, column;
};

/* A route that an @purges names: to be found when all files are read. */
struct purge_wish {
    char *file;  /* owned: where it stands, as it is reported */
    char *label; /* owned: "GET /books/{id}" */
    int line, column;
};

struct purge_list {
    struct purge_wish *items; /* owned */
    size_t count;
};

struct query_file {
    const char *shown; /* borrowed: its path as it is reported */
    const char *text;  /* borrowed */
    size_t size_bytes;
    const struct catalog_source *sources; /* borrowed */
    size_t source_count;
    int64_t request_timeout_us;
    struct complaints *complaints; /* borrowed */
    struct route *route;           /* borrowed: being filled */
    struct purge_list *purges;     /* borrowed: grows by what @purges names */
    bool has_first_line;           /* method and path are known */
    bool is_result_wrong;          /* @result was complained about: what answers are is not known */
    unsigned settings_seen;        /* one bit a row of the table of settings */
    int cache_line, cache_column;  /* of @cache */
    int fallback_line, fallback_column; /* of the JSON of @fallback */
};

/* A word of a setting's line: `text`, or text=value. */
struct word {
    char *text;  /* owned; quotes taken off */
    char *value; /* owned; NULL: there is no = */
    int column, value_column;
};

struct words {
    struct word *items; /* owned */
    size_t count;
    int line, column; /* of the setting */
    int end_column;   /* one past its last byte: where a missing word would be */
};

/* False: a quote is not closed; *out_column says which. `out` needs words_fini() only on success.
 */
bool words_split(const char *text, size_t size_bytes, int line, int column, struct words *out,
                 int *out_column);
void words_fini(struct words *words);

bool setting_is_known(const char *name, size_t size_bytes);

/* A line "@name ...", from its @. */
void setting_read(struct query_file *file, const struct line *line);

/* What only the whole comment block can tell: the source, the path's parameters, what @cache and
 * @fallback mean together with the rest. */
void settings_finish(struct query_file *file);

void param_spec_read(struct query_file *file, const struct words *words);
void cache_spec_read(struct query_file *file, const struct words *words);
void cache_spec_finish(struct query_file *file);

/* Settings that words_split() would spoil: `rest` is what follows the name, `column` that of the @.
 */
void fallback_read(struct query_file *file, int column, struct line rest);
void fallback_finish(struct query_file *file);
void purges_read(struct query_file *file, int column, struct line rest);

/* After all files: ids for labels. */
void purges_resolve(struct catalog *catalog, const struct purge_list *list,
                    struct complaints *complaints);
void purge_list_fini(struct purge_list *list);

bool param_name_is_valid(const char *name, size_t size_bytes);

/* The statement: `text` is the rest of the file. */
void statement_read(struct query_file *file, const char *text, size_t size_bytes, int line,
                    int column);

void line_trim(struct line *line);

/* Up to the first blank; `line` goes on after it. */
struct line line_take_word(struct line *line);

/* False: no route at all (its method and path are not known). */
bool query_file_read(struct query_file *file);

PRINTF_LIKE(4, 5)
void query_file_complain(const struct query_file *file, int line, int column, const char *fmt, ...);

/* Between the words of a line; its end is not one of them. */
static inline bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static inline char *copy_text(const char *text, size_t size_bytes)
{
    char *copy = strndup(text, size_bytes);

    ENSURE(copy != NULL);
    return copy;
}

/* Room for one more: this runs at start only, where plain growth by one is fast enough. */
static inline void *grow_by_one(void *items, size_t count, size_t item_bytes)
{
    void *grown = reallocarray(items, count + 1, item_bytes);

    ENSURE(grown != NULL);
    return grown;
}
#endif

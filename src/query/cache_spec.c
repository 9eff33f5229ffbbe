#include <strings.h>

#include "base/buffer.h"
#include "base/nearest.h"
#include "base/quantity.h"
#include "query/query_file_internal.h"
#include "query/sql_word.h"

enum { VARY_MAX_BYTES = 256 * 1024 };

enum cache_word {
    CACHE_MAX_AGE,
    CACHE_STALE_WHILE_REVALIDATE,
    CACHE_STALE_IF_ERROR,
    CACHE_PRIVATE,
    CACHE_UNTIL,
    CACHE_WORD_COUNT
};

/* clang-format off */
static const struct {
    const char *name, *usage, *meaning, *otherwise;
    bool is_not_built;
} cache_words[CACHE_WORD_COUNT] = {
    [CACHE_MAX_AGE] = {"max-age", "=DURATION", "how old an answer may be that is sent from memory; each entry's own limit is "
                       "80 to 100 % of it", "must be given", false},
    [CACHE_STALE_WHILE_REVALIDATE] = {"stale-while-revalidate", "=DURATION", "how much longer it is still sent at once, while "
                                      "one call behind it fetches a new one", "0s", false},
    [CACHE_STALE_IF_ERROR] = {"stale-if-error", "=DURATION", "how much longer it stands in when every call failed with a 5xx "
                              "reason", "0s", false},
    [CACHE_PRIVATE] = {"private", "", "tells caches downstream to keep it for one caller alone", "shared by all callers", false},
    [CACHE_UNTIL] = {"until", "=notify:CHANNEL", "dropped when the database notifies", NULL, true},
};
/* clang-format on */

/* An @cache line being read. */
struct cache_spec {
    struct query_file *file;
    const struct words *words;
    bool is_given[CACHE_WORD_COUNT];
};

static void complain_of_word(const struct cache_spec *spec, const struct word *word)
{
    const char *names[CACHE_WORD_COUNT], *near;

    for (unsigned i = 0; i < CACHE_WORD_COUNT; i++)
        names[i] = cache_words[i].name;
    near = nearest_word(word->text, names, CACHE_WORD_COUNT);
    query_file_complain(spec->file, spec->words->line, word->column, "@cache: there is no '%s'%s%s",
                        word->text, near != NULL ? "; did you mean " : "",
                        near != NULL ? near : "");
}

static void read_duration(const struct cache_spec *spec, const struct word *word, int64_t *out_us)
{
    if (word->value == NULL)
        query_file_complain(spec->file, spec->words->line, word->column,
                            "@cache: %s needs a duration, such as %s=5s", word->text, word->text);
    else if (!duration_parse(word->value, strlen(word->value), out_us))
        query_file_complain(spec->file, spec->words->line, word->value_column,
                            "@cache: %s must be a duration such as 800ms, 5s or 10m", word->text);
}

static void take_word(const struct cache_spec *spec, enum cache_word id, const struct word *word)
{
    struct cache_policy *policy = &spec->file->route->cache;

    switch (id) {
    case CACHE_MAX_AGE:
        read_duration(spec, word, &policy->max_age_us);
        break;
    case CACHE_STALE_WHILE_REVALIDATE:
        read_duration(spec, word, &policy->stale_while_revalidate_us);
        break;
    case CACHE_STALE_IF_ERROR:
        read_duration(spec, word, &policy->stale_if_error_us);
        break;
    case CACHE_PRIVATE:
        policy->is_private = true;
        if (word->value != NULL)
            query_file_complain(spec->file, spec->words->line, word->column,
                                "@cache: private takes no value");
        break;
    case CACHE_UNTIL:
        query_file_complain(spec->file, spec->words->line, word->column,
                            "@cache: until= is not supported yet");
        break;
    case CACHE_WORD_COUNT:
        break;
    }
}

static void read_word(struct cache_spec *spec, const struct word *word)
{
    unsigned id = 0;

    while (id < CACHE_WORD_COUNT && strcmp(cache_words[id].name, word->text) != 0)
        id++;
    if (id == CACHE_WORD_COUNT) {
        complain_of_word(spec, word);
    } else if (spec->is_given[id]) {
        query_file_complain(spec->file, spec->words->line, word->column,
                            "@cache: %s is given twice", word->text);
    } else {
        spec->is_given[id] = true;
        take_word(spec, (enum cache_word)id, word);
    }
}

bool cache_word(size_t index, struct sql_word *out)
{
    if (index >= CACHE_WORD_COUNT)
        return false;
    *out = (struct sql_word){.name = cache_words[index].name,
                             .usage = cache_words[index].usage,
                             .meaning = cache_words[index].meaning,
                             .otherwise = cache_words[index].otherwise,
                             .is_built = !cache_words[index].is_not_built};
    return true;
}

void cache_spec_read(struct query_file *file, const struct words *words)
{
    struct cache_spec spec = {.file = file, .words = words};
    struct route *route = file->route;

    /* Also after a mistake: others' @purges of this route are right all the same. */
    route->is_cached = true;
    route->cache = (struct cache_policy){0};
    file->cache_line = words->line;
    file->cache_column = words->column;
    if (file->has_first_line && route->is_write)
        query_file_complain(file, words->line, words->column,
                            "@cache is for GET: the answer to a %s is not stored",
                            http_method_name(route->method));
    for (size_t i = 1; i < words->count; i++)
        read_word(&spec, &words->items[i]);
    if (!spec.is_given[CACHE_MAX_AGE])
        query_file_complain(file, words->line, words->end_column,
                            "@cache needs max-age, such as max-age=5s");
}

/* A header that is looked up under two names has both in Vary. */
static void add_header(struct buffer *vary, const char *name)
{
    size_t start;

    if (strcasecmp(name, "accept") == 0)
        return; /* always there */
    buffer_append_format(vary, ", %s", name);
    if (strchr(name, '_') == NULL)
        return;
    buffer_append_format(vary, ", %s", name);
    start = vary->size_bytes - strlen(name);
    for (size_t i = start; !vary->failed && i < vary->size_bytes; i++)
        if (vary->data[i] == '_')
            vary->data[i] = '-';
}

static void make_vary(struct route *route)
{
    struct buffer vary;

    buffer_init(&vary,
                VARY_MAX_BYTES); /* fits twice the most parameters with their longest names */
    buffer_append(&vary, "Accept", strlen("Accept"));
    for (size_t i = 0; i < route->param_count; i++)
        if (route->params[i].place == IN_HEADER)
            add_header(&vary, route->params[i].name);
    ENSURE(!vary.failed);
    free(route->vary);
    route->vary = copy_text(vary.data, vary.size_bytes);
    buffer_fini(&vary);
}

void cache_spec_finish(struct query_file *file)
{
    struct route *route = file->route;

    if (!route->is_cached)
        return;
    if (route->success_status != 200)
        query_file_complain(file, file->cache_line, file->cache_column,
                            "@cache: only 200s are stored, and @status says %d",
                            route->success_status);
    make_vary(route);
}

#include <inttypes.h>

#include "base/complaint.h"
#include "base/nearest.h"
#include "base/quantity.h"
#include "query/query_file_internal.h"
#include "query/sql_word.h"

typedef void setting_reader(struct query_file *file, const struct words *words);
typedef void line_reader(struct query_file *file, int column, struct line rest);

/* The one value of a setting, the word after its name; NULL: complained. */
static const struct word *only_value(struct query_file *file, const struct words *words,
                                     const char *wanted)
{
    const char *name = words->items[0].text;

    if (words->count < 2) {
        query_file_complain(file, words->line, words->end_column, "%s needs %s", name, wanted);
        return NULL;
    }
    if (words->count > 2) {
        query_file_complain(file, words->line, words->items[2].column,
                            "%s takes %s, and nothing else", name, wanted);
        return NULL;
    }
    if (words->items[1].value != NULL) {
        query_file_complain(file, words->line, words->items[1].column,
                            "%s takes %s, without =", name, wanted);
        return NULL;
    }
    return &words->items[1];
}

static void expect_no_value(struct query_file *file, const struct words *words)
{
    if (words->count > 1)
        query_file_complain(file, words->line, words->items[1].column, "%s takes no value",
                            words->items[0].text);
}

/* A whole number from `least` to `most`; complains. */
static bool read_count(struct query_file *file, const struct words *words, uint64_t least,
                       uint64_t most, uint64_t *out)
{
    const struct word *word = only_value(file, words, "a whole number");
    uint64_t value = 0;
    bool is_number = word != NULL && word->text[0] != '\0';

    if (word == NULL)
        return false;
    for (const char *at = word->text; is_number && *at != '\0'; at++)
        is_number = *at >= '0' && *at <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
                    !__builtin_add_overflow(value, (uint64_t)(*at - '0'), &value);
    if (!is_number || value < least || value > most) {
        query_file_complain(file, words->line, word->column,
                            "%s must be a whole number from %" PRIu64 " to %" PRIu64,
                            words->items[0].text, least, most);
        return false;
    }
    *out = value;
    return true;
}

static void read_result(struct query_file *file, const struct words *words)
{
    const struct word *word = only_value(file, words, "many, one, value or exec");
    const char *names[RESULT_KIND_COUNT], *near;

    file->is_result_wrong = true;
    if (word == NULL)
        return;
    for (unsigned i = 0; i < RESULT_KIND_COUNT; i++) {
        names[i] = result_kind_name((enum result_kind)i);
        if (strcmp(names[i], word->text) == 0) {
            file->route->result = (enum result_kind)i;
            file->is_result_wrong = false;
            return;
        }
    }
    near = nearest_word(word->text, names, RESULT_KIND_COUNT);
    query_file_complain(file, words->line, word->column,
                        "@result is many, one, value or exec, not '%s'%s%s", word->text,
                        near != NULL ? "; did you mean " : "", near != NULL ? near : "");
}

static void read_status(struct query_file *file, const struct words *words)
{
    uint64_t value;

    if (read_count(file, words, 200, 299, &value))
        file->route->success_status = (int)value;
}

static void read_timeout(struct query_file *file, const struct words *words)
{
    const struct word *word = only_value(file, words, "a duration such as 800ms or 2s");
    char longest[32];
    int64_t value;

    if (word == NULL)
        return;
    file->route->timeout_line = words->line;
    file->route->timeout_column = word->column;
    if (!duration_parse(word->text, strlen(word->text), &value) || value == 0) {
        query_file_complain(file, words->line, word->column,
                            "@timeout must be a duration such as 800ms or 2s");
        return;
    }
    if (value > file->request_timeout_us) {
        duration_format(file->request_timeout_us, longest);
        query_file_complain(file, words->line, word->column,
                            "@timeout %s is longer than request_timeout (%s)", word->text, longest);
        return;
    }
    file->route->timeout_us = value;
}

static void read_limit(struct query_file *file, const struct words *words)
{
    uint64_t value;

    if (read_count(file, words, 1, UINT32_MAX, &value))
        file->route->limit = (uint32_t)value;
}

static void read_max_rows(struct query_file *file, const struct words *words)
{
    uint64_t value;

    if (read_count(file, words, 1, INT64_MAX, &value))
        file->route->max_rows = value;
}

static void read_max_bytes(struct query_file *file, const struct words *words)
{
    const struct word *word = only_value(file, words, "a size such as 64KiB or 8MiB");
    size_t value;

    if (word == NULL)
        return;
    if (size_parse(word->text, strlen(word->text), &value) && value > 0)
        file->route->max_bytes = value;
    else
        query_file_complain(file, words->line, word->column,
                            "@max_bytes must be a size such as 64KiB or 8MiB");
}

static void read_exclusive(struct query_file *file, const struct words *words)
{
    expect_no_value(file, words);
    file->route->is_exclusive = true;
}

static void read_idempotent(struct query_file *file, const struct words *words)
{
    expect_no_value(file, words);
    file->route->is_idempotent = true;
}

static bool find_source(const struct query_file *file, const char *name, uint32_t *out)
{
    for (size_t i = 0; i < file->source_count; i++) {
        if (strcmp(file->sources[i].name, name) == 0) {
            *out = (uint32_t)i;
            return true;
        }
    }
    return false;
}

static void complain_of_source(struct query_file *file, int line, const struct word *word)
{
    const char **names = calloc(file->source_count + 1, sizeof *names), *near;

    ENSURE(names != NULL);
    for (size_t i = 0; i < file->source_count; i++)
        names[i] = file->sources[i].name;
    near = nearest_word(word->text, names, file->source_count);
    query_file_complain(file, line, word->column, "@from: no dependency is called '%s'%s%s",
                        word->text, near != NULL ? "; did you mean " : "",
                        near != NULL ? near : "");
    free(names);
}

static void read_from(struct query_file *file, const struct words *words)
{
    const struct word *word;

    file->route->source_line = words->line;
    file->route->source_column = words->column;
    for (size_t i = 1; i < words->count; i++) {
        if (strpbrk(words->items[i].text, ",|") != NULL) {
            query_file_complain(file, words->line, words->items[i].column,
                                "several sources in @from are not supported yet");
            return;
        }
    }
    word = only_value(file, words, "the name of a dependency");
    if (word == NULL)
        return;
    file->route->source_column = word->column;
    /* With no dependency at all the config has its own complaint. */
    if (file->source_count > 0 && !find_source(file, word->text, &file->route->source))
        complain_of_source(file, words->line, word);
}

/* clang-format off */
static const struct setting {
    const char *name, *usage, *meaning, *otherwise; /* see query/sql_word.h */
    setting_reader *read;   /* NULL: see read_line */
    line_reader *read_line; /* both NULL: known, not supported yet */
    bool may_repeat;
} settings[] = {
    {"param", "NAME TYPE [optional \\| default=V] [OPTION=V ...]",
     "a value that callers send; the statement has it as `:NAME`. Options: see below",
     "a value must be sent", param_spec_read, NULL, true},
    {"from", "NAME", "the dependency that the statement is sent to",
     "the only dependency, else the one called `primary`", read_from, NULL, false},
    {"result", "many \\| one \\| value \\| exec",
     "`many`: an array of objects. `one`: an object; no row is a 404, several are a 500 `more-than-one-row`. "
     "`value`: the single cell; no row is a 404, several rows or columns are a 500. `exec`: `{\"rows\": N}`",
     "`many`", read_result, NULL, false},
    {"status", "N", "the status of success, 200 to 299", "200", read_status, NULL, false},
    {"timeout", "DURATION", "the request's whole budget; not longer than `server.request_timeout`",
     "`server.request_timeout`", read_timeout, NULL, false},
    {"limit", "N", "most calls of this route at once; above it 503 `bulkhead-full`", "none", read_limit, NULL, false},
    {"exclusive", "", "never share a connection with other calls; none does in this release", "off", read_exclusive, NULL, false},
    {"max_rows", "N", "most rows of an answer; more are a 500 `result-too-large`, never a silent cut", DEFAULT_MAX_ROWS_TEXT,
     read_max_rows, NULL, false},
    {"max_bytes", "SIZE", "largest answer; more is a 500 `result-too-large`", DEFAULT_MAX_BYTES_TEXT, read_max_bytes, NULL, false},
    {"idempotent", "", "the write may be repeated when it is not known whether it happened; none is in this release",
     "GET, PUT and DELETE may be, POST and PATCH not", read_idempotent, NULL, false},
    {"cache", "max-age=DURATION [WORD=V ...]", "store 200s (GET only). Words: see below", "nothing is stored",
     cache_spec_read, NULL, false},
    {"purges", "GET /path", "when this write succeeds, all stored answers of that route are dead; it is the first line of the other file, which has `@cache`. As often as needed", "none", NULL, purges_read, true},
    {"fallback", "JSON", "the answer when no live or stored one can be had (GET only); shaped as `@result` says, sent as it is written", "the error",
     NULL, fallback_read, false},
    {"auth", "public \\| NAME ...", "who may call", NULL, NULL, NULL, true},
    {"rate", "N/s [burst=N]", "most requests of one caller", NULL, NULL, NULL, true},
    {"part", "NAME ...", "several results in one answer", NULL, NULL, NULL, true},
};
/* clang-format on */

enum { SETTING_COUNT = sizeof settings / sizeof *settings };

static size_t find_setting(const char *name, size_t size_bytes)
{
    size_t i = 0;

    while (i < SETTING_COUNT && (strlen(settings[i].name) != size_bytes ||
                                 memcmp(settings[i].name, name, size_bytes) != 0))
        i++;
    return i;
}

bool setting_is_known(const char *name, size_t size_bytes)
{
    return find_setting(name, size_bytes) < SETTING_COUNT;
}

bool setting_word(size_t index, struct sql_word *out)
{
    const struct setting *row = &settings[index < SETTING_COUNT ? index : 0];

    if (index >= SETTING_COUNT)
        return false;
    *out = (struct sql_word){.name = row->name,
                             .usage = row->usage,
                             .meaning = row->meaning,
                             .otherwise = row->otherwise,
                             .is_built = row->read != NULL || row->read_line != NULL};
    return true;
}

static void complain_of_setting(struct query_file *file, const char *name, size_t size_bytes,
                                int line, int column)
{
    const char *names[SETTING_COUNT], *near;
    char *wrong = copy_text(name, size_bytes);

    for (size_t i = 0; i < SETTING_COUNT; i++)
        names[i] = settings[i].name;
    near = nearest_word(wrong, names, SETTING_COUNT);
    query_file_complain(file, line, column, "no setting is called @%s%s%s", wrong,
                        near != NULL ? "; did you mean @" : "", near != NULL ? near : "");
    free(wrong);
}

/* A known setting's words, from its @. */
static void read_words(struct query_file *file, const struct setting *setting,
                       const struct line *line)
{
    struct words words;
    int quote_column;

    if (!words_split(line->text, line->size_bytes, line->number, line->column, &words,
                     &quote_column)) {
        query_file_complain(file, line->number, quote_column, "@%s: the quote is never closed",
                            setting->name);
        return;
    }
    setting->read(file, &words);
    words_fini(&words);
}

void setting_read(struct query_file *file, const struct line *line)
{
    struct line rest = *line, name = line_take_word(&rest);
    size_t row = find_setting(name.text + 1, name.size_bytes - 1);

    if (row == SETTING_COUNT) {
        complain_of_setting(file, name.text + 1, name.size_bytes - 1, line->number, line->column);
        return;
    }
    if (settings[row].read == NULL && settings[row].read_line == NULL) {
        query_file_complain(file, line->number, line->column, "@%s is not supported yet",
                            settings[row].name);
        return;
    }
    if ((file->settings_seen & 1U << row) != 0 && !settings[row].may_repeat)
        query_file_complain(file, line->number, line->column, "@%s is given twice",
                            settings[row].name);
    file->settings_seen |= 1U << row;
    if (settings[row].read != NULL)
        read_words(file, &settings[row], line);
    else
        settings[row].read_line(file, line->column, rest);
}

static void choose_source(struct query_file *file)
{
    struct route *route = file->route;

    if (route->source_line == 0) {
        route->source_line = route->first_line;
        route->source_column = route->first_column;
        if (file->source_count > 1 && !find_source(file, "primary", &route->source))
            query_file_complain(file, route->first_line, route->first_column,
                                "@from is missing: there are several dependencies, and none is "
                                "called primary");
    }
    if (file->has_first_line && route->is_write && route->source < file->source_count &&
        file->sources[route->source].is_read_only)
        query_file_complain(file, route->source_line, route->source_column,
                            "a %s writes, and the dependency '%s' is access: read",
                            http_method_name(route->method), file->sources[route->source].name);
}

static bool has_param(const struct route *route, const char *name)
{
    for (size_t i = 0; i < route->param_count; i++)
        if (strcmp(route->params[i].name, name) == 0)
            return true;
    return false;
}

void settings_finish(struct query_file *file)
{
    const struct route *route = file->route;

    choose_source(file);
    for (size_t i = 0; i < route->segment_count; i++)
        if (route->segments[i].is_parameter && !has_param(route, route->segments[i].text))
            query_file_complain(file, route->first_line, route->segments[i].column,
                                "{%s} in the path has no @param", route->segments[i].text);
    cache_spec_finish(file);
    fallback_finish(file);
}

/* reference.c - writes what can be said about weir.json and the SQL files from the tables that the
 * program itself works by: api/weir.schema.json, docs/configuration.md, docs/sql-files.md.
 * SPDX-License-Identifier: MIT
 *
 *   reference --write ROOT   writes them
 *   reference --check ROOT   exit code 1 if one of them is not what would be written */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/ensure.h"
#include "base/quantity.h"
#include "base/reason.h"
#include "config/config_fields.h"
#include "query/sql_word.h"

enum { PAGE_MAX_BYTES = 1 << 20 };

/* --- JSON Schema --- */

/* Where a default, or the one value that is built, is meant as JSON and where as a string. */
static json_t *value_of(const struct config_field *field, const char *text)
{
    json_t *value;
    bool is_json = strcmp(text, "null") == 0 || field->type == FIELD_INTEGER ||
                   field->type == FIELD_RATE || field->type == FIELD_BOOL ||
                   field->type == FIELD_ORIGINS || field->type == FIELD_LIST;

    value = is_json ? json_loads(text, JSON_DECODE_ANY, NULL) : json_string(text);
    ENSURE(value != NULL);
    return value;
}

static void put(json_t *object, const char *key, json_t *value)
{
    ENSURE(json_object_set_new(object, key, value) == 0);
}

static void put_text(json_t *object, const char *key, const char *text)
{
    put(object, key, json_string(text));
}

/* A string may hold ${NAME} anywhere, and what comes of it is known when weir starts. */
static void put_pattern(json_t *schema, const char *pattern)
{
    json_t *choices = json_array();

    ENSURE(json_array_append_new(choices, json_pack("{s:s}", "pattern", pattern)) == 0);
    ENSURE(json_array_append_new(choices, json_pack("{s:s}", "$ref", "#/$defs/variable")) == 0);
    put_text(schema, "type", "string");
    put(schema, "anyOf", choices);
}

static void put_words(json_t *schema, const struct field_word *words)
{
    json_t *texts = json_array(), *choices = json_array();

    for (const struct field_word *w = words; w->text != NULL; w++)
        if (!w->is_not_built)
            ENSURE(json_array_append_new(texts, json_string(w->text)) == 0);
    ENSURE(json_array_append_new(choices, json_pack("{s:o}", "enum", texts)) == 0);
    ENSURE(json_array_append_new(choices, json_pack("{s:s}", "$ref", "#/$defs/variable")) == 0);
    put_text(schema, "type", "string");
    put(schema, "anyOf", choices);
}

static json_t *object_schema(const char *parent);

static void put_map(json_t *schema)
{
    put_text(schema, "type", "object");
    put(schema, "minProperties", json_integer(1));
    put(schema, "patternProperties",
        json_pack("{s:o}", "^[a-z0-9_-]{1,32}$", object_schema("dependencies.*")));
    put(schema, "additionalProperties", json_false());
}

static void put_list(json_t *schema, const char *item_pattern)
{
    json_t *item = json_object();

    put_pattern(item, item_pattern);
    put_text(schema, "type", "array");
    put(schema, "items", item);
}

static void put_number(json_t *schema, const char *type, int64_t min, int64_t max)
{
    put_text(schema, "type", type);
    put(schema, "minimum", json_integer(min));
    put(schema, "maximum", json_integer(max));
}

static void put_type(json_t *schema, const struct config_field *field)
{
    switch (field->type) {
    case FIELD_OBJECT:
        ENSURE(json_object_update_new(schema, object_schema(field->path)) == 0);
        break;
    case FIELD_MAP:
        put_map(schema);
        break;
    case FIELD_INTEGER:
        put_number(schema, "integer", field->min, field->max);
        break;
    case FIELD_RATE:
        put_number(schema, "number", 0, 1);
        break;
    case FIELD_BOOL:
        put_text(schema, "type", "boolean");
        break;
    case FIELD_DURATION:
        put_pattern(schema, "^([0-9]+ms|[0-9]+([.][0-9]+)?[smh])$");
        break;
    case FIELD_SIZE:
        put_pattern(schema, "^[0-9]+(B|KiB|MiB|GiB)$");
        break;
    case FIELD_WORD:
        put_words(schema, field->words);
        break;
    case FIELD_STRING:
    case FIELD_FILE:
        put_text(schema, "type", "string");
        put(schema, "minLength", json_integer(field->min));
        put(schema, "maxLength", json_integer(field->max));
        break;
    case FIELD_ADDRESS:
        put_pattern(schema, "^([0-9]{1,3}([.][0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$");
        break;
    case FIELD_ORIGINS:
        put_list(schema, "^([*]|[^/\\s]+://[^/\\s]+)$");
        break;
    case FIELD_LIST:
        put_list(schema, "");
        break;
    case FIELD_TYPE_COUNT:
        break;
    }
}

/* "number" becomes ["number", "null"]. */
static void allow_null(json_t *schema)
{
    json_t *type = json_object_get(schema, "type");

    put(schema, "type", json_pack("[O,s]", type, "null"));
    if (json_object_get(schema, "anyOf") != NULL)
        ENSURE(json_array_append_new(json_object_get(schema, "anyOf"),
                                     json_pack("{s:s}", "type", "null")) == 0);
}

static json_t *field_schema(const struct config_field *field)
{
    json_t *schema = json_object();
    char text[300], description[700];
    bool is_object = field->type == FIELD_OBJECT || field->type == FIELD_MAP;

    config_field_describe(field, text, sizeof text);
    (void)snprintf(description, sizeof description, "%s%s%s%s", field->help,
                   is_object ? "" : " It ", is_object ? "" : text, is_object ? "" : ".");
    put_text(schema, "description", description);
    if (field->only != NULL && is_object) {
        (void)snprintf(description, sizeof description, "%s Not supported yet: leave it out.",
                       field->help);
        put_text(schema, "description", description);
        put(schema, "not", json_object());
        return schema;
    }
    if (field->only != NULL) {
        (void)snprintf(description, sizeof description, "%s Anything but %s is not supported yet.",
                       field->help, field->only);
        put_text(schema, "description", description);
        put(schema, "const", value_of(field, field->only));
        put(schema, "default", value_of(field, field->default_text));
        return schema;
    }
    put_type(schema, field);
    if (config_field_may_be_null(field))
        allow_null(schema);
    if (field->default_text != NULL)
        put(schema, "default", value_of(field, field->default_text));
    return schema;
}

static bool is_required(const struct config_field *field)
{
    return field->type == FIELD_MAP || (field->type != FIELD_OBJECT && field->default_text == NULL);
}

/* The rows directly below `parent`. */
static json_t *object_schema(const char *parent)
{
    json_t *schema = json_object(), *properties = json_object(), *required = json_array();

    for (size_t i = 0; i < config_field_count; i++) {
        const char *key = config_field_key(&config_fields[i], parent);

        if (key == NULL)
            continue;
        put(properties, key, field_schema(&config_fields[i]));
        if (is_required(&config_fields[i]))
            ENSURE(json_array_append_new(required, json_string(key)) == 0);
    }
    put_text(schema, "type", "object");
    put(schema, "properties", properties);
    if (json_array_size(required) > 0)
        put(schema, "required", json_incref(required));
    json_decref(required);
    put(schema, "additionalProperties", json_false());
    return schema;
}

static void write_schema(struct buffer *out)
{
    json_t *schema = json_object(), *root = object_schema("");
    char *text;

    put_text(schema, "$schema", "https://json-schema.org/draft/2020-12/schema");
    put_text(schema, "title", "weir.json");
    put_text(schema, "description",
             "The configuration of weir. Durations are written \"250ms\", \"2s\", \"1m\", \"1h\", "
             "sizes \"64KiB\", \"1MiB\"; strings may hold ${NAME} and ${NAME:-default}. What one "
             "value means for another, weir check tells.");
    ENSURE(json_object_update_new(schema, root) == 0);
    put(schema, "$defs",
        json_pack("{s:{s:s,s:s,s:s}}", "variable", "description",
                  "A string with a variable of the environment in it.", "type", "string", "pattern",
                  "\\$\\{[A-Za-z_]"));
    text = json_dumps(schema, JSON_INDENT(2));
    ENSURE(text != NULL);
    buffer_append_format(out, "%s\n", text);
    free(text);
    json_decref(schema);
}

/* --- pages --- */

static void note(struct buffer *out)
{
    buffer_append_text(out,
                       "<!-- Written from the program's own tables by tests/tools/reference.c; "
                       "an edit belongs there. -->\n\n");
}

static const char *type_name(enum field_type type)
{
    static const char *const names[FIELD_TYPE_COUNT] = {
        [FIELD_OBJECT] = "object",       [FIELD_MAP] = "object",
        [FIELD_INTEGER] = "number",      [FIELD_RATE] = "rate",
        [FIELD_BOOL] = "boolean",        [FIELD_DURATION] = "duration",
        [FIELD_SIZE] = "size",           [FIELD_WORD] = "one of",
        [FIELD_STRING] = "string",       [FIELD_FILE] = "file",
        [FIELD_ADDRESS] = "address",     [FIELD_ORIGINS] = "list of origins",
        [FIELD_LIST] = "list of strings"};

    return names[type];
}

/* What may be there, without the "must be" of a complaint. */
static void write_range(struct buffer *out, const struct config_field *field)
{
    char least[32], most[32];

    if (field->only != NULL) {
        buffer_append_format(out, "`%s` (more is not supported yet)", field->only);
        return;
    }
    buffer_append_text(out, type_name(field->type));
    if (field->type == FIELD_INTEGER)
        buffer_append_format(out, " %lld to %lld", (long long)field->min, (long long)field->max);
    if (field->type == FIELD_RATE)
        buffer_append_text(out, " 0 to 1");
    if (field->type == FIELD_DURATION) {
        duration_format(field->min, least);
        duration_format(field->max, most);
        buffer_append_format(out, " %s to %s", least, most);
    }
    if (field->type == FIELD_SIZE) {
        size_format(field->min, least);
        size_format(field->max, most);
        buffer_append_format(out, " %s to %s", least, most);
    }
    for (const struct field_word *w = field->words; w != NULL && w->text != NULL; w++)
        if (!w->is_not_built)
            buffer_append_format(out, "%s`%s`", w == field->words ? " " : ", ", w->text);
    if (config_field_may_be_null(field))
        buffer_append_text(out, ", or null");
}

static void write_keys(struct buffer *out, const char *parent)
{
    buffer_append_text(out, "| key | value | default | |\n|---|---|---|---|\n");
    for (size_t i = 0; i < config_field_count; i++) {
        const struct config_field *field = &config_fields[i];
        const char *key = config_field_key(field, parent);

        if (key == NULL || field->type == FIELD_OBJECT || field->type == FIELD_MAP)
            continue;
        buffer_append_format(out, "| `%s` | ", key);
        write_range(out, field);
        if (field->default_text != NULL)
            buffer_append_format(out, " | `%s` | %s |\n", field->default_text, field->help);
        else
            buffer_append_format(out, " | must be given | %s |\n", field->help);
    }
    buffer_append_text(out, "\n");
}

static bool has_keys(const char *parent)
{
    for (size_t i = 0; i < config_field_count; i++) {
        const struct config_field *field = &config_fields[i];

        if (config_field_key(field, parent) != NULL && field->type != FIELD_OBJECT &&
            field->type != FIELD_MAP)
            return true;
    }
    return false;
}

static void write_configuration(struct buffer *out)
{
    buffer_append_text(
        out,
        "# weir.json\n\n"
        "JSON. Relative paths start at the folder of the file. A duration is written `250ms`, "
        "`2s`, "
        "`1m`, `1h`, a size `64KiB`, `1MiB`; a rate is a fraction of 1. Strings may hold `${NAME}` "
        "and `${NAME:-default}` of the environment; `$${` is a plain `${`. A key that is not "
        "listed "
        "is an error, and so is a value outside of what is listed; `weir check` tells all of them "
        "at "
        "once, as FILE:LINE:COL. Everything but a dependency's `kind` and `conninfo` has a "
        "default. [api/weir.schema.json](../api/weir.schema.json) says the same to editors: name "
        "it "
        "in a key `$schema`.\n\n"
        "Each timeout is shorter than its caller's, or the file is refused: `query_timeout` <= "
        "`request_timeout`, `connect_timeout` < `request_timeout`, a route's `@timeout` <= "
        "`request_timeout` < `caller_timeout`. Likewise `reset_timeout` <= `max_reset_timeout`, "
        "and `connections` >= `max_concurrent`.\n\n");
    note(out);
    buffer_append_text(out, "## At the top\n\n");
    write_keys(out, "");
    for (size_t i = 0; i < config_field_count; i++) {
        const struct config_field *field = &config_fields[i];

        if (field->type != FIELD_OBJECT)
            continue;
        buffer_append_format(out, "## %s\n\n%s\n\n", field->path, field->help);
        if (field->only != NULL)
            buffer_append_text(out, "Not supported yet: leave it out.\n\n");
        else if (has_keys(field->path))
            write_keys(out, field->path);
    }
    out->size_bytes--; /* one newline ends it */
}

typedef bool word_fn(size_t index, struct sql_word *out);

static void write_words(struct buffer *out, word_fn *word_at, const char *sign, bool has_default)
{
    struct sql_word word;

    buffer_append_text(out, has_default ? "| | meaning | without it |\n|---|---|---|\n"
                                        : "| | meaning |\n|---|---|\n");
    for (size_t i = 0; word_at(i, &word); i++) {
        bool has_space = sign[0] == '@' && word.usage[0] != '\0';

        if (!word.is_built)
            continue;
        buffer_append_format(out, "| `%s%s%s%s` | %s |", sign, word.name, has_space ? " " : "",
                             word.usage, word.meaning);
        if (has_default)
            buffer_append_format(out, " %s |", word.otherwise);
        buffer_append_text(out, "\n");
    }
    buffer_append_text(out, "\n");
}

static void write_not_built(struct buffer *out, word_fn *word_at, const char *sign)
{
    struct sql_word word;

    for (size_t i = 0; word_at(i, &word); i++)
        if (!word.is_built)
            buffer_append_format(out, "- `%s%s`: %s\n", sign, word.name, word.meaning);
}

/* The built-in types whose values weir checks itself in this way. */
static void write_types(struct buffer *out, const char *how, unsigned checks)
{
    const char *name, *between = "";
    enum param_check check;

    buffer_append_text(out, "| ");
    for (size_t i = 0; (name = sql_type_name(i, &check)) != NULL; i++) {
        if ((checks & 1U << check) == 0)
            continue;
        buffer_append_format(out, "%s`%s`", between, name);
        between = ", ";
    }
    buffer_append_format(out, " | %s |\n", how);
}

static void write_all_types(struct buffer *out)
{
    const char *alias, *name, *between = "";

    buffer_append_text(out, "| types | their values |\n|---|---|\n");
    write_types(out, "any text; `minlen`, `maxlen`, `pattern`", 1U << CHECK_TEXT);
    write_types(out, "checked before a permit is taken; `min`, `max`",
                1U << CHECK_INTEGER | 1U << CHECK_NUMERIC | 1U << CHECK_FLOAT);
    write_types(out, "checked before a permit is taken", 1U << CHECK_BOOL | 1U << CHECK_UUID);
    write_types(out, "JSON; in a body the value as it is", 1U << CHECK_JSON);
    write_types(out, "judged by PostgreSQL; a raw `+` in a query string is a space, so write `%2B`",
                1U << CHECK_ZONED);
    write_types(out, "judged by PostgreSQL: what it refuses is a 400", 1U << CHECK_SERVER);
    buffer_append_text(out, "\nOther names of them: ");
    for (size_t i = 0; (alias = sql_type_alias(i, &name)) != NULL; i++) {
        buffer_append_format(out, "%s`%s` (%s)", between, alias, name);
        between = ", ";
    }
    buffer_append_text(out, ". A name with spaces is quoted.\n\n");
}

static void write_first_words(struct buffer *out, const char *what, unsigned kinds)
{
    enum statement_kind kind;
    const char *word;

    buffer_append_format(out, "- %s:", what);
    for (size_t i = 0; (word = statement_word(i, &kind)) != NULL; i++)
        if ((kinds & 1U << kind) != 0)
            buffer_append_format(out, " `%s`", word);
    buffer_append_text(out, "\n");
}

static void write_reasons(struct buffer *out)
{
    buffer_append_text(out, "| reason | status | meaning | asking again can help |\n"
                            "|---|---|---|---|\n");
    for (unsigned r = REASON_NONE + 1; r < REASON_COUNT; r++)
        buffer_append_format(out, "| `%s` | %d | %s | %s |\n", reason_word(r), reason_http(r),
                             reason_title(r), reason_is_retryable(r) ? "yes" : "no");
}

static void write_sql_files(struct buffer *out)
{
    buffer_append_text(
        out,
        "# SQL files\n\n"
        "Each `api/**/*.sql` is one endpoint: a block of `--` comments, then one statement. The "
        "block's first line is `METHOD /path/{name}`, with GET (HEAD comes with it), POST, PUT, "
        "PATCH or DELETE; `/health` and `/problems` are taken. A line that starts with `@` is a "
        "setting, other lines are the description. The block ends at the first line that is no "
        "comment, an empty one too. `weir check` tells every mistake as FILE:LINE:COL.\n\n"
        "```sql\n"
        "-- GET /books/{id}\n"
        "-- One book with its author.\n"
        "-- @param    id int4 min=1 example=42\n"
        "-- @result   one\n"
        "-- @timeout  800ms\n"
        "-- @cache    max-age=5s stale-if-error=10m\n"
        "-- @fallback {\"id\": null}\n"
        "SELECT b.id, b.title FROM books b WHERE b.id = :id\n"
        "```\n\n");
    note(out);
    buffer_append_text(out, "## Settings\n\n");
    write_words(out, setting_word, "@", true);
    buffer_append_text(
        out, "## @param\n\nTYPE is a PostgreSQL type, or `T[]`; what is not built in is taken on "
             "trust, and looked up when the statement is prepared. A value that holds spaces is "
             "quoted. Callers' unknown names are a 400, and so is a scalar that comes twice.\n\n");
    write_words(out, param_option_word, "", false);
    write_all_types(out);
    buffer_append_text(out, "## @cache\n\n");
    write_words(out, cache_word, "", true);
    buffer_append_text(out, "## Statements\n\n`:name` is a parameter; strings, `::casts`, array "
                            "slices, comments, dollar quotes and quoted names are left alone. By "
                            "their first word:\n\n");
    write_first_words(out, "not in a GET", 1U << STATEMENT_WRITE | 1U << STATEMENT_COMMITS);
    write_first_words(out, "nowhere, as weir opens and ends transactions itself",
                      1U << STATEMENT_TRANSACTION);
    write_first_words(out, "nowhere, as sessions are shared by all requests",
                      1U << STATEMENT_SESSION);
    buffer_append_text(
        out,
        "\nA GET runs in a read-only session, which refuses what the first word does not show: "
        "`SELECT ... FOR UPDATE` (`weir check --connect` tells), and a function that writes "
        "(seen only when it runs: 500 `query-invalid`).\n\n"
        "## Reasons\n\nWhy an answer is no success; the same word is in body, header, log and "
        "metric. [api/problems.md](../api/problems.md) says what to do.\n\n");
    write_reasons(out);
    buffer_append_text(out, "\n## Not supported yet\n\n");
    write_not_built(out, setting_word, "@");
    write_not_built(out, param_option_word, "@param ... ");
    write_not_built(out, cache_word, "@cache ... ");
}

/* --- files --- */

static const struct page {
    const char *path;
    void (*write)(struct buffer *out);
} pages[] = {
    {"api/weir.schema.json", write_schema},
    {"docs/configuration.md", write_configuration},
    {"docs/sql-files.md", write_sql_files},
};

static bool page_save(const char *path, const struct buffer *page)
{
    FILE *file = fopen(path, "we");
    bool is_written;

    if (file == NULL)
        return false;
    is_written = fwrite(page->data, 1, page->size_bytes, file) == page->size_bytes;
    return fclose(file) == 0 && is_written;
}

static bool page_is_current(const char *path, const struct buffer *page)
{
    static char text[PAGE_MAX_BYTES];
    FILE *file = fopen(path, "re");
    size_t size = 0;

    if (file != NULL) {
        size = fread(text, 1, sizeof text, file);
        (void)fclose(file);
    }
    return size == page->size_bytes && memcmp(text, page->data, size) == 0;
}

/* True: written, or current. */
static bool page_do(const struct page *page, const char *root, bool is_writing)
{
    struct buffer text;
    char *path;
    bool is_good;

    ENSURE(asprintf(&path, "%s/%s", root, page->path) > 0);
    buffer_init(&text, PAGE_MAX_BYTES);
    page->write(&text);
    ENSURE(!text.failed);
    is_good = is_writing ? page_save(path, &text) : page_is_current(path, &text);
    if (!is_good)
        (void)fprintf(stderr,
                      is_writing ? "%s: cannot be written\n"
                                 : "%s: is not what the program's tables say; write it "
                                   "anew: cmake --build build/release --target reference_pages\n",
                      page->path);
    buffer_fini(&text);
    free(path);
    return is_good;
}

int main(int argc, char **argv)
{
    bool is_writing = argc == 3 && strcmp(argv[1], "--write") == 0;
    bool is_good = true;

    if (argc != 3 || (!is_writing && strcmp(argv[1], "--check") != 0)) {
        (void)fputs("usage: reference --write ROOT | --check ROOT\n", stderr);
        return 2;
    }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        is_good = page_do(&pages[i], argv[2], is_writing) && is_good;
    return is_good ? 0 : 1;
}

#include "config/config_read.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/complaint.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/quantity.h"
#include "config/config.h"
#include "config/config_env.h"
#include "config/config_fields.h"
#include "config/config_scan.h"

enum { MOST_SIBLINGS = 64, LONGEST_DEPENDENCY_NAME = 32 };

/* A value that was understood, before it is stored. */
struct field_value {
    int64_t number; /* integers, booleans, words, durations, sizes */
    char *text;     /* owned until stored */
};

/* What is being read, for complaints. */
struct place {
    const struct config_reader *reader;
    const struct config_field *field;
    struct scan_node *node;
    const char *shown;
};

/* Adds what fits; a key of the user's own may hold anything, and a complaint is one line. */
static size_t path_append(char path[CONFIG_PATH_SIZE], size_t used, const char *text)
{
    for (; *text != '\0' && used < CONFIG_PATH_SIZE - 1; text++)
        path[used++] = (char)((unsigned char)*text < ' ' ? '?' : *text);
    path[used] = '\0';
    return used;
}

void config_path_join(char out_path[CONFIG_PATH_SIZE], const char *parent, const char *key)
{
    size_t used = path_append(out_path, 0, parent);

    if (used > 0)
        used = path_append(out_path, used, ".");
    (void)path_append(out_path, used, key);
}

static void complain_what_it_must_be(const struct place *p, const struct scan_node *at)
{
    char text[300];

    config_field_describe(p->field, text, sizeof text);
    p->node->is_wrong = true;
    complaints_add(p->reader->complaints, p->reader->file, at->line, at->column, "%s: %s%s",
                   p->shown, text, config_field_may_be_null(p->field) ? ", or null" : "");
}

static void complain_not_built(const struct place *p)
{
    p->node->is_wrong = true;
    if (p->field->type == FIELD_OBJECT)
        complaints_add(p->reader->complaints, p->reader->file, p->node->key_line,
                       p->node->key_column, "%s: not supported yet; leave it out", p->shown);
    else
        complaints_add(p->reader->complaints, p->reader->file, p->node->line, p->node->column,
                       "%s: anything but %s is not supported yet", p->shown, p->field->only);
}

/* --- understanding a value --- */

static bool integer_parse(const char *text, int64_t *out_number)
{
    char *end;
    long long number;

    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        return false;
    *out_number = number;
    return true;
}

static bool rate_parse(const char *text)
{
    char *end;
    double rate = strtod(text, &end);

    return end != text && *end == '\0' && rate >= 0 && rate <= 1;
}

static bool address_is_valid(const char *text)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

static bool origin_is_valid(const char *text)
{
    const char *host = strstr(text, "://");

    if (strcmp(text, "*") == 0)
        return true;
    if (host == NULL || host == text || host[3] == '\0' || strchr(host + 3, '/') != NULL)
        return false;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~')
            return false;
    }
    return true;
}

static bool is_within(const struct config_field *field, int64_t number)
{
    return number >= field->min && number <= field->max;
}

/* A relative path starts at the folder of the config file, which itself may be relative to where
 * the process stands now. */
static char *file_absolute(const struct config_reader *reader, const char *path)
{
    const char *folder = reader->config->folder;
    char *here = NULL, *text = NULL;
    int size;

    if (path[0] == '/') {
        text = strdup(path);
    } else if (folder[0] == '/') {
        size = asprintf(&text, "%s/%s", folder, path);
        ENSURE(size > 0);
    } else {
        here = getcwd(NULL, 0);
        size = strcmp(folder, ".") == 0
                   ? asprintf(&text, "%s/%s", here != NULL ? here : "", path)
                   : asprintf(&text, "%s/%s/%s", here != NULL ? here : "", folder, path);
        ENSURE(size > 0);
        free(here);
    }
    ENSURE(text != NULL);
    return text;
}

/* True: `text` (what stood between the quotes, or a bare JSON word) is a value of this row. */
static bool value_parse(const struct config_reader *reader, const struct config_field *field,
                        const char *text, struct field_value *out_value)
{
    const struct field_word *word;
    size_t size_bytes;

    *out_value = (struct field_value){0};
    switch (field->type) {
    case FIELD_INTEGER:
        return integer_parse(text, &out_value->number) && is_within(field, out_value->number);
    case FIELD_RATE:
        return rate_parse(text);
    case FIELD_BOOL:
        out_value->number = strcmp(text, "true") == 0;
        return true;
    case FIELD_DURATION:
        return duration_parse(text, strlen(text), &out_value->number) &&
               is_within(field, out_value->number);
    case FIELD_SIZE:
        if (!size_parse(text, strlen(text), &size_bytes))
            return false;
        out_value->number = (int64_t)size_bytes;
        return is_within(field, out_value->number);
    case FIELD_WORD:
        word = config_word_find(field->words, text);
        if (word == NULL)
            return false;
        out_value->number = word->value;
        return true;
    case FIELD_FILE:
        if (!is_within(field, (int64_t)strlen(text)))
            return false;
        out_value->text = file_absolute(reader, text);
        return true;
    case FIELD_STRING:
    case FIELD_ADDRESS:
        if (field->type == FIELD_ADDRESS ? !address_is_valid(text)
                                         : !is_within(field, (int64_t)strlen(text)))
            return false;
        out_value->text = strdup(text);
        ENSURE(out_value->text != NULL);
        return true;
    case FIELD_OBJECT:
    case FIELD_MAP:
    case FIELD_ORIGINS:
    case FIELD_LIST:
    case FIELD_TYPE_COUNT:
        break;
    }
    return false;
}

static bool holds_text(enum field_type type)
{
    return type == FIELD_STRING || type == FIELD_ADDRESS || type == FIELD_FILE;
}

static void number_store(void *member, size_t size_bytes, int64_t number)
{
    bool as_bool = number != 0;
    uint16_t as_16 = (uint16_t)number;
    uint32_t as_32 = (uint32_t)number;

    switch (size_bytes) {
    case sizeof as_bool:
        memcpy(member, &as_bool, sizeof as_bool);
        break;
    case sizeof as_16:
        memcpy(member, &as_16, sizeof as_16);
        break;
    case sizeof as_32:
        memcpy(member, &as_32, sizeof as_32);
        break;
    default:
        ENSURE(size_bytes == sizeof number);
        memcpy(member, &number, sizeof number);
        break;
    }
}

/* Adopts value->text. */
static void value_store(const struct config_field *field, void *base, struct field_value *value)
{
    void *member = (char *)base + field->offset;

    if (field->size_bytes == 0) {
        free(value->text);
    } else if (holds_text(field->type)) {
        free(*(char **)member);
        *(char **)member = value->text;
    } else {
        number_store(member, field->size_bytes, value->number);
    }
    value->text = NULL;
}

/* --- reading --- */

/* Where the nth "${" stands in the raw text, so that the column is right behind escapes too. */
static int column_of_variable(const struct scan_node *node, const char *text, size_t offset)
{
    const char *at = node->raw, *end = node->raw + node->raw_size_bytes, *found;
    size_t nth = 0;

    for (const char *c = text; c < text + offset; c++)
        nth += c[0] == '$' && c[1] == '{';
    while ((found = memmem(at, (size_t)(end - at), "${", 2)) != NULL) {
        if (nth-- == 0)
            return node->column + (int)(found - node->raw);
        at = found + 2;
    }
    return node->column;
}

/* The characters of a string with the environment put in, or NULL (complained). */
static char *string_read(const struct place *p, const struct scan_node *node)
{
    struct error err;
    size_t offset = 0;
    char *raw = scan_string(node), *text = config_env_replace(raw, &offset, &err);

    if (text == NULL) {
        p->node->is_wrong = true;
        complaints_add(p->reader->complaints, p->reader->file, node->line,
                       column_of_variable(node, raw, offset), "%s: %s", p->shown, err.text);
    }
    free(raw);
    return text;
}

static bool kind_fits(enum field_type type, enum scan_kind kind)
{
    switch (type) {
    case FIELD_OBJECT:
    case FIELD_MAP:
        return kind == SCAN_OBJECT;
    case FIELD_INTEGER:
    case FIELD_RATE:
        return kind == SCAN_NUMBER;
    case FIELD_BOOL:
        return kind == SCAN_TRUE || kind == SCAN_FALSE;
    case FIELD_ORIGINS:
    case FIELD_LIST:
        return kind == SCAN_ARRAY;
    case FIELD_DURATION:
    case FIELD_SIZE:
    case FIELD_WORD:
    case FIELD_STRING:
    case FIELD_ADDRESS:
    case FIELD_FILE:
        return kind == SCAN_STRING;
    case FIELD_TYPE_COUNT:
        break;
    }
    return false;
}

static char *scalar_text(const struct place *p)
{
    char *text;

    if (p->node->kind == SCAN_STRING)
        return string_read(p, p->node);
    text = strndup(p->node->raw, p->node->raw_size_bytes);
    ENSURE(text != NULL);
    return text;
}

/* A word that the contract knows and this release does not do. */
static bool is_word_not_built(const struct config_field *field, const char *text)
{
    const struct field_word *word =
        field->type == FIELD_WORD ? config_word_find(field->words, text) : NULL;

    return word != NULL && word->is_not_built;
}

/* It is read again before each use, so it may still come: a warning. */
static void warn_if_unreadable(const struct place *p, const char *file)
{
    if (access(file, R_OK) != 0)
        complaints_warn(p->reader->complaints, p->reader->file, p->node->line, p->node->column,
                        "%s: the file cannot be read now: %s", p->shown, error_of_errno(errno));
}

/* A word that is none of those there are. */
static void complain_word(const struct place *p, const char *text)
{
    enum { MOST_WORDS = 8 };
    const char *words[MOST_WORDS], *nearest;
    char must_be[300];
    size_t count = 0;

    for (const struct field_word *w = p->field->words; w->text != NULL && count < MOST_WORDS; w++) {
        if (!w->is_not_built)
            words[count++] = w->text;
    }
    nearest = count > 1 ? nearest_word(text, words, count) : NULL;
    if (nearest == NULL) {
        complain_what_it_must_be(p, p->node);
        return;
    }
    p->node->is_wrong = true;
    config_field_describe(p->field, must_be, sizeof must_be);
    complaints_add(p->reader->complaints, p->reader->file, p->node->line, p->node->column,
                   "%s: %s; did you mean \"%s\"?", p->shown, must_be, nearest);
}

static void scalar_take(const struct place *p, const char *text, void *base)
{
    struct field_value value;

    if (is_word_not_built(p->field, text)) {
        p->node->is_wrong = true;
        complaints_add(p->reader->complaints, p->reader->file, p->node->line, p->node->column,
                       "%s: \"%s\" is not supported yet", p->shown, text);
    } else if (!value_parse(p->reader, p->field, text, &value)) {
        if (p->field->type == FIELD_WORD)
            complain_word(p, text);
        else
            complain_what_it_must_be(p, p->node);
    } else if (p->field->only != NULL && strcmp(p->field->only, text) != 0) {
        complain_not_built(p);
        free(value.text);
    } else {
        if (p->field->type == FIELD_FILE)
            warn_if_unreadable(p, value.text);
        value_store(p->field, base, &value);
    }
}

static void scalar_read(const struct place *p, void *base)
{
    char *text;

    if (p->node->kind == SCAN_NULL && config_field_may_be_null(p->field))
        return; /* null is the default wherever it is allowed */
    if (!kind_fits(p->field->type, p->node->kind)) {
        complain_what_it_must_be(p, p->node);
        return;
    }
    text = scalar_text(p);
    if (text != NULL)
        scalar_take(p, text, base);
    free(text);
}

static void list_free(char **items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(items[i]);
    free(items);
}

/* Every item as a string; complains about each that is none, and then returns NULL. */
static char **list_items(const struct place *p)
{
    size_t count = p->node->child_count;
    char **items = calloc(count + 1, sizeof *items);

    ENSURE(items != NULL);
    for (size_t i = 0; i < count; i++) {
        const struct scan_node *item = &p->node->children[i];

        if (item->kind != SCAN_STRING) {
            complain_what_it_must_be(p, item);
            continue;
        }
        items[i] = string_read(p, item);
        if (items[i] != NULL && p->field->type == FIELD_ORIGINS && !origin_is_valid(items[i]))
            complain_what_it_must_be(p, item);
    }
    if (!p->node->is_wrong)
        return items;
    list_free(items, count);
    return NULL;
}

static void list_read(const struct place *p)
{
    struct server_config *server = &p->reader->config->server;
    char **items;

    if (p->node->kind != SCAN_ARRAY) {
        complain_what_it_must_be(p, p->node);
        return;
    }
    items = list_items(p);
    if (items == NULL)
        return;
    if (p->field->type == FIELD_ORIGINS) {
        list_free(server->cors_origins, server->cors_origin_count);
        server->cors_origins = items;
        server->cors_origin_count = p->node->child_count;
        return;
    }
    if (p->field->only != NULL && p->node->child_count > 0)
        complain_not_built(p);
    list_free(items, p->node->child_count);
}

static bool name_is_valid(const char *name)
{
    size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");

    return name[size] == '\0' && size >= 1 && size <= LONGEST_DEPENDENCY_NAME;
}

/* A kind that is not built has keys of its own: saying so is enough. */
static bool is_kind_not_built(struct scan_node *dependency)
{
    const struct scan_node *kind = scan_child(dependency, "kind");
    char *text;
    bool is_not_built;

    if (kind == NULL || kind->kind != SCAN_STRING)
        return false;
    text = scan_string(kind);
    is_not_built = is_word_not_built(config_field_find("dependencies.*", "kind"), text);
    free(text);
    return is_not_built;
}

static void kind_complain(const struct config_reader *reader, struct scan_node *node,
                          const char *shown, struct dependency_config *dependency)
{
    struct scan_node *kind = scan_child(node, "kind");
    char path[CONFIG_PATH_SIZE];

    config_path_join(path, shown, "kind");
    scalar_read(&(struct place){reader, config_field_find("dependencies.*", "kind"), kind, path},
                dependency);
}

/* What libpq makes of it is found out later. */
static void conninfo_place(const struct scan_node *node, struct dependency_config *dependency)
{
    const struct scan_node *conninfo =
        node->kind == SCAN_OBJECT ? scan_child(node, "conninfo") : NULL;

    dependency->conninfo_line = conninfo != NULL ? conninfo->line : node->key_line;
    dependency->conninfo_column = conninfo != NULL ? conninfo->column : node->key_column;
}

static void dependency_read(const struct config_reader *reader, struct scan_node *node,
                            struct dependency_config *dependency)
{
    char shown[CONFIG_PATH_SIZE];

    dependency->name = strdup(node->key);
    /* Never NULL: whoever looks at a config with mistakes, to find more of them, may rely on it. */
    dependency->conninfo = strdup("");
    ENSURE(dependency->name != NULL && dependency->conninfo != NULL);
    dependency->line = node->key_line;
    dependency->column = node->key_column;
    conninfo_place(node, dependency);
    config_set_defaults(reader, "dependencies.*", dependency);
    config_path_join(shown, "dependencies", node->key);

    if (!name_is_valid(node->key))
        complaints_add(reader->complaints, reader->file, node->key_line, node->key_column,
                       "%s: a name is 1 to %d of a-z, 0-9, _ and -", shown,
                       LONGEST_DEPENDENCY_NAME);
    if (node->kind != SCAN_OBJECT)
        complain_what_it_must_be(
            &(struct place){reader, config_field_find("", "dependencies"), node, shown}, node);
    else if (is_kind_not_built(node))
        kind_complain(reader, node, shown, dependency);
    else
        config_read_object(reader, node, "dependencies.*", shown, dependency);
}

/* A key may stand twice in JSON; only the last counts, so a second one is always a mistake. */
static bool is_repeated(const struct scan_node *object, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(object->children[i].key, object->children[index].key) == 0)
            return true;
    }
    return false;
}

static void complain_repeated(const struct config_reader *reader, const struct scan_node *node,
                              const char *shown)
{
    complaints_add(reader->complaints, reader->file, node->key_line, node->key_column,
                   "%s: given twice", shown);
}

static void dependencies_read(const struct config_reader *reader, const struct scan_node *map)
{
    struct config *config = reader->config;

    config->dependencies = calloc(map->child_count + 1, sizeof *config->dependencies);
    ENSURE(config->dependencies != NULL);
    for (size_t i = 0; i < map->child_count; i++) {
        struct scan_node *node = &map->children[i];
        char shown[CONFIG_PATH_SIZE];

        if (is_repeated(map, i)) {
            config_path_join(shown, "dependencies", node->key);
            complain_repeated(reader, node, shown);
        } else {
            dependency_read(reader, node, &config->dependencies[config->dependency_count++]);
        }
    }
}

static void structure_read(const struct place *p, void *base)
{
    if (p->field->only != NULL)
        complain_not_built(p);
    else if (p->node->kind != SCAN_OBJECT)
        complain_what_it_must_be(p, p->node);
    else if (p->field->type == FIELD_MAP)
        dependencies_read(p->reader, p->node);
    else
        config_read_object(p->reader, p->node, p->field->path, p->shown, base);
}

static void field_read(const struct place *p, void *base)
{
    if (p->field->type == FIELD_OBJECT || p->field->type == FIELD_MAP)
        structure_read(p, base);
    else if (p->field->type == FIELD_LIST || p->field->type == FIELD_ORIGINS)
        list_read(p);
    else
        scalar_read(p, base);
}

/* A known key that was written some levels too high: its path from `parent`, or NULL. */
static const char *path_below(const char *key, const char *parent)
{
    size_t size = strlen(parent);

    for (size_t i = 0; i < config_field_count; i++) {
        const char *path = config_fields[i].path, *last = strrchr(path, '.');

        if (last == NULL || strcmp(last + 1, key) != 0 || strncmp(path, parent, size) != 0)
            continue;
        if (size == 0 || path[size] == '.')
            return path + size + (size > 0);
    }
    return NULL;
}

static void complain_unknown(const struct config_reader *reader, const struct scan_node *node,
                             const char *parent, const char *shown)
{
    const char *siblings[MOST_SIBLINGS], *nearest, *elsewhere;
    size_t count = 0;

    for (size_t i = 0; i < config_field_count && count < MOST_SIBLINGS; i++) {
        const char *key = config_field_key(&config_fields[i], parent);

        if (key != NULL)
            siblings[count++] = key;
    }
    nearest = nearest_word(node->key, siblings, count);
    elsewhere = path_below(node->key, parent);
    if (elsewhere != NULL)
        complaints_add(reader->complaints, reader->file, node->key_line, node->key_column,
                       "%s: unknown key here; did you mean \"%s\"?", shown, elsewhere);
    else if (nearest != NULL)
        complaints_add(reader->complaints, reader->file, node->key_line, node->key_column,
                       "%s: unknown key; did you mean \"%s\"?", shown, nearest);
    else
        complaints_add(reader->complaints, reader->file, node->key_line, node->key_column,
                       "%s: unknown key", shown);
}

/* The place of an object is its key's; only the root has none. */
static void complain_missing(const struct config_reader *reader, const struct scan_node *object,
                             const char *parent, const char *shown)
{
    for (size_t i = 0; i < config_field_count; i++) {
        const struct config_field *field = &config_fields[i];
        const char *key = config_field_key(field, parent);
        char path[CONFIG_PATH_SIZE];

        if (key == NULL || field->default_text != NULL || field->type == FIELD_OBJECT ||
            field->type == FIELD_MAP || scan_child(object, key) != NULL)
            continue;
        config_path_join(path, shown, key);
        complaints_add(reader->complaints, reader->file,
                       object->key != NULL ? object->key_line : object->line,
                       object->key != NULL ? object->key_column : object->column,
                       "%s: is missing; it has no default", path);
    }
}

void config_read_object(const struct config_reader *reader, struct scan_node *object,
                        const char *parent, const char *shown, void *base)
{
    for (size_t i = 0; i < object->child_count; i++) {
        struct scan_node *node = &object->children[i];
        const struct config_field *field = config_field_find(parent, node->key);
        char path[CONFIG_PATH_SIZE];

        config_path_join(path, shown, node->key);
        if (is_repeated(object, i))
            complain_repeated(reader, node, path);
        else if (field == NULL)
            complain_unknown(reader, node, parent, path);
        else
            field_read(&(struct place){reader, field, node, path}, base);
    }
    complain_missing(reader, object, parent, shown);
}

/* --- defaults --- */

/* Rows of a dependency belong to another struct than the rest. */
static bool is_default_of(const struct config_field *field, const char *parent)
{
    bool is_dependency = strncmp(field->path, "dependencies.", strlen("dependencies.")) == 0;

    return field->size_bytes > 0 && field->default_text != NULL &&
           !config_field_may_be_null(field) && field->type != FIELD_ORIGINS &&
           is_dependency == (parent[0] != '\0');
}

void config_set_defaults(const struct config_reader *reader, const char *parent, void *base)
{
    for (size_t i = 0; i < config_field_count; i++) {
        const struct config_field *field = &config_fields[i];
        struct field_value value;

        if (!is_default_of(field, parent))
            continue;
        ENSURE(value_parse(reader, field, field->default_text, &value));
        value_store(field, base, &value);
    }
}

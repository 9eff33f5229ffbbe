#include "config/config_scan.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/error.h"

/* Where the scan is. The text is known to be valid JSON, so nothing here can fail. */
struct cursor {
    const char *at, *end;
    const char *line_start;
    int line;
};

static int column_of(const struct cursor *c)
{
    return (int)(c->at - c->line_start) + 1;
}

static void skip_space(struct cursor *c)
{
    for (; c->at < c->end && strchr(" \t\r\n", *c->at) != NULL; c->at++) {
        if (*c->at == '\n') {
            c->line++;
            c->line_start = c->at + 1;
        }
    }
}

static void skip_string(struct cursor *c)
{
    for (c->at++; *c->at != '"'; c->at++)
        c->at += *c->at == '\\';
    c->at++;
}

static char *decode(const char *raw, size_t size_bytes)
{
    json_t *value = json_loadb(raw, size_bytes, JSON_DECODE_ANY, NULL);
    char *text;

    ENSURE(json_is_string(value));
    text = strdup(json_string_value(value));
    ENSURE(text != NULL);
    json_decref(value);
    return text;
}

static struct scan_node *add_child(struct scan_node *parent)
{
    size_t count = parent->child_count;

    /* Room doubles at each power of two. */
    if ((count & (count - 1)) == 0) {
        size_t room = count == 0 ? 1 : 2 * count;
        struct scan_node *children = reallocarray(parent->children, room, sizeof *children);

        ENSURE(children != NULL);
        parent->children = children;
    }
    parent->child_count++;
    parent->children[count] = (struct scan_node){0};
    return &parent->children[count];
}

static void scan_key(struct cursor *c, struct scan_node *node)
{
    const char *raw = c->at;

    node->key_line = c->line;
    node->key_column = column_of(c);
    skip_string(c);
    node->key = decode(raw, (size_t)(c->at - raw));
    skip_space(c);
    c->at++; /* the colon */
    skip_space(c);
}

static void scan_value(struct cursor *c, struct scan_node *node);

static void scan_children(struct cursor *c, struct scan_node *node, char closing)
{
    c->at++;
    skip_space(c);
    while (*c->at != closing) {
        struct scan_node *child = add_child(node);

        if (node->kind == SCAN_OBJECT)
            scan_key(c, child);
        scan_value(c, child);
        skip_space(c);
        if (*c->at == ',') {
            c->at++;
            skip_space(c);
        }
    }
    c->at++;
}

/* A number, true, false or null: it ends where JSON goes on. */
static void scan_word(struct cursor *c, struct scan_node *node)
{
    switch (*c->at) {
    case 't':
        node->kind = SCAN_TRUE;
        break;
    case 'f':
        node->kind = SCAN_FALSE;
        break;
    case 'n':
        node->kind = SCAN_NULL;
        break;
    default:
        node->kind = SCAN_NUMBER;
        break;
    }
    while (c->at < c->end && strchr(" \t\r\n,]}", *c->at) == NULL)
        c->at++;
}

/* Recursion is bounded: jansson refuses texts nested deeper than 2048. */
static void scan_value(struct cursor *c, struct scan_node *node)
{
    node->raw = c->at;
    node->line = c->line;
    node->column = column_of(c);
    if (*c->at == '{') {
        node->kind = SCAN_OBJECT;
        scan_children(c, node, '}');
    } else if (*c->at == '[') {
        node->kind = SCAN_ARRAY;
        scan_children(c, node, ']');
    } else if (*c->at == '"') {
        node->kind = SCAN_STRING;
        skip_string(c);
    } else {
        scan_word(c, node);
    }
    node->raw_size_bytes = (size_t)(c->at - node->raw);
}

/* jansson ends its words with "near 'TEXT'"; TEXT may be a secret, and the place says it anyway. */
static void take_words(const json_error_t *from, struct scan_error *out_error)
{
    const char *near = strstr(from->text, " near ");
    size_t size = near != NULL ? (size_t)(near - from->text) : strlen(from->text);

    if (size >= sizeof out_error->text)
        size = sizeof out_error->text - 1;
    memcpy(out_error->text, from->text, size);
    out_error->text[size] = '\0';
}

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static const char *token_end(const char *at, const char *end)
{
    if (*at == '"') {
        for (at++; at < end && *at != '"' && *at != '\n'; at++)
            at += *at == '\\' && at + 1 < end;
        return at < end ? at + 1 : end;
    }
    if (is_one_of(*at, "{}[]:,"))
        return at + 1;
    while (at < end && !is_one_of(*at, " \t\r\n{}[]:,\""))
        at++;
    return at;
}

/* jansson tells how far it has read, which is the end of a token that it did not expect; its start
 * is the place. In a string it is the character that is wrong, and where the text ends too early,
 * its end. */
static const char *error_at(const json_error_t *error, const char *text, const char *end)
{
    const char *read = error->position < end - text ? text + error->position : end;
    const char *at = strstr(error->text, " near end of file") != NULL ? end : text;

    while (at == end && at > text && is_one_of(at[-1], " \t\r\n"))
        end = --at;
    while (at < end) {
        const char *next;

        while (at < end && is_one_of(*at, " \t\r\n"))
            at++;
        next = at < end ? token_end(at, end) : end;
        if (next > read && read > at + 1 && *at == '"')
            return read - 1;
        if (next >= read)
            return at;
        at = next;
    }
    return at;
}

static void take_place(const char *text, const char *at, struct scan_error *out_error)
{
    out_error->line = out_error->column = 1;
    for (; text < at; text++) {
        out_error->column = *text == '\n' ? 1 : out_error->column + 1;
        out_error->line += *text == '\n';
    }
}

struct scan_node *scan_text(const char *text, size_t size_bytes, struct scan_error *out_error)
{
    struct cursor c = {.at = text, .end = text + size_bytes, .line_start = text, .line = 1};
    struct scan_node *root;
    json_error_t error;
    json_t *value = json_loadb(text, size_bytes, 0, &error);

    if (value == NULL) {
        take_words(&error, out_error);
        take_place(text, error_at(&error, text, text + size_bytes), out_error);
        return NULL;
    }
    json_decref(value);

    root = calloc(1, sizeof *root);
    ENSURE(root != NULL);
    skip_space(&c);
    scan_value(&c, root);
    return root;
}

static void free_below(struct scan_node *node)
{
    for (size_t i = 0; i < node->child_count; i++)
        free_below(&node->children[i]);
    free(node->children);
    free(node->key);
}

void scan_destroy(struct scan_node *root)
{
    if (root == NULL)
        return;
    free_below(root);
    free(root);
}

char *scan_string(const struct scan_node *node)
{
    return decode(node->raw, node->raw_size_bytes);
}

struct scan_node *scan_child(const struct scan_node *object, const char *key)
{
    for (size_t i = 0; i < object->child_count; i++) {
        if (strcmp(object->children[i].key, key) == 0)
            return &object->children[i];
    }
    return NULL;
}

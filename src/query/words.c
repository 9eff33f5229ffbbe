#include <stdlib.h>

#include "query/query_file_internal.h"

struct cutter {
    const char *text;
    size_t size_bytes, at;
};

/* Copies up to a blank, or up to `stop` outside quotes. A doubled quote inside quotes is a quote;
 * backslashes are left alone, because patterns are full of them. NULL: a quote is not closed. */
static char *cut(struct cutter *c, char stop)
{
    char *out = malloc(c->size_bytes - c->at + 1), quote = '\0';
    size_t size = 0, opened = 0;

    ENSURE(out != NULL);
    for (; c->at < c->size_bytes; c->at++) {
        char now = c->text[c->at];

        if (quote == '\0' && (is_blank(now) || now == stop))
            break;
        if (quote == '\0' && (now == '"' || now == '\'') && size == 0) {
            quote = now; /* a quote opens at the start alone: it's is a word */
            opened = c->at;
        } else if (quote != '\0' && now == quote) {
            if (c->at + 1 < c->size_bytes && c->text[c->at + 1] == quote)
                out[size++] = c->text[c->at++];
            else
                quote = '\0';
        } else {
            out[size++] = now;
        }
    }
    out[size] = '\0';
    if (quote == '\0')
        return out;
    c->at = opened;
    free(out);
    return NULL;
}

static bool cut_word(struct cutter *c, int column, struct word *out)
{
    *out = (struct word){.column = column + (int)c->at};
    out->text = cut(c, '=');
    if (out->text == NULL)
        return false;
    if (c->at < c->size_bytes && c->text[c->at] == '=') {
        c->at++;
        out->value_column = column + (int)c->at;
        out->value = cut(c, '\0');
        return out->value != NULL;
    }
    return true;
}

bool words_split(const char *text, size_t size_bytes, int line, int column, struct words *out,
                 int *out_column)
{
    struct cutter c = {.text = text, .size_bytes = size_bytes};
    struct words words = {.line = line, .column = column};

    for (;;) {
        while (c.at < c.size_bytes && is_blank(c.text[c.at]))
            c.at++;
        if (c.at == c.size_bytes)
            break;
        words.items = grow_by_one(words.items, words.count, sizeof *words.items);
        if (!cut_word(&c, column, &words.items[words.count++])) {
            *out_column = column + (int)c.at;
            words_fini(&words);
            return false;
        }
        words.end_column = column + (int)c.at;
    }
    *out = words;
    return true;
}

void words_fini(struct words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        free(words->items[i].text);
        free(words->items[i].value);
    }
    free(words->items);
    *words = (struct words){0};
}

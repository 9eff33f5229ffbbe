#include "query/wrap.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "query/sql_lexer.h"

enum kind { KIND_QUERY, KIND_WRITE, KIND_WITH, KIND_OTHER };

/* Words that begin a statement, or the part of it behind a WITH list. */
static const struct {
    const char *word;
    enum kind kind;
} first_words[] = {
    {"select", KIND_QUERY}, {"values", KIND_QUERY}, {"table", KIND_QUERY},  {"with", KIND_WITH},
    {"insert", KIND_WRITE}, {"update", KIND_WRITE}, {"delete", KIND_WRITE}, {"merge", KIND_WRITE},
};

struct wrap {
    const char *sql;
    const struct wrap_column *columns;
    size_t column_count;
    bool has_aliases; /* two columns have one name: they are called by number */
    char name[32];    /* of the statement inside, quoted; its text does not hold it */
    struct buffer out;
};

/* ---- reading ---- */

static struct sql_token next_token(struct sql_lexer *lexer)
{
    struct sql_token token = sql_lexer_next(lexer);

    while (token.kind == SQL_TOKEN_COMMENT)
        token = sql_lexer_next(lexer);
    return token;
}

static enum kind kind_of(const char *sql, const struct sql_token *token)
{
    if (sql_token_is_mark(sql, token, '('))
        return KIND_QUERY;
    for (size_t i = 0; i < sizeof first_words / sizeof *first_words; i++)
        if (sql_token_is_word(sql, token, first_words[i].word))
            return first_words[i].kind;
    return KIND_OTHER;
}

/* Where a WITH list is: name [(columns)] AS [MATERIALIZED] (body) [SEARCH .. | CYCLE ..], ... */
struct with_list {
    const char *sql;
    int depth;
    bool is_in_body;    /* the open parenthesis is a body's */
    bool is_after_body; /* a comma, SEARCH, CYCLE, or the main part comes now */
    bool is_in_clause;  /* SEARCH or CYCLE, which have commas of their own */
    struct sql_token last, before_last;
};

static void open_parenthesis(struct with_list *w)
{
    if (w->depth++ == 0)
        w->is_in_body = sql_token_is_word(w->sql, &w->last, "as") ||
                        sql_token_is_word(w->sql, &w->last, "materialized");
}

static void close_parenthesis(struct with_list *w)
{
    if (--w->depth > 0 || !w->is_in_body)
        return;
    w->is_after_body = true;
    w->is_in_clause = false;
}

/* In a clause, "name (" begins the main part, but ", name (" the next member's columns. */
static bool is_main_part(const struct with_list *w, const struct sql_token *token)
{
    if (w->depth > 0 || !w->is_after_body || kind_of(w->sql, token) == KIND_OTHER)
        return false;
    return !w->is_in_clause || !sql_token_is_mark(w->sql, token, '(') ||
           (!sql_token_is_mark(w->sql, &w->before_last, ',') &&
            !sql_token_is_word(w->sql, &w->last, "as") &&
            !sql_token_is_word(w->sql, &w->last, "materialized"));
}

static void take_token(struct with_list *w, const struct sql_token *token)
{
    if (sql_token_is_mark(w->sql, token, '('))
        open_parenthesis(w);
    else if (sql_token_is_mark(w->sql, token, ')'))
        close_parenthesis(w);
    else if (w->depth == 0 && w->is_after_body &&
             (sql_token_is_word(w->sql, token, "search") ||
              sql_token_is_word(w->sql, token, "cycle")))
        w->is_in_clause = true;
    else if (w->depth == 0 && !w->is_in_clause && sql_token_is_mark(w->sql, token, ','))
        w->is_after_body = false;
    w->before_last = w->last;
    w->last = *token;
}

/* The first byte behind the WITH list, whose WITH was read; SIZE_MAX: it cannot be found. */
static size_t find_main_part(const char *sql, struct sql_lexer *lexer)
{
    struct with_list w = {.sql = sql};
    struct sql_token token = next_token(lexer);

    while (token.kind != SQL_TOKEN_END && token.kind != SQL_TOKEN_ERROR) {
        if (is_main_part(&w, &token))
            return token.start;
        take_token(&w, &token);
        token = next_token(lexer);
    }
    return SIZE_MAX;
}

/* ---- writing ---- */

static void append_quoted(struct buffer *out, const char *name)
{
    buffer_append_char(out, '"');
    for (; *name != '\0'; name++) {
        if (*name == '"')
            buffer_append_char(out, '"');
        buffer_append_char(out, *name);
    }
    buffer_append_char(out, '"');
}

static void append_aliases(struct wrap *w)
{
    for (size_t i = 0; w->has_aliases && i < w->column_count; i++)
        buffer_append_format(&w->out, "%sc%zu", i == 0 ? " (" : ", ", i);
    if (w->has_aliases)
        buffer_append_char(&w->out, ')');
}

static void append_column(struct wrap *w, size_t i)
{
    bool is_json = w->columns[i].is_given_as_json;

    buffer_append_text(&w->out, is_json ? "pg_catalog.to_json(" : "");
    buffer_append_format(&w->out, "%s.", w->name);
    if (w->has_aliases)
        buffer_append_format(&w->out, "c%zu", i);
    else
        append_quoted(&w->out, w->columns[i].name);
    buffer_append_text(&w->out, is_json ? ")" : "");
}

static void append_select(struct wrap *w)
{
    for (size_t i = 0; i < w->column_count; i++) {
        buffer_append_text(&w->out, i == 0 ? "SELECT " : ", ");
        append_column(w, i);
    }
    buffer_append_text(&w->out, " FROM ");
}

/* Costs nothing, as OR TRUE is folded before the query is planned. But a server that analyses it
 * again, because a table changed, finds there if it has another number of columns now. */
static void append_guard(struct wrap *w)
{
    buffer_append_format(&w->out, " WHERE true OR EXISTS (VALUES (%s.*), (", w->name);
    for (size_t i = 0; i < w->column_count; i++)
        buffer_append_text(&w->out, i == 0 ? "NULL" : ", NULL");
    buffer_append_text(&w->out, "))");
}

/* The statement may end in a comment that goes to the end of its line. */
static void append_inner(struct wrap *w, const char *sql)
{
    buffer_append_text(&w->out, "(\n");
    buffer_append_text(&w->out, sql);
    buffer_append_text(&w->out, "\n)");
}

static void append_query(struct wrap *w)
{
    append_select(w);
    append_inner(w, w->sql);
    buffer_append_format(&w->out, " AS %s", w->name);
    append_aliases(w);
    append_guard(w);
}

/* As the last member of a WITH list. */
static void append_member(struct wrap *w, const char *sql)
{
    buffer_append_text(&w->out, w->name);
    append_aliases(w);
    buffer_append_text(&w->out, " AS ");
    append_inner(w, sql);
    buffer_append_char(&w->out, ' ');
    append_select(w);
    buffer_append_text(&w->out, w->name);
    append_guard(w);
}

static void choose_name(struct wrap *w)
{
    unsigned number = 0;

    do
        (void)snprintf(w->name, sizeof w->name, "\"weir %u\"", number++);
    while (strstr(w->sql, w->name) != NULL);
}

static bool has_doubles(const struct wrap *w)
{
    for (size_t i = 0; i < w->column_count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(w->columns[i].name, w->columns[j].name) == 0)
                return true;
    return false;
}

/* False: it is none of the kinds that can be wrapped. */
static bool append_all(struct wrap *w)
{
    struct sql_lexer lexer;
    struct sql_token first;
    size_t main_part;

    sql_lexer_init(&lexer, w->sql, strlen(w->sql), 1, 1);
    first = next_token(&lexer);
    switch (kind_of(w->sql, &first)) {
    case KIND_QUERY:
        append_query(w);
        return true;
    case KIND_WRITE:
        buffer_append_text(&w->out, "WITH ");
        append_member(w, w->sql);
        return true;
    case KIND_WITH:
        main_part = find_main_part(w->sql, &lexer);
        if (main_part == SIZE_MAX)
            return false;
        buffer_append(&w->out, w->sql, main_part);
        buffer_append_text(&w->out, "\n, ");
        append_member(w, w->sql + main_part);
        return true;
    case KIND_OTHER:
        break;
    }
    return false;
}

char *wrap_statement(const char *sql, const struct wrap_column *columns, size_t column_count)
{
    struct wrap w = {.sql = sql, .columns = columns, .column_count = column_count};

    w.has_aliases = has_doubles(&w);
    choose_name(&w);
    buffer_init(&w.out, SIZE_MAX);
    if (column_count == 0 || !append_all(&w)) {
        buffer_fini(&w.out);
        return NULL;
    }
    buffer_append_char(&w.out, '\0');
    if (w.out.failed) {
        buffer_fini(&w.out);
        return NULL;
    }
    return buffer_take(&w.out).data;
}

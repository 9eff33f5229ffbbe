#include <inttypes.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/complaint.h"
#include "base/nearest.h"
#include "query/query_file_internal.h"
#include "query/sql_lexer.h"
#include "query/sql_word.h"

/* clang-format off */
static const struct {
    const char *word;
    enum statement_kind kind;
} first_words[] = {
    {"insert", STATEMENT_WRITE},      {"update", STATEMENT_WRITE},
    {"delete", STATEMENT_WRITE},      {"merge", STATEMENT_WRITE},
    {"truncate", STATEMENT_WRITE},    {"create", STATEMENT_WRITE},
    {"alter", STATEMENT_WRITE},       {"drop", STATEMENT_WRITE},
    {"grant", STATEMENT_WRITE},       {"revoke", STATEMENT_WRITE},
    {"comment", STATEMENT_WRITE},     {"refresh", STATEMENT_WRITE},
    {"reindex", STATEMENT_WRITE},     {"cluster", STATEMENT_WRITE},
    {"vacuum", STATEMENT_WRITE},      {"analyze", STATEMENT_WRITE},
    {"import", STATEMENT_WRITE},      {"reassign", STATEMENT_WRITE},
    {"security", STATEMENT_WRITE},    {"checkpoint", STATEMENT_WRITE},
    {"call", STATEMENT_COMMITS},      {"do", STATEMENT_COMMITS},
    {"begin", STATEMENT_TRANSACTION}, {"start", STATEMENT_TRANSACTION},
    {"commit", STATEMENT_TRANSACTION}, {"end", STATEMENT_TRANSACTION},
    {"rollback", STATEMENT_TRANSACTION}, {"abort", STATEMENT_TRANSACTION},
    {"savepoint", STATEMENT_TRANSACTION}, {"release", STATEMENT_TRANSACTION},
    {"set", STATEMENT_SESSION},       {"reset", STATEMENT_SESSION},
    {"discard", STATEMENT_SESSION},   {"listen", STATEMENT_SESSION},
    {"unlisten", STATEMENT_SESSION},  {"notify", STATEMENT_SESSION},
    {"prepare", STATEMENT_SESSION},   {"execute", STATEMENT_SESSION},
    {"deallocate", STATEMENT_SESSION}, {"declare", STATEMENT_SESSION},
    {"fetch", STATEMENT_SESSION},     {"move", STATEMENT_SESSION},
    {"close", STATEMENT_SESSION},     {"copy", STATEMENT_SESSION},
    {"lock", STATEMENT_SESSION},      {"load", STATEMENT_SESSION},
};
/* clang-format on */

struct statement {
    struct query_file *file;
    struct sql_lexer lexer;
    struct buffer sql;   /* with $n */
    uint32_t *number_of; /* owned: by parameter; 0: not yet bound */
    size_t copied_bytes; /* of the text, into sql */
    size_t token_count;  /* comments apart */
    bool is_broken;      /* cannot be read to its end */
    bool has_ended;      /* a semicolon was seen */
    bool has_second;     /* complained of a second statement */
    enum statement_kind kind;
    /* For writes inside a WITH or a SELECT INTO. */
    int depth;
    bool is_with, has_main_word, has_write;
    struct sql_token last, before_last;
};

static bool is_word(const struct statement *s, const struct sql_token *token, const char *word)
{
    return sql_token_is_word(s->lexer.text, token, word);
}

static bool is_mark(const struct statement *s, const struct sql_token *token, char mark)
{
    return sql_token_is_mark(s->lexer.text, token, mark);
}

static bool is_write_word(const struct statement *s, const struct sql_token *token)
{
    return is_word(s, token, "insert") || is_word(s, token, "update") ||
           is_word(s, token, "delete") || is_word(s, token, "merge");
}

static void add_place(struct route *route, size_t offset_bytes, int line, int column)
{
    route->sql_places =
        grow_by_one(route->sql_places, route->sql_place_count, sizeof *route->sql_places);
    route->sql_places[route->sql_place_count++] =
        (struct sql_place){.offset_bytes = offset_bytes, .line = line, .column = column};
}

/* Copies what lies before the token as it is. */
static void copy_until(struct statement *s, size_t end)
{
    buffer_append(&s->sql, s->lexer.text + s->copied_bytes, end - s->copied_bytes);
    s->copied_bytes = end;
}

static bool joins_a_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || (unsigned char)c >= 0x80;
}

static void complain_of_name(struct statement *s, const struct sql_token *token)
{
    const struct route *route = s->file->route;
    const char **names = calloc(route->param_count + 1, sizeof *names), *near;
    char *wrong = copy_text(s->lexer.text + token->start + 1, token->size_bytes - 1);

    ENSURE(names != NULL);
    for (size_t i = 0; i < route->param_count; i++)
        names[i] = route->params[i].name;
    near = nearest_word(wrong, names, route->param_count);
    query_file_complain(s->file, token->line, token->column, ":%s has no @param%s%s", wrong,
                        near != NULL ? "; did you mean :" : "", near != NULL ? near : "");
    free(wrong);
    free(names);
}

static size_t find_param(const struct statement *s, const struct sql_token *token)
{
    const struct route *route = s->file->route;
    size_t i = 0;

    while (i < route->param_count &&
           (strlen(route->params[i].name) != token->size_bytes - 1 ||
            memcmp(route->params[i].name, s->lexer.text + token->start + 1,
                   token->size_bytes - 1) != 0))
        i++;
    return i;
}

/* :name becomes $n, apart from its neighbours where they would run together. */
static void take_parameter(struct statement *s, const struct sql_token *token)
{
    struct route *route = s->file->route;
    size_t i = find_param(s, token), end = token->start + token->size_bytes;

    if (i == route->param_count) {
        complain_of_name(s, token);
        return;
    }
    if (s->number_of[i] == 0) {
        route->bind_params =
            grow_by_one(route->bind_params, route->bind_count, sizeof *route->bind_params);
        route->bind_params[route->bind_count++] = (uint32_t)i;
        s->number_of[i] = (uint32_t)route->bind_count;
    }
    copy_until(s, token->start);
    if (s->sql.size_bytes > 0 && joins_a_name(s->sql.data[s->sql.size_bytes - 1]))
        buffer_append_char(&s->sql, ' ');
    add_place(route, s->sql.size_bytes, token->line, token->column);
    buffer_append_format(&s->sql, "$%" PRIu32, s->number_of[i]);
    if (end < s->lexer.size_bytes && joins_a_name(s->lexer.text[end]))
        buffer_append_char(&s->sql, ' ');
    s->copied_bytes = end;
    add_place(route, s->sql.size_bytes, token->line, token->column + (int)token->size_bytes);
}

static void judge_first_word(struct statement *s, const struct sql_token *token)
{
    for (size_t i = 0; i < sizeof first_words / sizeof *first_words; i++)
        if (is_word(s, token, first_words[i].word))
            s->kind = first_words[i].kind;
    s->is_with = is_word(s, token, "with");
    s->has_main_word = !s->is_with;
    s->file->route->may_commit_inside = s->kind == STATEMENT_COMMITS;
    if (s->kind == STATEMENT_TRANSACTION)
        query_file_complain(s->file, token->line, token->column,
                            "transaction control: weir opens and ends transactions itself");
    if (s->kind == STATEMENT_SESSION)
        query_file_complain(s->file, token->line, token->column,
                            "%.*s is not possible here: sessions are shared by all requests",
                            (int)token->size_bytes, s->lexer.text + token->start);
}

static void complain_of_write(struct statement *s, const struct sql_token *token)
{
    const struct route *route = s->file->route;

    if (s->has_write || !s->file->has_first_line || route->is_write)
        return;
    s->has_write = true;
    query_file_complain(s->file, token->line, token->column,
                        "a write (%.*s) in a GET: make the route a POST, PUT, PATCH or DELETE",
                        (int)token->size_bytes, s->lexer.text + token->start);
}

/* WITH x AS (DELETE ..) and WITH x AS (..) DELETE ..: by place, so that a column called update, or
 * FOR UPDATE, is left alone. */
static bool is_write_in_with(struct statement *s, const struct sql_token *token)
{
    if (!s->is_with)
        return false;
    if (is_mark(s, &s->last, '(') &&
        (is_word(s, &s->before_last, "as") || is_word(s, &s->before_last, "materialized")))
        return is_write_word(s, token);
    if (s->depth == 0 && !s->has_main_word && is_mark(s, &s->last, ')')) {
        s->has_main_word = is_write_word(s, token) || is_word(s, token, "select") ||
                           is_word(s, token, "values") || is_word(s, token, "table");
        return is_write_word(s, token);
    }
    return false;
}

/* SELECT .. INTO makes a table. INTO is reserved: only after AS or a dot is it a name. */
static bool is_select_into(const struct statement *s, const struct sql_token *token)
{
    return s->depth == 0 && s->kind == STATEMENT_READ && is_word(s, token, "into") &&
           !is_word(s, &s->last, "as") && !is_mark(s, &s->last, '.');
}

static void take_word(struct statement *s, const struct sql_token *token)
{
    bool is_first =
        s->token_count == 0 || (s->token_count == (size_t)s->depth && is_mark(s, &s->last, '('));

    if (is_first) {
        judge_first_word(s, token);
        if (s->kind == STATEMENT_WRITE || s->kind == STATEMENT_COMMITS)
            complain_of_write(s, token);
    } else if (is_write_in_with(s, token) || is_select_into(s, token)) {
        complain_of_write(s, token);
    }
}

static void take_literal(struct statement *s, const struct sql_token *token)
{
    const char *text = s->lexer.text + token->start;

    if (token->size_bytes > 1 && text[0] == '$' && text[1] >= '0' && text[1] <= '9')
        query_file_complain(s->file, token->line, token->column,
                            "%.*s: write :name, and declare it with @param",
                            (int)(token->size_bytes < 12 ? token->size_bytes : 12), text);
}

static void take_token(struct statement *s, const struct sql_token *token)
{
    switch (token->kind) {
    case SQL_TOKEN_PARAMETER:
        take_parameter(s, token);
        break;
    case SQL_TOKEN_WORD:
        take_word(s, token);
        break;
    case SQL_TOKEN_LITERAL:
        take_literal(s, token);
        break;
    case SQL_TOKEN_OTHER:
        s->depth += is_mark(s, token, '(');
        s->depth -= is_mark(s, token, ')');
        break;
    case SQL_TOKEN_END:
    case SQL_TOKEN_COMMENT:
    case SQL_TOKEN_SEMICOLON:
    case SQL_TOKEN_ERROR:
        break;
    }
    if (s->token_count == 0) {
        s->copied_bytes = token->start;
        s->file->route->sql_line = token->line;
        s->file->route->sql_column = token->column;
    }
    s->token_count++;
    s->before_last = s->last;
    s->last = *token;
}

/* A setting that is no setting any more would be lost without a word. */
static void take_comment(const struct statement *s, const struct sql_token *token)
{
    struct line line = {.text = s->lexer.text + token->start + 2,
                        .size_bytes = token->size_bytes - 2,
                        .number = token->line,
                        .column = token->column + 2},
                name;

    if (s->lexer.text[token->start] != '-')
        return;
    line_trim(&line);
    name = line_take_word(&line);
    if (name.size_bytes > 1 && name.text[0] == '@' &&
        setting_is_known(name.text + 1, name.size_bytes - 1))
        query_file_complain(s->file, name.number, name.column,
                            "%.*s stands below the comment block, where it says nothing: the block "
                            "ends at the first line that is no comment",
                            (int)name.size_bytes, name.text);
}

/* False: the end, or nothing after it can be read. */
static bool step(struct statement *s)
{
    struct sql_token token = sql_lexer_next(&s->lexer);

    switch (token.kind) {
    case SQL_TOKEN_END:
        return false;
    case SQL_TOKEN_ERROR:
        query_file_complain(s->file, token.line, token.column, "%s", token.problem);
        s->is_broken = true;
        return false;
    case SQL_TOKEN_COMMENT:
        take_comment(s, &token);
        return true;
    case SQL_TOKEN_SEMICOLON:
        s->has_ended = true;
        return true;
    case SQL_TOKEN_WORD:
    case SQL_TOKEN_PARAMETER:
    case SQL_TOKEN_LITERAL:
    case SQL_TOKEN_OTHER:
        break;
    }
    if (s->has_ended && s->token_count > 0) {
        query_file_complain(s->file, token.line, token.column,
                            "a second statement: a file holds one");
        s->has_second = true;
        return false;
    }
    take_token(s, &token);
    return true;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size_bytes)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < size_bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211); /* FNV-1a */
    return hash;
}

/* The text and the types: two statements with one hash may share what is prepared. */
static void name_statement(struct route *route)
{
    uint64_t hash = hash_bytes(UINT64_C(14695981039346656037), route->sql, strlen(route->sql));

    for (size_t i = 0; i < route->bind_count; i++) {
        const struct param_type *type = &route->params[route->bind_params[i]].type;

        hash = hash_bytes(hash, &type->oid, sizeof type->oid);
        if (type->oid == 0)
            hash = hash_bytes(hash, type->name, strlen(type->name) + 1);
    }
    route->sql_hash = hash;
    (void)snprintf(route->statement_name, sizeof route->statement_name, "w_%016" PRIx64, hash);
}

/* One that callers may leave out may also be there for old callers' sake; one that they must send
 * and that does nothing is a mistake. */
static void check_unused(struct statement *s)
{
    const struct route *route = s->file->route;

    for (size_t i = 0; i < route->param_count; i++) {
        const struct param *param = &route->params[i];

        if (s->number_of[i] != 0)
            continue;
        if (param->is_optional || param->default_text != NULL)
            complaints_warn(s->file->complaints, s->file->shown, param->line, param->column,
                            "@param %s is not used: the statement has no :%s", param->name,
                            param->name);
        else
            query_file_complain(s->file, param->line, param->column,
                                "@param %s is not used: the statement has no :%s", param->name,
                                param->name);
    }
}

static void finish(struct statement *s, int line, int column)
{
    struct route *route = s->file->route;

    if (s->token_count == 0) {
        if (!s->is_broken)
            query_file_complain(s->file, line, column, "there is no statement");
        route->sql = copy_text("", 0);
        name_statement(route);
        return;
    }
    if (s->copied_bytes < s->last.start + s->last.size_bytes)
        copy_until(s, s->last.start + s->last.size_bytes);
    ENSURE(!s->sql.failed);
    route->sql = copy_text(s->sql.data, s->sql.size_bytes);
    name_statement(route);
    if (!s->is_broken && !s->has_second)
        check_unused(s);
}

const char *statement_word(size_t index, enum statement_kind *out_kind)
{
    if (index >= sizeof first_words / sizeof *first_words)
        return NULL;
    *out_kind = first_words[index].kind;
    return first_words[index].word;
}

void statement_read(struct query_file *file, const char *text, size_t size_bytes, int line,
                    int column)
{
    struct statement s = {.file = file, .kind = STATEMENT_READ};

    s.number_of = calloc(file->route->param_count + 1, sizeof *s.number_of);
    ENSURE(s.number_of != NULL);
    buffer_init(&s.sql, 16 * size_bytes + 64);
    sql_lexer_init(&s.lexer, text, size_bytes, line, column);
    while (step(&s))
        ;
    finish(&s, line, column);
    free(s.number_of);
    buffer_fini(&s.sql);
}

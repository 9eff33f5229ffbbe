#include "query/sql_lexer.h"

#include <string.h>
#include <strings.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_ascii_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name_start(char c)
{
    return is_ascii_name_start(c) || (unsigned char)c >= 0x80;
}

static bool is_name_part(char c)
{
    return is_name_start(c) || is_digit(c) || c == '$';
}

/* The byte at `at`, or NUL past the end: no rule here starts or goes on with a NUL. */
static char char_at(const struct sql_lexer *lexer, size_t at)
{
    if (at >= lexer->size_bytes)
        return '\0';
    return lexer->text[at];
}

/* Moves to `end`, counting lines and columns. */
static void advance(struct sql_lexer *lexer, size_t end)
{
    for (; lexer->at < end; lexer->at++) {
        if (lexer->text[lexer->at] == '\n') {
            lexer->line++;
            lexer->column = 1;
        } else {
            lexer->column++;
        }
    }
}

static size_t end_of_line(const struct sql_lexer *lexer, size_t at)
{
    const char *newline = memchr(lexer->text + at, '\n', lexer->size_bytes - at);

    return newline != NULL ? (size_t)(newline - lexer->text) : lexer->size_bytes;
}

/* A string goes on when only blanks, comments and at least one newline part it from another quote;
 * returns where that quote is, or 0. */
static size_t find_continuation(const struct sql_lexer *lexer, size_t at)
{
    bool has_newline = false;

    while (at < lexer->size_bytes) {
        if (is_space(lexer->text[at])) {
            has_newline = has_newline || lexer->text[at] == '\n' || lexer->text[at] == '\r';
            at++;
        } else if (lexer->text[at] == '-' && char_at(lexer, at + 1) == '-') {
            at = end_of_line(lexer, at);
        } else {
            return lexer->text[at] == '\'' && has_newline ? at : 0;
        }
    }
    return 0;
}

/* The end of what opens with `quote` at `at`; 0: it is never closed. A doubled quote is a quote. */
static size_t scan_quoted(const struct sql_lexer *lexer, size_t at, char quote, bool has_escapes)
{
    for (at++; at < lexer->size_bytes; at++) {
        if (has_escapes && lexer->text[at] == '\\') {
            at++;
        } else if (lexer->text[at] == quote) {
            size_t next;

            if (char_at(lexer, at + 1) == quote) {
                at++;
                continue;
            }
            /* What follows is read by the same rules: E'a' <newline> '\'' is one string. */
            next = has_escapes ? find_continuation(lexer, at + 1) : 0;
            if (next == 0)
                return at + 1;
            at = next;
        }
    }
    return 0;
}

static size_t scan_block_comment(const struct sql_lexer *lexer, size_t at)
{
    size_t depth = 0;

    while (at + 1 < lexer->size_bytes) {
        if (lexer->text[at] == '/' && lexer->text[at + 1] == '*') {
            depth++;
            at += 2;
        } else if (lexer->text[at] == '*' && lexer->text[at + 1] == '/') {
            depth--;
            at += 2;
            if (depth == 0)
                return at;
        } else {
            at++;
        }
    }
    return 0;
}

/* The size of the $tag$ at `at`, or 0. */
static size_t dollar_tag_size(const struct sql_lexer *lexer, size_t at)
{
    size_t end = at + 1;

    if (is_name_start(char_at(lexer, end)))
        while (is_name_start(char_at(lexer, end)) || is_digit(char_at(lexer, end)))
            end++;
    return char_at(lexer, end) == '$' ? end + 1 - at : 0;
}

static size_t scan_dollar_quote(const struct sql_lexer *lexer, size_t at, size_t tag_bytes)
{
    const char *from = lexer->text + at + tag_bytes;
    const char *close =
        memmem(from, lexer->size_bytes - at - tag_bytes, lexer->text + at, tag_bytes);

    return close != NULL ? (size_t)(close - lexer->text) + tag_bytes : 0;
}

/* 1 1.5 .5 1e-3 0x1F 1_000; a second dot ends it, as in 1..5. */
static size_t scan_number(const struct sql_lexer *lexer, size_t at)
{
    size_t end = at;

    while (is_digit(char_at(lexer, end)) || char_at(lexer, end) == '_')
        end++;
    if (end == at + 1 && lexer->text[at] == '0' && strchr("xXoObB", char_at(lexer, end)) != NULL &&
        char_at(lexer, end) != '\0') {
        while (is_name_part(char_at(lexer, end)) && char_at(lexer, end) != '$')
            end++;
        return end;
    }
    if (char_at(lexer, end) == '.' && char_at(lexer, end + 1) != '.') {
        end++;
        while (is_digit(char_at(lexer, end)) || char_at(lexer, end) == '_')
            end++;
    }
    if (char_at(lexer, end) == 'e' || char_at(lexer, end) == 'E') {
        size_t exponent = end + 1;

        if (char_at(lexer, exponent) == '+' || char_at(lexer, exponent) == '-')
            exponent++;
        if (is_digit(char_at(lexer, exponent))) {
            end = exponent;
            while (is_digit(char_at(lexer, end)))
                end++;
        }
    }
    return end;
}

static size_t scan_name(const struct sql_lexer *lexer, size_t at)
{
    while (is_name_part(char_at(lexer, at)))
        at++;
    return at;
}

static size_t scan_parameter(const struct sql_lexer *lexer, size_t at)
{
    at++;
    while (is_ascii_name_start(char_at(lexer, at)) || is_digit(char_at(lexer, at)))
        at++;
    return at;
}

/* Words that an operand follows: a colon after them is no slice. */
static bool is_operator_word(const char *word, size_t size_bytes)
{
    static const char *const words[] = {
        "and",  "or", "not",     "in",  "is", "like",  "ilike",  "then", "else", "when", "case",
        "from", "to", "between", "for", "by", "array", "select", "any",  "all",  "some"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == size_bytes && strncasecmp(word, words[i], size_bytes) == 0)
            return true;
    return false;
}

static struct sql_token finish(struct sql_lexer *lexer, struct sql_token token, size_t end)
{
    token.size_bytes = end - token.start;
    advance(lexer, end);
    return token;
}

/* The rest of the text is the mistake: nothing after it can be read with any sense. */
static struct sql_token fail(struct sql_lexer *lexer, struct sql_token token, const char *problem)
{
    token.kind = SQL_TOKEN_ERROR;
    token.problem = problem;
    return finish(lexer, token, lexer->size_bytes);
}

static struct sql_token take(struct sql_lexer *lexer, struct sql_token token,
                             enum sql_token_kind kind, size_t end, const char *problem)
{
    if (end == 0)
        return fail(lexer, token, problem);
    token.kind = kind;
    lexer->ends_operand = kind == SQL_TOKEN_LITERAL || kind == SQL_TOKEN_PARAMETER ||
                          (kind == SQL_TOKEN_COMMENT && lexer->ends_operand);
    return finish(lexer, token, end);
}

static struct sql_token take_string(struct sql_lexer *lexer, struct sql_token token, size_t quote,
                                    bool has_escapes)
{
    char mark = lexer->text[quote];

    return take(lexer, token, SQL_TOKEN_LITERAL, scan_quoted(lexer, quote, mark, has_escapes),
                mark == '"' ? "the quoted name is never closed" : "the string is never closed");
}

/* A name; or the letter that says how to read the string it stands in front of. */
static struct sql_token take_word(struct sql_lexer *lexer, struct sql_token token)
{
    size_t at = token.start, end = scan_name(lexer, at);
    char first = lexer->text[at];

    if (end == at + 1 && char_at(lexer, end) == '\'' && strchr("eEbBxXnN", first) != NULL)
        return take_string(lexer, token, end, first == 'e' || first == 'E');
    if (end == at + 1 && (first == 'u' || first == 'U') && char_at(lexer, end) == '&' &&
        (char_at(lexer, end + 1) == '\'' || char_at(lexer, end + 1) == '"'))
        return take_string(lexer, token, end + 1, false);

    token = take(lexer, token, SQL_TOKEN_WORD, end, NULL);
    lexer->ends_operand = !is_operator_word(lexer->text + token.start, token.size_bytes);
    return token;
}

static struct sql_token take_dollar(struct sql_lexer *lexer, struct sql_token token)
{
    size_t at = token.start, end = at + 1, tag = dollar_tag_size(lexer, at);

    if (tag > 0)
        return take(lexer, token, SQL_TOKEN_LITERAL, scan_dollar_quote(lexer, at, tag),
                    "the dollar-quoted string is never closed");
    while (is_digit(char_at(lexer, end)))
        end++;
    return take(lexer, token, end > at + 1 ? SQL_TOKEN_LITERAL : SQL_TOKEN_OTHER, end, NULL);
}

static struct sql_token take_colon(struct sql_lexer *lexer, struct sql_token token)
{
    char next = char_at(lexer, token.start + 1);
    bool is_slice = (lexer->nesting & 1) != 0 && lexer->ends_operand;

    if (next == ':' || next == '=')
        return take(lexer, token, SQL_TOKEN_OTHER, token.start + 2, NULL);
    if (is_ascii_name_start(next) && !is_slice)
        return take(lexer, token, SQL_TOKEN_PARAMETER, scan_parameter(lexer, token.start), NULL);
    return take(lexer, token, SQL_TOKEN_OTHER, token.start + 1, NULL);
}

static struct sql_token take_mark(struct sql_lexer *lexer, struct sql_token token)
{
    char c = lexer->text[token.start];

    token =
        take(lexer, token, c == ';' ? SQL_TOKEN_SEMICOLON : SQL_TOKEN_OTHER, token.start + 1, NULL);
    if (c == '[' || c == '(') {
        /* Past 64 levels the outermost are forgotten, and count as ( ). */
        lexer->nesting = lexer->nesting << 1 | (c == '[');
    } else if (c == ']' || c == ')') {
        lexer->nesting >>= 1;
        lexer->ends_operand = true;
    }
    return token;
}

void sql_lexer_init(struct sql_lexer *lexer, const char *text, size_t size_bytes, int line,
                    int column)
{
    *lexer =
        (struct sql_lexer){.text = text, .size_bytes = size_bytes, .line = line, .column = column};
}

static void skip_space(struct sql_lexer *lexer)
{
    size_t end = lexer->at;

    while (is_space(char_at(lexer, end)))
        end++;
    advance(lexer, end);
}

struct sql_token sql_lexer_next(struct sql_lexer *lexer)
{
    struct sql_token token = {.kind = SQL_TOKEN_END};
    char c, next;

    skip_space(lexer);
    token.start = lexer->at;
    token.line = lexer->line;
    token.column = lexer->column;
    if (lexer->at >= lexer->size_bytes)
        return token;

    c = lexer->text[lexer->at];
    next = char_at(lexer, lexer->at + 1);
    if (c == '-' && next == '-')
        return take(lexer, token, SQL_TOKEN_COMMENT, end_of_line(lexer, lexer->at), NULL);
    if (c == '/' && next == '*')
        return take(lexer, token, SQL_TOKEN_COMMENT, scan_block_comment(lexer, lexer->at),
                    "the comment is never closed");
    if (c == '\'' || c == '"')
        return take_string(lexer, token, lexer->at, false);
    if (c == '$')
        return take_dollar(lexer, token);
    if (c == ':')
        return take_colon(lexer, token);
    if (is_digit(c) || (c == '.' && is_digit(next)))
        return take(lexer, token, SQL_TOKEN_LITERAL, scan_number(lexer, lexer->at), NULL);
    if (is_name_start(c))
        return take_word(lexer, token);
    return take_mark(lexer, token);
}

bool sql_token_is_word(const char *text, const struct sql_token *token, const char *word)
{
    return token->kind == SQL_TOKEN_WORD && token->size_bytes == strlen(word) &&
           strncasecmp(text + token->start, word, token->size_bytes) == 0;
}

bool sql_token_is_mark(const char *text, const struct sql_token *token, char mark)
{
    return token->kind == SQL_TOKEN_OTHER && token->size_bytes == 1 && text[token->start] == mark;
}

/* sql_lexer.h - PostgreSQL's lexical rules (manual, section 4.1), as far as needed to find :names,
 * the first keyword, semicolons and comments. SPDX-License-Identifier: MIT
 *
 * Strings ('..', E'..', B/X/U&, dollar quotes), quoted names, comments (nested), ::casts, array
 * slices
 * ([1:2], [a:b]) and := are not parameters.
 *
 * In [ ] a colon after an operand is a slice ([1:b], [a:b]); elsewhere (ARRAY[:a, :b], x[:i]) a
 * colon and a name are a parameter.
 *
 * Threads  values; the text is borrowed.
 * Errors   SQL_TOKEN_ERROR with a sentence: unterminated string, comment, quoted name, dollar
 * quote. */
#ifndef QUERY_SQL_LEXER_H
#define QUERY_SQL_LEXER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sql_token_kind {
    SQL_TOKEN_END,
    SQL_TOKEN_WORD,      /* keyword or plain name */
    SQL_TOKEN_PARAMETER, /* :name; start is at the colon */
    SQL_TOKEN_COMMENT,
    SQL_TOKEN_SEMICOLON,
    SQL_TOKEN_LITERAL, /* string, number, quoted name, $1 */
    SQL_TOKEN_OTHER,   /* one operator or punctuation character, or :: */
    SQL_TOKEN_ERROR,
};

struct sql_token {
    enum sql_token_kind kind;
    size_t start, size_bytes; /* in the text */
    int line, column;         /* of its start, from 1 (columns in bytes) */
    const char *problem;      /* SQL_TOKEN_ERROR: static text */
};

struct sql_lexer {
    const char *text; /* borrowed */
    size_t size_bytes;
    size_t at;
    int line, column;
    uint64_t nesting;  /* one bit a level, innermost lowest: 1 is [ ], 0 is ( ) */
    bool ends_operand; /* the last token could end an operand: in [ ] a colon is then a slice */
};

void sql_lexer_init(struct sql_lexer *lexer, const char *text, size_t size_bytes, int line,
                    int column);
struct sql_token sql_lexer_next(struct sql_lexer *lexer);

/* Of the same text. Keywords in any case; a mark is one character. */
bool sql_token_is_word(const char *text, const struct sql_token *token, const char *word);
bool sql_token_is_mark(const char *text, const struct sql_token *token, char mark);
#endif

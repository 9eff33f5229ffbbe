#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "query/sql_lexer.h"

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

/* One letter a token: W word, P parameter, C comment, S semicolon, L literal, O other, E error. */
static void letters_of(const char *sql, char *out, size_t room)
{
    static const char letters[] = {
        [SQL_TOKEN_WORD] = 'W',      [SQL_TOKEN_PARAMETER] = 'P', [SQL_TOKEN_COMMENT] = 'C',
        [SQL_TOKEN_SEMICOLON] = 'S', [SQL_TOKEN_LITERAL] = 'L',   [SQL_TOKEN_OTHER] = 'O',
        [SQL_TOKEN_ERROR] = 'E'};
    struct sql_lexer lexer;
    size_t count = 0;

    sql_lexer_init(&lexer, sql, strlen(sql), 1, 1);
    for (struct sql_token token = sql_lexer_next(&lexer); token.kind != SQL_TOKEN_END;
         token = sql_lexer_next(&lexer)) {
        assert_true(count + 1 < room);
        out[count++] = letters[token.kind];
    }
    out[count] = '\0';
}

static void test_text_becomes_the_tokens_that_postgresql_sees(void **state)
{
    static const struct {
        const char *sql, *letters;
    } cases[] = {
        {"", ""},
        {" \t\r\n\f\v", ""},
        {"SELECT 1", "WL"},
        {"SELECT :a", "WP"},
        {"SELECT :a::int8, '1'::int", "WPOWOLOW"},
        {"f(a := :x, b => :y)", "WOWOPOWOOPO"},
        {"a=:b", "WOP"},
        {"':a'", "L"},
        {"'a'':a'", "L"},
        {"'it\\' :a", "LP"},
        {"E'it\\' :a'", "L"},
        {"e'\\\\' :a", "LP"},
        {"E'a'\n'\\' :b' :a", "LP"},
        {"E'a' -- c\n '\\':b' :a", "LP"},
        {"E'a' '\\' :a", "LLP"},
        {"b'01' X'ff' N'x' :a", "LLLP"},
        {"U&'\\0061' U&\"d\" UESCAPE '!'", "LLWL"},
        {"u & 'x'", "WOL"},
        {"\":a\" \"a\"\":b\"", "LL"},
        {"$$ :a $$", "L"},
        {"$x$ :a $$ $y$ $x$ :b", "LP"},
        {"$1 $23", "LL"},
        {"$ :a", "OP"},
        {"a$b$ :c", "WP"},
        {"$\xc3\xa9$ :a $\xc3\xa9$", "L"},
        {"-- :a\n:b", "CP"},
        {"-- :a", "C"},
        {"/* :a /* :b */ :c */ :d", "CP"},
        {"/**/:a", "CP"},
        {"a-:b", "WOP"},
        {"a/:b", "WOP"},
        {"1.5 .5 1e-3 1e 0x1F 1_000 1..5", "LLLLWLLLOL"},
        {"[1:2]", "OLOLO"},
        {"x[1:b]", "WOLOWO"},
        {"x[a:b]", "WOWOWO"},
        {"x[(a):b]", "WOOWOOWO"},
        {"x[y[1]:b]", "WOWOLOOWO"},
        {"x[:i]", "WOPO"},
        {"x[:lo : :hi]", "WOPOPO"},
        {"ARRAY[:a, :b]", "WOPOPO"},
        {"ARRAY[1+:a, NOT :b, (SELECT id WHERE id = :c)]", "WOLOPOWPOOWWWWOPOO"},
        {"ARRAY[CASE WHEN a THEN :b ELSE :c END]", "WOWWWWPWPWO"},
        {"x[1 /* c */ :b]", "WOLCOWO"},
        {"a ? :b", "WOP"},
        {":a.b", "POW"},
        {":\xc3\xa9", "OW"},
        {": a", "OW"},
        {":1", "OL"},
        {":A_1 :_", "PP"},
        {"a;b;", "WSWS"},
        {"\xc3\xa9t\xc3\xa9", "W"},
        {"'open :a", "E"},
        {"E'open\\'", "E"},
        {"\"open", "E"},
        {"/* open /* */", "E"},
        {"/*/", "E"},
        {"$x$ open $y$", "E"},
        {"SELECT 'open", "WE"},
    };
    char letters[64];

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        letters_of(cases[i].sql, letters, sizeof letters);
        if (strcmp(letters, cases[i].letters) != 0)
            fail_msg("%s: %s, not %s", cases[i].sql, letters, cases[i].letters);
    }
}

static void test_tokens_know_their_line_and_column(void **state)
{
    struct sql_lexer lexer;
    struct sql_token token;
    const char *sql = "SELECT 'a\nb' ::\n  /* x\n*/ :id";

    (void)state;
    sql_lexer_init(&lexer, sql, strlen(sql), 7, 3);
    token = sql_lexer_next(&lexer);
    assert_int_equal(token.line, 7);
    assert_int_equal(token.column, 3);
    token = sql_lexer_next(&lexer);
    assert_int_equal(token.column, 10);
    token = sql_lexer_next(&lexer);
    assert_int_equal(token.line, 8);
    assert_int_equal(token.column, 4);
    token = sql_lexer_next(&lexer);
    assert_int_equal(token.line, 9);
    assert_int_equal(token.column, 3);
    token = sql_lexer_next(&lexer);
    assert_int_equal(token.kind, SQL_TOKEN_PARAMETER);
    assert_int_equal(token.line, 10);
    assert_int_equal(token.column, 4);
    assert_int_equal(token.size_bytes, 3);
    assert_int_equal(sql_lexer_next(&lexer).kind, SQL_TOKEN_END);
    assert_int_equal(sql_lexer_next(&lexer).kind, SQL_TOKEN_END);
}

static void test_errors_say_what_is_not_closed(void **state)
{
    static const struct {
        const char *sql, *word;
    } cases[] = {{"'a", "string"}, {"\"a", "name"}, {"/*", "comment"}, {"$$", "dollar"}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct sql_lexer lexer;
        struct sql_token token;

        sql_lexer_init(&lexer, cases[i].sql, strlen(cases[i].sql), 1, 1);
        token = sql_lexer_next(&lexer);
        assert_int_equal(token.kind, SQL_TOKEN_ERROR);
        assert_non_null(strstr(token.problem, cases[i].word));
        assert_int_equal(sql_lexer_next(&lexer).kind, SQL_TOKEN_END);
    }
}

static void test_nesting_without_end_is_read(void **state)
{
    enum { DEPTH = 5000 };
    char sql[2 * DEPTH + 3];
    struct sql_lexer lexer;
    size_t count = 0;

    (void)state;
    memset(sql, '[', DEPTH);
    sql[DEPTH] = ':';
    sql[DEPTH + 1] = 'a';
    memset(sql + DEPTH + 2, ']', DEPTH);
    sql_lexer_init(&lexer, sql, 2 * DEPTH + 2, 1, 1);
    while (sql_lexer_next(&lexer).kind != SQL_TOKEN_END)
        count++;
    assert_int_equal(count, 2 * DEPTH + 1);
}

/* Every token starts where the one before ended, or later, and the whole text is passed. */
static void test_random_bytes_are_cut_into_tokens_without_gaps(void **state)
{
    static const char alphabet[] = "'\"$:-/*[](){};\\ \nEeUu&x01.a_\xc3\xa9\0";
    unsigned seed = 20260101;

    (void)state;
    for (int round = 0; round < 100000; round++) {
        size_t size = (size_t)rand_r(&seed) % 24, passed = 0;
        char *text = malloc(size + 1); /* exact, so that one byte too far is seen */
        struct sql_lexer lexer;
        struct sql_token token;

        assert_non_null(text);
        for (size_t i = 0; i < size; i++)
            text[i] =
                (char)(rand_r(&seed) % 8 != 0 ? alphabet[(size_t)rand_r(&seed) % sizeof alphabet]
                                              : rand_r(&seed));
        text = realloc(text, size > 0 ? size : 1);
        sql_lexer_init(&lexer, text, size, 1, 1);
        do {
            token = sql_lexer_next(&lexer);
            assert_true(token.start >= passed && token.start + token.size_bytes <= size);
            assert_true(token.kind == SQL_TOKEN_END || token.size_bytes > 0);
            passed = token.start + token.size_bytes;
        } while (token.kind != SQL_TOKEN_END);
        assert_int_equal(passed, size);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_becomes_the_tokens_that_postgresql_sees),
        cmocka_unit_test(test_tokens_know_their_line_and_column),
        cmocka_unit_test(test_errors_say_what_is_not_closed),
        cmocka_unit_test(test_nesting_without_end_is_read),
        cmocka_unit_test(test_random_bytes_are_cut_into_tokens_without_gaps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

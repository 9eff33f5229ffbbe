#include "base/reason.h"

struct reason_row {
    const char *word;
    int http;
    bool is_retryable;
    const char *title;
};

#define REASON_ROW(code, word, http, retryable, title) [code] = {word, http, retryable, title},
static const struct reason_row rows[REASON_COUNT] = {REASON_TABLE(REASON_ROW)};

const char *reason_word(enum reason r)
{
    return rows[r].word;
}

int reason_http(enum reason r)
{
    return rows[r].http;
}

bool reason_is_retryable(enum reason r)
{
    return rows[r].is_retryable;
}

const char *reason_title(enum reason r)
{
    return rows[r].title;
}

bool reason_is_server_side(enum reason r)
{
    return rows[r].http >= 500;
}

/* reason.h - the one closed list of reasons: body, header, log and metric use the same words.
 * SPDX-License-Identifier: MIT
 *
 * A reason says why an answer is not a live, whole one. What it means (HTTP status, whether asking
 * again may help, a title for people) is data in this table and nowhere else. */
#ifndef BASE_REASON_H
#define BASE_REASON_H
#include <stdbool.h>

/* clang-format off */
/*    code                        word                     http  retryable  title */
#define REASON_TABLE(X)                                                                                              \
    X(REASON_NONE,                "none",                   200, false, "OK")                                        \
    X(REASON_BREAKER_OPEN,        "breaker-open",           503, true,  "The circuit breaker is open")               \
    X(REASON_BULKHEAD_FULL,       "bulkhead-full",          503, true,  "All permits are in use")                    \
    X(REASON_QUEUE_TIMEOUT,       "queue-timeout",          503, true,  "No permit became free in time")             \
    X(REASON_DEADLINE,            "deadline",               504, true,  "The deadline passed")                       \
    X(REASON_CONNECT_FAILED,      "connect-failed",         503, true,  "The dependency cannot be reached")          \
    X(REASON_CONNECTION_LOST,     "connection-lost",        503, true,  "The connection was lost")                   \
    X(REASON_UNRESOLVED,          "unresolved",             503, true,  "The dependency's name does not resolve")    \
    X(REASON_DATABASE_UNAVAILABLE, "database-unavailable",  503, true,  "The database is not available")             \
    X(REASON_DATABASE_ERROR,      "database-error",         500, false, "The database reported an error")            \
    X(REASON_CONFLICT_RETRY,      "conflict-retry",         503, true,  "A concurrent change got in the way")        \
    X(REASON_WRONG_NODE,          "wrong-node",             503, true,  "The database is read-only just now")        \
    X(REASON_UPSTREAM_ERROR,      "upstream-error",         503, true,  "The upstream failed")                       \
    X(REASON_OUTCOME_UNKNOWN,     "outcome-unknown",        503, false, "It is not known whether the write happened") \
    X(REASON_OVERLOADED,          "overloaded",             503, true,  "The server is overloaded")                  \
    X(REASON_DRAINING,            "draining",               503, true,  "The server is shutting down")               \
    X(REASON_RESULT_TOO_LARGE,    "result-too-large",       500, false, "The result is larger than the route allows") \
    X(REASON_MORE_THAN_ONE_ROW,   "more-than-one-row",      500, false, "More than one row where one was promised")  \
    X(REASON_QUERY_INVALID,       "query-invalid",          500, false, "The statement is not valid")                \
    X(REASON_INTERNAL,            "internal",               500, false, "Internal error")                            \
    X(REASON_BAD_PARAMETER,       "bad-parameter",          400, false, "A parameter is not acceptable")             \
    X(REASON_BAD_BODY,            "bad-body",               400, false, "The request body is not acceptable")        \
    X(REASON_RAISED,              "raised",                 400, false, "The database refused the request")          \
    X(REASON_NOT_FOUND,           "not-found",              404, false, "No such path")                              \
    X(REASON_NO_ROW,              "no-row",                 404, false, "No such row")                               \
    X(REASON_METHOD_NOT_ALLOWED,  "method-not-allowed",     405, false, "Method not allowed")                        \
    X(REASON_NOT_ACCEPTABLE,      "not-acceptable",         406, false, "No acceptable format")                      \
    X(REASON_UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", 415, false, "Unsupported media type")                 \
    X(REASON_BODY_TOO_LARGE,      "body-too-large",         413, false, "The request body is too large")             \
    X(REASON_URI_TOO_LONG,        "uri-too-long",           414, false, "The URI is too long")                       \
    X(REASON_UNAUTHORIZED,        "unauthorized",           401, false, "Not authenticated")                         \
    X(REASON_FORBIDDEN,           "forbidden",              403, false, "Forbidden")                                 \
    X(REASON_RATE_LIMITED,        "rate-limited",           429, true,  "Too many requests")                         \
    X(REASON_CONFLICT,            "conflict",               409, false, "Conflict with existing data")               \
    X(REASON_CONSTRAINT,          "constraint",             422, false, "A constraint is violated")
/* clang-format on */

#define REASON_ENUM(code, word, http, retryable, title) code,
enum reason { REASON_TABLE(REASON_ENUM) REASON_COUNT };
#undef REASON_ENUM

const char *reason_word(enum reason r);
int reason_http(enum reason r);
bool reason_is_retryable(enum reason r);
const char *reason_title(enum reason r);

/* True for a 5xx reason: those for which a stored or declared answer may stand in. */
bool reason_is_server_side(enum reason r);
#endif

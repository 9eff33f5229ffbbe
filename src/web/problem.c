#include <stdbool.h>
#include <string.h>

#include "base/buffer.h"
#include "json/json_text.h"
#include "web/problem_internal.h"

static void append_string(struct buffer *out, const char *key, const char *value)
{
    buffer_append_format(out, ",\"%s\":", key);
    json_text_append(out, value, strlen(value));
}

const char *problem_status_title(int status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 408:
        return "Request Timeout";
    case 431:
        return "Request Header Fields Too Large";
    default:
        return "Error";
    }
}

static void append_type(struct buffer *out, enum reason reason)
{
    if (reason == REASON_NONE)
        buffer_append_text(out, "{\"type\":\"about:blank\"");
    else
        buffer_append_format(out, "{\"type\":\"/problems/%s\"", reason_word(reason));
}

void problem_write(struct buffer *out, const struct problem *problem)
{
    const char *title = problem->reason == REASON_NONE ? problem_status_title(problem->status)
                                                       : reason_title(problem->reason);
    bool has_detail = problem->detail != NULL && problem->detail[0] != '\0';

    append_type(out, problem->reason);
    append_string(out, "title", title);
    buffer_append_format(out, ",\"status\":%d", problem->status);
    append_string(out, "detail", has_detail ? problem->detail : title);
    append_string(out, "instance", problem->instance);
    if (problem->reason != REASON_NONE)
        append_string(out, "reason", reason_word(problem->reason));
    if (problem->dependency != NULL)
        append_string(out, "dependency", problem->dependency);
    if (problem->constraint != NULL && problem->constraint[0] != '\0')
        append_string(out, "constraint", problem->constraint);
    buffer_append_format(out, ",\"retryable\":%s}",
                         reason_is_retryable(problem->reason) ? "true" : "false");
}

void problem_write_type(struct buffer *out, enum reason reason)
{
    append_type(out, reason);
    append_string(out, "title", reason_title(reason));
    buffer_append_format(out, ",\"status\":%d,\"retryable\":%s}", reason_http(reason),
                         reason_is_retryable(reason) ? "true" : "false");
}

enum reason problem_reason_of(const char *word, size_t size_bytes)
{
    for (enum reason r = REASON_NONE + 1; r < REASON_COUNT; r++)
        if (strlen(reason_word(r)) == size_bytes && memcmp(reason_word(r), word, size_bytes) == 0)
            return r;
    return REASON_COUNT;
}

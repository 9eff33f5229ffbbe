/* head_internal.h - what the headers of one request say, gathered in one pass, and whether they can
 * be trusted. SPDX-License-Identifier: MIT
 *
 * The HTTP library lets through what smugglers use: both ways of framing, several lengths, names
 * that are no tokens. Whatever could be read in two ways is refused and the connection closed.
 *
 * Owner    borrows names and values; they live as long as the request.
 * Threads  pure. */
#ifndef WEB_HEAD_INTERNAL_H
#define WEB_HEAD_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "query/params.h"
#include "web/accept_internal.h"

enum { HEAD_MAX_HEADERS = 100, HEAD_MAX_BYTES = 16 * 1024 };

/* Headers that weir itself reads; the first of each counts. */
enum head_field {
    HEAD_CONTENT_TYPE,
    HEAD_ORIGIN,
    HEAD_REQUEST_ID,
    HEAD_TRACEPARENT,
    HEAD_TIMEOUT_MS,
    HEAD_ENVOY_TIMEOUT_MS,
    HEAD_CORS_METHOD,
    HEAD_CORS_HEADERS,
    HEAD_IF_NONE_MATCH, /* several are one list: whoever reads it looks for the others, too */
    HEAD_FIELD_COUNT
};

struct head {
    uint32_t header_count, host_count, length_count, coding_count;
    bool is_chunked;       /* a Transfer-Encoding is exactly "chunked" */
    bool has_wrong_bytes;  /* a name that is no token, a control byte in a value */
    bool has_wrong_length; /* a Content-Length that is no number */
    uint64_t length_bytes; /* of Content-Length; the greatest number when it is beyond */
    struct raw_text fields[HEAD_FIELD_COUNT];
    struct accept accept;
};

void head_init(struct head *head);
void head_add(struct head *head, struct raw_text name, struct raw_text value);

/* NULL: fine. Else the detail of the refusal, and its status, 400 or 431. */
const char *head_refusal(const struct head *head, const char *version, size_t head_bytes,
                         int *out_status);

/* The caller's deadline: the smaller of the two headers, 0 when there is none that is a positive
 * integer. */
int64_t head_caller_timeout_us(const struct head *head);

/* 1 to 64 of [A-Za-z0-9._-]. */
bool head_is_request_id(struct raw_text value);

/* The trace id of a W3C traceparent: 32 hex digits and NUL. False: it is not valid. */
bool head_trace_id(struct raw_text traceparent, char out_id[33]);

/* application/json, or a type that ends in +json; parameters do not matter. */
bool head_is_json(struct raw_text content_type);

/* RFC 9110 tokens: names of headers and methods. */
bool head_is_token(struct raw_text text);

bool raw_text_equals(struct raw_text text, const char *word); /* without regard to ASCII case */
struct raw_text raw_text_trimmed(struct raw_text text);       /* without spaces and tabs around */
#endif

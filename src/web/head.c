#include <string.h>
#include <strings.h>

#include "web/head_internal.h"

static const char *const field_names[HEAD_FIELD_COUNT] = {
    [HEAD_CONTENT_TYPE] = "content-type",
    [HEAD_ORIGIN] = "origin",
    [HEAD_REQUEST_ID] = "x-request-id",
    [HEAD_TRACEPARENT] = "traceparent",
    [HEAD_TIMEOUT_MS] = "x-request-timeout-ms",
    [HEAD_ENVOY_TIMEOUT_MS] = "x-envoy-expected-rq-timeout-ms",
    [HEAD_CORS_METHOD] = "access-control-request-method",
    [HEAD_CORS_HEADERS] = "access-control-request-headers",
    [HEAD_IF_NONE_MATCH] = "if-none-match",
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alphanumeric(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool raw_text_equals(struct raw_text text, const char *word)
{
    return strlen(word) == text.size_bytes && strncasecmp(text.data, word, text.size_bytes) == 0;
}

struct raw_text raw_text_trimmed(struct raw_text text)
{
    while (text.size_bytes > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
        text.data++;
        text.size_bytes--;
    }
    while (text.size_bytes > 0 &&
           (text.data[text.size_bytes - 1] == ' ' || text.data[text.size_bytes - 1] == '\t'))
        text.size_bytes--;
    return text;
}

bool head_is_token(struct raw_text text)
{
    for (size_t i = 0; i < text.size_bytes; i++) {
        char c = text.data[i];

        if (c == '\0' || (!is_alphanumeric(c) && strchr("!#$%&'*+-.^_`|~", c) == NULL))
            return false;
    }
    return text.size_bytes > 0;
}

/* Tabs may stand in a value; other control bytes are marks of two requests in one. */
static bool has_control_bytes(struct raw_text text)
{
    for (size_t i = 0; i < text.size_bytes; i++) {
        unsigned char c = (unsigned char)text.data[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return true;
    }
    return false;
}

/* A positive decimal integer; beyond the type it stays at the greatest. False: something else. */
static bool parse_count(struct raw_text text, uint64_t *out)
{
    uint64_t value = 0;

    if (text.size_bytes == 0)
        return false;
    for (size_t i = 0; i < text.size_bytes; i++) {
        if (!is_digit(text.data[i]))
            return false;
        if (value > (UINT64_MAX - 9) / 10)
            value = UINT64_MAX / 10;
        else
            value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    *out = value;
    return true;
}

void head_init(struct head *head)
{
    *head = (struct head){0};
}

static void add_framing(struct head *head, struct raw_text name, struct raw_text value)
{
    if (raw_text_equals(name, "host")) {
        head->host_count++;
    } else if (raw_text_equals(name, "content-length")) {
        head->length_count++;
        head->has_wrong_length |= !parse_count(value, &head->length_bytes);
    } else if (raw_text_equals(name, "transfer-encoding")) {
        head->coding_count++;
        head->is_chunked = raw_text_equals(value, "chunked");
    } else if (raw_text_equals(name, "accept")) {
        accept_add(&head->accept, value);
    }
}

void head_add(struct head *head, struct raw_text name, struct raw_text value)
{
    value = raw_text_trimmed(value);
    head->header_count++;
    if (!head_is_token(name) || has_control_bytes(value)) {
        head->has_wrong_bytes = true;
        return;
    }
    add_framing(head, name, value);
    for (int i = 0; i < HEAD_FIELD_COUNT; i++)
        if (head->fields[i].data == NULL && raw_text_equals(name, field_names[i]))
            head->fields[i] = value;
}

static const char *framing_refusal(const struct head *head, const char *version)
{
    if (head->length_count > 1)
        return "more than one Content-Length";
    if (head->has_wrong_length)
        return "Content-Length is not a number";
    if (head->coding_count > 0 && head->length_count > 0)
        return "Transfer-Encoding and Content-Length together";
    if (head->coding_count > 1 || (head->coding_count == 1 && !head->is_chunked))
        return "Transfer-Encoding must be exactly: chunked";
    if (head->coding_count > 0 && strcmp(version, "HTTP/1.1") != 0)
        return "Transfer-Encoding needs HTTP/1.1";
    return NULL;
}

const char *head_refusal(const struct head *head, const char *version, size_t head_bytes,
                         int *out_status)
{
    *out_status = 400;
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return "only HTTP/1.1 and HTTP/1.0 are spoken here";
    if (head->has_wrong_bytes)
        return "a header has a name or a value with bytes that may not be there";
    if (head->host_count > 1 || (head->host_count == 0 && strcmp(version, "HTTP/1.1") == 0))
        return "exactly one Host header is needed";
    if (framing_refusal(head, version) != NULL)
        return framing_refusal(head, version);

    *out_status = 431;
    if (head->header_count > HEAD_MAX_HEADERS)
        return "more than 100 headers";
    if (head_bytes > HEAD_MAX_BYTES)
        return "the headers are larger than 16 KiB";
    return NULL;
}

static int64_t timeout_us_of(struct raw_text value)
{
    uint64_t ms;

    if (value.data == NULL || !parse_count(value, &ms))
        return 0;
    return ms > INT64_MAX / 1000 ? INT64_MAX : (int64_t)ms * 1000;
}

int64_t head_caller_timeout_us(const struct head *head)
{
    int64_t own = timeout_us_of(head->fields[HEAD_TIMEOUT_MS]);
    int64_t envoy = timeout_us_of(head->fields[HEAD_ENVOY_TIMEOUT_MS]);

    if (own == 0 || envoy == 0)
        return own + envoy;
    return own < envoy ? own : envoy;
}

bool head_is_request_id(struct raw_text value)
{
    if (value.data == NULL || value.size_bytes == 0 || value.size_bytes > 64)
        return false;
    for (size_t i = 0; i < value.size_bytes; i++) {
        char c = value.data[i];

        if (!is_alphanumeric(c) && c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

/* Lower-case hex digits, not all of them zero. */
static bool is_hex_id(const char *text, size_t size_bytes, bool may_be_zero)
{
    bool is_zero = true;

    for (size_t i = 0; i < size_bytes; i++) {
        if (!is_digit(text[i]) && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
        is_zero = is_zero && text[i] == '0';
    }
    return may_be_zero || !is_zero;
}

/* 00-<32 hex>-<16 hex>-<2 hex>; later versions may go on after another dash. */
bool head_trace_id(struct raw_text traceparent, char out_id[33])
{
    const char *t = traceparent.data;
    size_t size = traceparent.size_bytes;

    if (t == NULL || size < 55 || t[2] != '-' || t[35] != '-' || t[52] != '-')
        return false;
    if (!is_hex_id(t, 2, true) || memcmp(t, "ff", 2) == 0 || !is_hex_id(t + 3, 32, false) ||
        !is_hex_id(t + 36, 16, false) || !is_hex_id(t + 53, 2, true))
        return false;
    if (size > 55 && (memcmp(t, "00", 2) == 0 || t[55] != '-'))
        return false;
    memcpy(out_id, t + 3, 32);
    out_id[32] = '\0';
    return true;
}

bool head_is_json(struct raw_text content_type)
{
    const char *end;
    struct raw_text type = content_type;

    if (type.data == NULL)
        return false;
    end = memchr(type.data, ';', type.size_bytes);
    if (end != NULL)
        type.size_bytes = (size_t)(end - type.data);
    type = raw_text_trimmed(type);
    if (raw_text_equals(type, "application/json"))
        return true;
    return type.size_bytes > 5 && memchr(type.data, '/', type.size_bytes) != NULL &&
           strncasecmp(type.data + type.size_bytes - 5, "+json", 5) == 0;
}

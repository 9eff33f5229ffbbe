#include "query/json_input.h"

#include <stdint.h>
#include <string.h>

#include "base/ensure.h"

void json_input_init(struct json_input *in, const char *text, size_t size_bytes)
{
    *in = (struct json_input){.text = text, .size_bytes = size_bytes};
}

static bool fail(struct json_input *in, const char *problem)
{
    in->problem = problem;
    return false;
}

/* NUL past the end; no rule below accepts one. */
static char peek(const struct json_input *in)
{
    if (in->at >= in->size_bytes)
        return '\0';
    return in->text[in->at];
}

static void skip_space(struct json_input *in)
{
    while (in->at < in->size_bytes && (in->text[in->at] == ' ' || in->text[in->at] == '\t' ||
                                       in->text[in->at] == '\n' || in->text[in->at] == '\r'))
        in->at++;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool skip_digits(struct json_input *in)
{
    size_t start = in->at;

    while (is_digit(peek(in)))
        in->at++;
    return in->at > start;
}

static bool scan_number(struct json_input *in)
{
    if (peek(in) == '-')
        in->at++;
    if (peek(in) == '0')
        in->at++;
    else if (!skip_digits(in))
        return fail(in, "a number needs a digit");
    if (is_digit(peek(in)))
        return fail(in, "a number does not start with 0");
    if (peek(in) == '.') {
        in->at++;
        if (!skip_digits(in))
            return fail(in, "a digit must follow the decimal point");
    }
    if (peek(in) == 'e' || peek(in) == 'E') {
        in->at++;
        if (peek(in) == '+' || peek(in) == '-')
            in->at++;
        if (!skip_digits(in))
            return fail(in, "an exponent needs a digit");
    }
    return true;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits at `text`, or -1. */
static int32_t read_hex4(const char *text, size_t size_bytes)
{
    int32_t code = 0;

    if (size_bytes < 4)
        return -1;
    for (size_t i = 0; i < 4; i++) {
        int digit = hex_value(text[i]);

        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

static bool is_high_surrogate(int32_t code)
{
    return code >= 0xD800 && code <= 0xDBFF;
}

static bool is_low_surrogate(int32_t code)
{
    return code >= 0xDC00 && code <= 0xDFFF;
}

/* What follows "\u" at in->at; takes a surrogate's other half with it. */
static bool scan_unicode_escape(struct json_input *in, struct json_input_value *value)
{
    int32_t code = read_hex4(in->text + in->at, in->size_bytes - in->at), low = -1;

    if (code < 0)
        return fail(in, "\\u needs four hex digits");
    in->at += 4;
    value->has_nul = value->has_nul || code == 0;
    if (is_high_surrogate(code) && in->size_bytes - in->at >= 6 && in->text[in->at] == '\\' &&
        in->text[in->at + 1] == 'u')
        low = read_hex4(in->text + in->at + 2, in->size_bytes - in->at - 2);
    if (is_high_surrogate(code) && is_low_surrogate(low))
        in->at += 6;
    else if (is_high_surrogate(code) || is_low_surrogate(code))
        value->has_lone_surrogate = true;
    return true;
}

static bool scan_string(struct json_input *in, struct json_input_value *value)
{
    if (peek(in) != '"')
        return fail(in, "a name in double quotes was expected");
    in->at++;
    while (in->at < in->size_bytes) {
        char c = in->text[in->at++];

        if (c == '"')
            return true;
        if ((unsigned char)c < 0x20)
            return fail(in, "a control character in a string must be escaped");
        if (c != '\\')
            continue;
        c = peek(in);
        in->at += in->at < in->size_bytes;
        if (c == 'u') {
            if (!scan_unicode_escape(in, value))
                return false;
        } else if (c == '\0' || strchr("\"\\/bfnrt", c) == NULL) {
            return fail(in, "no such escape in a string");
        }
    }
    return fail(in, "a string is never closed");
}

static bool scan_word(struct json_input *in, const char *word, enum json_input_kind kind,
                      struct json_input_value *value)
{
    size_t size = strlen(word);

    if (in->size_bytes - in->at < size || memcmp(in->text + in->at, word, size) != 0)
        return fail(in, "a value was expected");
    in->at += size;
    value->kind = kind;
    return true;
}

/* Anything but an array or an object. `value` gathers what the strings hold; its kind is set. */
static bool scan_plain(struct json_input *in, struct json_input_value *value)
{
    char c = peek(in);

    if (c == '"') {
        value->kind = JSON_INPUT_STRING;
        return scan_string(in, value);
    }
    if (c == '-' || is_digit(c)) {
        value->kind = JSON_INPUT_NUMBER;
        return scan_number(in);
    }
    if (c == 't')
        return scan_word(in, "true", JSON_INPUT_TRUE, value);
    if (c == 'f')
        return scan_word(in, "false", JSON_INPUT_FALSE, value);
    return scan_word(in, "null", JSON_INPUT_NULL, value);
}

static bool scan_name(struct json_input *in, struct json_input_value *value)
{
    skip_space(in);
    if (!scan_string(in, value))
        return false;
    skip_space(in);
    if (peek(in) != ':')
        return fail(in, "a colon was expected");
    in->at++;
    return true;
}

/* The stack of open brackets: no recursion, so that no input can use up ours. */
struct nest {
    char closers[JSON_INPUT_MAX_DEPTH];
    size_t depth;
};

/* After a value: closes what closes here. True: *out_more says whether another value follows. */
static bool scan_after_value(struct json_input *in, struct nest *nest,
                             struct json_input_value *value, bool *out_more)
{
    while (nest->depth > 0) {
        char closer = nest->closers[nest->depth - 1];

        skip_space(in);
        if (peek(in) == ',') {
            in->at++;
            *out_more = true;
            return closer == ']' || scan_name(in, value);
        }
        if (peek(in) != closer)
            return fail(in,
                        closer == ']' ? "a comma or ] was expected" : "a comma or } was expected");
        in->at++;
        nest->depth--;
    }
    *out_more = false;
    return true;
}

/* At [ or {. True: *out_is_empty, or the first element (or the value of the first name) follows. */
static bool scan_opening(struct json_input *in, struct nest *nest, struct json_input_value *value,
                         bool *out_is_empty)
{
    char closer = (char)(in->text[in->at] == '[' ? ']' : '}');

    if (nest->depth == JSON_INPUT_MAX_DEPTH)
        return fail(in, "values nest too deep");
    in->at++;
    skip_space(in);
    *out_is_empty = peek(in) == closer;
    if (*out_is_empty) {
        in->at++;
        return true;
    }
    nest->closers[nest->depth++] = closer;
    return closer == ']' || scan_name(in, value);
}

static bool scan_nested(struct json_input *in, struct json_input_value *value)
{
    struct nest nest = {.depth = 0};
    bool is_more = true;

    while (is_more) {
        skip_space(in);
        if (peek(in) == '[' || peek(in) == '{') {
            bool is_empty;

            if (!scan_opening(in, &nest, value, &is_empty))
                return false;
            if (!is_empty)
                continue;
        } else if (!scan_plain(in, value)) {
            return false;
        }
        if (!scan_after_value(in, &nest, value, &is_more))
            return false;
    }
    return true;
}

bool json_input_value(struct json_input *in, struct json_input_value *out)
{
    struct json_input_value value = {0};
    char first;
    size_t start;

    skip_space(in);
    start = in->at;
    first = peek(in);
    if (!(first == '[' || first == '{' ? scan_nested(in, &value) : scan_plain(in, &value)))
        return false;
    if (first == '[')
        value.kind = JSON_INPUT_ARRAY;
    else if (first == '{')
        value.kind = JSON_INPUT_OBJECT;
    value.raw = in->text + start;
    value.raw_bytes = in->at - start;
    skip_space(in);
    *out = value;
    return true;
}

bool json_input_document(struct json_input *in, struct json_input_value *out)
{
    if (!json_input_value(in, out))
        return false;
    return in->at == in->size_bytes || fail(in, "nothing may follow the value");
}

struct json_input json_input_open(const struct json_input_value *value)
{
    struct json_input inside;

    json_input_init(&inside, value->raw + 1, value->raw_bytes - 2);
    skip_space(&inside);
    return inside;
}

static void skip_comma(struct json_input *inside)
{
    if (peek(inside) == ',')
        inside->at++;
    skip_space(inside);
}

bool json_input_next_element(struct json_input *inside, struct json_input_value *out)
{
    skip_comma(inside);
    if (inside->at == inside->size_bytes)
        return false;
    ENSURE(json_input_value(inside, out));
    return true;
}

bool json_input_next_member(struct json_input *inside, struct json_input_value *out_name,
                            struct json_input_value *out_value)
{
    if (!json_input_next_element(inside, out_name))
        return false;
    inside->at++; /* the colon */
    ENSURE(json_input_value(inside, out_value));
    return true;
}

static char *put_utf8(char *out, int32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

static char plain_escape(char c)
{
    static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    const char *found = strchr(letters, c);

    if (found == NULL)
        return c;
    return meanings[found - letters];
}

size_t json_input_decode(const struct json_input_value *string, char *out)
{
    const char *at = string->raw + 1, *end = string->raw + string->raw_bytes - 1;
    char *start = out;

    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((escape != NULL ? escape : end) - at);
        int32_t code;

        memcpy(out, at, plain);
        out += plain;
        at += plain;
        if (escape == NULL)
            break;
        if (at[1] != 'u') {
            *out++ = plain_escape(at[1]);
            at += 2;
            continue;
        }
        code = read_hex4(at + 2, 4);
        at += 6;
        if (is_high_surrogate(code)) {
            code = 0x10000 + ((code - 0xD800) << 10) + (read_hex4(at + 2, 4) - 0xDC00);
            at += 6;
        }
        out = put_utf8(out, code);
    }
    return (size_t)(out - start);
}

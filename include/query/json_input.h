/* json_input.h - reads JSON that a caller sent (RFC 8259, strict), keeping every value as its raw
 * text: digits stay as they were written.
 * SPDX-License-Identifier: MIT
 *
 * Nothing is built and nothing allocated: a value is a stretch of the text, already checked to its
 * end, so that the readers of objects, arrays and strings below cannot meet bad syntax.
 *
 * Units    bytes.
 * Owner    the text is borrowed.
 * Errors   `problem` (static text) and the place `at`. Values nest at most JSON_INPUT_MAX_DEPTH
 * deep. UTF-8 is not judged here: the caller checks the stretches that it uses. */
#ifndef QUERY_JSON_INPUT_H
#define QUERY_JSON_INPUT_H
#include <stdbool.h>
#include <stddef.h>

enum { JSON_INPUT_MAX_DEPTH = 256 };

enum json_input_kind {
    JSON_INPUT_NULL,
    JSON_INPUT_TRUE,
    JSON_INPUT_FALSE,
    JSON_INPUT_NUMBER,
    JSON_INPUT_STRING,
    JSON_INPUT_ARRAY,
    JSON_INPUT_OBJECT,
};

struct json_input {
    const char *text; /* borrowed */
    size_t size_bytes;
    size_t at;
    const char *problem; /* static; NULL: none so far */
};

struct json_input_value {
    enum json_input_kind kind;
    const char *raw; /* in the text; a string with its quotes */
    size_t raw_bytes;
    bool has_nul;            /* \u0000 in some string of it */
    bool has_lone_surrogate; /* \ud800 without its other half */
};

void json_input_init(struct json_input *in, const char *text, size_t size_bytes);

/* One value with the blanks around it. False: see `problem`. */
bool json_input_value(struct json_input *in, struct json_input_value *out);

/* The text is one value and nothing else. */
bool json_input_document(struct json_input *in, struct json_input_value *out);

/* Over the inside of a value that was read: *inside starts as json_input_open(value). True: one
 * more element (member: with its name, a string); false: no more. */
struct json_input json_input_open(const struct json_input_value *value);
bool json_input_next_element(struct json_input *inside, struct json_input_value *out);
bool json_input_next_member(struct json_input *inside, struct json_input_value *out_name,
                            struct json_input_value *out_value);

/* The characters of a string whose has_lone_surrogate is false; `out` has room for raw_bytes.
 * Returns their size. */
size_t json_input_decode(const struct json_input_value *string, char *out);
#endif

/* params.h - what a caller sent, checked against @param and made ready to bind.
 * SPDX-License-Identifier: MIT
 *
 * Values come raw (percent-encoded query and path, JSON body) and leave as the text format that
 * PostgreSQL reads; NULL stays NULL; arrays become array literals. Nothing becomes SQL text.
 *
 * Owner    bound_params_fini() by the caller.
 * Threads  one at a time; the route is only read.
 * Errors   params_bind() says which parameter, why and what would be right; never the value. */
#ifndef QUERY_PARAMS_H
#define QUERY_PARAMS_H
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/reason.h"

struct route;

struct bound_params {
    size_t count;
    const char **values; /* in `memory`; index as $k - 1; NULL: SQL NULL; NUL-terminated text */
    char *memory;        /* owned: one block, this array and what its values point to */
    size_t memory_bytes; /* all of it, for accounting */
};

struct raw_text {
    const char *data; /* borrowed; NULL: absent */
    size_t size_bytes;
};

/* How often a header came, by its name in any case; *out_first is the first one's value, and left
 * alone when there is none. */
typedef size_t header_lookup_fn(void *ctx, const char *name, struct raw_text *out_first);

struct raw_inputs {
    const struct raw_text
        *segments;         /* raw path segments, percent-encoded, as many as the route's */
    struct raw_text query; /* raw, after the '?'; data NULL: none */
    struct raw_text body;  /* raw; data NULL: none */
    header_lookup_fn *header;
    void *header_ctx; /* borrowed */
};

/* False: *out_reason is REASON_BAD_PARAMETER or REASON_BAD_BODY (or REASON_INTERNAL, out of
 * memory), err the detail; *out is then empty. A parameter in=header with an underscore in its name
 * is also looked up with dashes instead; who sends both sends it twice. The body of a GET is not
 * looked at. */
bool params_bind(const struct route *route, const struct raw_inputs *inputs,
                 struct bound_params *out, enum reason *out_reason, struct error *err);

/* The same from one JSON object that names parameters of every place: what operators say when they
 * mean one answer of a route. Values of JSON are read as those of a body are; the bound text is the
 * one that a caller's request would give. No data: no parameter is given. */
bool params_bind_object(const struct route *route, struct raw_text object, struct bound_params *out,
                        enum reason *out_reason, struct error *err);
void bound_params_fini(struct bound_params *params);

/* Decodes %XX (and '+' as a space when `is_form`) in place of `out` (at least size_bytes long).
 * False: a percent sign that starts no escape. */
bool percent_decode(const char *text, size_t size_bytes, bool is_form, char *out,
                    size_t *out_size_bytes);
#endif

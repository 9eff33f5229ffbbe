/* problem_internal.h - errors as RFC 9457 application/problem+json. SPDX-License-Identifier: MIT
 *
 * Threads  pure. Errors  the buffer's. */
#ifndef WEB_PROBLEM_INTERNAL_H
#define WEB_PROBLEM_INTERNAL_H
#include <stddef.h>
#include <stdint.h>

#include "base/reason.h"

struct buffer;

struct problem {
    int status;
    enum reason reason;     /* REASON_NONE: HTTP itself went wrong; the type is about:blank */
    const char *detail;     /* NULL or empty: the title says it all */
    const char *instance;   /* the request's id */
    const char *dependency; /* NULL: none was involved */
    const char *constraint; /* NULL or empty: none */
};

void problem_write(struct buffer *out, const struct problem *problem);

/* The document at /problems/REASON. */
void problem_write_type(struct buffer *out, enum reason reason);

/* The reason that this word names; REASON_COUNT: none does. */
enum reason problem_reason_of(const char *word, size_t size_bytes);

/* "Bad Request" for 400; a plain word for what is not in the table. */
const char *problem_status_title(int status);
#endif

/* admin_site_internal.h - the pages of the admin port: a question in, a reply out.
 * SPDX-License-Identifier: MIT
 *
 * It knows no HTTP library: admin.c asks it and sends what comes out.
 *
 * Owner    admin. The service is borrowed and must outlive it.
 * Threads  the admin thread's alone; what it reads of others are atomics.
 * Errors   each is a reply. */
#ifndef WEB_ADMIN_SITE_INTERNAL_H
#define WEB_ADMIN_SITE_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/instant.h"
#include "base/reason.h"

struct admin_site;
struct service;

enum { ADMIN_MAX_BODY_BYTES = 64 * 1024 };

/* All borrowed; a header that was not sent is NULL. */
struct admin_question {
    const char *method;
    const char *path; /* without the query */
    const char *host, *content_type, *authorization, *request_id;
    const char *reached_at; /* the local address of the connection */
    const char *body;
    size_t body_bytes;
    struct instant now;
    int64_t wall_us;
};

struct admin_reply {
    int status;
    const char *media_type; /* static */
    const char *allow;      /* static; the header Allow, NULL: none */
    bool asks_for_token;    /* the header WWW-Authenticate: Bearer */
    struct buffer body;     /* owned: buffer_fini() or buffer_take() */
};

/* `now`: workers that never turned are late from here on. NULL: out of memory. */
struct admin_site *admin_site_create(struct service *service, struct instant now);
void admin_site_destroy(struct admin_site *site); /* NULL is fine */

void admin_site_answer(struct admin_site *site, const struct admin_question *q,
                       struct admin_reply *out);

/* An answer for what never became a question. */
void admin_site_refuse(struct admin_site *site, const char *request_id, int status,
                       enum reason reason, const char *detail, struct admin_reply *out);
#endif

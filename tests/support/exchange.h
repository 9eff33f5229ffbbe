/* exchange.h - one request to weir and what came back, in a line of a test.
 * SPDX-License-Identifier: MIT
 *
 * Owner    answers and texts are the caller's: http_answer_fini(), free().
 * Errors   without an answer the status is 0. */
#ifndef SUPPORT_EXCHANGE_H
#define SUPPORT_EXCHANGE_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "http_client.h"
#include "private_postgres.h"
#include "weir_process.h"

/* `headers` are lines with a newline between them, or NULL. */
struct exchange {
    const char *method; /* NULL: GET, POST with a body */
    const char *path;
    const char *headers;
    const char *body; /* application/json unless a header says otherwise */
};

struct http_answer exchange_ask(const struct weir_process *weir, const struct exchange *exchange);
struct http_answer exchange_ask_admin(const struct weir_process *weir,
                                      const struct exchange *exchange);

/* The status alone. */
int exchange_status(const struct weir_process *weir, const char *method, const char *path);

/* The body as JSON; NULL when it is none. The caller's: json_decref(). */
json_t *exchange_json(const struct http_answer *answer);

/* Everything that comes until the peer closes (*out_is_closed) or `limit_ms` pass. */
char *exchange_read_to_end(int fd, int64_t limit_ms, bool *out_is_closed);

/* Of the first answer in a raw text; 0: there is none. */
int exchange_raw_status(const char *text);

/* How many answers start in a raw text. */
size_t exchange_answer_count(const char *text);

/* The members of one dependency "primary" at the server, as weir_setup.dependencies wants them;
 * `more` is more members (", ..."). The caller's. */
char *exchange_primary(const struct private_postgres *pg, uint16_t port, const char *more);

/* Waits until /health on the admin port says pass. */
bool exchange_is_healthy_within(const struct weir_process *weir, int64_t limit_ms);

/* Monotonic. */
int64_t exchange_now_ms(void);
#endif

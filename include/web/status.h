/* status.h - the operator's page in JSON: what weir is doing now. SPDX-License-Identifier: MIT
 *
 * Never a secret: names, states, counts and reasons; no connection settings, no SQL text, no
 * values.
 *
 * Threads  any: everything read is atomic or immutable.
 * Errors   out of memory or over the limit: the buffer's `failed`. */
#ifndef WEB_STATUS_H
#define WEB_STATUS_H
#include <stdint.h>

#include "base/instant.h"

struct buffer;
struct process_facts;
struct service;

void status_write(struct buffer *out, const struct service *service,
                  const struct process_facts *process, struct instant now, int64_t wall_us);
#endif

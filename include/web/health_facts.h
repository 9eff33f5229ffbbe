/* health_facts.h - what health documents are made of, read from what the threads publish.
 * SPDX-License-Identifier: MIT
 *
 * Threads  any; atomics only, nothing is waited for. */
#ifndef WEB_HEALTH_FACTS_H
#define WEB_HEALTH_FACTS_H
#include <stddef.h>

#include "observe/health.h"

struct service;

/* One fact a dependency, in the config's order, at most `cap`; returns how many. The endpoints are
 * left out. A dependency is hard when some route that has it as its source has no @fallback. */
size_t health_facts_collect(const struct service *service, struct health_fact *out, size_t cap);

/* Why no new callers should be sent here: "starting", "draining" or "saturated"; NULL: ready. */
const char *health_unready_reason(const struct service *service);
#endif

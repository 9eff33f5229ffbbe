/* dependency.h - something weir calls, in a watertight compartment: one thread and one loop that
 * own its connections, waiting line, timers, probes and breaker. SPDX-License-Identifier: MIT
 *
 * Owner    app creates, starts, stops and destroys.
 * Threads  dependency_submit() and _cancel() from any worker: atomics and an inbox only,
 * never blocked by whatever the dependency's thread does. Everything else as said. Errors
 * dependency_start() says why; calls end with an outcome, always, unless the thread is stuck: then
 * the worker's own deadline answers the caller. */
#ifndef DEP_DEPENDENCY_H
#define DEP_DEPENDENCY_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/inbox.h"
#include "guard/admission.h"

struct call;
struct config;
struct dependency_config;
struct dependency_metrics;

/* The part that workers and admin see; a fake in tests is just this and a test that drains `inbox`.
 */
struct dependency {
    const char *name;                       /* borrowed from config; immutable */
    const struct dependency_config *config; /* borrowed; immutable */
    struct admission admission;
    struct inbox inbox;                 /* of calls; drained by the dependency's thread */
    _Atomic bool has_cancels;           /* some call's is_cancelled was set */
    struct dependency_metrics *metrics; /* borrowed */
};

/* The call goes into the inbox; the dependency is not woken yet: inbox_wake(), after the last of a
 * batch. */
void dependency_submit(struct dependency *dep, struct call *call);

/* Nobody waits for this submitted call any more. It still comes back through its reply inbox. */
void dependency_cancel(struct dependency *dep, struct call *call, bool is_hang_up);

/* Whole seconds for Retry-After: until the next trial or probe may end the refusal, at least 1,
 * jittered by up to a quarter upwards. Any thread. */
uint32_t dependency_retry_after_s(const struct dependency *dep, struct instant now,
                                  uint64_t random);
#endif

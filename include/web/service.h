/* service.h - what the acceptor, the workers and the admin thread share. SPDX-License-Identifier: MIT
 *
 * Owner    app builds it before the threads start and frees it after they ended.
 * Threads  the pointers are immutable; the rest are atomics. */
#ifndef WEB_SERVICE_H
#define WEB_SERVICE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/metrics.h"

struct config;
struct dependency;
struct router;

struct service {
    const struct config *config;
    const struct router *router;
    struct dependency *const *dependencies; /* config->dependency_count */
    struct metrics *metrics; /* threads[0..workers-1] are the workers, then the acceptor, then admin,
                              * then one a dependency */
    _Atomic bool is_draining;       /* readiness falls, answers say Connection: close */
    _Atomic uint32_t connections;   /* open caller connections, all workers */
    int64_t started_wall_us;
};
#endif

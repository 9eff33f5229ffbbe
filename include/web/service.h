/* service.h - what the acceptor, the workers and the admin thread share. SPDX-License-Identifier:
 * MIT
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

struct cache;
struct config;
struct dependency;
struct router;

/* Refusals for want of permits or memory against everything else; all zero at first. */
struct saturation {
    counter refused_count, other_count;
    counter bad_seconds;                   /* in a row */
    uint64_t refused_before, other_before; /* of the first worker alone: at its last tick */
};

struct service {
    const struct config *config;
    const struct router *router;
    struct cache *cache;                    /* locks itself */
    struct dependency *const *dependencies; /* config->dependency_count */
    struct metrics *metrics;      /* threads[0..workers-1] are the workers, then the acceptor, then
                                   * admin,      then one a dependency */
    _Atomic bool is_starting;     /* not ready yet; false unless app says so */
    _Atomic bool is_draining;     /* readiness falls, answers say Connection: close */
    _Atomic uint32_t connections; /* open caller connections, all workers */
    struct saturation saturation;
    int64_t started_wall_us;
};
#endif

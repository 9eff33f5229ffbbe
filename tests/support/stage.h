/* stage.h - the story of requests, on a stage: two workers, one cache, and a dependency that the
 * test answers by hand. SPDX-License-Identifier: MIT
 *
 * All of it runs on the test's thread: a worker is an environment for endpoints and the inboxes
 * that the test drains; time is that of the fake dependency, `fake.now`.
 *
 * Units    _us microseconds, _bytes bytes.
 * Owner    stage_create() .. stage_destroy().
 * Errors   assertions: a route that cannot be read is a mistake of the test. */
#ifndef SUPPORT_STAGE_H
#define SUPPORT_STAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/inbox.h"
#include "base/rand.h"
#include "cache/cache.h"
#include "config/config.h"
#include "fake_dependency.h"
#include "observe/metrics.h"
#include "plan/endpoint.h"
#include "query/route.h"

enum {
    STAGE_WORKER_COUNT = 2,
    STAGE_ROUTE_MAX_COUNT = 16,
    STAGE_REQUEST_TIMEOUT_US = 5000000,
    STAGE_QUEUE_TIMEOUT_US = 300000,
    STAGE_RESET_TIMEOUT_US = 10000000,
    STAGE_MEMORY_MAX_BYTES = 1000,
    STAGE_CACHE_MAX_BYTES = 64 * 1024,
};

struct stage_worker {
    struct inbox replies, landed;
    bool has_calls;
    uint32_t calls_under_way;
    struct rand rand;
    struct endpoint_env env;
};

/* Two permits, two places in the line, three failures in a row open the breaker, two trials close
 * it. */
struct stage {
    struct fake_dependency fake;
    struct dependency *dependencies[1];
    struct config config;
    counter memory_bytes;
    struct cache *cache; /* owned */
    struct stage_worker workers[STAGE_WORKER_COUNT];
    struct route
        routes[STAGE_ROUTE_MAX_COUNT]; /* owned; as the texts, whose @purges may name any */
    size_t route_count;
};

/* One SQL file each. */
struct stage *stage_create(const char *const *texts, size_t count);

/* Nothing may be under way. */
void stage_destroy(struct stage *s);

/* What holds at rest, whatever happened before: no permit, no place, no call, nothing in an inbox.
 */
void stage_assert_at_rest(struct stage *s);

/* What the allocator has given out, whichever it is. */
size_t stage_allocated_bytes(void);
#endif

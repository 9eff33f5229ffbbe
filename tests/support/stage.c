#include "stage.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/complaint.h"
#include "cmocka_all.h"
#include "query/query_file_internal.h"

/* ---- routes ---- */

static void read_route(struct stage *s, const char *text, struct purge_list *purges,
                       struct complaints *complaints)
{
    struct catalog_source source = {"fake", false};
    struct route *route = &s->routes[s->route_count];
    struct query_file file = {.text = text,
                              .size_bytes = strlen(text),
                              .sources = &source,
                              .source_count = 1,
                              .request_timeout_us = STAGE_REQUEST_TIMEOUT_US,
                              .complaints = complaints,
                              .route = route,
                              .purges = purges};
    char shown[32];

    assert_true(s->route_count < STAGE_ROUTE_MAX_COUNT);
    (void)snprintf(shown, sizeof shown, "%zu.sql", s->route_count);
    file.shown = shown;
    assert_true(query_file_read(&file));
    route->id = (uint32_t)s->route_count++;
}

static void read_routes(struct stage *s, const char *const *texts, size_t count)
{
    struct complaints complaints;
    struct purge_list purges = {0};
    struct catalog catalog = {.routes = s->routes};

    complaints_init(&complaints);
    for (size_t i = 0; i < count; i++)
        read_route(s, texts[i], &purges, &complaints);
    catalog.route_count = s->route_count;
    purges_resolve(&catalog, &purges, &complaints);
    assert_int_equal(complaints.error_count, 0);
    purge_list_fini(&purges);
    complaints_fini(&complaints);
}

/* ---- workers ---- */

static void init_worker(struct stage *s, uint32_t index)
{
    struct stage_worker *w = &s->workers[index];

    inbox_init(&w->replies, NULL, NULL);
    inbox_init(&w->landed, NULL, NULL);
    rand_init(&w->rand, index + 1);
    w->env = (struct endpoint_env){.config = &s->config,
                                   .dependencies = s->dependencies,
                                   .cache = s->cache,
                                   .worker = index,
                                   .landed = &w->landed,
                                   .has_calls = &w->has_calls,
                                   .reply_to = &w->replies,
                                   .calls_under_way = &w->calls_under_way,
                                   .rand = &w->rand,
                                   .memory_bytes = &s->memory_bytes};
}

/* ---- the stage ---- */

struct stage *stage_create(const char *const *texts, size_t count)
{
    struct stage *s = calloc(1, sizeof *s);
    struct dependency_config config = {
        .bulkhead = {.max_concurrent = 2,
                     .max_queued = 2,
                     .queue_timeout_us = STAGE_QUEUE_TIMEOUT_US},
        .breaker = {.failure_threshold = 3,
                    .reset_timeout_us = STAGE_RESET_TIMEOUT_US,
                    .max_reset_timeout_us = INT64_C(4) * STAGE_RESET_TIMEOUT_US,
                    .half_open_calls = 2},
    };

    assert_non_null(s);
    fake_dependency_init(&s->fake, &config);
    s->dependencies[0] = &s->fake.dep;
    s->config.dependency_count = 1;
    s->config.server.request_timeout_us = STAGE_REQUEST_TIMEOUT_US;
    s->config.server.max_memory_bytes = STAGE_MEMORY_MAX_BYTES;
    read_routes(s, texts, count);
    s->cache = cache_create(STAGE_CACHE_MAX_BYTES, (uint32_t)count, STAGE_WORKER_COUNT,
                            endpoint_cancel_flight);
    assert_non_null(s->cache);
    for (uint32_t i = 0; i < STAGE_WORKER_COUNT; i++)
        init_worker(s, i);
    return s;
}

void stage_assert_at_rest(struct stage *s)
{
    struct admission_view v = admission_read(&s->fake.dep.admission);

    assert_int_equal(v.in_use, 0);
    assert_int_equal(v.queued, 0);
    for (size_t i = 0; i < STAGE_WORKER_COUNT; i++) {
        assert_true(inbox_is_empty(&s->workers[i].replies));
        assert_true(inbox_is_empty(&s->workers[i].landed));
        assert_int_equal(s->workers[i].calls_under_way, 0);
    }
    for (size_t i = 0; i < s->route_count; i++)
        assert_int_equal(atomic_load(&s->routes[i].limit_in_use), 0);
}

void stage_destroy(struct stage *s)
{
    stage_assert_at_rest(s);
    fake_dependency_fini(&s->fake);
    cache_destroy(s->cache);
    for (size_t i = 0; i < s->route_count; i++)
        route_fini(&s->routes[i]);
    free(s);
}

/* Of a sanitizer's allocator, which mallinfo2() does not know; absent otherwise. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

size_t stage_allocated_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes();
    return mallinfo2().uordblks;
}

#include <stdlib.h>

#include "config/config.h"
#include "observe/health.h"
#include "web/health_facts.h"
#include "web/problem_internal.h"
#include "web/service.h"
#include "web/worker_internal.h"

enum { MAX_DOCUMENT_BYTES = 256 * 1024 };

static void answer_health(struct request *r, struct buffer *out)
{
    const struct service *service = r->worker->service;
    size_t count = service->config->dependency_count;
    struct health_fact *facts = calloc(count + 1, sizeof *facts);
    bool is_draining = atomic_load_explicit(&service->is_draining, memory_order_relaxed);

    if (facts == NULL) {
        out->failed = true;
        return;
    }
    count = health_facts_collect(service, facts, count);
    health_write(out, facts, count, is_draining, true);
    r->answer.status = health_status_http(health_overall(facts, count, is_draining));
    free(facts);
}

static void answer_ready(struct request *r, struct buffer *out)
{
    const char *why_not = health_unready_reason(r->worker->service);

    if (why_not == NULL) {
        buffer_append_text(out, "{\"status\":\"pass\"}");
        return;
    }
    buffer_append_format(out, "{\"status\":\"fail\",\"output\":\"%s\"}", why_not);
    r->answer.status = 503;
}

void builtin_answer(struct request *r)
{
    struct buffer out;

    buffer_init(&out, MAX_DOCUMENT_BYTES);
    r->answer.status = 200;
    r->answer.served = SERVED_LIVE;
    r->content_type = "application/health+json";
    switch (r->target) {
    case TARGET_HEALTH:
        answer_health(r, &out);
        break;
    case TARGET_LIVE:
        buffer_append_text(&out, "{\"status\":\"pass\"}");
        break;
    case TARGET_READY:
        answer_ready(r, &out);
        break;
    case TARGET_PROBLEM:
        problem_write_type(&out, r->problem_page);
        r->content_type = "application/json";
        break;
    case TARGET_NONE:
    case TARGET_ROUTE:
    case TARGET_SERVER:
        break;
    }
    if (out.failed) {
        buffer_fini(&out);
        r->answer.status = 500;
        r->answer.served = SERVED_ERROR;
        r->answer.reason = REASON_INTERNAL;
        return;
    }
    r->answer.body = buffer_take(&out);
}

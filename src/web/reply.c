#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "web/cors_internal.h"
#include "web/problem_internal.h"
#include "web/service.h"
#include "web/worker_internal.h"

enum { MAX_PROBLEM_BYTES = 8 * 1024 };

static void add(struct MHD_Response *response, const char *name, const char *value)
{
    /* Fails for want of memory, or for bytes that weir never writes: then the header is missing. */
    (void)MHD_add_response_header(response, name, value);
}

static bool is_problem(const struct answer *answer)
{
    return answer->served == SERVED_ERROR;
}

/* Out of memory leaves an empty body: the status still tells. */
static void write_problem(struct request *r)
{
    struct buffer out;

    buffer_init(&out, MAX_PROBLEM_BYTES);
    problem_write(&out, &(struct problem){.status = r->answer.status,
                                          .reason = r->answer.reason,
                                          .detail = r->answer.detail,
                                          .instance = r->id,
                                          .dependency = r->answer.dependency,
                                          .constraint = r->answer.constraint});
    if (out.failed) {
        buffer_fini(&out);
        return;
    }
    body_fini(&r->answer.body);
    r->answer.body = buffer_take(&out);
}

static void add_timing(const struct request *r, struct MHD_Response *response, struct instant now)
{
    int64_t queue = r->answer.waited_us / 100, db = r->answer.served_us / 100;
    int64_t total = instant_span_us(r->started_at, now) / 100; /* tenths of a millisecond */
    char text[128];

    (void)snprintf(text, sizeof text,
                   "queue;dur=%" PRId64 ".%d, db;dur=%" PRId64 ".%d, total;dur=%" PRId64 ".%d",
                   queue / 10, (int)(queue % 10), db / 10, (int)(db % 10), total / 10,
                   (int)(total % 10));
    add(response, "Server-Timing", text);
}

static void add_type(const struct request *r, struct MHD_Response *response)
{
    bool is_document = r->content_type != NULL && strcmp(r->content_type, "application/json") != 0;

    if (is_problem(&r->answer))
        add(response, "Content-Type", "application/problem+json");
    else if (r->answer.status != 204)
        add(response, "Content-Type", r->content_type);
    if (is_problem(&r->answer) || is_document)
        add(response, "Cache-Control", "no-store");
}

static void add_retry_after(const struct request *r, struct MHD_Response *response)
{
    char text[16];

    if (r->answer.status != 503)
        return;
    (void)snprintf(text, sizeof text, "%" PRIu32,
                   r->answer.retry_after_s > 0 ? r->answer.retry_after_s : 1);
    add(response, "Retry-After", text);
}

static void add_preflight(const struct request *r, struct MHD_Response *response)
{
    struct raw_text asked = r->head.fields[HEAD_CORS_HEADERS];
    char text[1025];

    if (r->allow[0] != '\0')
        add(response, "Access-Control-Allow-Methods", r->allow);
    if (cors_is_token_list(asked)) {
        (void)snprintf(text, sizeof text, "%.*s", (int)asked.size_bytes, asked.data);
        add(response, "Access-Control-Allow-Headers", text);
    }
    add(response, "Access-Control-Max-Age", "600");
}

static void add_cors(const struct request *r, struct MHD_Response *response)
{
    const struct server_config *server = &r->worker->config->server;
    const char *origin;

    if (server->cors_origin_count == 0)
        return;
    add(response, "Vary", "Origin");
    origin = cors_allowed_origin(server->cors_origins, server->cors_origin_count,
                                 r->head.fields[HEAD_ORIGIN]);
    if (origin == NULL)
        return;
    add(response, "Access-Control-Allow-Origin", origin);
    if (r->method == REQUEST_OPTIONS && r->head.fields[HEAD_CORS_METHOD].data != NULL)
        add_preflight(r, response);
    else
        add(response, "Access-Control-Expose-Headers",
            "X-Request-Id, Retry-After, Weir-Degraded, Server-Timing");
}

static bool must_close(const struct request *r)
{
    return r->connection->is_reserve || r->worker->is_stopping ||
           atomic_load_explicit(&r->worker->service->is_draining, memory_order_relaxed);
}

static void add_headers(const struct request *r, struct MHD_Response *response, struct instant now)
{
    add(response, "X-Request-Id", r->id);
    add_timing(r, response, now);
    add_type(r, response);
    add_retry_after(r, response);
    if (r->allow[0] != '\0' && (r->answer.status == 405 || r->method == REQUEST_OPTIONS))
        add(response, "Allow", r->allow);
    add_cors(r, response);
    if (must_close(r))
        add(response, "Connection", "close");
}

/* The body is the request's, and outlives the response: the library ends a request first. */
static void keep(void *body)
{
    (void)body;
}

enum MHD_Result reply_queue(struct request *r, struct MHD_Connection *mhd, struct instant now)
{
    struct MHD_Response *response;
    enum MHD_Result queued;

    if (is_problem(&r->answer))
        write_problem(r);
    else if (r->answer.status == 204)
        body_fini(&r->answer.body);
    request_count_memory(r, r->answer.body.size_bytes);

    response = MHD_create_response_from_buffer_with_free_callback(r->answer.body.size_bytes,
                                                                  r->answer.body.data, keep);
    if (response == NULL)
        return MHD_NO; /* out of memory: the library closes the connection */
    add_headers(r, response, now);
    queued = MHD_queue_response(mhd, (unsigned int)r->answer.status, response);
    MHD_destroy_response(response);
    if (queued == MHD_YES) {
        r->state = REQUEST_SENT;
        connection_enter(r->connection, PHASE_WRITING, now);
    }
    return queued;
}

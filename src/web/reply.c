#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "query/route.h"
#include "web/caching_internal.h"
#include "web/conditional_internal.h"
#include "web/cors_internal.h"
#include "web/header_text_internal.h"
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

/* In milliseconds, with one digit behind the point. */
static void add_span(struct header_text *text, const char *words, int64_t us)
{
    int64_t tenths = us > 0 ? us / 100 : 0;

    header_text_add(text, words);
    header_text_add_number(text, tenths / 10);
    header_text_add(text, ".");
    header_text_add_number(text, tenths % 10);
}

static void add_timing(const struct request *r, struct MHD_Response *response, struct instant now)
{
    struct header_text text;

    header_text_begin(&text, "");
    add_span(&text, "queue;dur=", r->answer.waited_us);
    add_span(&text, ", db;dur=", r->answer.served_us);
    add_span(&text, ", total;dur=", instant_span_us(r->started_at, now));
    add(response, "Server-Timing", text.text);
}

static bool has_body(const struct answer *answer)
{
    return answer->status != 204 && answer->status != 304;
}

static void add_type(const struct request *r, struct MHD_Response *response)
{
    if (is_problem(&r->answer))
        add(response, "Content-Type", "application/problem+json");
    else if (has_body(&r->answer))
        add(response, "Content-Type", r->content_type);
}

/* How long it may be kept, whether it was kept here, and how old it is. */
static void add_caching(const struct request *r, struct MHD_Response *response)
{
    const struct answer *answer = &r->answer;
    bool is_document = r->content_type != NULL && strcmp(r->content_type, "application/json") != 0;
    bool is_private = r->route != NULL && r->route->cache.is_private;
    struct header_text text;

    if (caching_control(answer, is_private, &text))
        add(response, "Cache-Control", text.text);
    else if (is_document)
        add(response, "Cache-Control", "no-store");
    if (caching_status(answer, &text))
        add(response, "Cache-Status", text.text);
    if (caching_age(answer, &text))
        add(response, "Age", text.text);
    if (caching_degraded(answer, &text))
        add(response, "Weir-Degraded", text.text);
    if (answer->entry != NULL)
        add(response, "ETag", answer->entry->etag);
    if (r->route != NULL && r->route->vary != NULL)
        add(response, "Vary", r->route->vary); /* Origin has a line of its own: add_cors() */
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
            "X-Request-Id, Retry-After, Weir-Degraded, Server-Timing, Age, ETag, Cache-Status");
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
    add_caching(r, response);
    add_retry_after(r, response);
    if (r->allow[0] != '\0' && (r->answer.status == 405 || r->method == REQUEST_OPTIONS))
        add(response, "Allow", r->allow);
    add_cors(r, response);
    if (must_close(r))
        add(response, "Connection", "close");
}

/* ---- does the caller have it already? ---- */

struct condition {
    const char *etag;
    bool is_named;
};

static enum MHD_Result read_condition(void *cls, enum MHD_ValueKind kind, const char *key,
                                      size_t key_size, const char *value, size_t value_size)
{
    struct condition *condition = cls;

    (void)kind;
    if (value == NULL || !raw_text_equals((struct raw_text){key, key_size}, "if-none-match"))
        return MHD_YES;
    condition->is_named = conditional_names((struct raw_text){value, value_size}, condition->etag);
    return condition->is_named ? MHD_NO : MHD_YES; /* no: that was all */
}

/* Several headers are one list. */
static bool is_known_to_caller(const struct request *r, struct MHD_Connection *mhd)
{
    struct condition condition = {0};

    if (r->answer.status != 200 || r->answer.entry == NULL ||
        r->head.fields[HEAD_IF_NONE_MATCH].data == NULL)
        return false;
    condition.etag = r->answer.entry->etag;
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, read_condition, &condition);
    return condition.is_named;
}

/* ---- the whole ---- */

/* The body is the request's, and outlives the response: the library ends a request first. */
static void keep(void *body)
{
    (void)body;
}

/* The library sends no body with a 304, but takes its length: that has to be the 200's. */
static struct MHD_Response *response_create(struct request *r)
{
    size_t size_bytes;
    const char *text = answer_text(&r->answer, &size_bytes);

    if (r->answer.status == 204)
        size_bytes = 0;
    if (has_body(&r->answer))
        request_count_memory(r, size_bytes);
    return MHD_create_response_from_buffer_with_free_callback(size_bytes, (void *)text, keep);
}

enum MHD_Result reply_queue(struct request *r, struct MHD_Connection *mhd, struct instant now)
{
    struct MHD_Response *response;
    enum MHD_Result queued;

    if (is_problem(&r->answer))
        write_problem(r);
    else if (is_known_to_caller(r, mhd))
        r->answer.status = 304;

    response = response_create(r);
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

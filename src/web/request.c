#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "config/config.h"
#include "dep/call.h"
#include "query/route.h"
#include "web/service.h"
#include "web/worker_internal.h"

/* ---- from the free list and back ---- */

static struct request *request_make(struct worker *worker)
{
    struct request *r = calloc(1, sizeof *r);

    if (r == NULL)
        return NULL;
    if (uv_timer_init(&worker->loop, &r->timer) != 0) {
        free(r);
        return NULL;
    }
    r->timer.data = r;
    r->worker = worker;
    list_init(&r->link);
    list_init(&r->ready_link);
    r->next_made = worker->made_requests;
    worker->made_requests = r;
    return r;
}

static struct request *request_take(struct worker *worker)
{
    struct request *r;

    if (list_is_empty(&worker->free_requests))
        return request_make(worker);
    r = LIST_ITEM(worker->free_requests.next, struct request, link);
    list_remove(&r->link);
    return r;
}

static struct request *request_begin(struct worker *worker, struct connection *c)
{
    struct request *r = request_take(worker);

    if (r == NULL)
        return NULL;
    list_push_back(&worker->active_requests, &r->link);
    (void)atomic_fetch_add_explicit(&worker->request_count, 1, memory_order_relaxed);
    r->connection = c;
    c->request = r;
    r->state = REQUEST_READING;
    r->target = TARGET_NONE;
    r->route = NULL;
    r->allow[0] = '\0';
    r->wants_body = r->is_body_too_large = r->is_overloaded = false;
    r->body_seen_bytes = r->counted_bytes = 0;
    r->has_begun = r->is_suspended = false;
    r->content_type = "application/json";
    r->answer = (struct answer){0};
    buffer_init(&r->body, worker->config->server.max_body_bytes);
    head_init(&r->head);
    return r;
}

void request_count_memory(struct request *r, size_t size_bytes)
{
    r->counted_bytes += size_bytes;
    counter_add(&r->worker->service->metrics->memory_bytes, size_bytes);
}

static void uncount_memory(struct request *r)
{
    counter_add(&r->worker->service->metrics->memory_bytes, 0 - (uint64_t)r->counted_bytes);
    r->counted_bytes = 0;
}

static void drop_body(struct request *r)
{
    buffer_fini(&r->body);
    uncount_memory(r);
}

static void stop_open_wait(struct request *r)
{
    if (!r->is_suspended)
        r->worker->open_waits--;
}

void request_end(struct request *r)
{
    struct worker *worker = r->worker;

    if (r->state == REQUEST_WAITING) {
        endpoint_hang_up(&r->endpoint);
        stop_open_wait(r);
    }
    request_record(r, clock_now());
    if (r->has_begun)
        endpoint_fini(&r->endpoint);
    answer_fini(&r->answer);
    drop_body(r);
    r->connection->request = NULL;
    r->connection = NULL;
    list_remove(&r->ready_link);
    list_remove(&r->link);
    list_push_front(&worker->free_requests, &r->link); /* the warm one first */
    (void)atomic_fetch_sub_explicit(&worker->request_count, 1, memory_order_relaxed);
}

/* ---- answers that need no endpoint ---- */

static void set_error(struct request *r, enum reason reason, const char *detail)
{
    r->answer =
        (struct answer){.status = reason_http(reason), .reason = reason, .served = SERVED_ERROR};
    if (detail != NULL)
        (void)snprintf(r->answer.detail, sizeof r->answer.detail, "%s", detail);
}

/* HTTP itself went wrong: no reason of the list. */
static void set_http_error(struct request *r, int status, const char *detail)
{
    r->answer = (struct answer){.status = status, .served = SERVED_ERROR};
    (void)snprintf(r->answer.detail, sizeof r->answer.detail, "%s", detail);
}

static void set_too_large(struct request *r)
{
    set_error(r, REASON_BODY_TOO_LARGE, NULL);
    (void)snprintf(r->answer.detail, sizeof r->answer.detail, "a body has at most %zu bytes here",
                   r->worker->config->server.max_body_bytes);
}

static void set_draining(struct request *r)
{
    set_error(r, REASON_DRAINING, NULL);
    r->answer.retry_after_s = 1;
}

/* ---- first call: the headers came ---- */

static enum request_method method_of(const char *text)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0)
            return (enum request_method)i;
    return REQUEST_OTHER;
}

static enum MHD_Result add_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                  size_t key_size, const char *value, size_t value_size)
{
    (void)kind;
    head_add(cls, (struct raw_text){key, key_size},
             (struct raw_text){value == NULL ? "" : value, value == NULL ? 0 : value_size});
    return MHD_YES;
}

static void set_ids(struct request *r)
{
    struct raw_text given = r->head.fields[HEAD_REQUEST_ID];

    if (head_is_request_id(given)) {
        memcpy(r->id, given.data, given.size_bytes);
        r->id[given.size_bytes] = '\0';
    } else {
        (void)snprintf(r->id, sizeof r->id, "%016llx",
                       (unsigned long long)rand_next(&r->worker->rand));
    }
    if (!head_trace_id(r->head.fields[HEAD_TRACEPARENT], r->trace_id))
        r->trace_id[0] = '\0';
}

/* Without the request line's target, which has a limit of its own. */
static size_t head_bytes_of(const struct request *r, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

    if (info == NULL || info->header_size < r->connection->uri_bytes)
        return 0;
    return info->header_size - r->connection->uri_bytes;
}

/* A GET's body is swallowed; so is one that no parameter asks for, unless it is JSON: then its
 * names are judged like all others. */
static bool wants_body(const struct request *r)
{
    if (r->route == NULL || r->route->method == METHOD_GET)
        return false;
    return route_has_body_params(r->route) || head_is_json(r->head.fields[HEAD_CONTENT_TYPE]);
}

static bool is_health(enum target target)
{
    return target == TARGET_HEALTH || target == TARGET_LIVE || target == TARGET_READY;
}

/* What has to be said before the body comes; saying it now closes the connection. */
static bool refuse_early(struct request *r)
{
    const struct server_config *server = &r->worker->config->server;

    if (r->connection->is_uri_too_long)
        set_error(r, REASON_URI_TOO_LONG, NULL);
    else if (r->connection->is_reserve && !is_health(r->target))
        set_error(r, REASON_OVERLOADED, "there are too many connections");
    else if (r->head.length_bytes > server->max_body_bytes)
        set_too_large(r);
    else
        return false;
    return true;
}

/* The library lets spaces pass; another reader of the same bytes would see another request. */
static bool is_target_clean(const struct connection *c)
{
    for (size_t i = 0; i < c->uri_bytes; i++)
        if ((unsigned char)c->uri[i] <= ' ' || c->uri[i] == 0x7f)
            return false;
    return true;
}

static enum MHD_Result on_headers(struct request *r, struct MHD_Connection *mhd, const char *method,
                                  const char *version)
{
    struct instant now = clock_now();
    const char *refusal;
    int status;

    r->started_at = now;
    connection_enter(r->connection, PHASE_BODY, now);
    r->method = method_of(method);
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, add_header, &r->head);
    set_ids(r);
    refusal = head_refusal(&r->head, version, head_bytes_of(r, mhd), &status);
    if (refusal == NULL && !is_target_clean(r->connection)) {
        status = 400;
        refusal = "the target has a space or a control byte";
    }
    if (refusal != NULL) {
        set_http_error(r, status, refusal);
        return reply_queue(r, mhd, now);
    }
    target_find(r);
    if (refuse_early(r))
        return reply_queue(r, mhd, now);
    r->wants_body = wants_body(r);
    return MHD_YES;
}

/* ---- then: pieces of the body ---- */

static void keep_piece(struct request *r, const char *data, size_t size_bytes)
{
    const struct config *config = r->worker->config;
    uint64_t used = counter_read(&r->worker->service->metrics->memory_bytes);

    if (used + size_bytes > config->server.max_memory_bytes) {
        r->is_overloaded = true;
        drop_body(r);
        return;
    }
    buffer_append(&r->body, data, size_bytes);
    if (r->body.failed) {
        r->is_overloaded = true; /* within its limit: it is the memory that is missing */
        drop_body(r);
        return;
    }
    request_count_memory(r, size_bytes);
}

static enum MHD_Result on_piece(struct request *r, const char *data, size_t *size_bytes)
{
    size_t limit = r->worker->config->server.max_body_bytes;

    r->worker->took_piece = true;
    r->body_seen_bytes += *size_bytes;
    if (r->body_seen_bytes > limit) {
        r->is_body_too_large = true;
        drop_body(r);
    }
    if (r->body_seen_bytes > 2 * limit) {
        set_too_large(r);
        connection_kill(r->connection, r->answer.status);
        return MHD_NO;
    }
    if (r->wants_body && !r->is_body_too_large && !r->is_overloaded)
        keep_piece(r, data, *size_bytes);
    *size_bytes = 0;
    return MHD_YES;
}

/* ---- then: the request is complete ---- */

static void set_options(struct request *r)
{
    r->answer = (struct answer){.status = 204, .served = SERVED_LIVE};
}

/* True: r->answer says why this request goes no further. */
static bool refuse_route(struct request *r)
{
    bool has_body = r->body_seen_bytes > 0 && route_has_body_params(r->route);

    if (r->worker->is_stopping)
        set_draining(r);
    else if (!accept_allows_json(&r->head.accept))
        set_error(r, REASON_NOT_ACCEPTABLE, "application/json is what there is");
    else if (has_body && !head_is_json(r->head.fields[HEAD_CONTENT_TYPE]))
        set_error(r, REASON_UNSUPPORTED_MEDIA_TYPE,
                  "the body has to be a JSON object, with Content-Type: application/json");
    else if (r->is_overloaded)
        set_error(r, REASON_OVERLOADED, "bodies and answers fill the memory meant for them");
    else
        return false;
    return true;
}

/* True: r->answer is the answer. False: an endpoint has to say. */
static bool answer_here(struct request *r)
{
    bool is_get = r->method == REQUEST_GET || r->method == REQUEST_HEAD;
    bool is_nowhere =
        r->target == TARGET_NONE || (r->target == TARGET_SERVER && r->method != REQUEST_OPTIONS);

    if (r->is_body_too_large)
        set_too_large(r);
    else if (is_nowhere)
        set_error(r, REASON_NOT_FOUND, NULL);
    else if (r->method == REQUEST_OPTIONS)
        set_options(r);
    else if (r->target != TARGET_ROUTE && is_get)
        builtin_answer(r);
    else if (r->route == NULL)
        set_error(r, REASON_METHOD_NOT_ALLOWED, NULL);
    else
        return refuse_route(r);
    return true;
}

struct header_search {
    const char *name;
    struct raw_text *first;
    size_t count;
};

static enum MHD_Result match_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                    size_t key_size, const char *value, size_t value_size)
{
    struct header_search *search = cls;

    (void)kind;
    if (!raw_text_equals((struct raw_text){key, key_size}, search->name))
        return MHD_YES;
    if (search->count++ == 0)
        *search->first =
            value != NULL ? (struct raw_text){value, value_size} : (struct raw_text){"", 0};
    return MHD_YES;
}

static size_t lookup_header(void *ctx, const char *name, struct raw_text *out_first)
{
    struct header_search search = {.name = name, .first = out_first};

    (void)MHD_get_connection_values_n(ctx, MHD_HEADER_KIND, match_header, &search);
    return search.count;
}

static void on_deadline(uv_timer_t *timer);

/* A timer that is set, and fires early enough, stays: it looks again then. Most requests end
 * before, and so the loop's heap is left alone. */
static void arm_timer(struct request *r, struct instant now)
{
    struct instant at = r->endpoint.deadline;
    int64_t left_us = instant_span_us(now, at);

    if (uv_is_active((uv_handle_t *)&r->timer) != 0 && r->timer_at.us <= at.us)
        return;
    r->timer_at = at;
    (void)uv_timer_start(&r->timer, on_deadline, left_us > 0 ? (uint64_t)(left_us + 999) / 1000 : 1,
                         0);
}

/* True: r->answer is the answer. False: it waits, and the connection has to be suspended. */
static bool begin_endpoint(struct request *r, struct MHD_Connection *mhd, struct instant now)
{
    struct raw_inputs inputs = {
        .segments = r->match.segments,
        .query = r->query,
        .header = lookup_header,
        .header_ctx = mhd,
    };
    bool is_answered;

    if (r->wants_body && r->body.size_bytes > 0)
        inputs.body = (struct raw_text){r->body.data, r->body.size_bytes};
    r->has_begun = true;
    is_answered = endpoint_begin(&r->endpoint, &r->worker->env, r->route, &inputs,
                                 head_caller_timeout_us(&r->head), now, r, &r->answer);
    drop_body(r); /* the call has its own copy of what it needs */
    return is_answered;
}

static void suspend(struct request *r, struct MHD_Connection *mhd)
{
    stop_open_wait(r);
    r->is_suspended = true;
    MHD_suspend_connection(mhd);
}

static enum MHD_Result on_complete(struct request *r, struct MHD_Connection *mhd)
{
    struct instant now = clock_now();

    r->started_at = now;
    connection_enter(r->connection, PHASE_BUSY, now);
    if (answer_here(r))
        return reply_queue(r, mhd, now);
    if (r->connection->is_hung_up) {
        r->state = REQUEST_GONE;
        return MHD_NO; /* nobody to answer: no permit for that */
    }
    if (begin_endpoint(r, mhd, now))
        return reply_queue(r, mhd, clock_now());

    r->state = REQUEST_WAITING;
    arm_timer(r, now);
    r->worker->open_waits++;
    if (r->worker->open_waits > OPEN_WAITS_MAX)
        suspend(r, mhd);
    return MHD_YES;
}

/* Asked again while it waits openly. */
static void wait_on(struct request *r, struct MHD_Connection *mhd)
{
    if (instant_span_us(r->started_at, r->worker->run_at) >= OPEN_WAIT_US)
        suspend(r, mhd);
}

/* ---- what ends the wait: the first of these; whatever comes later finds nobody ---- */

static void make_ready(struct request *r, enum request_state state)
{
    stop_open_wait(r);
    r->state = state;
    if (r->is_suspended)
        list_push_back(&r->worker->ready_requests, &r->ready_link);
    else
        r->worker->needs_pump = true;
}

static void on_deadline(uv_timer_t *timer)
{
    struct request *r = timer->data;
    struct instant now = clock_now();

    if (r->state != REQUEST_WAITING)
        return; /* set for an earlier request, which ended in time */
    if (!instant_reached(now, r->endpoint.deadline)) {
        arm_timer(r, now);
        return;
    }
    endpoint_give_up(&r->endpoint, REASON_DEADLINE, now, &r->answer);
    make_ready(r, REQUEST_READY);
}

void request_landed(void *ctx, struct waiter *waiter)
{
    struct request *r = LIST_ITEM(waiter, struct request, endpoint.waiter);

    (void)ctx;
    ENSURE(r->state == REQUEST_WAITING);
    endpoint_landed(&r->endpoint, clock_now(), &r->answer);
    make_ready(r, REQUEST_READY);
}

void request_came_back(struct worker *worker, struct call *call)
{
    struct request *r = call->request;
    struct instant now = clock_now();

    if (endpoint_land(&worker->env, call, now))
        return;
    if (r == NULL) {
        endpoint_discard(&worker->env, call);
        return;
    }
    ENSURE(r->state == REQUEST_WAITING);
    endpoint_outcome(&r->endpoint, call, now, &r->answer);
    make_ready(r, REQUEST_READY);
}

void request_hang_up(struct request *r)
{
    if (r->state != REQUEST_WAITING)
        return;
    endpoint_hang_up(&r->endpoint);
    make_ready(r, REQUEST_GONE);
}

void requests_stop(struct worker *worker)
{
    struct instant now = clock_now();

    for (struct list *l = worker->active_requests.next; l != &worker->active_requests;
         l = l->next) {
        struct request *r = LIST_ITEM(l, struct request, link);

        if (r->state != REQUEST_WAITING)
            continue;
        endpoint_give_up(&r->endpoint, REASON_DRAINING, now, &r->answer);
        make_ready(r, REQUEST_READY);
    }
}

/* ---- what the library calls ---- */

static enum MHD_Result go_on(struct request *r, struct MHD_Connection *mhd)
{
    switch (r->state) {
    case REQUEST_READING:
        return on_complete(r, mhd);
    case REQUEST_READY:
        return reply_queue(r, mhd, clock_now());
    case REQUEST_GONE:
        return MHD_NO;
    case REQUEST_WAITING:
        wait_on(r, mhd);
        break;
    case REQUEST_SENT:
        break;
    }
    return MHD_YES;
}

enum MHD_Result request_handle(void *cls, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *upload_data,
                               size_t *upload_data_size, void **con_cls)
{
    struct request *r = *con_cls;

    (void)url; /* connection_take_uri() has it with the query */
    if (r == NULL) {
        r = request_begin(cls, connection_of(mhd));
        if (r == NULL)
            return MHD_NO;
        *con_cls = r;
        return on_headers(r, mhd, method, version);
    }
    if (*upload_data_size > 0)
        return on_piece(r, upload_data, upload_data_size);
    return go_on(r, mhd);
}

void request_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                       enum MHD_RequestTerminationCode code)
{
    struct connection *c = connection_of(mhd);
    const struct worker *worker = cls;

    (void)code; /* "ok" only says that the bytes were handed to the kernel */
    if (*con_cls != NULL)
        request_end(*con_cls);
    *con_cls = NULL;
    if (c == NULL)
        return;
    connection_enter(c, PHASE_IDLE, clock_now());
    if (worker->is_draining) /* its answer had left before that was known */
        (void)shutdown(c->fd, SHUT_RD);
}

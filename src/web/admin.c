#include "web/admin.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "base/list.h"
#include "config/config.h"
#include "observe/metrics.h"
#include "web/admin_site_internal.h"
#include "web/head_internal.h"
#include "web/service.h"

enum {
    /* More visitors than this: the one that has been quiet for longest has to go, so that nobody
     * can keep the door shut. The library's own limit would leave callers waiting outside. */
    MAX_VISITORS = 64,
    LIBRARY_LIMIT = 2 * MAX_VISITORS,
    QUIET_S = 10, /* without a whole request in this time a connection ends */
    BEAT_MS = 500,
    POOL_BYTES = 32 * 1024,
    MAX_ADDRESS_BYTES = INET6_ADDRSTRLEN + 8,
};

struct admin {
    struct admin_site *site;        /* owned */
    struct thread_metrics *metrics; /* borrowed */
    struct MHD_Daemon *daemon;      /* owned; the thread's while it runs */
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t stop;   /* admin_stop() asks the thread to end */
    uv_poll_t sockets; /* the daemon's epoll descriptor */
    uv_timer_t sooner; /* the daemon wants to be run without an event */
    uv_timer_t beat;
    struct instant beat_at; /* when the next beat is due */
    struct list visitors;   /* struct visitor.link, the quietest first */
    unsigned visitor_count; /* of the list */
    bool is_place_freed;    /* a connection closed: the daemon may accept again, if it is run */
};

/* A connection. */
struct visitor {
    struct list link;     /* admin.visitors, or none once it was told to end */
    int fd;               /* the daemon's */
    struct instant since; /* opened, or its last request ended */
};

/* A request under way. */
struct visit {
    struct buffer body;
    bool is_too_large;
};

/* --- connections --- */

static void visitor_unlink(struct admin *admin, struct visitor *visitor)
{
    if (list_is_empty(&visitor->link))
        return;
    list_remove(&visitor->link);
    admin->visitor_count--;
}

static void visitor_link(struct admin *admin, struct visitor *visitor, struct instant now)
{
    visitor->since = now;
    list_push_back(&admin->visitors, &visitor->link);
    admin->visitor_count++;
}

/* The daemon owns the descriptor: it notices the shutdown and closes. */
static void visitor_end(struct admin *admin, struct visitor *visitor)
{
    visitor_unlink(admin, visitor);
    (void)shutdown(visitor->fd, SHUT_RDWR);
}

static struct visitor *quietest_visitor(const struct admin *admin)
{
    return LIST_ITEM(admin->visitors.next, struct visitor, link);
}

static int fd_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    return info != NULL ? info->connect_fd : -1;
}

static void visitor_came(struct admin *admin, struct MHD_Connection *connection, void **socket_ctx)
{
    struct visitor *visitor = calloc(1, sizeof *visitor);

    *socket_ctx = visitor;
    if (visitor == NULL)
        return; /* served without a place in the list; the daemon's own timeout ends it */
    visitor->fd = fd_of(connection);
    list_init(&visitor->link);
    visitor_link(admin, visitor, clock_now());
    if (admin->visitor_count > MAX_VISITORS)
        visitor_end(admin, quietest_visitor(admin));
}

static void connection_changed(void *ctx, struct MHD_Connection *connection, void **socket_ctx,
                               enum MHD_ConnectionNotificationCode code)
{
    struct admin *admin = ctx;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        visitor_came(admin, connection, socket_ctx);
        return;
    }
    if (*socket_ctx != NULL)
        visitor_unlink(admin, *socket_ctx);
    free(*socket_ctx);
    *socket_ctx = NULL;
    admin->is_place_freed = true;
}

static void visitors_sweep(struct admin *admin, struct instant now)
{
    while (!list_is_empty(&admin->visitors)) {
        struct visitor *visitor = quietest_visitor(admin);

        if (!instant_reached(now, instant_after(visitor->since, QUIET_S * INT64_C(1000000))))
            return;
        visitor_end(admin, visitor);
    }
}

/* --- requests --- */

static void request_ended(void *ctx, struct MHD_Connection *connection, void **request_ctx,
                          enum MHD_RequestTerminationCode code)
{
    struct admin *admin = ctx;
    struct visit *visit = *request_ctx;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct visitor *visitor = info != NULL ? info->socket_context : NULL;

    (void)code;
    if (visitor != NULL && !list_is_empty(&visitor->link)) {
        visitor_unlink(admin, visitor);
        visitor_link(admin, visitor, clock_now());
    }
    if (visit != NULL)
        buffer_fini(&visit->body);
    free(visit);
    *request_ctx = NULL;
}

static enum MHD_Result reply_send(struct MHD_Connection *connection, struct admin_reply *reply)
{
    struct body body = buffer_take(&reply->body); /* from malloc(), so the library may free it */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body.size_bytes, body.data, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result;

    if (response == NULL) {
        body_fini(&body);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, "Content-Type", reply->media_type);
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (reply->allow != NULL)
        (void)MHD_add_response_header(response, "Allow", reply->allow);
    if (reply->asks_for_token)
        (void)MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"weir-admin\"");
    result = MHD_queue_response(connection, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return result;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result refusal_send(struct admin *admin, struct MHD_Connection *connection,
                                    int status, enum reason reason, const char *detail)
{
    struct admin_reply reply;

    admin_site_refuse(admin->site, header(connection, "X-Request-Id"), status, reason, detail,
                      &reply);
    return reply_send(connection, &reply);
}

static enum MHD_Result header_gather(void *ctx, enum MHD_ValueKind kind, const char *name,
                                     size_t name_bytes, const char *value, size_t value_bytes)
{
    (void)kind;
    head_add(ctx, (struct raw_text){name, name_bytes},
             (struct raw_text){value != NULL ? value : "", value_bytes});
    return MHD_YES;
}

static size_t head_bytes_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

    return info != NULL ? info->header_size : 0;
}

/* The first call for a request: its headers are there, its body is not. An answer given here closes
 * the connection, which is right for these two: the body would have to be read, or what follows
 * cannot be trusted. */
static enum MHD_Result visit_begin(struct admin *admin, struct MHD_Connection *connection,
                                   const char *version, void **request_ctx)
{
    struct visit *visit;
    struct head head;
    const char *refusal;
    int status = 400;

    head_init(&head);
    (void)MHD_get_connection_values_n(connection, MHD_HEADER_KIND, header_gather, &head);
    refusal = head_refusal(&head, version, head_bytes_of(connection), &status);
    if (refusal != NULL)
        return refusal_send(admin, connection, status, REASON_NONE, refusal);
    if (head.length_count > 0 && head.length_bytes > ADMIN_MAX_BODY_BYTES)
        return refusal_send(admin, connection, 413, REASON_BODY_TOO_LARGE, "at most 64 KiB");
    visit = calloc(1, sizeof *visit);
    if (visit == NULL)
        return MHD_NO;
    buffer_init(&visit->body, ADMIN_MAX_BODY_BYTES);
    *request_ctx = visit;
    return MHD_YES;
}

/* More than may be is read and forgotten: there is no way to answer before the body's end. */
static void visit_take(struct visit *visit, const char *piece, size_t *piece_bytes)
{
    if (!visit->is_too_large)
        buffer_append(&visit->body, piece, *piece_bytes);
    visit->is_too_large = visit->is_too_large || visit->body.failed;
    *piece_bytes = 0;
}

/* By which of this machine's addresses did the caller come? An IPv4 address in IPv6's clothes is
 * told as what it is. */
static const char *local_address(struct MHD_Connection *connection, char out[MAX_ADDRESS_BYTES])
{
    static const char mapped[] = "::ffff:";
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    const void *bytes = &((struct sockaddr_in *)(void *)&address)->sin_addr;

    if (getsockname(fd_of(connection), (struct sockaddr *)(void *)&address, &size) != 0)
        return NULL;
    if (address.ss_family == AF_INET6)
        bytes = &((struct sockaddr_in6 *)(void *)&address)->sin6_addr;
    else if (address.ss_family != AF_INET)
        return NULL;
    if (inet_ntop(address.ss_family, bytes, out, MAX_ADDRESS_BYTES) == NULL)
        return NULL;
    return strncmp(out, mapped, sizeof mapped - 1) == 0 && strchr(out, '.') != NULL
               ? out + sizeof mapped - 1
               : out;
}

static enum MHD_Result visit_answer(struct admin *admin, struct MHD_Connection *connection,
                                    const char *method, const char *path, const struct visit *visit)
{
    char address[MAX_ADDRESS_BYTES];
    struct admin_reply reply;
    const struct admin_question question = {
        .method = method,
        .path = path,
        .host = header(connection, "Host"),
        .content_type = header(connection, "Content-Type"),
        .authorization = header(connection, "Authorization"),
        .request_id = header(connection, "X-Request-Id"),
        .reached_at = local_address(connection, address),
        .body = visit->body.data,
        .body_bytes = visit->body.size_bytes,
        .now = clock_now(),
        .wall_us = clock_wall_us(),
    };

    if (visit->is_too_large)
        return refusal_send(admin, connection, 413, REASON_BODY_TOO_LARGE, "at most 64 KiB");
    admin_site_answer(admin->site, &question, &reply);
    return reply_send(connection, &reply);
}

static enum MHD_Result request_turn(void *ctx, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *piece,
                                    size_t *piece_bytes, void **request_ctx)
{
    if (*request_ctx == NULL)
        return visit_begin(ctx, connection, version, request_ctx);
    if (*piece_bytes > 0) {
        visit_take(*request_ctx, piece, piece_bytes);
        return MHD_YES;
    }
    return visit_answer(ctx, connection, method, url, *request_ctx);
}

/* No page reads the query; cut off, it cannot fill the library's memory for a request, which it
 * would answer with silence. The result becomes the request's context: none yet. */
static void *query_cut(void *ctx, const char *uri, struct MHD_Connection *connection)
{
    char *query = strchr((char *)uri, '?');

    (void)ctx;
    (void)connection;
    if (query != NULL)
        query[1] = '\0';
    return NULL;
}

/* --- the loop --- */

static void sooner_called(uv_timer_t *timer);

/* Runs the daemon until it wants nothing more. It tells of no event for what it left over (t == 0),
 * nor that it may accept again after a connection closed. */
static void daemon_pump(struct admin *admin)
{
    unsigned long long wait_ms = 0;

    for (int i = 0; i < 4; i++) {
        (void)MHD_run(admin->daemon);
        if (admin->is_place_freed) {
            admin->is_place_freed = false;
            continue;
        }
        if (MHD_get_timeout(admin->daemon, &wait_ms) != MHD_YES) {
            (void)uv_timer_stop(&admin->sooner);
            return;
        }
        if (wait_ms > 0)
            break;
    }
    (void)uv_timer_start(&admin->sooner, sooner_called, wait_ms, 0);
}

static void sooner_called(uv_timer_t *timer)
{
    daemon_pump(timer->data);
}

static void sockets_called(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    daemon_pump(poll->data);
}

static void beat_called(uv_timer_t *timer)
{
    struct admin *admin = timer->data;
    struct instant now = clock_now();
    int64_t late_us = instant_span_us(admin->beat_at, now);

    counter_set(&admin->metrics->loop_lag_us, late_us > 0 ? (uint64_t)late_us : 0);
    counter_set(&admin->metrics->heartbeat_us, (uint64_t)now.us);
    visitors_sweep(admin, now);
    daemon_pump(admin);
    admin->beat_at = instant_after(now, BEAT_MS * INT64_C(1000));
    (void)uv_timer_start(&admin->beat, beat_called, BEAT_MS, 0);
}

static void handle_close(uv_handle_t *handle, void *ctx)
{
    (void)ctx;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void stop_called(uv_async_t *async)
{
    uv_walk(async->loop, handle_close, NULL);
}

static void *admin_run(void *ctx)
{
    struct admin *admin = ctx;

    (void)pthread_setname_np(pthread_self(), "weir-admin");
    admin->beat_at = clock_now();
    beat_called(&admin->beat);
    (void)uv_run(&admin->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* --- start and stop --- */

#if MHD_VERSION >= 0x00097701
#define STRICTNESS MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1
#else
/* Refuses a space before a header's colon, which the others read as another header. */
#define STRICTNESS MHD_OPTION_STRICT_FOR_CLIENT, -1
#endif

static struct MHD_Daemon *daemon_start(struct admin *admin, int listener)
{
    return MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, request_turn, admin, MHD_OPTION_LISTEN_SOCKET, listener,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)LIBRARY_LIMIT, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)QUIET_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, STRICTNESS,
        MHD_OPTION_NOTIFY_COMPLETED, request_ended, admin, MHD_OPTION_NOTIFY_CONNECTION,
        connection_changed, admin, MHD_OPTION_URI_LOG_CALLBACK, query_cut, admin, MHD_OPTION_END);
}

/* On failure the handles that were made are closed again. */
static bool handles_open(struct admin *admin)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(admin->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    bool is_open = info != NULL && uv_async_init(&admin->loop, &admin->stop, stop_called) == 0 &&
                   uv_timer_init(&admin->loop, &admin->sooner) == 0 &&
                   uv_timer_init(&admin->loop, &admin->beat) == 0 &&
                   uv_poll_init(&admin->loop, &admin->sockets, info->epoll_fd) == 0;

    admin->sooner.data = admin->beat.data = admin->sockets.data = admin;
    if (is_open && uv_poll_start(&admin->sockets, UV_READABLE, sockets_called) == 0)
        return true;
    uv_walk(&admin->loop, handle_close, NULL);
    (void)uv_run(&admin->loop, UV_RUN_DEFAULT);
    return false;
}

static bool loop_open(struct admin *admin)
{
    if (uv_loop_init(&admin->loop) != 0)
        return false;
    if (handles_open(admin))
        return true;
    (void)uv_loop_close(&admin->loop);
    return false;
}

static bool thread_open(struct admin *admin)
{
    if (pthread_create(&admin->thread, NULL, admin_run, admin) == 0)
        return true;
    uv_walk(&admin->loop, handle_close, NULL);
    (void)uv_run(&admin->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&admin->loop);
    return false;
}

struct admin *admin_start(struct service *service, int listener, struct error *err)
{
    struct admin *admin = calloc(1, sizeof *admin);
    size_t index = (size_t)service->config->server.workers + 1;

    if (admin == NULL)
        goto fail;
    ENSURE(index < service->metrics->thread_count);
    admin->metrics = &service->metrics->threads[index];
    (void)snprintf(admin->metrics->name, sizeof admin->metrics->name, "admin");
    list_init(&admin->visitors);
    admin->site = admin_site_create(service, clock_now());
    if (admin->site == NULL)
        goto fail;
    admin->daemon = daemon_start(admin, listener);
    listener = -1; /* the daemon's, whether it started or not */
    if (admin->daemon == NULL || !loop_open(admin) || !thread_open(admin))
        goto fail;
    return admin;

fail:
    (void)error_set(err, "the admin port cannot be started: out of memory or descriptors");
    if (listener >= 0)
        (void)close(listener);
    if (admin == NULL)
        return NULL;
    if (admin->daemon != NULL)
        MHD_stop_daemon(admin->daemon);
    admin_site_destroy(admin->site);
    free(admin);
    return NULL;
}

void admin_stop(struct admin *admin)
{
    if (admin == NULL)
        return;
    (void)uv_async_send(&admin->stop);
    (void)pthread_join(admin->thread, NULL);
    ENSURE(uv_loop_close(&admin->loop) == 0);
    MHD_stop_daemon(admin->daemon); /* closes the listener and what is connected */
    admin_site_destroy(admin->site);
    free(admin);
}

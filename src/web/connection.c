#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "config/config.h"
#include "web/service.h"
#include "web/worker_internal.h"

enum { HANG_UP_BATCH = 64, KEPT_URI_BYTES = 1024 };

struct connection *connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info == NULL ? NULL : info->socket_context;
}

void connection_enter(struct connection *c, enum connection_phase phase, struct instant now)
{
    c->phase = phase;
    c->since = now;
    if (phase == PHASE_IDLE) {
        c->has_partial_head = false;
        c->check_at = instant_after(now, c->worker->config->server.header_timeout_us);
    }
}

static void forget(struct connection *c)
{
    struct service *service = c->worker->service;

    list_remove(&c->link);
    (void)atomic_fetch_sub_explicit(&c->worker->connection_count, 1, memory_order_relaxed);
    (void)atomic_fetch_sub_explicit(&service->connections, 1, memory_order_relaxed);
    free(c->uri);
    free(c);
}

/* The one that was handed over with this descriptor. */
static struct connection *find_arriving(const struct worker *worker, int fd)
{
    for (struct list *l = worker->arriving.next; l != &worker->arriving; l = l->next) {
        struct connection *c = LIST_ITEM(l, struct connection, link);

        if (c->fd == fd)
            return c;
    }
    return NULL;
}

void connection_admit(struct worker *worker, struct connection *c)
{
    int fd = c->fd;

    list_push_back(&worker->arriving, &c->link);
    worker->needs_pump = true;
    if (MHD_add_connection(worker->daemon, fd, (const struct sockaddr *)&c->address,
                           c->address_bytes) == MHD_YES)
        return;

    /* The library closed the socket; it may have told connection_notify() already. */
    if (find_arriving(worker, fd) == c)
        forget(c);
}

static void started(struct worker *worker, struct MHD_Connection *mhd, void **socket_context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *c = info == NULL ? NULL : find_arriving(worker, info->connect_fd);
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};

    ENSURE(c != NULL);
    c->mhd = mhd;
    *socket_context = c;
    list_remove(&c->link);
    list_push_back(&worker->connections, &c->link);
    connection_enter(c, PHASE_NEW, clock_now());
    (void)epoll_ctl(worker->hang_up_epoll, EPOLL_CTL_ADD, c->fd, &event);
}

void connection_notify(void *cls, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code)
{
    struct worker *worker = cls;
    struct connection *c = *socket_context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        started(worker, mhd, socket_context);
        return;
    }
    if (c == NULL)
        return;
    (void)epoll_ctl(worker->hang_up_epoll, EPOLL_CTL_DEL, c->fd, NULL);
    if (c->request != NULL)
        request_end(c->request);
    *socket_context = NULL;
    forget(c);
    worker->needs_pump = true; /* what waited for the descriptor may go on */
}

/* The target as it was sent, before the library touches it. The query is cut off there, so that the
 * library parses no arguments: those could overflow its pool, and it would never answer. */
void *connection_take_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct connection *c = connection_of(mhd);
    size_t size = strlen(uri);
    char *query = strchr(uri, '?');

    (void)cls;
    ENSURE(c != NULL);
    c->is_uri_too_long = size > c->worker->config->server.max_uri_bytes;
    if (c->is_uri_too_long)
        size = 0;
    if (size > c->uri_capacity_bytes) {
        char *grown = realloc(c->uri, size);

        if (grown != NULL) {
            c->uri = grown;
            c->uri_capacity_bytes = size;
        }
    }
    c->uri_bytes = size <= c->uri_capacity_bytes ? size : 0; /* out of memory: no such path */
    if (c->uri_bytes > 0)
        memcpy(c->uri, uri, c->uri_bytes);
    if (query != NULL)
        query[1] = '\0';
    if (c->phase == PHASE_IDLE)
        connection_enter(c, PHASE_HEAD, clock_now());
    else
        c->phase = PHASE_HEAD; /* of the first request: the time runs from the accept */
    return NULL;
}

static const char *status_words(int status)
{
    return status == 413 ? "413 Content Too Large" : "408 Request Timeout";
}

void connection_kill(struct connection *c, int status)
{
    char text[128];
    int size =
        snprintf(text, sizeof text, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                 status_words(status));

    if (c->is_killed)
        return;
    c->is_killed = true;
    if (status != 0)
        (void)!send(c->fd, text, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(c->fd, SHUT_RDWR);
}

/* Did bytes come since the connection became idle? Then a header was begun and not ended. */
static bool has_received_since(const struct connection *c, int64_t idle_us)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    /* A margin of 50 ms: the request before may have come in its last moment. */
    return ((int64_t)info.tcpi_last_data_recv + 50) * 1000 < idle_us;
}

static void check_idle(struct connection *c, struct instant now)
{
    const struct server_config *server = &c->worker->config->server;
    int64_t idle_us = instant_span_us(c->since, now);
    bool has_bytes;

    /* A caller that half-closed got its answer and can ask for nothing more; what it had asked for
     * before that was answered by now. */
    if (c->is_hung_up) {
        connection_kill(c, 0);
        return;
    }
    if (instant_reached(now, c->check_at)) {
        has_bytes = has_received_since(c, idle_us);
        if (has_bytes && c->has_partial_head) {
            connection_kill(c, 408);
            return;
        }
        c->has_partial_head = has_bytes;
        c->check_at = instant_after(now, server->header_timeout_us);
    }
    if (idle_us >= server->idle_timeout_us && !c->has_partial_head)
        connection_kill(c, 0);
}

static void check_body(struct connection *c)
{
    if (c->request != NULL)
        c->request->answer.status = 408;
    connection_kill(c, 408);
}

static void sweep_one(struct connection *c, struct instant now)
{
    const struct server_config *server = &c->worker->config->server;
    int64_t spent_us = instant_span_us(c->since, now);

    switch (c->phase) {
    case PHASE_NEW:
    case PHASE_HEAD:
        if (spent_us >= server->header_timeout_us)
            connection_kill(c, 408);
        break;
    case PHASE_BODY:
        if (spent_us >= server->body_timeout_us)
            check_body(c);
        break;
    case PHASE_BUSY: /* the request's own deadline ends it */
        break;
    case PHASE_WRITING:
        if (spent_us >= server->write_timeout_us)
            connection_kill(c, 0);
        break;
    case PHASE_IDLE:
        check_idle(c, now);
        break;
    }
}

void connections_sweep(struct worker *worker, struct instant now)
{
    for (struct list *l = worker->connections.next; l != &worker->connections; l = l->next) {
        struct connection *c = LIST_ITEM(l, struct connection, link);

        if (!c->is_killed)
            sweep_one(c, now);
        /* An occasional long URI does not keep its memory for ever. */
        if (c->phase == PHASE_IDLE && c->uri_capacity_bytes > KEPT_URI_BYTES) {
            free(c->uri);
            c->uri = NULL;
            c->uri_bytes = c->uri_capacity_bytes = 0;
        }
    }
}

void connections_close_idle(struct worker *worker)
{
    for (struct list *l = worker->connections.next; l != &worker->connections; l = l->next) {
        struct connection *c = LIST_ITEM(l, struct connection, link);

        /* Reading ends, writing does not: an answer that is just going out still arrives. */
        if (c->phase == PHASE_IDLE)
            (void)shutdown(c->fd, SHUT_RD);
    }
}

/* The end of each caller's stream, told once for each connection. It sets flags only: a connection
 * that were closed here might be one of the same batch. */
void hang_ups_read(struct worker *worker)
{
    struct epoll_event events[HANG_UP_BATCH];
    int count;

    do {
        count = epoll_wait(worker->hang_up_epoll, events, HANG_UP_BATCH, 0);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;

            c->is_hung_up = true;
            if (c->request != NULL)
                request_hang_up(c->request);
        }
    } while (count == HANG_UP_BATCH);
}

static void on_hang_ups(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    hang_ups_read(poll->data);
}

bool hang_ups_start(struct worker *worker)
{
    worker->hang_up_epoll = epoll_create1(EPOLL_CLOEXEC);
    if (worker->hang_up_epoll < 0)
        return false;
    if (uv_poll_init(&worker->loop, &worker->hang_up_poll, worker->hang_up_epoll) != 0)
        return false;
    worker->hang_up_poll.data = worker;
    return uv_poll_start(&worker->hang_up_poll, UV_READABLE, on_hang_ups) == 0;
}

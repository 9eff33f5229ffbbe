#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dep/postgres_internal.h"

/* libpq 17 has a cancel that neither blocks nor goes out unencrypted. Before it, PQcancel() blocks
 * without a limit when the server's address swallows packets, so the request (PostgreSQL manual,
 * section 55.2.8: 16 bytes on a connection of their own) is sent by hand. Either way the server
 * closes the connection after it sent the signal: that is how delivery is known. */

struct postgres_cancel {
    uv_poll_t poll;
    uv_timer_t timer;
    int open_handles;
    bool is_over;
    cancel_done_fn *done; /* NULL: abandoned */
    void *ctx;            /* borrowed */
#ifdef LIBPQ_HAS_ASYNC_CANCEL
    PGcancelConn *request; /* owned */
#else
    int fd; /* owned */
    bool is_sent;
    unsigned char bytes[16];
#endif
};

static void on_closed(uv_handle_t *handle)
{
    struct postgres_cancel *c = handle->data;

    if (--c->open_handles > 0)
        return;
#ifdef LIBPQ_HAS_ASYNC_CANCEL
    PQcancelFinish(c->request);
#else
    (void)close(c->fd);
#endif
    free(c);
}

static void close_handles(struct postgres_cancel *c)
{
    c->is_over = true;
    if (c->open_handles == 2) {
        (void)uv_poll_stop(&c->poll);
        uv_close((uv_handle_t *)&c->poll, on_closed);
    }
    uv_close((uv_handle_t *)&c->timer, on_closed);
}

static void end(struct postgres_cancel *c, bool is_delivered)
{
    cancel_done_fn *done = c->done;
    void *ctx = c->ctx;

    if (c->is_over)
        return;
    close_handles(c);
    if (done != NULL)
        done(ctx, is_delivered);
}

static void on_timeout(uv_timer_t *timer)
{
    end(timer->data, false);
}

void cancel_abandon(struct postgres_cancel *c)
{
    c->done = NULL;
    if (!c->is_over)
        close_handles(c);
}

static void on_event(uv_poll_t *poll, int status, int events);

static bool watch(struct postgres_cancel *c, uv_loop_t *loop, int fd, int64_t timeout_us)
{
    (void)uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    c->open_handles = 1;
    (void)uv_timer_start(&c->timer, on_timeout, (uint64_t)(timeout_us / 1000 + 1), 0);
    if (fd < 0 || uv_poll_init(loop, &c->poll, fd) != 0)
        return false;
    c->poll.data = c;
    c->open_handles = 2;
    return uv_poll_start(&c->poll, UV_WRITABLE, on_event) == 0;
}

#ifdef LIBPQ_HAS_ASYNC_CANCEL

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct postgres_cancel *c = poll->data;

    (void)status;
    (void)events;
    switch (PQcancelPoll(c->request)) {
    case PGRES_POLLING_READING:
        (void)uv_poll_start(poll, UV_READABLE, on_event);
        break;
    case PGRES_POLLING_WRITING:
        (void)uv_poll_start(poll, UV_WRITABLE, on_event);
        break;
    case PGRES_POLLING_OK:
        end(c, true);
        break;
    case PGRES_POLLING_FAILED:
    case PGRES_POLLING_ACTIVE:
    default:
        end(c, false);
        break;
    }
}

static int open_request(struct postgres_cancel *c, PGconn *conn, int32_t pid, int32_t key)
{
    (void)pid;
    (void)key;
    c->request = PQcancelCreate(conn);
    if (c->request == NULL || PQcancelStart(c->request) == 0)
        return -1;
    return PQcancelSocket(c->request);
}

#else

static void send_request(struct postgres_cancel *c)
{
    if (send(c->fd, c->bytes, sizeof c->bytes, MSG_NOSIGNAL) != (ssize_t)sizeof c->bytes) {
        end(c, false); /* refused, reset; 16 bytes are never sent in part */
        return;
    }
    c->is_sent = true;
    (void)uv_poll_start(&c->poll, UV_READABLE, on_event);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct postgres_cancel *c = poll->data;
    char byte;
    ssize_t n;

    (void)status;
    (void)events;
    if (!c->is_sent) {
        send_request(c);
        return;
    }
    n = recv(c->fd, &byte, 1, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        end(c, n == 0);
}

static void put_number(unsigned char *out, int32_t number)
{
    uint32_t n = (uint32_t)number;

    out[0] = (unsigned char)(n >> 24);
    out[1] = (unsigned char)(n >> 16);
    out[2] = (unsigned char)(n >> 8);
    out[3] = (unsigned char)n;
}

static int open_request(struct postgres_cancel *c, PGconn *conn, int32_t pid, int32_t key)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof address;

    put_number(c->bytes, 16);
    put_number(c->bytes + 4, 80877102);
    put_number(c->bytes + 8, pid);
    put_number(c->bytes + 12, key);
    c->fd = -1;
    if (pid == 0 || getpeername(PQsocket(conn), (struct sockaddr *)&address, &size) != 0)
        return -1;

    c->fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd >= 0 && connect(c->fd, (struct sockaddr *)&address, size) != 0 &&
        errno != EINPROGRESS)
        return -1;
    return c->fd;
}

#endif

struct postgres_cancel *cancel_start(uv_loop_t *loop, PGconn *conn, int32_t pid, int32_t key,
                                     int64_t timeout_us, cancel_done_fn *done, void *ctx)
{
    struct postgres_cancel *c = calloc(1, sizeof *c);

    if (c == NULL)
        return NULL;

    if (!watch(c, loop, open_request(c, conn, pid, key), timeout_us)) {
        close_handles(c);
        return NULL;
    }
    c->done = done;
    c->ctx = ctx;
    return c;
}

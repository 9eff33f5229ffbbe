#include "base/wakeup.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct wakeup *w = poll->data;
    uint64_t count;

    (void)status;
    (void)events;
    (void)!read(w->fd, &count, sizeof count); /* EAGAIN: another turn took it */
    w->woken(w->ctx);
}

int wakeup_init(struct wakeup *w, uv_loop_t *loop, void (*woken)(void *ctx), void *ctx)
{
    int failed;

    w->woken = woken;
    w->ctx = ctx;
    w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->fd < 0)
        return uv_translate_sys_error(errno);

    failed = uv_poll_init(loop, &w->poll, w->fd);
    if (failed != 0) {
        (void)close(w->fd);
        return failed;
    }
    w->poll.data = w;
    return uv_poll_start(&w->poll, UV_READABLE, on_readable);
}

void wakeup_send(void *wakeup)
{
    struct wakeup *w = wakeup;
    uint64_t one = 1;

    (void)!write(w->fd, &one, sizeof one); /* EAGAIN: it is awake already */
}

static void on_closed(uv_handle_t *handle)
{
    struct wakeup *w = handle->data;

    (void)close(w->fd);
}

void wakeup_close(struct wakeup *w)
{
    uv_close((uv_handle_t *)&w->poll, on_closed);
}

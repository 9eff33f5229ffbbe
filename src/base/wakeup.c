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

    atomic_init(&w->is_asleep, 1);
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

    /* A read-modify-write, as the owner's in wakeup_doze(): whichever is second sees what the other
     * did before it. */
    if (atomic_fetch_or_explicit(&w->is_asleep, 0, memory_order_acq_rel) == 0)
        return;
    (void)!write(w->fd, &one, sizeof one); /* EAGAIN: it is awake already */
}

void wakeup_doze(struct wakeup *w)
{
    (void)atomic_exchange_explicit(&w->is_asleep, 1, memory_order_acq_rel);
}

void wakeup_rise(struct wakeup *w)
{
    atomic_store_explicit(&w->is_asleep, 0, memory_order_relaxed);
}

void wakeup_close(struct wakeup *w)
{
    uv_close((uv_handle_t *)&w->poll, NULL);
}

void wakeup_fini(struct wakeup *w)
{
    (void)close(w->fd);
}

/* wakeup.h - how another thread wakes a loop: an eventfd that the loop polls.
 * SPDX-License-Identifier: MIT
 *
 * Not uv_async_t: in libuv 1.44 its receiver spins until the sender's write returned, so a sender
 * that is halted there would halt the receiver with it.
 *
 * Owner    wakeup_init() .. wakeup_close() on the loop's thread; the memory lives until the loop
 *          ran the close.
 * Threads  wakeup_send() from any; many sends may become one `woken`, none is lost. */
#ifndef BASE_WAKEUP_H
#define BASE_WAKEUP_H
#include <uv.h>

struct wakeup {
    int fd;
    uv_poll_t poll;
    void (*woken)(void *ctx); /* on the loop's thread */
    void *ctx;                /* borrowed */
};

/* 0, or a libuv error code. */
int wakeup_init(struct wakeup *w, uv_loop_t *loop, void (*woken)(void *ctx), void *ctx);
void wakeup_send(void *wakeup); /* a struct wakeup *: fits struct inbox */
void wakeup_close(struct wakeup *w);
#endif

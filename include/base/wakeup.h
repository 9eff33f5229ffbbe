/* wakeup.h - how another thread wakes a loop: an eventfd that the loop polls.
 * SPDX-License-Identifier: MIT
 *
 * Not uv_async_t: in libuv 1.44 its receiver spins until the sender's write returned, so a sender
 * that is halted there would halt the receiver with it.
 *
 * The owner says when it is about to wait (wakeup_doze), and looks once more for what was sent;
 * only then does a sender pay for a system call. Whatever was sent before is seen by that look,
 * whatever comes later finds it asleep. Senders never say that they have woken it: one that is
 * halted in between would leave it asleep for all the others.
 *
 * Owner    wakeup_init() .. wakeup_close() on the loop's thread; wakeup_fini() by its joiner.
 * Threads  wakeup_send() from any; many sends may become one `woken`, none is lost. */
#ifndef BASE_WAKEUP_H
#define BASE_WAKEUP_H
#include <stdatomic.h>
#include <uv.h>

struct wakeup {
    _Atomic int is_asleep;
    int fd;
    uv_poll_t poll;
    void (*woken)(void *ctx); /* on the loop's thread */
    void *ctx;                /* borrowed */
};

/* 0, or a libuv error code. */
int wakeup_init(struct wakeup *w, uv_loop_t *loop, void (*woken)(void *ctx), void *ctx);
void wakeup_send(void *wakeup); /* a struct wakeup *: fits struct inbox */

/* Owner: about to wait, and going to look once more whether there is something to do. */
void wakeup_doze(struct wakeup *w);
/* Owner: awake, and sure to doze again before it waits. Without it senders only pay in vain. */
void wakeup_rise(struct wakeup *w);
/* Owner: the loop forgets it. Senders may still send, until wakeup_fini(). */
void wakeup_close(struct wakeup *w);
/* When nobody sends any more and the loop has ended. */
void wakeup_fini(struct wakeup *w);
#endif

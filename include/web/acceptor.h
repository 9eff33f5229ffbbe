/* acceptor.h - owns the one listener and hands each connection to the worker with the fewest.
 * SPDX-License-Identifier: MIT
 *
 * Above max_connections 64 more are accepted as reserve (for /health*); above that the listener is
 * left alone, and looked at again every 25 ms. Bound without SO_REUSEPORT, so that a second weir on
 * the port fails.
 *
 * Owner    app. Threads  a thread of its own. Errors  listener_open() names address and port. */
#ifndef WEB_ACCEPTOR_H
#define WEB_ACCEPTOR_H
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct service;
struct worker;

/* A bound, listening, non-blocking, close-on-exec socket, or -1. Also used by the admin port.
 * `address`: numeric IPv4 or IPv6, or "localhost". */
int listener_open(const char *address, uint16_t port, struct error *err);

struct acceptor;

/* Takes over `listener`. NULL: err says why, the listener is closed. */
struct acceptor *acceptor_start(struct service *service, int listener,
                                struct worker *const *workers, uint32_t worker_count,
                                struct error *err);
/* Stops accepting, closes the listener, joins the thread, frees. NULL is fine. */
void acceptor_stop(struct acceptor *acceptor);
#endif

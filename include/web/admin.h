/* admin.h - the operator's port: health, metrics, status, breaker modes. SPDX-License-Identifier:
 * MIT
 *
 * A thread, a loop and a libmicrohttpd daemon of its own; it reads published snapshots (atomics)
 * and waits for nothing else, so it answers whatever the rest is doing.
 *
 * Owner    app. Threads  its own. Errors  admin_start() says why. */
#ifndef WEB_ADMIN_H
#define WEB_ADMIN_H
#include "base/error.h"

struct admin;
struct service;

/* `listener` (listener_open()) is the admin port's from here on, also on failure. */
struct admin *admin_start(struct service *service, int listener, struct error *err);
void admin_stop(struct admin *admin); /* closes all, joins the thread; NULL is fine */
#endif

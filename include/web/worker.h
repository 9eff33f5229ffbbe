/* worker.h - one of the fixed pool: a thread, a loop and a libmicrohttpd daemon without a listener.
 * SPDX-License-Identifier: MIT
 *
 * A worker waits for nothing but its own sockets, timers and inbox. It parses, routes, checks,
 * admits and answers; calls wait in dependencies. Requests never leave their worker.
 *
 * Owner    app: worker_start() .. worker_stop() .. worker_free().
 * Threads  worker_give(), worker_connection_count() and worker_begin_drain() from any thread.
 * Errors   worker_start() says why. */
#ifndef WEB_WORKER_H
#define WEB_WORKER_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

struct service;
struct worker;

struct worker *worker_start(struct service *service, uint32_t index, struct error *err);

/* Hands over an accepted, non-blocking socket. is_reserve: above max_connections, only /health* is
 * answered on it, then it is closed. */
void worker_give(struct worker *worker, int fd, const struct sockaddr *address, socklen_t size,
                 bool is_reserve);
uint32_t worker_connection_count(const struct worker *worker);

/* Draining, step 2: idle connections are closed, answers carry Connection: close. */
void worker_begin_drain(struct worker *worker);

/* True when no request is under way. */
bool worker_is_quiet(const struct worker *worker);

/* It begins to end, while others are told the same. NULL is fine. */
void worker_tell_to_stop(struct worker *worker);

/* Answers what still waits with `draining`, closes all, joins the thread. NULL is fine. */
void worker_stop(struct worker *worker);

/* After all workers stopped: until then another may still tell it that a flight landed. NULL is
 * fine; one whose calls never came back is left as it is. */
void worker_free(struct worker *worker);
#endif

/* postgres.h - the thread behind a PostgreSQL dependency. SPDX-License-Identifier: MIT
 *
 * It owns the sessions, the waiting line, the breaker, the probe and the writing of rows; beside it
 * a resolver thread that may block in DNS. Nothing in it waits for anything but its loop.
 *
 * Owner    app: postgres_start() .. postgres_stop().
 * Threads  both from the main thread; struct dependency says what workers may do meanwhile.
 * Errors   postgres_start() says why (conninfo, threads). A database that is away is no error. */
#ifndef DEP_POSTGRES_H
#define DEP_POSTGRES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/instant.h"

struct dependency;
struct postgres;
struct thread_metrics;

/* `dep` is complete but for its inbox; route_count: of the catalog (each session keeps a prepared
 * statement a route). */
struct postgres *postgres_start(struct dependency *dep, size_t route_count,
                                struct thread_metrics *thread, struct error *err);

/* It begins to end, while others are told the same. NULL is fine. */
void postgres_tell_to_stop(struct postgres *p);

/* Calls that are left come back as `draining`; sessions are closed; the thread is joined, all is
 * freed. False: the thread is stuck and did not end by `limit`; it is left as it is, and the
 * process can only _exit(). */
bool postgres_stop(struct postgres *p, struct instant limit);

#endif

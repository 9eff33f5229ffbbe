/* resolver.h - a thread that may block in DNS, so that nobody else does. SPDX-License-Identifier:
 * MIT
 *
 * One lookup at a time; the asker gives up by its own deadline and ignores a late answer.
 *
 * Owner    resolver_start() .. resolver_stop() by the dependency. When a lookup hangs, stop
 * abandons the thread: it frees what is left when it wakes. Threads  resolver_ask() and
 * resolver_take() by the owner; `done` is called on the resolver's thread. Errors   a failed lookup
 * is an answer with count 0 and a text. */
#ifndef DEP_RESOLVER_H
#define DEP_RESOLVER_H
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { RESOLVER_MAX_ADDRESSES = 16 };

struct resolved {
    uint64_t ticket;                            /* which question this answers */
    int count;                                  /* 0: failed, see text */
    char addresses[RESOLVER_MAX_ADDRESSES][64]; /* numeric, for hostaddr= */
    char text[160];
};

struct resolver;

struct resolver *resolver_start(void (*done)(void *ctx), void *ctx, struct error *err);
void resolver_stop(struct resolver *r);

/* Asks for a name; returns the question's ticket, 0 when a lookup is still under way. */
uint64_t resolver_ask(struct resolver *r, const char *name);
/* True: *out holds a new answer. Call it after `done`. */
bool resolver_take(struct resolver *r, struct resolved *out);
#endif

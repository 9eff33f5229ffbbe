/* breaker.h - decides whether a dependency may be called, from how the calls before it went.
 * SPDX-License-Identifier: MIT
 *
 *              failure_threshold failures in a row
 *     CLOSED --------------------------------------> OPEN <---------+
 *       ^                                             |             | one trial failed:
 *       | half_open_calls trials succeeded            |             | twice as long, up to the
 *       |                        reset_timeout ±10 %, |             | maximum
 *       |                        or a good probe      |             |
 *       +--------------------- HALF_OPEN <------------+             |
 *                                  +--------------------------------+
 *
 * A good probe ends OPEN early only when a connection-class failure opened it (of a row the last
 * one decides: it is the newest news), or when a probe has failed since. In HALF_OPEN a good probe
 * stands for a trial while no call's trial is under way.
 *
 * Units    instants are monotonic, spans microseconds.
 * Owner    the dependency's thread; embeds the struct. The admission word is borrowed; the breaker
 *          is its only publisher.
 * Threads  one. The admission word carries what other threads see.
 * Errors   none. */
#ifndef GUARD_BREAKER_H
#define GUARD_BREAKER_H
#include <stdbool.h>
#include <stdint.h>

#include "base/instant.h"
#include "base/rand.h"
#include "guard/admission.h"

struct breaker_config {
    uint32_t failure_threshold;   /* at least 1 */
    int64_t reset_timeout_us;     /* first time open */
    int64_t max_reset_timeout_us; /* doubling ends here; below the former: never doubled */
    uint32_t half_open_calls;     /* 1..255 */
};

/* What an outcome says about the dependency's health. */
enum evidence {
    EVIDENCE_NONE,           /* the caller's mistake or hang-up, or our own doing */
    EVIDENCE_GOOD,           /* it did its work */
    EVIDENCE_BAD,            /* it failed on an established session */
    EVIDENCE_BAD_CONNECTION, /* it cannot be reached or refuses service as a whole */
};

struct breaker;

/* Called after each move, on the owner's thread; for logs and metrics. */
typedef void breaker_moved_fn(void *ctx, enum breaker_state from, enum breaker_state to);

struct breaker {
    struct breaker_config config; /* immutable after init */
    struct admission *admission;  /* borrowed */
    struct rand *rand;            /* borrowed, owner's thread */
    breaker_moved_fn *moved;      /* immutable after init; may be NULL */
    void *moved_ctx;              /* borrowed */
    enum breaker_state state;     /* written by breaker_move() alone */
    uint32_t generation;          /* of the last move */
    uint32_t failures_in_a_row;   /* closed */
    uint32_t trials_passed;       /* half-open */
    bool may_probe_end_open;      /* open: the last failure was connection-class, or a probe's */
    int64_t open_for_us;          /* the (unjittered) span of this or the next time open */
    struct instant reopen_at;     /* open: when half-open begins; else INSTANT_NEVER */
};

void breaker_init(struct breaker *b, const struct breaker_config *config,
                  struct admission *admission, struct rand *rand, breaker_moved_fn *moved,
                  void *moved_ctx);

/* The outcome of an admitted call, exactly once a ticket. Tickets of an earlier generation, and in
 * half-open those of calls that are no trial, change nothing. EVIDENCE_NONE of a trial gives its
 * slot back. */
void breaker_record(struct breaker *b, struct ticket ticket, enum evidence evidence,
                    struct instant now);

/* A probe ended. Closed: a bad one is one connection-class failure, a good one says nothing. Open:
 * see above. Half-open, while no call's trial is under way: a good one passes as a trial, a bad one
 * re-opens for the same span as before. Bad probes never double the time open, nor extend it. */
void breaker_record_probe(struct breaker *b, bool is_good, struct instant now);

/* Moves open to half-open when its time has come; call at breaker_next_tick(). */
void breaker_tick(struct breaker *b, struct instant now);
struct instant breaker_next_tick(const struct breaker *b);
#endif

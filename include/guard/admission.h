/* admission.h - may a call go? One 64-bit word a dependency, decided by one compare-and-swap.
 * SPDX-License-Identifier: MIT
 *
 *   63      44 43       36 35 34 33  32 31    16 15     0
 *   generation trials left mode  state  queued   in use
 *
 * The word is both the semaphore bulkhead (in use, queued) and the published breaker (state,
 * generation, trials left), so "is it closed" and "is there a permit" are one atomic question.
 *
 * Units    counts of calls.
 * Owner    the dependency; permits are given back by its thread only.
 * Threads  admission_ask(), admission_set_mode() and admission_read() from any thread; the
 *          rest from the owner thread. Nothing blocks, nothing allocates. */
#ifndef GUARD_ADMISSION_H
#define GUARD_ADMISSION_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/instant.h"

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN, BREAKER_STATE_COUNT };

/* auto: the breaker decides; forced-open: refuse everything; disabled: the breaker refuses nothing
 * (the bulkhead still does). */
enum breaker_mode { BREAKER_AUTO, BREAKER_FORCED_OPEN, BREAKER_DISABLED, BREAKER_MODE_COUNT };

enum admission_verdict {
    ADMIT_RUN,   /* a permit is held */
    ADMIT_WAIT,  /* a place in the waiting line is held */
    REFUSE_OPEN, /* nothing is held */
    REFUSE_FULL, /* nothing is held */
};

/* What a call carries from its admission to its outcome. */
struct ticket {
    uint32_t generation; /* of the breaker when it was admitted */
    bool is_trial;       /* one of the calls that half-open lets through */
};

struct admission {
    _Atomic uint64_t word;
    _Atomic int64_t retry_at_us; /* monotonic: when open ends; long past in any other state */
    uint32_t max_concurrent;     /* immutable after init; 1..65535 */
    uint32_t max_queued;         /* immutable after init; 0..65535 */
};

struct admission_view {
    enum breaker_state state;
    enum breaker_mode mode;
    uint32_t generation, trials_left, in_use, queued;
};

void admission_init(struct admission *a, uint32_t max_concurrent, uint32_t max_queued);

/* Any thread. While the line is not empty nobody passes it. In half-open a call takes a trial with
 * its permit, and never waits. *out_ticket is written with ADMIT_RUN alone: a call that waits gets
 * its ticket when it is promoted. */
enum admission_verdict admission_ask(struct admission *a, struct ticket *out_ticket);

/* Owner. The first of the line gets a permit: queued - 1, in use + 1, and in half-open a trial.
 * False: the line is empty, no permit is free, or the breaker refuses (open or forced open: the
 * owner then refuses the whole line; look with admission_read()). */
bool admission_promote(struct admission *a, struct ticket *out_ticket);
void admission_leave_line(struct admission *a); /* queued - 1: timed out, hung up, refused */
void admission_leave(struct admission *a);      /* in use - 1: the dependency is really done */

/* Owner. Makes a breaker transition visible: new state and trials (at most 255), generation + 1.
 * Returns the new generation, which wraps at 20 bits: compare for equality only. */
uint32_t admission_publish(struct admission *a, enum breaker_state state, uint32_t trials,
                           struct instant retry_at);
void admission_return_trial(struct admission *a); /* trials left + 1, same generation */
/* Owner: takes one trial for the probe; false: none left or not half-open. */
bool admission_take_trial(struct admission *a);

void admission_set_mode(struct admission *a, enum breaker_mode mode);
struct admission_view admission_read(const struct admission *a);

const char *breaker_state_name(enum breaker_state state); /* closed open half-open */
const char *breaker_mode_name(enum breaker_mode mode);    /* auto forced-open disabled */
bool breaker_mode_parse(const char *text, enum breaker_mode *out_mode);
#endif

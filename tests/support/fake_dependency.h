/* fake_dependency.h - a dependency without a network and without a thread: the test is its thread.
 * SPDX-License-Identifier: MIT
 *
 *   fake_dependency_take()    drains the inbox: calls run, or stand in the waiting line
 *   fake_dependency_answer()  ends one running call with a scripted outcome
 *   fake_dependency_pass()    moves the clock; the breaker ticks, the line expires
 *
 * Guard and breaker are the real ones, so that what stands before a dependency is tested whole.
 *
 * Units    _us microseconds of the fake's own clock, which moves by fake_dependency_pass() alone.
 * Owner    fake_dependency_init() .. fake_dependency_fini(); the struct must not move in between.
 * Threads  one.
 * Errors   ENSURE: a script that cannot be is a mistake of the test. */
#ifndef SUPPORT_FAKE_DEPENDENCY_H
#define SUPPORT_FAKE_DEPENDENCY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/instant.h"
#include "base/list.h"
#include "base/rand.h"
#include "base/reason.h"
#include "config/config.h"
#include "dep/dependency.h"
#include "guard/breaker.h"
#include "observe/metrics.h"

struct call;

/* How a call ends. */
struct fake_outcome {
    enum reason reason;
    enum evidence evidence;
    const char *body;       /* borrowed; of a success; NULL: empty */
    bool is_large;          /* the body goes as a mapping, as large results do */
    const char *detail;     /* borrowed; NULL: none */
    const char *constraint; /* borrowed; NULL: none */
};

struct fake_dependency {
    struct dependency dep; /* what endpoints see */
    struct dependency_config config;
    struct dependency_metrics metrics;
    struct breaker breaker;
    struct rand rand;
    struct instant now;
    struct list line;    /* calls without a permit, first come first served */
    struct list running; /* calls with a permit */
    uint64_t wake_count; /* how often a worker woke it */
};

/* A copy of `config` but for its name; what is 0 there stays 0 but max_concurrent, the breaker's
 * failure_threshold and half_open_calls, which are then 1. */
void fake_dependency_init(struct fake_dependency *f, const struct dependency_config *config);

/* Every call must have been taken back by its worker. */
void fake_dependency_fini(struct fake_dependency *f);

/* Drains the inbox, then sees cancels: a cancelled call in the line goes back at once, one that
 * runs stays until it is answered (the database stops when it stops). */
void fake_dependency_take(struct fake_dependency *f);

/* The n-th running call, the oldest first; NULL: fewer run. */
struct call *fake_dependency_running(const struct fake_dependency *f, size_t n);
size_t fake_dependency_running_count(const struct fake_dependency *f);
size_t fake_dependency_line_count(const struct fake_dependency *f);

/* Permits held by calls, counted call by call, those still in the inbox too. */
size_t fake_dependency_permit_count(const struct fake_dependency *f);
size_t fake_dependency_trial_count(const struct fake_dependency *f); /* of this generation */

/* Ends one running call: evidence to the breaker, permit back, call to its worker, and the line
 * moves up. */
void fake_dependency_answer(struct fake_dependency *f, struct call *call,
                            const struct fake_outcome *outcome);

/* Running calls, the oldest first, one outcome each. */
void fake_dependency_answer_all(struct fake_dependency *f, const struct fake_outcome *outcomes,
                                size_t count);

/* Time passes: the breaker ticks, calls leave the line at queue_timeout or their deadline. */
void fake_dependency_pass(struct fake_dependency *f, int64_t span_us);

/* Everything in it goes back as draining. */
void fake_dependency_drain(struct fake_dependency *f);
#endif

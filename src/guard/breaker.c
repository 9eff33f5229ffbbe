/* SPDX-License-Identifier: MIT */
#include "guard/breaker.h"

#include <stddef.h>

#include "base/ensure.h"

#define JITTER_PERCENT 10

enum breaker_event {
    EV_TRIPPED,  /* the last failure of a row */
    EV_RESTED,   /* its time open is over, or a probe says so */
    EV_PROVEN,   /* the last trial passed */
    EV_RELAPSED, /* a trial or a probe failed */
    EV_COUNT,
};

/* The cell of what cannot happen (0 is closed). */
#define NEVER BREAKER_STATE_COUNT

/* Where each event leads. */
/* clang-format off */
static const enum breaker_state next_state[BREAKER_STATE_COUNT][EV_COUNT] = {
    /*                      TRIPPED       RESTED             PROVEN          RELAPSED     */
    [BREAKER_CLOSED]    = { BREAKER_OPEN, NEVER,             NEVER,          NEVER        },
    [BREAKER_OPEN]      = { NEVER,        BREAKER_HALF_OPEN, NEVER,          NEVER        },
    [BREAKER_HALF_OPEN] = { NEVER,        NEVER,             BREAKER_CLOSED, BREAKER_OPEN },
};
/* clang-format on */

/* The only place that writes b->state. */
static void breaker_move(struct breaker *b, enum breaker_event event, struct instant now)
{
    enum breaker_state from = b->state;
    enum breaker_state to = next_state[from][event];
    uint32_t trials = to == BREAKER_HALF_OPEN ? b->config.half_open_calls : 0;

    ENSURE(to != NEVER);
    b->state = to;
    b->failures_in_a_row = 0;
    b->trials_passed = 0;
    b->reopen_at = INSTANT_NEVER;
    if (to == BREAKER_OPEN)
        b->reopen_at = instant_after(now, rand_jitter_us(b->rand, b->open_for_us, JITTER_PERCENT));
    if (to == BREAKER_CLOSED)
        b->open_for_us = b->config.reset_timeout_us;

    b->generation =
        admission_publish(b->admission, to, trials, to == BREAKER_OPEN ? b->reopen_at : now);
    if (b->moved != NULL)
        b->moved(b->moved_ctx, from, to);
}

/* `last` is the failure that opens it: of a row the newest says best what is wrong now. */
static void breaker_open(struct breaker *b, enum breaker_event event, enum evidence last,
                         struct instant now)
{
    b->may_probe_end_open = last == EVIDENCE_BAD_CONNECTION;
    breaker_move(b, event, now);
}

/* A maximum below the first span means that there is no doubling. */
static void double_time_open(struct breaker *b)
{
    int64_t max_us = b->config.max_reset_timeout_us;

    if (b->open_for_us < max_us)
        b->open_for_us = b->open_for_us > max_us / 2 ? max_us : b->open_for_us * 2;
}

static void count_failure(struct breaker *b, enum evidence evidence, struct instant now)
{
    b->failures_in_a_row++;
    if (b->failures_in_a_row >= b->config.failure_threshold)
        breaker_open(b, EV_TRIPPED, evidence, now);
}

static void count_passed_trial(struct breaker *b, struct instant now)
{
    b->trials_passed++;
    if (b->trials_passed >= b->config.half_open_calls)
        breaker_move(b, EV_PROVEN, now);
}

static void record_while_closed(struct breaker *b, enum evidence evidence, struct instant now)
{
    switch (evidence) {
    case EVIDENCE_NONE:
        break;
    case EVIDENCE_GOOD:
        b->failures_in_a_row = 0;
        break;
    case EVIDENCE_BAD:
    case EVIDENCE_BAD_CONNECTION:
        count_failure(b, evidence, now);
        break;
    }
}

static void record_trial(struct breaker *b, enum evidence evidence, struct instant now)
{
    switch (evidence) {
    case EVIDENCE_NONE:
        admission_return_trial(b->admission);
        break;
    case EVIDENCE_GOOD:
        count_passed_trial(b, now);
        break;
    case EVIDENCE_BAD:
    case EVIDENCE_BAD_CONNECTION:
        double_time_open(b);
        breaker_open(b, EV_RELAPSED, evidence, now);
        break;
    }
}

/* Slots neither passed nor left are with calls. A worker may take one right after the look; then
 * admission_take_trial() or the generation settles who was first. */
static bool is_trial_under_way(const struct breaker *b)
{
    return admission_read(b->admission).trials_left + b->trials_passed < b->config.half_open_calls;
}

static void record_probe_while_open(struct breaker *b, bool is_good, struct instant now)
{
    if (!is_good)
        b->may_probe_end_open = true;
    else if (b->may_probe_end_open)
        breaker_move(b, EV_RESTED, now);
}

static void record_probe_while_half_open(struct breaker *b, bool is_good, struct instant now)
{
    if (is_trial_under_way(b))
        return; /* a real call is about to tell better */

    if (!is_good)
        breaker_open(b, EV_RELAPSED, EVIDENCE_BAD_CONNECTION, now);
    else if (admission_take_trial(b->admission))
        count_passed_trial(b, now);
}

void breaker_init(struct breaker *b, const struct breaker_config *config,
                  struct admission *admission, struct rand *rand, breaker_moved_fn *moved,
                  void *moved_ctx)
{
    ENSURE(config->failure_threshold >= 1);
    ENSURE(config->half_open_calls >= 1 && config->half_open_calls <= UINT8_MAX);
    ENSURE(config->reset_timeout_us >= 0);

    *b = (struct breaker){
        .config = *config,
        .admission = admission,
        .rand = rand,
        .moved = moved,
        .moved_ctx = moved_ctx,
        .state = BREAKER_CLOSED,
        .generation = admission_read(admission).generation,
        .open_for_us = config->reset_timeout_us,
        .reopen_at = INSTANT_NEVER,
    };
}

void breaker_record(struct breaker *b, struct ticket ticket, enum evidence evidence,
                    struct instant now)
{
    if (ticket.generation != b->generation)
        return; /* admitted before the last move: too old to judge by */

    switch (b->state) {
    case BREAKER_CLOSED:
        record_while_closed(b, evidence, now);
        break;
    case BREAKER_HALF_OPEN:
        if (ticket.is_trial)
            record_trial(b, evidence, now);
        break;
    case BREAKER_OPEN: /* admitted while disabled; refusing is over when its time is */
    case BREAKER_STATE_COUNT:
        break;
    }
}

void breaker_record_probe(struct breaker *b, bool is_good, struct instant now)
{
    switch (b->state) {
    case BREAKER_CLOSED:
        if (!is_good)
            count_failure(b, EVIDENCE_BAD_CONNECTION, now);
        break;
    case BREAKER_OPEN:
        record_probe_while_open(b, is_good, now);
        break;
    case BREAKER_HALF_OPEN:
        record_probe_while_half_open(b, is_good, now);
        break;
    case BREAKER_STATE_COUNT:
        break;
    }
}

void breaker_tick(struct breaker *b, struct instant now)
{
    if (b->state == BREAKER_OPEN && instant_reached(now, b->reopen_at))
        breaker_move(b, EV_RESTED, now);
}

struct instant breaker_next_tick(const struct breaker *b)
{
    return b->reopen_at;
}

/* SPDX-License-Identifier: MIT */
#include "guard/admission.h"

#include <string.h>

#include "base/ensure.h"

/* clang-format off */
#define IN_USE_SHIFT      0u
#define QUEUED_SHIFT     16u
#define STATE_SHIFT      32u
#define MODE_SHIFT       34u
#define TRIALS_SHIFT     36u
#define GENERATION_SHIFT 44u

#define COUNT_MASK       UINT64_C(0xffff)  /* in use, queued */
#define TWO_BITS         UINT64_C(0x3)     /* state, mode */
#define TRIALS_MASK      UINT64_C(0xff)
#define GENERATION_MASK  UINT64_C(0xfffff)

/* One more or one less of a count is one addition; ENSURE keeps it from reaching its neighbour. */
#define ONE_IN_USE       (UINT64_C(1) << IN_USE_SHIFT)
#define ONE_QUEUED       (UINT64_C(1) << QUEUED_SHIFT)
#define ONE_TRIAL        (UINT64_C(1) << TRIALS_SHIFT)
/* clang-format on */

static const char *const state_names[BREAKER_STATE_COUNT] = {
    [BREAKER_CLOSED] = "closed",
    [BREAKER_OPEN] = "open",
    [BREAKER_HALF_OPEN] = "half-open",
};

static const char *const mode_names[BREAKER_MODE_COUNT] = {
    [BREAKER_AUTO] = "auto",
    [BREAKER_FORCED_OPEN] = "forced-open",
    [BREAKER_DISABLED] = "disabled",
};

static uint64_t word_field(uint64_t word, unsigned shift, uint64_t mask)
{
    return (word >> shift) & mask;
}

static uint64_t word_with(uint64_t word, unsigned shift, uint64_t mask, uint64_t value)
{
    return (word & ~(mask << shift)) | ((value & mask) << shift);
}

static struct admission_view word_view(uint64_t word)
{
    return (struct admission_view){
        .state = (enum breaker_state)word_field(word, STATE_SHIFT, TWO_BITS),
        .mode = (enum breaker_mode)word_field(word, MODE_SHIFT, TWO_BITS),
        .generation = (uint32_t)word_field(word, GENERATION_SHIFT, GENERATION_MASK),
        .trials_left = (uint32_t)word_field(word, TRIALS_SHIFT, TRIALS_MASK),
        .in_use = (uint32_t)word_field(word, IN_USE_SHIFT, COUNT_MASK),
        .queued = (uint32_t)word_field(word, QUEUED_SHIFT, COUNT_MASK),
    };
}

static uint64_t word_load(const struct admission *a)
{
    return atomic_load_explicit(&a->word, memory_order_acquire);
}

/* False: somebody was faster, and *word is what they left.
 * NOLINTNEXTLINE(readability-non-const-parameter): the exchange writes it, unseen by the check */
static bool word_replace(struct admission *a, uint64_t *word, uint64_t next)
{
    return atomic_compare_exchange_weak_explicit(&a->word, word, next, memory_order_acq_rel,
                                                 memory_order_acquire);
}

/* What the breaker alone says to a call, before any permit is looked at. */
enum breaker_answer { ANSWER_REFUSE, ANSWER_TRIAL, ANSWER_PASS };

static enum breaker_answer breaker_answer(const struct admission_view *v)
{
    if (v->mode == BREAKER_DISABLED)
        return ANSWER_PASS;
    if (v->mode == BREAKER_FORCED_OPEN || v->state == BREAKER_OPEN)
        return ANSWER_REFUSE;
    if (v->state == BREAKER_CLOSED)
        return ANSWER_PASS;
    return v->trials_left > 0 ? ANSWER_TRIAL : ANSWER_REFUSE;
}

static enum admission_verdict judge(const struct admission *a, const struct admission_view *v,
                                    enum breaker_answer answer)
{
    if (answer == ANSWER_REFUSE)
        return REFUSE_OPEN;
    if (v->queued == 0 && v->in_use < a->max_concurrent)
        return ADMIT_RUN;
    if (answer == ANSWER_PASS && v->queued < a->max_queued)
        return ADMIT_WAIT;
    return REFUSE_FULL;
}

/* The word after a call with this answer took a permit, and in half-open a trial. */
static uint64_t word_after_run(uint64_t word, enum breaker_answer answer)
{
    return word + ONE_IN_USE - (answer == ANSWER_TRIAL ? ONE_TRIAL : 0);
}

static struct ticket ticket_of(const struct admission_view *v, enum breaker_answer answer)
{
    return (struct ticket){.generation = v->generation, .is_trial = answer == ANSWER_TRIAL};
}

void admission_init(struct admission *a, uint32_t max_concurrent, uint32_t max_queued)
{
    ENSURE(max_concurrent >= 1 && max_concurrent <= COUNT_MASK);
    ENSURE(max_queued <= COUNT_MASK);

    atomic_init(&a->word, 0); /* closed, auto, nobody inside */
    atomic_init(&a->retry_at_us, 0);
    a->max_concurrent = max_concurrent;
    a->max_queued = max_queued;
}

enum admission_verdict admission_ask(struct admission *a, struct ticket *out_ticket)
{
    uint64_t word = word_load(a);

    for (;;) {
        struct admission_view v = word_view(word);
        enum breaker_answer answer = breaker_answer(&v);
        enum admission_verdict verdict = judge(a, &v, answer);

        switch (verdict) {
        case ADMIT_RUN:
            if (word_replace(a, &word, word_after_run(word, answer))) {
                *out_ticket = ticket_of(&v, answer);
                return verdict;
            }
            break;
        case ADMIT_WAIT:
            if (word_replace(a, &word, word + ONE_QUEUED))
                return verdict;
            break;
        case REFUSE_OPEN:
        case REFUSE_FULL:
            return verdict;
        }
    }
}

bool admission_promote(struct admission *a, struct ticket *out_ticket)
{
    uint64_t word = word_load(a);

    for (;;) {
        struct admission_view v = word_view(word);
        enum breaker_answer answer = breaker_answer(&v);

        if (v.queued == 0 || v.in_use >= a->max_concurrent || answer == ANSWER_REFUSE)
            return false;
        if (word_replace(a, &word, word_after_run(word, answer) - ONE_QUEUED)) {
            *out_ticket = ticket_of(&v, answer);
            return true;
        }
    }
}

void admission_leave_line(struct admission *a)
{
    uint64_t before = atomic_fetch_sub_explicit(&a->word, ONE_QUEUED, memory_order_acq_rel);

    ENSURE(word_view(before).queued > 0);
}

void admission_leave(struct admission *a)
{
    uint64_t before = atomic_fetch_sub_explicit(&a->word, ONE_IN_USE, memory_order_acq_rel);

    ENSURE(word_view(before).in_use > 0);
}

uint32_t admission_publish(struct admission *a, enum breaker_state state, uint32_t trials,
                           struct instant retry_at)
{
    uint64_t word = word_load(a);
    uint64_t generation;
    uint64_t next;

    ENSURE(state < BREAKER_STATE_COUNT);
    ENSURE(trials <= TRIALS_MASK);

    /* Ahead of the word, so that who is refused by the new state reads the new instant. */
    atomic_store_explicit(&a->retry_at_us, retry_at.us, memory_order_relaxed);
    do {
        generation = (word_field(word, GENERATION_SHIFT, GENERATION_MASK) + 1) & GENERATION_MASK;
        next = word_with(word, GENERATION_SHIFT, GENERATION_MASK, generation);
        next = word_with(next, STATE_SHIFT, TWO_BITS, state);
        next = word_with(next, TRIALS_SHIFT, TRIALS_MASK, trials);
    } while (!word_replace(a, &word, next));
    return (uint32_t)generation;
}

void admission_return_trial(struct admission *a)
{
    uint64_t before = atomic_fetch_add_explicit(&a->word, ONE_TRIAL, memory_order_acq_rel);
    struct admission_view v = word_view(before);

    ENSURE(v.state == BREAKER_HALF_OPEN && v.trials_left < TRIALS_MASK);
}

bool admission_take_trial(struct admission *a)
{
    uint64_t word = word_load(a);

    for (;;) {
        struct admission_view v = word_view(word);

        if (v.state != BREAKER_HALF_OPEN || v.trials_left == 0)
            return false;
        if (word_replace(a, &word, word - ONE_TRIAL))
            return true;
    }
}

void admission_set_mode(struct admission *a, enum breaker_mode mode)
{
    uint64_t word = word_load(a);

    ENSURE(mode < BREAKER_MODE_COUNT);
    while (!word_replace(a, &word, word_with(word, MODE_SHIFT, TWO_BITS, mode)))
        continue;
}

struct admission_view admission_read(const struct admission *a)
{
    return word_view(word_load(a));
}

const char *breaker_state_name(enum breaker_state state)
{
    ENSURE(state < BREAKER_STATE_COUNT);
    return state_names[state];
}

const char *breaker_mode_name(enum breaker_mode mode)
{
    ENSURE(mode < BREAKER_MODE_COUNT);
    return mode_names[mode];
}

bool breaker_mode_parse(const char *text, enum breaker_mode *out_mode)
{
    for (unsigned i = 0; i < BREAKER_MODE_COUNT; i++) {
        if (strcmp(text, mode_names[i]) == 0) {
            *out_mode = (enum breaker_mode)i;
            return true;
        }
    }
    return false;
}

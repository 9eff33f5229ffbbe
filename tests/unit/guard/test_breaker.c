/* The breaker: every move, every refusal to move, and all short histories against a plain model.
 * SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/rand.h"
#include "cmocka_all.h"
#include "guard/admission.h"
#include "guard/breaker.h"

#define SECOND INT64_C(1000000)

struct fixture {
    struct admission admission;
    struct rand rand;
    struct breaker breaker;
    struct instant now; /* the fake clock */
    enum breaker_state moved_from, moved_to;
    unsigned moved_count;
};

/* Three failures open it for 30 s, at most 100 s; two trials. */
static const struct breaker_config usual = {
    .failure_threshold = 3,
    .reset_timeout_us = 30 * SECOND,
    .max_reset_timeout_us = 100 * SECOND,
    .half_open_calls = 2,
};

/* Who hears of a move finds it done, and published. */
static void note_move(void *ctx, enum breaker_state from, enum breaker_state to)
{
    struct fixture *f = ctx;
    struct admission_view v = admission_read(&f->admission);

    assert_int_equal(f->breaker.state, to);
    assert_int_equal(v.state, to);
    assert_int_equal(v.generation, f->breaker.generation);
    f->moved_from = from;
    f->moved_to = to;
    f->moved_count++;
}

static void prepare(struct fixture *f, const struct breaker_config *config, uint64_t seed)
{
    memset(f, 0, sizeof *f);
    f->now.us = 1000 * SECOND;
    admission_init(&f->admission, 200, 0);
    rand_init(&f->rand, seed);
    breaker_init(&f->breaker, config, &f->admission, &f->rand, note_move, f);
}

static int prepare_usual(void **state)
{
    static struct fixture fixture;

    prepare(&fixture, &usual, 1);
    *state = &fixture;
    return 0;
}

static struct ticket admit(struct fixture *f)
{
    struct ticket t = {.generation = UINT32_MAX};

    assert_int_equal(admission_ask(&f->admission, &t), ADMIT_RUN);
    return t;
}

static void finish(struct fixture *f, struct ticket t, enum evidence evidence)
{
    breaker_record(&f->breaker, t, evidence, f->now);
    admission_leave(&f->admission);
}

static void call(struct fixture *f, enum evidence evidence)
{
    finish(f, admit(f), evidence);
}

static void call_times(struct fixture *f, unsigned count, enum evidence evidence)
{
    for (unsigned i = 0; i < count; i++)
        call(f, evidence);
}

static void trip(struct fixture *f, enum evidence evidence)
{
    call_times(f, f->breaker.config.failure_threshold, evidence);
    assert_int_equal(f->breaker.state, BREAKER_OPEN);
}

static void rest(struct fixture *f)
{
    f->now = breaker_next_tick(&f->breaker);
    breaker_tick(&f->breaker, f->now);
    assert_int_equal(f->breaker.state, BREAKER_HALF_OPEN);
}

static void probe(struct fixture *f, bool is_good)
{
    breaker_record_probe(&f->breaker, is_good, f->now);
}

static void assert_state(struct fixture *f, enum breaker_state expected)
{
    assert_int_equal(f->breaker.state, expected);
    assert_int_equal(admission_read(&f->admission).state, expected);
}

static void assert_refuses(struct fixture *f)
{
    struct ticket t;

    assert_int_equal(admission_ask(&f->admission, &t), REFUSE_OPEN);
}

/* It is open for `span_us` ±10 % from now on. */
static void assert_open_for(struct fixture *f, int64_t span_us)
{
    int64_t left_us = instant_span_us(f->now, breaker_next_tick(&f->breaker));

    assert_state(f, BREAKER_OPEN);
    assert_in_range(left_us, span_us - span_us / 10, span_us + span_us / 10);
    assert_int_equal(atomic_load(&f->admission.retry_at_us), breaker_next_tick(&f->breaker).us);
}

static void test_it_starts_closed_and_never_ticks(void **state)
{
    struct fixture *f = *state;

    assert_state(f, BREAKER_CLOSED);
    assert_int_equal(breaker_next_tick(&f->breaker).us, INSTANT_NEVER.us);
    breaker_tick(&f->breaker, f->now);
    assert_state(f, BREAKER_CLOSED);
    assert_int_equal(f->moved_count, 0);
}

static void test_closed_opens_at_the_threshold_and_not_before(void **state)
{
    struct fixture *f = *state;

    call_times(f, 2, EVIDENCE_BAD);
    assert_state(f, BREAKER_CLOSED);
    call(f, EVIDENCE_BAD);
    assert_open_for(f, 30 * SECOND);
    assert_refuses(f);
    assert_int_equal(f->moved_count, 1);
    assert_int_equal(f->moved_from, BREAKER_CLOSED);
    assert_int_equal(f->moved_to, BREAKER_OPEN);
}

static void test_closed_counts_failures_of_both_classes_in_one_row(void **state)
{
    struct fixture *f = *state;

    call(f, EVIDENCE_BAD);
    call(f, EVIDENCE_BAD_CONNECTION);
    call(f, EVIDENCE_BAD);
    assert_state(f, BREAKER_OPEN);
}

static void test_a_success_ends_the_row(void **state)
{
    struct fixture *f = *state;

    call_times(f, 2, EVIDENCE_BAD);
    call(f, EVIDENCE_GOOD);
    call_times(f, 2, EVIDENCE_BAD);
    assert_state(f, BREAKER_CLOSED);
}

static void test_the_callers_mistakes_neither_count_nor_end_the_row(void **state)
{
    struct fixture *f = *state;

    call_times(f, 100, EVIDENCE_NONE);
    assert_state(f, BREAKER_CLOSED);
    call_times(f, 2, EVIDENCE_BAD);
    call_times(f, 100, EVIDENCE_NONE);
    assert_state(f, BREAKER_CLOSED);
    call(f, EVIDENCE_BAD);
    assert_state(f, BREAKER_OPEN);
}

static void test_open_ends_when_its_time_is_over_and_not_before(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    struct instant at = breaker_next_tick(&f->breaker);
    breaker_tick(&f->breaker, instant_after(at, -1));
    assert_state(f, BREAKER_OPEN);
    breaker_tick(&f->breaker, at);
    assert_state(f, BREAKER_HALF_OPEN);
    assert_int_equal(admission_read(&f->admission).trials_left, 2);
    assert_int_equal(breaker_next_tick(&f->breaker).us, INSTANT_NEVER.us);
    assert_true(atomic_load(&f->admission.retry_at_us) <= at.us);
}

static void test_stragglers_do_not_extend_open(void **state)
{
    struct fixture *f = *state;
    struct ticket late[3];

    for (unsigned i = 0; i < 3; i++)
        late[i] = admit(f);
    trip(f, EVIDENCE_BAD);
    struct instant at = breaker_next_tick(&f->breaker);
    f->now.us += SECOND;
    for (unsigned i = 0; i < 3; i++)
        finish(f, late[i], EVIDENCE_BAD_CONNECTION);
    assert_int_equal(breaker_next_tick(&f->breaker).us, at.us);
    assert_false(f->breaker.may_probe_end_open);
}

static void test_calls_from_before_a_move_change_nothing(void **state)
{
    struct fixture *f = *state;
    struct ticket late_bad = admit(f);
    struct ticket late_good = admit(f);
    struct ticket late_none = admit(f);

    trip(f, EVIDENCE_BAD);
    rest(f);
    finish(f, late_bad, EVIDENCE_BAD);
    finish(f, late_good, EVIDENCE_GOOD);
    finish(f, late_none, EVIDENCE_NONE);
    assert_state(f, BREAKER_HALF_OPEN);
    assert_int_equal(admission_read(&f->admission).trials_left, 2);
    assert_int_equal(f->breaker.trials_passed, 0);
}

static void test_calls_from_an_earlier_closed_time_do_not_count_in_this_one(void **state)
{
    struct fixture *f = *state;
    struct ticket late[3];

    for (unsigned i = 0; i < 3; i++)
        late[i] = admit(f);
    trip(f, EVIDENCE_BAD);
    rest(f);
    call_times(f, 2, EVIDENCE_GOOD);
    assert_state(f, BREAKER_CLOSED);
    for (unsigned i = 0; i < 3; i++)
        finish(f, late[i], EVIDENCE_BAD);
    assert_state(f, BREAKER_CLOSED);
    assert_int_equal(f->breaker.failures_in_a_row, 0);
}

static void test_half_open_closes_when_every_trial_passed(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    rest(f);
    call(f, EVIDENCE_GOOD);
    assert_state(f, BREAKER_HALF_OPEN);
    call(f, EVIDENCE_GOOD);
    assert_state(f, BREAKER_CLOSED);
    assert_int_equal(breaker_next_tick(&f->breaker).us, INSTANT_NEVER.us);
    call_times(f, 2, EVIDENCE_BAD); /* the counters were cleared */
    assert_state(f, BREAKER_CLOSED);
}

static void test_half_open_opens_at_once_when_a_trial_fails(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    rest(f);
    struct ticket first = admit(f);
    struct ticket second = admit(f);
    assert_refuses(f);
    finish(f, first, EVIDENCE_BAD);
    assert_open_for(f, 60 * SECOND);
    finish(f, second, EVIDENCE_GOOD);
    assert_state(f, BREAKER_OPEN);
}

static void test_each_failed_trial_doubles_the_time_open_up_to_the_maximum(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    assert_open_for(f, 30 * SECOND);
    rest(f);
    call(f, EVIDENCE_BAD);
    assert_open_for(f, 60 * SECOND);
    rest(f);
    call(f, EVIDENCE_BAD_CONNECTION);
    assert_open_for(f, 100 * SECOND);
    rest(f);
    call(f, EVIDENCE_BAD);
    assert_open_for(f, 100 * SECOND);
    rest(f);
    call_times(f, 2, EVIDENCE_GOOD);
    trip(f, EVIDENCE_BAD); /* closing forgot the doubling */
    assert_open_for(f, 30 * SECOND);
}

static void test_a_maximum_below_the_first_time_never_doubles(void **state)
{
    struct breaker_config config = usual;
    struct fixture f;
    (void)state;

    config.max_reset_timeout_us = 1;
    prepare(&f, &config, 1);
    trip(&f, EVIDENCE_BAD);
    assert_open_for(&f, 30 * SECOND);
    rest(&f);
    call(&f, EVIDENCE_BAD);
    assert_open_for(&f, 30 * SECOND);
}

static void test_a_trial_that_says_nothing_gives_its_slot_back(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    rest(f);
    call_times(f, 50, EVIDENCE_NONE);
    assert_state(f, BREAKER_HALF_OPEN);
    assert_int_equal(admission_read(&f->admission).trials_left, 2);
    call(f, EVIDENCE_GOOD);
    call_times(f, 50, EVIDENCE_NONE);
    assert_int_equal(admission_read(&f->admission).trials_left, 1);
    call(f, EVIDENCE_GOOD);
    assert_state(f, BREAKER_CLOSED);
}

static void test_in_half_open_calls_that_are_no_trial_change_nothing(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    rest(f);
    admission_set_mode(&f->admission, BREAKER_DISABLED);
    call_times(f, 9, EVIDENCE_BAD);
    call_times(f, 9, EVIDENCE_GOOD);
    call_times(f, 9, EVIDENCE_NONE);
    assert_state(f, BREAKER_HALF_OPEN);
    assert_int_equal(admission_read(&f->admission).trials_left, 2);
}

static void test_while_disabled_calls_in_open_change_nothing(void **state)
{
    struct fixture *f = *state;

    admission_set_mode(&f->admission, BREAKER_DISABLED);
    trip(f, EVIDENCE_BAD);
    struct instant at = breaker_next_tick(&f->breaker);
    call_times(f, 9, EVIDENCE_BAD_CONNECTION);
    call_times(f, 9, EVIDENCE_GOOD);
    assert_state(f, BREAKER_OPEN);
    assert_int_equal(breaker_next_tick(&f->breaker).us, at.us);
    assert_false(f->breaker.may_probe_end_open);
}

static void test_a_good_probe_ends_open_early_after_a_connection_failure(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD_CONNECTION);
    probe(f, true);
    assert_state(f, BREAKER_HALF_OPEN);
    assert_int_equal(admission_read(&f->admission).trials_left, 2);
}

static void test_an_overloaded_database_keeps_its_rest(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    struct instant at = breaker_next_tick(&f->breaker);
    for (int i = 0; i < 20; i++)
        probe(f, true);
    assert_state(f, BREAKER_OPEN);
    assert_int_equal(breaker_next_tick(&f->breaker).us, at.us);
}

static void test_of_a_row_the_last_failure_decides_whether_a_probe_helps(void **state)
{
    struct fixture *f = *state;

    call_times(f, 2, EVIDENCE_BAD_CONNECTION);
    call(f, EVIDENCE_BAD);
    probe(f, true);
    assert_state(f, BREAKER_OPEN);
    rest(f);
    call_times(f, 2, EVIDENCE_GOOD);
    call_times(f, 2, EVIDENCE_BAD);
    call(f, EVIDENCE_BAD_CONNECTION);
    probe(f, true);
    assert_state(f, BREAKER_HALF_OPEN);
}

static void test_a_good_probe_after_a_bad_one_ends_open_early(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    struct instant at = breaker_next_tick(&f->breaker);
    for (int i = 0; i < 20; i++)
        probe(f, false);
    assert_int_equal(breaker_next_tick(&f->breaker).us, at.us); /* never longer */
    probe(f, true);
    assert_state(f, BREAKER_HALF_OPEN);
    call(f, EVIDENCE_BAD); /* a new time open, in which no probe failed yet */
    probe(f, true);
    assert_open_for(f, 60 * SECOND);
}

static void test_good_probes_close_a_quiet_half_open(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    rest(f);
    probe(f, true);
    assert_state(f, BREAKER_HALF_OPEN);
    assert_int_equal(admission_read(&f->admission).trials_left, 1);
    probe(f, true);
    assert_state(f, BREAKER_CLOSED);
}

static void test_while_a_trial_is_under_way_probes_say_nothing(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    rest(f);
    struct ticket trial = admit(f);
    probe(f, true);
    probe(f, false);
    assert_state(f, BREAKER_HALF_OPEN);
    assert_int_equal(admission_read(&f->admission).trials_left, 1);
    finish(f, trial, EVIDENCE_GOOD);
    probe(f, true); /* one passed by a call, one by the probe */
    assert_state(f, BREAKER_CLOSED);
}

static void test_a_bad_probe_in_a_quiet_half_open_opens_without_doubling(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    for (int i = 0; i < 5; i++) {
        rest(f);
        probe(f, false);
        assert_open_for(f, 30 * SECOND);
    }
    rest(f);
    call(f, EVIDENCE_BAD);
    rest(f);
    probe(f, false);
    assert_open_for(f, 60 * SECOND);
    probe(f, true); /* a probe closed the door, a probe may open it */
    assert_state(f, BREAKER_HALF_OPEN);
}

static void test_while_closed_bad_probes_count_and_good_ones_do_not(void **state)
{
    struct fixture *f = *state;

    probe(f, false);
    probe(f, false);
    probe(f, true);
    assert_state(f, BREAKER_CLOSED);
    assert_int_equal(f->breaker.failures_in_a_row, 2);
    probe(f, false);
    assert_open_for(f, 30 * SECOND);
    probe(f, true);
    assert_state(f, BREAKER_HALF_OPEN);
}

static void test_every_move_is_a_new_generation_and_is_told(void **state)
{
    struct fixture *f = *state;

    trip(f, EVIDENCE_BAD);
    assert_int_equal(f->breaker.generation, 1);
    rest(f);
    assert_int_equal(f->breaker.generation, 2);
    call(f, EVIDENCE_BAD);
    assert_int_equal(f->breaker.generation, 3);
    rest(f);
    call_times(f, 2, EVIDENCE_GOOD);
    assert_int_equal(f->breaker.generation, 5);
    assert_int_equal(f->moved_count, 5);
    assert_int_equal(f->moved_from, BREAKER_HALF_OPEN);
    assert_int_equal(f->moved_to, BREAKER_CLOSED);
}

static void test_generations_that_wrap_are_still_told_apart(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < (1u << 20) - 1; i++)
        (void)admission_publish(&f->admission, BREAKER_CLOSED, 0, f->now);
    breaker_init(&f->breaker, &usual, &f->admission, &f->rand, note_move, f);
    assert_int_equal(f->breaker.generation, (1u << 20) - 1);
    struct ticket late = admit(f);
    trip(f, EVIDENCE_BAD);
    assert_int_equal(f->breaker.generation, 0);
    rest(f);
    finish(f, late, EVIDENCE_BAD);
    assert_state(f, BREAKER_HALF_OPEN);
    call_times(f, 2, EVIDENCE_GOOD);
    assert_state(f, BREAKER_CLOSED);
}

static void test_the_time_open_is_spread_evenly_over_ten_percent(void **state)
{
    enum { SEED_COUNT = 20000, TENTH_COUNT = 10 };
    int64_t sum_us = 0;
    unsigned hits[TENTH_COUNT] = {0};
    (void)state;

    for (uint64_t seed = 0; seed < SEED_COUNT; seed++) {
        struct fixture f;

        prepare(&f, &usual, seed);
        trip(&f, EVIDENCE_BAD);
        assert_open_for(&f, 30 * SECOND);
        int64_t open_us = instant_span_us(f.now, breaker_next_tick(&f.breaker));
        int64_t tenth = (open_us - 27 * SECOND) * TENTH_COUNT / (6 * SECOND + 1);
        sum_us += open_us;
        hits[tenth]++;
    }
    assert_in_range(sum_us / SEED_COUNT, 30 * SECOND - SECOND / 20, 30 * SECOND + SECOND / 20);
    for (int i = 0; i < TENTH_COUNT; i++) /* 2000 expected, one sigma is 42 */
        assert_in_range(hits[i], 1750, 2250);
}

/* A plain model, written from the contract's words: no word, no generation arithmetic, no table. It
 * does not know the jitter: the end of open is checked against its bounds and then believed. */
struct model {
    enum breaker_state state;
    unsigned moves, failures, passed, trials_left;
    bool probe_helps;
    int64_t span_us;
    int64_t open_until_us;
    int64_t opened_at_us; /* -1: the bounds were checked */
};

struct model_ticket {
    bool is_admitted, is_trial;
    unsigned moves;
};

static void model_open(struct model *m, bool probe_helps, int64_t now_us)
{
    m->state = BREAKER_OPEN;
    m->moves++;
    m->probe_helps = probe_helps;
    m->opened_at_us = now_us;
    m->trials_left = 0;
}

static void model_half_open(struct model *m, const struct breaker_config *c)
{
    m->state = BREAKER_HALF_OPEN;
    m->moves++;
    m->passed = 0;
    m->trials_left = c->half_open_calls;
}

static void model_pass(struct model *m, const struct breaker_config *c)
{
    if (++m->passed < c->half_open_calls)
        return;
    m->state = BREAKER_CLOSED;
    m->moves++;
    m->failures = 0;
    m->trials_left = 0;
    m->span_us = c->reset_timeout_us;
}

static void model_fail(struct model *m, const struct breaker_config *c, bool is_connection,
                       int64_t now_us)
{
    if (++m->failures == c->failure_threshold)
        model_open(m, is_connection, now_us);
}

static struct model_ticket model_ask(struct model *m)
{
    struct model_ticket t = {.is_admitted = m->state != BREAKER_OPEN, .moves = m->moves};

    if (m->state == BREAKER_HALF_OPEN) {
        t.is_admitted = t.is_trial = m->trials_left > 0;
        m->trials_left -= t.is_trial;
    }
    return t;
}

static void model_record_trial(struct model *m, const struct breaker_config *c, enum evidence e,
                               int64_t now_us)
{
    if (e == EVIDENCE_NONE) {
        m->trials_left++;
    } else if (e == EVIDENCE_GOOD) {
        model_pass(m, c);
    } else {
        m->span_us *= 2;
        if (m->span_us > c->max_reset_timeout_us)
            m->span_us = c->max_reset_timeout_us;
        model_open(m, e == EVIDENCE_BAD_CONNECTION, now_us);
    }
}

static void model_record(struct model *m, const struct breaker_config *c, struct model_ticket t,
                         enum evidence e, int64_t now_us)
{
    if (!t.is_admitted || t.moves != m->moves)
        return;
    if (t.is_trial)
        model_record_trial(m, c, e, now_us);
    else if (e == EVIDENCE_GOOD)
        m->failures = 0;
    else if (e != EVIDENCE_NONE)
        model_fail(m, c, e == EVIDENCE_BAD_CONNECTION, now_us);
}

static void model_probe(struct model *m, const struct breaker_config *c, bool is_good,
                        int64_t now_us)
{
    bool is_quiet = m->trials_left == c->half_open_calls - m->passed;

    if (m->state == BREAKER_CLOSED && !is_good) {
        model_fail(m, c, true, now_us);
    } else if (m->state == BREAKER_OPEN && !is_good) {
        m->probe_helps = true;
    } else if (m->state == BREAKER_OPEN && m->probe_helps) {
        model_half_open(m, c);
    } else if (m->state == BREAKER_HALF_OPEN && is_quiet && is_good) {
        m->trials_left--;
        model_pass(m, c);
    } else if (m->state == BREAKER_HALF_OPEN && is_quiet) {
        model_open(m, true, now_us);
    }
}

/* What may happen. A call asks and is recorded at once; one more may be held across other events.
 */
enum happening {
    CALL_NONE,
    CALL_GOOD,
    CALL_BAD,
    CALL_BAD_CONNECTION,
    HELD_NONE,
    HELD_GOOD,
    HELD_BAD,
    HELD_BAD_CONNECTION,
    HOLD,
    PROBE_GOOD,
    PROBE_BAD,
    ALMOST_RESTED,
    RESTED,
    HAPPENING_COUNT,
};

/* One history: the breaker, its model and the held call. Copied at each fork. */
struct history {
    struct admission admission;
    struct rand rand;
    struct breaker breaker;
    struct model model;
    struct ticket held;
    struct model_ticket model_held;
    int64_t now_us;
    char text[16];
};

static struct ticket history_ask(struct history *h, struct model_ticket *out_model_ticket)
{
    struct ticket t = {0};
    bool is_admitted = admission_ask(&h->admission, &t) == ADMIT_RUN;

    *out_model_ticket = model_ask(&h->model);
    if (is_admitted != out_model_ticket->is_admitted || t.is_trial != out_model_ticket->is_trial)
        fail_msg("after %s: admitted %d, trial %d", h->text, is_admitted, t.is_trial);
    return t;
}

static void history_finish(struct history *h, struct ticket t, struct model_ticket mt,
                           enum evidence e)
{
    if (!mt.is_admitted)
        return;
    breaker_record(&h->breaker, t, e, (struct instant){h->now_us});
    admission_leave(&h->admission);
    model_record(&h->model, &h->breaker.config, mt, e, h->now_us);
}

static void history_call(struct history *h, enum evidence e)
{
    struct model_ticket mt;
    struct ticket t = history_ask(h, &mt);

    history_finish(h, t, mt, e);
}

static void history_finish_held(struct history *h, enum evidence e)
{
    history_finish(h, h->held, h->model_held, e);
    h->model_held.is_admitted = false;
}

static void history_probe(struct history *h, bool is_good)
{
    breaker_record_probe(&h->breaker, is_good, (struct instant){h->now_us});
    model_probe(&h->model, &h->breaker.config, is_good, h->now_us);
}

static void history_rest(struct history *h, int64_t until_us)
{
    h->now_us = until_us;
    breaker_tick(&h->breaker, (struct instant){until_us});
    if (until_us >= h->model.open_until_us)
        model_half_open(&h->model, &h->breaker.config);
}

/* What would be the same as nothing is left out. */
static bool history_may(const struct history *h, enum happening e)
{
    if (e >= HELD_NONE && e <= HELD_BAD_CONNECTION)
        return h->model_held.is_admitted;
    if (e == HOLD)
        return !h->model_held.is_admitted;
    if (e == ALMOST_RESTED || e == RESTED)
        return h->model.state == BREAKER_OPEN && h->now_us < h->model.open_until_us - 1;
    return true;
}

static void history_let(struct history *h, enum happening e)
{
    static const enum evidence evidences[] = {EVIDENCE_NONE, EVIDENCE_GOOD, EVIDENCE_BAD,
                                              EVIDENCE_BAD_CONNECTION};

    if (e <= CALL_BAD_CONNECTION)
        history_call(h, evidences[e]);
    else if (e <= HELD_BAD_CONNECTION)
        history_finish_held(h, evidences[e - HELD_NONE]);
    else if (e == HOLD)
        h->held = history_ask(h, &h->model_held);
    else if (e <= PROBE_BAD)
        history_probe(h, e == PROBE_GOOD);
    else
        history_rest(h, h->model.open_until_us - (e == ALMOST_RESTED));
}

static void history_compare_end_of_open(struct history *h)
{
    struct model *m = &h->model;
    int64_t until_us = breaker_next_tick(&h->breaker).us;

    if (m->state != BREAKER_OPEN) {
        if (until_us != INSTANT_NEVER.us)
            fail_msg("after %s: it ticks though it is not open", h->text);
        return;
    }
    if (m->opened_at_us >= 0) {
        int64_t open_us = until_us - m->opened_at_us;

        if (open_us < m->span_us - m->span_us / 10 || open_us > m->span_us + m->span_us / 10)
            fail_msg("after %s: open for %lld us", h->text, (long long)open_us);
        m->open_until_us = until_us;
        m->opened_at_us = -1;
    }
    if (until_us != m->open_until_us)
        fail_msg("after %s: the end of open was moved", h->text);
}

static void history_compare(struct history *h)
{
    struct admission_view v = admission_read(&h->admission);
    const struct model *m = &h->model;

    if (h->breaker.state != m->state || v.state != m->state || v.trials_left != m->trials_left ||
        v.generation != m->moves || v.in_use != h->model_held.is_admitted)
        fail_msg("after %s: %s, not %s; %u trials left, not %u; generation %u, not %u; %u in use",
                 h->text, breaker_state_name(v.state), breaker_state_name(m->state), v.trials_left,
                 m->trials_left, v.generation, m->moves, v.in_use);
    history_compare_end_of_open(h);
}

static unsigned long histories_from(const struct history *start, size_t length, size_t limit)
{
    static const char letters[] = "ngbcNGBCh+-~r";
    unsigned long count = 1;

    for (unsigned e = 0; length < limit && e < HAPPENING_COUNT; e++) {
        struct history h;

        if (!history_may(start, (enum happening)e))
            continue;
        h = *start;
        h.breaker.admission = &h.admission;
        h.breaker.rand = &h.rand;
        h.text[length] = letters[e];
        h.now_us++;
        history_let(&h, (enum happening)e);
        history_compare(&h);
        count += histories_from(&h, length + 1, limit);
    }
    return count;
}

static void check_all_histories(uint32_t failure_threshold, uint32_t half_open_calls)
{
    const struct breaker_config config = {
        .failure_threshold = failure_threshold,
        .reset_timeout_us = 1000,
        .max_reset_timeout_us = 3000,
        .half_open_calls = half_open_calls,
    };
    struct history h;

    memset(&h, 0, sizeof h);
    h.model.span_us = config.reset_timeout_us;
    h.model.opened_at_us = -1;
    admission_init(&h.admission, 2, 0);
    rand_init(&h.rand, 1);
    breaker_init(&h.breaker, &config, &h.admission, &h.rand, NULL, NULL);
    assert_true(histories_from(&h, 0, 6) > 100000);
}

static void test_every_history_of_six_events_is_the_models_with_one_trial(void **state)
{
    (void)state;
    check_all_histories(1, 1);
}

static void test_every_history_of_six_events_is_the_models_with_two_trials(void **state)
{
    (void)state;
    check_all_histories(1, 2);
}

static void test_every_history_of_six_events_is_the_models_with_a_row_of_two(void **state)
{
    (void)state;
    check_all_histories(2, 2);
}

/* A hundred threads ask and ask while it is open, and half-open begins among them, a thousand
 * times. */
#define RUSHER_COUNT 100
#define ROUND_COUNT  1000

struct rush {
    struct fixture fixture;
    pthread_barrier_t start, end;
    _Atomic uint32_t let_in, refused;
    struct ticket ticket; /* written by the one that was let in */
};

/* The last answer is one that was asked for when open was over, unless an earlier one lets it in.
 */
static enum admission_verdict ask_until_open_is_over(struct admission *a, struct ticket *out_ticket)
{
    for (;;) {
        bool is_open = admission_read(a).state == BREAKER_OPEN;
        enum admission_verdict verdict = admission_ask(a, out_ticket);

        if (!is_open || verdict != REFUSE_OPEN)
            return verdict;
        (void)sched_yield();
    }
}

static void rush_once(struct rush *r)
{
    struct ticket t;

    switch (ask_until_open_is_over(&r->fixture.admission, &t)) {
    case ADMIT_RUN:
        atomic_fetch_add(&r->let_in, 1);
        r->ticket = t;
        break;
    case REFUSE_OPEN:
        atomic_fetch_add(&r->refused, 1);
        break;
    case ADMIT_WAIT:
    case REFUSE_FULL:
        break;
    }
}

static void *rusher_main(void *arg)
{
    struct rush *r = arg;

    for (int round = 0; round < ROUND_COUNT; round++) {
        (void)pthread_barrier_wait(&r->start);
        rush_once(r);
        (void)pthread_barrier_wait(&r->end);
    }
    return NULL;
}

/* Some rounds leave it closed, some open, some in half-open with the slot given back. */
static void open_if_closed(struct fixture *f)
{
    if (f->breaker.state == BREAKER_CLOSED)
        trip(f, EVIDENCE_BAD);
}

static void rest_if_open(struct fixture *f)
{
    if (f->breaker.state == BREAKER_OPEN)
        rest(f);
}

static void run_round(struct rush *r, int round)
{
    static const enum evidence ends[] = {EVIDENCE_GOOD, EVIDENCE_BAD, EVIDENCE_NONE};
    struct fixture *f = &r->fixture;

    atomic_store(&r->let_in, 0);
    atomic_store(&r->refused, 0);
    open_if_closed(f);
    (void)pthread_barrier_wait(&r->start);
    rest_if_open(f);
    (void)pthread_barrier_wait(&r->end);

    assert_int_equal(atomic_load(&r->let_in), 1);
    assert_int_equal(atomic_load(&r->refused), RUSHER_COUNT - 1);
    assert_true(r->ticket.is_trial);
    assert_int_equal(r->ticket.generation, f->breaker.generation);
    finish(f, r->ticket, ends[round % 3]);
}

static void test_of_a_hundred_threads_one_is_the_trial(void **state)
{
    static const struct breaker_config config = {
        .failure_threshold = 1,
        .reset_timeout_us = 30 * SECOND,
        .max_reset_timeout_us = 300 * SECOND,
        .half_open_calls = 1,
    };
    static struct rush r;
    pthread_t threads[RUSHER_COUNT];
    (void)state;

    prepare(&r.fixture, &config, 1);
    assert_int_equal(pthread_barrier_init(&r.start, NULL, RUSHER_COUNT + 1), 0);
    assert_int_equal(pthread_barrier_init(&r.end, NULL, RUSHER_COUNT + 1), 0);
    for (int i = 0; i < RUSHER_COUNT; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rusher_main, &r), 0);
    for (int round = 0; round < ROUND_COUNT; round++)
        run_round(&r, round);
    for (int i = 0; i < RUSHER_COUNT; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)pthread_barrier_destroy(&r.start);
    (void)pthread_barrier_destroy(&r.end);
    assert_int_equal(admission_read(&r.fixture.admission).in_use, 0);
}

#define usual_test(f) cmocka_unit_test_setup(f, prepare_usual)

int main(void)
{
    const struct CMUnitTest tests[] = {
        usual_test(test_it_starts_closed_and_never_ticks),
        usual_test(test_closed_opens_at_the_threshold_and_not_before),
        usual_test(test_closed_counts_failures_of_both_classes_in_one_row),
        usual_test(test_a_success_ends_the_row),
        usual_test(test_the_callers_mistakes_neither_count_nor_end_the_row),
        usual_test(test_open_ends_when_its_time_is_over_and_not_before),
        usual_test(test_stragglers_do_not_extend_open),
        usual_test(test_calls_from_before_a_move_change_nothing),
        usual_test(test_calls_from_an_earlier_closed_time_do_not_count_in_this_one),
        usual_test(test_half_open_closes_when_every_trial_passed),
        usual_test(test_half_open_opens_at_once_when_a_trial_fails),
        usual_test(test_each_failed_trial_doubles_the_time_open_up_to_the_maximum),
        usual_test(test_a_maximum_below_the_first_time_never_doubles),
        usual_test(test_a_trial_that_says_nothing_gives_its_slot_back),
        usual_test(test_in_half_open_calls_that_are_no_trial_change_nothing),
        usual_test(test_while_disabled_calls_in_open_change_nothing),
        usual_test(test_a_good_probe_ends_open_early_after_a_connection_failure),
        usual_test(test_an_overloaded_database_keeps_its_rest),
        usual_test(test_of_a_row_the_last_failure_decides_whether_a_probe_helps),
        usual_test(test_a_good_probe_after_a_bad_one_ends_open_early),
        usual_test(test_good_probes_close_a_quiet_half_open),
        usual_test(test_while_a_trial_is_under_way_probes_say_nothing),
        usual_test(test_a_bad_probe_in_a_quiet_half_open_opens_without_doubling),
        usual_test(test_while_closed_bad_probes_count_and_good_ones_do_not),
        usual_test(test_every_move_is_a_new_generation_and_is_told),
        usual_test(test_generations_that_wrap_are_still_told_apart),
        cmocka_unit_test(test_the_time_open_is_spread_evenly_over_ten_percent),
        cmocka_unit_test(test_every_history_of_six_events_is_the_models_with_one_trial),
        cmocka_unit_test(test_every_history_of_six_events_is_the_models_with_two_trials),
        cmocka_unit_test(test_every_history_of_six_events_is_the_models_with_a_row_of_two),
        cmocka_unit_test(test_of_a_hundred_threads_one_is_the_trial),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

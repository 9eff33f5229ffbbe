/* The admission word: what it grants, what it refuses, and that threads never overdraw it.
 * SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>

#include "base/rand.h"
#include "cmocka_all.h"
#include "guard/admission.h"

#define GENERATION_COUNT (1u << 20)

static const struct instant long_ago = {0};

static struct ticket ask_ok(struct admission *a)
{
    struct ticket t = {.generation = UINT32_MAX};

    assert_int_equal(admission_ask(a, &t), ADMIT_RUN);
    return t;
}

static void assert_refused(struct admission *a, enum admission_verdict verdict)
{
    uint64_t before = atomic_load(&a->word);
    struct ticket t;

    assert_int_equal(admission_ask(a, &t), verdict);
    assert_int_equal(atomic_load(&a->word), before);
}

static void assert_waits(struct admission *a)
{
    struct ticket t;

    assert_int_equal(admission_ask(a, &t), ADMIT_WAIT);
}

static void assert_counts(const struct admission *a, uint32_t in_use, uint32_t queued)
{
    struct admission_view v = admission_read(a);

    assert_int_equal(v.in_use, in_use);
    assert_int_equal(v.queued, queued);
}

static void test_a_new_word_is_closed_auto_and_empty(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 8, 0);
    struct admission_view v = admission_read(&a);
    assert_int_equal(v.state, BREAKER_CLOSED);
    assert_int_equal(v.mode, BREAKER_AUTO);
    assert_int_equal(v.generation, 0);
    assert_int_equal(v.trials_left, 0);
    assert_counts(&a, 0, 0);
}

static void test_permits_run_out_and_come_back(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 2, 0);
    assert_false(ask_ok(&a).is_trial);
    (void)ask_ok(&a);
    assert_refused(&a, REFUSE_FULL);
    admission_leave(&a);
    (void)ask_ok(&a);
    assert_refused(&a, REFUSE_FULL);
    admission_leave(&a);
    admission_leave(&a);
    assert_counts(&a, 0, 0);
}

static void test_the_largest_limits_stay_in_their_fields(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 65535, 65535);
    for (unsigned i = 0; i < 65535; i++)
        (void)ask_ok(&a);
    for (unsigned i = 0; i < 65535; i++)
        assert_waits(&a);
    assert_refused(&a, REFUSE_FULL);
    assert_counts(&a, 65535, 65535);

    (void)admission_publish(&a, BREAKER_HALF_OPEN, 255, long_ago);
    struct admission_view v = admission_read(&a);
    assert_int_equal(v.state, BREAKER_HALF_OPEN);
    assert_int_equal(v.trials_left, 255);
    assert_int_equal(v.generation, 1);
    assert_int_equal(v.mode, BREAKER_AUTO);
    assert_counts(&a, 65535, 65535);
}

static void test_full_waits_while_the_line_has_places(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 1, 2);
    (void)ask_ok(&a);
    assert_waits(&a);
    assert_waits(&a);
    assert_refused(&a, REFUSE_FULL);
    admission_leave_line(&a);
    assert_waits(&a);
    assert_counts(&a, 1, 2);
}

static void test_nobody_passes_the_line(void **state)
{
    struct admission a;
    struct ticket t;
    (void)state;

    admission_init(&a, 1, 1);
    (void)ask_ok(&a);
    assert_waits(&a);
    admission_leave(&a); /* a permit is free, but it belongs to the line */
    assert_refused(&a, REFUSE_FULL);
    assert_true(admission_promote(&a, &t));
    assert_counts(&a, 1, 0);
    admission_leave(&a);
    (void)ask_ok(&a);
}

static void test_promote_needs_a_line_and_a_permit(void **state)
{
    struct admission a;
    struct ticket t;
    (void)state;

    admission_init(&a, 1, 1);
    assert_false(admission_promote(&a, &t));
    (void)ask_ok(&a);
    assert_waits(&a);
    assert_false(admission_promote(&a, &t));
    assert_counts(&a, 1, 1);
}

static void test_who_waited_gets_the_generation_of_its_promotion(void **state)
{
    struct admission a;
    struct ticket t;
    (void)state;

    admission_init(&a, 1, 1);
    assert_int_equal(ask_ok(&a).generation, 0);
    assert_waits(&a);
    (void)admission_publish(&a, BREAKER_CLOSED, 0, long_ago);
    admission_leave(&a);
    assert_true(admission_promote(&a, &t));
    assert_int_equal(t.generation, 1);
    assert_false(t.is_trial);
}

static void test_open_refuses_and_promotes_nobody(void **state)
{
    struct admission a;
    struct ticket t;
    (void)state;

    admission_init(&a, 1, 1);
    (void)ask_ok(&a);
    assert_waits(&a);
    (void)admission_publish(&a, BREAKER_OPEN, 0, (struct instant){77});
    assert_int_equal(atomic_load(&a.retry_at_us), 77);
    assert_refused(&a, REFUSE_OPEN);
    admission_leave(&a);
    assert_refused(&a, REFUSE_OPEN);
    assert_false(admission_promote(&a, &t));
    admission_leave_line(&a);
    assert_counts(&a, 0, 0);
}

static void test_half_open_lets_exactly_its_trials_through(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 8, 8);
    (void)admission_publish(&a, BREAKER_HALF_OPEN, 2, long_ago);
    for (int i = 0; i < 2; i++) {
        struct ticket t = ask_ok(&a);

        assert_true(t.is_trial);
        assert_int_equal(t.generation, 1);
    }
    assert_refused(&a, REFUSE_OPEN);
    admission_leave(&a); /* a permit comes back, a trial does not */
    assert_refused(&a, REFUSE_OPEN);
    admission_return_trial(&a);
    assert_true(ask_ok(&a).is_trial);
    assert_refused(&a, REFUSE_OPEN);
}

static void test_half_open_without_a_permit_refuses_and_keeps_the_trial(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 1, 8);
    (void)ask_ok(&a);
    (void)admission_publish(&a, BREAKER_HALF_OPEN, 1, long_ago);
    assert_refused(&a, REFUSE_FULL); /* never waits */
    admission_leave(&a);
    assert_true(ask_ok(&a).is_trial);
}

static void test_half_open_promotes_with_a_trial_alone(void **state)
{
    struct admission a;
    struct ticket t;
    (void)state;

    admission_init(&a, 1, 2);
    (void)ask_ok(&a);
    assert_waits(&a);
    assert_waits(&a);
    (void)admission_publish(&a, BREAKER_HALF_OPEN, 1, long_ago);
    admission_leave(&a);
    assert_refused(&a, REFUSE_FULL); /* the line is first */
    assert_true(admission_promote(&a, &t));
    assert_true(t.is_trial);
    admission_leave(&a);
    assert_false(admission_promote(&a, &t));
    assert_counts(&a, 0, 1);
}

static void test_a_probe_takes_a_trial_in_half_open_alone(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 1, 0);
    assert_false(admission_take_trial(&a));
    (void)admission_publish(&a, BREAKER_OPEN, 0, long_ago);
    assert_false(admission_take_trial(&a));
    (void)admission_publish(&a, BREAKER_HALF_OPEN, 1, long_ago);
    assert_true(admission_take_trial(&a));
    assert_false(admission_take_trial(&a));
    assert_counts(&a, 0, 0); /* it needs no permit */
    assert_refused(&a, REFUSE_OPEN);
}

static void test_forced_open_refuses_in_every_state(void **state)
{
    static const enum breaker_state states[] = {BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN};
    struct admission a;
    struct ticket t;
    (void)state;

    admission_init(&a, 2, 2);
    (void)ask_ok(&a);
    (void)ask_ok(&a);
    assert_waits(&a);
    admission_set_mode(&a, BREAKER_FORCED_OPEN);
    admission_leave(&a);
    for (unsigned i = 0; i < BREAKER_STATE_COUNT; i++) {
        (void)admission_publish(&a, states[i], states[i] == BREAKER_HALF_OPEN, long_ago);
        assert_refused(&a, REFUSE_OPEN);
        assert_false(admission_promote(&a, &t));
    }
}

static void test_disabled_ignores_the_breaker_but_not_the_bulkhead(void **state)
{
    static const enum breaker_state states[] = {BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN};
    (void)state;

    for (unsigned i = 0; i < BREAKER_STATE_COUNT; i++) {
        struct admission a;
        struct ticket t;

        admission_init(&a, 1, 1);
        admission_set_mode(&a, BREAKER_DISABLED);
        (void)admission_publish(&a, states[i], states[i] == BREAKER_HALF_OPEN, long_ago);
        assert_false(ask_ok(&a).is_trial);
        assert_waits(&a);
        assert_refused(&a, REFUSE_FULL);
        admission_leave(&a);
        assert_true(admission_promote(&a, &t));
        assert_false(t.is_trial);
        assert_int_equal(admission_read(&a).trials_left, states[i] == BREAKER_HALF_OPEN);
    }
}

static void test_a_mode_changes_nothing_but_itself(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 1, 1);
    (void)ask_ok(&a);
    assert_waits(&a);
    (void)admission_publish(&a, BREAKER_HALF_OPEN, 200, long_ago);
    uint64_t before = atomic_load(&a.word);
    admission_set_mode(&a, BREAKER_DISABLED);
    assert_int_equal(admission_read(&a).mode, BREAKER_DISABLED);
    admission_set_mode(&a, BREAKER_FORCED_OPEN);
    assert_int_equal(admission_read(&a).mode, BREAKER_FORCED_OPEN);
    admission_set_mode(&a, BREAKER_AUTO);
    assert_int_equal(atomic_load(&a.word), before);
}

static void test_the_generation_wraps_at_its_field(void **state)
{
    struct admission a;
    (void)state;

    admission_init(&a, 3, 1);
    (void)ask_ok(&a);
    for (uint32_t i = 1; i < GENERATION_COUNT; i++) {
        if (admission_publish(&a, BREAKER_CLOSED, 0, long_ago) != i)
            fail_msg("generation %u is not %u", admission_read(&a).generation, i);
    }
    assert_int_equal(ask_ok(&a).generation, GENERATION_COUNT - 1);
    assert_int_equal(admission_publish(&a, BREAKER_CLOSED, 0, long_ago), 0);
    assert_int_equal(ask_ok(&a).generation, 0);
    admission_leave(&a);
    admission_leave(&a);
    admission_leave(&a);
    assert_int_equal(atomic_load(&a.word), 0);
}

static void test_names_and_modes_are_the_contracts_words(void **state)
{
    enum breaker_mode mode = BREAKER_MODE_COUNT;
    (void)state;

    assert_string_equal(breaker_state_name(BREAKER_CLOSED), "closed");
    assert_string_equal(breaker_state_name(BREAKER_OPEN), "open");
    assert_string_equal(breaker_state_name(BREAKER_HALF_OPEN), "half-open");
    for (unsigned i = 0; i < BREAKER_MODE_COUNT; i++) {
        assert_true(breaker_mode_parse(breaker_mode_name((enum breaker_mode)i), &mode));
        assert_int_equal(mode, i);
    }
    assert_true(breaker_mode_parse("auto", &mode));
    assert_int_equal(mode, BREAKER_AUTO);
    assert_true(breaker_mode_parse("forced-open", &mode));
    assert_int_equal(mode, BREAKER_FORCED_OPEN);
    assert_true(breaker_mode_parse("disabled", &mode));
    assert_false(breaker_mode_parse("Auto", &mode));
    assert_false(breaker_mode_parse("", &mode));
    assert_false(breaker_mode_parse("shadow", &mode));
    assert_int_equal(mode, BREAKER_DISABLED);
}

/* Threads. Each asks and leaves at random; `inside` is their own count, kept beside the word. */
#define ASKER_COUNT 8
#define ASK_COUNT   60000

struct crowd {
    struct admission admission;
    _Atomic uint32_t inside, most_inside;
    _Atomic uint64_t let_in, waited, refused, promoted;
    _Atomic uint32_t askers_left;
    bool has_owner; /* leaving, promoting and moving is one thread's; else everybody leaves */
};

static void enter(struct crowd *c)
{
    uint32_t inside = atomic_fetch_add(&c->inside, 1) + 1;
    uint32_t most = atomic_load(&c->most_inside);

    while (inside > most && !atomic_compare_exchange_weak(&c->most_inside, &most, inside))
        continue;
}

static void leave(struct crowd *c)
{
    atomic_fetch_sub(&c->inside, 1);
    admission_leave(&c->admission);
}

static void ask_once(struct crowd *c)
{
    struct ticket t;

    switch (admission_ask(&c->admission, &t)) {
    case ADMIT_RUN:
        enter(c);
        atomic_fetch_add(&c->let_in, 1);
        if (!c->has_owner)
            leave(c);
        break;
    case ADMIT_WAIT:
        atomic_fetch_add(&c->waited, 1);
        break;
    case REFUSE_OPEN:
    case REFUSE_FULL:
        atomic_fetch_add(&c->refused, 1);
        break;
    }
}

static void *asker_main(void *arg)
{
    struct crowd *c = arg;

    for (int i = 0; i < ASK_COUNT; i++)
        ask_once(c);
    atomic_fetch_sub(&c->askers_left, 1);
    return NULL;
}

static void start_askers(struct crowd *c, pthread_t threads[ASKER_COUNT])
{
    atomic_store(&c->askers_left, ASKER_COUNT);
    for (int i = 0; i < ASKER_COUNT; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, asker_main, c), 0);
}

static void join_askers(pthread_t threads[ASKER_COUNT])
{
    for (int i = 0; i < ASKER_COUNT; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void assert_sums(struct crowd *c, uint32_t limit)
{
    assert_in_range(atomic_load(&c->most_inside), 1, limit);
    assert_int_equal(atomic_load(&c->let_in) + atomic_load(&c->waited) + atomic_load(&c->refused),
                     (uint64_t)ASKER_COUNT * ASK_COUNT);
}

static void test_threads_never_overdraw_and_leave_a_zero_word(void **state)
{
    struct crowd c = {.has_owner = false};
    pthread_t threads[ASKER_COUNT];
    (void)state;

    admission_init(&c.admission, 3, 0);
    start_askers(&c, threads);
    join_askers(threads);
    assert_sums(&c, 3);
    assert_int_equal(atomic_load(&c.waited), 0);
    assert_int_equal(atomic_load(&c.admission.word), 0);
}

/* One turn of the owner: somebody leaves, the line moves or somebody gives up, now and then the
 * breaker or the mode moves. Returns false when nobody is left to serve. */
static bool owner_turn(struct crowd *c, struct rand *r)
{
    static const enum breaker_state states[] = {BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN};
    bool may_more_come = atomic_load(&c->askers_left) > 0; /* asked before the look at the word */
    struct admission_view v = admission_read(&c->admission);
    uint64_t dice = rand_below(r, 64);
    struct ticket t;

    if (v.in_use > 0 && atomic_load(&c->inside) > 0)
        leave(c);
    if (admission_promote(&c->admission, &t)) {
        enter(c);
        atomic_fetch_add(&c->promoted, 1);
    } else if (v.queued > 0 && dice % 4 == 0) {
        admission_leave_line(&c->admission);
    }
    if (dice < BREAKER_STATE_COUNT)
        (void)admission_publish(&c->admission, states[dice], dice == BREAKER_HALF_OPEN ? 2 : 0,
                                long_ago);
    else if (dice < 6)
        admission_set_mode(&c->admission, (enum breaker_mode)(dice - 3));
    return may_more_come || v.in_use + v.queued > 0;
}

static void test_an_owner_that_promotes_and_moves_keeps_every_count(void **state)
{
    struct crowd c = {.has_owner = true};
    pthread_t threads[ASKER_COUNT];
    struct rand r;
    (void)state;

    rand_init(&r, 1);
    admission_init(&c.admission, 3, 5);
    start_askers(&c, threads);
    while (owner_turn(&c, &r))
        continue;
    join_askers(threads);
    assert_sums(&c, 3);
    assert_true(atomic_load(&c.waited) >= atomic_load(&c.promoted));
    assert_int_equal(atomic_load(&c.inside), 0);
    assert_counts(&c.admission, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_word_is_closed_auto_and_empty),
        cmocka_unit_test(test_permits_run_out_and_come_back),
        cmocka_unit_test(test_the_largest_limits_stay_in_their_fields),
        cmocka_unit_test(test_full_waits_while_the_line_has_places),
        cmocka_unit_test(test_nobody_passes_the_line),
        cmocka_unit_test(test_promote_needs_a_line_and_a_permit),
        cmocka_unit_test(test_who_waited_gets_the_generation_of_its_promotion),
        cmocka_unit_test(test_open_refuses_and_promotes_nobody),
        cmocka_unit_test(test_half_open_lets_exactly_its_trials_through),
        cmocka_unit_test(test_half_open_without_a_permit_refuses_and_keeps_the_trial),
        cmocka_unit_test(test_half_open_promotes_with_a_trial_alone),
        cmocka_unit_test(test_a_probe_takes_a_trial_in_half_open_alone),
        cmocka_unit_test(test_forced_open_refuses_in_every_state),
        cmocka_unit_test(test_disabled_ignores_the_breaker_but_not_the_bulkhead),
        cmocka_unit_test(test_a_mode_changes_nothing_but_itself),
        cmocka_unit_test(test_the_generation_wraps_at_its_field),
        cmocka_unit_test(test_names_and_modes_are_the_contracts_words),
        cmocka_unit_test(test_threads_never_overdraw_and_leave_a_zero_word),
        cmocka_unit_test(test_an_owner_that_promotes_and_moves_keeps_every_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <stdlib.h>

#include "cache_fixture.h"

struct cancel_log cancels;

static int call_of_the_leader; /* only its address means something */

static void lead(struct fixture *f, struct asker *a, const char *name)
{
    assert_int_equal(ask(f, a, name), CACHE_LEAD);
    flight_take_off(f->cache, a->reply.flight, &call_of_the_leader);
}

static void leave(struct fixture *f, struct asker *a, bool is_hang_up)
{
    flight_leave(f->cache, &a->waiter, is_hang_up);
    assert_null(a->waiter.flight);
    done(a);
}

/* ---- one call, many waiters ---- */

static void test_of_500_askers_of_a_cold_key_one_leads_and_all_are_told(void **state)
{
    enum { ASKER_COUNT = 500 };
    struct asker *askers = calloc(ASKER_COUNT, sizeof *askers);
    struct fixture f;

    (void)state;
    begin(&f);
    assert_non_null(askers);
    for (uint32_t i = 0; i < ASKER_COUNT; i++)
        assert_int_equal(ask_on(&f, &askers[i], "k", i % WORKER_COUNT),
                         i == 0 ? CACHE_LEAD : CACHE_JOIN);
    land_with(&f, askers[0].reply.flight, "[1]");
    for (uint32_t worker = 0; worker < WORKER_COUNT; worker++)
        assert_int_equal(drain(&f, worker), 1); /* one item, however many wait */

    for (int i = 0; i < ASKER_COUNT; i++) {
        assert_int_equal(askers[i].told_count, 1);
        assert_string_equal(askers[i].body, "[1]");
        done(&askers[i]);
    }
    free(askers);
    end(&f);
}

static void test_workers_without_waiters_hear_nothing(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    assert_int_equal(ask_on(&f, &a, "k", 0), CACHE_LEAD);
    assert_int_equal(ask_on(&f, &b, "k", 2), CACHE_JOIN);
    land_with(&f, a.reply.flight, "[1]");
    assert_int_equal(drain(&f, 1), 0);
    assert_int_equal(drain(&f, 2), 1);
    assert_int_equal(drain(&f, 0), 1);
    end(&f);
}

static void test_a_failure_is_everyones_with_all_that_is_known_of_it(void **state)
{
    const struct flight_report report = {
        .reason = REASON_CONSTRAINT,
        .was_tried = true,
        .detail = "no such author",
        .constraint = "books_author_fkey",
        .waited_us = 11,
        .served_us = 22,
    };
    struct fixture f;
    struct asker a, b;
    const struct landing *landing;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    assert_int_equal(ask_on(&f, &b, "k", 1), CACHE_JOIN);
    land(&f, a.reply.flight, &report);

    landing = flight_landing(b.waiter.flight);
    assert_int_equal(landing->reason, REASON_CONSTRAINT);
    assert_null(landing->entry);
    assert_string_equal(landing->detail, "no such author");
    assert_string_equal(landing->constraint, "books_author_fkey");
    assert_int_equal(landing->waited_us, 11);
    assert_int_equal(landing->served_us, 22);
    assert_int_equal(drain(&f, 0) + drain(&f, 1), 2);
    assert_int_equal(b.reason, REASON_CONSTRAINT);
    end(&f);
}

static void test_a_long_detail_is_cut_to_what_a_landing_holds(void **state)
{
    char detail[1000];
    const struct flight_report report = {.reason = REASON_RAISED, .detail = detail};
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    memset(detail, 'x', sizeof detail - 1);
    detail[sizeof detail - 1] = '\0';
    lead(&f, &a, "k");
    land(&f, a.reply.flight, &report);
    assert_int_equal(strlen(flight_landing(a.waiter.flight)->detail),
                     sizeof flight_landing(a.waiter.flight)->detail - 1);
    assert_int_equal(drain(&f, 0), 1);
    end(&f);
}

static void test_a_landed_flight_is_not_joined(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    land_failed(&f, a.reply.flight, REASON_DEADLINE);
    lead(&f, &b, "k"); /* before the first was even told */
    land_with(&f, b.reply.flight, "[1]");
    assert_int_equal(drain(&f, 0), 2);
    assert_int_equal(a.reason, REASON_DEADLINE);
    assert_int_equal(b.reason, REASON_NONE);
    end(&f);
}

/* ---- leaving ---- */

static void test_the_last_to_leave_cancels_the_call(void **state)
{
    struct fixture f;
    struct asker a, b;
    struct flight *flight;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    flight = a.reply.flight;
    assert_int_equal(ask_on(&f, &b, "k", 1), CACHE_JOIN);
    leave(&f, &a, true); /* the leader too may leave: the flight is not its own */
    assert_int_equal(cancels.count, 0);
    leave(&f, &b, true);
    assert_int_equal(cancels.count, 1);
    assert_ptr_equal(cancels.call, &call_of_the_leader);
    assert_true(cancels.is_hang_up);

    land_failed(&f, flight, REASON_DEADLINE);
    assert_int_equal(cancels.count, 1);
    end(&f);
}

static void test_a_deadline_that_passed_cancels_as_what_it_is(void **state)
{
    struct fixture f;
    struct asker a;
    struct flight *flight;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    flight = a.reply.flight;
    leave(&f, &a, false);
    assert_int_equal(cancels.count, 1);
    assert_false(cancels.is_hang_up);
    land_failed(&f, flight, REASON_DEADLINE);
    end(&f);
}

static void test_a_flight_left_by_all_is_not_joined(void **state)
{
    struct fixture f;
    struct asker a, b;
    struct flight *left;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    left = a.reply.flight;
    leave(&f, &a, true);
    lead(&f, &b, "k");
    land_failed(&f, left, REASON_DEADLINE);
    land_with(&f, b.reply.flight, "[1]");
    assert_int_equal(drain(&f, 0), 1);
    assert_string_equal(b.body, "[1]");
    end(&f);
}

static void test_a_flight_left_before_it_took_off_is_cancelled_when_it_does(void **state)
{
    struct fixture f;
    struct asker a;
    struct flight *flight;

    (void)state;
    begin(&f);
    assert_int_equal(ask(&f, &a, "k"), CACHE_LEAD);
    flight = a.reply.flight;
    leave(&f, &a, true);
    assert_int_equal(cancels.count, 0);
    flight_take_off(f.cache, flight, &call_of_the_leader);
    assert_int_equal(cancels.count, 1);
    assert_true(cancels.is_hang_up);
    land_failed(&f, flight, REASON_DEADLINE);
    end(&f);
}

static void test_a_refresh_that_was_joined_and_left_flies_on(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    f.lease_us = 10 * SECOND_US;
    store(&f, "k", "[1]");
    pass_s(&f, 14);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    flight_take_off(f.cache, a.reply.flight, &call_of_the_leader);
    pass_s(&f, 2); /* past the time in which a stored answer does */
    assert_int_equal(ask(&f, &b, "k"), CACHE_JOIN);
    leave(&f, &b, true);
    assert_int_equal(cancels.count, 0);

    assert_int_equal(ask(&f, &b, "k"), CACHE_JOIN);
    land_with(&f, a.reply.flight, "[2]");
    done(&a);
    assert_int_equal(drain(&f, 0), 1);
    assert_string_equal(b.body, "[2]");
    done(&b);
    expect(&f, "k", CACHE_HIT, "[2]");
    end(&f);
}

static void test_who_leaves_between_landing_and_delivery_is_not_told(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    assert_int_equal(ask(&f, &b, "k"), CACHE_JOIN);
    land_with(&f, a.reply.flight, "[1]");
    leave(&f, &b, true);
    assert_int_equal(drain(&f, 0), 1);
    assert_int_equal(a.told_count, 1);
    assert_int_equal(b.told_count, 0);
    assert_int_equal(cancels.count, 0); /* the call had come back */
    done(&a);
    end(&f);
}

static void test_a_desk_that_all_have_left_is_delivered_to_nobody(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    land_with(&f, a.reply.flight, "[1]");
    leave(&f, &a, false);
    assert_int_equal(drain(&f, 0), 1);
    assert_int_equal(a.told_count, 0);
    assert_int_equal(cancels.count, 0);
    expect(&f, "k", CACHE_HIT, "[1]");
    end(&f);
}

static void test_leaving_without_waiting_is_nothing(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    assert_int_equal(ask(&f, &a, "k"), CACHE_HIT);
    leave(&f, &a, true);
    leave(&f, &a, true);
    assert_int_equal(cancels.count, 0);
    end(&f);
}

static void test_what_a_worker_that_ended_does_not_hear_is_freed(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    land_with(&f, a.reply.flight, "[1]");
    leave(&f, &a, false);
    flight_discard(inbox_drain(&f.inboxes[0])); /* LeakSanitizer watches */
    end(&f);
}

static void test_flights_that_never_land_end_with_the_cache(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    leave(&f, &a, false);
    lead(&f, &b, "k");
    leave(&f, &b, false);
    end(&f); /* LeakSanitizer watches */
}

/* ---- what an end means for what is stored ---- */

static void test_a_call_that_was_hung_up_on_is_no_failed_refresh(void **state)
{
    struct fixture f;
    struct asker a;
    struct flight *flight;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 16);
    lead(&f, &a, "k");
    flight = a.reply.flight;
    leave(&f, &a, true);
    land_failed(&f, flight, REASON_DEADLINE);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_DEADLINE, true); /* not CACHE_STALE */
    end(&f);
}

static void test_a_call_too_slow_for_all_its_waiters_is_a_failed_refresh(void **state)
{
    struct fixture f;
    struct asker a;
    struct flight *flight;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 16);
    lead(&f, &a, "k");
    flight = a.reply.flight;
    pass_s(&f, 2);
    leave(&f, &a, false);
    land_failed(&f, flight, REASON_DEADLINE);
    assert_int_equal(ask(&f, &a, "k"), CACHE_STALE);
    assert_int_equal(a.reply.failure, REASON_DEADLINE);
    done(&a);
    end(&f);
}

static void test_a_cancel_that_came_too_late_stores_its_answer(void **state)
{
    struct fixture f;
    struct asker a;
    struct flight *flight;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    flight = a.reply.flight;
    leave(&f, &a, true);
    land_with(&f, flight, "[1]");
    expect(&f, "k", CACHE_HIT, "[1]");
    end(&f);
}

/* ---- leases ---- */

static void
test_a_flight_past_its_lease_is_replaced_and_tells_its_waiters_all_the_same(void **state)
{
    struct fixture f;
    struct asker a, b, c;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    f.now = instant_after(f.now, 2 * SECOND_US - 1);
    assert_int_equal(ask(&f, &b, "k"), CACHE_JOIN);
    f.now = instant_after(f.now, 1);
    lead(&f, &c, "k");

    pass_s(&f, 1);
    land_with(&f, a.reply.flight, "[1]");
    assert_int_equal(drain(&f, 0), 1);
    assert_string_equal(a.body, "[1]");
    assert_string_equal(b.body, "[1]");
    assert_int_equal(c.told_count, 0);
    land_with(&f, c.reply.flight, "[2]");
    assert_int_equal(drain(&f, 0), 1);
    assert_string_equal(c.body, "[2]");
    expect(&f, "k", CACHE_HIT, "[2]");
    end(&f);
}

static void test_a_late_answer_does_not_replace_one_that_was_asked_for_later(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    pass_s(&f, 2);
    lead(&f, &b, "k");
    land_with(&f, b.reply.flight, "[new]");
    assert_int_equal(drain(&f, 0), 1);
    land_with(&f, a.reply.flight, "[old]");
    assert_int_equal(drain(&f, 0), 1);
    assert_string_equal(a.body, "[old]");
    assert_false(a.is_stored);
    expect(&f, "k", CACHE_HIT, "[new]");
    end(&f);
}

static void test_a_late_failure_says_nothing_of_a_later_success(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    lead(&f, &a, "k");
    pass_s(&f, 2);
    lead(&f, &b, "k");
    land_with(&f, b.reply.flight, "[1]");
    land_failed(&f, a.reply.flight, REASON_NO_ROW);
    assert_int_equal(drain(&f, 0), 2);
    assert_int_equal(ask(&f, &a, "k"), CACHE_HIT);
    assert_int_equal(a.reply.failure, REASON_NONE);
    done(&a);
    end(&f);
}

static void test_a_row_missed_by_a_replaced_flight_removes_nothing(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 10);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    pass_s(&f, 2);
    assert_int_equal(ask(&f, &b, "k"), CACHE_REFRESH);
    land_failed(&f, a.reply.flight, REASON_NO_ROW);
    expect(&f, "k", CACHE_STALE, "[1]");
    land_failed(&f, b.reply.flight, REASON_NO_ROW);
    done(&a);
    done(&b);
    expect_cold(&f, "k");
    end(&f);
}

/* ---- purges while a flight is under way ---- */

static void purge_the_group(struct fixture *f)
{
    cache_purge_group(f->cache, f->group);
}

static void purge_the_key(struct fixture *f)
{
    const struct cache_key key = key_of(f, "k");

    (void)cache_purge_key(f->cache, &key);
}

static void (*const purges[])(struct fixture *) = {purge_the_group, purge_the_key};

enum { PURGE_COUNT = sizeof purges / sizeof *purges };

static void test_a_flight_from_before_a_purge_is_not_joined_and_not_stored(void **state)
{
    (void)state;
    for (size_t i = 0; i < PURGE_COUNT; i++) {
        struct fixture f;
        struct asker a, b;

        begin(&f);
        lead(&f, &a, "k");
        purges[i](&f);
        lead(&f, &b, "k");
        land_with(&f, a.reply.flight, "[old]");
        assert_int_equal(drain(&f, 0), 1);
        assert_string_equal(a.body, "[old]"); /* they had asked before */
        assert_false(a.is_stored);
        assert_int_equal(ask(&f, &a, "k"), CACHE_JOIN);
        land_with(&f, b.reply.flight, "[new]");
        assert_int_equal(drain(&f, 0), 1);
        assert_string_equal(a.body, "[new]");
        expect(&f, "k", CACHE_HIT, "[new]");
        end(&f);
    }
}

static void test_a_flight_from_before_a_purge_is_not_stored_though_nobody_asked_since(void **state)
{
    (void)state;
    for (size_t i = 0; i < PURGE_COUNT; i++) {
        struct fixture f;
        struct asker a;

        begin(&f);
        lead(&f, &a, "k");
        purges[i](&f);
        land_with(&f, a.reply.flight, "[old]");
        assert_int_equal(drain(&f, 0), 1);
        assert_false(a.is_stored);
        expect_cold(&f, "k");
        end(&f);
    }
}

static void test_a_purge_also_reaches_flights_that_were_replaced(void **state)
{
    (void)state;
    for (size_t i = 0; i < PURGE_COUNT; i++) {
        struct fixture f;
        struct asker a, b;

        begin(&f);
        lead(&f, &a, "k");
        pass_s(&f, 2);
        lead(&f, &b, "k");
        purges[i](&f);
        land_with(&f, a.reply.flight, "[1]");
        land_with(&f, b.reply.flight, "[2]");
        assert_int_equal(drain(&f, 0), 2);
        assert_false(a.is_stored);
        assert_false(b.is_stored);
        expect_cold(&f, "k");
        end(&f);
    }
}

static void test_a_failure_from_before_a_purge_does_not_touch_what_came_after(void **state)
{
    (void)state;
    for (size_t i = 0; i < PURGE_COUNT; i++) {
        struct fixture f;
        struct asker a;

        begin(&f);
        lead(&f, &a, "k");
        purges[i](&f);
        store(&f, "k", "[new]");
        land_failed(&f, a.reply.flight, REASON_NO_ROW);
        assert_int_equal(drain(&f, 0), 1);
        assert_int_equal(ask(&f, &a, "k"), CACHE_HIT);
        assert_int_equal(a.reply.failure, REASON_NONE);
        done(&a);
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_500_askers_of_a_cold_key_one_leads_and_all_are_told),
        cmocka_unit_test(test_workers_without_waiters_hear_nothing),
        cmocka_unit_test(test_a_failure_is_everyones_with_all_that_is_known_of_it),
        cmocka_unit_test(test_a_long_detail_is_cut_to_what_a_landing_holds),
        cmocka_unit_test(test_a_landed_flight_is_not_joined),
        cmocka_unit_test(test_the_last_to_leave_cancels_the_call),
        cmocka_unit_test(test_a_deadline_that_passed_cancels_as_what_it_is),
        cmocka_unit_test(test_a_flight_left_by_all_is_not_joined),
        cmocka_unit_test(test_a_flight_left_before_it_took_off_is_cancelled_when_it_does),
        cmocka_unit_test(test_a_refresh_that_was_joined_and_left_flies_on),
        cmocka_unit_test(test_who_leaves_between_landing_and_delivery_is_not_told),
        cmocka_unit_test(test_a_desk_that_all_have_left_is_delivered_to_nobody),
        cmocka_unit_test(test_leaving_without_waiting_is_nothing),
        cmocka_unit_test(test_what_a_worker_that_ended_does_not_hear_is_freed),
        cmocka_unit_test(test_flights_that_never_land_end_with_the_cache),
        cmocka_unit_test(test_a_call_that_was_hung_up_on_is_no_failed_refresh),
        cmocka_unit_test(test_a_call_too_slow_for_all_its_waiters_is_a_failed_refresh),
        cmocka_unit_test(test_a_cancel_that_came_too_late_stores_its_answer),
        cmocka_unit_test(
            test_a_flight_past_its_lease_is_replaced_and_tells_its_waiters_all_the_same),
        cmocka_unit_test(test_a_late_answer_does_not_replace_one_that_was_asked_for_later),
        cmocka_unit_test(test_a_late_failure_says_nothing_of_a_later_success),
        cmocka_unit_test(test_a_row_missed_by_a_replaced_flight_removes_nothing),
        cmocka_unit_test(test_a_flight_from_before_a_purge_is_not_joined_and_not_stored),
        cmocka_unit_test(test_a_flight_from_before_a_purge_is_not_stored_though_nobody_asked_since),
        cmocka_unit_test(test_a_purge_also_reaches_flights_that_were_replaced),
        cmocka_unit_test(test_a_failure_from_before_a_purge_does_not_touch_what_came_after),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

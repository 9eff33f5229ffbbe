#include <stdio.h>

#include "cache_fixture.h"

/* So that a request for too much memory is refused, as without a sanitizer. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

struct cancel_log cancels;

/* ---- fresh ---- */

static void test_a_cold_key_leads_and_is_a_hit_when_it_landed(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    assert_int_equal(ask(&f, &a, "k"), CACHE_LEAD);
    assert_null(a.reply.entry);
    assert_non_null(a.reply.flight);
    land_with(&f, a.reply.flight, "[1]");
    assert_int_equal(drain(&f, 0), 1);
    assert_int_equal(a.told_count, 1);
    assert_int_equal(a.reason, REASON_NONE);
    assert_string_equal(a.body, "[1]");
    assert_true(a.is_stored);
    done(&a);

    expect(&f, "k", CACHE_HIT, "[1]");
    end(&f);
}

static void test_an_answer_is_a_hit_until_its_own_lifetime_is_over(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    f.random = 2 * SECOND_US; /* drawn: 8 s of 10 */
    f.policy.stale_while_revalidate_us = 0;
    store(&f, "k", "[1]");
    f.now = instant_after(f.now, 8 * SECOND_US - 1);
    expect(&f, "k", CACHE_HIT, "[1]");
    f.now = instant_after(f.now, 1);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_BREAKER_OPEN, false);
    end(&f);
}

static void test_other_keys_and_other_groups_are_other_answers(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    expect_cold(&f, "l");
    f.group = 1;
    expect_cold(&f, "k");
    store(&f, "k", "[2]");
    expect(&f, "k", CACHE_HIT, "[2]");
    f.group = 0;
    expect(&f, "k", CACHE_HIT, "[1]");
    end(&f);
}

/* ---- stale while revalidate ---- */

static void test_past_its_lifetime_one_asker_refreshes_and_all_are_answered_at_once(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 12);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    assert_non_null(a.reply.entry);
    assert_int_equal(a.reply.failure, REASON_NONE);
    assert_null(a.waiter.flight);
    expect(&f, "k", CACHE_STALE, "[1]");

    land_with(&f, a.reply.flight, "[2]");
    assert_int_equal(drain(&f, 0), 0); /* nobody waited */
    done(&a);
    expect(&f, "k", CACHE_HIT, "[2]");
    end(&f);
}

static void test_a_failed_refresh_is_told_and_backs_off_a_second_then_two(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 10);
    fail_refresh(&f, "k", CACHE_REFRESH, REASON_CONNECT_FAILED, true);
    f.now = instant_after(f.now, SECOND_US - 1);
    assert_int_equal(ask(&f, &a, "k"), CACHE_STALE);
    assert_int_equal(a.reply.failure, REASON_CONNECT_FAILED);
    done(&a);

    f.now = instant_after(f.now, 1);
    fail_refresh(&f, "k", CACHE_REFRESH, REASON_DEADLINE, true);
    f.now = instant_after(f.now, 2 * SECOND_US - 1);
    expect(&f, "k", CACHE_STALE, "[1]");
    f.now = instant_after(f.now, 1);
    fail_refresh(&f, "k", CACHE_REFRESH, REASON_DEADLINE, true);
    end(&f);
}

static void test_a_refusal_at_the_door_is_told_and_does_not_back_off(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 10);
    fail_refresh(&f, "k", CACHE_REFRESH, REASON_BREAKER_OPEN, false);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    assert_int_equal(a.reply.failure, REASON_BREAKER_OPEN);
    land_refused(&f, a.reply.flight, REASON_BREAKER_OPEN);
    done(&a);
    end(&f);
}

static void test_a_success_forgets_the_failures_before_it(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 10);
    fail_refresh(&f, "k", CACHE_REFRESH, REASON_CONNECT_FAILED, true);
    pass_s(&f, 1);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    land_with(&f, a.reply.flight, "[2]");
    done(&a);

    pass_s(&f, 10);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    assert_int_equal(a.reply.failure, REASON_NONE);
    land_failed(&f, a.reply.flight, REASON_DEADLINE);
    done(&a);
    pass_s(&f, 1); /* the first failure again: one second */
    fail_refresh(&f, "k", CACHE_REFRESH, REASON_DEADLINE, true);
    end(&f);
}

static void test_failed_refreshes_do_not_make_an_answer_younger(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    for (int64_t age_s = 10; age_s <= 30; age_s += 10) {
        pass_s(&f, 10);
        fail_refresh(&f, "k", age_s == 10 ? CACHE_REFRESH : CACHE_LEAD, REASON_DEADLINE, true);
    }
    pass_s(&f, 1); /* 31 s old: more than max-age and stale-if-error */
    expect_cold(&f, "k");
    end(&f);
}

/* ---- stale if error ---- */

static void test_past_that_a_live_call_is_led_or_joined_with_the_stored_one_at_hand(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 16);
    assert_int_equal(ask(&f, &a, "k"), CACHE_LEAD);
    assert_non_null(a.reply.entry);
    assert_int_equal(ask(&f, &b, "k"), CACHE_JOIN);
    assert_ptr_equal(b.reply.entry, a.reply.entry);
    assert_null(b.reply.flight);

    land_failed(&f, a.reply.flight, REASON_DEADLINE);
    assert_int_equal(drain(&f, 0), 1);
    assert_int_equal(a.reason, REASON_DEADLINE);
    assert_int_equal(b.reason, REASON_DEADLINE);
    done(&a);
    done(&b);
    end(&f);
}

static void test_while_a_tried_call_backs_off_the_stored_one_is_the_answer(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 16);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_CONNECT_FAILED, true);
    assert_int_equal(ask(&f, &a, "k"), CACHE_STALE);
    assert_int_equal(a.reply.failure, REASON_CONNECT_FAILED);
    assert_non_null(a.reply.entry);
    done(&a);
    pass_s(&f, 1);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_CONNECT_FAILED, true);
    end(&f);
}

static void test_a_callers_mistake_is_no_reason_for_a_stored_answer(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 16);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_RAISED, true);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_RAISED, true);
    end(&f);
}

static void test_a_callers_mistake_in_a_refresh_backs_off_and_leaves_the_entry(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 10);
    fail_refresh(&f, "k", CACHE_REFRESH, REASON_RAISED, true);
    assert_int_equal(ask(&f, &a, "k"), CACHE_STALE);
    assert_int_equal(a.reply.failure, REASON_NONE); /* it is nothing to tell others */
    done(&a);
    end(&f);
}

static void test_an_expired_answer_is_none(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 31);
    expect_cold(&f, "k");
    store(&f, "k", "[2]");
    expect(&f, "k", CACHE_HIT, "[2]");
    end(&f);
}

/* ---- what is not stored ---- */

static void test_a_row_that_is_gone_takes_its_answer_with_it(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    assert_int_equal(ask(&f, &b, "k"), CACHE_HIT);
    pass_s(&f, 12);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    land_failed(&f, a.reply.flight, REASON_NO_ROW);
    assert_false(cache_is_current(f.cache, b.reply.entry));
    done(&a);
    done(&b);
    expect_cold(&f, "k");
    end(&f);
}

static void test_an_answer_too_large_to_store_is_delivered_all_the_same(void **state)
{
    static char body[CACHE_BYTES];
    const struct flight_report report = {.body = body, .body_bytes = sizeof body};
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    assert_int_equal(ask(&f, &a, "k"), CACHE_LEAD);
    land(&f, a.reply.flight, &report);
    assert_non_null(flight_landing(a.waiter.flight)->entry);
    assert_false(flight_landing(a.waiter.flight)->is_stored);
    assert_int_equal(flight_landing(a.waiter.flight)->entry->body_bytes, sizeof body);
    flight_leave(f.cache, &a.waiter, false);
    assert_int_equal(drain(&f, 0), 1);
    expect_cold(&f, "k");
    end(&f);
}

static void store_many(struct fixture *f, int count)
{
    static int number;

    for (int i = 0; i < count; i++) {
        char name[24];

        (void)snprintf(name, sizeof name, "cold %d", number++);
        store(f, name, "[0]");
    }
}

static void test_what_is_asked_for_again_outlives_what_is_asked_for_once(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    store(&f, "once", "[1]");
    store(&f, "again", "[2]");
    expect(&f, "again", CACHE_HIT, "[2]");
    store_many(&f, 10000);
    expect(&f, "again", CACHE_HIT, "[2]");
    expect_cold(&f, "once");
    end(&f);
}

static void test_an_answer_being_sent_outlives_the_cache(void **state)
{
    struct fixture f;
    struct asker held;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    assert_int_equal(ask(&f, &held, "k"), CACHE_HIT);
    end(&f);
    assert_memory_equal(held.reply.entry->body, "[1]", 3);
    done(&held);
}

static void test_entries_of_all_sizes_find_room(void **state)
{
    static char body[CACHE_BYTES / 3];
    struct fixture f;

    (void)state;
    begin(&f);
    for (int i = 0; i < 20; i++) {
        const struct flight_report report = {.body = body, .body_bytes = sizeof body};
        struct asker a;
        char name[24];

        store_many(&f, 1000);
        (void)snprintf(name, sizeof name, "large %d", i);
        assert_int_equal(ask(&f, &a, name), CACHE_LEAD);
        land(&f, a.reply.flight, &report);
        assert_true(flight_landing(a.waiter.flight)->is_stored);
        flight_leave(f.cache, &a.waiter, false);
        assert_int_equal(drain(&f, 0), 1);
    }
    end(&f);
}

/* Returns whether it was stored; the asker holds it either way, if it is given. */
static bool store_large(struct fixture *f, const char *name, struct asker *holder)
{
    static char body[CACHE_BYTES * 3 / 10];
    const struct flight_report report = {.body = body, .body_bytes = sizeof body};
    struct asker a;
    bool is_stored;

    assert_int_equal(ask(f, &a, name), CACHE_LEAD);
    land(f, a.reply.flight, &report);
    is_stored = flight_landing(a.waiter.flight)->is_stored;
    assert_int_equal(flight_landing(a.waiter.flight)->entry->body_bytes, sizeof body);
    flight_leave(f->cache, &a.waiter, false);
    assert_int_equal(drain(f, 0), 1);
    if (holder != NULL)
        assert_int_equal(ask(f, holder, name), CACHE_HIT);
    return is_stored;
}

static void test_what_is_still_being_sent_counts_though_it_is_purged(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    struct fixture f;
    struct asker held[3];

    (void)state;
    begin(&f);
    for (int i = 0; i < 3; i++)
        assert_true(store_large(&f, names[i], &held[i]));
    cache_purge_group(f.cache, f.group);
    assert_int_equal(cache_sweep(f.cache), 3);

    assert_false(store_large(&f, "d", NULL)); /* an answer all the same */
    for (int i = 0; i < 3; i++)
        done(&held[i]);
    assert_true(store_large(&f, "d", NULL));
    end(&f);
}

static void test_without_memory_for_a_flight_the_asker_is_told_so(void **state)
{
    struct fixture f;
    struct asker a = {.told_count = 0};
    struct cache_question question;

    (void)state;
    begin(&f);
    question = (struct cache_question){
        .key = key_of(&f, "k"),
        .policy = &f.policy,
        .now = f.now,
        .lease_until = instant_after(f.now, f.lease_us),
        .inbox = &f.inboxes[0],
    };
    question.key.size_bytes = SIZE_MAX / 4; /* more than there is */
    list_init(&a.waiter.link);
    assert_false(cache_ask(f.cache, &question, &a.waiter, &a.verdict, &a.reply));
    assert_null(a.reply.entry);
    assert_null(a.reply.flight);
    assert_null(a.waiter.flight);
    end(&f);
}

static void test_without_memory_for_an_answer_the_flight_has_failed(void **state)
{
    const struct flight_report report = {.body = "", .body_bytes = SIZE_MAX / 4};
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    assert_int_equal(ask(&f, &a, "k"), CACHE_LEAD);
    land(&f, a.reply.flight, &report);
    assert_string_equal(flight_landing(a.waiter.flight)->detail, "out of memory");
    assert_int_equal(drain(&f, 0), 1);
    assert_int_equal(a.reason, REASON_INTERNAL);
    end(&f);
}

/* ---- purges ---- */

static void test_a_purge_of_a_group_is_of_all_its_answers_and_of_no_other(void **state)
{
    struct fixture f;
    struct asker held;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    store(&f, "l", "[2]");
    assert_int_equal(ask(&f, &held, "k"), CACHE_HIT);
    f.group = 1;
    store(&f, "k", "[3]");

    cache_purge_group(f.cache, 0);
    expect(&f, "k", CACHE_HIT, "[3]");
    f.group = 0;
    expect_cold(&f, "k");
    expect_cold(&f, "l");
    assert_false(cache_is_current(f.cache, held.reply.entry));
    assert_memory_equal(held.reply.entry->body, "[1]", 3); /* who has it may still send it */
    done(&held);
    store(&f, "k", "[4]");
    expect(&f, "k", CACHE_HIT, "[4]");
    end(&f);
}

static void test_what_expired_is_fresh_no_more_and_stands_in_on_error(void **state)
{
    struct fixture f;
    struct asker early, late;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    cache_expire_group(f.cache, 1); /* another's */
    expect(&f, "k", CACHE_HIT, "[1]");
    assert_int_equal(ask(&f, &early, "l"), CACHE_LEAD);
    cache_expire_group(f.cache, 0);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_BREAKER_OPEN, false);

    assert_int_equal(ask(&f, &late, "l"), CACHE_LEAD); /* what flew before is not joined */
    land_with(&f, early.reply.flight, "[old]");
    assert_int_equal(drain(&f, 0), 1);
    assert_false(early.is_stored); /* not as fresh */
    land_with(&f, late.reply.flight, "[new]");
    assert_int_equal(drain(&f, 0), 1);
    assert_true(late.is_stored);
    done(&early);
    done(&late);
    expect(&f, "l", CACHE_HIT, "[new]");

    pass_s(&f, 31); /* max-age 10 s and 20 s on error */
    expect_cold(&f, "k");
    end(&f);
}

static void test_what_expired_does_not_back_off(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 16);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_CONNECTION_LOST, true);
    expect(&f, "k", CACHE_STALE, "[1]"); /* it backs off */
    cache_expire_group(f.cache, f.group);
    fail_refresh(&f, "k", CACHE_LEAD, REASON_CONNECTION_LOST, true);
    expect(&f, "k", CACHE_STALE, "[1]");
    end(&f);
}

static void test_what_is_too_old_for_anything_was_stored_all_the_same(void **state)
{
    struct fixture f;
    struct asker a;

    (void)state;
    begin(&f);
    assert_int_equal(ask(&f, &a, "k"), CACHE_LEAD);
    assert_false(a.reply.was_stored);
    land_with(&f, a.reply.flight, "[1]");
    assert_int_equal(drain(&f, 0), 1);
    done(&a);
    pass_s(&f, 1000);
    assert_int_equal(ask(&f, &a, "k"), CACHE_LEAD);
    assert_null(a.reply.entry);
    assert_true(a.reply.was_stored);
    land_with(&f, a.reply.flight, "[2]");
    assert_int_equal(drain(&f, 0), 1);
    done(&a);
    end(&f);
}

static void test_a_stop_cancels_refreshes_that_nobody_waits_for(void **state)
{
    struct fixture f;
    struct asker a, b;
    int call;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    pass_s(&f, 12);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    assert_int_equal(ask(&f, &b, "cold"), CACHE_LEAD);
    cache_cancel_refreshes(f.cache);
    assert_int_equal(cancels.count, 0); /* not submitted */
    flight_take_off(f.cache, a.reply.flight, &call);
    flight_take_off(f.cache, b.reply.flight, &call);
    cache_cancel_refreshes(f.cache);
    assert_int_equal(cancels.count, 1);
    assert_true(cancels.is_hang_up);
    land_with(&f, a.reply.flight, "[2]");
    land_with(&f, b.reply.flight, "[3]");
    assert_int_equal(drain(&f, 0), 1);
    done(&a);
    done(&b);
    end(&f);
}

static void test_a_sweep_in_steps_finds_all(void **state)
{
    struct fixture f;
    struct cache_facts facts;
    size_t cursor = 0, swept = 0;
    char key[16];

    (void)state;
    begin(&f);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        store(&f, key, "[1]");
    }
    cache_purge_group(f.cache, f.group);
    do
        swept += cache_sweep_step(f.cache, &cursor);
    while (cursor != 0);
    assert_int_equal(swept, 100);
    cache_read(f.cache, &facts);
    assert_int_equal(facts.entries, 0);
    end(&f);
}

static void test_a_purge_of_a_key_is_of_that_answer_alone(void **state)
{
    struct fixture f;
    struct asker held;
    struct cache_key key;

    (void)state;
    begin(&f);
    key = key_of(&f, "k");
    store(&f, "k", "[1]");
    store(&f, "l", "[2]");
    assert_int_equal(ask(&f, &held, "k"), CACHE_HIT);
    assert_true(cache_is_current(f.cache, held.reply.entry));
    assert_true(cache_purge_key(f.cache, &key));
    assert_false(cache_is_current(f.cache, held.reply.entry));
    assert_false(cache_purge_key(f.cache, &key));
    done(&held);
    expect_cold(&f, "k");
    expect(&f, "l", CACHE_HIT, "[2]");
    end(&f);
}

static void test_what_is_replaced_may_still_be_served_to_who_has_it(void **state)
{
    struct fixture f;
    struct asker held, a;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]");
    assert_int_equal(ask(&f, &held, "k"), CACHE_HIT);
    pass_s(&f, 12);
    assert_int_equal(ask(&f, &a, "k"), CACHE_REFRESH);
    land_with(&f, a.reply.flight, "[2]");
    assert_true(cache_is_current(f.cache, held.reply.entry));
    done(&a);
    done(&held);
    end(&f);
}

static void test_a_sweep_takes_back_the_memory_of_what_was_purged(void **state)
{
    enum { ENTRY_COUNT = 500 };
    struct fixture f;
    struct cache_facts before, full, after;

    (void)state;
    begin(&f);
    cache_read(f.cache, &before);
    for (int i = 0; i < ENTRY_COUNT; i++) {
        char name[16];

        (void)snprintf(name, sizeof name, "k%d", i);
        f.group = (uint32_t)i % 2;
        store(&f, name, "[1]");
    }
    cache_read(f.cache, &full);
    assert_int_equal(full.entries, ENTRY_COUNT);
    assert_int_equal(cache_sweep(f.cache), 0);

    cache_purge_group(f.cache, 1);
    assert_int_equal(cache_sweep(f.cache), ENTRY_COUNT / 2);
    cache_read(f.cache, &after);
    assert_int_equal(after.entries, ENTRY_COUNT / 2);
    assert_true(after.bytes < full.bytes);
    f.group = 0;
    expect(&f, "k0", CACHE_HIT, "[1]");

    cache_purge_group(f.cache, 0);
    assert_int_equal(cache_sweep(f.cache), ENTRY_COUNT / 2);
    cache_read(f.cache, &after);
    assert_int_equal(after.bytes, before.bytes);
    end(&f);
}

/* ---- what is to be seen ---- */

static void test_every_question_is_counted_as_what_it_met(void **state)
{
    struct fixture f;
    struct cache_facts facts;

    (void)state;
    begin(&f);
    store(&f, "k", "[1]"); /* a miss */
    expect(&f, "k", CACHE_HIT, "[1]");
    expect(&f, "k", CACHE_HIT, "[1]");
    pass_s(&f, 12);
    fail_refresh(&f, "k", CACHE_REFRESH, REASON_DEADLINE, true); /* stale */
    expect(&f, "k", CACHE_STALE, "[1]");
    expect_cold(&f, "l"); /* a miss */

    cache_read(f.cache, &facts);
    assert_int_equal(facts.lookups[CACHE_LOOKUP_HIT], 2);
    assert_int_equal(facts.lookups[CACHE_LOOKUP_STALE], 2);
    assert_int_equal(facts.lookups[CACHE_LOOKUP_MISS], 2);
    assert_int_equal(facts.entries, 1);
    assert_int_equal(facts.max_bytes, CACHE_BYTES);
    assert_string_equal(cache_lookup_name(CACHE_LOOKUP_HIT), "hit");
    assert_string_equal(cache_lookup_name(CACHE_LOOKUP_STALE), "stale");
    assert_string_equal(cache_lookup_name(CACHE_LOOKUP_MISS), "miss");
    end(&f);
}

static void test_bytes_stay_within_what_the_cache_was_given(void **state)
{
    static const size_t sizes_bytes[] = {0, 1, 100, 8192, 9000000, 40000000, 200000000};

    (void)state;
    for (size_t i = 0; i < sizeof sizes_bytes / sizeof *sizes_bytes; i++) {
        struct cache *cache = cache_create(sizes_bytes[i], 1, 1, note_cancel);
        struct cache_facts facts;

        assert_non_null(cache);
        cache_read(cache, &facts);
        assert_true(facts.bytes <= sizes_bytes[i]);
        assert_int_equal(facts.max_bytes, sizes_bytes[i]);
        assert_int_equal(facts.entries, 0);
        cache_destroy(cache);
    }
    cache_destroy(NULL);
}

static void test_a_cache_of_no_bytes_stores_nothing_and_still_makes_one_call_of_many(void **state)
{
    struct fixture f;
    struct asker a, b;

    (void)state;
    begin(&f);
    cache_destroy(f.cache);
    f.cache = cache_create(0, GROUP_COUNT, WORKER_COUNT, note_cancel);
    assert_non_null(f.cache);
    assert_int_equal(ask(&f, &a, "k"), CACHE_LEAD);
    assert_int_equal(ask(&f, &b, "k"), CACHE_JOIN);
    land_with(&f, a.reply.flight, "[1]");
    assert_int_equal(drain(&f, 0), 1);
    assert_string_equal(b.body, "[1]");
    assert_false(b.is_stored);
    expect_cold(&f, "k");
    end(&f);
}

static void test_callers_cannot_know_how_keys_are_hashed(void **state)
{
    struct cache *a = cache_create(0, 1, 1, note_cancel), *b = cache_create(0, 1, 1, note_cancel);

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    assert_true(cache_key_hash(a, "k", 1) == cache_key_hash(a, "k", 1));
    assert_true(cache_key_hash(a, "k", 1) != cache_key_hash(b, "k", 1));
    cache_destroy(a);
    cache_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cold_key_leads_and_is_a_hit_when_it_landed),
        cmocka_unit_test(test_an_answer_is_a_hit_until_its_own_lifetime_is_over),
        cmocka_unit_test(test_other_keys_and_other_groups_are_other_answers),
        cmocka_unit_test(test_past_its_lifetime_one_asker_refreshes_and_all_are_answered_at_once),
        cmocka_unit_test(test_a_failed_refresh_is_told_and_backs_off_a_second_then_two),
        cmocka_unit_test(test_a_refusal_at_the_door_is_told_and_does_not_back_off),
        cmocka_unit_test(test_a_success_forgets_the_failures_before_it),
        cmocka_unit_test(test_failed_refreshes_do_not_make_an_answer_younger),
        cmocka_unit_test(test_past_that_a_live_call_is_led_or_joined_with_the_stored_one_at_hand),
        cmocka_unit_test(test_while_a_tried_call_backs_off_the_stored_one_is_the_answer),
        cmocka_unit_test(test_a_callers_mistake_is_no_reason_for_a_stored_answer),
        cmocka_unit_test(test_a_callers_mistake_in_a_refresh_backs_off_and_leaves_the_entry),
        cmocka_unit_test(test_an_expired_answer_is_none),
        cmocka_unit_test(test_a_row_that_is_gone_takes_its_answer_with_it),
        cmocka_unit_test(test_an_answer_too_large_to_store_is_delivered_all_the_same),
        cmocka_unit_test(test_what_is_asked_for_again_outlives_what_is_asked_for_once),
        cmocka_unit_test(test_an_answer_being_sent_outlives_the_cache),
        cmocka_unit_test(test_entries_of_all_sizes_find_room),
        cmocka_unit_test(test_what_is_still_being_sent_counts_though_it_is_purged),
        cmocka_unit_test(test_without_memory_for_a_flight_the_asker_is_told_so),
        cmocka_unit_test(test_without_memory_for_an_answer_the_flight_has_failed),
        cmocka_unit_test(test_a_purge_of_a_group_is_of_all_its_answers_and_of_no_other),
        cmocka_unit_test(test_what_expired_is_fresh_no_more_and_stands_in_on_error),
        cmocka_unit_test(test_what_expired_does_not_back_off),
        cmocka_unit_test(test_what_is_too_old_for_anything_was_stored_all_the_same),
        cmocka_unit_test(test_a_stop_cancels_refreshes_that_nobody_waits_for),
        cmocka_unit_test(test_a_sweep_in_steps_finds_all),
        cmocka_unit_test(test_a_purge_of_a_key_is_of_that_answer_alone),
        cmocka_unit_test(test_what_is_replaced_may_still_be_served_to_who_has_it),
        cmocka_unit_test(test_a_sweep_takes_back_the_memory_of_what_was_purged),
        cmocka_unit_test(test_every_question_is_counted_as_what_it_met),
        cmocka_unit_test(test_bytes_stay_within_what_the_cache_was_given),
        cmocka_unit_test(test_a_cache_of_no_bytes_stores_nothing_and_still_makes_one_call_of_many),
        cmocka_unit_test(test_callers_cannot_know_how_keys_are_hashed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ensure.h"
#include "base/rand.h"
#include "cache/cache.h"
#include "cmocka_all.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

enum {
    THREAD_COUNT = 4,
    GROUP_COUNT = 2,
    KEY_COUNT = 256,
    HOT_KEY_COUNT = 16,
    STEP_COUNT = 100000,  /* of all threads */
    SLOT_COUNT = 16,      /* requests of one thread at once */
    ASKERS_EACH = 125,    /* of one cold key, on each thread */
    COLD_KEY_COUNT = 200, /* of which each is asked for by all */
    BODY_BYTES = 100,
    DISTINCT_KEYS_EACH = 250000,
    LARGEST_BODY_BYTES = 8 * 1024,
    CACHE_BYTES = 32 * 1024, /* fewer entries than keys: there is eviction, too */
};

static const struct cache_policy policy = {
    .max_age_us = 2000,
    .stale_while_revalidate_us = 2000,
    .stale_if_error_us = 6000,
};

/* What a dependency would work on. */
struct fake_call {
    _Atomic int cancel_count;
};

static void cancel(void *call, bool is_hang_up)
{
    (void)is_hang_up;
    atomic_fetch_add(&((struct fake_call *)call)->cancel_count, 1);
}

struct slot {
    struct waiter waiter; /* first: a waiter is a slot */
    struct entry *entry;  /* what may stand in */
    uint32_t key;
};

struct under_way {
    struct flight *flight; /* NULL: free */
    struct fake_call *call;
    uint32_t key;
};

struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    struct cache *cache;
    struct inbox *inboxes; /* of all */
    uint32_t index;
    struct rand rand;
    struct instant now;
    struct slot slots[SLOT_COUNT];
    struct under_way flights[SLOT_COUNT];
    int waited_count, told_count, left_count, flown_count, cancelled_count;
    int lead_count;
};

/* A key's bytes are its number, and so begins its body: a wrong answer is seen. */
static struct cache_key key_of(const struct cache *cache, const uint32_t *number)
{
    return (struct cache_key){
        .bytes = (const char *)number,
        .size_bytes = sizeof *number,
        .hash = cache_key_hash(cache, (const char *)number, sizeof *number),
        .group = *number % GROUP_COUNT,
    };
}

static void check_body(const struct entry *entry, uint32_t number)
{
    uint32_t found;

    ENSURE(entry->body_bytes == BODY_BYTES);
    memcpy(&found, entry->body, sizeof found);
    ENSURE(found == number);
}

static void told(void *ctx, struct waiter *waiter)
{
    struct worker *w = ctx;
    struct slot *slot = (struct slot *)waiter;
    const struct landing *landing = flight_landing(waiter->flight);

    if (landing->reason == REASON_NONE)
        check_body(landing->entry, slot->key);
    waiter_fini(waiter);
    entry_unref(slot->entry);
    slot->entry = NULL;
    w->told_count++;
}

static void drain(struct worker *w)
{
    struct inbox_item *next;

    for (struct inbox_item *i = inbox_drain(&w->inboxes[w->index]); i != NULL; i = next) {
        next = i->next;
        flight_deliver(i, told, w);
    }
}

static struct cache_question question_of(struct worker *w, const uint32_t *number)
{
    return (struct cache_question){
        .key = key_of(w->cache, number),
        .policy = &policy,
        .now = w->now,
        .lease_until = instant_after(w->now, 300),
        .worker = w->index,
        .inbox = &w->inboxes[w->index],
    };
}

/* Ends the flight in `u` as chance will have it. */
static void land(struct worker *w, struct under_way *u)
{
    static const enum reason ends[] = {REASON_NONE,   REASON_NONE,         REASON_NONE,
                                       REASON_NO_ROW, REASON_BREAKER_OPEN, REASON_DEADLINE};
    char body[BODY_BYTES] = {0};
    struct flight_report report = {
        .now = w->now,
        .random = rand_next(&w->rand),
        .policy = &policy,
        .reason = ends[rand_below(&w->rand, sizeof ends / sizeof *ends)],
        .body = body,
        .body_bytes = sizeof body,
    };

    report.was_tried = report.reason != REASON_BREAKER_OPEN;
    memcpy(body, &u->key, sizeof u->key);
    flight_land(w->cache, u->flight, &report);
    w->cancelled_count += atomic_load(&u->call->cancel_count);
    free(u->call); /* a cancel after the landing is a use after free */
    u->flight = NULL;
}

static void fly(struct worker *w, struct flight *flight, uint32_t number)
{
    struct under_way *u = w->flights;

    for (int i = 0; i < SLOT_COUNT; i++) {
        if (w->flights[i].flight == NULL)
            u = &w->flights[i];
    }
    if (u->flight != NULL)
        land(w, u);
    u->flight = flight;
    u->key = number;
    u->call = calloc(1, sizeof *u->call);
    ENSURE(u->call != NULL);
    flight_take_off(w->cache, flight, u->call);
    w->flown_count++;
}

static void leave(struct worker *w, struct slot *slot)
{
    flight_leave(w->cache, &slot->waiter, rand_below(&w->rand, 2) == 0);
    entry_unref(slot->entry);
    slot->entry = NULL;
    w->left_count++;
}

static void ask(struct worker *w, struct slot *slot, uint32_t number)
{
    struct cache_question question = question_of(w, &number);
    enum cache_verdict verdict;
    struct cache_reply reply;

    if (slot->waiter.flight != NULL)
        leave(w, slot);
    list_init(&slot->waiter.link);
    ENSURE(cache_ask(w->cache, &question, &slot->waiter, &verdict, &reply));
    slot->key = number;
    if (reply.entry != NULL)
        check_body(reply.entry, number);
    if (reply.flight != NULL)
        fly(w, reply.flight, number);
    if (slot->waiter.flight == NULL) {
        entry_unref(reply.entry);
        return;
    }
    slot->entry = reply.entry;
    w->waited_count++;
}

static void purge(struct worker *w, uint32_t number)
{
    struct cache_key key = key_of(w->cache, &number);

    if (rand_below(&w->rand, 2) == 0)
        (void)cache_purge_key(w->cache, &key);
    else
        cache_purge_group(w->cache, key.group);
    (void)cache_sweep(w->cache);
}

static void check_facts(const struct worker *w)
{
    struct cache_facts facts;

    cache_read(w->cache, &facts);
    ENSURE(facts.bytes <= facts.max_bytes);
}

static void step(struct worker *w)
{
    uint64_t slot = rand_below(&w->rand, SLOT_COUNT), dice = rand_below(&w->rand, 100);
    uint64_t keys = dice % 2 == 0 ? HOT_KEY_COUNT : KEY_COUNT;
    uint32_t number = (uint32_t)rand_below(&w->rand, keys);

    if (dice < 60)
        ask(w, &w->slots[slot], number);
    else if (dice < 75 && w->flights[slot].flight != NULL)
        land(w, &w->flights[slot]);
    else if (dice < 85 && w->slots[slot].waiter.flight != NULL)
        leave(w, &w->slots[slot]);
    else if (dice < 97)
        drain(w);
    else if (dice < 98)
        purge(w, number);
    else
        check_facts(w);
}

static void *run_at_random(void *ctx)
{
    struct worker *w = ctx;

    for (int i = 0; i < STEP_COUNT / THREAD_COUNT; i++) {
        w->now = instant_after(w->now, 10);
        step(w);
    }
    for (int i = 0; i < SLOT_COUNT; i++) {
        if (w->flights[i].flight != NULL)
            land(w, &w->flights[i]);
    }
    (void)pthread_barrier_wait(w->barrier); /* all have landed */
    drain(w);
    return NULL;
}

static size_t read_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    char line[128], *resident;

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file);
    (void)strtoul(line, &resident, 10); /* the first number is the whole size */
    return strtoul(resident, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Runs `body` on all threads at once, each with a worker of its own. Returns how large the process
 * was at the end of it. */
static size_t run_crowd(struct worker workers[THREAD_COUNT], size_t max_bytes,
                        void *(*body)(void *ctx))
{
    struct cache *cache = cache_create(max_bytes, GROUP_COUNT, THREAD_COUNT, cancel);
    struct inbox inboxes[THREAD_COUNT];
    pthread_barrier_t barrier;
    size_t resident_bytes;

    assert_non_null(cache);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREAD_COUNT), 0);
    for (uint32_t i = 0; i < THREAD_COUNT; i++) {
        inbox_init(&inboxes[i], NULL, NULL);
        workers[i] =
            (struct worker){.barrier = &barrier, .cache = cache, .inboxes = inboxes, .index = i};
        rand_init(&workers[i].rand, i + 1);
    }
    for (uint32_t i = 0; i < THREAD_COUNT; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, body, &workers[i]), 0);
    for (uint32_t i = 0; i < THREAD_COUNT; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);

    for (uint32_t i = 0; i < THREAD_COUNT; i++)
        assert_null(inbox_drain(&inboxes[i]));
    resident_bytes = read_resident_bytes();
    (void)pthread_barrier_destroy(&barrier);
    cache_destroy(cache);
    return resident_bytes;
}

static void test_whatever_happens_at_once_every_waiter_is_told_or_leaves_once(void **state)
{
    static struct worker workers[THREAD_COUNT];
    int flown = 0, cancelled = 0;

    (void)state;
    (void)run_crowd(workers, CACHE_BYTES, run_at_random);
    for (int i = 0; i < THREAD_COUNT; i++) {
        const struct worker *w = &workers[i];

        assert_int_equal(w->told_count + w->left_count, w->waited_count);
        for (int k = 0; k < SLOT_COUNT; k++)
            assert_null(w->slots[k].waiter.flight);
        flown += w->flown_count;
        cancelled += w->cancelled_count;
        assert_true(w->told_count > 0 && w->left_count > 0);
    }
    assert_true(cancelled > 0 && cancelled < flown);
}

/* ---- cold keys ---- */

static void cold_told(void *ctx, struct waiter *waiter)
{
    struct worker *w = ctx;

    w->told_count++;
    waiter_fini(waiter);
}

static void cold_drain(struct worker *w)
{
    struct inbox_item *next;

    for (struct inbox_item *i = inbox_drain(&w->inboxes[w->index]); i != NULL; i = next) {
        next = i->next;
        flight_deliver(i, cold_told, w);
    }
}

static void cold_land(struct worker *w, struct flight *flight)
{
    const struct flight_report report = {
        .now = w->now, .policy = &policy, .body = "x", .body_bytes = 1, .was_tried = true};

    flight_land(w->cache, flight, &report);
}

/* All threads ask for one key, which lands as soon as it is led (or when all have asked); and wait
 * until they were told. */
static void ask_for_cold_key(struct worker *w, uint32_t number, bool lands_at_once)
{
    struct cache_question question = question_of(w, &number);
    static _Thread_local struct waiter waiters[ASKERS_EACH];
    struct flight *led = NULL;

    (void)pthread_barrier_wait(w->barrier);
    for (int i = 0; i < ASKERS_EACH; i++) {
        enum cache_verdict verdict;
        struct cache_reply reply;

        waiters[i] = (struct waiter){.flight = NULL};
        list_init(&waiters[i].link);
        ENSURE(cache_ask(w->cache, &question, &waiters[i], &verdict, &reply));
        ENSURE(verdict == CACHE_LEAD || verdict == CACHE_JOIN || verdict == CACHE_HIT);
        w->waited_count += verdict != CACHE_HIT;
        w->lead_count += verdict == CACHE_LEAD;
        entry_unref(reply.entry);
        if (verdict == CACHE_LEAD && lands_at_once)
            cold_land(w, reply.flight);
        else if (verdict == CACHE_LEAD)
            led = reply.flight;
    }
    (void)pthread_barrier_wait(w->barrier);
    if (led != NULL)
        cold_land(w, led);
    (void)pthread_barrier_wait(w->barrier);
    cold_drain(w);
}

static void *ask_for_cold_keys(void *ctx)
{
    for (uint32_t number = 0; number < COLD_KEY_COUNT; number++)
        ask_for_cold_key(ctx, number, false);
    return NULL;
}

static void *ask_for_cold_keys_that_land(void *ctx)
{
    for (uint32_t number = 0; number < COLD_KEY_COUNT; number++)
        ask_for_cold_key(ctx, number, true);
    return NULL;
}

struct sums {
    int leads, waited, told;
};

static struct sums sum_up(const struct worker workers[THREAD_COUNT])
{
    struct sums sums = {0};

    for (int i = 0; i < THREAD_COUNT; i++) {
        sums.leads += workers[i].lead_count;
        sums.waited += workers[i].waited_count;
        sums.told += workers[i].told_count;
    }
    return sums;
}

static void test_of_500_askers_of_a_cold_key_on_four_threads_exactly_one_leads(void **state)
{
    static struct worker workers[THREAD_COUNT];
    struct sums sums;

    (void)state;
    (void)run_crowd(workers, (size_t)1 << 20, ask_for_cold_keys);
    sums = sum_up(workers);
    assert_int_equal(sums.leads, COLD_KEY_COUNT);
    assert_int_equal(sums.waited, COLD_KEY_COUNT * ASKERS_EACH * THREAD_COUNT);
    assert_int_equal(sums.told, sums.waited);
}

static void test_exactly_one_leads_also_while_it_lands(void **state)
{
    static struct worker workers[THREAD_COUNT];
    struct sums sums;

    (void)state;
    (void)run_crowd(workers, (size_t)1 << 20, ask_for_cold_keys_that_land);
    sums = sum_up(workers);
    assert_int_equal(sums.leads, COLD_KEY_COUNT);
    assert_int_equal(sums.told, sums.waited);
}

/* ---- the process's memory ---- */

/* Distinct keys, answers of all sizes, most of them small; a tenth is asked for again. */
static void *fill_with_distinct_keys(void *ctx)
{
    static const char body[LARGEST_BODY_BYTES];
    struct worker *w = ctx;
    const uint32_t first = w->index * DISTINCT_KEYS_EACH;

    for (uint32_t i = 0; i < DISTINCT_KEYS_EACH; i++) {
        bool is_again = rand_below(&w->rand, 10) == 0;
        uint32_t number = first + (is_again ? (uint32_t)rand_below(&w->rand, i + 1) : i);
        struct cache_question question = question_of(w, &number);
        struct waiter waiter = {.flight = NULL};
        enum cache_verdict verdict;
        struct cache_reply reply;
        uint64_t most_bytes = LARGEST_BODY_BYTES >> rand_below(&w->rand, 8);

        list_init(&waiter.link);
        ENSURE(cache_ask(w->cache, &question, &waiter, &verdict, &reply));
        entry_unref(reply.entry);
        if (verdict != CACHE_LEAD)
            continue;
        flight_land(w->cache, reply.flight,
                    &(struct flight_report){
                        .now = w->now,
                        .policy = &policy,
                        .body = body,
                        .body_bytes = (size_t)rand_below(&w->rand, most_bytes),
                    });
        cold_drain(w);
    }
    return NULL;
}

/* Sanitizers keep freed memory aside, and shadows: there the process's size says nothing. */
static void test_the_process_grows_by_no_more_than_the_limit_and_a_tenth(void **state)
{
    const size_t limit_bytes = (size_t)32 << 20;
    static struct worker workers[THREAD_COUNT];
    size_t before, most;

    (void)state;
    if (IS_SANITIZED)
        skip();
    before = read_resident_bytes();
    most = run_crowd(workers, limit_bytes, fill_with_distinct_keys);
    if (most - before > limit_bytes / 10 * 11)
        fail_msg("grew by %zu bytes", most - before);
    assert_true(most - before > limit_bytes / 10 * 9); /* it is the cache that is measured */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_process_grows_by_no_more_than_the_limit_and_a_tenth),
        cmocka_unit_test(test_whatever_happens_at_once_every_waiter_is_told_or_leaves_once),
        cmocka_unit_test(test_of_500_askers_of_a_cold_key_on_four_threads_exactly_one_leads),
        cmocka_unit_test(test_exactly_one_leads_also_while_it_lands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <string.h>
#include <sys/resource.h>

#include "base/rand.h"
#include "cache/store_internal.h"
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
    LIMIT_BYTES = 256 * 1024,
    LARGE_LIMIT_BYTES = 1024 * 1024, /* some two thousand entries */
    BODY_BYTES_MAX = 4096,
    RANDOM_BYTES_MAX = 1024,
    HOT_COUNT = 100,
    LARGE_BUCKET_COUNT = 2 * 1024 * 1024,
    LARGE_BUDGET_BYTES = LARGE_BUCKET_COUNT / 2 * 1024, /* 512 a bucket: 4096 pages of them */
    PAGES_MAX = 1500,
    /* Fewer under a sanitizer, where every byte is hashed slowly. The laws are the same. */
    INSERTION_COUNT = IS_SANITIZED ? 20000 : 1000000,
    SCAN_COUNT = IS_SANITIZED ? 20000 : 100000,
};

static const char body_bytes[BODY_BYTES_MAX];

struct fixture {
    struct store store;
    struct entry *gone; /* what left and was not looked at */
    struct rand rand;
};

/* A key of its own for each number, well spread. */
struct numbered_key {
    uint64_t number;
    struct cache_key key;
};

static struct cache_key *key_of(struct numbered_key *k, uint64_t number)
{
    struct rand spread;

    rand_init(&spread, number);
    k->number = number;
    k->key = (struct cache_key){
        .bytes = (const char *)&k->number,
        .size_bytes = sizeof k->number,
        .hash = rand_next(&spread),
    };
    return &k->key;
}

static void begin(struct fixture *f, size_t limit_bytes)
{
    *f = (struct fixture){.gone = NULL};
    rand_init(&f->rand, 42);
    assert_true(store_init(&f->store, limit_bytes));
}

static void let_go(struct fixture *f)
{
    entry_chain_unref(f->gone);
    f->gone = NULL;
}

static void end(struct fixture *f)
{
    let_go(f);
    store_fini(&f->store);
}

/* Borrowed: the store's. NULL: it was not taken. */
static struct entry *put(struct fixture *f, uint64_t number, size_t size_bytes)
{
    struct numbered_key k;
    struct entry *entry =
        entry_create(key_of(&k, number), body_bytes, size_bytes, (struct instant){0}, 1, 0);
    bool is_stored;

    assert_non_null(entry);
    is_stored = store_put(&f->store, entry, &f->gone);
    entry_unref(entry);
    return is_stored ? entry : NULL;
}

static struct entry *find(struct fixture *f, uint64_t number)
{
    struct numbered_key k;

    return store_find(&f->store, key_of(&k, number));
}

/* As a caller asks: a hit is counted, a miss is stored. */
static bool ask(struct fixture *f, uint64_t number, size_t size_bytes)
{
    struct entry *entry = find(f, number);

    if (entry != NULL)
        store_use(entry);
    else
        (void)put(f, number, size_bytes);
    let_go(f);
    return entry != NULL;
}

static void assert_whole(const struct fixture *f)
{
    size_t bytes = f->store.queues[STORE_SMALL].bytes + f->store.queues[STORE_MAIN].bytes;

    assert_true(f->store.bytes <= f->store.limit_bytes);
    assert_true(f->store.bytes > bytes); /* the tables */
}

/* ---- finding ---- */

static void test_what_was_put_is_found_until_it_is_removed(void **state)
{
    struct fixture f;
    struct entry *entry;

    (void)state;
    begin(&f, LIMIT_BYTES);
    assert_null(find(&f, 1));
    entry = put(&f, 1, 100);
    assert_ptr_equal(find(&f, 1), entry);
    assert_null(find(&f, 2));

    store_remove(&f.store, entry, &f.gone);
    assert_null(find(&f, 1));
    assert_ptr_equal(f.gone, entry);
    assert_int_equal(f.store.entry_count, 0);
    end(&f);
}

static void test_keys_with_the_same_hash_are_told_apart(void **state)
{
    struct cache_key a = {.bytes = "a", .size_bytes = 1, .hash = 5};
    struct cache_key b = {.bytes = "b", .size_bytes = 1, .hash = 5};
    struct cache_key longer = {.bytes = "ab", .size_bytes = 2, .hash = 5};
    struct cache_key other_group = {.bytes = "a", .size_bytes = 1, .hash = 5, .group = 1};
    struct entry *entry = entry_create(&a, "x", 1, (struct instant){0}, 1, 0);
    struct fixture f;

    (void)state;
    begin(&f, LIMIT_BYTES);
    assert_non_null(entry);
    assert_true(store_put(&f.store, entry, &f.gone));
    assert_ptr_equal(store_find(&f.store, &a), entry);
    assert_null(store_find(&f.store, &b));
    assert_null(store_find(&f.store, &longer));
    assert_null(store_find(&f.store, &other_group));
    entry_unref(entry);
    end(&f);
}

static void test_a_newer_answer_replaces_the_older_in_its_place(void **state)
{
    struct fixture f;
    struct entry *old, *new;

    (void)state;
    begin(&f, LIMIT_BYTES);
    old = put(&f, 1, 100);
    store_use(old);
    store_use(old);
    new = put(&f, 1, 200);

    assert_ptr_equal(find(&f, 1), new);
    assert_ptr_equal(f.gone, old);
    assert_int_equal(new->use_count, 2);
    assert_int_equal(new->queue, STORE_SMALL);
    assert_int_equal(f.store.entry_count, 1);
    assert_whole(&f);
    end(&f);
}

/* ---- bounds ---- */

static void test_an_entry_larger_than_half_is_not_stored(void **state)
{
    enum { SMALL_LIMIT_BYTES = 8192 };
    struct fixture f;
    struct entry *fits;
    size_t overhead_bytes;

    (void)state;
    begin(&f, SMALL_LIMIT_BYTES);
    fits = put(&f, 1, 1000);
    assert_non_null(fits);
    overhead_bytes = fits->cost_bytes - 1000;
    assert_non_null(put(&f, 2, SMALL_LIMIT_BYTES / 2 - overhead_bytes - 32));
    assert_null(put(&f, 3, SMALL_LIMIT_BYTES / 2 - 1));
    assert_ptr_equal(find(&f, 1), fits); /* and nothing had to go for it */
    assert_whole(&f);
    end(&f);
}

static void test_a_newer_answer_that_is_too_large_leaves_the_older(void **state)
{
    struct fixture f;
    struct entry *old;

    (void)state;
    begin(&f, 8192);
    old = put(&f, 1, 100);
    assert_null(put(&f, 1, 4096));
    assert_ptr_equal(find(&f, 1), old);
    end(&f);
}

static void test_a_budget_too_small_for_tables_stores_nothing(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 1000);
    assert_null(put(&f, 1, 1));
    assert_null(find(&f, 1));
    assert_int_equal(f.store.bytes, 0);
    end(&f);
}

static void test_bytes_never_exceed_the_limit(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, LIMIT_BYTES);
    for (int i = 0; i < INSERTION_COUNT; i++) {
        uint64_t number = rand_below(&f.rand, 20000);

        (void)ask(&f, number, (size_t)rand_below(&f.rand, RANDOM_BYTES_MAX));
        if (f.store.bytes > LIMIT_BYTES)
            fail_msg("%zu bytes after %d", f.store.bytes, i + 1);
    }
    assert_true(f.store.bytes > f.store.limit_bytes / 10 * 9); /* and they are made use of */
    assert_whole(&f);
    end(&f);
}

static void test_the_bytes_counted_are_those_of_the_entries_there(void **state)
{
    struct fixture f;
    size_t bytes, count = 0;

    (void)state;
    begin(&f, LIMIT_BYTES);
    bytes = f.store.bytes;
    for (uint64_t number = 0; number < 5000; number++)
        (void)ask(&f, number % 700, (size_t)rand_below(&f.rand, RANDOM_BYTES_MAX));
    for (size_t i = 0; i < f.store.bucket_count; i++) {
        for (struct entry *e = f.store.buckets[i]; e != NULL; e = e->next_in_bucket, count++)
            bytes += e->cost_bytes;
    }
    assert_int_equal(f.store.bytes, bytes);
    assert_int_equal(f.store.entry_count, count);
    end(&f);
}

/* ---- who goes ---- */

static void test_a_hit_only_counts_up_to_three(void **state)
{
    struct fixture f;
    struct entry *entry;

    (void)state;
    begin(&f, LIMIT_BYTES);
    entry = put(&f, 1, 100);
    (void)put(&f, 2, 100);
    for (int i = 0; i < 10; i++)
        store_use(entry);
    assert_int_equal(entry->use_count, 3);
    assert_int_equal(entry->queue, STORE_SMALL);
    assert_ptr_equal(f.store.queues[STORE_SMALL].entries.prev, &entry->queue_link); /* oldest */
    end(&f);
}

/* Numbers from `first` on, each asked for once, until `number` is gone or has moved. */
static void flood(struct fixture *f, uint64_t first, int count)
{
    for (int i = 0; i < count; i++)
        (void)ask(f, first + (uint64_t)i, 200);
}

static void test_what_was_asked_for_once_goes_and_what_was_again_moves_to_main(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, LIMIT_BYTES);
    (void)ask(&f, 1, 200);
    (void)ask(&f, 2, 200);
    assert_true(ask(&f, 2, 200));
    flood(&f, 1000, 3000);

    assert_null(find(&f, 1));
    assert_non_null(find(&f, 2));
    assert_int_equal(find(&f, 2)->queue, STORE_MAIN);
    assert_int_equal(find(&f, 2)->use_count, 0); /* there it has to prove itself anew */
    end(&f);
}

static void test_who_comes_back_while_remembered_goes_to_main_at_once(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, LIMIT_BYTES);
    (void)ask(&f, 1, 200);
    for (uint64_t next = 1000; find(&f, 1) != NULL; next++)
        (void)ask(&f, next, 200);

    assert_false(ask(&f, 1, 200));
    assert_int_equal(find(&f, 1)->queue, STORE_MAIN);
    end(&f);
}

/* Large entries: there are more places for ghosts than entries, and only time takes one away. */
static void test_ghosts_fade_after_as_many_as_there_are_entries(void **state)
{
    struct fixture f;
    uint64_t recent;

    (void)state;
    begin(&f, LIMIT_BYTES);
    for (uint64_t number = 0; number < 300; number++)
        (void)ask(&f, number, BODY_BYTES_MAX);
    assert_true(f.store.entry_count < 100);

    assert_false(ask(&f, 100, BODY_BYTES_MAX));
    assert_int_equal(find(&f, 100)->queue, STORE_SMALL);
    recent = 290 - f.store.entry_count; /* it went ten ghosts ago */
    assert_false(ask(&f, recent, BODY_BYTES_MAX));
    assert_int_equal(find(&f, recent)->queue, STORE_MAIN);
    end(&f);
}

static void test_main_lets_those_go_that_are_asked_for_no_more(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, LIMIT_BYTES);
    for (uint64_t first = 0; first < 8000; first += 200) {
        for (uint64_t i = 0; i < 400; i++) /* each set twice: it is worth main */
            (void)ask(&f, first + i % 200, 200);
    }
    assert_null(find(&f, 0));
    assert_non_null(find(&f, 7800));
    assert_whole(&f);
    end(&f);
}

/* Each twice, so that they are worth main. */
static void ask_twice(struct fixture *f, uint64_t first, int count)
{
    for (int i = 0; i < count; i++) {
        (void)ask(f, first + (uint64_t)i, 200);
        (void)ask(f, first + (uint64_t)i, 200);
    }
}

static int count_found(struct fixture *f, uint64_t first, int count, uint64_t step)
{
    int found_count = 0;

    for (int i = 0; i < count; i++)
        found_count += find(f, first + (uint64_t)i * step) != NULL;
    return found_count;
}

static void test_main_keeps_those_longer_that_were_asked_for_since(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, LIMIT_BYTES);
    ask_twice(&f, 0, 300);
    flood(&f, 100000, 600); /* all of them moved to main */
    assert_int_equal(count_found(&f, 0, 300, 1), 300);
    for (uint64_t even = 0; even < 300; even += 2)
        assert_true(ask(&f, even, 200));

    ask_twice(&f, 1000, 400); /* main has to let some go */
    assert_int_equal(count_found(&f, 0, 150, 2), 150);
    assert_true(count_found(&f, 1, 150, 2) < 75);
    end(&f);
}

static void test_a_newcomer_has_a_tenth_of_the_bytes_to_prove_itself(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, LIMIT_BYTES);
    ask_twice(&f, 0, 2000);  /* main would take all */
    flood(&f, 300000, 1000); /* and has what was asked for twice */
    (void)ask(&f, 5000, 200);
    flood(&f, 100000, 40);
    assert_non_null(find(&f, 5000));
    flood(&f, 200000, 400);
    assert_null(find(&f, 5000));
    end(&f);
}

/* Hits of a hundred hot keys among cold ones that come once: one cold key for each hot. */
static int count_hot_hits(struct fixture *f, int asked_count, bool is_scan)
{
    static uint64_t cold = 1000000;
    int hit_count = 0;

    for (int i = 0; i < asked_count; i++) {
        hit_count += ask(f, rand_below(&f->rand, HOT_COUNT), 200);
        if (is_scan)
            (void)ask(f, cold++, 200);
    }
    return hit_count;
}

static void test_a_scan_leaves_the_hot_ones_their_place(void **state)
{
    struct fixture f;
    int before, during, after;

    (void)state;
    begin(&f, LARGE_LIMIT_BYTES);
    (void)count_hot_hits(&f, 5000, false);
    before = count_hot_hits(&f, SCAN_COUNT, false);
    during = count_hot_hits(&f, SCAN_COUNT, true);
    assert_true(f.store.entry_count > 1000);
    assert_int_equal(before, SCAN_COUNT);
    assert_true(during >= before / 100 * 80);

    /* A scan at full length, with nobody asking for the hot ones meanwhile. */
    flood(&f, 50000000, SCAN_COUNT);
    after = 0;
    for (uint64_t i = 0; i < HOT_COUNT; i++)
        after += find(&f, i) != NULL;
    assert_true(after >= HOT_COUNT * 80 / 100);
    end(&f);
}

static void test_entries_that_all_were_used_still_make_room(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, LIMIT_BYTES);
    for (uint64_t number = 0; number < 3000; number++) {
        for (int i = 0; i < 4; i++)
            (void)ask(&f, number, 200);
        assert_non_null(find(&f, number));
    }
    assert_whole(&f);
    end(&f);
}

static void test_as_much_is_let_go_as_is_asked_for_or_all(void **state)
{
    struct fixture f;
    size_t before_bytes;

    (void)state;
    begin(&f, LIMIT_BYTES);
    assert_false(store_evict(&f.store, 1, &f.gone));
    for (uint64_t number = 0; number < 100; number++)
        (void)put(&f, number, 100);
    before_bytes = f.store.bytes;
    assert_true(store_evict(&f.store, 1000, &f.gone));
    assert_true(before_bytes - f.store.bytes >= 1000);
    assert_true(before_bytes - f.store.bytes < 2000);
    assert_null(find(&f, 0)); /* the oldest */
    assert_non_null(find(&f, 99));
    assert_true(store_evict(&f.store, LIMIT_BYTES, &f.gone));
    assert_int_equal(f.store.entry_count, 0);
    end(&f);
}

/* ---- sweeping ---- */

static bool has_odd_number(const void *ctx, const struct entry *entry)
{
    uint64_t number;

    (void)ctx;
    memcpy(&number, entry->key.bytes, sizeof number);
    return number % 2 == 1;
}

static void test_a_sweep_takes_the_dead_of_the_buckets_it_is_given(void **state)
{
    struct fixture f;
    size_t swept = 0;

    (void)state;
    begin(&f, LIMIT_BYTES);
    for (uint64_t number = 0; number < 200; number++)
        (void)put(&f, number, 100);
    for (size_t first = 0; first < f.store.bucket_count; first += 7)
        swept += store_sweep(&f.store, first, 7, has_odd_number, NULL, &f.gone);

    assert_int_equal(swept, 100);
    assert_int_equal(f.store.entry_count, 100);
    for (uint64_t number = 0; number < 200; number++)
        assert_int_equal(find(&f, number) != NULL, number % 2 == 0);
    end(&f);
}

static bool is_dead(const void *ctx, const struct entry *entry)
{
    (void)ctx;
    (void)entry;
    return true;
}

static long fault_count(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

static void test_a_large_table_with_little_in_it_is_swept_and_freed_unread(void **state)
{
    struct fixture f;
    size_t swept = 0;
    long before;

    (void)state;
    begin(&f, LARGE_BUDGET_BYTES);
    assert_int_equal(f.store.bucket_count, LARGE_BUCKET_COUNT);
    for (uint64_t number = 0; number < 100; number++)
        (void)put(&f, number, 100);
    before = fault_count();
    for (size_t first = 0; first < f.store.bucket_count; first += 1000)
        swept += store_sweep(&f.store, first, 1000, is_dead, NULL, &f.gone);
    assert_int_equal(swept, 100);
    for (uint64_t number = 0; number < 100; number++)
        (void)put(&f, number, 100);
    end(&f);
    /* A sanitizer writes down that the table is gone: about as many pages again. */
    assert_true(IS_SANITIZED || fault_count() - before < PAGES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_put_is_found_until_it_is_removed),
        cmocka_unit_test(test_keys_with_the_same_hash_are_told_apart),
        cmocka_unit_test(test_a_newer_answer_replaces_the_older_in_its_place),
        cmocka_unit_test(test_an_entry_larger_than_half_is_not_stored),
        cmocka_unit_test(test_a_newer_answer_that_is_too_large_leaves_the_older),
        cmocka_unit_test(test_a_budget_too_small_for_tables_stores_nothing),
        cmocka_unit_test(test_bytes_never_exceed_the_limit),
        cmocka_unit_test(test_the_bytes_counted_are_those_of_the_entries_there),
        cmocka_unit_test(test_a_hit_only_counts_up_to_three),
        cmocka_unit_test(test_what_was_asked_for_once_goes_and_what_was_again_moves_to_main),
        cmocka_unit_test(test_who_comes_back_while_remembered_goes_to_main_at_once),
        cmocka_unit_test(test_ghosts_fade_after_as_many_as_there_are_entries),
        cmocka_unit_test(test_main_lets_those_go_that_are_asked_for_no_more),
        cmocka_unit_test(test_main_keeps_those_longer_that_were_asked_for_since),
        cmocka_unit_test(test_a_newcomer_has_a_tenth_of_the_bytes_to_prove_itself),
        cmocka_unit_test(test_a_scan_leaves_the_hot_ones_their_place),
        cmocka_unit_test(test_entries_that_all_were_used_still_make_room),
        cmocka_unit_test(test_as_much_is_let_go_as_is_asked_for_or_all),
        cmocka_unit_test(test_a_sweep_takes_the_dead_of_the_buckets_it_is_given),
        cmocka_unit_test(test_a_large_table_with_little_in_it_is_swept_and_freed_unread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

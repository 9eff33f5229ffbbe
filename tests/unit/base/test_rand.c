#include "base/rand.h"
#include "cmocka_all.h"

enum { TRIES = 20000 };

static void test_the_same_seed_gives_the_same_numbers(void **state)
{
    struct rand a, b;

    (void)state;
    rand_init(&a, 42);
    rand_init(&b, 42);
    for (int i = 0; i < 100; i++)
        assert_true(rand_next(&a) == rand_next(&b));
}

/* The reference values of splitmix64 for the seed 0. */
static void test_the_numbers_are_splitmix64(void **state)
{
    struct rand r;

    (void)state;
    rand_init(&r, 0);
    assert_true(rand_next(&r) == UINT64_C(0xE220A8397B1DCDAF));
    assert_true(rand_next(&r) == UINT64_C(0x6E789E6AA1B965F4));
}

static void test_below_stays_below_and_reaches_all(void **state)
{
    int seen[7] = {0};
    struct rand r;

    (void)state;
    rand_init(&r, 1);
    for (int i = 0; i < TRIES; i++) {
        uint64_t n = rand_below(&r, 7);

        assert_true(n < 7);
        seen[n]++;
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], TRIES / 7 * 8 / 10, TRIES / 7 * 12 / 10);
}

static void test_jitter_stays_within_its_share_on_both_sides(void **state)
{
    int64_t least = INT64_MAX, most = 0;
    struct rand r;

    (void)state;
    rand_init(&r, 2);
    for (int i = 0; i < TRIES; i++) {
        int64_t us = rand_jitter_us(&r, 1000000, 10);

        least = us < least ? us : least;
        most = us > most ? us : most;
    }
    assert_in_range(least, 900000, 901000);
    assert_in_range(most, 1099000, 1100000);
}

static void test_no_jitter_is_the_span_itself(void **state)
{
    struct rand r;

    (void)state;
    rand_init_from_system(&r);
    assert_int_equal(rand_jitter_us(&r, 5000, 0), 5000);
    assert_int_equal(rand_jitter_us(&r, 0, 10), 0);
}

static void test_two_seeds_from_the_system_differ(void **state)
{
    struct rand a, b;

    (void)state;
    rand_init_from_system(&a);
    rand_init_from_system(&b);
    assert_true(rand_next(&a) != rand_next(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_seed_gives_the_same_numbers),
        cmocka_unit_test(test_the_numbers_are_splitmix64),
        cmocka_unit_test(test_below_stays_below_and_reaches_all),
        cmocka_unit_test(test_jitter_stays_within_its_share_on_both_sides),
        cmocka_unit_test(test_no_jitter_is_the_span_itself),
        cmocka_unit_test(test_two_seeds_from_the_system_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The private server starts, is asked, breaks, and comes back. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "crowd.h"
#include "http_client.h"
#include "private_postgres.h"

static int setup(void **state)
{
    *state = private_postgres_create();
    private_postgres_start(*state);
    return 0;
}

static int teardown(void **state)
{
    private_postgres_destroy(*state);
    return 0;
}

static void test_the_seed_is_there(void **state)
{
    char *conninfo = private_postgres_conninfo(*state, 0);

    assert_int_equal(private_postgres_number(*state, "SELECT count(*) FROM items"), 1000);
    assert_non_null(strstr(conninfo, "dbname=app user=app"));
    assert_int_equal(private_postgres_sessions(*state), 0);
    assert_int_equal(private_postgres_active(*state, "%"), 0);
    free(conninfo);
}

static void test_ticks_count_what_ran_though_it_was_rolled_back(void **state)
{
    private_postgres_exec(*state, "BEGIN");
    private_postgres_exec(*state, "SELECT tick('a'), tick('a')");
    private_postgres_exec(*state, "ROLLBACK");
    assert_int_equal(private_postgres_ticks(*state, "a"), 2);
    assert_int_equal(private_postgres_ticks(*state, "b"), 0);
}

static void test_it_comes_back_after_each_way_of_stopping(void **state)
{
    private_postgres_stop(*state, POSTGRES_FAST);
    private_postgres_start(*state);
    private_postgres_stop(*state, POSTGRES_IMMEDIATE);
    private_postgres_start(*state);
    private_postgres_kill9(*state);
    private_postgres_start(*state);
    assert_int_equal(private_postgres_number(*state, "SELECT 1"), 1);
}

static void test_a_frozen_server_accepts_and_says_nothing(void **state)
{
    int fd;

    private_postgres_freeze(*state);
    fd = raw_connect(private_postgres_port(*state));
    assert_true(fd >= 0);
    assert_true(raw_send_bytes(fd, "\0\0\0\010\004\322\026\057", 8)); /* SSLRequest */
    assert_false(raw_is_closed_within(fd, 150));
    private_postgres_thaw(*state);
    assert_int_equal(private_postgres_number(*state, "SELECT 1"), 1);
    raw_close(fd);
}

static void count_up(unsigned index, void *context)
{
    int64_t *seen = context;

    seen[index] = index + 1;
}

static void test_a_crowd_runs_everybody_and_percentiles_are_ranks(void **state)
{
    int64_t seen[100] = {0};
    double ratios[] = {3, 1, 2};

    (void)state;
    crowd_run(100, count_up, seen);
    assert_int_equal(crowd_percentile_us(seen, 100, 99), 99);
    assert_int_equal(crowd_median_us(seen, 100), 50);
    assert_true(crowd_median_ratio(ratios, 3) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_seed_is_there),
        cmocka_unit_test(test_ticks_count_what_ran_though_it_was_rolled_back),
        cmocka_unit_test(test_it_comes_back_after_each_way_of_stopping),
        cmocka_unit_test(test_a_frozen_server_accepts_and_says_nothing),
        cmocka_unit_test(test_a_crowd_runs_everybody_and_percentiles_are_ranks),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

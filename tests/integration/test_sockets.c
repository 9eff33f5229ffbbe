/* The sockets of libpq, which closes them when it likes: weir never names one to the kernel
 * afterwards. Runs the weir of tests/tools/strict_epoll.c. SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "cmocka_all.h"
#include "fault_proxy.h"
#include "http_client.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum { LIMIT_MS = 10000 };

struct house {
    struct private_postgres *pg;
    struct fault_proxy *proxy;
    struct weir_process *weir;
    uint64_t cut_count; /* waited for */
};

static const struct weir_file files[] = {
    {"rows.sql", "-- GET /rows\nSELECT repeat('x', 100) AS x FROM generate_series(1, 2000)\n"},
    {NULL, NULL},
};

static int setup(void **state)
{
    struct house *house = calloc(1, sizeof *house);
    char *conninfo, *dependencies;

    assert_non_null(house);
    house->pg = private_postgres_create();
    private_postgres_start(house->pg);
    house->proxy = fault_proxy_create(private_postgres_port(house->pg));
    conninfo = private_postgres_conninfo(house->pg, fault_proxy_port(house->proxy));
    dependencies = scratch_format("{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\","
                                  " \"breaker\": {\"mode\": \"disabled\"}}}",
                                  conninfo);
    house->weir = weir_create(&(struct weir_setup){.dependencies = dependencies, .files = files});
    weir_start(house->weir);
    free(dependencies);
    free(conninfo);
    *state = house;
    return 0;
}

/* It ends well: it did not die of a closed number. */
static int tear_down(void **state)
{
    struct house *house = *state;

    assert_int_equal(weir_stop(house->weir, 10000), 0);
    assert_int_equal(weir_log_count(house->weir, "strict epoll"), 0);
    weir_destroy(house->weir);
    fault_proxy_destroy(house->proxy);
    private_postgres_destroy(house->pg);
    free(house);
    return 0;
}

static int ask(const struct house *house)
{
    char *url = weir_url(house->weir, "/rows");
    struct http_answer answer = http_get(url);
    int status = answer.status;

    http_answer_fini(&answer);
    free(url);
    return status;
}

static bool is_answered(void *context)
{
    return ask(context) == 200;
}

/* One question may meet a session that was reset just now, and bring no byte to cut at. */
static bool is_cut(void *context)
{
    const struct house *house = context;

    (void)ask(house);
    return fault_proxy_counters(house->proxy).cut_count == house->cut_count;
}

static void test_a_session_cut_at_any_byte_is_forgotten_in_time(void **state)
{
    static const uint64_t sizes[] = {1, 8, 64, 300, 400, 600, 1000, 5000, 50000, 150000};
    struct house *house = *state;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t before = fault_proxy_counters(house->proxy).cut_count;

        assert_true(poll_until(is_answered, house, LIMIT_MS));
        if (i % 2 == 0)
            fault_proxy_reset_open(house->proxy); /* the cut meets a login */
        fault_proxy_cut_after(house->proxy, FAULT_DOWN, sizes[i], 1);
        house->cut_count = before + 1;
        assert_true(poll_until(is_cut, house, LIMIT_MS));
    }
    assert_true(poll_until(is_answered, house, LIMIT_MS));
}

static void test_an_idle_session_that_the_server_ends_is_forgotten(void **state)
{
    struct house *house = *state;

    for (int i = 0; i < 10; i++) {
        assert_true(poll_until(is_answered, house, LIMIT_MS));
        private_postgres_exec(house->pg, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                         " WHERE application_name = 'weir'");
    }
    assert_true(poll_until(is_answered, house, LIMIT_MS));
}

static void test_a_connection_that_is_refused_is_forgotten(void **state)
{
    struct house *house = *state;

    for (int i = 0; i < 4; i++) {
        fault_proxy_set_mode(house->proxy, i % 2 == 0 ? FAULT_REFUSE : FAULT_RESET);
        assert_int_equal(ask(house), 503);
    }
    assert_true(fault_proxy_counters(house->proxy).reset_count > 0);
    fault_proxy_set_mode(house->proxy, FAULT_PASS);
    assert_true(poll_until(is_answered, house, LIMIT_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_session_cut_at_any_byte_is_forgotten_in_time, setup,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_idle_session_that_the_server_ends_is_forgotten,
                                        setup, tear_down),
        cmocka_unit_test_setup_teardown(test_a_connection_that_is_refused_is_forgotten, setup,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The order in which things start, stop and come back does not matter: weir is there first, and
 * heals by itself. SPDX-License-Identifier: MIT */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cmocka_all.h"
#include "fault_proxy.h"
#include "figure.h"
#include "http_client.h"
#include "load.h"
#include "outage_times.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    PROBE_INTERVAL_MS = 1000,
    HEAL_MS = PROBE_INTERVAL_MS + 1000, /* from accepting to the first live answer */
    RECOVER_MS = 15000,
    RATE_PER_S = 200,
    LOAD_THREADS = 32
};

static const struct weir_file files[] = {
    {"item.sql", "-- GET /items/{id}\n-- @param id int4\n-- @result one\n-- @timeout 500ms\n"
                 "SELECT id, name FROM items WHERE id = :id\n"},
    {"one.sql", "-- GET /one\n-- @result value\nSELECT 1\n"},
    {NULL, NULL}};

struct house {
    struct private_postgres *pg;
    struct fault_proxy *proxy; /* NULL: none */
    struct weir_process *weir;
};

/* `conninfo` ends what stands behind host and port; `more` is more members of the dependency. */
static void house_open(struct house *house, const char *conninfo, const char *more)
{
    char *dependencies;

    house->proxy = fault_proxy_create(private_postgres_port(house->pg));
    dependencies = scratch_format(
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=127.0.0.1 port=%u %s\","
        "  \"connect_timeout\": \"1s\", \"bulkhead\": {\"max_concurrent\": 16},"
        "  \"probe\": {\"interval\": \"%dms\"}%s}}",
        fault_proxy_port(house->proxy), conninfo, PROBE_INTERVAL_MS, more);
    house->weir = weir_create(&(struct weir_setup){
        .dependencies = dependencies, .files = files, .log = "\"access\": \"none\""});
    free(dependencies);
}

static int setup(void **state)
{
    struct house *house = calloc(1, sizeof *house);

    assert_non_null(house);
    house->pg = private_postgres_create();
    *state = house;
    return 0;
}

static int tear_down(void **state)
{
    struct house *house = *state;

    assert_int_equal(weir_stop(house->weir, 10000), 0);
    weir_destroy(house->weir);
    fault_proxy_destroy(house->proxy);
    private_postgres_destroy(house->pg);
    free(house);
    return 0;
}

static int ask(const struct house *house, const char *path, char reason[24])
{
    char *url = weir_url(house->weir, path);
    struct http_answer answer = http_get(url);
    char *word = http_answer_reason(&answer);
    int status = answer.status;

    if (reason != NULL)
        (void)snprintf(reason, 24, "%s", word);
    free(word);
    http_answer_fini(&answer);
    free(url);
    return status;
}

static struct http_answer health(const struct house *house, const char *path)
{
    char *url = weir_admin_url(house->weir, path);
    struct http_answer answer = http_get(url);

    free(url);
    return answer;
}

static int health_status(const struct house *house, const char *path)
{
    struct http_answer answer = health(house, path);
    int status = answer.status;

    http_answer_fini(&answer);
    return status;
}

static bool is_healthy(void *context)
{
    return health_status(context, "/health") == 200;
}

static bool is_answering(void *context)
{
    return ask(context, "/one", NULL) == 200;
}

/* The verdict is a failure that names the dependency; the process itself is alive and ready. */
static void assert_fails_alive(struct house *house)
{
    struct http_answer answer = health(house, "/health");

    assert_int_equal(answer.status, 503);
    assert_non_null(strstr(answer.body, "\"primary\":[{\"status\":\"fail\""));
    http_answer_fini(&answer);
    assert_int_equal(health_status(house, "/health/live"), 200);
    assert_int_equal(health_status(house, "/health/ready"), 200);
}

/* Some probe has met the state of things. */
static void wait_for_failed_probe(struct house *house, int count)
{
    assert_true(poll_until(is_answering, house, 0) == false);
    for (int i = 0; i < count; i++) {
        double before = weir_metric(house->weir, "weir_probes_total", "result=\"failed\"");
        struct instant limit = instant_after(clock_now(), INT64_C(5000000));

        while (weir_metric(house->weir, "weir_probes_total", "result=\"failed\"") <= before &&
               !instant_reached(clock_now(), limit))
            pass_ms(20);
        assert_false(instant_reached(clock_now(), limit));
    }
}

/* Healthy by itself, with no caller who would try. */
static void assert_heals_alone(struct house *house, struct instant since, const char *what)
{
    struct noise_meter *meter = noise_meter_start();
    int64_t took_us;

    assert_true(poll_until(is_healthy, house, RECOVER_MS));
    took_us = instant_span_us(since, clock_now());
    figure_at_most_us(what, took_us, INT64_C(1000) * HEAL_MS, noise_meter_stop_us(meter));
    assert_int_equal(ask(house, "/one", NULL), 200);
    assert_true(weir_breaker_becomes(house->weir, "primary", "closed", 5000));
}

/* --- weir first --- */

static void test_weir_first_is_healthy_by_itself_when_the_database_comes(void **state)
{
    struct house *house = *state;
    char reason[24];

    house_open(house, "dbname=app user=app", "");
    weir_start(house->weir);
    assert_fails_alive(house);
    assert_int_equal(ask(house, "/one", reason), 503);
    assert_true(strcmp(reason, "connect-failed") == 0 || strcmp(reason, "connection-lost") == 0);
    wait_for_failed_probe(house, 2);
    assert_fails_alive(house);
    assert_true(fault_proxy_counters(house->proxy).upstream_failed_count > 0);
    private_postgres_start(house->pg);
    assert_heals_alone(house, (struct instant){outage_ready_us(house->pg)},
                       "weir first: healthy after the database accepts, no traffic");
}

/* A server in smart shutdown answers every new session with 57P03, as one in recovery does; it
 * stays so for as long as one session is open. */
static void test_a_database_that_is_not_ready_yet_is_waited_for(void **state)
{
    struct house *house = *state;

    house_open(house, "dbname=app user=app", "");
    private_postgres_start(house->pg);
    private_postgres_exec(house->pg, "SELECT 1");
    assert_int_equal(kill(private_postgres_pid(house->pg), SIGTERM), 0);
    weir_start(house->weir);
    wait_for_failed_probe(house, 2);
    assert_true(weir_log_has_within(house->weir, "57P03", 5000));
    assert_fails_alive(house);
    private_postgres_stop(house->pg, POSTGRES_FAST);
    private_postgres_start(house->pg);
    assert_heals_alone(house, (struct instant){outage_ready_us(house->pg)},
                       "57P03 first: healthy after the database accepts, no traffic");
}

static void test_a_database_that_does_not_exist_is_used_once_it_is_created(void **state)
{
    struct house *house = *state;

    house_open(house, "dbname=later user=app", "");
    private_postgres_start(house->pg);
    weir_start(house->weir);
    wait_for_failed_probe(house, 2);
    assert_true(weir_log_has_within(house->weir, "3D000", 5000));
    assert_fails_alive(house);
    private_postgres_exec(house->pg, "CREATE DATABASE later OWNER app");
    assert_heals_alone(house, clock_now(), "3D000 first: healthy after the database is created");
}

/* Wrong passwords lock accounts: one is tried once, and again only when the file has changed. */
static void test_a_wrong_password_is_tried_once_and_a_changed_file_at_once(void **state)
{
    struct house *house = *state;
    struct instant changed_at;
    size_t refused;

    house_open(house, "dbname=app user=secured", ", \"password_file\": \"password\"");
    weir_write(house->weir, "../password", "wrong\n");
    private_postgres_start(house->pg);
    weir_start(house->weir);
    assert_true(weir_log_has_within(house->weir, "28P01", 5000));
    assert_fails_alive(house);
    pass_ms((int64_t)4 * PROBE_INTERVAL_MS); /* the subject: four turns at which it is not tried */
    refused = private_postgres_log_count(house->pg, "password authentication failed");
    figure_count_is("logins tried with a refused password in 4 probe intervals", (int64_t)refused,
                    1);
    weir_write(house->weir, "../password", "first-Secret-77\n");
    changed_at = clock_now();
    assert_heals_alone(house, changed_at, "28P01 first: healthy after the password file changed");
    assert_int_equal(weir_log_count(house->weir, "first-Secret-77"), 0);
}

/* --- away and back, under load --- */

struct absence {
    const char *name;
    bool is_killed; /* kill -9 of all its processes; else stop -m fast */
    int64_t away_ms;
};

struct siege {
    struct instant begin, away_at;
    int64_t ready_us;
    struct load_records records; /* owned */
};

static void run_siege(struct house *house, const struct absence *absence, struct siege *siege)
{
    char *url = weir_url(house->weir, "/items/1");
    struct load *load = load_start(
        &(struct load_setup){.url = url, .rate_per_s = RATE_PER_S, .thread_count = LOAD_THREADS});

    siege->begin = clock_now();
    pass_ms(1000);
    siege->away_at = clock_now();
    if (absence->is_killed)
        private_postgres_kill9(house->pg);
    else
        private_postgres_stop(house->pg, POSTGRES_FAST);
    pass_ms(absence->away_ms);
    private_postgres_start(house->pg);
    siege->ready_us = outage_ready_us(house->pg);
    assert_true(poll_until(is_healthy, house, RECOVER_MS));
    assert_true(weir_breaker_becomes(house->weir, "primary", "closed", RECOVER_MS));
    pass_ms(1000);
    siege->records = load_stop(load);
    free(url);
}

/* No wait for the machine's noise beyond what was measured; no failure but those of an absence. */
static void check_records(const struct absence *absence, const struct siege *siege,
                          int64_t noise_us)
{
    struct load_filter all = {.from_us = siege->away_at.us, .to_us = INT64_MAX};
    struct load_filter live = {.from_us = siege->ready_us, .to_us = INT64_MAX, .status = 200};
    struct load_filter silent = {.to_us = INT64_MAX, .reason = ""};
    struct load_filter good = {.to_us = INT64_MAX, .status = 200};
    const struct load_record *first = load_first_answered(&siege->records, &live);
    char *what;

    (void)printf("%s\n", absence->name);
    load_print(&siege->records, &all);
    assert_non_null(first);
    what = scratch_format("%s: first live answer after the server accepts", absence->name);
    figure_at_most_us(what, first->start_us + first->elapsed_us - siege->ready_us,
                      INT64_C(1000) * HEAL_MS, noise_us);
    free(what);
    /* Whoever was not served got a problem that says why. */
    assert_int_equal(load_count(&siege->records, &silent), load_count(&siege->records, &good));
    what = scratch_format("%s: slowest answer with a deadline of 500 ms", absence->name);
    figure_at_most_us(what, load_percentile_us(&siege->records, &all, 100), INT64_C(550000),
                      noise_us);
    free(what);
}

static void check_absence(struct house *house, const struct absence *absence)
{
    struct siege siege = {0};
    struct noise_meter *meter;
    struct figure_noise *noise;
    double opened;

    house_open(house, "dbname=app user=app", "");
    private_postgres_start(house->pg);
    weir_start(house->weir);
    assert_true(poll_until(is_answering, house, RECOVER_MS));
    opened = weir_metric(house->weir, "weir_breaker_transitions_total", "to=\"open\"");
    meter = noise_meter_start();
    noise = figure_noise_start();
    run_siege(house, absence, &siege);
    assert_true(weir_metric(house->weir, "weir_breaker_transitions_total", "to=\"open\"") > opened);
    check_records(absence, &siege, noise_meter_stop_us(meter) + figure_noise_stop(noise).worst_us);
    assert_int_equal(ask(house, "/one", NULL), 200);
    load_records_fini(&siege.records);
}

static void test_a_server_killed_under_load_is_used_again_when_it_recovered(void **state)
{
    check_absence(*state, &(struct absence){.name = "kill -9", .is_killed = true, .away_ms = 1500});
}

static void test_a_fast_restart_under_load_costs_little_more_than_its_downtime(void **state)
{
    check_absence(*state, &(struct absence){.name = "restart -m fast"});
}

static void test_a_database_away_for_longer_is_used_again_when_it_is_back(void **state)
{
    check_absence(*state, &(struct absence){.name = "stopped for 5 s", .away_ms = 5000});
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_weir_first_is_healthy_by_itself_when_the_database_comes),
        TEST(test_a_database_that_is_not_ready_yet_is_waited_for),
        TEST(test_a_database_that_does_not_exist_is_used_once_it_is_created),
        TEST(test_a_wrong_password_is_tried_once_and_a_changed_file_at_once),
        TEST(test_a_server_killed_under_load_is_used_again_when_it_recovered),
        TEST(test_a_fast_restart_under_load_costs_little_more_than_its_downtime),
        TEST(test_a_database_away_for_longer_is_used_again_when_it_is_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

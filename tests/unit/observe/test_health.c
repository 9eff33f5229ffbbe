#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "cmocka_all.h"
#include "observe/health.h"

static const char *const endpoints[] = {"GET /books", "GET /books/{id}"};

static struct health_fact healthy(const char *name)
{
    return (struct health_fact){.name = name,
                                .is_hard = true,
                                .is_reached = true,
                                .state = BREAKER_CLOSED,
                                .mode = BREAKER_AUTO,
                                .endpoints = endpoints,
                                .endpoint_count = 2};
}

static void assert_document(const struct health_fact *facts, size_t count, bool is_draining,
                            bool is_brief, const char *expected)
{
    struct buffer b;

    buffer_init(&b, 65536);
    health_write(&b, facts, count, is_draining, is_brief);
    buffer_append_char(&b, '\0');
    assert_false(b.failed);
    assert_string_equal(b.data, expected);
    buffer_fini(&b);
}

static void test_the_verdict_follows_from_each_fact(void **state)
{
    static const struct {
        bool is_hard, is_reached;
        enum breaker_state breaker;
        enum breaker_mode mode;
        enum health_status expected;
    } cases[] = {
        {true, true, BREAKER_CLOSED, BREAKER_AUTO, HEALTH_PASS},
        {true, true, BREAKER_OPEN, BREAKER_AUTO, HEALTH_FAIL},
        {true, true, BREAKER_HALF_OPEN, BREAKER_AUTO, HEALTH_WARN},
        {true, false, BREAKER_CLOSED, BREAKER_AUTO, HEALTH_FAIL},
        {true, true, BREAKER_CLOSED, BREAKER_FORCED_OPEN, HEALTH_FAIL},
        {true, true, BREAKER_OPEN, BREAKER_DISABLED, HEALTH_PASS},
        {true, false, BREAKER_CLOSED, BREAKER_DISABLED, HEALTH_FAIL},
        {false, true, BREAKER_CLOSED, BREAKER_AUTO, HEALTH_PASS},
        {false, true, BREAKER_OPEN, BREAKER_AUTO, HEALTH_WARN},
        {false, true, BREAKER_HALF_OPEN, BREAKER_AUTO, HEALTH_WARN},
        {false, false, BREAKER_CLOSED, BREAKER_AUTO, HEALTH_WARN},
        {false, true, BREAKER_CLOSED, BREAKER_FORCED_OPEN, HEALTH_WARN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_fact fact = healthy("primary");

        fact.is_hard = cases[i].is_hard;
        fact.is_reached = cases[i].is_reached;
        fact.state = cases[i].breaker;
        fact.mode = cases[i].mode;
        assert_int_equal(health_of_dependency(&fact), cases[i].expected);
    }
}

static void test_the_worst_dependency_decides(void **state)
{
    struct health_fact facts[] = {healthy("a"), healthy("b"), healthy("c")};

    (void)state;
    assert_int_equal(health_overall(facts, 3, false), HEALTH_PASS);
    facts[1].is_hard = false;
    facts[1].state = BREAKER_OPEN;
    assert_int_equal(health_overall(facts, 3, false), HEALTH_WARN);
    facts[2].is_reached = false;
    assert_int_equal(health_overall(facts, 3, false), HEALTH_FAIL);
}

static void test_draining_fails_whatever_the_dependencies_say(void **state)
{
    struct health_fact fact = healthy("a");

    (void)state;
    assert_int_equal(health_overall(&fact, 1, true), HEALTH_FAIL);
    assert_int_equal(health_overall(NULL, 0, true), HEALTH_FAIL);
}

static void test_only_fail_is_a_503(void **state)
{
    (void)state;
    assert_int_equal(health_status_http(HEALTH_PASS), 200);
    assert_int_equal(health_status_http(HEALTH_WARN), 200);
    assert_int_equal(health_status_http(HEALTH_FAIL), 503);
}

static void test_the_brief_document_has_status_words_only(void **state)
{
    struct health_fact facts[] = {healthy("primary"), healthy("replica")};

    (void)state;
    facts[1].is_hard = false;
    facts[1].state = BREAKER_OPEN;
    facts[1].output = "connect-failed";
    facts[1].time_wall_us = 1;
    assert_document(facts, 2, false, true,
                    "{\"status\":\"warn\",\"checks\":{\"primary\":[{\"status\":\"pass\"}],"
                    "\"replica\":[{\"status\":\"warn\"}]}}");
    assert_document(NULL, 0, true, true, "{\"status\":\"fail\",\"checks\":{}}");
}

static void test_the_whole_document_says_what_why_and_since_when(void **state)
{
    struct health_fact fact = healthy("primary");

    (void)state;
    fact.state = BREAKER_OPEN;
    fact.output = "connect-failed";
    fact.time_wall_us = 1769860800123000;
    assert_document(
        &fact, 1, false, false,
        "{\"status\":\"fail\",\"version\":\"" WEIR_VERSION "\",\"checks\":{\"primary\":[{"
        "\"status\":\"fail\",\"componentType\":\"datastore\",\"observedValue\":\"open\","
        "\"affectedEndpoints\":[\"GET /books\",\"GET /books/{id}\"],"
        "\"output\":\"connect-failed\",\"time\":\"2026-01-31T12:00:00.123Z\"}]}}");
}

static void test_a_passing_dependency_has_no_output(void **state)
{
    struct health_fact fact = healthy("primary");

    (void)state;
    fact.output = "an old failure";
    fact.endpoint_count = 0;
    assert_document(&fact, 1, false, false,
                    "{\"status\":\"pass\",\"version\":\"" WEIR_VERSION
                    "\",\"checks\":{\"primary\":[{"
                    "\"status\":\"pass\",\"componentType\":\"datastore\","
                    "\"observedValue\":\"closed\",\"affectedEndpoints\":[]}]}}");
}

static void test_a_dependency_without_a_failure_still_says_why(void **state)
{
    static const struct {
        bool is_reached;
        enum breaker_state breaker;
        enum breaker_mode mode;
        const char *observed, *output;
    } cases[] = {
        {false, BREAKER_CLOSED, BREAKER_AUTO, "\"closed\"", "not reached yet"},
        {true, BREAKER_OPEN, BREAKER_AUTO, "\"open\"", "the breaker is open"},
        {true, BREAKER_HALF_OPEN, BREAKER_AUTO, "\"half-open\"", "lets trials through"},
        {true, BREAKER_CLOSED, BREAKER_FORCED_OPEN, "\"forced-open\"", "by an operator"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct health_fact fact = healthy("primary");
        struct buffer b;

        fact.is_reached = cases[i].is_reached;
        fact.state = cases[i].breaker;
        fact.mode = cases[i].mode;
        buffer_init(&b, 65536);
        health_write(&b, &fact, 1, false, false);
        buffer_append_char(&b, '\0');
        assert_non_null(strstr(b.data, cases[i].observed));
        assert_non_null(strstr(b.data, cases[i].output));
        buffer_fini(&b);
    }
}

static void test_draining_is_named_and_texts_are_escaped(void **state)
{
    struct health_fact fact = healthy("a\"b\\c\n");

    (void)state;
    fact.endpoint_count = 0;
    assert_document(&fact, 1, true, false,
                    "{\"status\":\"fail\",\"version\":\"" WEIR_VERSION
                    "\",\"output\":\"draining\",\"checks\":{\"a\\\"b\\\\c\\n\":[{"
                    "\"status\":\"pass\",\"componentType\":\"datastore\","
                    "\"observedValue\":\"closed\",\"affectedEndpoints\":[]}]}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_verdict_follows_from_each_fact),
        cmocka_unit_test(test_the_worst_dependency_decides),
        cmocka_unit_test(test_draining_fails_whatever_the_dependencies_say),
        cmocka_unit_test(test_only_fail_is_a_503),
        cmocka_unit_test(test_the_brief_document_has_status_words_only),
        cmocka_unit_test(test_the_whole_document_says_what_why_and_since_when),
        cmocka_unit_test(test_a_passing_dependency_has_no_output),
        cmocka_unit_test(test_a_dependency_without_a_failure_still_says_why),
        cmocka_unit_test(test_draining_is_named_and_texts_are_escaped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

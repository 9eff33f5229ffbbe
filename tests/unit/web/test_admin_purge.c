/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/complaint.h"
#include "cache/cache.h"
#include "cmocka_all.h"
#include "plan/endpoint.h"
#include "query/catalog.h"
#include "query/query_file_internal.h"
#include "web/admin_purge_internal.h"

enum { ROUTE_COUNT = 3, CACHE_BYTES = 1 << 20 };

static const char books[] = "-- GET /books\n-- @cache max-age=1m\nSELECT 1\n";
static const char book[] = "-- GET /books/{id}\n-- @param id int4\n-- @param lang text optional\n"
                           "-- @cache max-age=1m\nSELECT :id, :lang\n";
static const char reports[] = "-- GET /reports\nSELECT 1\n";

/* Two cached routes and one that is not. */
static const char *const files[ROUTE_COUNT] = {book, books, reports};

struct fixture {
    struct route routes[ROUTE_COUNT];
    const char *labels[ROUTE_COUNT];
    struct catalog catalog;
    struct cache *cache;
    struct inbox landed;
    struct purge_place place;
    struct purge purge;
    struct error err;
};

static void make_route(struct route *route, uint32_t id, const char *text)
{
    struct catalog_source source = {"fake", false};
    struct complaints complaints;
    struct query_file file = {.shown = "a.sql",
                              .text = text,
                              .size_bytes = strlen(text),
                              .sources = &source,
                              .source_count = 1,
                              .request_timeout_us = 5000000,
                              .complaints = &complaints,
                              .route = route};

    complaints_init(&complaints);
    assert_true(query_file_read(&file));
    assert_int_equal(complaints.error_count, 0);
    complaints_fini(&complaints);
    route->id = id;
}

static void cancel(void *call, bool is_hang_up)
{
    (void)call;
    (void)is_hang_up;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    for (uint32_t i = 0; i < ROUTE_COUNT; i++) {
        make_route(&f->routes[i], i, files[i]);
        f->labels[i] = f->routes[i].label;
    }
    f->catalog = (struct catalog){f->routes, ROUTE_COUNT};
    f->cache = cache_create(CACHE_BYTES, ROUTE_COUNT, 1, cancel);
    assert_non_null(f->cache);
    inbox_init(&f->landed, NULL, NULL);
    f->place = (struct purge_place){f->cache, &f->catalog, f->labels};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    cache_destroy(f->cache);
    for (int i = 0; i < ROUTE_COUNT; i++)
        route_fini(&f->routes[i]);
    free(f);
    return 0;
}

/* ---- what is stored ---- */

static void end_wait(void *ctx, struct waiter *waiter)
{
    (void)ctx;
    waiter_fini(waiter);
}

static void make_key(struct fixture *f, const struct route *route, const char *parameters,
                     struct cache_key *out)
{
    struct raw_text object = {parameters, strlen(parameters)};
    struct bound_params params;
    enum reason reason;

    assert_true(params_bind_object(route, object, &params, &reason, &f->err));
    assert_true(endpoint_key(f->cache, route, &params, out));
    bound_params_fini(&params);
}

/* As a request for these parameters, whose call came back with an answer. True: it was a hit. */
static bool ask(struct fixture *f, int index, const char *parameters)
{
    const struct route *route = &f->routes[index];
    struct cache_question question = {
        .policy = &route->cache, .now = {1000000}, .lease_until = {2000000}, .inbox = &f->landed};
    struct waiter waiter = {0};
    enum cache_verdict verdict;
    struct cache_reply reply;

    make_key(f, route, parameters, &question.key);
    list_init(&waiter.link);
    assert_true(cache_ask(f->cache, &question, &waiter, &verdict, &reply));
    free((void *)question.key.bytes);
    entry_unref(reply.entry);
    if (verdict == CACHE_HIT)
        return true;
    assert_int_equal(verdict, CACHE_LEAD);
    flight_take_off(f->cache, reply.flight, f);
    flight_land(f->cache, reply.flight,
                &(struct flight_report){.now = {1000000},
                                        .policy = &route->cache,
                                        .body = "[]",
                                        .body_bytes = 2,
                                        .was_tried = true,
                                        .detail = "",
                                        .constraint = ""});
    flight_deliver(inbox_drain(&f->landed), end_wait, NULL);
    return false;
}

static void store_four(struct fixture *f)
{
    assert_false(ask(f, 0, "{\"id\":1}"));
    assert_false(ask(f, 0, "{\"id\":2}"));
    assert_false(ask(f, 0, "{\"id\":1,\"lang\":\"de\"}"));
    assert_false(ask(f, 1, "{}"));
    assert_true(ask(f, 0, "{\"id\":1}"));
    assert_true(ask(f, 1, "{}"));
}

static enum reason purge(struct fixture *f, const char *body)
{
    return admin_purge(&f->place, (struct raw_text){body, strlen(body)}, &f->purge, &f->err);
}

/* ---- the tests ---- */

static void test_an_empty_object_forgets_all(void **state)
{
    struct fixture *f = *state;

    store_four(f);
    assert_int_equal(purge(f, " { } "), REASON_NONE);
    assert_int_equal(f->purge.entry_count, 4);
    assert_null(f->purge.route);
    assert_false(ask(f, 0, "{\"id\":1}"));
    assert_false(ask(f, 1, "{}"));
}

static void test_a_route_forgets_its_own_answers_alone(void **state)
{
    struct fixture *f = *state;

    store_four(f);
    assert_int_equal(purge(f, "{\"route\":\"GET /books/{id}\"}"), REASON_NONE);
    assert_int_equal(f->purge.entry_count, 3);
    assert_ptr_equal(f->purge.route, &f->routes[0]);
    assert_true(ask(f, 1, "{}"));
    assert_false(ask(f, 0, "{\"id\":2}"));
}

static void test_parameters_forget_one_answer(void **state)
{
    struct fixture *f = *state;

    store_four(f);
    assert_int_equal(purge(f, "{\"parameters\":{\"id\":1},\"route\":\"GET \\/books\\/{id}\"}"),
                     REASON_NONE);
    assert_int_equal(f->purge.entry_count, 1);
    assert_true(ask(f, 0, "{\"id\":2}"));
    assert_true(ask(f, 0, "{\"id\":1,\"lang\":\"de\"}"));
    assert_true(ask(f, 1, "{}"));
    assert_false(ask(f, 0, "{\"id\":1}"));
}

static void test_what_was_not_stored_counts_as_none(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(purge(f, "{}"), REASON_NONE);
    assert_int_equal(f->purge.entry_count, 0);
    assert_int_equal(purge(f, "{\"route\":\"GET /books/{id}\",\"parameters\":{\"id\":7}}"),
                     REASON_NONE);
    assert_int_equal(f->purge.entry_count, 0);
    assert_int_equal(purge(f, "{\"route\":\"GET /books\",\"parameters\":{}}"), REASON_NONE);
    assert_int_equal(f->purge.entry_count, 0);
}

static void test_a_wrong_wish_forgets_nothing_and_says_why(void **state)
{
    static const struct {
        const char *body;
        enum reason reason;
        const char *words; /* in the detail */
    } cases[] = {
        {"", REASON_BAD_BODY, "empty: {} purges all"},
        {"{", REASON_BAD_BODY, "not JSON"},
        {"{} {}", REASON_BAD_BODY, "not JSON"},
        {"\xff", REASON_BAD_BODY, "UTF-8"},
        {"[]", REASON_BAD_BODY, "must be an object: {} purges all"},
        {"null", REASON_BAD_BODY, "must be an object"},
        {"{\"rout\":\"GET /books\"}", REASON_BAD_BODY, "did you mean \"route\"?"},
        {"{\"everything\":{}}", REASON_BAD_BODY, "may have \"route\" and \"parameters\""},
        {"{\"\\u0000\":1}", REASON_BAD_BODY, "\"route\" and \"parameters\", and nothing else"},
        {"{\"\\ud800\":1}", REASON_BAD_BODY, "\"route\" and \"parameters\", and nothing else"},
        {"{\"route\":1}", REASON_BAD_BODY, "\"route\" must be a string"},
        {"{\"route\":null}", REASON_BAD_BODY, "\"route\" must be a string"},
        {"{\"route\":\"GET /books\",\"route\":\"GET /books\"}", REASON_BAD_BODY,
         "\"route\" is given more than once"},
        {"{\"parameters\":{\"id\":1}}", REASON_BAD_BODY, "\"route\" is missing"},
        {"{\"route\":\"GET /books\",\"parameters\":[]}", REASON_BAD_BODY,
         "\"parameters\" must be an object"},
        {"{\"route\":\"GET /books\",\"parameters\":null}", REASON_BAD_BODY,
         "\"parameters\" must be an object"},
        {"{\"route\":\"GET /book/{id}\"}", REASON_NOT_FOUND, "did you mean \"GET /books/{id}\"?"},
        {"{\"route\":\"/books\"}", REASON_NOT_FOUND, "there is no route \"/books\""},
        {"{\"route\":\"get /books\"}", REASON_NOT_FOUND, "did you mean \"GET /books\"?"},
        {"{\"route\":\"\"}", REASON_NOT_FOUND, "there is no route \"\""},
        {"{\"route\":\"GET /books\\u0000\"}", REASON_NOT_FOUND, "no such route"},
        {"{\"route\":\"GET /reports\"}", REASON_BAD_BODY, "GET /reports has no @cache"},
        {"{\"route\":\"GET /books/{id}\",\"parameters\":{}}", REASON_BAD_PARAMETER, "id"},
        {"{\"route\":\"GET /books/{id}\",\"parameters\":{\"id\":\"x\"}}", REASON_BAD_PARAMETER,
         "id"},
        {"{\"route\":\"GET /books/{id}\",\"parameters\":{\"id\":1,\"no\":2}}", REASON_BAD_PARAMETER,
         "no"},
    };
    struct fixture *f = *state;

    store_four(f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum reason reason = purge(f, cases[i].body);

        if (reason != cases[i].reason || strstr(f->err.text, cases[i].words) == NULL)
            fail_msg("%s: %s: %s", cases[i].body, reason_word(reason), f->err.text);
    }
    assert_true(ask(f, 0, "{\"id\":1}"));
    assert_true(ask(f, 0, "{\"id\":2}"));
    assert_true(ask(f, 0, "{\"id\":1,\"lang\":\"de\"}"));
    assert_true(ask(f, 1, "{}"));
}

static void test_a_value_is_never_said_again(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(
        purge(f, "{\"route\":\"GET /books/{id}\",\"parameters\":{\"id\":\"hunter2\"}}"),
        REASON_BAD_PARAMETER);
    assert_null(strstr(f->err.text, "hunter2"));
}

static void test_words_of_any_length_are_read_safely(void **state)
{
    struct fixture *f = *state;
    char name[1000], body[1100];

    memset(name, 'x', sizeof name);
    for (int size = 190; size < (int)sizeof name; size += 5) {
        (void)snprintf(body, sizeof body, "{\"route\":\"%.*s\"}", size, name);
        assert_int_equal(purge(f, body), REASON_NOT_FOUND);
        (void)snprintf(body, sizeof body, "{\"%.*s\":1}", size, name);
        assert_int_equal(purge(f, body), REASON_BAD_BODY);
    }
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_an_empty_object_forgets_all),
        WITH_FIXTURE(test_a_route_forgets_its_own_answers_alone),
        WITH_FIXTURE(test_parameters_forget_one_answer),
        WITH_FIXTURE(test_what_was_not_stored_counts_as_none),
        WITH_FIXTURE(test_a_wrong_wish_forgets_nothing_and_says_why),
        WITH_FIXTURE(test_a_value_is_never_said_again),
        WITH_FIXTURE(test_words_of_any_length_are_read_safely),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

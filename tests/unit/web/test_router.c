/* SPDX-License-Identifier: MIT */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cmocka_all.h"
#include "query/catalog.h"
#include "query/route.h"
#include "web/router.h"

enum { MAX_ROUTES = 8, MAX_PATH_SEGMENTS = 6 };

struct fixture {
    struct route routes[MAX_ROUTES];
    struct path_segment segments[MAX_ROUTES][MAX_PATH_SEGMENTS];
    char texts[MAX_ROUTES][64];
    struct catalog catalog;
    struct router *router;
    struct router_match match;
};

/* "/a/{b}" as the catalog would hold it. */
static void add(struct fixture *f, enum http_method method, const char *template)
{
    size_t i = f->catalog.route_count++;
    struct route *route = &f->routes[i];
    char *rest;

    (void)snprintf(f->texts[i], sizeof f->texts[i], "%s", template + 1);
    route->id = (uint32_t)i;
    route->method = method;
    route->segments = f->segments[i];
    for (char *text = strtok_r(f->texts[i], "/", &rest); text != NULL;
         text = strtok_r(NULL, "/", &rest)) {
        bool is_parameter = text[0] == '{';

        if (is_parameter) {
            text++;
            text[strlen(text) - 1] = '\0';
        }
        f->segments[i][route->segment_count++] =
            (struct path_segment){.text = text, .is_parameter = is_parameter};
    }
}

static int setup(void **state)
{
    static struct fixture f;

    memset(&f, 0, sizeof f);
    f.catalog.routes = f.routes;
    add(&f, METHOD_GET, "/books");              /* 0 */
    add(&f, METHOD_GET, "/books/{id}");         /* 1 */
    add(&f, METHOD_DELETE, "/books/{book}");    /* 2 */
    add(&f, METHOD_GET, "/books/new");          /* 3 */
    add(&f, METHOD_GET, "/books/new/covers");   /* 4 */
    add(&f, METHOD_GET, "/books/{id}/reviews"); /* 5 */
    add(&f, METHOD_GET, "/");                   /* 6 */
    add(&f, METHOD_GET, "/caf\xc3\xa9");        /* 7 */
    f.router = router_create(&f.catalog);
    *state = &f;
    return f.router == NULL;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    router_destroy(f->router);
    return 0;
}

static bool find(struct fixture *f, const char *path)
{
    return router_find(f->router, path, strlen(path), &f->match);
}

/* The route of a GET; -1: none. */
static int get(struct fixture *f, const char *path)
{
    if (!find(f, path) || f->match.routes[METHOD_GET] == NULL)
        return -1;
    return (int)f->match.routes[METHOD_GET]->id;
}

static void test_a_literal_beats_a_parameter(void **state)
{
    assert_int_equal(get(*state, "/books/42"), 1);
    assert_int_equal(get(*state, "/books/new"), 3);
}

static void test_a_literal_that_leads_nowhere_gives_way_to_a_parameter(void **state)
{
    assert_int_equal(get(*state, "/books/new/covers"), 4);
    assert_int_equal(get(*state, "/books/new/reviews"), 5);
    assert_int_equal(get(*state, "/books/new/nothing"), -1);
}

static void
test_methods_of_one_path_share_a_match_whatever_their_parameters_are_called(void **state)
{
    struct fixture *f = *state;

    assert_true(find(f, "/books/42"));
    assert_int_equal(f->match.routes[METHOD_GET]->id, 1);
    assert_int_equal(f->match.routes[METHOD_DELETE]->id, 2);
    assert_null(f->match.routes[METHOD_POST]);
}

static void test_a_trailing_slash_is_another_path(void **state)
{
    assert_int_equal(get(*state, "/books"), 0);
    assert_int_equal(get(*state, "/books/"), -1);
    assert_int_equal(get(*state, "/books/42/"), -1);
    assert_int_equal(get(*state, "//books"), -1);
}

static void test_segments_come_back_raw(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(get(f, "/books/a%2Fb+c%zz"), 1);
    assert_int_equal(f->match.segment_count, 2);
    assert_int_equal(f->match.segments[1].size_bytes, 10);
    assert_memory_equal(f->match.segments[1].data, "a%2Fb+c%zz", 10);
}

static void test_literals_are_compared_decoded(void **state)
{
    assert_int_equal(get(*state, "/%62ooks"), 0);
    assert_int_equal(get(*state, "/caf%C3%A9"), 7);
    assert_int_equal(get(*state, "/caf\xc3\xa9"), 7);
    assert_int_equal(get(*state, "/books%00"), -1);
    assert_int_equal(get(*state, "/books%zz"), -1);
    assert_int_equal(get(*state, "/book"), -1);
    assert_int_equal(get(*state, "/bookss"), -1);
}

static void test_the_root_is_a_path(void **state)
{
    assert_int_equal(get(*state, "/"), 6);
    assert_int_equal(get(*state, "*"), -1);
    assert_false(
        router_find(((struct fixture *)*state)->router, "", 0, &((struct fixture *)*state)->match));
}

static void test_more_segments_than_any_route_has_are_no_path(void **state)
{
    char path[200] = "";

    for (size_t i = 0; i < 80; i++)
        memcpy(path + 2 * i, "/a", 3);
    assert_int_equal(get(*state, path), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_literal_beats_a_parameter),
        cmocka_unit_test(test_a_literal_that_leads_nowhere_gives_way_to_a_parameter),
        cmocka_unit_test(
            test_methods_of_one_path_share_a_match_whatever_their_parameters_are_called),
        cmocka_unit_test(test_a_trailing_slash_is_another_path),
        cmocka_unit_test(test_segments_come_back_raw),
        cmocka_unit_test(test_literals_are_compared_decoded),
        cmocka_unit_test(test_the_root_is_a_path),
        cmocka_unit_test(test_more_segments_than_any_route_has_are_no_path),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

#include <string.h>

#include "cmocka_all.h"
#include "query/route.h"

static void test_methods_are_read_as_they_are_written(void **state)
{
    enum http_method method;

    (void)state;
    for (unsigned i = 0; i < METHOD_COUNT; i++) {
        const char *name = http_method_name((enum http_method)i);

        assert_true(http_method_parse(name, strlen(name), &method));
        assert_int_equal(method, i);
    }
    assert_false(http_method_parse("get", 3, &method));
    assert_false(http_method_parse("GE", 2, &method));
    assert_false(http_method_parse("GETS", 4, &method));
    assert_false(http_method_parse("", 0, &method));
    assert_false(http_method_parse("OPTIONS", 7, &method));
}

static void test_results_have_the_names_of_the_contract(void **state)
{
    (void)state;
    assert_string_equal(result_kind_name(RESULT_MANY), "many");
    assert_string_equal(result_kind_name(RESULT_ONE), "one");
    assert_string_equal(result_kind_name(RESULT_VALUE), "value");
    assert_string_equal(result_kind_name(RESULT_EXEC), "exec");
}

static void test_an_empty_route_can_be_given_up(void **state)
{
    struct route route = {0};

    (void)state;
    route_fini(&route);
    route_fini(&route);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods_are_read_as_they_are_written),
        cmocka_unit_test(test_results_have_the_names_of_the_contract),
        cmocka_unit_test(test_an_empty_route_can_be_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

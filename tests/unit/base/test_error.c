#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cmocka_all.h"

static void test_an_error_says_what_it_was_told(void **state)
{
    struct error err;

    (void)state;
    assert_false(error_set(&err, "port %d is taken", 80));
    assert_string_equal(err.text, "port 80 is taken");
}

static void test_each_level_up_puts_where_before_what(void **state)
{
    struct error err;

    (void)state;
    (void)error_set(&err, "refused");
    assert_false(error_prefix(&err, "connect"));
    assert_false(error_prefix(&err, "query '%s'", "orders"));
    assert_string_equal(err.text, "query 'orders': connect: refused");
}

static void test_text_that_is_too_long_is_cut(void **state)
{
    struct error err;
    char text[1000];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)error_set(&err, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    (void)error_prefix(&err, "where");
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_memory_equal(err.text, "where: xxx", 10);
    (void)error_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void test_every_errno_has_words(void **state)
{
    (void)state;
    assert_string_equal(error_of_errno(ENOENT), "No such file or directory");
    assert_string_equal(error_of_errno(ECONNREFUSED), "Connection refused");
    assert_string_equal(error_of_errno(-1), "unknown error");
    assert_string_equal(error_of_errno(99999), "unknown error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_error_says_what_it_was_told),
        cmocka_unit_test(test_each_level_up_puts_where_before_what),
        cmocka_unit_test(test_text_that_is_too_long_is_cut),
        cmocka_unit_test(test_every_errno_has_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <string.h>

#include "cmocka_all.h"
#include "query/array_literal.h"

static void test_no_elements_are_an_empty_array(void **state)
{
    char out[8];
    struct array_literal a;

    (void)state;
    array_literal_begin(&a, out, ',');
    assert_ptr_equal(array_literal_end(&a), out + 3);
    assert_string_equal(out, "{}");
}

static void test_whatever_an_element_holds_is_data(void **state)
{
    char out[64];
    struct array_literal a;

    (void)state;
    array_literal_begin(&a, out, ',');
    array_literal_add(&a, "NULL", 4);
    array_literal_add_null(&a);
    array_literal_add(&a, "", 0);
    array_literal_add(&a, "a,b{}", 5);
    array_literal_add(&a, "\"\\", 2);
    (void)array_literal_end(&a);
    assert_string_equal(out, "{\"NULL\",NULL,\"\",\"a,b{}\",\"\\\"\\\\\"}");
}

static void test_the_delimiter_is_the_type_s(void **state)
{
    char out[64];
    struct array_literal a;

    (void)state;
    array_literal_begin(&a, out, ';');
    array_literal_add(&a, "1", 1);
    array_literal_add(&a, "2", 1);
    (void)array_literal_end(&a);
    assert_string_equal(out, "{\"1\";\"2\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_elements_are_an_empty_array),
        cmocka_unit_test(test_whatever_an_element_holds_is_data),
        cmocka_unit_test(test_the_delimiter_is_the_type_s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

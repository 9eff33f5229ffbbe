#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/complaint.h"
#include "cmocka_all.h"

static void expect_printed(struct complaints *c, const char *want)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    complaints_print(c, out);
    (void)fclose(out);
    assert_string_equal(text, want);
    free(text);
}

static void test_no_complaint_prints_nothing(void **state)
{
    struct complaints c;

    (void)state;
    complaints_init(&c);
    assert_int_equal(c.error_count, 0);
    expect_printed(&c, "");
    complaints_fini(&c);
}

static void test_complaints_are_printed_by_file_line_and_column(void **state)
{
    struct complaints c;

    (void)state;
    complaints_init(&c);
    complaints_add(&c, "b.sql", 1, 1, "first of b");
    complaints_add(&c, "a.sql", 10, 2, "tenth line");
    complaints_add(&c, "a.sql", 9, 5, "ninth, column %d", 5);
    complaints_add(&c, "a.sql", 9, 1, "ninth");
    expect_printed(&c, "a.sql:9:1: ninth\n"
                       "a.sql:9:5: ninth, column 5\n"
                       "a.sql:10:2: tenth line\n"
                       "b.sql:1:1: first of b\n");
    complaints_fini(&c);
}

static void test_warnings_are_marked_and_are_no_errors(void **state)
{
    struct complaints c;

    (void)state;
    complaints_init(&c);
    complaints_warn(&c, "a.sql", 2, 1, "odd");
    assert_int_equal(c.error_count, 0);
    complaints_add(&c, "a.sql", 1, 1, "wrong");
    assert_int_equal(c.error_count, 1);
    assert_int_equal(c.count, 2);
    expect_printed(&c, "a.sql:1:1: wrong\na.sql:2:1: warning: odd\n");
    complaints_fini(&c);
}

static void test_a_complaint_of_a_whole_file_is_at_its_start(void **state)
{
    struct complaints c;

    (void)state;
    complaints_init(&c);
    complaints_add(&c, "weir.json", 0, 0, "no such file");
    expect_printed(&c, "weir.json:1:1: no such file\n");
    complaints_fini(&c);
}

static void test_the_file_name_and_text_are_copies(void **state)
{
    char name[] = "a.sql", text[] = "text";
    struct complaints c;

    (void)state;
    complaints_init(&c);
    complaints_add(&c, name, 1, 1, "%s", text);
    memset(name, 'x', sizeof name - 1);
    memset(text, 'x', sizeof text - 1);
    expect_printed(&c, "a.sql:1:1: text\n");
    complaints_fini(&c);
}

static void test_control_bytes_do_not_reach_a_terminal(void **state)
{
    struct complaints c;

    (void)state;
    complaints_init(&c);
    complaints_add(&c, "odd\nname.sql", 1, 1, "no setting is called @%s", "a\x1b[31m\x7f\r\tb");
    complaints_add(&c, "\xc3\xa9.sql", 1, 1, "\xc3\xa9 \\ stays");
    expect_printed(&c, "odd?name.sql:1:1: no setting is called @a?[31m???b\n"
                       "\xc3\xa9.sql:1:1: \xc3\xa9 \\ stays\n");
    complaints_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_complaint_prints_nothing),
        cmocka_unit_test(test_complaints_are_printed_by_file_line_and_column),
        cmocka_unit_test(test_warnings_are_marked_and_are_no_errors),
        cmocka_unit_test(test_a_complaint_of_a_whole_file_is_at_its_start),
        cmocka_unit_test(test_the_file_name_and_text_are_copies),
        cmocka_unit_test(test_control_bytes_do_not_reach_a_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

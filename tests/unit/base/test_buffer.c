#include <string.h>

#include "base/buffer.h"
#include "cmocka_all.h"

static void expect(const struct buffer *b, const char *want)
{
    assert_false(b->failed);
    assert_int_equal(b->size_bytes, strlen(want));
    assert_memory_equal(b->data, want, b->size_bytes);
}

static void test_appends_add_up(void **state)
{
    struct buffer b;

    (void)state;
    buffer_init(&b, 1000);
    buffer_append(&b, "ab", 2);
    buffer_append(&b, NULL, 0);
    buffer_append_char(&b, 'c');
    buffer_append_text(&b, "def");
    buffer_append_format(&b, "%d%s", 42, "!");
    expect(&b, "abcdef42!");
    buffer_fini(&b);
}

static void fill(struct buffer *b, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        buffer_append_char(b, (char)('a' + i % 26));
}

static void test_growth_keeps_what_was_there(void **state)
{
    (void)state;
    for (int is_mapped = 0; is_mapped <= 1; is_mapped++) {
        struct buffer b;

        if (is_mapped)
            buffer_init_mapped(&b, 1 << 20);
        else
            buffer_init(&b, 1 << 20);
        fill(&b, 300000);
        assert_int_equal(b.size_bytes, 300000);
        for (size_t i = 0; i < b.size_bytes; i++)
            assert_int_equal(b.data[i], 'a' + i % 26);
        buffer_fini(&b);
    }
}

static void test_the_limit_is_exact_and_failure_lasts(void **state)
{
    static const size_t limits[] = {0, 1, 100, 256, 300, 65536, 70000};

    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct buffer b;

        buffer_init(&b, limits[i]);
        fill(&b, limits[i]);
        assert_false(b.failed);
        buffer_append_char(&b, 'x');
        assert_true(b.failed);
        assert_int_equal(b.size_bytes, limits[i]);
        buffer_append(&b, "", 1);
        buffer_append_format(&b, "%d", 1);
        assert_int_equal(b.size_bytes, limits[i]);
        buffer_fini(&b);
    }
}

static void test_a_piece_that_does_not_fit_is_left_out_whole(void **state)
{
    struct buffer b;

    (void)state;
    buffer_init(&b, 5);
    buffer_append_text(&b, "abc");
    buffer_append_text(&b, "def");
    assert_true(b.failed);
    assert_int_equal(b.size_bytes, 3);
    buffer_fini(&b);
}

static void test_clear_forgets_contents_and_failure(void **state)
{
    struct buffer b;

    (void)state;
    buffer_init(&b, 3);
    buffer_append_text(&b, "long text");
    buffer_clear(&b);
    buffer_append_text(&b, "new");
    expect(&b, "new");
    buffer_fini(&b);
}

static void take_from(struct buffer *b)
{
    struct body body;

    buffer_append_text(b, "body");
    body = buffer_take(b);
    assert_int_equal(body.size_bytes, 4);
    assert_memory_equal(body.data, "body", 4);
    assert_int_equal(b->size_bytes, 0);
    assert_null(b->data);
    body_fini(&body);
    assert_null(body.data);
    body_fini(&body); /* an empty one is fine */

    buffer_append_text(b, "again");
    expect(b, "again");
    buffer_fini(b);
}

static void test_take_hands_over_the_memory(void **state)
{
    struct buffer b;

    (void)state;
    buffer_init(&b, 100000);
    take_from(&b);
    buffer_init_mapped(&b, 100000);
    take_from(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_appends_add_up),
        cmocka_unit_test(test_growth_keeps_what_was_there),
        cmocka_unit_test(test_the_limit_is_exact_and_failure_lasts),
        cmocka_unit_test(test_a_piece_that_does_not_fit_is_left_out_whole),
        cmocka_unit_test(test_clear_forgets_contents_and_failure),
        cmocka_unit_test(test_take_hands_over_the_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

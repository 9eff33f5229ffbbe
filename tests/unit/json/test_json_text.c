#include <string.h>

#include "base/buffer.h"
#include "cmocka_all.h"
#include "json/json_text.h"

static void expect(const char *text, size_t size_bytes, const char *want)
{
    struct buffer b;

    buffer_init(&b, 100000);
    json_text_append(&b, text, size_bytes);
    if (b.failed || b.size_bytes != strlen(want) || memcmp(b.data, want, b.size_bytes) != 0)
        fail_msg("got %.*s, not %s", (int)b.size_bytes, b.data, want);
    buffer_fini(&b);
}

static void test_plain_text_gets_quotes_only(void **state)
{
    (void)state;
    expect("", 0, "\"\"");
    expect("a", 1, "\"a\"");
    expect("a longer text than eight / bytes", 32, "\"a longer text than eight / bytes\"");
    expect("\x7F \xC3\xA9 \xF0\x9F\x98\x80", 9, "\"\x7F \xC3\xA9 \xF0\x9F\x98\x80\"");
}

static void test_the_short_escapes_are_used_where_there_are(void **state)
{
    (void)state;
    expect("\b\f\n\r\t\"\\", 7, "\"\\b\\f\\n\\r\\t\\\"\\\\\"");
}

static void test_other_control_bytes_are_escaped_by_number(void **state)
{
    (void)state;
    expect("\0", 1, "\"\\u0000\"");
    expect("\x01\x0B\x1F", 3, "\"\\u0001\\u000b\\u001f\"");
}

/* Text is looked at eight bytes a step: each place within a step, and each byte. */
static void test_every_byte_is_seen_at_every_place(void **state)
{
    (void)state;
    for (size_t at = 0; at < 17; at++) {
        for (int c = 0; c < 256; c++) {
            bool is_escaped = c < 0x20 || c == '"' || c == '\\';
            char text[17];
            struct buffer b;

            memset(text, 'x', sizeof text);
            text[at] = (char)c;
            buffer_init(&b, 100);
            json_text_append(&b, text, sizeof text);
            assert_int_equal(b.size_bytes > sizeof text + 2, is_escaped);
            assert_memory_equal(b.data + 1, text, at);
            assert_memory_equal(b.data + b.size_bytes - (sizeof text - at), text + at + 1,
                                sizeof text - at - 1);
            buffer_fini(&b);
        }
    }
}

static void test_text_that_is_all_escapes_grows_the_buffer(void **state)
{
    char text[1000];
    struct buffer b;

    (void)state;
    memset(text, 1, sizeof text);
    buffer_init(&b, 6002);
    json_text_append(&b, text, sizeof text);
    assert_false(b.failed);
    assert_int_equal(b.size_bytes, 6002);
    assert_memory_equal(b.data + 5995, "\\u0001\"", 7);
    buffer_fini(&b);
}

static void test_past_the_limit_the_buffer_fails(void **state)
{
    struct buffer b;

    (void)state;
    for (size_t limit = 0; limit < 8; limit++) {
        buffer_init(&b, limit);
        json_text_append(&b, "a\nbc", 4); /* "a\nbc" takes 7 */
        assert_int_equal(b.failed, limit < 7);
        buffer_fini(&b);
    }
}

static void test_what_is_a_number(void **state)
{
    static const char *const numbers[] = {
        "0", "-0", "1", "10", "-12.5", "0.1", "1e5", "1E-7", "1.5e+100", "0e0", "-0.0",
    };
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!json_text_is_number(numbers[i], strlen(numbers[i])))
            fail_msg("%s is a number", numbers[i]);
}

static void test_what_is_no_number(void **state)
{
    static const char *const others[] = {
        "",         "-",         "+1",   "01",    "-01", ".5", "1.", "1.e5",
        "1e",       "1e+",       "e5",   "0x1",   "NaN", "1 ", " 1", "1,5",
        "Infinity", "-Infinity", "1e5.", "1.5.5", "--",  "1-", "00", "1e1e1",
    };
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (json_text_is_number(others[i], strlen(others[i])))
            fail_msg("%s is no number", others[i]);
    assert_false(json_text_is_number("1\0", 2));
    assert_true(json_text_is_number("1.5x", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_text_gets_quotes_only),
        cmocka_unit_test(test_the_short_escapes_are_used_where_there_are),
        cmocka_unit_test(test_other_control_bytes_are_escaped_by_number),
        cmocka_unit_test(test_every_byte_is_seen_at_every_place),
        cmocka_unit_test(test_text_that_is_all_escapes_grows_the_buffer),
        cmocka_unit_test(test_past_the_limit_the_buffer_fails),
        cmocka_unit_test(test_what_is_a_number),
        cmocka_unit_test(test_what_is_no_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cmocka_all.h"
#include "web/header_text_internal.h"

static void test_words_and_numbers_follow_each_other(void **state)
{
    struct header_text t;

    (void)state;
    header_text_begin(&t, "a=");
    header_text_add_number(&t, 12);
    header_text_add(&t, ", b=");
    header_text_add_number(&t, -7);
    assert_string_equal(t.text, "a=12, b=-7");
    assert_int_equal(t.size_bytes, strlen(t.text));
    header_text_begin(&t, "");
    assert_string_equal(t.text, "");
}

static void test_every_number_is_written_whole(void **state)
{
    static const struct {
        int64_t number;
        const char *text;
    } cases[] = {
        {0, "0"},
        {9, "9"},
        {10, "10"},
        {-1, "-1"},
        {INT64_MAX, "9223372036854775807"},
        {INT64_MIN, "-9223372036854775808"},
    };
    struct header_text t;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        header_text_begin(&t, "");
        header_text_add_number(&t, cases[i].number);
        assert_string_equal(t.text, cases[i].text);
    }
}

static void test_what_does_not_fit_is_cut(void **state)
{
    char words[2 * HEADER_TEXT_BYTES];
    struct header_text t;

    (void)state;
    memset(words, 'x', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    header_text_begin(&t, words);
    assert_int_equal(strlen(t.text), HEADER_TEXT_BYTES - 1);
    header_text_add(&t, "more");
    header_text_add_number(&t, 42);
    assert_int_equal(strlen(t.text), HEADER_TEXT_BYTES - 1);
    assert_null(strchr(t.text, 'm'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_and_numbers_follow_each_other),
        cmocka_unit_test(test_every_number_is_written_whole),
        cmocka_unit_test(test_what_does_not_fit_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <string.h>

#include "base/utf8.h"
#include "cmocka_all.h"

static bool is_valid(const char *text)
{
    return utf8_is_valid(text, strlen(text));
}

/* The edges of every row of RFC 3629's table. */
static void test_every_well_formed_character_is_valid(void **state)
{
    static const char *const fine[] = {
        "",
        "plain",
        "\x7F",
        "\xC2\x80",
        "\xDF\xBF",
        "\xE0\xA0\x80",
        "\xE1\x80\x80",
        "\xEC\xBF\xBF",
        "\xED\x9F\xBF",
        "\xEE\x80\x80",
        "\xEF\xBF\xBF",
        "\xF0\x90\x80\x80",
        "\xF1\x80\x80\x80",
        "\xF3\xBF\xBF\xBF",
        "\xF4\x8F\xBF\xBF",
    };
    (void)state;
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        if (!is_valid(fine[i]))
            fail_msg("entry %zu is valid", i);
}

static void test_overlong_forms_surrogates_and_too_large_ones_are_not(void **state)
{
    static const char *const wrong[] = {
        "\x80",
        "\xBF",
        "\xC0\x80",
        "\xC1\xBF",
        "\xC2",
        "\xC2\x41",
        "\xC2\xC2\x80",
        "\xE0\x9F\xBF",
        "\xE0\xA0",
        "\xE1\x80",
        "\xE1\x80\x41",
        "\xED\xA0\x80",
        "\xED\xBF\xBF",
        "\xF0\x8F\xBF\xBF",
        "\xF0\x90\x80",
        "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80",
        "\xFE",
        "\xFF",
        "eight by\x80tes",
        "seven b\xE2\x82",
        "\xE2\x82\xAC\xAC",
        "\xF1\x80\x80\x41",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (is_valid(wrong[i]))
            fail_msg("entry %zu is not valid", i);
}

static void test_a_character_cut_by_the_size_is_not_valid(void **state)
{
    (void)state;
    assert_false(utf8_is_valid("\xE2\x82\xAC", 2));
    assert_true(utf8_is_valid("\xE2\x82\xAC\x80", 3));
}

static void test_nul_is_a_character_like_any_other(void **state)
{
    (void)state;
    assert_true(utf8_is_valid("a\0b", 3));
    assert_int_equal(utf8_count("a\0b", 3), 3);
    assert_int_equal(utf8_character("\0", 1), 1);
}

static void test_characters_are_counted_not_bytes(void **state)
{
    static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";

    (void)state;
    assert_int_equal(utf8_count(text, sizeof text - 1), 4);
    assert_int_equal(utf8_count("", 0), 0);
}

static void test_a_character_tells_its_length(void **state)
{
    (void)state;
    assert_int_equal(utf8_character("ab", 2), 1);
    assert_int_equal(utf8_character("\xC3\xA9x", 3), 2);
    assert_int_equal(utf8_character("\xE2\x82\xAC", 3), 3);
    assert_int_equal(utf8_character("\xF0\x9F\x98\x80", 4), 4);
    assert_int_equal(utf8_character("\xF0\x9F\x98\x80", 3), 0);
    assert_int_equal(utf8_character("\xA9", 1), 0);
    assert_int_equal(utf8_character("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_well_formed_character_is_valid),
        cmocka_unit_test(test_overlong_forms_surrogates_and_too_large_ones_are_not),
        cmocka_unit_test(test_a_character_cut_by_the_size_is_not_valid),
        cmocka_unit_test(test_nul_is_a_character_like_any_other),
        cmocka_unit_test(test_characters_are_counted_not_bytes),
        cmocka_unit_test(test_a_character_tells_its_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

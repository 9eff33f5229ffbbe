#include "base/nearest.h"
#include "cmocka_all.h"

static const char *const keys[] = {"connect_timeout", "query_timeout", "port", "max_uri", "api"};

static const char *nearest(const char *wrong)
{
    return nearest_word(wrong, keys, sizeof keys / sizeof *keys);
}

static void test_one_slip_finds_the_word(void **state)
{
    (void)state;
    assert_string_equal(nearest("prot"), "port");  /* swapped */
    assert_string_equal(nearest("pot"), "port");   /* left out */
    assert_string_equal(nearest("portt"), "port"); /* doubled */
    assert_string_equal(nearest("pork"), "port");  /* replaced */
    assert_string_equal(nearest("port"), "port");
}

static void test_capitals_are_no_distance(void **state)
{
    static const char *const methods[] = {"GET", "POST", "PUT"};

    (void)state;
    assert_string_equal(nearest("PORT"), "port");
    assert_string_equal(nearest("maxUri"), "max_uri");
    assert_string_equal(nearest_word("get", methods, 3), "GET");
    assert_string_equal(nearest_word("psot", methods, 3), "POST");
}

static void test_the_closest_of_several_wins(void **state)
{
    (void)state;
    assert_string_equal(nearest("query_timout"), "query_timeout");
    assert_string_equal(nearest("conect_timeot"), "connect_timeout");
}

static void test_a_third_of_the_word_may_be_wrong_but_not_more(void **state)
{
    static const char *const six[] = {"abcdef"};

    (void)state;
    assert_string_equal(nearest_word("abcdxx", six, 1), "abcdef");
    assert_null(nearest_word("abcxxx", six, 1));
}

static void test_a_word_that_shares_nothing_is_not_near(void **state)
{
    static const char *const one[] = {"m"};

    (void)state;
    assert_null(nearest_word("x", one, 1));
    assert_null(nearest("zebra"));
    assert_null(nearest(""));
    assert_null(nearest_word("x", NULL, 0));
}

static void test_words_of_any_length_are_safe(void **state)
{
    char longest[66] = {0};
    const char *words[] = {longest};

    (void)state;
    for (size_t i = 0; i < 65; i++)
        longest[i] = 'a';
    assert_null(nearest_word(longest, words, 1));
    longest[64] = '\0';
    assert_ptr_equal(nearest_word(longest, words, 1), longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_slip_finds_the_word),
        cmocka_unit_test(test_capitals_are_no_distance),
        cmocka_unit_test(test_the_closest_of_several_wins),
        cmocka_unit_test(test_a_third_of_the_word_may_be_wrong_but_not_more),
        cmocka_unit_test(test_a_word_that_shares_nothing_is_not_near),
        cmocka_unit_test(test_words_of_any_length_are_safe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

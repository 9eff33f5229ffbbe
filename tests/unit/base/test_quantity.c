#include <string.h>

#include "base/quantity.h"
#include "cmocka_all.h"

struct duration_case {
    const char *text;
    int64_t us; /* -1: refused */
};

static void expect_duration(const char *text, int64_t want_us)
{
    int64_t us = -1;
    bool is_fine = duration_parse(text, strlen(text), &us);

    if (is_fine != (want_us >= 0) || us != want_us)
        fail_msg("'%s' is %lld us, not %lld", text, (long long)us, (long long)want_us);
}

static void test_durations_are_a_number_and_a_unit(void **state)
{
    static const struct duration_case cases[] = {
        {"0s", 0},
        {"250ms", 250000},
        {"2s", 2000000},
        {"1m", 60000000},
        {"1h", INT64_C(3600000000)},
        {"1.5s", 1500000},
        {"0.25m", 15000000},
        {"1.5h", INT64_C(5400000000)},
        {"0.000001s", 1},
        {"0.333333000s", 333333},
        {"007s", 7000000},
        {"8760h", INT64_C(31536000000000)},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_duration(cases[i].text, cases[i].us);
}

static void test_other_durations_are_refused_and_write_nothing(void **state)
{
    static const char *const wrong[] = {
        "",
        "5",
        "s",
        "-1s",
        "+1s",
        " 1s",
        "1s ",
        "1 s",
        "1S",
        "1sec",
        "1us",
        "1d",
        "1.5ms",
        "1.s",
        ".5s",
        "1..5s",
        "1.5.5s",
        "0.0000001s",
        "1e3s",
        "8760.1h",
        "8761h",
        "1,5s",
        "0x10s",
        "1ms1ms",
        "99999999999999999999999s",
        "1msx",
        "1.0000000000s",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_duration(wrong[i], -1);
}

static void test_a_duration_ends_where_its_size_says(void **state)
{
    int64_t us;

    (void)state;
    assert_false(duration_parse("250ms", 3, &us));
    assert_true(duration_parse("250ms", 4, &us)); /* minutes */
    assert_int_equal(us, INT64_C(15000000000));
    assert_true(duration_parse("2s and more", 2, &us));
    assert_int_equal(us, 2000000);
    assert_false(duration_parse("1s\0", 3, &us));
}

static void expect_size(const char *text, bool is_fine, size_t want_bytes)
{
    size_t bytes = 42;

    if (size_parse(text, strlen(text), &bytes) != is_fine || bytes != (is_fine ? want_bytes : 42))
        fail_msg("'%s' is %zu bytes", text, bytes);
}

static void test_sizes_are_whole_numbers_of_binary_units(void **state)
{
    (void)state;
    expect_size("0B", true, 0);
    expect_size("512B", true, 512);
    expect_size("64KiB", true, 65536);
    expect_size("1MiB", true, 1048576);
    expect_size("2GiB", true, (size_t)2 << 30);
    expect_size("1024GiB", true, (size_t)1 << 40);
}

static void test_other_sizes_are_refused(void **state)
{
    static const char *const wrong[] = {"", "64", "1KB", "1kib", "1.5MiB", "-1B", "1025GiB", "MiB"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_size(wrong[i], false, 0);
}

static void test_a_formatted_duration_reads_back_as_itself(void **state)
{
    static const struct duration_case cases[] = {
        {"0s", 0},           {"250ms", 250000}, {"2s", 2000000},
        {"1m", 60000000},    {"90s", 90000000}, {"24h", INT64_C(86400000000)},
        {"1500ms", 1500000}, {"0.0005s", 500},  {"1.000001s", 1000001},
    };
    char text[32];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        duration_format(cases[i].us, text);
        assert_string_equal(text, cases[i].text);
        expect_duration(text, cases[i].us);
    }
}

static void test_a_negative_duration_can_be_shown(void **state)
{
    char text[32];

    (void)state;
    duration_format(-2000000, text);
    assert_string_equal(text, "-2s");
    duration_format(-1500, text);
    assert_string_equal(text, "-0.0015s");
}

static void test_sizes_are_written_in_their_largest_unit(void **state)
{
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {{0, "0B"},
                 {1, "1B"},
                 {1000, "1000B"},
                 {1024, "1KiB"},
                 {65536, "64KiB"},
                 {INT64_C(1) << 20, "1MiB"},
                 {INT64_C(3) << 29, "1536MiB"},
                 {INT64_C(1) << 40, "1024GiB"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        size_t back;

        size_format(cases[i].bytes, text);
        assert_string_equal(text, cases[i].text);
        assert_true(size_parse(text, strlen(text), &back));
        assert_int_equal(back, cases[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_durations_are_a_number_and_a_unit),
        cmocka_unit_test(test_other_durations_are_refused_and_write_nothing),
        cmocka_unit_test(test_a_duration_ends_where_its_size_says),
        cmocka_unit_test(test_sizes_are_whole_numbers_of_binary_units),
        cmocka_unit_test(test_other_sizes_are_refused),
        cmocka_unit_test(test_a_formatted_duration_reads_back_as_itself),
        cmocka_unit_test(test_a_negative_duration_can_be_shown),
        cmocka_unit_test(test_sizes_are_written_in_their_largest_unit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

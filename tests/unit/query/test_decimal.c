#include <string.h>

#include "cmocka_all.h"
#include "query/decimal.h"

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

static void test_numbers_as_postgresql_takes_them(void **state)
{
    static const char *const good[] = {"0",
                                       "-0",
                                       "+5",
                                       "1.",
                                       ".5",
                                       "1.50",
                                       "1e5",
                                       "1E-07",
                                       "-1.5e+300",
                                       "NaN",
                                       "nan",
                                       "Infinity",
                                       "-inf",
                                       "+INF",
                                       "00012",
                                       "1e999999",
                                       "123456789012345678901234567890.10"};
    static const char *const bad[] = {
        "",   "-",   "+",   ".",   "e5",   "1e",    "1e+",       "--1",     "1.2.3", " 1",
        "1 ", "0x1", "1_0", "abc", "-NaN", "1e5.0", "1e1000000", "infinit", "1,5",   "1e999x"};
    struct decimal d;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++)
        if (!decimal_parse(good[i], strlen(good[i]), &d))
            fail_msg("%s is a number", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (decimal_parse(bad[i], strlen(bad[i]), &d))
            fail_msg("%s is no number", bad[i]);
}

static int sign_of(int n)
{
    return (n > 0) - (n < 0);
}

static void test_comparison_is_exact(void **state)
{
    static const struct {
        const char *a, *b;
        int sign;
    } cases[] = {
        {"0", "-0", 0},
        {"0.000", "0e9", 0},
        {"1", "1.0", 0},
        {"1", "01", 0},
        {"10", "9", 1},
        {"10", "1e1", 0},
        {"0.1", "1e-1", 0},
        {"0.01", "0.1", -1},
        {".09", "0.1", -1},
        {"-1", "1", -1},
        {"-10", "-9", -1},
        {"0", "-5", 1},
        {"0", "1e-300", -1},
        {"9007199254740993", "9007199254740992", 1},
        {"123456789012345678901234567890.10", "123456789012345678901234567890.1", 0},
        {"123456789012345678901234567890.11", "123456789012345678901234567890.1", 1},
        {"1e400", "1e399", 1},
        {"1.5e2", "150.0001", -1},
        {"Infinity", "1e999999", 1},
        {"-Infinity", "-1e999999", -1},
        {"inf", "Infinity", 0},
        {"-inf", "inf", -1},
        {"0.00123", "123e-5", 0},
        {"100", "100.", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct decimal a, b;

        assert_true(decimal_parse(cases[i].a, strlen(cases[i].a), &a));
        assert_true(decimal_parse(cases[i].b, strlen(cases[i].b), &b));
        if (sign_of(decimal_compare(&a, &b)) != cases[i].sign ||
            sign_of(decimal_compare(&b, &a)) != -cases[i].sign)
            fail_msg("%s against %s", cases[i].a, cases[i].b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_as_postgresql_takes_them),
        cmocka_unit_test(test_comparison_is_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

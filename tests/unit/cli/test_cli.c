/* Arguments to a request. SPDX-License-Identifier: MIT */
#include <string.h>

#include "cli/cli.h"
#include "cmocka_all.h"

enum { MOST_ARGUMENTS = 5 };

struct line {
    char *argv[MOST_ARGUMENTS + 1]; /* ends with NULL */
};

static bool parse(struct line line, struct cli_request *out_request, struct error *err)
{
    int argc = 0;

    while (line.argv[argc] != NULL)
        argc++;
    return cli_parse(argc, line.argv, out_request, err);
}

#define LINE(...) ((struct line){{(char *)"weir", __VA_ARGS__}})
#define A         (char *)

static void test_commands_take_their_options(void **state)
{
    struct cli_request r;
    struct error err;

    (void)state;
    assert_true(parse(LINE(A "serve"), &r, &err));
    assert_int_equal(r.action, CLI_SERVE);
    assert_null(r.config_file);
    assert_true(parse(LINE(A "serve", A "-c", A "a.json"), &r, &err));
    assert_string_equal(r.config_file, "a.json");
    assert_true(parse(LINE(A "check", A "--connect", A "-c", A "-odd.json"), &r, &err));
    assert_int_equal(r.action, CLI_CHECK);
    assert_true(r.is_connecting);
    assert_string_equal(r.config_file, "-odd.json");
    assert_true(parse(LINE(A "health"), &r, &err));
    assert_int_equal(r.action, CLI_HEALTH);
    assert_null(r.url);
    assert_true(parse(LINE(A "health", A "http://h/"), &r, &err));
    assert_string_equal(r.url, "http://h/");
}

static void test_help_and_version_need_no_command(void **state)
{
    struct cli_request r;
    struct error err;

    (void)state;
    assert_true(parse(LINE(A "--version"), &r, &err));
    assert_int_equal(r.action, CLI_VERSION);
    assert_true(parse(LINE(A "--help"), &r, &err));
    assert_int_equal(r.action, CLI_HELP);
    assert_null(r.help_topic);
    assert_true(parse(LINE(A "check", A "--help"), &r, &err));
    assert_int_equal(r.action, CLI_HELP);
    assert_string_equal(r.help_topic, "check");
    assert_true(parse(LINE(A "drill", A "--help"), &r, &err));
    assert_int_equal(r.action, CLI_HELP);
    assert_string_equal(r.help_topic, "drill");
}

static void test_usage_errors_name_what_is_wrong(void **state)
{
    static const struct {
        struct line line;
        const char *word;
    } cases[] = {
        {{{A "weir"}}, "no command"},
        {{{A "weir", A "nonsense"}}, "there are serve, check and health"},
        {{{A "weir", A "serv"}}, "did you mean \"serve\""},
        {{{A "weir", A "--nope"}}, "unknown option \"--nope\""},
        {{{A "weir", A "serve", A "--nope"}}, "unknown option \"--nope\""},
        {{{A "weir", A "serve", A "--connect"}}, "unknown option \"--connect\""},
        {{{A "weir", A "serve", A "x"}}, "unexpected argument \"x\""},
        {{{A "weir", A "check", A "-c"}}, "-c needs the name of a file"},
        {{{A "weir", A "check", A "-c", A ""}}, "-c needs the name of a file"},
        {{{A "weir", A "health", A "a", A "b"}}, "unexpected argument \"b\""},
        {{{A "weir", A "routes"}}, "unknown command \"routes\""},
        {{{A "weir", A "drill", A "-c", A "x"}}, "unknown command \"drill\""},
        {{{A "weir", A "--version", A "x"}}, "--version takes no arguments"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cli_request r;
        struct error err = {""};

        assert_false(parse(cases[i].line, &r, &err));
        assert_non_null(strstr(err.text, cases[i].word));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands_take_their_options),
        cmocka_unit_test(test_help_and_version_need_no_command),
        cmocka_unit_test(test_usage_errors_name_what_is_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

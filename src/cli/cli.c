#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "cli/check.h"
#include "cli/health.h"
#include "cli/serve.h"
#include "config/config.h"

enum { USAGE_ERROR = 2 };

struct command {
    const char *name;
    enum cli_action action;
    bool takes_config, takes_connect, takes_url;
    const char *help;
};

#define CONFIG_HELP "  -c FILE  the configuration; default: $WEIR_CONFIG, then ./weir.json\n"

static const struct command commands[] = {
    {"serve", CLI_SERVE, true, false, false,
     "usage: weir serve [-c FILE]\n\n"
     "Serves the SQL files of a configuration over HTTP, until SIGTERM or SIGINT: then what is "
     "under\n"
     "way ends first; a second signal stops at once. Exit code 1: a wrong configuration or a "
     "taken\n"
     "port.\n\n" CONFIG_HELP},
    {"check", CLI_CHECK, true, true, false,
     "usage: weir check [-c FILE] [--connect]\n\n"
     "Prints every problem of the configuration and of its SQL files as FILE:LINE:COL: text, on\n"
     "standard output; without any, each route's worst time to answer. Exit code 0: none but\n"
     "warnings; 1: some.\n\n" CONFIG_HELP
     "  --connect  also prepare each statement on its database, and have it planned, which runs\n"
     "             nothing: unknown tables, columns and types, columns that come twice, missing\n"
     "             privileges, a GET that a read-only session refuses. What a function does "
     "inside\n"
     "             when it is called, nobody sees before\n"},
    {"health", CLI_HEALTH, true, false, true,
     "usage: weir health [-c FILE] [URL]\n\n"
     "Asks URL, within 2 seconds. Exit code 0: it answered 2xx; 1: it did not, and why is on "
     "standard\n"
     "error. Without URL: /health on the admin port of the configuration.\n\n" CONFIG_HELP},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static const char general_help[] =
    "usage: weir COMMAND [OPTION...]\n\n"
    "  weir serve  [-c FILE]              run\n"
    "  weir check  [-c FILE] [--connect]  every problem of configuration and SQL files\n"
    "  weir health [-c FILE] [URL]        is it well? For a container's HEALTHCHECK\n"
    "  weir --version\n"
    "  weir COMMAND --help\n\n"
    "FILE defaults to $WEIR_CONFIG, then ./weir.json.\n";

/* Named in the contract, and not part of this release: only their --help has an answer. */
static const char *const planned[] = {"routes", "drill", "token"};

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static bool is_planned(const char *name)
{
    for (size_t i = 0; i < sizeof planned / sizeof planned[0]; i++) {
        if (strcmp(planned[i], name) == 0)
            return true;
    }
    return false;
}

static bool is_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

/* --- understanding --- */

static bool unknown_command(const char *name, struct error *err)
{
    const char *names[COMMAND_COUNT], *nearest;

    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i].name;
    nearest = nearest_word(name, names, COMMAND_COUNT);
    if (nearest != NULL)
        return error_set(err, "unknown command \"%s\"; did you mean \"%s\"?", name, nearest);
    return error_set(err, "unknown command \"%s\"; there are serve, check and health (try --help)",
                     name);
}

/* One argument (and its value) of a command; *at is left on the last one that was used. */
static bool argument_parse(const struct command *command, int argc, char *const *argv, int *at,
                           struct cli_request *request, struct error *err)
{
    const char *argument = argv[*at];

    if (command->takes_config && strcmp(argument, "-c") == 0) {
        if (*at + 1 >= argc || argv[*at + 1][0] == '\0')
            return error_set(err, "%s: -c needs the name of a file", command->name);
        request->config_file = argv[++*at];
        return true;
    }
    if (command->takes_connect && strcmp(argument, "--connect") == 0) {
        request->is_connecting = true;
        return true;
    }
    if (argument[0] == '-')
        return error_set(err, "%s: unknown option \"%s\" (try weir %s --help)", command->name,
                         argument, command->name);
    if (!command->takes_url || request->url != NULL)
        return error_set(err, "%s: unexpected argument \"%s\" (try weir %s --help)", command->name,
                         argument, command->name);
    request->url = argument;
    return true;
}

static bool command_parse(const struct command *command, int argc, char *const *argv,
                          struct cli_request *request, struct error *err)
{
    request->action = command->action;
    for (int i = 2; i < argc; i++) {
        if (is_help(argv[i])) {
            *request = (struct cli_request){.action = CLI_HELP, .help_topic = command->name};
            return true;
        }
        if (!argument_parse(command, argc, argv, &i, request, err))
            return false;
    }
    return true;
}

static bool name_parse(int argc, char *const *argv, struct cli_request *request, struct error *err)
{
    const char *name = argv[1];
    const struct command *command = command_find(name);

    if (command != NULL)
        return command_parse(command, argc, argv, request, err);
    if (is_planned(name) && argc == 3 && is_help(argv[2])) {
        *request = (struct cli_request){.action = CLI_HELP, .help_topic = name};
        return true;
    }
    if (name[0] == '-')
        return error_set(err, "unknown option \"%s\" (try --help)", name);
    return unknown_command(name, err);
}

bool cli_parse(int argc, char *const *argv, struct cli_request *out_request, struct error *err)
{
    struct cli_request request = {0};

    if (argc < 2)
        return error_set(err, "no command; there are serve, check and health (try --help)");
    if (is_help(argv[1]))
        request.action = CLI_HELP;
    else if (strcmp(argv[1], "--version") == 0)
        request.action = CLI_VERSION;
    else if (!name_parse(argc, argv, &request, err))
        return false;

    if (command_find(argv[1]) == NULL && !is_planned(argv[1]) && argc > 2)
        return error_set(err, "%s takes no arguments", argv[1]);
    *out_request = request;
    return true;
}

/* --- doing --- */

static int help_print(const char *topic)
{
    const struct command *command = topic != NULL ? command_find(topic) : NULL;

    if (command != NULL)
        (void)fputs(command->help, stdout);
    else if (topic != NULL)
        (void)printf("weir %s is not part of this release.\n\n%s", topic, general_help);
    else
        (void)fputs(general_help, stdout);
    return 0;
}

static int request_run(const struct cli_request *request)
{
    const char *file = config_file_name(request->config_file);

    switch (request->action) {
    case CLI_SERVE:
        return serve_run(file);
    case CLI_CHECK:
        return check_run(file, request->is_connecting);
    case CLI_HEALTH:
        return health_run(request->url, file);
    case CLI_VERSION:
        (void)puts("weir " WEIR_VERSION);
        return 0;
    case CLI_HELP:
        return help_print(request->help_topic);
    }
    return USAGE_ERROR;
}

/* A usage error is one line, whatever the arguments were. */
static void one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ')
            *text = ' ';
    }
}

int cli_run(int argc, char *const *argv)
{
    struct cli_request request = {0};
    struct error err;
    int code;

    if (!cli_parse(argc, argv, &request, &err)) {
        one_line(err.text);
        (void)fprintf(stderr, "weir: %s\n", err.text);
        return USAGE_ERROR;
    }
    code = request_run(&request);
    /* A full disk or a closed pipe must not look like good news. */
    return fflush(stdout) != 0 && code == 0 ? 1 : code;
}

/* cli.h - the command line: which command, with what. SPDX-License-Identifier: MIT
 *
 * Errors   a usage error is one line on standard error and exit code 2. */
#ifndef CLI_CLI_H
#define CLI_CLI_H
#include <stdbool.h>

#include "base/error.h"

enum cli_action { CLI_SERVE, CLI_CHECK, CLI_HEALTH, CLI_VERSION, CLI_HELP };

struct cli_request {
    enum cli_action action;
    const char *config_file; /* borrowed from argv; NULL: the default */
    const char *url;         /* borrowed from argv; health only; may be NULL */
    bool is_connecting;      /* check --connect */
    const char *help_topic;  /* CLI_HELP: a command, or NULL for all */
};

/* Understands the arguments, and touches nothing else. */
bool cli_parse(int argc, char *const *argv, struct cli_request *out_request, struct error *err);

/* Parses and runs; the exit code. */
int cli_run(int argc, char *const *argv);
#endif

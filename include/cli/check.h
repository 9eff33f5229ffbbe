/* check.h - `weir check`: every problem of a config and its SQL files. SPDX-License-Identifier: MIT
 *
 * Errors   one "FILE:LINE:COL: text" a line on standard output; the exit code is 1 if one of them
 * is more than a warning. */
#ifndef CLI_CHECK_H
#define CLI_CHECK_H
#include <stdbool.h>

/* is_connecting: prepare each statement on its source too. The exit code. */
int check_run(const char *config_file, bool is_connecting);
#endif

/* serve.h - `weir serve`: runs until it is told to stop. SPDX-License-Identifier: MIT
 *
 * Errors   exit code 1: a wrong config (all problems are listed) or a taken port. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

/* The exit code. */
int serve_run(const char *config_file);
#endif

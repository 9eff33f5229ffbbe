/* app.h - the service as a whole: builds every object in order, waits for signals, tears down in
 * reverse. SPDX-License-Identifier: MIT
 *
 * SIGTERM, SIGINT: readiness falls; after drain_delay nothing more is accepted, answers carry
 * Connection: close, and what is under way ends, for at most drain_timeout. A second one stops at
 * once.
 *
 * Threads  app_run() is the main thread's, before any other was started.
 * Errors   what keeps the service from starting goes to standard error. */
#ifndef APP_APP_H
#define APP_APP_H

struct config;

/* Serves until told to stop. The process's exit code: 0, or 1 if it could not start. */
int app_run(const struct config *config);
#endif

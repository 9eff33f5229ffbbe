/* weir_process.h - the program under test, as a process. SPDX-License-Identifier: MIT
 *
 * What     a folder with weir.json and api/, `$WEIR_BIN serve` in it on free ports of 127.0.0.1,
 * its stderr collected by a thread. Threads  start and stop on the test's main thread; the rest
 * from any. Errors   what cannot be done gives the test up, and shows the log. */
#ifndef SUPPORT_WEIR_PROCESS_H
#define SUPPORT_WEIR_PROCESS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct weir_process;

struct weir_file {
    const char *name; /* below api/, or "../x" for a file beside weir.json */
    const char *text;
};

struct weir_setup {
    const char *dependencies;      /* the JSON object */
    const char *server;            /* more members of "server", without braces; NULL: none */
    const char *log;               /* members of "log"; NULL: "level": "info" */
    const struct weir_file *files; /* ends with a NULL name */
    char *const *env;              /* more "NAME=value"; ends with NULL; NULL: none */
};

struct weir_output {
    int exit_code; /* -1: did not end in time */
    char *out, *err;
};

/* Writes the folder; nothing runs. */
struct weir_process *weir_create(const struct weir_setup *setup);

/* Ends what runs and removes the folder. */
void weir_destroy(struct weir_process *weir); /* NULL is fine */

/* Starts it and waits until /health/live answers on the admin port. */
void weir_start(struct weir_process *weir);

/* As weir_start, but does not wait. */
void weir_launch(struct weir_process *weir);

/* SIGTERM, and its exit code (128 + signal; -1: still running after `limit_ms`, then killed). */
int weir_stop(struct weir_process *weir, int64_t limit_ms);
int weir_wait(struct weir_process *weir, int64_t limit_ms); /* without a signal */
void weir_signal(struct weir_process *weir, int signal_number);

/* Replaces a file of the folder. */
void weir_write(struct weir_process *weir, const char *name, const char *text);

/* Runs `$WEIR_BIN argument...` in the folder to its end; `arguments` ends with NULL. */
struct weir_output weir_run(struct weir_process *weir, const char *const *arguments);
void weir_output_fini(struct weir_output *output);

uint16_t weir_port(const struct weir_process *weir);
uint16_t weir_admin_port(const struct weir_process *weir);
pid_t weir_pid(const struct weir_process *weir);

/* "http://127.0.0.1:PORT" + path, of the main and the admin port; the caller's. */
char *weir_url(const struct weir_process *weir, const char *path);
char *weir_admin_url(const struct weir_process *weir, const char *path);

/* The sum of the samples of a metric that carry all the labels (`a="1",b="2"`; "" for any);
 * -1 when there is no such sample. */
double weir_metric(const struct weir_process *weir, const char *name, const char *labels);

/* Waits until the metric has that value. */
bool weir_metric_reaches(const struct weir_process *weir, const char *name, const char *labels,
                         double value, int64_t limit_ms);

/* The breaker's state by the metrics: "closed", "open", ... */
bool weir_breaker_is(const struct weir_process *weir, const char *dependency, const char *state);
bool weir_breaker_becomes(const struct weir_process *weir, const char *dependency,
                          const char *state, int64_t limit_ms);

/* --- its log --- */
char *weir_log(struct weir_process *weir); /* all so far, the caller's */
size_t weir_log_count(struct weir_process *weir, const char *needle);
bool weir_log_has_within(struct weir_process *weir, const char *needle, int64_t limit_ms);

/* Stops reading its stderr, so that the pipe fills up; and goes on. */
void weir_pause_log(struct weir_process *weir, bool is_paused);

/* --- what it uses, by /proc --- */
int64_t weir_rss_bytes(const struct weir_process *weir);
int64_t weir_thread_count(const struct weir_process *weir);
int64_t weir_fd_count(const struct weir_process *weir);
#endif

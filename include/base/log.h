/* log.h - one JSON object a line on standard error, written by a thread of its own.
 * SPDX-License-Identifier: MIT
 *
 * A line is made on the caller's stack and pushed into a bounded ring; the writer thread alone
 * touches the descriptor, so a full pipe stops nobody: when the ring is full the line is dropped
 * and counted (weir_log_dropped_total).
 *
 * Owner    log_start()/log_stop() by app; there is one log a process.
 * Threads  log_begin .. log_end from any thread; before log_start() and after log_stop() lines are
 *          written directly (tests, commands).
 * Errors   a line longer than the limit (4 KiB) is ended early, and stays valid JSON: a text is cut
 *          with an ellipsis, another field left out. Invalid UTF-8 becomes U+FFFD.
 * Keys     are written as they are: names without quotes or spaces.
 * Never    passwords, tokens, SQL text, parameter values (rule 15). */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_COUNT };
enum log_format { LOG_JSON, LOG_TEXT };

struct log_line {
    char text[4096];
    size_t size_bytes;
    bool is_wanted; /* false: below the level; the calls below do nothing */
};

/* Starts the writer on `fd`. False: no thread could be made. */
bool log_start(int fd, enum log_level least, enum log_format format);
void log_stop(void); /* writes what is queued, for at most 1 s, then ends the thread */

/* log_begin(&l, LOG_INFO, "request"); log_str(&l, "route", r); log_end(&l);
 * adds time, level and event first. */
void log_begin(struct log_line *l, enum log_level level, const char *event);
void log_str(struct log_line *l, const char *key, const char *value); /* NULL value: nothing */
void log_bytes(struct log_line *l, const char *key, const char *value, size_t size_bytes);
void log_int(struct log_line *l, const char *key, int64_t value);
void log_bool(struct log_line *l, const char *key, bool value);
void log_ms(struct log_line *l, const char *key, int64_t value_us); /* milliseconds with 3 digits */
void log_end(struct log_line *l);

uint64_t log_dropped_count(void);
bool log_level_parse(const char *text, enum log_level *out_level);
const char *log_level_name(enum log_level level);

/* At most one line a second for each of these (refusals, failed connects). */
struct log_limit {
    int64_t next_us;         /* monotonic */
    uint64_t left_out_count; /* since the last line; log it and set it to 0 */
};

/* True: log now. False: counted in left_out_count. One owner thread. */
bool log_limit_pass(struct log_limit *limit, int64_t now_us);
#endif

/* load.h - callers who ask at a steady pace beside a test, and what they got.
 * SPDX-License-Identifier: MIT
 *
 * What     threads with a kept connection each; every thread asks at its own fixed instants, and
 *          leaves out those that passed while it waited for an answer.
 * Owner    load_stop() hands the records over; load_records_fini() frees them.
 * Units    instants are monotonic (base/clock.h), in microseconds.
 * Threads  start and stop on one thread. */
#ifndef SUPPORT_LOAD_H
#define SUPPORT_LOAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct load;

struct load_setup {
    const char *url; /* borrowed until load_stop() */
    unsigned rate_per_s;
    unsigned thread_count;
};

struct load_record {
    int64_t start_us;
    int64_t elapsed_us;
    int status;      /* 0: no answer */
    char reason[24]; /* of a problem; "" when there is none */
};

struct load_records {
    struct load_record *items; /* owned; by start */
    size_t count;
};

/* Which records: those begun in [from_us, to_us). */
struct load_filter {
    int64_t from_us, to_us;
    int status;         /* 0: any */
    const char *reason; /* NULL: any */
};

struct load *load_start(const struct load_setup *setup);
struct load_records load_stop(struct load *load);
void load_records_fini(struct load_records *records);

size_t load_count(const struct load_records *records, const struct load_filter *filter);
int64_t load_percentile_us(const struct load_records *records, const struct load_filter *filter,
                           double percent);

/* The first that matches, by the end of its answer; NULL: none. */
const struct load_record *load_first_answered(const struct load_records *records,
                                              const struct load_filter *filter);

/* One line for each status and reason, with how often and the slowest. */
void load_print(const struct load_records *records, const struct load_filter *filter);
#endif

/* halt.h - stops one thread of another process, from outside, and looks where it stands.
 * SPDX-License-Identifier: MIT
 *
 * What     ptrace(2) on a single thread: all others run on. The thread stands still between two of
 *          its instructions, with whatever it holds.
 * Owner    halt_take() .. halt_release(); a process that ended first is fine.
 * Threads  one halt belongs to the thread that took it (ptrace wants it so).
 * Errors   where ptrace is not permitted the test is given up. */
#ifndef SUPPORT_HALT_H
#define SUPPORT_HALT_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct halt;

/* A system call about to be made, seen from its thread. */
struct halt_call {
    uint64_t number;
    uint64_t arguments[6];
};
typedef bool halt_wanted_call(const struct halt_call *call);

/* Takes hold of the thread of `pid` with that name. It runs on. */
struct halt *halt_take(pid_t pid, const char *thread_name);

/* Lets it run for good, and forgets it. NULL is fine. */
void halt_release(struct halt *halt);

/* Stands still, wherever it is now. False: the process ended. */
bool halt_now(struct halt *halt);
void halt_go_on(struct halt *halt);

/* Runs until it is about to make a wanted system call (which it has not made when it stands still).
 * False, and running: it made none in time. */
bool halt_before_call(struct halt *halt, halt_wanted_call *is_wanted, int64_t limit_ms);

/* Stands still at random instants until it is in a function of the program whose name begins with
 * one of `prefixes` (ends with NULL). False, and running: it was in none in time. */
bool halt_in_function(struct halt *halt, const char *const *prefixes, int64_t limit_ms);

/* Of a thread that stands still: the name of the program's function it is in ("" in a library's);
 * lives until the next call. */
const char *halt_function(struct halt *halt);

/* What every thread of the process is doing: its name, its system call with arguments ("running":
 * none), one a line on stdout. For the one who has to find out who waits for whom. */
void halt_print_threads(const struct halt *halt);

/* After the end of the process: until the thread was reaped, its process cannot be. */
bool halt_reap(struct halt *halt, int64_t limit_ms);
#endif

/* child.h - processes that a test starts, and that never outlive it.
 * SPDX-License-Identifier: MIT
 *
 * Threads  start children on a thread that lives as long as the test: the kernel sends the death
 *          signal when the thread ends that started the child. */
#ifndef SUPPORT_CHILD_H
#define SUPPORT_CHILD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child_setup {
    char *const *argv;  /* argv[0] is a path; ends with NULL */
    char *const *env;   /* NULL: ours */
    const char *folder; /* NULL: ours */
    int out_fd, err_fd; /* become stdout and stderr; -1: /dev/null */
    int death_signal;   /* what it gets when the test dies */
    uid_t uid;          /* 0: stay who we are */
    gid_t gid;
    bool own_group; /* a process group of its own */
};

/* The process id; gives the test up when it cannot be started. */
pid_t child_start(const struct child_setup *setup);

/* Waits for its end. The exit code, 128 + signal, or -1 when `limit_ms` passed first. */
int child_wait(pid_t pid, int64_t limit_ms);

/* Runs to the end; gives the test up unless it ends with 0. */
void child_run(const struct child_setup *setup);

/* The processes below `pid`, at most `limit`, by /proc. Returns how many. */
size_t child_descendants(pid_t pid, pid_t *out_pids, size_t limit);
#endif

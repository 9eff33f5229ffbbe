/* process.h - what the kernel says about this process: memory, CPU, descriptors.
 * SPDX-License-Identifier: MIT
 *
 * Units    _us microseconds, _bytes bytes; times are wall clock.
 * Threads  any; it reads files of /proc and takes well under a millisecond.
 * Errors   what cannot be read is 0. */
#ifndef OBSERVE_PROCESS_H
#define OBSERVE_PROCESS_H
#include <stdint.h>

struct process_facts {
    int64_t cpu_us; /* user and system */
    int64_t started_wall_us;
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_fds;
    uint64_t max_fds;
};

/* started_wall_us is taken over as it is. */
void process_read(struct process_facts *out, int64_t started_wall_us);
#endif

/* fault_proxy.h - a TCP proxy in front of a server, that breaks what the test wants broken.
 * SPDX-License-Identifier: MIT
 *
 * What     one thread forwards between a port of its own on 127.0.0.1 and the server's port. Faults
 *          are set at any time, apply to what is open and to what comes, and are counted: a test
 *          asserts that its fault bit.
 * Threads  any thread may set and read. */
#ifndef SUPPORT_FAULT_PROXY_H
#define SUPPORT_FAULT_PROXY_H
#include <stdint.h>

struct fault_proxy;

enum fault_mode {
    FAULT_PASS,
    FAULT_REFUSE,     /* nobody listens; what was open is reset */
    FAULT_RESET,      /* accepts, then resets at once; what was open is reset */
    FAULT_STALL,      /* accepts, reads and writes nothing; goes on where it was afterwards */
    FAULT_UNANSWERED, /* as STALL, and new connections get no answer to their SYN */
    FAULT_BLACK_HOLE, /* swallows all bytes; connections that lost some never come back */
};

enum fault_direction { FAULT_UP /* to the server */, FAULT_DOWN /* to the caller */ };

struct fault_counters {
    uint64_t accepted_count;
    uint64_t open_count; /* now */
    uint64_t up_bytes, down_bytes;
    uint64_t swallowed_bytes;
    uint64_t reset_count;   /* connections that the proxy reset for a mode */
    uint64_t stalled_count; /* connections open when a stall began, or opened in it */
    uint64_t cut_count;     /* connections reset by fault_proxy_cut_after() */
    uint64_t delayed_count; /* chunks held back by latency */
    uint64_t cancel_count;  /* PostgreSQL cancel requests seen */
    uint64_t delayed_cancel_count;
    uint64_t upstream_failed_count; /* the server could not be reached */
};

struct fault_proxy *fault_proxy_create(uint16_t server_port);
void fault_proxy_destroy(struct fault_proxy *proxy); /* NULL is fine */

uint16_t fault_proxy_port(const struct fault_proxy *proxy);

/* In force when it returns. */
void fault_proxy_set_mode(struct fault_proxy *proxy, enum fault_mode mode);

/* Holds each chunk back, in both directions. 0: none. */
void fault_proxy_set_latency(struct fault_proxy *proxy, int64_t latency_ms);

/* Holds PostgreSQL cancel requests back; they arrive even if their sender has left. 0: none. */
void fault_proxy_delay_cancels(struct fault_proxy *proxy, int64_t delay_ms);

/* Once `size_bytes` more have passed in that direction (over all connections), the connection that
 * carried the last one is reset, with its bytes up to there delivered. `times` such cuts; 0: none.
 */
void fault_proxy_cut_after(struct fault_proxy *proxy, enum fault_direction direction,
                           uint64_t size_bytes, unsigned times);

/* Resets what is open now; new connections pass. */
void fault_proxy_reset_open(struct fault_proxy *proxy);

struct fault_counters fault_proxy_counters(struct fault_proxy *proxy);
#endif

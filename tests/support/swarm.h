/* swarm.h - many callers on one thread, each with a connection of its own that it keeps.
 * SPDX-License-Identifier: MIT
 *
 * What     requests come from the test one by one, in the order of their instants; each is sent at
 *          its instant over a free connection, or as soon as one is free. One thread, because
 *          hundreds of threads would measure the scheduler.
 * Units    instants are monotonic (base/clock.h), in microseconds.
 * Owner    swarm_create() .. swarm_destroy().
 * Threads  one swarm belongs to one thread at a time.
 * Errors   a request whose connection breaks has an answer with status 0; without a connection at
 *          all the test is given up. */
#ifndef SUPPORT_SWARM_H
#define SUPPORT_SWARM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct swarm;

struct swarm_request {
    uint64_t tag; /* comes back with the answer */
    char path[96];
    char header[64];          /* one line more, without its end; "": none */
    int64_t due_us;           /* 0: at once */
    int64_t hang_up_after_us; /* after it was sent; 0: it waits for the answer */
};

struct swarm_answer {
    uint64_t tag;
    int status;      /* 0: none came */
    bool is_hung_up; /* the caller went away first */
    int64_t due_us;  /* when it should have been sent */
    int64_t sent_us, end_us;
    const char *head; /* status line and headers; "" without an answer */
    const char *body; /* of body_bytes, then a NUL */
    size_t body_bytes;
};

/* Writes the next request. False: there is none any more. */
typedef bool swarm_next(void *context, struct swarm_request *out);

/* One request ended; head and body live until it returns. */
typedef void swarm_done(void *context, const struct swarm_answer *answer);

/* Connects. Those who hung up are replaced when their turn comes. */
struct swarm *swarm_create(uint16_t port, unsigned connection_count);
void swarm_destroy(struct swarm *swarm); /* NULL is fine */

/* Until there are no more requests and all of them ended. */
void swarm_run(struct swarm *swarm, swarm_next *next, swarm_done *done, void *context);

/* --- reading an answer's head --- */

/* Copies a header's value; false, and "": it is not there. */
bool swarm_header(const struct swarm_answer *answer, const char *name, char *out_value,
                  size_t size_bytes);

/* The whole number after `before` in a header ("Cache-Status", "ttl="); `otherwise` without. */
int64_t swarm_header_number(const struct swarm_answer *answer, const char *name, const char *before,
                            int64_t otherwise);
#endif

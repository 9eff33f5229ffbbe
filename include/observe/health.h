/* health.h - the verdicts: pass, warn, fail; from facts that others publish. Pure.
 * SPDX-License-Identifier: MIT
 *
 * fail (503): a hard dependency is unusable (breaker open, or not reached yet), or draining.
 * warn (200): a soft one is, or one is half-open, on trial. pass (200): neither. Format:
 * application/health+json (draft-inadarei-api-health-check). */
#ifndef OBSERVE_HEALTH_H
#define OBSERVE_HEALTH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/admission.h"

struct buffer;

enum health_status { HEALTH_PASS, HEALTH_WARN, HEALTH_FAIL };
const char *health_status_name(enum health_status status);
int health_status_http(enum health_status status);

/* One dependency, as seen now. */
struct health_fact {
    const char *name;
    bool is_hard;    /* some route can only answer 5xx without it */
    bool is_reached; /* a session was open once */
    enum breaker_state state;
    enum breaker_mode mode;
    const char *output;           /* the last failure in words; NULL: none */
    int64_t time_wall_us;         /* of the last change; 0: none */
    const char *const *endpoints; /* routes that use it */
    size_t endpoint_count;
};

enum health_status health_of_dependency(const struct health_fact *fact);
enum health_status health_overall(const struct health_fact *facts, size_t count, bool is_draining);

/* The document. Brief: status words only (main port); else observedValue, affectedEndpoints, output
 * and time too. */
void health_write(struct buffer *out, const struct health_fact *facts, size_t count,
                  bool is_draining, bool is_brief);
#endif

/* budget.h - how long a request of a route may take. SPDX-License-Identifier: MIT
 *
 * Units    microseconds, from the complete request (headers and body) to its answer being queued.
 * Threads  values of an immutable config. */
#ifndef PLAN_BUDGET_H
#define PLAN_BUDGET_H
#include <stdint.h>

struct config;
struct route;

/* What may pass between a deadline and its answer: the turn of a worker that is busy. */
enum { ANSWER_SLACK_US = 50000 };

/* The whole budget: @timeout, which is never longer than request_timeout, else that. */
int64_t route_budget_us(const struct route *route, const struct config *config);

/* The longest that an answer takes, whatever fails: no caller's header makes it longer. */
int64_t route_worst_us(const struct route *route, const struct config *config);
#endif

/* patience.h - waiting for something to become true, and how late this machine's timers are.
 * SPDX-License-Identifier: MIT
 *
 * Units    _ms and _us.
 * Threads  any; a noise meter runs one thread of its own. */
#ifndef SUPPORT_PATIENCE_H
#define SUPPORT_PATIENCE_H
#include <stdbool.h>
#include <stdint.h>

typedef bool patience_condition(void *context);

/* Asks every few milliseconds until it is true (returns true) or `limit_ms` have passed (false). */
bool poll_until(patience_condition *is_true, void *context, int64_t limit_ms);

/* Lets time pass; for tests whose subject is time itself. */
void pass_ms(int64_t ms);

/* Measures, beside a test, by how much short sleeps overran: the share of every measured time that
 * is the machine's doing. Absolute limits are written as `limit + noise`. */
struct noise_meter;
struct noise_meter *noise_meter_start(void);

/* Ends the measuring and returns the worst overrun seen. */
int64_t noise_meter_stop_us(struct noise_meter *meter);
#endif

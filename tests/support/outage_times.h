/* outage_times.h - when a private PostgreSQL came back. SPDX-License-Identifier: MIT */
#ifndef SUPPORT_OUTAGE_TIMES_H
#define SUPPORT_OUTAGE_TIMES_H
#include <stdint.h>

struct private_postgres;

/* The monotonic time at which the server, by its own log, last became ready to accept connections;
 * to the millisecond. The server must run. */
int64_t outage_ready_us(struct private_postgres *pg);
#endif

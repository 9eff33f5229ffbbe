/* check_connect.h - what only a database can say about a configuration. SPDX-License-Identifier:
 * MIT
 *
 * Threads  the command's only one; it may wait, but for nothing longer than connect_timeout (to
 *          connect) or query_timeout (for each answer).
 * Errors   into complaints, at the place in the SQL file or of the dependency in the config. */
#ifndef DEP_CHECK_CONNECT_H
#define DEP_CHECK_CONNECT_H
#include <stdbool.h>

struct complaints;
struct config;

/* Is each conninfo one that weir can use? Asks no database. */
void check_conninfo(const struct config *config, struct complaints *complaints);

/* Prepares each route's statement on its source, looks at its parameters' types and its columns,
 * and has it planned in a transaction of the kind that will run it, which shows missing privileges
 * and reads that lock. Nothing is run: what functions do inside is not seen. False: something was
 * found (it is in complaints too). */
bool check_connect(const struct config *config, struct complaints *complaints);
#endif

/* paced.h - a statement that does what the test says while weir asks the same of it: slow, large,
 * failing, without a row. SPDX-License-Identifier: MIT
 *
 * What     a table of one row, by which PACED_SQL goes. Each run counts as
 *          private_postgres_ticks(pg, "kID"), each failing one also as "fail STATE".
 * Threads  as private_postgres.h. */
#ifndef SUPPORT_PACED_H
#define SUPPORT_PACED_H
#include <stddef.h>
#include <stdint.h>

#include "private_postgres.h"

/* Needs a parameter `id int4`. Columns: id, version, filler, failure. */
#define PACED_SQL                                                                                  \
    "SELECT :id::int4 AS id, p.version, repeat('x', p.filler_bytes) AS filler,\n"                  \
    "       CASE WHEN p.state <> '' THEN fail_with(p.state) END AS failure\n"                      \
    "FROM paced p, generate_series(1, p.row_count) AS n\n"                                         \
    "WHERE (SELECT tick('k' || :id)) IS NOT NULL AND pg_sleep(p.nap_s + 0 * n) IS NOT NULL\n"

struct pace {
    double nap_s;         /* before each row */
    int row_count;        /* 0: no row */
    int64_t filler_bytes; /* in each row */
    const char *state;    /* SQLSTATE that it fails with; NULL: none */
};

/* What nothing is wrong with. */
#define PACED_WELL ((struct pace){.row_count = 1, .filler_bytes = 1})

void paced_create(struct private_postgres *pg);

/* From now on. Returns the version that rows have then: one more than before. */
int64_t paced_set(struct private_postgres *pg, struct pace pace);

/* How often the statement ran with this id. */
size_t paced_runs(const struct private_postgres *pg, int id);

/* When each of these runs began, by the server's clock; at most `limit`. Returns how many. */
size_t paced_run_times(struct private_postgres *pg, int id, int64_t *out_wall_ms, size_t limit);

/* How many run now. */
int64_t paced_active(struct private_postgres *pg);
#endif

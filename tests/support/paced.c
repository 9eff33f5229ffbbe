#include "paced.h"

#include <stdlib.h>

#include "scratch.h"

void paced_create(struct private_postgres *pg)
{
    private_postgres_exec(pg, "CREATE TABLE paced (nap_s float8, row_count int, filler_bytes int,"
                              "  state text, version int);"
                              "INSERT INTO paced VALUES (0, 1, 1, '', 1);"
                              "GRANT SELECT ON paced TO app");
}

int64_t paced_set(struct private_postgres *pg, struct pace pace)
{
    char *sql = scratch_format("UPDATE paced SET nap_s = %f, row_count = %d, filler_bytes = %lld,"
                               "  state = '%s', version = version + 1 RETURNING version",
                               pace.nap_s, pace.row_count, (long long)pace.filler_bytes,
                               pace.state != NULL ? pace.state : "");
    int64_t version = private_postgres_number(pg, sql);

    free(sql);
    return version;
}

size_t paced_runs(const struct private_postgres *pg, int id)
{
    char *name = scratch_format("k%d", id);
    size_t count = private_postgres_ticks(pg, name);

    free(name);
    return count;
}

int64_t paced_active(struct private_postgres *pg)
{
    return private_postgres_active(pg, "%FROM paced p%");
}

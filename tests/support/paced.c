#include "paced.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* "2026-11-30 05:32:18.123 UTC [...": milliseconds since 1970. */
static int64_t wall_ms_of(const char *line)
{
    struct tm tm = {0};
    const char *rest = strptime(line, "%Y-%m-%d %H:%M:%S", &tm);

    if (rest == NULL || *rest != '.')
        scratch_give_up("no time in the server's log line: %.40s", line);
    return (int64_t)timegm(&tm) * 1000 + strtoll(rest + 1, NULL, 10);
}

size_t paced_run_times(struct private_postgres *pg, int id, int64_t *out_wall_ms, size_t limit)
{
    char *folder = private_postgres_value(pg, "SHOW data_directory");
    char *path = scratch_format("%s/../log", folder);
    char *text = scratch_read(path, NULL);
    char *needle = scratch_format("tick <k%d>", id), *rest = NULL;
    size_t count = 0;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL && count < limit;
         line = strtok_r(NULL, "\n", &rest))
        if (strstr(line, needle) != NULL)
            out_wall_ms[count++] = wall_ms_of(line);
    free(needle);
    free(text);
    free(path);
    free(folder);
    return count;
}

int64_t paced_active(struct private_postgres *pg)
{
    return private_postgres_active(pg, "%FROM paced p%");
}

#include "outage_times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "private_postgres.h"
#include "scratch.h"

static const char ready[] = "database system is ready to accept connections";

/* "2026-11-30 05:32:18.123 UTC [...": microseconds since 1970. */
static int64_t wall_us_of(const char *line)
{
    struct tm tm = {0};
    const char *rest = strptime(line, "%Y-%m-%d %H:%M:%S", &tm);

    if (rest == NULL || *rest != '.')
        scratch_give_up("no time in the server's log line: %.40s", line);
    return (int64_t)timegm(&tm) * 1000000 + strtoll(rest + 1, NULL, 10) * 1000;
}

int64_t outage_ready_us(struct private_postgres *pg)
{
    char *folder = private_postgres_value(pg, "SHOW data_directory");
    char *path = scratch_format("%s/../log", folder);
    char *text = scratch_read(path, NULL);
    const char *last = NULL;
    int64_t ago_us;

    for (const char *at = text; (at = strstr(at, ready)) != NULL; at++)
        last = at;
    if (last == NULL)
        scratch_give_up("the server's log does not say that it is ready");
    while (last > text && last[-1] != '\n')
        last--;
    ago_us = clock_wall_us() - wall_us_of(last);
    free(text);
    free(path);
    free(folder);
    return clock_now().us - ago_us;
}

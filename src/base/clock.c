#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

struct instant clock_now(void)
{
    return (struct instant){read_clock(CLOCK_MONOTONIC)};
}

int64_t clock_wall_us(void)
{
    return read_clock(CLOCK_REALTIME);
}

void clock_format_wall(int64_t wall_us, char out_text[32])
{
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm tm;
    char date[24];

    (void)gmtime_r(&seconds, &tm);
    (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out_text, 32, "%s.%03dZ", date, (int)(wall_us / 1000 % 1000));
}

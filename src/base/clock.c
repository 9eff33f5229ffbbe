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

/* The date of a day since 1970-01-01 (proleptic Gregorian), counted in years that begin in March,
 * so that the leap day is the last. */
static void date_of(int64_t day, int *out_year, int *out_month, int *out_day)
{
    enum { DAYS_BEFORE_1970 = 719468, DAYS_IN_400_YEARS = 146097 };
    int64_t since = day + DAYS_BEFORE_1970;
    int64_t era = (since >= 0 ? since : since - DAYS_IN_400_YEARS + 1) / DAYS_IN_400_YEARS;
    int64_t of_era = since - era * DAYS_IN_400_YEARS;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153; /* 0: March */

    *out_day = (int)(of_year - (153 * month + 2) / 5) + 1;
    *out_month = (int)(month < 10 ? month + 3 : month - 9);
    *out_year = (int)(year + era * 400 + (*out_month <= 2));
}

/* Not gmtime_r() and strftime(): both take the C library's one lock for time zones, and a thread
 * that is halted with it would halt whoever writes a log line. */
void clock_format_wall(int64_t wall_us, char out_text[32])
{
    enum { DAY_S = 86400 };
    int64_t ms = (wall_us >= 0 ? wall_us : wall_us - 999) / 1000;
    int64_t seconds = (ms >= 0 ? ms : ms - 999) / 1000;
    int64_t day = (seconds >= 0 ? seconds : seconds - DAY_S + 1) / DAY_S;
    unsigned of_day = (unsigned)(seconds - day * DAY_S);
    int year, month, day_of_month;

    date_of(day, &year, &month, &day_of_month);
    (void)snprintf(out_text, 32, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)year % 10000,
                   (unsigned)month % 100, (unsigned)day_of_month % 100, of_day / 3600 % 24,
                   of_day / 60 % 60, of_day % 60, (unsigned)(ms - seconds * 1000) % 1000);
}

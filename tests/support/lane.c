#include "lane.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "crowd.h"
#include "http_client.h"
#include "scratch.h"

struct answer_record {
    int64_t start_us, elapsed_us;
    int status;
    char reason[24]; /* of a problem */
};

struct lane {
    char *what, *url; /* owned */
    int64_t pause_us;
    pthread_t thread;
    bool is_stopped;
    _Atomic bool is_over;
    _Atomic int64_t out_since_us; /* 0: no request is out */
    _Atomic uint64_t count;
    struct answer_record *records; /* owned; the thread's until it is joined */
    size_t record_count, capacity;
};

static void keep(struct lane *lane, struct answer_record record)
{
    if (lane->record_count == lane->capacity) {
        lane->capacity = 2 * (lane->capacity + 512);
        lane->records = realloc(lane->records, lane->capacity * sizeof *lane->records);
        if (lane->records == NULL)
            scratch_give_up("out of memory");
    }
    lane->records[lane->record_count++] = record;
}

static void ask(struct lane *lane, struct http_client *client)
{
    struct http_request request = {.url = lane->url};
    struct instant start = clock_now();
    struct http_answer answer;
    struct answer_record record;
    char *reason;

    atomic_store(&lane->out_since_us, start.us);
    answer = http_client_ask(client, &request);
    atomic_store(&lane->out_since_us, 0);
    atomic_fetch_add(&lane->count, 1);
    record = (struct answer_record){.start_us = start.us,
                                    .elapsed_us = instant_span_us(start, clock_now()),
                                    .status = answer.status};
    reason = answer.status == 200 ? NULL : http_answer_reason(&answer);
    (void)snprintf(record.reason, sizeof record.reason, "%s", reason != NULL ? reason : "");
    free(reason);
    keep(lane, record);
    http_answer_fini(&answer);
}

static void *run(void *arg)
{
    struct lane *lane = arg;
    struct http_client *client = http_client_create();

    while (!atomic_load(&lane->is_over)) {
        ask(lane, client);
        if (lane->pause_us > 0)
            (void)usleep((useconds_t)lane->pause_us);
    }
    http_client_destroy(client);
    return NULL;
}

struct lane *lane_start(const char *what, const char *url, int64_t pause_us)
{
    struct lane *lane = calloc(1, sizeof *lane);

    if (lane == NULL)
        scratch_give_up("out of memory");
    lane->what = scratch_format("%s", what);
    lane->url = scratch_format("%s", url);
    lane->pause_us = pause_us;
    if (pthread_create(&lane->thread, NULL, run, lane) != 0)
        scratch_give_up("no thread for a caller");
    return lane;
}

void lane_stop(struct lane *lane)
{
    if (lane->is_stopped)
        return;
    atomic_store(&lane->is_over, true);
    (void)pthread_join(lane->thread, NULL);
    lane->is_stopped = true;
}

void lane_fini(struct lane *lane)
{
    if (lane == NULL)
        return;
    lane_stop(lane);
    free(lane->records);
    free(lane->what);
    free(lane->url);
    free(lane);
}

const char *lane_what(const struct lane *lane)
{
    return lane->what;
}

int64_t lane_waited_us(struct lane *lane)
{
    int64_t since_us = atomic_load(&lane->out_since_us);

    return since_us == 0 ? 0 : clock_now().us - since_us;
}

uint64_t lane_count(struct lane *lane)
{
    return atomic_load(&lane->count);
}

size_t lane_bad_count(const struct lane *lane)
{
    size_t count = 0;

    for (size_t i = 0; i < lane->record_count; i++)
        count += lane->records[i].status != 200;
    return count;
}

void lane_print_bad(const struct lane *lane)
{
    for (size_t i = 0; i < lane->record_count; i++) {
        const struct answer_record *r = &lane->records[i];

        if (r->status != 200)
            (void)printf("  %s: request %zu got %d (%s) after %lld us\n", lane->what, i, r->status,
                         r->reason, (long long)r->elapsed_us);
    }
}

int64_t lane_worst_us(const struct lane *lane)
{
    int64_t worst_us = 0;

    for (size_t i = 0; i < lane->record_count; i++)
        if (lane->records[i].elapsed_us > worst_us)
            worst_us = lane->records[i].elapsed_us;
    return worst_us;
}

int64_t lane_percentile_us(const struct lane *lane, struct lane_slice slice, double percent)
{
    int64_t *samples = calloc(lane->record_count + 1, sizeof *samples);
    size_t count = 0;
    int64_t value = -1;

    if (samples == NULL)
        scratch_give_up("out of memory");
    for (size_t i = 0; i < lane->record_count; i++) {
        const struct answer_record *r = &lane->records[i];

        if (r->start_us >= slice.from_us && r->start_us < slice.to_us)
            samples[count++] = r->elapsed_us;
    }
    if (count > 0)
        value = crowd_percentile_us(samples, count, percent);
    free(samples);
    return value;
}

double lane_ratio(const struct lane *lane, const struct lane_slice *with,
                  const struct lane_slice *without, size_t count, double percent)
{
    double *ratios = calloc(count, sizeof *ratios);
    double median;

    if (ratios == NULL)
        scratch_give_up("out of memory");
    for (size_t i = 0; i < count; i++) {
        int64_t faulted_us = lane_percentile_us(lane, with[i], percent);
        int64_t quiet_us = lane_percentile_us(lane, without[i], percent);

        /* A slice without a single answer is as bad as can be. */
        ratios[i] = faulted_us < 0 || quiet_us <= 0 ? 1e9 : (double)faulted_us / (double)quiet_us;
    }
    median = crowd_median_ratio(ratios, count);
    free(ratios);
    return median;
}

#include "load.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "crowd.h"
#include "http_client.h"
#include "scratch.h"

enum { FIRST_ROOM = 1024, KINDS_MAX = 32, GATHER_US = 50000 /* until all threads stand ready */ };

struct asker {
    pthread_t thread;
    struct load *load; /* borrowed */
    unsigned index;
    struct load_record *items; /* owned; the thread's until it is joined */
    size_t count, room;
};

struct load {
    struct load_setup setup;
    struct instant begin;
    atomic_bool is_over;
    struct asker *askers; /* owned */
};

static void keep(struct asker *asker, struct instant start, const struct http_answer *answer)
{
    struct load_record *record;
    char *reason = answer->status >= 400 ? http_answer_reason(answer) : NULL;

    if (asker->count == asker->room) {
        asker->room = asker->room == 0 ? FIRST_ROOM : asker->room * 2;
        asker->items = realloc(asker->items, asker->room * sizeof *asker->items);
        if (asker->items == NULL)
            scratch_give_up("out of memory");
    }
    record = &asker->items[asker->count++];
    *record = (struct load_record){
        .start_us = start.us, .elapsed_us = answer->elapsed_us, .status = answer->status};
    (void)snprintf(record->reason, sizeof record->reason, "%s", reason != NULL ? reason : "");
    free(reason);
}

/* This thread's next instant that is not past. */
static struct instant next_turn(const struct asker *asker, struct instant turn)
{
    const struct load_setup *setup = &asker->load->setup;
    int64_t period_us = (int64_t)setup->thread_count * 1000000 / setup->rate_per_s;

    do
        turn = instant_after(turn, period_us);
    while (instant_reached(clock_now(), turn));
    return turn;
}

static void sleep_until(struct instant at)
{
    struct timespec t = {.tv_sec = at.us / 1000000, .tv_nsec = at.us % 1000000 * 1000};

    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void *ask_on(void *context)
{
    struct asker *asker = context;
    struct load *load = asker->load;
    struct http_client *client = http_client_create();
    int64_t offset_us = (int64_t)asker->index * 1000000 / load->setup.rate_per_s;
    struct instant turn = instant_after(load->begin, offset_us);

    while (!atomic_load_explicit(&load->is_over, memory_order_relaxed)) {
        struct http_answer answer;
        struct instant start;

        sleep_until(turn);
        start = clock_now();
        answer = http_client_ask(client, &(struct http_request){.url = load->setup.url});
        keep(asker, start, &answer);
        http_answer_fini(&answer);
        turn = next_turn(asker, turn);
    }
    http_client_destroy(client);
    return NULL;
}

struct load *load_start(const struct load_setup *setup)
{
    struct load *load = calloc(1, sizeof *load);

    if (load == NULL || (load->askers = calloc(setup->thread_count, sizeof *load->askers)) == NULL)
        scratch_give_up("out of memory");
    load->setup = *setup;
    load->begin = instant_after(clock_now(), GATHER_US);
    for (unsigned i = 0; i < setup->thread_count; i++) {
        load->askers[i].load = load;
        load->askers[i].index = i;
        if (pthread_create(&load->askers[i].thread, NULL, ask_on, &load->askers[i]) != 0)
            scratch_give_up("no thread for the load");
    }
    return load;
}

static int compare_start(const void *a, const void *b)
{
    const struct load_record *left = a, *right = b;

    return (left->start_us > right->start_us) - (left->start_us < right->start_us);
}

static void gather(struct load_records *all, struct asker *asker)
{
    if (asker->count == 0)
        return;
    all->items = realloc(all->items, (all->count + asker->count) * sizeof *all->items);
    if (all->items == NULL)
        scratch_give_up("out of memory");
    memcpy(all->items + all->count, asker->items, asker->count * sizeof *all->items);
    all->count += asker->count;
    free(asker->items);
}

struct load_records load_stop(struct load *load)
{
    struct load_records all = {0};

    atomic_store_explicit(&load->is_over, true, memory_order_relaxed);
    for (unsigned i = 0; i < load->setup.thread_count; i++) {
        (void)pthread_join(load->askers[i].thread, NULL);
        gather(&all, &load->askers[i]);
    }
    if (all.count > 0)
        qsort(all.items, all.count, sizeof *all.items, compare_start);
    free(load->askers);
    free(load);
    return all;
}

void load_records_fini(struct load_records *records)
{
    free(records->items);
    *records = (struct load_records){0};
}

static bool matches(const struct load_record *record, const struct load_filter *filter)
{
    return record->start_us >= filter->from_us && record->start_us < filter->to_us &&
           (filter->status == 0 || record->status == filter->status) &&
           (filter->reason == NULL || strcmp(record->reason, filter->reason) == 0);
}

size_t load_count(const struct load_records *records, const struct load_filter *filter)
{
    size_t count = 0;

    for (size_t i = 0; i < records->count; i++)
        count += matches(&records->items[i], filter) ? 1 : 0;
    return count;
}

int64_t load_percentile_us(const struct load_records *records, const struct load_filter *filter,
                           double percent)
{
    int64_t *times_us = calloc(records->count + 1, sizeof *times_us);
    size_t count = 0;
    int64_t value_us;

    if (times_us == NULL)
        scratch_give_up("out of memory");
    for (size_t i = 0; i < records->count; i++) {
        if (matches(&records->items[i], filter))
            times_us[count++] = records->items[i].elapsed_us;
    }
    value_us = crowd_percentile_us(times_us, count, percent);
    free(times_us);
    return value_us;
}

static int64_t end_us(const struct load_record *record)
{
    return record->start_us + record->elapsed_us;
}

const struct load_record *load_first_answered(const struct load_records *records,
                                              const struct load_filter *filter)
{
    const struct load_record *first = NULL;

    for (size_t i = 0; i < records->count; i++) {
        const struct load_record *record = &records->items[i];

        if (matches(record, filter) && (first == NULL || end_us(record) < end_us(first)))
            first = record;
    }
    return first;
}

struct kind {
    const struct load_record *sample;
    size_t count;
    int64_t slowest_us;
};

static void count_kind(struct kind *kinds, const struct load_record *record)
{
    struct kind *kind = kinds;

    while (kind->sample != NULL && kind < kinds + KINDS_MAX - 1 &&
           (kind->sample->status != record->status ||
            strcmp(kind->sample->reason, record->reason) != 0))
        kind++;
    kind->sample = record;
    kind->count++;
    if (record->elapsed_us > kind->slowest_us)
        kind->slowest_us = record->elapsed_us;
}

void load_print(const struct load_records *records, const struct load_filter *filter)
{
    struct kind kinds[KINDS_MAX] = {0};

    for (size_t i = 0; i < records->count; i++) {
        if (matches(&records->items[i], filter))
            count_kind(kinds, &records->items[i]);
    }
    for (const struct kind *kind = kinds; kind < kinds + KINDS_MAX && kind->sample != NULL; kind++)
        (void)printf("  %d %s: %zu, slowest %.2f ms\n", kind->sample->status, kind->sample->reason,
                     kind->count, (double)kind->slowest_us / 1000.0);
    (void)fflush(stdout);
}

#include "crowd.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "scratch.h"

enum { STACK_BYTES = 512 * 1024 };

struct seat {
    pthread_t thread;
    pthread_barrier_t *barrier; /* borrowed */
    crowd_member *member;
    void *context;
    unsigned index;
};

static void *sit(void *arg)
{
    struct seat *seat = arg;

    (void)pthread_barrier_wait(seat->barrier);
    seat->member(seat->index, seat->context);
    return NULL;
}

void crowd_run(unsigned count, crowd_member *member, void *context)
{
    struct seat *seats = calloc(count, sizeof *seats);
    pthread_barrier_t barrier;
    pthread_attr_t attributes;

    if (seats == NULL || pthread_barrier_init(&barrier, NULL, count) != 0)
        scratch_give_up("no crowd of %u", count);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (unsigned i = 0; i < count; i++) {
        seats[i] =
            (struct seat){.barrier = &barrier, .member = member, .context = context, .index = i};
        if (pthread_create(&seats[i].thread, &attributes, sit, &seats[i]) != 0)
            scratch_give_up("no thread %u of %u", i, count);
    }
    for (unsigned i = 0; i < count; i++)
        (void)pthread_join(seats[i].thread, NULL);
    (void)pthread_attr_destroy(&attributes);
    (void)pthread_barrier_destroy(&barrier);
    free(seats);
}

static int compare_us(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

static int compare_ratio(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

int64_t crowd_percentile_us(int64_t *samples_us, size_t count, double percent)
{
    size_t rank = (size_t)ceil(percent / 100.0 * (double)count);

    if (count == 0)
        return 0;
    qsort(samples_us, count, sizeof *samples_us, compare_us);
    return samples_us[rank == 0 ? 0 : rank - 1];
}

int64_t crowd_median_us(int64_t *samples_us, size_t count)
{
    return crowd_percentile_us(samples_us, count, 50);
}

double crowd_median_ratio(double *ratios, size_t count)
{
    if (count == 0)
        return 0;
    qsort(ratios, count, sizeof *ratios, compare_ratio);
    return ratios[(count - 1) / 2];
}

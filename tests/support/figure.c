#include "figure.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "patience.h"
#include "scratch.h"

enum { NAPS_MAX = 100000, NAP_MS = 1 };

struct figure_noise {
    pthread_t thread;
    atomic_bool is_over;
    size_t count; /* the thread's until it is joined, as are the samples */
    int64_t late_us[NAPS_MAX];
};

static void *nap_on(void *context)
{
    struct figure_noise *noise = context;

    while (!atomic_load_explicit(&noise->is_over, memory_order_relaxed) &&
           noise->count < NAPS_MAX) {
        struct instant before = clock_now();

        pass_ms(NAP_MS);
        noise->late_us[noise->count++] = instant_span_us(before, clock_now()) - NAP_MS * 1000;
    }
    return NULL;
}

struct figure_noise *figure_noise_start(void)
{
    struct figure_noise *noise = calloc(1, sizeof *noise);

    if (noise == NULL || pthread_create(&noise->thread, NULL, nap_on, noise) != 0)
        scratch_give_up("cannot measure the timers' noise");
    return noise;
}

int64_t figure_noise_stop_us(struct figure_noise *noise, double percent)
{
    int64_t late_us;

    atomic_store_explicit(&noise->is_over, true, memory_order_relaxed);
    (void)pthread_join(noise->thread, NULL);
    late_us = crowd_percentile_us(noise->late_us, noise->count, percent);
    free(noise);
    return late_us;
}

static double ms(int64_t us)
{
    return (double)us / 1000.0;
}

void figure_at_most_us(const char *what, int64_t value_us, int64_t limit_us, int64_t noise_us)
{
    (void)printf("figure: %s: %.2f ms (limit %.0f ms, timer noise %.2f ms)\n", what, ms(value_us),
                 ms(limit_us), ms(noise_us));
    (void)fflush(stdout);
    assert_in_range((uintmax_t)(value_us < 0 ? 0 : value_us), 0, (uintmax_t)(limit_us + noise_us));
}

void figure_ratio_at_most(const char *what, double ratio, double limit)
{
    (void)printf("figure: %s: %.3f (limit %.1f)\n", what, ratio, limit);
    (void)fflush(stdout);
    assert_true(ratio <= limit);
}

void figure_count_at_most(const char *what, int64_t count, int64_t limit)
{
    (void)printf("figure: %s: %" PRId64 " (limit %" PRId64 ")\n", what, count, limit);
    (void)fflush(stdout);
    assert_true(count <= limit);
}

void figure_count_is(const char *what, int64_t count, int64_t wanted)
{
    (void)printf("figure: %s: %" PRId64 " (must be %" PRId64 ")\n", what, count, wanted);
    (void)fflush(stdout);
    assert_int_equal(count, wanted);
}

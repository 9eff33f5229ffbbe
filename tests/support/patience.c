#include "patience.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "scratch.h"

enum { ASK_EVERY_US = 5000, NAP_US = 1000 };

struct noise_meter {
    pthread_t thread;
    atomic_bool is_over;
    int64_t worst_us; /* the thread's until it is joined */
};

static void nap_us(int64_t us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

void pass_ms(int64_t ms)
{
    nap_us(ms * 1000);
}

bool poll_until(patience_condition *is_true, void *context, int64_t limit_ms)
{
    struct instant deadline = instant_after(clock_now(), limit_ms * 1000);

    while (!is_true(context)) {
        if (instant_reached(clock_now(), deadline))
            return false;
        nap_us(ASK_EVERY_US);
    }
    return true;
}

static void *measure(void *context)
{
    struct noise_meter *meter = context;

    while (!atomic_load_explicit(&meter->is_over, memory_order_relaxed)) {
        struct instant before = clock_now();
        int64_t late_us;

        nap_us(NAP_US);
        late_us = instant_span_us(before, clock_now()) - NAP_US;
        if (late_us > meter->worst_us)
            meter->worst_us = late_us;
    }
    return NULL;
}

struct noise_meter *noise_meter_start(void)
{
    struct noise_meter *meter = calloc(1, sizeof *meter);

    if (meter == NULL || pthread_create(&meter->thread, NULL, measure, meter) != 0)
        scratch_give_up("cannot start a noise meter");
    return meter;
}

int64_t noise_meter_stop_us(struct noise_meter *meter)
{
    int64_t worst_us;

    atomic_store_explicit(&meter->is_over, true, memory_order_relaxed);
    (void)pthread_join(meter->thread, NULL);
    worst_us = meter->worst_us;
    free(meter);
    return worst_us;
}

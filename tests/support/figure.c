#include "figure.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "patience.h"
#include "scratch.h"

enum { ROUNDS_MAX = 50000, EVERY_MS = 4, HERE = 0, THERE = 1 };

struct figure_noise {
    pthread_t asker, echo;
    int ends[2]; /* owned */
    atomic_bool is_over;
    size_t count; /* the asker's until it is joined, as are the samples */
    int64_t round_us[ROUNDS_MAX];
};

static void *echo_on(void *context)
{
    struct figure_noise *noise = context;
    char byte;

    while (read(noise->ends[THERE], &byte, 1) == 1 && write(noise->ends[THERE], &byte, 1) == 1)
        ;
    return NULL;
}

static void *ask_on(void *context)
{
    struct figure_noise *noise = context;
    char byte = 0;

    while (!atomic_load_explicit(&noise->is_over, memory_order_relaxed) &&
           noise->count < ROUNDS_MAX) {
        struct instant before;

        pass_ms(EVERY_MS);
        before = clock_now();
        if (write(noise->ends[HERE], &byte, 1) != 1 || read(noise->ends[HERE], &byte, 1) != 1)
            break;
        noise->round_us[noise->count++] = instant_span_us(before, clock_now());
    }
    return NULL;
}

struct figure_noise *figure_noise_start(void)
{
    struct figure_noise *noise = calloc(1, sizeof *noise);

    if (noise == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, noise->ends) != 0 ||
        pthread_create(&noise->echo, NULL, echo_on, noise) != 0 ||
        pthread_create(&noise->asker, NULL, ask_on, noise) != 0)
        scratch_give_up("cannot measure the machine's noise");
    return noise;
}

struct figure_round figure_noise_stop(struct figure_noise *noise)
{
    struct figure_round round;

    atomic_store_explicit(&noise->is_over, true, memory_order_relaxed);
    (void)pthread_join(noise->asker, NULL);
    (void)shutdown(noise->ends[HERE], SHUT_RDWR);
    (void)pthread_join(noise->echo, NULL);
    (void)close(noise->ends[HERE]);
    (void)close(noise->ends[THERE]);
    round.p99_us = crowd_percentile_us(noise->round_us, noise->count, 99);
    round.worst_us = crowd_percentile_us(noise->round_us, noise->count, 100);
    free(noise);
    return round;
}

static double ms(int64_t us)
{
    return (double)us / 1000.0;
}

void figure_at_most_us(const char *what, int64_t value_us, int64_t limit_us, int64_t noise_us)
{
    (void)printf("figure: %s: %.2f ms (limit %.0f ms, machine's noise %.2f ms)%s\n", what,
                 ms(value_us), ms(limit_us), ms(noise_us), FIGURE_IS_JUDGED ? "" : " not judged");
    (void)fflush(stdout);
    if (!FIGURE_IS_JUDGED)
        return;
    assert_in_range((uintmax_t)(value_us < 0 ? 0 : value_us), 0, (uintmax_t)(limit_us + noise_us));
}

void figure_ratio_at_most(const char *what, double ratio, double limit)
{
    (void)printf("figure: %s: %.3f (limit %.1f)%s\n", what, ratio, limit,
                 FIGURE_IS_JUDGED ? "" : " not judged");
    (void)fflush(stdout);
    assert_true(!FIGURE_IS_JUDGED || ratio <= limit);
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

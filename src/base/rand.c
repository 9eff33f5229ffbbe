#include "base/rand.h"

#include <sys/random.h>

#include "base/clock.h"

void rand_init(struct rand *r, uint64_t seed)
{
    r->state = seed;
}

void rand_init_from_system(struct rand *r)
{
    if (getrandom(&r->state, sizeof r->state, GRND_NONBLOCK) != (ssize_t)sizeof r->state)
        r->state = (uint64_t)clock_now().us ^ (uint64_t)(uintptr_t)r;
}

uint64_t rand_next(struct rand *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15U;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

uint64_t rand_below(struct rand *r, uint64_t bound)
{
    return rand_next(r) % bound;
}

int64_t rand_jitter_us(struct rand *r, int64_t span_us, int percent)
{
    int64_t share = span_us / 100 * percent;

    return span_us - share + (int64_t)rand_below(r, (uint64_t)(2 * share + 1));
}

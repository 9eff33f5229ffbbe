#include "web/saturation_internal.h"

bool saturation_is_refusal(enum served served, enum reason reason)
{
    return served == SERVED_ERROR &&
           (reason == REASON_BULKHEAD_FULL || reason == REASON_QUEUE_TIMEOUT ||
            reason == REASON_OVERLOADED);
}

void saturation_count(struct saturation *s, uint64_t refused_count, uint64_t other_count)
{
    counter_add(&s->refused_count, refused_count);
    counter_add(&s->other_count, other_count);
}

void saturation_tick(struct saturation *s)
{
    uint64_t refused = counter_read(&s->refused_count), other = counter_read(&s->other_count);
    bool is_bad = refused - s->refused_before > other - s->other_before;

    s->refused_before = refused;
    s->other_before = other;
    counter_set(&s->bad_seconds, is_bad ? counter_read(&s->bad_seconds) + 1 : 0);
}

bool saturation_is_reached(const struct saturation *s)
{
    return counter_read(&s->bad_seconds) >= SATURATION_AFTER_SECONDS;
}

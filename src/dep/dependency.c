#include "dep/dependency.h"

#include "dep/call.h"

void dependency_submit(struct dependency *dep, struct call *call)
{
    (void)inbox_put(&dep->inbox, &call->item);
}

void dependency_cancel(struct dependency *dep, struct call *call, bool is_hang_up)
{
    call->is_hung_up = is_hang_up;
    atomic_store(&call->is_cancelled, true); /* before its maker looks whether it was sent */
    if (!atomic_exchange_explicit(&dep->has_cancels, true, memory_order_acq_rel) &&
        dep->inbox.wake != NULL)
        dep->inbox.wake(dep->inbox.ctx);
}

uint32_t dependency_retry_after_s(const struct dependency *dep, struct instant now, uint64_t random)
{
    int64_t until_us = atomic_load_explicit(&dep->admission.retry_at_us, memory_order_relaxed);
    int64_t wait_us = until_us == INSTANT_NEVER.us ? 0 : until_us - now.us;

    if (wait_us < 0)
        wait_us = 0;
    wait_us += (int64_t)(random % (uint64_t)(wait_us / 4 + 1));
    return (uint32_t)((wait_us + 999999) / 1000000 > 1 ? (wait_us + 999999) / 1000000 : 1);
}

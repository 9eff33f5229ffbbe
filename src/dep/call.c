#include "dep/call.h"

#include <stdlib.h>

struct call *call_create(const struct route *route, struct bound_params *params,
                         struct instant deadline, struct instant now, struct inbox *reply_to)
{
    struct call *call = malloc(sizeof *call);

    if (call == NULL)
        return NULL;

    /* Member by member: clearing small_body on every call would cost more than all the rest. */
    call->route = route;
    call->params = *params;
    *params = (struct bound_params){0};
    call->deadline = deadline;
    call->created_at = now;
    call->ticket = (struct ticket){0};
    call->has_permit = false;
    call->is_short_by_caller = false;
    call->reply_to = reply_to;
    call->dependency = NULL;
    call->request = NULL;
    call->flight = NULL;
    call->limited_route = NULL;
    atomic_init(&call->is_cancelled, false);
    atomic_init(&call->is_sent, false);
    call->is_hung_up = false;
    list_init(&call->link);
    call->session = NULL;
    call->is_settled = false;
    call->prepared_again_count = 0;
    call->give_up_at = deadline;
    call->sent_at = (struct instant){0};
    call->outcome.reason = REASON_NONE;
    call->outcome.body = (struct body){0};
    call->outcome.small_bytes = 0;
    call->outcome.sqlstate[0] = '\0';
    call->outcome.detail[0] = '\0';
    call->outcome.constraint[0] = '\0';
    call->outcome.waited_us = 0;
    call->outcome.served_us = 0;
    return call;
}

void call_destroy(struct call *call)
{
    if (call == NULL)
        return;
    bound_params_fini(&call->params);
    body_fini(&call->outcome.body);
    free(call);
}

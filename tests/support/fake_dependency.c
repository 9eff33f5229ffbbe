#include "fake_dependency.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/ensure.h"
#include "dep/call.h"

enum { START_US = 1000000000, SEED = 7 };

static struct call *call_of(const struct list *link)
{
    return LIST_ITEM(link, struct call, link);
}

static size_t list_count(const struct list *list)
{
    size_t count = 0;

    for (const struct list *i = list->next; i != list; i = i->next)
        count++;
    return count;
}

static void on_wake(void *ctx)
{
    struct fake_dependency *f = ctx;

    f->wake_count++;
}

static uint32_t at_least_one(uint32_t value)
{
    return value > 0 ? value : 1;
}

void fake_dependency_init(struct fake_dependency *f, const struct dependency_config *config)
{
    struct breaker_config breaker = {
        .failure_threshold = at_least_one(config->breaker.failure_threshold),
        .reset_timeout_us = config->breaker.reset_timeout_us,
        .max_reset_timeout_us = config->breaker.max_reset_timeout_us,
        .half_open_calls = at_least_one(config->breaker.half_open_calls),
    };

    memset(f, 0, sizeof *f);
    f->config = *config;
    f->now = (struct instant){START_US};
    f->dep.name = "fake";
    f->dep.config = &f->config;
    f->dep.metrics = &f->metrics;
    rand_init(&f->rand, SEED);
    list_init(&f->line);
    list_init(&f->running);
    admission_init(&f->dep.admission, at_least_one(config->bulkhead.max_concurrent),
                   config->bulkhead.max_queued);
    admission_set_mode(&f->dep.admission, config->breaker.mode);
    breaker_init(&f->breaker, &breaker, &f->dep.admission, &f->rand, NULL, NULL);
    inbox_init(&f->dep.inbox, on_wake, f);
}

void fake_dependency_fini(struct fake_dependency *f)
{
    ENSURE(inbox_drain(&f->dep.inbox) == NULL);
    ENSURE(list_is_empty(&f->line) && list_is_empty(&f->running));
}

/* ---- outcomes ---- */

/* NULL: leaves it empty. */
static void set_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text != NULL ? text : "");
}

static void set_body(struct outcome *out, const struct fake_outcome *script)
{
    size_t size_bytes = script->body != NULL ? strlen(script->body) : 0;
    struct buffer rows;

    if (!script->is_large) {
        ENSURE(size_bytes <= sizeof out->small_body);
        memcpy(out->small_body, script->body != NULL ? script->body : "", size_bytes);
        out->small_bytes = size_bytes;
        return;
    }
    buffer_init_mapped(&rows, size_bytes);
    buffer_append(&rows, script->body, size_bytes);
    ENSURE(!rows.failed);
    out->body = buffer_take(&rows);
}

static void set_outcome(struct call *call, const struct fake_outcome *script)
{
    struct outcome *out = &call->outcome;

    out->reason = script->reason;
    set_text(out->detail, sizeof out->detail, script->detail);
    set_text(out->constraint, sizeof out->constraint, script->constraint);
    if (script->reason == REASON_NONE)
        set_body(out, script);
}

static void reply(struct call *call)
{
    call->has_permit = false;
    inbox_push(call->reply_to, &call->item); /* from here on it is the worker's */
}

/* ---- the waiting line ---- */

static void leave_line(struct fake_dependency *f, struct call *call, enum reason reason)
{
    list_remove(&call->link);
    admission_leave_line(&f->dep.admission);
    call->outcome.reason = reason;
    reply(call);
}

static bool is_refusing(const struct fake_dependency *f)
{
    struct admission_view v = admission_read(&f->dep.admission);

    return v.mode == BREAKER_FORCED_OPEN ||
           (v.mode == BREAKER_AUTO &&
            (v.state == BREAKER_OPEN || (v.state == BREAKER_HALF_OPEN && v.trials_left == 0)));
}

static void move_line(struct fake_dependency *f)
{
    while (!list_is_empty(&f->line)) {
        struct call *call = call_of(f->line.next);

        if (admission_promote(&f->dep.admission, &call->ticket)) {
            call->has_permit = true;
            list_remove(&call->link);
            list_push_back(&f->running, &call->link);
        } else if (is_refusing(f)) {
            leave_line(f, call, REASON_BREAKER_OPEN);
        } else {
            return;
        }
    }
}

static void expire_line(struct fake_dependency *f)
{
    for (struct list *i = f->line.next, *next; i != &f->line; i = next) {
        next = i->next;
        if (instant_reached(f->now, call_of(i)->give_up_at))
            leave_line(f, call_of(i), REASON_QUEUE_TIMEOUT);
    }
}

/* ---- the story ---- */

static void take_call(struct fake_dependency *f, struct call *call)
{
    call->give_up_at = call->deadline;
    if (!call->has_permit)
        call->give_up_at = instant_earlier(
            call->deadline, instant_after(call->created_at, f->config.bulkhead.queue_timeout_us));
    list_push_back(call->has_permit ? &f->running : &f->line, &call->link);
}

static void take_cancels(struct fake_dependency *f)
{
    if (!atomic_exchange_explicit(&f->dep.has_cancels, false, memory_order_acq_rel))
        return;
    for (struct list *i = f->line.next, *next; i != &f->line; i = next) {
        next = i->next;
        if (atomic_load_explicit(&call_of(i)->is_cancelled, memory_order_acquire))
            leave_line(f, call_of(i), REASON_DEADLINE);
    }
}

void fake_dependency_take(struct fake_dependency *f)
{
    struct inbox_item *item = inbox_drain(&f->dep.inbox), *next;

    for (; item != NULL; item = next) {
        next = item->next;
        take_call(f, LIST_ITEM(item, struct call, item));
    }
    take_cancels(f);
    move_line(f);
}

struct call *fake_dependency_running(const struct fake_dependency *f, size_t n)
{
    for (const struct list *i = f->running.next; i != &f->running; i = i->next)
        if (n-- == 0)
            return call_of(i);
    return NULL;
}

size_t fake_dependency_running_count(const struct fake_dependency *f)
{
    return list_count(&f->running);
}

size_t fake_dependency_line_count(const struct fake_dependency *f)
{
    return list_count(&f->line);
}

size_t fake_dependency_permit_count(const struct fake_dependency *f)
{
    const struct inbox_item *item =
        atomic_load_explicit(&f->dep.inbox.newest, memory_order_acquire);
    size_t count = list_count(&f->running);

    for (; item != NULL; item = item->next)
        count += LIST_ITEM(item, struct call, item)->has_permit;
    return count;
}

static bool is_trial(const struct fake_dependency *f, const struct call *call)
{
    return call->has_permit && call->ticket.is_trial &&
           call->ticket.generation == f->breaker.generation;
}

size_t fake_dependency_trial_count(const struct fake_dependency *f)
{
    const struct inbox_item *item =
        atomic_load_explicit(&f->dep.inbox.newest, memory_order_acquire);
    size_t count = 0;

    for (; item != NULL; item = item->next)
        count += is_trial(f, LIST_ITEM(item, struct call, item));
    for (const struct list *i = f->running.next; i != &f->running; i = i->next)
        count += is_trial(f, call_of(i));
    return count;
}

void fake_dependency_answer(struct fake_dependency *f, struct call *call,
                            const struct fake_outcome *outcome)
{
    ENSURE(call->has_permit);
    list_remove(&call->link);
    set_outcome(call, outcome);
    breaker_record(&f->breaker, call->ticket, outcome->evidence, f->now);
    call->has_permit = false;
    admission_leave(&f->dep.admission); /* a caller that comes again at once finds it free */
    move_line(f);
    reply(call);
}

void fake_dependency_answer_all(struct fake_dependency *f, const struct fake_outcome *outcomes,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct call *call = fake_dependency_running(f, 0);

        ENSURE(call != NULL);
        fake_dependency_answer(f, call, &outcomes[i]);
    }
}

void fake_dependency_pass(struct fake_dependency *f, int64_t span_us)
{
    f->now = instant_after(f->now, span_us);
    breaker_tick(&f->breaker, f->now);
    expire_line(f);
    move_line(f);
}

void fake_dependency_drain(struct fake_dependency *f)
{
    static const struct fake_outcome draining = {.reason = REASON_DRAINING};

    fake_dependency_take(f);
    while (!list_is_empty(&f->line))
        leave_line(f, call_of(f->line.next), REASON_DRAINING);
    while (!list_is_empty(&f->running))
        fake_dependency_answer(f, call_of(f->running.next), &draining);
}

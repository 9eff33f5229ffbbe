#include "base/clock.h"
#include "config/config.h"
#include "dep/call.h"
#include "dep/dependency.h"
#include "dep/postgres_internal.h"
#include "query/route.h"

enum { SWEEP_EVERY_US = 1000000 };

static uint32_t open_count(const struct postgres *p)
{
    return p->session_counts[SESSION_IDLE] + p->session_counts[SESSION_BUSY] +
           p->session_counts[SESSION_CLEANING];
}

bool pool_has_connection(const struct postgres *p)
{
    return open_count(p) > 0;
}

/* The idle session used last (its memory is warm, and those not needed age until they retire); one
 * of the right kind before one that must be switched. Idle ones head the list. */
static struct postgres_session *find_idle(struct postgres *p, bool is_write)
{
    struct postgres_session *other = NULL;

    for (struct list *i = p->sessions.next; i != &p->sessions; i = i->next) {
        struct postgres_session *s = LIST_ITEM(i, struct postgres_session, link);

        if (s->state != SESSION_IDLE)
            break;
        if (s->is_read_write == is_write)
            return s;
        if (other == NULL)
            other = s;
    }
    return other;
}

/* An idle session that may be used, or NULL; those that died meanwhile are closed. */
static struct postgres_session *lend(struct postgres *p, bool is_write)
{
    struct postgres_session *s = find_idle(p, is_write);

    if (s == NULL)
        return NULL;
    if (session_is_fresh(s)) {
        list_remove(&s->link);
        list_push_back(&p->sessions, &s->link);
        return s;
    }
    session_close(s); /* serves what waits with another */
    return NULL;
}

void pool_rest(struct postgres_session *s)
{
    session_move(s, SESSION_IDLE);
    list_remove(&s->link);
    list_push_front(&s->owner->sessions, &s->link);
}

static uint32_t waiting_count(const struct postgres *p)
{
    uint32_t count = 0;

    for (const struct list *i = p->waiting.next; i != &p->waiting; i = i->next)
        count++;
    return count;
}

/* As many sessions are opening as calls wait, within `connections`. */
static void open_missing(struct postgres *p)
{
    uint32_t wanted = waiting_count(p);

    while (p->session_counts[SESSION_OPENING] < wanted &&
           open_count(p) + p->session_counts[SESSION_OPENING] < p->config->connections) {
        struct postgres_session *s = session_create(p, false);

        if (s == NULL)
            return;
        connect_begin(s);
        wanted = waiting_count(p); /* one that failed at once took its call with it */
    }
}

void pool_serve(struct postgres *p)
{
    while (!p->is_closed && !list_is_empty(&p->waiting)) {
        struct call *call = LIST_ITEM(p->waiting.next, struct call, link);
        struct postgres_session *s = lend(p, call->route->is_write);

        if (s == NULL)
            break;
        list_remove(&call->link);
        run_call(s, call);
    }
    if (!p->is_closed)
        open_missing(p);
}

static bool is_due(const struct postgres_session *s, struct instant now)
{
    return instant_reached(now, s->retire_at) ||
           instant_reached(now, instant_after(s->idle_since, s->owner->config->idle_timeout_us));
}

void pool_sweep(struct postgres *p, struct instant now)
{
    if (!instant_reached(now, p->next_sweep_at))
        return;
    p->next_sweep_at = instant_after(now, SWEEP_EVERY_US);
    for (struct list *i = p->sessions.next, *next; i != &p->sessions; i = next) {
        struct postgres_session *s = LIST_ITEM(i, struct postgres_session, link);

        next = i->next;
        if (s->state == SESSION_IDLE && is_due(s, now))
            session_close(s);
    }
}

/* The node turned out to be read-only: idle sessions go now, busy ones when they are done, and
 * names are looked up again. */
void pool_drop_read_write(struct postgres *p)
{
    for (struct list *i = p->sessions.next, *next; i != &p->sessions; i = next) {
        struct postgres_session *s = LIST_ITEM(i, struct postgres_session, link);

        next = i->next;
        if (!s->is_read_write)
            continue;
        s->retire_at = clock_now();
        if (s->state == SESSION_IDLE)
            session_close(s);
    }
    for (int i = 0; i < p->targets.count; i++)
        p->targets.items[i].resolved_at = INSTANT_NEVER;
}

void pool_close_all(struct postgres *p)
{
    while (!list_is_empty(&p->sessions))
        run_shut_down(LIST_ITEM(p->sessions.next, struct postgres_session, link));
}

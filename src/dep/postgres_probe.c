#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "config/config.h"
#include "dep/dependency.h"
#include "dep/postgres_internal.h"

enum { PROBE_JITTER_PERCENT = 20 };

static int64_t password_mtime_us(const struct postgres *p)
{
    struct stat st;

    if (p->config->password_file == NULL || stat(p->config->password_file, &st) != 0)
        return 0;
    return (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
}

void probe_schedule(struct postgres *p, struct instant now)
{
    p->probe.next_at = instant_after(
        now, rand_jitter_us(&p->rand, p->config->probe.interval_us, PROBE_JITTER_PERCENT));
}

/* While the breaker is not closed, or nothing was ever reached: every interval. While it is closed:
 * when nothing went well for `idle`. */
struct instant probe_next(const struct postgres *p)
{
    if (p->probe.session != NULL)
        return p->probe.give_up_at;
    if (p->breaker.state != BREAKER_CLOSED || counter_read(&p->dep->metrics->is_reached) == 0)
        return p->probe.next_at;
    if (instant_reached(p->probe.next_at, instant_after(p->last_good_at, p->config->probe.idle_us)))
        return p->probe.next_at;
    return instant_after(p->last_good_at, p->config->probe.idle_us);
}

/* Asking again and again with a password that was refused locks accounts. */
static bool is_password_still_refused(struct postgres *p, struct instant now)
{
    return strcmp(p->last_connect_sqlstate, "28P01") == 0 &&
           !instant_reached(now, p->probe.sure_at) &&
           password_mtime_us(p) == p->probe.password_mtime_us;
}

void probe_start_if_due(struct postgres *p, struct instant now)
{
    if (p->is_closed || p->probe.session != NULL || !instant_reached(now, probe_next(p)))
        return;
    probe_schedule(p, now);
    if (is_password_still_refused(p, now))
        return;
    p->probe.session = session_create(p, true);
    if (p->probe.session == NULL)
        return;
    p->probe.give_up_at = instant_after(now, p->config->probe.timeout_us);
    connect_begin(p->probe.session);
}

void probe_give_up_if_due(struct postgres *p, struct instant now)
{
    struct postgres_session *s = p->probe.session;

    if (s == NULL || !instant_reached(now, p->probe.give_up_at))
        return;
    failure_set(&s->failure, REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION,
                "the probe got no answer within probe.timeout");
    connect_failed(s);
}

static bool is_blamed(const struct postgres *p, const struct failure *failure)
{
    return !(failure->blames_only_without_connection && pool_has_connection(p));
}

void probe_ended(struct postgres *p, bool is_good, const struct failure *failure)
{
    struct instant now = clock_now();

    p->probe.session = NULL;
    probe_schedule(p, now);
    counter_add(is_good ? &p->dep->metrics->probes_ok : &p->dep->metrics->probes_failed, 1);
    if (is_good) {
        p->last_good_at = now;
        p->last_connect_sqlstate[0] = '\0';
        breaker_record_probe(&p->breaker, true, now);
        return;
    }
    memcpy(p->last_connect_sqlstate, failure->sqlstate, sizeof p->last_connect_sqlstate);
    p->probe.password_mtime_us = password_mtime_us(p);
    p->probe.sure_at = instant_after(now, p->config->breaker.max_reset_timeout_us);
    postgres_log_connect_failure(p, failure);
    if (is_blamed(p, failure)) {
        postgres_note_failure(p, failure);
        breaker_record_probe(&p->breaker, false, now);
    }
}

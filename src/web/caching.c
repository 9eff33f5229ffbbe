#include "base/reason.h"
#include "web/caching_internal.h"

enum { SECOND_US = 1000000 };

static int64_t whole_seconds(int64_t us)
{
    return us / SECOND_US - (us % SECOND_US < 0);
}

static bool is_stored(const struct answer *answer)
{
    return answer->cache.use == CACHE_USE_HIT && answer->entry != NULL;
}

static void add_detail(const struct answer *answer, struct header_text *out)
{
    if (answer->reason == REASON_NONE)
        return;
    header_text_add(out, "; detail=");
    header_text_add(out, reason_word(answer->reason));
}

static void write_hit(const struct answer *answer, struct header_text *out)
{
    header_text_begin(out, "weir; hit; ttl=");
    header_text_add_number(out, whole_seconds(answer->cache.ttl_us));
}

static void write_forward(const struct cache_note *cache, struct header_text *out)
{
    header_text_begin(out, cache->use == CACHE_USE_STALE ? "weir; fwd=stale" : "weir; fwd=miss");
    if (cache->is_stored)
        header_text_add(out, "; stored");
    if (cache->is_collapsed)
        header_text_add(out, "; collapsed");
}

bool caching_status(const struct answer *answer, struct header_text *out)
{
    switch (answer->cache.use) {
    case CACHE_USE_NONE:
        return false;
    case CACHE_USE_HIT:
        write_hit(answer, out);
        break;
    case CACHE_USE_MISS:
    case CACHE_USE_STALE:
        write_forward(&answer->cache, out);
        break;
    }
    add_detail(answer, out);
    return true;
}

/* Nobody should keep what is past its time here, or what we would not keep: a purge may have been
 * meant for it. */
static bool is_worth_keeping(const struct answer *answer)
{
    if (answer->served == SERVED_LIVE)
        return answer->cache.is_stored;
    return answer->served == SERVED_STORED && answer->cache.ttl_us > 0;
}

static void write_worth(const struct answer *answer, bool is_private, struct header_text *out)
{
    header_text_begin(out, is_private ? "private, " : "");
    if (!is_worth_keeping(answer)) {
        header_text_add(out, "max-age=0, must-revalidate");
        return;
    }
    header_text_add(out, "max-age=");
    header_text_add_number(out, whole_seconds(answer->entry->lifetime_us));
}

bool caching_control(const struct answer *answer, bool is_private, struct header_text *out)
{
    switch (answer->served) {
    case SERVED_ERROR:
    case SERVED_FALLBACK:
        header_text_begin(out, "no-store");
        return true;
    case SERVED_LIVE:
    case SERVED_STORED:
    case SERVED_STALE:
    case SERVED_COUNT:
        break;
    }
    if (answer->entry == NULL)
        return false;
    write_worth(answer, is_private, out);
    return true;
}

bool caching_age(const struct answer *answer, struct header_text *out)
{
    int64_t age_us = answer->cache.age_us;

    if (!is_stored(answer))
        return false;
    header_text_begin(out, "");
    header_text_add_number(out, age_us > 0 ? whole_seconds(age_us) : 0);
    return true;
}

bool caching_degraded(const struct answer *answer, struct header_text *out)
{
    if (answer->served != SERVED_STALE && answer->served != SERVED_FALLBACK)
        return false;
    header_text_begin(out, served_name(answer->served));
    if (answer->dependency != NULL) {
        header_text_add(out, "; dependency=");
        header_text_add(out, answer->dependency);
    }
    header_text_add(out, "; reason=");
    header_text_add(out, reason_word(answer->reason));
    return true;
}

/* Requests of cached routes in any order of events: two workers, a few keys that everyone wants and
 * some that nobody else does, and a dependency that the test answers by hand. What is asserted are
 * laws that hold after every step. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache_internal.h"
#include "cmocka_all.h"
#include "dep/call.h"
#include "fake_dependency.h"
#include "plan/endpoint.h"
#include "query/params.h"
#include "stage.h"

#define SECOND_US INT64_C(1000000)

enum { BOOKS, NEWS, PRICES, REPORTS, WRITE, ROUTE_COUNT };
enum { CROWD = 48, HOT_KEY_COUNT = 3, KEY_COUNT = 300, CALL_MAX_COUNT = 1024 };
enum { EVENT_COUNT = 100000, STORY_SEED = 20240229, LARGE_BYTES = STAGE_CACHE_MAX_BYTES };

static const char *const routes[ROUTE_COUNT] = {
    [BOOKS] = "-- GET /books\n-- @param id int4\n"
              "-- @cache max-age=2s stale-if-error=5s\nSELECT :id AS id\n",
    [NEWS] = "-- GET /news\n-- @param id int4\n"
             "-- @cache max-age=2s stale-while-revalidate=2s stale-if-error=5s\n"
             "SELECT :id AS id\n",
    [PRICES] = "-- GET /prices\n-- @param id int4\n-- @fallback []\n"
               "-- @cache max-age=1s\nSELECT :id AS id\n",
    [REPORTS] = "-- GET /reports\n-- @param id int4\n-- @limit 1\n-- @timeout 1s\n"
                "-- @cache max-age=1s stale-if-error=2s\nSELECT :id AS id\n",
    [WRITE] = "-- POST /books\n-- @param id int4 in=query\n-- @purges GET /books\n"
              "-- @purges GET /news\nINSERT INTO books (id) VALUES (:id)\n",
};

struct visitor {
    struct endpoint e;
    uint32_t worker;
    size_t route, key;
    uint64_t least_version; /* that it may be answered with */
    bool is_waiting;
};

/* Each body is the version of what was read, so that an answer from before a purge is found out. A
 * purge of a key makes its next version. */
struct crowd {
    struct stage *s;
    struct rand rand;
    struct visitor visitors[CROWD];
    uint64_t versions[ROUTE_COUNT][KEY_COUNT];
    char *text; /* owned: of the next body */
    uint64_t begun, answered, hung_up;
    uint64_t by_served[SERVED_COUNT], by_reason[REASON_COUNT];
    uint64_t joined_count, unstored_count, purged_count, cancelled_count, late_count;
    size_t flight_count_max;
};

/* ---- answers ---- */

static uint64_t version_in(const struct answer *answer)
{
    size_t size_bytes;
    const char *text = answer_text(answer, &size_bytes);

    assert_true(size_bytes > 1 && text[0] == '[');
    return strtoull(text + 1, NULL, 10);
}

/* An answer from the cache is no older than its route allows, and from after the last purge. */
static void assert_worth(const struct crowd *c, const struct visitor *v,
                         const struct answer *answer)
{
    const struct cache_policy *policy = &v->e.route->cache;
    int64_t age_us = answer->cache.age_us, allowed_us = policy->max_age_us;

    if (answer->served == SERVED_STALE)
        allowed_us += policy->stale_if_error_us;
    else if (answer->cache.ttl_us <= 0)
        allowed_us += policy->stale_while_revalidate_us;
    assert_true(age_us >= 0 && age_us <= allowed_us);
    if (answer->served == SERVED_STORED && policy->stale_while_revalidate_us == 0)
        assert_true(answer->cache.ttl_us > 0);
    assert_true(version_in(answer) >= c->versions[v->route][v->key]);
}

static void assert_reason(const struct visitor *v, const struct answer *answer)
{
    bool is_whole = answer->served == SERVED_LIVE || answer->served == SERVED_STORED;

    assert_int_equal(answer->reason == REASON_NONE, is_whole);
    if (answer->served == SERVED_ERROR)
        assert_int_equal(answer->status, reason_http(answer->reason));
    else
        assert_int_equal(answer->status, 200);
    if (answer->served == SERVED_FALLBACK)
        assert_int_equal(v->route, PRICES);
    if (answer->served == SERVED_FALLBACK || (answer->served == SERVED_STALE && v->route != NEWS))
        assert_true(reason_is_server_side(answer->reason));
}

static void count_answer(struct crowd *c, const struct visitor *v, struct answer *answer)
{
    c->answered++;
    c->by_served[answer->served]++;
    c->by_reason[answer->reason]++;
    assert_reason(v, answer);
    if (answer->served == SERVED_STORED || answer->served == SERVED_STALE)
        assert_worth(c, v, answer);
    else if (answer->entry != NULL)
        assert_true(version_in(answer) >= v->least_version);
    if (answer->served == SERVED_LIVE && answer->entry != NULL) {
        c->unstored_count += !answer->cache.is_stored;
        c->joined_count += answer->cache.is_collapsed;
    }
    answer_fini(answer);
}

static void end_visit(struct visitor *v)
{
    v->is_waiting = false;
    endpoint_fini(&v->e);
    memset(&v->e, 0xa5, sizeof v->e); /* whoever looks at it later is found out */
}

/* ---- callers ---- */

/* One of them at random, or the next that is (not) waiting; NULL: none. */
static struct visitor *pick(struct crowd *c, bool is_waiting)
{
    size_t start = rand_below(&c->rand, CROWD);

    for (size_t i = 0; i < CROWD; i++) {
        struct visitor *v = &c->visitors[(start + i) % CROWD];

        if (v->is_waiting == is_waiting)
            return v;
    }
    return NULL;
}

static size_t draw_key(struct crowd *c)
{
    return rand_below(&c->rand, rand_below(&c->rand, 10) == 0 ? KEY_COUNT : HOT_KEY_COUNT);
}

static int64_t draw_caller_timeout_us(struct crowd *c)
{
    if (rand_below(&c->rand, 3) > 0)
        return 0;
    return (int64_t)rand_below(&c->rand, 2 * (uint64_t)STAGE_REQUEST_TIMEOUT_US);
}

static void come(struct crowd *c)
{
    struct visitor *v = pick(c, false);
    struct raw_inputs inputs;
    struct answer answer;
    char query[32];

    if (v == NULL)
        return;
    c->begun++;
    v->worker = (uint32_t)rand_below(&c->rand, STAGE_WORKER_COUNT);
    v->route = rand_below(&c->rand, 20) == 0 ? WRITE : rand_below(&c->rand, WRITE);
    v->key = draw_key(c);
    v->least_version = c->versions[v->route][v->key];
    (void)snprintf(query, sizeof query, "id=%zu", v->key);
    inputs = (struct raw_inputs){.query = {query, strlen(query)}};
    v->is_waiting = !endpoint_begin(&v->e, &c->s->workers[v->worker].env, &c->s->routes[v->route],
                                    &inputs, draw_caller_timeout_us(c), c->s->fake.now, v, &answer);
    if (v->is_waiting)
        return;
    count_answer(c, v, &answer);
    end_visit(v);
}

static void hang_up(struct crowd *c)
{
    struct visitor *v = pick(c, true);

    if (v == NULL)
        return;
    c->hung_up++;
    if (rand_below(&c->rand, 2) == 0)
        endpoint_hang_up(&v->e);
    end_visit(v);
}

static void give_up(struct crowd *c, struct visitor *v, enum reason reason)
{
    struct answer answer;

    c->late_count += v->e.waiter.flight != NULL && v->e.waiter.flight->has_landed;
    endpoint_give_up(&v->e, reason, c->s->fake.now, &answer);
    count_answer(c, v, &answer);
    end_visit(v);
}

/* As the workers' timers do. */
static void fire_deadlines(struct crowd *c)
{
    for (size_t i = 0; i < CROWD; i++) {
        struct visitor *v = &c->visitors[i];

        if (v->is_waiting && instant_reached(c->s->fake.now, v->e.deadline))
            give_up(c, v, REASON_DEADLINE);
    }
}

static void drain_one(struct crowd *c)
{
    struct visitor *v = pick(c, true);

    if (v != NULL)
        give_up(c, v, REASON_DRAINING);
}

/* ---- purges ---- */

static void note_purge(struct crowd *c, size_t route)
{
    for (size_t key = 0; key < KEY_COUNT; key++)
        c->versions[route][key]++;
    c->purged_count++;
}

static void purge_route(struct crowd *c)
{
    size_t route = rand_below(&c->rand, WRITE);

    cache_purge_group(c->s->cache, (uint32_t)route);
    note_purge(c, route);
}

static void purge_key(struct crowd *c)
{
    size_t route = rand_below(&c->rand, WRITE), id = draw_key(c);
    char text[32];
    const char *value = text;
    struct bound_params params = {.count = 1, .values = &value};
    struct cache_key key;

    (void)snprintf(text, sizeof text, "%zu", id);
    assert_true(endpoint_key(c->s->cache, &c->s->routes[route], &params, &key));
    (void)cache_purge_key(c->s->cache, &key);
    free((void *)key.bytes);
    c->versions[route][id]++;
}

/* ---- workers ---- */

static void take_reply(struct crowd *c, struct stage_worker *w, struct call *call)
{
    struct visitor *v = call->request;
    bool is_purge = call->route->is_write && call->outcome.reason == REASON_NONE;
    struct answer answer;

    c->cancelled_count += atomic_load(&call->is_cancelled);
    if (endpoint_land(&w->env, call, c->s->fake.now)) {
        assert_null(v);
    } else if (v == NULL) {
        endpoint_discard(&w->env, call);
    } else {
        assert_true(v->is_waiting);
        assert_ptr_equal(v->e.call, call);
        endpoint_outcome(&v->e, call, c->s->fake.now, &answer);
        count_answer(c, v, &answer);
        end_visit(v);
    }
    if (is_purge) {
        note_purge(c, BOOKS);
        note_purge(c, NEWS);
    }
}

static void take_replies(struct crowd *c, struct stage_worker *w)
{
    struct inbox_item *item = inbox_drain(&w->replies), *next;

    for (; item != NULL; item = next) {
        next = item->next;
        take_reply(c, w, LIST_ITEM(item, struct call, item));
    }
}

static void on_landed(void *ctx, struct waiter *waiter)
{
    struct crowd *c = ctx;
    struct visitor *v = LIST_ITEM(waiter, struct visitor, e.waiter);
    struct answer answer;

    assert_true(v->is_waiting);
    endpoint_landed(&v->e, c->s->fake.now, &answer);
    count_answer(c, v, &answer);
    end_visit(v);
}

static void take_landed(struct crowd *c, struct stage_worker *w)
{
    struct inbox_item *item = inbox_drain(&w->landed), *next;

    for (; item != NULL; item = next) {
        next = item->next;
        flight_deliver(item, on_landed, c);
    }
}

static struct stage_worker *any_worker(struct crowd *c)
{
    return &c->s->workers[rand_below(&c->rand, STAGE_WORKER_COUNT)];
}

/* ---- the dependency ---- */

/* A call reads when it begins to run. What it read is kept in the call, where the dependency's
 * times would be. */
static void take_calls(struct crowd *c)
{
    struct call *call;

    fake_dependency_take(&c->s->fake);
    for (size_t i = 0; (call = fake_dependency_running(&c->s->fake, i)) != NULL; i++) {
        size_t key = strtoul(call->params.values[0], NULL, 10);

        if (call->outcome.served_us == 0)
            call->outcome.served_us = (int64_t)c->versions[call->route->id][key];
    }
}

static void answer_one(struct crowd *c)
{
    const struct fake_outcome outcomes[] = {
        {.evidence = EVIDENCE_GOOD, .body = c->text},
        {.evidence = EVIDENCE_GOOD, .body = c->text, .is_large = true},
        {.reason = REASON_CONFLICT},
        {.reason = REASON_NO_ROW, .evidence = EVIDENCE_GOOD},
        {.reason = REASON_CONNECTION_LOST, .evidence = EVIDENCE_BAD_CONNECTION},
        {.reason = REASON_DATABASE_UNAVAILABLE, .evidence = EVIDENCE_BAD},
    };
    uint64_t dice = rand_below(&c->rand, 12);
    const struct fake_outcome *outcome = &outcomes[dice < 6 ? dice : 0];
    size_t count;
    struct call *call;

    take_calls(c); /* whoever moved up from the line reads now, if it did not yet */
    count = fake_dependency_running_count(&c->s->fake);
    if (count == 0)
        return;
    call = fake_dependency_running(&c->s->fake, rand_below(&c->rand, count));
    (void)snprintf(c->text, LARGE_BYTES, "[%lld", (long long)call->outcome.served_us);
    if (outcome->is_large) { /* some are too large to be stored */
        size_t size_bytes = strlen(c->text);

        memset(c->text + size_bytes, ' ', LARGE_BYTES - size_bytes);
        c->text[rand_below(&c->rand, 2) == 0 ? LARGE_BYTES - 1 : 1000] = '\0';
    }
    fake_dependency_answer(&c->s->fake, call, outcome);
}

static void send_one(struct crowd *c)
{
    size_t count = fake_dependency_running_count(&c->s->fake);

    if (count > 0)
        atomic_store(&fake_dependency_running(&c->s->fake, rand_below(&c->rand, count))->is_sent,
                     true);
}

static void change_mode(struct crowd *c)
{
    static const enum breaker_mode modes[] = {BREAKER_AUTO, BREAKER_AUTO, BREAKER_FORCED_OPEN,
                                              BREAKER_DISABLED};

    admission_set_mode(&c->s->fake.dep.admission, modes[rand_below(&c->rand, 4)]);
}

static void change_memory(struct crowd *c)
{
    counter_set(&c->s->memory_bytes,
                STAGE_MEMORY_MAX_BYTES + (rand_below(&c->rand, 8) == 0 ? 1 : 0));
}

/* ---- what happens ---- */

static void something_is_administered(struct crowd *c)
{
    switch (rand_below(&c->rand, 6)) {
    case 0:
        purge_route(c);
        break;
    case 1:
        (void)cache_sweep(c->s->cache);
        break;
    case 2:
        change_mode(c);
        break;
    case 3:
        change_memory(c);
        break;
    case 4:
        drain_one(c);
        break;
    default:
        purge_key(c);
        break;
    }
}

static void something_happens(struct crowd *c)
{
    uint64_t dice = rand_below(&c->rand, 200);

    if (dice < 60)
        come(c);
    else if (dice < 85)
        take_calls(c);
    else if (dice < 115)
        answer_one(c);
    else if (dice < 120)
        send_one(c);
    else if (dice < 145)
        take_replies(c, any_worker(c));
    else if (dice < 165)
        take_landed(c, any_worker(c));
    else if (dice < 174)
        hang_up(c);
    else if (dice < 178)
        something_is_administered(c);
    else
        fake_dependency_pass(&c->s->fake, (int64_t)rand_below(&c->rand, 400000));
    fire_deadlines(c);
}

/* ---- laws ---- */

/* Every call there is, wherever it lies, counted by the worker that it goes back to. */
struct census {
    const struct call *calls[CALL_MAX_COUNT];
    size_t count;
    size_t by_worker[STAGE_WORKER_COUNT];
    size_t limited_count;
};

static void count_call(const struct crowd *c, struct census *census, const struct call *call)
{
    assert_true(census->count < CALL_MAX_COUNT);
    census->calls[census->count++] = call;
    for (size_t i = 0; i < STAGE_WORKER_COUNT; i++)
        census->by_worker[i] += call->reply_to == &c->s->workers[i].replies;
    census->limited_count += call->limited_route != NULL;
}

static void count_inbox(const struct crowd *c, struct census *census, const struct inbox *inbox)
{
    const struct inbox_item *item = atomic_load(&inbox->newest);

    for (; item != NULL; item = item->next)
        count_call(c, census, LIST_ITEM(item, struct call, item));
}

static void count_list(const struct crowd *c, struct census *census, const struct list *list)
{
    for (const struct list *i = list->next; i != list; i = i->next)
        count_call(c, census, LIST_ITEM(i, struct call, link));
}

static void take_census(const struct crowd *c, struct census *out)
{
    *out = (struct census){0};
    count_inbox(c, out, &c->s->fake.dep.inbox);
    count_list(c, out, &c->s->fake.line);
    count_list(c, out, &c->s->fake.running);
    for (size_t i = 0; i < STAGE_WORKER_COUNT; i++)
        count_inbox(c, out, &c->s->workers[i].replies);
}

/* Its call still runs for whoever asks now. */
static bool is_current(const struct crowd *c, const struct call *call)
{
    const struct flight *flight = call->flight;

    return flight != NULL && !atomic_load(&call->is_cancelled) && !flight->is_purged &&
           flight->epoch == cache_epoch(c->s->cache, flight->key.group) &&
           !instant_reached(c->s->fake.now, call->deadline);
}

static bool have_one_key(const struct call *a, const struct call *b)
{
    return a->route == b->route && strcmp(a->params.values[0], b->params.values[0]) == 0;
}

static void assert_one_current_call_a_key(const struct crowd *c, const struct census *census)
{
    for (size_t i = 0; i < census->count; i++)
        for (size_t k = i + 1; k < census->count && is_current(c, census->calls[i]); k++)
            assert_false(is_current(c, census->calls[k]) &&
                         have_one_key(census->calls[i], census->calls[k]));
}

static size_t waiter_count(const struct crowd *c, const struct flight *flight)
{
    size_t count = 0;

    for (size_t i = 0; i < CROWD; i++)
        count += c->visitors[i].is_waiting && c->visitors[i].e.waiter.flight == flight;
    return count;
}

/* A flight knows who waits for it, and flies while somebody does; a refresh always. */
static void assert_flight(const struct crowd *c, const struct flight *flight)
{
    const struct call *call = flight->call;

    assert_non_null(call);
    assert_ptr_equal(call->flight, flight);
    assert_int_equal(flight->waiter_count, waiter_count(c, flight));
    assert_int_equal(atomic_load(&call->is_cancelled),
                     flight->waiter_count == 0 && !flight->is_refresh);
    for (const struct flight *f = flight->next_in_bucket; f != NULL && flight->is_open;
         f = f->next_in_bucket)
        assert_false(f->is_open && cache_key_equal(&f->key, &flight->key));
}

static size_t flight_count(const struct crowd *c)
{
    size_t count = 0;

    for (size_t i = 0; i < c->s->cache->shard_count; i++)
        for (size_t k = 0; k < FLIGHT_BUCKET_COUNT; k++)
            for (const struct flight *f = c->s->cache->shards[i].flights[k]; f != NULL;
                 f = f->next_in_bucket, count++)
                assert_flight(c, f);
    return count;
}

static void assert_flights(struct crowd *c, const struct census *census)
{
    size_t count = flight_count(c), calls_with_flight = 0;

    for (size_t i = 0; i < census->count; i++)
        calls_with_flight += census->calls[i]->flight != NULL;
    assert_int_equal(count, calls_with_flight);
    if (count > c->flight_count_max)
        c->flight_count_max = count;
}

static uint64_t waiting_count(const struct crowd *c)
{
    uint64_t count = 0;

    for (size_t i = 0; i < CROWD; i++)
        count += c->visitors[i].is_waiting;
    return count;
}

static void assert_laws(struct crowd *c)
{
    const struct fake_dependency *f = &c->s->fake;
    struct admission_view v = admission_read(&f->dep.admission);
    struct census census;
    struct cache_facts facts;

    take_census(c, &census);
    assert_int_equal(c->begun, c->answered + c->hung_up + waiting_count(c));
    assert_int_equal(v.in_use, fake_dependency_permit_count(f));
    assert_true(v.in_use <= f->dep.admission.max_concurrent);
    assert_true(v.queued <= f->dep.admission.max_queued);
    for (size_t i = 0; i < STAGE_WORKER_COUNT; i++)
        assert_int_equal(c->s->workers[i].calls_under_way, census.by_worker[i]);
    assert_int_equal(atomic_load(&c->s->routes[REPORTS].limit_in_use), census.limited_count);
    assert_true(census.limited_count <= c->s->routes[REPORTS].limit);
    assert_one_current_call_a_key(c, &census);
    assert_flights(c, &census);
    cache_read(c->s->cache, &facts);
    assert_true(facts.bytes <= facts.max_bytes);
}

static void everything_comes_to_an_end(struct crowd *c)
{
    take_calls(c);
    fake_dependency_pass(&c->s->fake, STAGE_REQUEST_TIMEOUT_US);
    fire_deadlines(c);
    assert_int_equal(waiting_count(c), 0);
    fake_dependency_drain(&c->s->fake);
    for (size_t i = 0; i < STAGE_WORKER_COUNT; i++)
        take_replies(c, &c->s->workers[i]);
    for (size_t i = 0; i < STAGE_WORKER_COUNT; i++)
        take_landed(c, &c->s->workers[i]);
    assert_laws(c);
    assert_int_equal(flight_count(c), 0);
    stage_assert_at_rest(c->s);
}

static void assert_rich(const struct crowd *c)
{
    for (size_t served = 0; served < SERVED_COUNT; served++)
        assert_true(c->by_served[served] > 500);
    assert_true(c->hung_up > 100);
    assert_true(c->joined_count > 500);
    assert_true(c->unstored_count > 100);
    assert_true(c->purged_count > 100);
    assert_true(c->cancelled_count > 100);
    assert_true(c->late_count > 10);
    assert_true(c->flight_count_max >= 4);
    assert_true(c->by_reason[REASON_BREAKER_OPEN] > 500);
    assert_true(c->by_reason[REASON_BULKHEAD_FULL] > 100);
    assert_true(c->by_reason[REASON_QUEUE_TIMEOUT] > 10);
    assert_true(c->by_reason[REASON_OVERLOADED] > 10);
    assert_true(c->by_reason[REASON_DEADLINE] > 10);
    assert_true(c->by_reason[REASON_DRAINING] > 10);
    assert_true(c->by_reason[REASON_NO_ROW] > 10);
    assert_true(c->by_reason[REASON_CONFLICT] > 10);
    assert_true(c->by_reason[REASON_CONNECTION_LOST] > 10);
}

static void test_any_order_of_events_answers_each_request_once(void **state)
{
    struct crowd *c = calloc(1, sizeof *c);

    (void)state;
    assert_non_null(c);
    c->s = stage_create(routes, ROUTE_COUNT);
    c->text = calloc(1, LARGE_BYTES);
    assert_non_null(c->text);
    rand_init(&c->rand, STORY_SEED);
    for (size_t route = 0; route < ROUTE_COUNT; route++)
        note_purge(c, route); /* versions begin with 1 */
    for (int i = 0; i < EVENT_COUNT; i++) {
        something_happens(c);
        assert_laws(c);
        if (i % 10000 == 9999)
            everything_comes_to_an_end(c);
    }
    assert_int_equal(c->begun, c->answered + c->hung_up);
    assert_rich(c);
    stage_destroy(c->s);
    free(c->text);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order_of_events_answers_each_request_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

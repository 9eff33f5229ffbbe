/* The story of requests of cached routes: two workers, one cache, and a dependency that the test
 * answers by hand. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cmocka_all.h"
#include "dep/call.h"
#include "fake_dependency.h"
#include "plan/endpoint.h"
#include "query/params.h"
#include "stage.h"

#define SECOND_US INT64_C(1000000)

enum { HERE, THERE }; /* workers */
enum { VISIT_MAX_COUNT = 64 };

enum { BOOKS, NEWS, PRICES, REPORTS, SEARCH, SEARCH_TOO, PLAIN, WRITE, ROUTE_COUNT };

#define SEARCH_PARAMS                                                                              \
    "-- @param a text optional\n-- @param b text optional\n"                                       \
    "-- @param x_tenant text in=header optional\n-- @cache max-age=10s\n"                          \
    "SELECT :a AS a, :b AS b, :x_tenant AS tenant\n"

static const char *const routes[ROUTE_COUNT] = {
    [BOOKS] = "-- GET /books\n-- @param id int4\n"
              "-- @cache max-age=10s stale-if-error=10m\nSELECT :id AS id\n",
    [NEWS] = "-- GET /news\n-- @param id int4\n"
             "-- @cache max-age=10s stale-while-revalidate=20s stale-if-error=10m\n"
             "SELECT :id AS id\n",
    [PRICES] = "-- GET /prices\n-- @param id int4\n-- @fallback []\n"
               "-- @cache max-age=10s stale-if-error=60s\nSELECT :id AS id\n",
    [REPORTS] = "-- GET /reports\n-- @param id int4\n-- @limit 1\n-- @timeout 1s\n"
                "-- @cache max-age=10s stale-if-error=60s\nSELECT :id AS id\n",
    [SEARCH] = "-- GET /search\n" SEARCH_PARAMS,
    [SEARCH_TOO] = "-- GET /search/too\n" SEARCH_PARAMS,
    [PLAIN] = "-- GET /plain\n-- @param id int4\nSELECT :id AS id\n",
    [WRITE] = "-- POST /books\n-- @param id int4 in=query\n-- @purges GET /books\n"
              "INSERT INTO books (id) VALUES (:id)\n",
};

static const struct fake_outcome good = {.evidence = EVIDENCE_GOOD, .body = "[{\"id\":1}]"};
static const struct fake_outcome newer = {.evidence = EVIDENCE_GOOD, .body = "[{\"id\":2}]"};
/* Without evidence, so that the breaker stays out of it. */
static const struct fake_outcome failure = {.reason = REASON_DATABASE_UNAVAILABLE,
                                            .detail = "the database is not available"};
static const struct fake_outcome stopped = {.reason = REASON_DEADLINE};

/* ---- who comes, and what becomes of it ---- */

struct visit {
    struct endpoint e;
    uint32_t worker;
    bool is_waiting;
    unsigned answer_count;
    struct answer answer;
};

struct scene {
    struct stage *stage;
    struct visit visits[VISIT_MAX_COUNT];
    size_t visit_count;
};

static int set_scene(void **state)
{
    struct scene *sc = calloc(1, sizeof *sc);

    assert_non_null(sc);
    sc->stage = stage_create(routes, ROUTE_COUNT);
    *state = sc;
    return 0;
}

static void end_visits(struct scene *sc)
{
    for (size_t i = 0; i < sc->visit_count; i++) {
        struct visit *v = &sc->visits[i];

        assert_false(v->is_waiting);
        endpoint_fini(&v->e);
        if (v->answer_count > 0)
            answer_fini(&v->answer);
    }
    sc->visit_count = 0;
}

static int clear_scene(void **state)
{
    struct scene *sc = *state;

    end_visits(sc);
    stage_destroy(sc->stage);
    free(sc);
    return 0;
}

static struct instant now_of(const struct scene *sc)
{
    return sc->stage->fake.now;
}

static void pass(struct scene *sc, int64_t span_us)
{
    fake_dependency_pass(&sc->stage->fake, span_us);
}

static struct visit *come_with(struct scene *sc, uint32_t worker, size_t route,
                               const struct raw_inputs *inputs, int64_t caller_timeout_us)
{
    struct visit *v;

    assert_true(sc->visit_count < VISIT_MAX_COUNT);
    v = &sc->visits[sc->visit_count++];
    *v = (struct visit){.worker = worker};
    v->is_waiting =
        !endpoint_begin(&v->e, &sc->stage->workers[worker].env, &sc->stage->routes[route], inputs,
                        caller_timeout_us, now_of(sc), v, &v->answer);
    v->answer_count = !v->is_waiting;
    return v;
}

static struct visit *come_for(struct scene *sc, uint32_t worker, size_t route, const char *query)
{
    struct raw_inputs inputs = {.query = {query, strlen(query)}};

    return come_with(sc, worker, route, &inputs, 0);
}

static struct visit *come(struct scene *sc, uint32_t worker, size_t route)
{
    return come_for(sc, worker, route, "id=1");
}

static struct visit *come_in_haste(struct scene *sc, uint32_t worker, size_t route,
                                   int64_t caller_timeout_us)
{
    struct raw_inputs inputs = {.query = {"id=1", 4}};

    return come_with(sc, worker, route, &inputs, caller_timeout_us);
}

static struct visit *come_and_wait(struct scene *sc, uint32_t worker, size_t route)
{
    struct visit *v = come(sc, worker, route);

    assert_true(v->is_waiting);
    return v;
}

static void note_answer(struct visit *v)
{
    assert_true(v->is_waiting);
    v->is_waiting = false;
    v->answer_count++;
}

static void hang_up(struct visit *v)
{
    endpoint_hang_up(&v->e);
    v->is_waiting = false;
}

static void give_up(struct scene *sc, struct visit *v, enum reason reason)
{
    endpoint_give_up(&v->e, reason, now_of(sc), &v->answer);
    note_answer(v);
}

/* ---- what the workers do ---- */

static void take_replies(struct scene *sc, uint32_t worker)
{
    struct stage_worker *w = &sc->stage->workers[worker];
    struct inbox_item *item = inbox_drain(&w->replies), *next;

    for (; item != NULL; item = next) {
        struct call *call = LIST_ITEM(item, struct call, item);
        struct visit *v = call->request;

        next = item->next;
        if (endpoint_land(&w->env, call, now_of(sc))) {
            assert_null(v);
        } else if (v == NULL) {
            endpoint_discard(&w->env, call);
        } else {
            assert_int_equal(v->worker, worker);
            endpoint_outcome(&v->e, call, now_of(sc), &v->answer);
            note_answer(v);
        }
    }
}

static void on_landed(void *ctx, struct waiter *waiter)
{
    struct visit *v = LIST_ITEM(waiter, struct visit, e.waiter);

    endpoint_landed(&v->e, now_of(ctx), &v->answer);
    note_answer(v);
}

static void take_landed(struct scene *sc, uint32_t worker)
{
    struct inbox_item *item = inbox_drain(&sc->stage->workers[worker].landed), *next;

    for (; item != NULL; item = next) {
        next = item->next; /* it is freed with its flight */
        flight_deliver(item, on_landed, sc);
    }
}

static void run_workers(struct scene *sc)
{
    for (uint32_t i = 0; i < STAGE_WORKER_COUNT; i++)
        take_replies(sc, i);
    for (uint32_t i = 0; i < STAGE_WORKER_COUNT; i++)
        take_landed(sc, i);
}

/* ---- what the dependency does ---- */

static size_t call_count(struct scene *sc)
{
    fake_dependency_take(&sc->stage->fake);
    return fake_dependency_running_count(&sc->stage->fake) +
           fake_dependency_line_count(&sc->stage->fake);
}

/* The nth call that runs, the oldest first. */
static struct call *running(struct scene *sc, size_t n)
{
    struct call *call;

    fake_dependency_take(&sc->stage->fake);
    call = fake_dependency_running(&sc->stage->fake, n);
    assert_non_null(call);
    return call;
}

/* The nth call ends; nobody was told yet. */
static void end_call(struct scene *sc, size_t n, const struct fake_outcome *outcome)
{
    fake_dependency_answer(&sc->stage->fake, running(sc, n), outcome);
}

/* The oldest call ends, and everyone who waits for it is told. */
static void land(struct scene *sc, const struct fake_outcome *outcome)
{
    end_call(sc, 0, outcome);
    run_workers(sc);
}

static bool is_cancelled(struct scene *sc, size_t n)
{
    return atomic_load(&running(sc, n)->is_cancelled);
}

static void set_breaker(struct scene *sc, enum breaker_mode mode)
{
    admission_set_mode(&sc->stage->fake.dep.admission, mode);
}

/* ---- what is expected ---- */

static void assert_text(const struct visit *v, const char *text)
{
    size_t size_bytes;
    const char *data = answer_text(&v->answer, &size_bytes);

    assert_int_equal(size_bytes, strlen(text));
    assert_memory_equal(data, text, size_bytes);
}

static void assert_answered(const struct visit *v, enum served served, enum reason reason)
{
    assert_false(v->is_waiting);
    assert_int_equal(v->answer_count, 1);
    assert_int_equal(v->answer.served, served);
    assert_int_equal(v->answer.reason, reason);
}

static void assert_live(const struct visit *v, const struct fake_outcome *outcome, bool is_stored)
{
    assert_answered(v, SERVED_LIVE, REASON_NONE);
    assert_int_equal(v->answer.status, 200);
    assert_non_null(v->answer.entry);
    assert_text(v, outcome->body);
    assert_int_equal(v->answer.cache.is_stored, is_stored);
    assert_int_equal(v->answer.cache.is_collapsed, v->e.has_joined);
    assert_string_equal(v->answer.dependency, "fake");
}

/* What an answer from the cache says of its age. */
static void assert_age(const struct scene *sc, const struct visit *v)
{
    const struct entry *entry = v->answer.entry;
    int64_t ttl_us;

    assert_non_null(entry);
    assert_int_equal(v->answer.status, 200);
    assert_int_equal(v->answer.retry_after_s, 0);
    assert_int_equal(v->answer.cache.use, CACHE_USE_HIT);
    assert_int_equal(v->answer.cache.age_us, instant_span_us(entry->stored_at, now_of(sc)));
    ttl_us = entry->lifetime_us - v->answer.cache.age_us;
    if (v->answer.served == SERVED_STALE && ttl_us > 0)
        ttl_us = 0; /* a write made it old before its time */
    assert_int_equal(v->answer.cache.ttl_us, ttl_us);
}

static void assert_stored(const struct scene *sc, const struct visit *v, const char *text)
{
    assert_answered(v, SERVED_STORED, REASON_NONE);
    assert_age(sc, v);
    assert_null(v->answer.dependency);
    assert_text(v, text);
}

static void assert_stale(const struct scene *sc, const struct visit *v, enum reason reason)
{
    assert_answered(v, SERVED_STALE, reason);
    assert_age(sc, v);
    assert_true(v->answer.cache.ttl_us <= 0);
    assert_string_equal(v->answer.dependency, "fake");
    assert_text(v, good.body);
}

static void assert_fallback(const struct visit *v, enum reason reason)
{
    assert_answered(v, SERVED_FALLBACK, reason);
    assert_int_equal(v->answer.status, 200);
    assert_null(v->answer.entry);
    assert_int_equal(v->answer.retry_after_s, 0);
    assert_text(v, "[]");
}

static void assert_error(const struct visit *v, enum reason reason)
{
    assert_answered(v, SERVED_ERROR, reason);
    assert_int_equal(v->answer.status, reason_http(reason));
    assert_null(v->answer.entry);
    assert_null(v->answer.fallback);
    if (v->answer.status == 503)
        assert_true(v->answer.retry_after_s >= 1);
    else
        assert_int_equal(v->answer.retry_after_s, 0);
}

/* `good` is stored, as this visit's answer. */
static struct visit *store(struct scene *sc, size_t route)
{
    struct visit *v = come_and_wait(sc, HERE, route);

    land(sc, &good);
    assert_live(v, &good, true);
    return v;
}

/* ... and is older than any lifetime that is drawn. */
static struct visit *store_and_expire(struct scene *sc, size_t route)
{
    struct visit *v = store(sc, route);

    pass(sc, 10 * SECOND_US);
    return v;
}

/* Asked now, nobody waits and nothing flies: what is stored is the whole answer. */
static void assert_stale_without_a_call(struct scene *sc, size_t route, enum reason reason)
{
    size_t before = call_count(sc);
    struct visit *v = come(sc, THERE, route);

    assert_stale(sc, v, reason);
    assert_int_equal(v->answer.attempts, 0);
    assert_int_equal(call_count(sc), before);
}

/* ---- hits ---- */

static void test_a_hit_touches_neither_admission_nor_dependency(void **state)
{
    struct scene *sc = *state;
    struct stage *s = sc->stage;
    struct visit *first = store(sc, BOOKS), *hit;
    uint64_t word = atomic_load(&s->fake.dep.admission.word);
    uint64_t woken = s->fake.wake_count;

    s->workers[THERE].has_calls = false;
    for (uint32_t worker = HERE; worker <= THERE; worker++) {
        hit = come(sc, worker, BOOKS);
        assert_stored(sc, hit, good.body);
        assert_ptr_equal(hit->answer.entry, first->answer.entry); /* one body for all */
        assert_int_equal(hit->answer.attempts, 0);
    }
    assert_int_equal(atomic_load(&s->fake.dep.admission.word), word);
    assert_int_equal(s->fake.wake_count, woken);
    assert_int_equal(s->workers[THERE].calls_under_way, 0);
    assert_false(s->workers[THERE].has_calls);
    assert_int_equal(call_count(sc), 0);
}

static void test_a_hit_is_whole_while_the_breaker_is_open_and_memory_is_full(void **state)
{
    struct scene *sc = *state;

    (void)store(sc, BOOKS);
    set_breaker(sc, BREAKER_FORCED_OPEN);
    counter_set(&sc->stage->memory_bytes, STAGE_MEMORY_MAX_BYTES + 1);
    assert_stored(sc, come(sc, THERE, BOOKS), good.body);
}

static void test_an_answer_is_fresh_up_to_its_own_lifetime(void **state)
{
    struct scene *sc = *state;
    int64_t lifetime_us = store(sc, BOOKS)->answer.entry->lifetime_us;
    struct visit *v;

    assert_true(lifetime_us >= 8 * SECOND_US && lifetime_us <= 10 * SECOND_US);
    pass(sc, lifetime_us - 1);
    v = come(sc, THERE, BOOKS);
    assert_stored(sc, v, good.body);
    assert_int_equal(v->answer.cache.ttl_us, 1);
    pass(sc, 1);
    v = come_and_wait(sc, THERE, BOOKS);
    land(sc, &newer);
    assert_live(v, &newer, true);
    assert_int_equal(v->answer.cache.use, CACHE_USE_STALE);
    assert_stored(sc, come(sc, HERE, BOOKS), newer.body);
}

static void test_a_bad_parameter_is_said_before_the_cache_is_asked(void **state)
{
    struct scene *sc = *state;
    struct cache_facts before, after;
    struct visit *v;

    (void)store_and_expire(sc, PRICES);
    cache_read(sc->stage->cache, &before);
    v = come_for(sc, HERE, PRICES, "id=one");
    assert_error(v, REASON_BAD_PARAMETER);
    assert_int_equal(v->answer.cache.use, CACHE_USE_NONE);
    cache_read(sc->stage->cache, &after);
    assert_memory_equal(&after, &before, sizeof after);
}

static void test_lookups_are_counted_as_what_they_were(void **state)
{
    struct scene *sc = *state;
    struct cache_facts facts;

    (void)store(sc, NEWS);      /* a miss */
    (void)come(sc, HERE, NEWS); /* a hit */
    pass(sc, 12 * SECOND_US);
    (void)come(sc, HERE, NEWS);  /* stale */
    (void)come(sc, THERE, NEWS); /* stale */
    land(sc, &good);
    cache_read(sc->stage->cache, &facts);
    assert_int_equal(facts.lookups[CACHE_LOOKUP_MISS], 1);
    assert_int_equal(facts.lookups[CACHE_LOOKUP_HIT], 1);
    assert_int_equal(facts.lookups[CACHE_LOOKUP_STALE], 2);
    assert_int_equal(facts.entries, 1);
}

/* ---- flights ---- */

static void test_who_comes_second_joins_and_one_call_serves_both(void **state)
{
    struct scene *sc = *state;
    struct visit *first = come_and_wait(sc, HERE, BOOKS), *second = come_and_wait(sc, HERE, BOOKS);

    assert_int_equal(call_count(sc), 1);
    assert_int_equal(sc->stage->workers[HERE].calls_under_way, 1);
    assert_int_equal(admission_read(&sc->stage->fake.dep.admission).in_use, 1);
    running(sc, 0)->outcome.waited_us = 11;
    running(sc, 0)->outcome.served_us = 22;
    pass(sc, 15);
    land(sc, &good);
    assert_live(first, &good, true);
    assert_live(second, &good, true);
    assert_ptr_equal(first->answer.entry, second->answer.entry);
    assert_false(first->answer.cache.is_collapsed);
    assert_true(second->answer.cache.is_collapsed);
    assert_int_equal(first->answer.attempts, 1);
    assert_int_equal(second->answer.attempts, 0);
    for (size_t i = 0; i < sc->visit_count; i++) {
        assert_int_equal(sc->visits[i].answer.waited_us, 11);
        assert_int_equal(sc->visits[i].answer.served_us, 15); /* no more than it saw */
        assert_int_equal(sc->visits[i].answer.cache.use, CACHE_USE_MISS);
    }
}

static void test_who_waits_on_the_other_worker_is_told_through_its_inbox(void **state)
{
    struct scene *sc = *state;
    struct visit *first = come_and_wait(sc, HERE, BOOKS), *other = come_and_wait(sc, THERE, BOOKS);

    assert_int_equal(call_count(sc), 1);
    assert_int_equal(sc->stage->workers[THERE].calls_under_way, 0);
    end_call(sc, 0, &good);
    take_replies(sc, HERE);
    take_landed(sc, HERE);
    assert_live(first, &good, true);
    assert_true(other->is_waiting); /* its own worker answers it, nobody else */
    assert_false(inbox_is_empty(&sc->stage->workers[THERE].landed));
    take_landed(sc, THERE);
    assert_live(other, &good, true);
}

static void test_calls_of_different_keys_fly_side_by_side(void **state)
{
    struct scene *sc = *state;
    struct visit *one = come_for(sc, HERE, BOOKS, "id=1");
    struct visit *two = come_for(sc, HERE, BOOKS, "id=2");

    assert_int_equal(call_count(sc), 2);
    end_call(sc, 1, &newer);
    run_workers(sc);
    assert_live(two, &newer, true);
    assert_true(one->is_waiting);
    land(sc, &good);
    assert_live(one, &good, true);
}

static void test_who_began_hangs_up_and_the_others_are_served(void **state)
{
    struct scene *sc = *state;
    struct visit *first = come_and_wait(sc, HERE, BOOKS), *here = come_and_wait(sc, HERE, BOOKS);
    struct visit *there = come_and_wait(sc, THERE, BOOKS), *late;

    hang_up(first);
    endpoint_hang_up(&first->e); /* again is fine */
    assert_false(is_cancelled(sc, 0));
    late = come_and_wait(sc, THERE, BOOKS);
    assert_int_equal(call_count(sc), 1);
    land(sc, &good);
    assert_int_equal(first->answer_count, 0);
    assert_live(here, &good, true);
    assert_live(there, &good, true);
    assert_live(late, &good, true);
}

/* The ways to stop waiting. */
enum leaving { BY_HANG_UP, BY_END, BY_SHORT_HEADER, BY_ROUTES_TIME, BY_DRAINING, LEAVING_COUNT };

static void leave(struct scene *sc, struct visit *v, enum leaving how)
{
    switch (how) {
    case BY_HANG_UP:
        hang_up(v);
        break;
    case BY_END:
        endpoint_fini(&v->e);
        v->is_waiting = false;
        break;
    case BY_SHORT_HEADER:
    case BY_ROUTES_TIME:
        assert_true(instant_reached(now_of(sc), v->e.deadline));
        give_up(sc, v, REASON_DEADLINE);
        break;
    case BY_DRAINING:
        give_up(sc, v, REASON_DRAINING);
        break;
    case LEAVING_COUNT:
        break;
    }
}

/* Two callers on two workers come, and leave that way, when their time is over if that is how. */
static void come_and_leave(struct scene *sc, enum leaving how)
{
    int64_t caller_timeout_us = how == BY_SHORT_HEADER ? SECOND_US : 0;
    struct visit *first = come_in_haste(sc, HERE, BOOKS, caller_timeout_us);
    struct visit *last = come_in_haste(sc, THERE, BOOKS, caller_timeout_us);

    assert_true(first->is_waiting && last->is_waiting);
    assert_int_equal(call_count(sc), 1);
    if (how == BY_SHORT_HEADER)
        pass(sc, SECOND_US);
    else if (how == BY_ROUTES_TIME)
        pass(sc, STAGE_REQUEST_TIMEOUT_US);
    leave(sc, first, how);
    assert_false(is_cancelled(sc, 0));
    leave(sc, last, how);
    assert_true(is_cancelled(sc, 0));
}

static void test_the_last_one_to_leave_cancels_and_says_whose_haste_it_was(void **state)
{
    struct scene *sc = *state;

    for (int how = BY_HANG_UP; how < LEAVING_COUNT; how++) {
        come_and_leave(sc, (enum leaving)how);
        assert_int_equal(running(sc, 0)->is_hung_up, how != BY_ROUTES_TIME);
        land(sc, &stopped);
        end_visits(sc);
        stage_assert_at_rest(sc->stage);
    }
}

static void test_a_flight_that_everyone_left_is_not_joined(void **state)
{
    struct scene *sc = *state;
    struct visit *v;

    come_and_leave(sc, BY_HANG_UP);
    v = come_and_wait(sc, HERE, BOOKS);
    assert_false(v->e.has_joined);
    assert_int_equal(call_count(sc), 2);
    end_call(sc, 0, &stopped);
    run_workers(sc);
    assert_true(v->is_waiting);
    assert_false(is_cancelled(sc, 0));
    land(sc, &good);
    assert_live(v, &good, true);
}

/* What the database did not get done because nobody waited any more says nothing about it. */
static void test_a_call_that_was_stopped_is_no_failure(void **state)
{
    struct scene *sc = *state;

    for (int how = BY_HANG_UP; how < LEAVING_COUNT; how++) {
        struct visit *v;

        (void)store_and_expire(sc, BOOKS);
        come_and_leave(sc, (enum leaving)how);
        land(sc, &stopped);
        if (how == BY_ROUTES_TIME) { /* but that it took too long does */
            assert_stale_without_a_call(sc, BOOKS, REASON_DEADLINE);
            pass(sc, SECOND_US);
        }
        v = come_and_wait(sc, HERE, BOOKS);
        land(sc, &good);
        assert_live(v, &good, true);
        cache_purge_group(sc->stage->cache, BOOKS);
        end_visits(sc);
    }
}

static void test_a_short_deadline_is_answered_alone_while_the_others_wait_on(void **state)
{
    struct scene *sc = *state;
    struct visit *hasty = come_in_haste(sc, HERE, BOOKS, SECOND_US), *patient, *late;

    patient = come_and_wait(sc, THERE, BOOKS);
    pass(sc, SECOND_US);
    give_up(sc, hasty, REASON_DEADLINE);
    assert_error(hasty, REASON_DEADLINE);
    assert_int_equal(hasty->answer.status, 504);
    assert_int_equal(hasty->answer.cache.use, CACHE_USE_MISS);
    assert_false(is_cancelled(sc, 0));
    late = come_and_wait(sc, HERE, BOOKS);
    assert_true(late->e.has_joined); /* the flight's time is not over with that of who began it */
    assert_int_equal(call_count(sc), 1);
    land(sc, &good);
    assert_live(patient, &good, true);
    assert_live(late, &good, true);

    pass(sc, 10 * SECOND_US);
    hasty = come_in_haste(sc, THERE, BOOKS, SECOND_US);
    patient = come_and_wait(sc, HERE, BOOKS);
    pass(sc, SECOND_US);
    give_up(sc, hasty, REASON_DEADLINE);
    assert_stale(sc, hasty, REASON_DEADLINE); /* now there is something to show */
    assert_false(is_cancelled(sc, 0));
    land(sc, &newer);
    assert_live(patient, &newer, true);
}

static void assert_flights_time(struct scene *sc, size_t route, int64_t span_us)
{
    struct visit *v = come_in_haste(sc, HERE, route, 1);
    const struct call *call = running(sc, 0);

    assert_int_equal(instant_span_us(now_of(sc), v->e.deadline), 1);
    assert_int_equal(instant_span_us(now_of(sc), call->deadline), span_us);
    assert_false(call->is_short_by_caller);
    assert_null(call->request); /* it belongs to no caller */
    land(sc, &good);
    assert_live(v, &good, true);
}

static void test_a_flights_call_has_the_routes_time_not_that_of_who_began(void **state)
{
    assert_flights_time(*state, BOOKS, STAGE_REQUEST_TIMEOUT_US);
    assert_flights_time(*state, REPORTS, SECOND_US);
}

static void test_a_flight_past_its_time_is_not_joined(void **state)
{
    struct scene *sc = *state;
    struct visit *first = come_and_wait(sc, HERE, BOOKS), *late, *next;

    pass(sc, STAGE_REQUEST_TIMEOUT_US - 1);
    late = come_and_wait(sc, THERE, BOOKS);
    assert_true(late->e.has_joined);
    pass(sc, 1);
    next = come_and_wait(sc, THERE, BOOKS);
    assert_false(next->e.has_joined);
    assert_int_equal(call_count(sc), 2);
    give_up(sc, first, REASON_DEADLINE);
    assert_error(first, REASON_DEADLINE);
    assert_false(is_cancelled(sc, 0)); /* one of those who wait has time left */

    end_call(sc, 1, &newer);
    run_workers(sc);
    assert_live(next, &newer, true);
    land(sc, &good);
    assert_live(late, &good, false); /* what came first is from later */
    assert_stored(sc, come(sc, HERE, BOOKS), newer.body);
}

static void test_who_leaves_between_landing_and_delivery_is_answered_once(void **state)
{
    struct scene *sc = *state;
    struct visit *first = come_and_wait(sc, HERE, BOOKS), *gone = come_and_wait(sc, THERE, BOOKS);
    struct visit *late = come_and_wait(sc, THERE, BOOKS), *last = come_and_wait(sc, THERE, BOOKS);

    end_call(sc, 0, &good);
    take_replies(sc, HERE);
    pass(sc, STAGE_REQUEST_TIMEOUT_US);
    hang_up(gone);
    give_up(sc, late, REASON_DEADLINE);
    hang_up(first);
    run_workers(sc);
    assert_int_equal(first->answer_count + gone->answer_count, 0);
    assert_error(late, REASON_DEADLINE);
    assert_live(last, &good, true);
}

static void test_a_desk_that_everyone_left_is_delivered_to_nobody(void **state)
{
    struct scene *sc = *state;
    struct visit *here = come_and_wait(sc, HERE, BOOKS), *there = come_and_wait(sc, THERE, BOOKS);

    end_call(sc, 0, &good);
    take_replies(sc, HERE);
    hang_up(there);
    hang_up(here);
    run_workers(sc);
    assert_int_equal(here->answer_count + there->answer_count, 0);
    assert_stored(sc, come(sc, THERE, BOOKS), good.body);
}

static void test_a_flight_that_fails_fails_for_everyone(void **state)
{
    struct scene *sc = *state;
    struct fake_outcome conflict = {
        .reason = REASON_CONFLICT, .detail = "why", .constraint = "books_pkey"};
    const struct fake_outcome *outcomes[] = {&failure, &conflict};

    for (size_t i = 0; i < 2; i++) {
        (void)come_and_wait(sc, HERE, BOOKS);
        (void)come_and_wait(sc, HERE, BOOKS);
        (void)come_and_wait(sc, THERE, BOOKS);
        assert_int_equal(call_count(sc), 1);
        land(sc, outcomes[i]);
        for (size_t k = 0; k < sc->visit_count; k++) {
            assert_error(&sc->visits[k], outcomes[i]->reason);
            assert_string_equal(sc->visits[k].answer.detail, outcomes[i]->detail);
            assert_string_equal(sc->visits[k].answer.constraint,
                                outcomes[i]->constraint != NULL ? outcomes[i]->constraint : "");
            assert_int_equal(sc->visits[k].answer.cache.use, CACHE_USE_MISS);
        }
        end_visits(sc);
    }
    assert_true(come(sc, HERE, BOOKS)->is_waiting); /* no error is stored */
    land(sc, &good);
}

/* ---- refusals at the door ---- */

struct refusal {
    enum reason reason;
    void (*begin)(struct scene *sc);
    void (*end)(struct scene *sc);
};

static void open_breaker(struct scene *sc)
{
    set_breaker(sc, BREAKER_FORCED_OPEN);
}

static void close_breaker(struct scene *sc)
{
    set_breaker(sc, BREAKER_AUTO);
}

static void fill_bulkhead(struct scene *sc)
{
    for (int i = 0; i < 4; i++) /* two permits, two places in the line */
        (void)come_and_wait(sc, HERE, PLAIN);
}

static void empty_bulkhead(struct scene *sc)
{
    for (int i = 0; i < 4; i++)
        land(sc, &good);
}

static void reach_limit(struct scene *sc)
{
    assert_true(come_for(sc, HERE, REPORTS, "id=99")->is_waiting);
}

static void leave_limit(struct scene *sc)
{
    land(sc, &failure); /* so that it is not stored either */
}

static void fill_memory(struct scene *sc)
{
    counter_set(&sc->stage->memory_bytes, STAGE_MEMORY_MAX_BYTES + 1);
}

static void empty_memory(struct scene *sc)
{
    counter_set(&sc->stage->memory_bytes, STAGE_MEMORY_MAX_BYTES);
}

static const struct refusal refusals[] = {
    {REASON_BREAKER_OPEN, open_breaker, close_breaker},
    {REASON_BULKHEAD_FULL, fill_bulkhead, empty_bulkhead},
    {REASON_BULKHEAD_FULL, reach_limit, leave_limit},
    {REASON_OVERLOADED, fill_memory, empty_memory},
};

enum { REFUSAL_COUNT = sizeof refusals / sizeof *refusals };

static void test_a_refusal_gives_what_is_stored_at_once_and_does_not_back_off(void **state)
{
    struct scene *sc = *state;

    for (size_t i = 0; i < REFUSAL_COUNT; i++) {
        struct visit *v;

        (void)store_and_expire(sc, REPORTS);
        refusals[i].begin(sc);
        assert_stale_without_a_call(sc, REPORTS, refusals[i].reason);
        assert_stale_without_a_call(sc, REPORTS, refusals[i].reason);
        refusals[i].end(sc);
        v = come_and_wait(sc, HERE, REPORTS); /* in the same instant */
        land(sc, &newer);
        assert_live(v, &newer, true);
        cache_purge_group(sc->stage->cache, REPORTS);
        end_visits(sc);
    }
}

static void
test_a_refusal_with_nothing_stored_is_an_error_that_says_when_to_come_again(void **state)
{
    struct scene *sc = *state;

    for (size_t i = 0; i < REFUSAL_COUNT; i++) {
        struct visit *v;

        refusals[i].begin(sc);
        v = come(sc, HERE, REPORTS);
        assert_error(v, refusals[i].reason);
        assert_true(v->answer.retry_after_s >= 1);
        assert_true(v->answer.detail[0] != '\0');
        assert_int_equal(v->answer.cache.use, CACHE_USE_MISS);
        assert_int_equal(v->answer.attempts, 0);
        refusals[i].end(sc);
        end_visits(sc);
        stage_assert_at_rest(sc->stage);
    }
}

static void test_a_refusal_with_nothing_stored_gives_the_fallback(void **state)
{
    struct scene *sc = *state;

    open_breaker(sc);
    assert_fallback(come(sc, HERE, PRICES), REASON_BREAKER_OPEN);
    close_breaker(sc);
    fill_bulkhead(sc);
    assert_fallback(come(sc, THERE, PRICES), REASON_BULKHEAD_FULL);
    empty_bulkhead(sc);
    fill_memory(sc);
    assert_fallback(come(sc, HERE, PRICES), REASON_OVERLOADED);
}

static void test_who_stood_in_the_line_too_long_gets_what_is_stored_without_back_off(void **state)
{
    struct scene *sc = *state;
    struct visit *first, *second;

    (void)store_and_expire(sc, BOOKS);
    (void)come_and_wait(sc, HERE, PLAIN);
    (void)come_and_wait(sc, HERE, PLAIN);
    first = come_and_wait(sc, HERE, BOOKS);
    assert_int_equal(call_count(sc), 3);
    pass(sc, STAGE_QUEUE_TIMEOUT_US);
    run_workers(sc);
    assert_stale(sc, first, REASON_QUEUE_TIMEOUT);
    second = come_and_wait(sc, THERE, BOOKS);
    for (int i = 0; i < 3; i++)
        land(sc, &good);
    assert_live(second, &good, true);
}

/* ---- failures ---- */

static void test_a_failure_that_was_tried_backs_off_longer_each_time(void **state)
{
    static const int64_t steps_s[] = {1, 2, 4, 8, 16, 30, 30};
    struct scene *sc = *state;
    struct visit *v;

    (void)store_and_expire(sc, BOOKS);
    for (size_t i = 0; i < sizeof steps_s / sizeof *steps_s; i++) {
        int64_t step_us = steps_s[i] * SECOND_US, least_us = step_us / 5 * 4;

        v = come_and_wait(sc, HERE, BOOKS);
        land(sc, &failure);
        assert_stale(sc, v, failure.reason);
        assert_int_equal(v->answer.attempts, 1);
        assert_stale_without_a_call(sc, BOOKS, failure.reason);
        pass(sc, least_us - 1);
        assert_stale_without_a_call(sc, BOOKS, failure.reason);
        pass(sc, step_us - least_us + 1);
    }
    v = come_and_wait(sc, HERE, BOOKS);
    land(sc, &newer);
    assert_live(v, &newer, true);

    pass(sc, 10 * SECOND_US); /* the new one begins anew */
    v = come_and_wait(sc, HERE, BOOKS);
    land(sc, &failure);
    assert_answered(v, SERVED_STALE, failure.reason);
    pass(sc, SECOND_US);
    (void)come_and_wait(sc, HERE, BOOKS);
    land(sc, &failure);
}

static void test_errors_never_replace_nor_rejuvenate_what_is_stored(void **state)
{
    struct scene *sc = *state;
    const struct entry *entry = store_and_expire(sc, BOOKS)->answer.entry;

    for (int i = 1; i <= 15; i++) {
        struct visit *v = come_and_wait(sc, HERE, BOOKS);

        land(sc, &failure);
        assert_stale(sc, v, failure.reason);
        assert_ptr_equal(v->answer.entry, entry);
        assert_int_equal(v->answer.cache.age_us, (10 + 30 * (i - 1)) * SECOND_US);
        pass(sc, 30 * SECOND_US);
    }
}

static void test_what_is_too_old_to_stand_in_is_not_served(void **state)
{
    struct scene *sc = *state;
    struct visit *v;

    (void)store(sc, REPORTS);
    (void)store(sc, PRICES);
    pass(sc, 70 * SECOND_US); /* max-age + stale-if-error */
    v = come_and_wait(sc, HERE, REPORTS);
    land(sc, &failure);
    assert_stale(sc, v, failure.reason);
    open_breaker(sc);
    assert_stale_without_a_call(sc, PRICES, REASON_BREAKER_OPEN);
    close_breaker(sc);

    pass(sc, 1);
    v = come_and_wait(sc, HERE, REPORTS);
    land(sc, &failure);
    assert_error(v, failure.reason);
    assert_true(v->answer.retry_after_s >= 1);
    assert_string_equal(v->answer.dependency, "fake");
    assert_int_equal(v->answer.cache.use, CACHE_USE_STALE);
    v = come_and_wait(sc, HERE, PRICES);
    land(sc, &failure);
    assert_fallback(v, failure.reason);
}

static void test_what_grew_too_old_during_the_flight_is_not_served(void **state)
{
    struct scene *sc = *state;
    struct visit *v;

    (void)store(sc, PRICES);
    pass(sc, 70 * SECOND_US);
    v = come_and_wait(sc, HERE, PRICES);
    pass(sc, 1);
    land(sc, &failure);
    assert_fallback(v, failure.reason);
}

/* Asks for a key of its own, whose call ends that way. */
static struct visit *come_and_land(struct scene *sc, size_t route, unsigned id,
                                   const struct fake_outcome *outcome)
{
    char query[32];
    struct visit *v;

    (void)snprintf(query, sizeof query, "id=%u", id);
    v = come_for(sc, HERE, route, query);
    assert_true(v->is_waiting);
    land(sc, outcome);
    return v;
}

/* Nothing is stored: the fallback if there is one, or the error. */
static void assert_reason_with_nothing_stored(struct scene *sc, const struct fake_outcome *outcome)
{
    struct visit *plain = come_and_land(sc, BOOKS, outcome->reason, outcome);
    struct visit *with_fallback = come_and_land(sc, PRICES, outcome->reason, outcome);

    assert_error(plain, outcome->reason);
    assert_string_equal(plain->answer.detail, "why");
    assert_string_equal(plain->answer.constraint, "books_pkey");
    if (reason_is_server_side(outcome->reason))
        assert_fallback(with_fallback, outcome->reason);
    else
        assert_error(with_fallback, outcome->reason);
}

/* Something is: it stands in for 5xx alone; and it stays, but if its row is gone. */
static void assert_reason_with_an_old_answer(struct scene *sc, const struct fake_outcome *outcome)
{
    const struct entry *entry = come_and_land(sc, PRICES, outcome->reason, &good)->answer.entry;
    struct visit *v;
    char query[32];

    pass(sc, 10 * SECOND_US);
    v = come_and_land(sc, PRICES, outcome->reason, outcome);
    if (reason_is_server_side(outcome->reason))
        assert_stale(sc, v, outcome->reason);
    else
        assert_error(v, outcome->reason);

    pass(sc, 30 * SECOND_US); /* longer than any back-off */
    open_breaker(sc);
    (void)snprintf(query, sizeof query, "id=%u", outcome->reason);
    v = come_for(sc, THERE, PRICES, query);
    close_breaker(sc);
    if (outcome->reason == REASON_NO_ROW) {
        assert_fallback(v, REASON_BREAKER_OPEN);
    } else {
        assert_stale(sc, v, REASON_BREAKER_OPEN);
        assert_ptr_equal(v->answer.entry, entry);
    }
}

static void test_each_5xx_reason_degrades_and_no_4xx_does(void **state)
{
    struct scene *sc = *state;

    for (unsigned r = REASON_NONE + 1; r < REASON_COUNT; r++) {
        struct fake_outcome outcome = {
            .reason = (enum reason)r, .detail = "why", .constraint = "books_pkey"};

        assert_reason_with_nothing_stored(sc, &outcome);
        assert_reason_with_an_old_answer(sc, &outcome);
        end_visits(sc);
    }
}

/* What is stored stays, but is not shown to the next one in place of the same refusal. */
static void test_after_a_4xx_the_next_one_asks_again(void **state)
{
    static const struct fake_outcome forbidden = {.reason = REASON_FORBIDDEN};
    struct scene *sc = *state;

    (void)store_and_expire(sc, BOOKS);
    for (int i = 0; i < 3; i++) {
        struct visit *v = come_and_wait(sc, HERE, BOOKS);

        land(sc, &forbidden);
        assert_error(v, REASON_FORBIDDEN);
    }
}

static void test_a_row_that_is_gone_takes_its_answer_along(void **state)
{
    static const struct fake_outcome no_row = {.reason = REASON_NO_ROW};
    struct scene *sc = *state;
    struct cache_facts facts;
    struct visit *v;

    (void)store_and_expire(sc, BOOKS);
    v = come_and_wait(sc, HERE, BOOKS);
    land(sc, &no_row);
    assert_error(v, REASON_NO_ROW);
    assert_int_equal(v->answer.status, 404);
    cache_read(sc->stage->cache, &facts);
    assert_int_equal(facts.entries, 0);
    open_breaker(sc);
    assert_error(come(sc, THERE, BOOKS), REASON_BREAKER_OPEN);
}

/* ---- purges ---- */

static void test_a_purge_during_a_flight_makes_newcomers_begin_another(void **state)
{
    struct scene *sc = *state;
    struct visit *before = come_and_wait(sc, HERE, BOOKS), *after, *joined;

    cache_purge_group(sc->stage->cache, BOOKS);
    after = come_and_wait(sc, THERE, BOOKS);
    assert_false(after->e.has_joined);
    assert_int_equal(call_count(sc), 2);
    end_call(sc, 0, &good);
    run_workers(sc);
    assert_live(before, &good, false);
    joined = come_and_wait(sc, HERE, BOOKS);
    assert_true(joined->e.has_joined);
    land(sc, &newer);
    assert_live(after, &newer, true);
    assert_live(joined, &newer, true);
    assert_stored(sc, come(sc, HERE, BOOKS), newer.body);
}

static void test_what_lands_after_a_purge_and_a_newer_flight_is_not_stored(void **state)
{
    struct scene *sc = *state;
    struct visit *before = come_and_wait(sc, HERE, BOOKS), *after;

    cache_purge_group(sc->stage->cache, BOOKS);
    after = come_and_wait(sc, THERE, BOOKS);
    fake_dependency_take(&sc->stage->fake);
    end_call(sc, 1, &newer);
    run_workers(sc);
    assert_live(after, &newer, true);
    land(sc, &good);
    assert_live(before, &good, false);
    assert_stored(sc, come(sc, HERE, BOOKS), newer.body);
}

static void test_what_was_stored_before_a_purge_is_not_served_again(void **state)
{
    struct scene *sc = *state;
    struct visit *v;

    (void)store(sc, BOOKS);
    cache_purge_group(sc->stage->cache, BOOKS);
    v = come_and_wait(sc, THERE, BOOKS); /* though it was fresh */
    land(sc, &failure);
    assert_error(v, failure.reason);

    (void)store(sc, BOOKS);
    cache_purge_group(sc->stage->cache, BOOKS);
    open_breaker(sc);
    assert_error(come(sc, THERE, BOOKS), REASON_BREAKER_OPEN);
    close_breaker(sc);

    (void)store(sc, NEWS);
    pass(sc, 12 * SECOND_US);
    cache_purge_group(sc->stage->cache, NEWS);
    v = come_and_wait(sc, THERE, NEWS); /* though it would have been answered at once */
    land(sc, &good);
    assert_live(v, &good, true);
}

static void test_a_purge_during_a_flight_takes_what_could_stand_in(void **state)
{
    struct scene *sc = *state;
    struct visit *landed, *left, *with_fallback;

    (void)store(sc, PRICES);
    (void)store_and_expire(sc, BOOKS);
    landed = come_and_wait(sc, HERE, BOOKS);
    left = come_in_haste(sc, HERE, BOOKS, 1);
    with_fallback = come_and_wait(sc, HERE, PRICES);
    cache_purge_group(sc->stage->cache, BOOKS);
    cache_purge_group(sc->stage->cache, PRICES);
    pass(sc, 1);
    give_up(sc, left, REASON_DEADLINE);
    assert_error(left, REASON_DEADLINE);
    land(sc, &failure);
    assert_error(landed, failure.reason);
    land(sc, &failure);
    assert_fallback(with_fallback, failure.reason);
}

/* True: it is stored. */
static bool purge_key(struct scene *sc, size_t route, const char *id)
{
    struct bound_params params = {.count = 1, .values = &id};
    struct cache_key key;
    bool was_stored;

    assert_true(endpoint_key(sc->stage->cache, &sc->stage->routes[route], &params, &key));
    was_stored = cache_purge_key(sc->stage->cache, &key);
    free((void *)key.bytes);
    return was_stored;
}

static void test_the_purge_of_one_key_leaves_the_others(void **state)
{
    struct scene *sc = *state;
    struct visit *before, *after;

    (void)come_and_land(sc, BOOKS, 1, &good);
    (void)come_and_land(sc, BOOKS, 2, &newer);
    assert_true(purge_key(sc, BOOKS, "1"));
    assert_false(purge_key(sc, BOOKS, "1"));
    assert_stored(sc, come_for(sc, THERE, BOOKS, "id=2"), newer.body);

    before = come_and_wait(sc, THERE, BOOKS);
    assert_false(purge_key(sc, BOOKS, "1")); /* it flies */
    after = come_and_wait(sc, HERE, BOOKS);
    assert_false(after->e.has_joined);
    land(sc, &good);
    assert_live(before, &good, false);
    land(sc, &newer);
    assert_live(after, &newer, true);
}

static void test_a_write_that_succeeded_purges_what_it_names(void **state)
{
    struct scene *sc = *state;
    struct visit *write, *read;

    (void)store(sc, BOOKS);
    (void)store(sc, PRICES);
    write = come_and_wait(sc, THERE, WRITE);
    assert_stored(sc, come(sc, HERE, BOOKS), good.body); /* it did not happen yet */
    end_call(sc, 0, &good);
    assert_stored(sc, come(sc, HERE, BOOKS), good.body);
    take_replies(sc, THERE);
    assert_int_equal(write->answer.status, 200);
    read = come_and_wait(sc, HERE, BOOKS); /* who wrote reads what it wrote */
    assert_stored(sc, come(sc, HERE, PRICES), good.body);
    land(sc, &newer);
    assert_live(read, &newer, true);
}

/* A write whose call ends that way, while an answer is stored. */
static void write_after_storing(struct scene *sc, bool is_sent, const struct fake_outcome *outcome)
{
    (void)store(sc, BOOKS);
    (void)come_and_wait(sc, THERE, WRITE);
    atomic_store(&running(sc, 0)->is_sent, is_sent);
    land(sc, outcome);
}

static void test_a_write_that_did_not_happen_purges_nothing(void **state)
{
    static const struct fake_outcome conflict = {.reason = REASON_CONFLICT};
    struct scene *sc = *state;

    write_after_storing(sc, true, &conflict);
    assert_stored(sc, come(sc, HERE, BOOKS), good.body);
    cache_purge_group(sc->stage->cache, BOOKS);
    write_after_storing(sc, false, &stopped);
    assert_stored(sc, come(sc, HERE, BOOKS), good.body);
    cache_purge_group(sc->stage->cache, BOOKS);
    write_after_storing(sc, false, &failure);
    assert_stored(sc, come(sc, HERE, BOOKS), good.body);
}

/* But it takes nothing away from callers that no live answer can be had for. */
static void test_after_a_write_that_may_have_happened_nothing_is_fresh(void **state)
{
    static const struct fake_outcome unknown = {.reason = REASON_OUTCOME_UNKNOWN};
    static const struct fake_outcome no_row = {.reason = REASON_NO_ROW};
    static const struct fake_outcome no_memory = {.reason = REASON_INTERNAL};
    static const struct fake_outcome *const outcomes[] = {&unknown, &stopped, &no_row, &no_memory};
    struct scene *sc = *state;

    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
        struct visit *read;

        write_after_storing(sc, true, outcomes[i]);
        read = come_and_wait(sc, HERE, BOOKS);
        land(sc, &failure);
        assert_stale(sc, read, failure.reason);
        cache_purge_group(sc->stage->cache, BOOKS);
    }
}

static void test_a_write_that_nobody_waited_for_any_more_purges_as_well(void **state)
{
    struct scene *sc = *state;

    for (int i = 0; i < 2; i++) {
        struct visit *write, *read;

        (void)store(sc, BOOKS);
        write = come_and_wait(sc, THERE, WRITE);
        if (i == 0)
            hang_up(write);
        else
            give_up(sc, write, REASON_DEADLINE);
        assert_stored(sc, come(sc, HERE, BOOKS), good.body);
        land(sc, &good);
        read = come_and_wait(sc, HERE, BOOKS);
        cache_purge_group(sc->stage->cache, BOOKS);
        land(sc, &newer);
        assert_live(read, &newer, false);
    }
}

static void test_a_read_that_began_before_a_write_came_back_is_not_stored(void **state)
{
    struct scene *sc = *state;
    struct visit *read = come_and_wait(sc, HERE, BOOKS);

    (void)come_and_wait(sc, THERE, WRITE);
    end_call(sc, 0, &good); /* it read first, and comes back with the write */
    end_call(sc, 0, &good);
    take_replies(sc, THERE);
    run_workers(sc);
    assert_live(read, &good, false);
    assert_true(come(sc, HERE, BOOKS)->is_waiting);
    land(sc, &newer);
}

/* ---- stale-while-revalidate ---- */

static void test_what_may_be_revalidated_is_answered_at_once_and_one_refresh_flies(void **state)
{
    struct scene *sc = *state;
    struct visit *v;

    (void)store(sc, NEWS);
    pass(sc, 12 * SECOND_US);
    for (int i = 0; i < 10; i++) {
        v = come(sc, i % 2 == 0 ? HERE : THERE, NEWS);
        assert_stored(sc, v, good.body);
        assert_true(v->answer.cache.ttl_us < 0);
        assert_int_equal(call_count(sc), 1);
    }
    assert_int_equal(instant_span_us(now_of(sc), running(sc, 0)->deadline),
                     STAGE_REQUEST_TIMEOUT_US);
    land(sc, &newer);
    v = come(sc, THERE, NEWS);
    assert_stored(sc, v, newer.body);
    assert_int_equal(v->answer.cache.age_us, 0);
    assert_int_equal(call_count(sc), 0);
}

static void test_past_its_window_a_live_answer_is_waited_for(void **state)
{
    struct scene *sc = *state;
    struct visit *v;

    (void)store(sc, NEWS);
    pass(sc, 30 * SECOND_US + 1); /* max-age + stale-while-revalidate */
    v = come_and_wait(sc, HERE, NEWS);
    land(sc, &failure);
    assert_stale(sc, v, failure.reason);
}

static void test_after_a_refresh_that_failed_answers_are_stale_with_its_reason(void **state)
{
    struct scene *sc = *state;
    struct visit *v;

    (void)store(sc, NEWS);
    pass(sc, 12 * SECOND_US);
    assert_stored(sc, come(sc, HERE, NEWS), good.body);
    land(sc, &failure);
    assert_stale_without_a_call(sc, NEWS, failure.reason);
    pass(sc, SECOND_US);
    v = come(sc, THERE, NEWS); /* the next try flies behind it */
    assert_stale(sc, v, failure.reason);
    assert_int_equal(call_count(sc), 1);
    assert_stale(sc, come(sc, HERE, NEWS), failure.reason);
    assert_int_equal(call_count(sc), 1);
    land(sc, &newer);
    assert_stored(sc, come(sc, HERE, NEWS), newer.body);
}

static void test_a_refresh_that_is_refused_says_so_and_does_not_back_off(void **state)
{
    struct scene *sc = *state;

    (void)store(sc, NEWS);
    pass(sc, 12 * SECOND_US);
    open_breaker(sc);
    assert_stale_without_a_call(sc, NEWS, REASON_BREAKER_OPEN);
    close_breaker(sc);
    fill_bulkhead(sc);
    assert_stale_without_a_call(sc, NEWS, REASON_BULKHEAD_FULL);
    empty_bulkhead(sc);
    fill_memory(sc);
    assert_stale_without_a_call(sc, NEWS, REASON_OVERLOADED);
    empty_memory(sc);
    (void)come(sc, HERE, NEWS);
    assert_int_equal(call_count(sc), 1); /* in the same instant */
    land(sc, &newer);
    assert_stored(sc, come(sc, HERE, NEWS), newer.body);
}

/* Nobody had to wait for it from the start. */
static void test_a_refresh_flies_on_when_who_joined_it_leaves(void **state)
{
    struct scene *sc = *state;
    struct visit *joined, *stays;

    (void)store(sc, NEWS);
    pass(sc, 29 * SECOND_US);
    assert_stored(sc, come(sc, HERE, NEWS), good.body);
    pass(sc, 2 * SECOND_US); /* its window is over */
    joined = come_and_wait(sc, THERE, NEWS);
    assert_true(joined->e.has_joined);
    assert_int_equal(call_count(sc), 1);
    hang_up(joined);
    assert_false(is_cancelled(sc, 0));
    stays = come_and_wait(sc, THERE, NEWS);
    assert_true(stays->e.has_joined);
    land(sc, &newer);
    assert_live(stays, &newer, true);
}

static void test_a_refresh_without_a_row_removes_what_is_stored(void **state)
{
    static const struct fake_outcome no_row = {.reason = REASON_NO_ROW};
    struct scene *sc = *state;
    struct visit *v;

    (void)store(sc, NEWS);
    pass(sc, 12 * SECOND_US);
    assert_stored(sc, come(sc, HERE, NEWS), good.body);
    land(sc, &no_row);
    v = come_and_wait(sc, THERE, NEWS);
    assert_int_equal(v->e.cache_use, CACHE_USE_MISS);
    land(sc, &no_row);
    assert_error(v, REASON_NO_ROW);
}

/* ---- the end ---- */

static void test_draining_gives_what_is_stored_the_fallback_or_the_error(void **state)
{
    struct scene *sc = *state;
    struct visit *stored, *with_fallback, *neither;

    (void)store_and_expire(sc, BOOKS);
    stored = come_and_wait(sc, HERE, BOOKS);
    with_fallback = come_and_wait(sc, HERE, PRICES);
    neither = come_for(sc, THERE, BOOKS, "id=2");
    give_up(sc, stored, REASON_DRAINING);
    give_up(sc, with_fallback, REASON_DRAINING);
    give_up(sc, neither, REASON_DRAINING);
    assert_stale(sc, stored, REASON_DRAINING);
    assert_fallback(with_fallback, REASON_DRAINING);
    assert_error(neither, REASON_DRAINING);
    assert_null(neither->answer.dependency); /* it is weir itself */
    fake_dependency_drain(&sc->stage->fake);
    run_workers(sc);
}

static void test_a_dependency_that_drains_gives_what_is_stored(void **state)
{
    struct scene *sc = *state;
    struct visit *v;

    (void)store_and_expire(sc, BOOKS);
    v = come_and_wait(sc, THERE, BOOKS);
    fake_dependency_drain(&sc->stage->fake);
    run_workers(sc);
    assert_stale(sc, v, REASON_DRAINING);
    v = come_and_wait(sc, HERE, BOOKS); /* it says nothing of the database: no back-off */
    land(sc, &good);
    assert_live(v, &good, true);
}

/* ---- size ---- */

static void test_a_result_too_large_for_the_cache_is_answered_to_all_and_not_stored(void **state)
{
    struct scene *sc = *state;
    char *text = malloc(STAGE_CACHE_MAX_BYTES + 1);
    struct fake_outcome large = {.evidence = EVIDENCE_GOOD, .body = text, .is_large = true};
    struct visit *first = come_and_wait(sc, HERE, BOOKS), *other = come_and_wait(sc, THERE, BOOKS);
    struct cache_facts facts;

    assert_non_null(text);
    memset(text, 'x', STAGE_CACHE_MAX_BYTES);
    text[STAGE_CACHE_MAX_BYTES] = '\0';
    land(sc, &large);
    assert_live(first, &large, false);
    assert_live(other, &large, false);
    assert_ptr_equal(first->answer.entry, other->answer.entry);
    cache_read(sc->stage->cache, &facts);
    assert_int_equal(facts.entries, 0);
    assert_true(come(sc, HERE, BOOKS)->is_waiting);
    land(sc, &good);
    free(text);
}

static void test_a_large_result_that_fits_is_stored(void **state)
{
    static const struct fake_outcome large = {
        .evidence = EVIDENCE_GOOD, .body = "[1,2,3]", .is_large = true};
    struct scene *sc = *state;
    struct visit *v = come_and_wait(sc, HERE, BOOKS);

    land(sc, &large);
    assert_live(v, &large, true);
    assert_stored(sc, come(sc, THERE, BOOKS), large.body);
}

/* ---- keys ---- */

static size_t tenant_header(void *ctx, const char *name, struct raw_text *out_first)
{
    const char *tenant = strcasecmp(name, "x-tenant") == 0 ? ctx : NULL;

    if (tenant == NULL)
        return 0;
    *out_first = (struct raw_text){tenant, strlen(tenant)};
    return 1;
}

struct asked {
    size_t route;
    const char *query;
    const char *tenant; /* NULL: no such header */
};

static struct visit *ask_as(struct scene *sc, uint32_t worker, const struct asked *asked)
{
    struct raw_inputs inputs = {.query = {asked->query, strlen(asked->query)},
                                .header = tenant_header,
                                .header_ctx = (void *)asked->tenant};

    return come_with(sc, worker, asked->route, &inputs, 0);
}

/* Each of these may be answered differently: none may get what was stored for another. */
static const struct asked strangers[] = {
    {SEARCH, "", NULL},
    {SEARCH, "a=", NULL},
    {SEARCH, "b=", NULL},
    {SEARCH, "a=&b=", NULL},
    {SEARCH, "a=1", NULL},
    {SEARCH, "a=01", NULL},
    {SEARCH, "a=1+", NULL},
    {SEARCH, "b=1", NULL},
    {SEARCH, "a=1&b=2", NULL},
    {SEARCH, "a=2&b=1", NULL},
    {SEARCH, "a=12", NULL},
    {SEARCH, "a=1&b=", NULL},
    {SEARCH, "a=12&b=", NULL},
    {SEARCH, "a=&b=12", NULL},
    {SEARCH, "a=ab&b=c", NULL},
    {SEARCH, "a=x%01y&b=z", NULL},
    {SEARCH, "a=x&b=y%01z", NULL},
    {SEARCH, "a=NULL", NULL},
    {SEARCH, "a=a&b=bc", NULL},
    {SEARCH, "a=A", NULL},
    {SEARCH, "a=a", NULL},
    {SEARCH, "", ""},
    {SEARCH, "", "1"},
    {SEARCH, "", "2"},
    {SEARCH, "a=1", "1"},
    {SEARCH, "a=1", "2"},
    {SEARCH, "a=1", ""},
    {SEARCH_TOO, "", NULL},
    {SEARCH_TOO, "a=1", NULL},
    {SEARCH_TOO, "a=1", "1"},
};

enum { STRANGER_COUNT = sizeof strangers / sizeof *strangers };

static void test_a_cached_answer_is_never_served_to_someone_it_is_not_for(void **state)
{
    struct scene *sc = *state;
    char text[32];

    for (size_t i = 0; i < STRANGER_COUNT; i++) {
        struct fake_outcome outcome = {.evidence = EVIDENCE_GOOD, .body = text};

        (void)snprintf(text, sizeof text, "[%zu]", i);
        assert_true(ask_as(sc, HERE, &strangers[i])->is_waiting);
        land(sc, &outcome);
    }
    end_visits(sc);
    for (size_t i = 0; i < STRANGER_COUNT; i++) { /* and each gets its own */
        (void)snprintf(text, sizeof text, "[%zu]", i);
        assert_stored(sc, ask_as(sc, THERE, &strangers[i]), text);
    }
    end_visits(sc);
    pass(sc, 10 * SECOND_US); /* nor is it when nothing else can be had */
    open_breaker(sc);
    assert_error(ask_as(sc, THERE, &(struct asked){SEARCH, "a=1", "3"}), REASON_BREAKER_OPEN);
}

static void test_who_asks_the_same_in_other_words_gets_the_same(void **state)
{
    static const struct asked first = {SEARCH, "a=1%20x&b=", "t"};
    static const struct asked same[] = {
        {SEARCH, "b=&a=1+x", "t"}, {SEARCH, "a=%31%20%78&b", "t"}, {SEARCH, "&b&a=1+x&", "t"}};
    struct scene *sc = *state;

    assert_true(ask_as(sc, HERE, &first)->is_waiting);
    land(sc, &good);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_stored(sc, ask_as(sc, THERE, &same[i]), good.body);
}

/* ---- memory ---- */

/* One request that is answered at once, and is over. */
static void come_and_go(struct scene *sc, const char *query, enum served served)
{
    struct visit *v = come_for(sc, THERE, BOOKS, query);

    assert_int_equal(v->answer.served, served);
    assert_false(v->is_waiting);
    end_visits(sc);
}

static void come_and_go_often(struct scene *sc, int times)
{
    for (int i = 0; i < times; i++) {
        come_and_go(sc, "id=1", SERVED_STALE);
        come_and_go(sc, "id=2", SERVED_STORED);
        come_and_go(sc, "id=3", SERVED_ERROR);
    }
}

static void test_answers_at_once_leave_no_memory_behind(void **state)
{
    struct scene *sc = *state;
    size_t before;

    (void)store_and_expire(sc, BOOKS);
    (void)come_and_land(sc, BOOKS, 2, &good);
    end_visits(sc);
    open_breaker(sc);
    come_and_go_often(sc, 100); /* what the allocator keeps for itself, it keeps now */
    before = stage_allocated_bytes();
    come_and_go_often(sc, 10000);
    assert_int_equal(stage_allocated_bytes(), before);
}

#define SCENE(test) cmocka_unit_test_setup_teardown(test, set_scene, clear_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_a_hit_touches_neither_admission_nor_dependency),
        SCENE(test_a_hit_is_whole_while_the_breaker_is_open_and_memory_is_full),
        SCENE(test_an_answer_is_fresh_up_to_its_own_lifetime),
        SCENE(test_a_bad_parameter_is_said_before_the_cache_is_asked),
        SCENE(test_lookups_are_counted_as_what_they_were),
        SCENE(test_who_comes_second_joins_and_one_call_serves_both),
        SCENE(test_who_waits_on_the_other_worker_is_told_through_its_inbox),
        SCENE(test_calls_of_different_keys_fly_side_by_side),
        SCENE(test_who_began_hangs_up_and_the_others_are_served),
        SCENE(test_the_last_one_to_leave_cancels_and_says_whose_haste_it_was),
        SCENE(test_a_flight_that_everyone_left_is_not_joined),
        SCENE(test_a_call_that_was_stopped_is_no_failure),
        SCENE(test_a_short_deadline_is_answered_alone_while_the_others_wait_on),
        SCENE(test_a_flights_call_has_the_routes_time_not_that_of_who_began),
        SCENE(test_a_flight_past_its_time_is_not_joined),
        SCENE(test_who_leaves_between_landing_and_delivery_is_answered_once),
        SCENE(test_a_desk_that_everyone_left_is_delivered_to_nobody),
        SCENE(test_a_flight_that_fails_fails_for_everyone),
        SCENE(test_a_refusal_gives_what_is_stored_at_once_and_does_not_back_off),
        SCENE(test_a_refusal_with_nothing_stored_is_an_error_that_says_when_to_come_again),
        SCENE(test_a_refusal_with_nothing_stored_gives_the_fallback),
        SCENE(test_who_stood_in_the_line_too_long_gets_what_is_stored_without_back_off),
        SCENE(test_a_failure_that_was_tried_backs_off_longer_each_time),
        SCENE(test_errors_never_replace_nor_rejuvenate_what_is_stored),
        SCENE(test_what_is_too_old_to_stand_in_is_not_served),
        SCENE(test_what_grew_too_old_during_the_flight_is_not_served),
        SCENE(test_each_5xx_reason_degrades_and_no_4xx_does),
        SCENE(test_after_a_4xx_the_next_one_asks_again),
        SCENE(test_a_row_that_is_gone_takes_its_answer_along),
        SCENE(test_a_purge_during_a_flight_makes_newcomers_begin_another),
        SCENE(test_what_lands_after_a_purge_and_a_newer_flight_is_not_stored),
        SCENE(test_what_was_stored_before_a_purge_is_not_served_again),
        SCENE(test_a_purge_during_a_flight_takes_what_could_stand_in),
        SCENE(test_the_purge_of_one_key_leaves_the_others),
        SCENE(test_a_write_that_succeeded_purges_what_it_names),
        SCENE(test_a_write_that_did_not_happen_purges_nothing),
        SCENE(test_after_a_write_that_may_have_happened_nothing_is_fresh),
        SCENE(test_a_write_that_nobody_waited_for_any_more_purges_as_well),
        SCENE(test_a_read_that_began_before_a_write_came_back_is_not_stored),
        SCENE(test_what_may_be_revalidated_is_answered_at_once_and_one_refresh_flies),
        SCENE(test_past_its_window_a_live_answer_is_waited_for),
        SCENE(test_after_a_refresh_that_failed_answers_are_stale_with_its_reason),
        SCENE(test_a_refresh_that_is_refused_says_so_and_does_not_back_off),
        SCENE(test_a_refresh_flies_on_when_who_joined_it_leaves),
        SCENE(test_a_refresh_without_a_row_removes_what_is_stored),
        SCENE(test_draining_gives_what_is_stored_the_fallback_or_the_error),
        SCENE(test_a_dependency_that_drains_gives_what_is_stored),
        SCENE(test_a_result_too_large_for_the_cache_is_answered_to_all_and_not_stored),
        SCENE(test_a_large_result_that_fits_is_stored),
        SCENE(test_a_cached_answer_is_never_served_to_someone_it_is_not_for),
        SCENE(test_who_asks_the_same_in_other_words_gets_the_same),
        SCENE(test_answers_at_once_leave_no_memory_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

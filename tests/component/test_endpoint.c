/* The story of one request, from its parameters to its answer, over a dependency that the test
 * answers by hand. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "dep/call.h"
#include "fake_dependency.h"
#include "plan/endpoint.h"
#include "query/params.h"
#include "stage.h"

enum { READ, WRITE, LIMITED, ROUTE_COUNT };

static const char *const routes[ROUTE_COUNT] = {
    [READ] = "-- GET /books\n-- @param id int4\nSELECT :id AS id\n",
    [WRITE] = "-- POST /books\n-- @param id int4 in=query\n"
              "INSERT INTO books (id) VALUES (:id)\n",
    [LIMITED] = "-- GET /reports\n-- @param id int4\n-- @limit 1\n-- @timeout 1s\n"
                "SELECT :id AS id\n",
};

/* One of its workers is enough here: no route is cached. */
static struct stage *set_stage(void)
{
    return stage_create(routes, ROUTE_COUNT);
}

/* True: answered at once. */
static bool ask(struct stage *s, struct endpoint *e, struct route *route, const char *query,
                int64_t caller_timeout_us, struct answer *out)
{
    struct raw_inputs inputs = {.query = {query, strlen(query)}};

    return endpoint_begin(e, &s->workers[0].env, route, &inputs, caller_timeout_us, s->fake.now, e,
                          out);
}

static void ask_and_wait(struct stage *s, struct endpoint *e, struct route *route)
{
    struct answer answer;

    assert_false(ask(s, e, route, "id=1", 0, &answer));
    assert_non_null(e->call);
    assert_ptr_equal(e->call->request, e);
}

static struct call *next_reply(struct stage *s)
{
    struct inbox_item *item = inbox_drain(&s->workers[0].replies);

    assert_non_null(item);
    assert_null(item->next);
    return LIST_ITEM(item, struct call, item);
}

/* The only reply there is belongs to `e`, and is its answer. */
static void take_answer(struct stage *s, struct endpoint *e, struct answer *out)
{
    struct call *call = next_reply(s);

    assert_ptr_equal(call->request, e);
    assert_false(endpoint_land(&s->workers[0].env, call, s->fake.now));
    endpoint_outcome(e, call, s->fake.now, out);
    endpoint_fini(e);
}

static void discard_reply(struct stage *s)
{
    struct call *call = next_reply(s);

    assert_null(call->request);
    endpoint_discard(&s->workers[0].env, call);
}

static void answer_first(struct stage *s, const struct fake_outcome *outcome)
{
    fake_dependency_take(&s->fake);
    fake_dependency_answer_all(&s->fake, outcome, 1);
}

static void assert_problem(const struct answer *answer, enum reason reason)
{
    assert_int_equal(answer->reason, reason);
    assert_int_equal(answer->status, reason_http(reason));
    assert_int_equal(answer->served, SERVED_ERROR);
    assert_null(answer->body.data);
    if (answer->status == 503)
        assert_true(answer->retry_after_s >= 1);
    else
        assert_int_equal(answer->retry_after_s, 0);
}

static const struct fake_outcome good = {.evidence = EVIDENCE_GOOD, .body = "[{\"id\":1}]"};
static const struct fake_outcome bad = {.reason = REASON_CONNECTION_LOST,
                                        .evidence = EVIDENCE_BAD_CONNECTION,
                                        .detail = "the connection to the database was lost"};

/* ---- answered at once ---- */

static void test_a_bad_parameter_touches_nothing(void **state)
{
    static const char *const queries[] = {"id=one", "id=99999999999", "id=1&id=2", "name=x", ""};
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;

    (void)state;
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        assert_true(ask(s, &e, &s->routes[LIMITED], queries[i], 0, &answer));
        assert_problem(&answer, REASON_BAD_PARAMETER);
        assert_true(answer.detail[0] != '\0');
        assert_null(answer.dependency);
        assert_int_equal(answer.attempts, 0);
        assert_null(e.call);
        endpoint_fini(&e);
        stage_assert_at_rest(s);
    }
    assert_int_equal(s->fake.wake_count, 0);
    assert_int_equal(counter_read(&s->fake.metrics.refused_full), 0);
    stage_destroy(s);
}

/* A parameter is judged before the breaker: the caller's mistake is said even while it is open. */
static void test_a_bad_parameter_is_said_while_the_breaker_is_open(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;

    (void)state;
    admission_set_mode(&s->fake.dep.admission, BREAKER_FORCED_OPEN);
    assert_true(ask(s, &e, &s->routes[READ], "id=one", 0, &answer));
    assert_problem(&answer, REASON_BAD_PARAMETER);
    stage_destroy(s);
}

static void assert_refused(struct stage *s, struct route *route, enum reason reason)
{
    uint64_t woken = s->fake.wake_count;
    struct admission_view before = admission_read(&s->fake.dep.admission), after;
    uint32_t limited = atomic_load(&route->limit_in_use);
    struct endpoint e;
    struct answer answer;

    assert_true(ask(s, &e, route, "id=1", 0, &answer));
    assert_problem(&answer, reason);
    assert_true(answer.detail[0] != '\0');
    assert_string_equal(answer.dependency, "fake");
    assert_int_equal(answer.attempts, 0);
    assert_null(e.call);
    endpoint_fini(&e);

    after = admission_read(&s->fake.dep.admission);
    assert_int_equal(after.in_use, before.in_use);
    assert_int_equal(after.queued, before.queued);
    assert_int_equal(after.trials_left, before.trials_left);
    assert_int_equal(atomic_load(&route->limit_in_use), limited);
    assert_int_equal(s->fake.wake_count, woken);
}

static void test_too_much_memory_in_use_refuses_before_a_permit(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;

    (void)state;
    counter_set(&s->memory_bytes, STAGE_MEMORY_MAX_BYTES + 1);
    assert_true(ask(s, &e, &s->routes[LIMITED], "id=1", 0, &answer));
    assert_problem(&answer, REASON_OVERLOADED);
    stage_assert_at_rest(s);
    counter_set(&s->memory_bytes, STAGE_MEMORY_MAX_BYTES);
    ask_and_wait(s, &e, &s->routes[LIMITED]);
    answer_first(s, &good);
    take_answer(s, &e, &answer);
    answer_fini(&answer);
    stage_destroy(s);
}

/* Three failures, one after the other. */
static void open_the_breaker(struct stage *s)
{
    struct endpoint e;
    struct answer answer;

    for (int i = 0; i < 3; i++) {
        ask_and_wait(s, &e, &s->routes[READ]);
        answer_first(s, &bad);
        take_answer(s, &e, &answer);
        assert_problem(&answer, REASON_CONNECTION_LOST);
        assert_string_equal(answer.detail, bad.detail);
    }
    assert_int_equal(admission_read(&s->fake.dep.admission).state, BREAKER_OPEN);
}

static void test_an_open_breaker_refuses_at_once(void **state)
{
    struct stage *s = set_stage();

    (void)state;
    open_the_breaker(s);
    assert_refused(s, &s->routes[READ], REASON_BREAKER_OPEN);
    assert_refused(s, &s->routes[WRITE], REASON_BREAKER_OPEN);
    assert_refused(s, &s->routes[LIMITED], REASON_BREAKER_OPEN);
    assert_int_equal(counter_read(&s->fake.metrics.refused_open), 3);
    stage_destroy(s);
}

/* At least what is left of the time open (± 10 %), and at most a quarter more, in whole seconds. */
static void test_retry_after_tells_how_long_open_lasts(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;
    bool seen[16] = {false};
    int64_t left_us;
    int different = 0;

    (void)state;
    open_the_breaker(s);
    fake_dependency_pass(&s->fake, 1000000);
    left_us = instant_span_us(s->fake.now, s->fake.breaker.reopen_at);
    for (int i = 0; i < 200; i++) {
        assert_true(ask(s, &e, &s->routes[READ], "id=1", 0, &answer));
        assert_true(answer.retry_after_s * INT64_C(1000000) >= left_us);
        assert_true((answer.retry_after_s - 1) * INT64_C(1000000) <= left_us + left_us / 4);
        assert_true(answer.retry_after_s < 16);
        seen[answer.retry_after_s] = true;
    }
    for (size_t i = 0; i < 16; i++)
        different += seen[i];
    assert_true(different >= 2);
    stage_destroy(s);
}

static void test_forced_open_refuses_and_auto_serves_again(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;

    (void)state;
    admission_set_mode(&s->fake.dep.admission, BREAKER_FORCED_OPEN);
    assert_refused(s, &s->routes[READ], REASON_BREAKER_OPEN);
    admission_set_mode(&s->fake.dep.admission, BREAKER_AUTO);
    ask_and_wait(s, &e, &s->routes[READ]);
    answer_first(s, &good);
    take_answer(s, &e, &answer);
    assert_int_equal(answer.status, 200);
    answer_fini(&answer);
    stage_destroy(s);
}

static void test_a_full_bulkhead_refuses_at_once(void **state)
{
    struct stage *s = set_stage();
    struct endpoint inside[4];
    struct answer answer;

    (void)state;
    for (size_t i = 0; i < 4; i++) /* two permits, two places */
        ask_and_wait(s, &inside[i], &s->routes[READ]);
    fake_dependency_take(&s->fake);
    assert_int_equal(fake_dependency_running_count(&s->fake), 2);
    assert_int_equal(fake_dependency_line_count(&s->fake), 2);
    assert_refused(s, &s->routes[READ], REASON_BULKHEAD_FULL);
    assert_int_equal(counter_read(&s->fake.metrics.refused_full), 1);

    for (size_t i = 0; i < 4; i++) { /* first come, first served */
        answer_first(s, &good);
        take_answer(s, &inside[i], &answer);
        assert_int_equal(answer.status, 200);
        answer_fini(&answer);
    }
    stage_destroy(s);
}

static void test_a_route_at_its_limit_refuses_and_others_go_on(void **state)
{
    struct stage *s = set_stage();
    struct endpoint first, other;
    struct answer answer;

    (void)state;
    ask_and_wait(s, &first, &s->routes[LIMITED]);
    assert_refused(s, &s->routes[LIMITED], REASON_BULKHEAD_FULL);
    ask_and_wait(s, &other, &s->routes[READ]);
    fake_dependency_take(&s->fake);
    answer_first(s, &good);
    take_answer(s, &first, &answer);
    answer_fini(&answer);
    ask_and_wait(s, &first, &s->routes[LIMITED]);
    answer_first(s, &good);
    take_answer(s, &other, &answer);
    answer_fini(&answer);
    answer_first(s, &good);
    take_answer(s, &first, &answer);
    answer_fini(&answer);
    stage_destroy(s);
}

/* The limit counts calls, not requests: who gave up still occupies the database. */
static void test_a_limit_is_held_until_the_call_came_back(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;

    (void)state;
    ask_and_wait(s, &e, &s->routes[LIMITED]);
    fake_dependency_pass(&s->fake, 1000000);
    endpoint_give_up(&e, REASON_DEADLINE, s->fake.now, &answer);
    endpoint_fini(&e);
    assert_refused(s, &s->routes[LIMITED], REASON_BULKHEAD_FULL);
    answer_first(s, &good);
    assert_refused(s, &s->routes[LIMITED], REASON_BULKHEAD_FULL);
    discard_reply(s);
    ask_and_wait(s, &e, &s->routes[LIMITED]);
    answer_first(s, &good);
    take_answer(s, &e, &answer);
    answer_fini(&answer);
    stage_destroy(s);
}

static void test_refusals_leave_no_memory_behind(void **state)
{
    struct stage *s = set_stage();
    struct endpoint inside[4], e;
    struct answer answer;
    size_t before;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        ask_and_wait(s, &inside[i], &s->routes[READ]);
    for (int i = 0; i < 100; i++) /* what the allocator keeps for itself, it keeps now */
        assert_true(ask(s, &e, &s->routes[READ], "id=1", 0, &answer));
    before = stage_allocated_bytes();
    for (int i = 0; i < 10000; i++) {
        assert_true(ask(s, &e, &s->routes[READ], "id=1", 0, &answer));
        endpoint_fini(&e);
        answer_fini(&answer);
    }
    assert_int_equal(stage_allocated_bytes(), before);
    for (size_t i = 0; i < 4; i++) {
        answer_first(s, &good);
        take_answer(s, &inside[i], &answer);
        answer_fini(&answer);
    }
    stage_destroy(s);
}

/* ---- outcomes ---- */

static void test_a_success_carries_its_body_and_times(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;

    (void)state;
    ask_and_wait(s, &e, &s->routes[READ]);
    assert_int_equal(e.deadline.us, s->fake.now.us + STAGE_REQUEST_TIMEOUT_US);
    fake_dependency_take(&s->fake);
    fake_dependency_running(&s->fake, 0)->outcome.waited_us = 11;
    fake_dependency_running(&s->fake, 0)->outcome.served_us = 22;
    answer_first(s, &good);
    take_answer(s, &e, &answer);
    assert_int_equal(answer.status, 200);
    assert_int_equal(answer.reason, REASON_NONE);
    assert_int_equal(answer.served, SERVED_LIVE);
    assert_int_equal(answer.retry_after_s, 0);
    assert_int_equal(answer.attempts, 1);
    assert_int_equal(answer.waited_us, 11);
    assert_int_equal(answer.served_us, 22);
    assert_string_equal(answer.dependency, "fake");
    assert_int_equal(answer.body.size_bytes, strlen(good.body));
    assert_memory_equal(answer.body.data, good.body, answer.body.size_bytes);
    answer_fini(&answer);
    stage_destroy(s);
}

static void test_a_large_body_moves_without_a_copy(void **state)
{
    struct stage *s = set_stage();
    char *text = malloc(200001);
    struct fake_outcome large = {.evidence = EVIDENCE_GOOD, .body = text, .is_large = true};
    const char *data;
    struct endpoint e;
    struct answer answer;
    struct call *call;

    (void)state;
    assert_non_null(text);
    memset(text, 'x', 200000);
    text[200000] = '\0';
    ask_and_wait(s, &e, &s->routes[READ]);
    answer_first(s, &large);
    call = next_reply(s);
    data = call->outcome.body.data;
    endpoint_outcome(&e, call, s->fake.now, &answer);
    assert_ptr_equal(answer.body.data, data);
    assert_int_equal(answer.body.size_bytes, 200000);
    assert_true(answer.body.mapped_bytes >= 200000);
    assert_memory_equal(answer.body.data, text, 200000);
    endpoint_fini(&e);
    answer_fini(&answer);
    assert_null(answer.body.data);
    free(text);
    stage_destroy(s);
}

static void test_each_reason_becomes_its_status_and_keeps_its_detail(void **state)
{
    struct stage *s = set_stage();

    (void)state;
    for (unsigned r = REASON_NONE + 1; r < REASON_COUNT; r++) {
        struct fake_outcome outcome = {
            .reason = (enum reason)r, .detail = "why", .constraint = "books_pkey"};
        struct endpoint e;
        struct answer answer;

        ask_and_wait(s, &e, &s->routes[WRITE]);
        answer_first(s, &outcome);
        take_answer(s, &e, &answer);
        assert_problem(&answer, (enum reason)r);
        assert_string_equal(answer.detail, "why");
        assert_string_equal(answer.constraint, "books_pkey");
        if (r == REASON_OVERLOADED || r == REASON_DRAINING)
            assert_null(answer.dependency); /* it is weir itself */
        else
            assert_string_equal(answer.dependency, "fake");
    }
    stage_destroy(s);
}

static void test_who_waits_too_long_in_the_line_is_told(void **state)
{
    struct stage *s = set_stage();
    struct endpoint inside[3];
    struct answer answer;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        ask_and_wait(s, &inside[i], &s->routes[READ]);
    fake_dependency_take(&s->fake);
    fake_dependency_pass(&s->fake, STAGE_QUEUE_TIMEOUT_US);
    take_answer(s, &inside[2], &answer);
    assert_problem(&answer, REASON_QUEUE_TIMEOUT);
    for (size_t i = 0; i < 2; i++) {
        answer_first(s, &good);
        take_answer(s, &inside[i], &answer);
        answer_fini(&answer);
    }
    stage_destroy(s);
}

static void test_draining_answers_everyone(void **state)
{
    struct stage *s = set_stage();
    struct endpoint inside[4];
    struct inbox_item *item, *next;
    struct answer answer;
    size_t answered = 0;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        ask_and_wait(s, &inside[i], i % 2 == 0 ? &s->routes[READ] : &s->routes[WRITE]);
    fake_dependency_drain(&s->fake);
    for (item = inbox_drain(&s->workers[0].replies); item != NULL; item = next, answered++) {
        struct call *call = LIST_ITEM(item, struct call, item);
        struct endpoint *e = call->request;

        next = item->next;
        endpoint_outcome(e, call, s->fake.now, &answer);
        assert_problem(&answer, REASON_DRAINING);
        endpoint_fini(e);
    }
    assert_int_equal(answered, 4);
    stage_destroy(s);
}

/* The whole way: closed, open, refused, rested, two trials, closed. */
static void test_the_breaker_heals_through_trials(void **state)
{
    struct stage *s = set_stage();
    struct endpoint trials[2];
    struct answer answer;

    (void)state;
    open_the_breaker(s);
    fake_dependency_pass(&s->fake, STAGE_RESET_TIMEOUT_US + STAGE_RESET_TIMEOUT_US / 10);
    assert_int_equal(admission_read(&s->fake.dep.admission).state, BREAKER_HALF_OPEN);
    ask_and_wait(s, &trials[0], &s->routes[READ]);
    ask_and_wait(s, &trials[1], &s->routes[READ]);
    assert_refused(s, &s->routes[READ], REASON_BREAKER_OPEN);
    for (size_t i = 0; i < 2; i++) {
        answer_first(s, &good);
        take_answer(s, &trials[i], &answer);
        assert_int_equal(answer.status, 200);
        answer_fini(&answer);
    }
    assert_int_equal(admission_read(&s->fake.dep.admission).state, BREAKER_CLOSED);
    stage_destroy(s);
}

/* Nobody waits for a trial any more: its slot comes back, else half-open would never end. */
static void test_a_trial_whose_caller_hung_up_gives_its_slot_back(void **state)
{
    static const struct fake_outcome stopped = {.reason = REASON_NONE};
    struct stage *s = set_stage();
    struct endpoint e;

    (void)state;
    open_the_breaker(s);
    fake_dependency_pass(&s->fake, STAGE_RESET_TIMEOUT_US + STAGE_RESET_TIMEOUT_US / 10);
    ask_and_wait(s, &e, &s->routes[READ]);
    assert_int_equal(admission_read(&s->fake.dep.admission).trials_left, 1);
    endpoint_hang_up(&e);
    endpoint_fini(&e);
    answer_first(s, &stopped);
    discard_reply(s);
    assert_int_equal(admission_read(&s->fake.dep.admission).trials_left, 2);
    stage_destroy(s);
}

/* ---- the deadline ---- */

static void test_the_deadline_answers_now_and_the_call_is_told_to_stop(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;
    struct call *call;
    uint64_t woken;

    (void)state;
    ask_and_wait(s, &e, &s->routes[READ]);
    fake_dependency_take(&s->fake);
    call = fake_dependency_running(&s->fake, 0);
    atomic_store(&call->is_sent, true);
    fake_dependency_pass(&s->fake, STAGE_REQUEST_TIMEOUT_US);
    woken = s->fake.wake_count;
    endpoint_give_up(&e, REASON_DEADLINE, s->fake.now, &answer);
    assert_problem(&answer, REASON_DEADLINE);
    assert_int_equal(answer.status, 504);
    assert_string_equal(answer.dependency, "fake");
    assert_int_equal(answer.attempts, 1);
    assert_null(e.call);
    assert_int_equal(s->fake.wake_count, woken + 1);
    assert_true(atomic_load(&call->is_cancelled));
    assert_false(call->is_hung_up);
    assert_null(call->request);
    endpoint_fini(&e);

    /* The permit is held until the database is done. */
    assert_int_equal(admission_read(&s->fake.dep.admission).in_use, 1);
    answer_first(s, &good);
    assert_int_equal(admission_read(&s->fake.dep.admission).in_use, 0);
    discard_reply(s);
    stage_destroy(s);
}

static void test_the_deadline_takes_a_call_out_of_the_line(void **state)
{
    struct stage *s = set_stage();
    struct endpoint inside[3];
    struct answer answer;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        ask_and_wait(s, &inside[i], &s->routes[READ]);
    fake_dependency_take(&s->fake);
    endpoint_give_up(&inside[2], REASON_DEADLINE, s->fake.now, &answer);
    assert_problem(&answer, REASON_DEADLINE);
    endpoint_fini(&inside[2]);
    fake_dependency_take(&s->fake);
    assert_int_equal(admission_read(&s->fake.dep.admission).queued, 0);
    discard_reply(s);
    for (size_t i = 0; i < 2; i++) {
        answer_first(s, &good);
        take_answer(s, &inside[i], &answer);
        answer_fini(&answer);
    }
    stage_destroy(s);
}

/* What the deadline makes of a write, sent or not. */
static void assert_write_at_deadline(bool is_sent, enum reason expected)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;

    ask_and_wait(s, &e, &s->routes[WRITE]);
    fake_dependency_take(&s->fake);
    atomic_store(&fake_dependency_running(&s->fake, 0)->is_sent, is_sent);
    endpoint_give_up(&e, REASON_DEADLINE, s->fake.now, &answer);
    assert_problem(&answer, expected);
    endpoint_fini(&e);
    answer_first(s, &good);
    discard_reply(s);
    stage_destroy(s);
}

static void test_a_write_that_was_not_sent_did_not_happen(void **state)
{
    (void)state;
    assert_write_at_deadline(false, REASON_DEADLINE);
}

static void test_a_write_that_was_sent_may_have_happened(void **state)
{
    (void)state;
    assert_write_at_deadline(true, REASON_OUTCOME_UNKNOWN);
}

static void assert_span(struct stage *s, struct route *route, int64_t caller_timeout_us,
                        int64_t span_us, bool is_short_by_caller)
{
    struct endpoint e;
    struct answer answer;

    assert_false(ask(s, &e, route, "id=1", caller_timeout_us, &answer));
    assert_int_equal(instant_span_us(s->fake.now, e.deadline), span_us);
    assert_int_equal(e.call->deadline.us, e.deadline.us);
    assert_int_equal(e.call->is_short_by_caller, is_short_by_caller);
    answer_first(s, &good);
    take_answer(s, &e, &answer);
    answer_fini(&answer);
}

static void test_the_caller_may_only_shorten_the_deadline(void **state)
{
    struct stage *s = set_stage();

    (void)state;
    assert_span(s, &s->routes[READ], 0, STAGE_REQUEST_TIMEOUT_US, false);
    assert_span(s, &s->routes[READ], 1, 1, true);
    assert_span(s, &s->routes[READ], STAGE_REQUEST_TIMEOUT_US - 1, STAGE_REQUEST_TIMEOUT_US - 1,
                true);
    assert_span(s, &s->routes[READ], STAGE_REQUEST_TIMEOUT_US, STAGE_REQUEST_TIMEOUT_US, false);
    assert_span(s, &s->routes[READ], INT64_MAX, STAGE_REQUEST_TIMEOUT_US, false);
    assert_span(s, &s->routes[READ], -1, STAGE_REQUEST_TIMEOUT_US, false);
    assert_span(s, &s->routes[LIMITED], 0, 1000000, false);
    assert_span(s, &s->routes[LIMITED], 2000000, 1000000, false);
    assert_span(s, &s->routes[LIMITED], 999999, 999999, true);
    stage_destroy(s);
}

/* ---- hanging up ---- */

static void test_a_hang_up_stops_the_call_and_nobody_is_answered(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct call *call;

    (void)state;
    ask_and_wait(s, &e, &s->routes[READ]);
    call = e.call;
    endpoint_hang_up(&e);
    assert_null(e.call);
    assert_true(atomic_load(&call->is_cancelled));
    assert_true(call->is_hung_up);
    endpoint_hang_up(&e); /* again is fine */
    endpoint_fini(&e);
    answer_first(s, &good);
    discard_reply(s);
    stage_destroy(s);
}

static void test_the_end_of_a_request_stops_its_call(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct call *call;

    (void)state;
    ask_and_wait(s, &e, &s->routes[READ]);
    call = e.call;
    endpoint_fini(&e);
    assert_true(atomic_load(&call->is_cancelled));
    answer_first(s, &good);
    discard_reply(s);
    stage_destroy(s);
}

/* The call came back while the deadline was being answered: the late answer goes nowhere. */
static void test_an_answer_that_comes_with_the_deadline_is_given_once(void **state)
{
    struct stage *s = set_stage();
    struct endpoint e;
    struct answer answer;

    (void)state;
    ask_and_wait(s, &e, &s->routes[READ]);
    answer_first(s, &good);
    endpoint_give_up(&e, REASON_DEADLINE, s->fake.now, &answer);
    assert_problem(&answer, REASON_DEADLINE);
    endpoint_fini(&e);
    discard_reply(s);
    stage_destroy(s);
}

/* ---- any order of events ---- */

enum { CROWD = 48, EVENT_COUNT = 100000, STORY_SEED = 20240229 };

struct visitor {
    struct endpoint e;
    bool is_waiting;
};

struct crowd {
    struct stage *s;
    struct rand rand;
    struct visitor visitors[CROWD];
    uint64_t begun, answered, hung_up;
    uint64_t by_reason[REASON_COUNT];
};

static void count_answer(struct crowd *c, struct answer *answer)
{
    c->answered++;
    c->by_reason[answer->reason]++;
    if (answer->reason == REASON_NONE)
        assert_int_equal(answer->status, 200);
    else
        assert_problem(answer, answer->reason);
    answer_fini(answer);
}

static void end_visit(struct visitor *v)
{
    v->is_waiting = false;
    endpoint_fini(&v->e);
    memset(&v->e, 0xa5, sizeof v->e); /* whoever looks at it later is found out */
}

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

static void come(struct crowd *c)
{
    struct visitor *v = pick(c, false);
    struct route *route;
    const char *query = rand_below(&c->rand, 10) == 0 ? "id=x" : "id=1";
    int64_t timeout_us = rand_below(&c->rand, 3) == 0
                             ? (int64_t)rand_below(&c->rand, 2 * (uint64_t)STAGE_REQUEST_TIMEOUT_US)
                             : 0;
    struct answer answer;
    struct raw_inputs inputs = {.query = {query, strlen(query)}};

    if (v == NULL)
        return;
    c->begun++;
    route = &c->s->routes[rand_below(&c->rand, ROUTE_COUNT)];
    if (endpoint_begin(&v->e, &c->s->workers[0].env, route, &inputs, timeout_us, c->s->fake.now, v,
                       &answer)) {
        count_answer(c, &answer);
        end_visit(v);
    } else {
        v->is_waiting = true;
    }
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

/* As the worker's timers do. */
static void fire_deadlines(struct crowd *c)
{
    for (size_t i = 0; i < CROWD; i++) {
        struct visitor *v = &c->visitors[i];
        struct answer answer;

        if (!v->is_waiting || !instant_reached(c->s->fake.now, v->e.deadline))
            continue;
        endpoint_give_up(&v->e, REASON_DEADLINE, c->s->fake.now, &answer);
        count_answer(c, &answer);
        end_visit(v);
    }
}

static void take_replies(struct crowd *c)
{
    struct inbox_item *item = inbox_drain(&c->s->workers[0].replies), *next;

    for (; item != NULL; item = next) {
        struct call *call = LIST_ITEM(item, struct call, item);
        struct visitor *v = call->request;
        struct answer answer;

        next = item->next;
        if (v == NULL) {
            endpoint_discard(&c->s->workers[0].env, call);
            continue;
        }
        assert_true(v->is_waiting);
        assert_ptr_equal(v->e.call, call);
        endpoint_outcome(&v->e, call, c->s->fake.now, &answer);
        count_answer(c, &answer);
        end_visit(v);
    }
}

static void answer_one(struct crowd *c)
{
    static const struct fake_outcome large = {
        .evidence = EVIDENCE_GOOD, .body = "[1,2,3]", .is_large = true};
    static const struct fake_outcome callers = {.reason = REASON_CONFLICT};
    static const struct fake_outcome broken = {.reason = REASON_DATABASE_UNAVAILABLE,
                                               .evidence = EVIDENCE_BAD};
    const struct fake_outcome *outcomes[] = {&good, &good, &large, &callers, &bad, &broken};
    struct fake_dependency *f = &c->s->fake;
    size_t running = fake_dependency_running_count(f);

    if (running == 0)
        return;
    fake_dependency_answer(f, fake_dependency_running(f, rand_below(&c->rand, running)),
                           outcomes[rand_below(&c->rand, 6)]);
}

static void send_one(struct crowd *c)
{
    struct fake_dependency *f = &c->s->fake;
    size_t running = fake_dependency_running_count(f);

    if (running > 0)
        atomic_store(&fake_dependency_running(f, rand_below(&c->rand, running))->is_sent, true);
}

static void change_mode(struct crowd *c)
{
    static const enum breaker_mode modes[] = {BREAKER_AUTO, BREAKER_AUTO, BREAKER_FORCED_OPEN,
                                              BREAKER_DISABLED};

    admission_set_mode(&c->s->fake.dep.admission, modes[rand_below(&c->rand, 4)]);
}

static void something_happens(struct crowd *c)
{
    struct fake_dependency *f = &c->s->fake;
    uint64_t dice = rand_below(&c->rand, 200);

    if (dice < 60)
        come(c);
    else if (dice < 90)
        fake_dependency_take(f);
    else if (dice < 125)
        answer_one(c);
    else if (dice < 145)
        send_one(c);
    else if (dice < 170)
        take_replies(c);
    else if (dice < 178)
        hang_up(c);
    else if (dice < 180)
        change_mode(c);
    else if (dice < 182)
        breaker_record_probe(&f->breaker, dice == 180, f->now);
    else
        fake_dependency_pass(f, (int64_t)rand_below(&c->rand, 500000));
    fire_deadlines(c);
}

static uint64_t waiting_count(const struct crowd *c)
{
    uint64_t count = 0;

    for (size_t i = 0; i < CROWD; i++)
        count += c->visitors[i].is_waiting;
    return count;
}

/* Whatever happened. A trial that a probe passed counts as passed, so that the three parts of
 * half-open always add up. */
static void assert_laws(const struct crowd *c)
{
    const struct fake_dependency *f = &c->s->fake;
    struct admission_view v = admission_read(&f->dep.admission);

    assert_int_equal(v.in_use, fake_dependency_permit_count(f));
    assert_true(v.in_use <= f->dep.admission.max_concurrent);
    assert_true(v.queued <= f->dep.admission.max_queued);
    assert_true(atomic_load(&c->s->routes[LIMITED].limit_in_use) <= c->s->routes[LIMITED].limit);
    assert_int_equal(c->begun, c->answered + c->hung_up + waiting_count(c));
    if (v.state == BREAKER_HALF_OPEN)
        assert_int_equal(v.trials_left + fake_dependency_trial_count(f) + f->breaker.trials_passed,
                         f->breaker.config.half_open_calls);
}

static void everything_comes_to_an_end(struct crowd *c)
{
    fake_dependency_take(&c->s->fake);
    fake_dependency_pass(&c->s->fake, STAGE_REQUEST_TIMEOUT_US);
    fire_deadlines(c);
    assert_int_equal(waiting_count(c), 0);
    fake_dependency_drain(&c->s->fake);
    take_replies(c);
    assert_laws(c);
}

static void test_any_order_of_events_answers_each_request_once(void **state)
{
    struct crowd *c = calloc(1, sizeof *c);

    (void)state;
    assert_non_null(c);
    c->s = set_stage();
    rand_init(&c->rand, STORY_SEED);
    for (int i = 0; i < EVENT_COUNT; i++) {
        something_happens(c);
        assert_laws(c);
        if (i % 10000 != 9999)
            continue;
        everything_comes_to_an_end(c);
        stage_assert_at_rest(c->s);
    }
    assert_int_equal(c->begun, c->answered + c->hung_up);

    /* The story was a rich one. */
    assert_true(c->hung_up > 100);
    assert_true(c->by_reason[REASON_NONE] > 1000);
    assert_true(c->by_reason[REASON_BAD_PARAMETER] > 1000);
    assert_true(c->by_reason[REASON_BREAKER_OPEN] > 1000);
    assert_true(c->by_reason[REASON_BULKHEAD_FULL] > 100);
    assert_true(c->by_reason[REASON_QUEUE_TIMEOUT] > 10);
    assert_true(c->by_reason[REASON_DEADLINE] > 10);
    assert_true(c->by_reason[REASON_OUTCOME_UNKNOWN] > 10);
    stage_destroy(c->s);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bad_parameter_touches_nothing),
        cmocka_unit_test(test_a_bad_parameter_is_said_while_the_breaker_is_open),
        cmocka_unit_test(test_too_much_memory_in_use_refuses_before_a_permit),
        cmocka_unit_test(test_an_open_breaker_refuses_at_once),
        cmocka_unit_test(test_retry_after_tells_how_long_open_lasts),
        cmocka_unit_test(test_forced_open_refuses_and_auto_serves_again),
        cmocka_unit_test(test_a_full_bulkhead_refuses_at_once),
        cmocka_unit_test(test_a_route_at_its_limit_refuses_and_others_go_on),
        cmocka_unit_test(test_a_limit_is_held_until_the_call_came_back),
        cmocka_unit_test(test_refusals_leave_no_memory_behind),
        cmocka_unit_test(test_a_success_carries_its_body_and_times),
        cmocka_unit_test(test_a_large_body_moves_without_a_copy),
        cmocka_unit_test(test_each_reason_becomes_its_status_and_keeps_its_detail),
        cmocka_unit_test(test_who_waits_too_long_in_the_line_is_told),
        cmocka_unit_test(test_draining_answers_everyone),
        cmocka_unit_test(test_the_breaker_heals_through_trials),
        cmocka_unit_test(test_a_trial_whose_caller_hung_up_gives_its_slot_back),
        cmocka_unit_test(test_the_deadline_answers_now_and_the_call_is_told_to_stop),
        cmocka_unit_test(test_the_deadline_takes_a_call_out_of_the_line),
        cmocka_unit_test(test_a_write_that_was_not_sent_did_not_happen),
        cmocka_unit_test(test_a_write_that_was_sent_may_have_happened),
        cmocka_unit_test(test_the_caller_may_only_shorten_the_deadline),
        cmocka_unit_test(test_a_hang_up_stops_the_call_and_nobody_is_answered),
        cmocka_unit_test(test_the_end_of_a_request_stops_its_call),
        cmocka_unit_test(test_an_answer_that_comes_with_the_deadline_is_given_once),
        cmocka_unit_test(test_any_order_of_events_answers_each_request_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "cmocka_all.h"
#include "dep/call.h"

static const struct route *a_route(void)
{
    static const char place;

    return (const struct route *)(const void *)&place; /* kept, never looked at */
}

static struct bound_params some_params(void)
{
    struct bound_params params = {.count = 1, .memory_bytes = 64, .memory = malloc(64)};

    assert_non_null(params.memory);
    params.values = (const char **)(void *)params.memory;
    params.values[0] = params.memory + sizeof *params.values;
    memcpy(params.memory + sizeof *params.values, "42", 3);
    return params;
}

static void test_a_call_takes_the_parameters_over(void **state)
{
    struct bound_params params = some_params();
    const char *memory = params.memory;
    struct inbox replies;
    struct call *call;

    (void)state;
    inbox_init(&replies, NULL, NULL);
    call = call_create(a_route(), &params, (struct instant){9}, (struct instant){4}, &replies);
    assert_non_null(call);
    assert_null(params.memory);
    assert_int_equal(params.count, 0);
    assert_ptr_equal(call->params.memory, memory);
    assert_string_equal(call->params.values[0], "42");
    call_destroy(call);
}

static void test_a_new_call_has_done_nothing_yet(void **state)
{
    struct bound_params params = {0};
    struct inbox replies;
    struct call *call;

    (void)state;
    inbox_init(&replies, NULL, NULL);
    call = call_create(a_route(), &params, (struct instant){9}, (struct instant){4}, &replies);
    assert_non_null(call);
    assert_ptr_equal(call->route, a_route());
    assert_ptr_equal(call->reply_to, &replies);
    assert_int_equal(call->deadline.us, 9);
    assert_int_equal(call->created_at.us, 4);
    assert_int_equal(call->give_up_at.us, 9);
    assert_false(call->has_permit || call->ticket.is_trial || call->is_short_by_caller);
    assert_false(call->is_hung_up || call->is_settled || call->prepared_again_count != 0);
    assert_false(atomic_load(&call->is_cancelled));
    assert_false(atomic_load(&call->is_sent));
    assert_null(call->request);
    assert_null(call->limited_route);
    assert_null(call->session);
    assert_true(list_is_empty(&call->link));
    call_destroy(call);
}

static void test_a_new_call_has_an_empty_success_as_outcome(void **state)
{
    struct bound_params params = {0};
    struct inbox replies;
    struct call *call;

    (void)state;
    inbox_init(&replies, NULL, NULL);
    call = call_create(a_route(), &params, (struct instant){9}, (struct instant){4}, &replies);
    assert_non_null(call);
    assert_int_equal(call->outcome.reason, REASON_NONE);
    assert_null(call->outcome.body.data);
    assert_int_equal(call->outcome.small_bytes, 0);
    assert_string_equal(call->outcome.sqlstate, "");
    assert_string_equal(call->outcome.detail, "");
    assert_string_equal(call->outcome.constraint, "");
    assert_int_equal(call->outcome.waited_us, 0);
    assert_int_equal(call->outcome.served_us, 0);
    call_destroy(call);
}

/* Nobody took the body: it goes with the call (leaks are found by the sanitizer). */
static void test_a_call_frees_the_body_that_nobody_took(void **state)
{
    struct bound_params params = some_params();
    struct inbox replies;
    struct buffer rows;
    struct call *call;

    (void)state;
    inbox_init(&replies, NULL, NULL);
    call = call_create(a_route(), &params, (struct instant){9}, (struct instant){4}, &replies);
    assert_non_null(call);
    buffer_init_mapped(&rows, 1 << 20);
    buffer_append_text(&rows, "[]");
    call->outcome.body = buffer_take(&rows);
    assert_non_null(call->outcome.body.data);
    call_destroy(call);
    call_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call_takes_the_parameters_over),
        cmocka_unit_test(test_a_new_call_has_done_nothing_yet),
        cmocka_unit_test(test_a_new_call_has_an_empty_success_as_outcome),
        cmocka_unit_test(test_a_call_frees_the_body_that_nobody_took),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

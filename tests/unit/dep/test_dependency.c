#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/rand.h"
#include "cmocka_all.h"
#include "dep/call.h"
#include "dep/dependency.h"

/* A dependency and two calls; wake-ups are counted. */
struct scene {
    struct dependency dep;
    struct call first, second;
    int woken;
};

static void count_wake(void *ctx)
{
    struct scene *scene = ctx;

    scene->woken++;
}

static struct scene *scene_of(void **state)
{
    static struct scene scene;

    (void)state;
    memset(&scene, 0, sizeof scene);
    admission_init(&scene.dep.admission, 1, 0);
    inbox_init(&scene.dep.inbox, count_wake, &scene);
    return &scene;
}

static void test_calls_arrive_in_order_and_are_announced_together(void **state)
{
    struct scene *s = scene_of(state);
    struct inbox_item *item;

    dependency_submit(&s->dep, &s->first);
    dependency_submit(&s->dep, &s->second);
    assert_int_equal(s->woken, 0);
    inbox_wake(&s->dep.inbox);
    assert_int_equal(s->woken, 1);
    item = inbox_drain(&s->dep.inbox);
    assert_ptr_equal(item, &s->first.item);
    assert_ptr_equal(item->next, &s->second.item);
    assert_null(item->next->next);
    assert_true(inbox_is_empty(&s->dep.inbox));
}

static void test_a_cancel_flags_the_call_and_wakes_the_thread_once(void **state)
{
    struct scene *s = scene_of(state);

    dependency_cancel(&s->dep, &s->first, false);
    dependency_cancel(&s->dep, &s->second, true);
    assert_true(atomic_load(&s->first.is_cancelled));
    assert_false(s->first.is_hung_up);
    assert_true(atomic_load(&s->second.is_cancelled));
    assert_true(s->second.is_hung_up);
    assert_true(atomic_load(&s->dep.has_cancels));
    assert_int_equal(s->woken, 1);

    atomic_store(&s->dep.has_cancels, false); /* the thread saw them */
    dependency_cancel(&s->dep, &s->first, true);
    assert_int_equal(s->woken, 2);
}

static void test_a_cancel_needs_no_wake_up_when_both_ends_share_a_loop(void **state)
{
    struct scene *s = scene_of(state);

    s->dep.inbox.wake = NULL;
    dependency_cancel(&s->dep, &s->first, false);
    assert_true(atomic_load(&s->dep.has_cancels));
}

/* ---- Retry-After ---- */

static uint32_t retry_after_s(struct scene *s, int64_t retry_at_us, int64_t now_us, uint64_t random)
{
    atomic_store(&s->dep.admission.retry_at_us, retry_at_us);
    return dependency_retry_after_s(&s->dep, (struct instant){now_us}, random);
}

static void test_retry_after_is_at_least_a_second(void **state)
{
    struct scene *s = scene_of(state);

    assert_int_equal(retry_after_s(s, 0, 5000000, 12345), 1);
    assert_int_equal(retry_after_s(s, 5000000, 5000000, 12345), 1);
    assert_int_equal(retry_after_s(s, 5000001, 5000000, 12345), 1);
    assert_int_equal(retry_after_s(s, 5800000, 5000000, UINT64_MAX), 1);
}

static void test_retry_after_rounds_up(void **state)
{
    struct scene *s = scene_of(state);

    assert_int_equal(retry_after_s(s, 6000000, 5000000, 0), 1);
    assert_int_equal(retry_after_s(s, 6000001, 5000000, 0), 2);
    assert_int_equal(retry_after_s(s, 14500000, 5000000, 0), 10);
}

/* An instant that never comes tells nothing; it must not become a time of half a million years. */
static void test_retry_after_of_never_is_a_second(void **state)
{
    struct scene *s = scene_of(state);

    assert_int_equal(retry_after_s(s, INSTANT_NEVER.us, 5000000, 99), 1);
}

static void test_retry_after_is_never_early_and_at_most_a_quarter_late(void **state)
{
    struct scene *s = scene_of(state);
    struct rand rand;
    int late = 0;

    rand_init(&rand, 3);
    for (int i = 0; i < 10000; i++) {
        int64_t wait_us = 1 + (int64_t)rand_below(&rand, 3600000000);
        int64_t got_us =
            retry_after_s(s, 1000 + wait_us, 1000, rand_next(&rand)) * INT64_C(1000000);

        assert_true(got_us >= wait_us);
        assert_true(got_us < wait_us + wait_us / 4 + 1000000);
        late += got_us > wait_us + 1000000;
    }
    assert_true(late > 9000); /* it is spread */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_arrive_in_order_and_are_announced_together),
        cmocka_unit_test(test_a_cancel_flags_the_call_and_wakes_the_thread_once),
        cmocka_unit_test(test_a_cancel_needs_no_wake_up_when_both_ends_share_a_loop),
        cmocka_unit_test(test_retry_after_is_at_least_a_second),
        cmocka_unit_test(test_retry_after_rounds_up),
        cmocka_unit_test(test_retry_after_of_never_is_a_second),
        cmocka_unit_test(test_retry_after_is_never_early_and_at_most_a_quarter_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/inbox.h"
#include "cmocka_all.h"

enum { PUSHER_COUNT = 4, ITEMS_EACH = 5000 };

struct parcel {
    struct inbox_item item; /* first: an item is a parcel */
    int pusher, number;
};

static void count_wake(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void test_items_come_out_oldest_first(void **state)
{
    struct inbox in;
    struct parcel parcels[3] = {{.number = 0}, {.number = 1}, {.number = 2}};
    struct inbox_item *item;

    (void)state;
    inbox_init(&in, NULL, NULL);
    assert_null(inbox_drain(&in));
    for (int i = 0; i < 3; i++)
        inbox_push(&in, &parcels[i].item);

    item = inbox_drain(&in);
    for (int i = 0; i < 3; i++, item = item->next)
        assert_ptr_equal(item, &parcels[i].item);
    assert_null(item);
    assert_null(inbox_drain(&in));
}

static void test_one_wake_up_serves_a_batch(void **state)
{
    atomic_int wakes = 0;
    struct inbox in;
    struct parcel parcels[4];

    (void)state;
    inbox_init(&in, count_wake, &wakes);
    for (int i = 0; i < 3; i++)
        inbox_push(&in, &parcels[i].item);
    assert_int_equal(wakes, 1);

    (void)inbox_drain(&in);
    inbox_push(&in, &parcels[3].item);
    assert_int_equal(wakes, 2);
}

struct pusher {
    pthread_t thread;
    struct inbox *in;
    struct parcel *parcels;
};

static void *push_all(void *ctx)
{
    struct pusher *p = ctx;

    for (int i = 0; i < ITEMS_EACH; i++)
        inbox_push(p->in, &p->parcels[i].item);
    return NULL;
}

static void pusher_start(struct pusher *p, struct inbox *in, int name)
{
    p->in = in;
    p->parcels = calloc(ITEMS_EACH, sizeof *p->parcels);
    assert_non_null(p->parcels);
    for (int i = 0; i < ITEMS_EACH; i++)
        p->parcels[i] = (struct parcel){.pusher = name, .number = i};
    assert_int_equal(pthread_create(&p->thread, NULL, push_all, p), 0);
}

/* Drains until everything came; `next` is what each pusher's next number has to be. */
static int drain_all(struct inbox *in, int next[PUSHER_COUNT])
{
    int batches = 0;

    for (int got = 0; got < PUSHER_COUNT * ITEMS_EACH;) {
        struct inbox_item *item = inbox_drain(in);

        if (item == NULL)
            (void)sched_yield();
        else
            batches++;
        for (; item != NULL; item = item->next, got++) {
            const struct parcel *parcel = (const struct parcel *)item;

            assert_int_equal(parcel->number, next[parcel->pusher]++);
        }
    }
    return batches;
}

static void test_all_that_is_pushed_is_drained_once_and_in_order_of_each_pusher(void **state)
{
    atomic_int wakes = 0;
    struct pusher pushers[PUSHER_COUNT];
    int next[PUSHER_COUNT] = {0};
    struct inbox in;
    int batches;

    (void)state;
    inbox_init(&in, count_wake, &wakes);
    for (int i = 0; i < PUSHER_COUNT; i++)
        pusher_start(&pushers[i], &in, i);
    batches = drain_all(&in, next);

    for (int i = 0; i < PUSHER_COUNT; i++) {
        assert_int_equal(pthread_join(pushers[i].thread, NULL), 0);
        assert_int_equal(next[i], ITEMS_EACH);
        free(pushers[i].parcels);
    }
    assert_null(inbox_drain(&in));
    assert_int_equal(wakes, batches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_come_out_oldest_first),
        cmocka_unit_test(test_one_wake_up_serves_a_batch),
        cmocka_unit_test(test_all_that_is_pushed_is_drained_once_and_in_order_of_each_pusher),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "cache/heap_internal.h"
#include "cmocka_all.h"

enum {
    LIMIT_BYTES = 1024 * 1024,
    PAGE_BYTES = 4096,
    SLOT_COUNT = 512,
    STEP_COUNT = 20000,
};

/* A piece of memory that is out, full of its own mark. */
struct piece {
    unsigned char *memory;
    size_t size_bytes;
    unsigned char mark;
};

static void piece_take(struct piece *p, struct heap *heap, size_t size_bytes, unsigned char mark)
{
    p->memory = heap_alloc(heap, size_bytes);
    if (p->memory == NULL)
        return;
    assert_int_equal((uintptr_t)p->memory % 16, 0);
    assert_true(heap_block_bytes(p->memory) >= size_bytes + 16);
    p->size_bytes = size_bytes;
    p->mark = mark;
    memset(p->memory, mark, size_bytes);
}

static void piece_check(const struct piece *p)
{
    for (size_t i = 0; i < p->size_bytes; i++) {
        if (p->memory[i] != p->mark)
            fail_msg("byte %zu of %zu is another's", i, p->size_bytes);
    }
}

static void piece_give_back(struct piece *p, struct heap *heap)
{
    piece_check(p);
    heap_free(heap, p->memory);
    p->memory = NULL;
}

static struct heap *create(void)
{
    struct heap *heap = heap_create(LIMIT_BYTES);

    assert_non_null(heap);
    return heap;
}

/* Nearly all of it in one piece: nothing is out, and nothing is in pieces. */
static void assert_whole(struct heap *heap)
{
    void *memory = heap_alloc(heap, LIMIT_BYTES - 2 * PAGE_BYTES);

    assert_non_null(memory);
    heap_free(heap, memory);
}

static void test_what_is_given_out_is_ones_own_whatever_is_given_back_between(void **state)
{
    static struct piece pieces[SLOT_COUNT];
    struct heap *heap = create();
    struct rand rand;
    int full_count = 0;

    (void)state;
    rand_init(&rand, 7);
    for (int step = 0; step < STEP_COUNT; step++) {
        struct piece *p = &pieces[rand_below(&rand, SLOT_COUNT)];
        size_t most_bytes = rand_below(&rand, 20) == 0 ? 65536 : 3000;

        if (p->memory != NULL)
            piece_give_back(p, heap);
        piece_take(p, heap, (size_t)rand_below(&rand, most_bytes), (unsigned char)step);
        full_count += p->memory == NULL;
    }
    assert_true(full_count > 0); /* it was full now and then */

    for (int i = 0; i < SLOT_COUNT; i++) {
        if (pieces[i].memory != NULL)
            piece_give_back(&pieces[i], heap);
    }
    assert_whole(heap);
    heap_close(heap);
}

/* As a cache does it: the oldest goes until the newest fits. */
static void test_a_line_of_pieces_makes_good_use_of_the_limit(void **state)
{
    static struct piece line[8192];
    const size_t line_size = sizeof line / sizeof *line;
    struct heap *heap = create();
    size_t first = 0, next = 0, out_bytes = 0;
    struct rand rand;

    (void)state;
    rand_init(&rand, 7);
    for (int step = 0; step < STEP_COUNT; step++) {
        size_t size_bytes = 200 + (size_t)rand_below(&rand, 4000);
        struct piece *newest = &line[next++ % line_size];

        piece_take(newest, heap, size_bytes, (unsigned char)step);
        while (newest->memory == NULL) {
            struct piece *oldest = &line[first++ % line_size];

            out_bytes -= heap_block_bytes(oldest->memory);
            piece_give_back(oldest, heap);
            piece_take(newest, heap, size_bytes, (unsigned char)step);
        }
        out_bytes += heap_block_bytes(newest->memory);
        if (out_bytes > LIMIT_BYTES)
            fail_msg("%zu bytes are out", out_bytes);
    }
    assert_true(out_bytes > (size_t)LIMIT_BYTES / 10 * 9);
    while (first < next)
        piece_give_back(&line[first++ % line_size], heap);
    assert_whole(heap);
    heap_close(heap);
}

static void test_neighbours_grow_together_in_every_order(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct heap *heap = create();

    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct piece pieces[3] = {{0}};

        for (int k = 0; k < 3; k++) {
            piece_take(&pieces[k], heap, 300000, (unsigned char)k);
            assert_non_null(pieces[k].memory);
        }
        for (int k = 0; k < 3; k++)
            piece_give_back(&pieces[orders[i][k]], heap);
        assert_whole(heap);
    }
    heap_close(heap);
}

static void test_more_than_there_is_is_refused(void **state)
{
    struct heap *heap = create();

    (void)state;
    assert_null(heap_alloc(heap, LIMIT_BYTES));
    assert_null(heap_alloc(heap, SIZE_MAX));
    assert_null(heap_alloc(heap, SIZE_MAX / 2));
    assert_whole(heap);
    heap_close(heap);
}

static void test_a_limit_not_worth_a_page_gives_nothing_out(void **state)
{
    static const size_t limits_bytes[] = {0, 1, 1000, PAGE_BYTES};

    (void)state;
    for (size_t i = 0; i < sizeof limits_bytes / sizeof *limits_bytes; i++) {
        struct heap *heap = heap_create(limits_bytes[i]);

        assert_non_null(heap);
        assert_null(heap_alloc(heap, 1));
        heap_close(heap);
    }
    heap_close(NULL);
}

static void test_what_is_out_outlives_the_heap(void **state)
{
    struct heap *heap = create();
    struct piece a = {0}, b = {0};

    (void)state;
    piece_take(&a, heap, 1000, 'a');
    piece_take(&b, heap, 1000, 'b');
    heap_close(heap);
    piece_give_back(&a, heap);
    piece_give_back(&b, heap); /* the last: LeakSanitizer watches */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_given_out_is_ones_own_whatever_is_given_back_between),
        cmocka_unit_test(test_a_line_of_pieces_makes_good_use_of_the_limit),
        cmocka_unit_test(test_neighbours_grow_together_in_every_order),
        cmocka_unit_test(test_more_than_there_is_is_refused),
        cmocka_unit_test(test_a_limit_not_worth_a_page_gives_nothing_out),
        cmocka_unit_test(test_what_is_out_outlives_the_heap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

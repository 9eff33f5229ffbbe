#include <malloc.h>
#include <string.h>

#include "cache/entry.h"
#include "cmocka_all.h"

static struct entry *make(const char *key, const char *body)
{
    const struct cache_key k = {.bytes = key, .size_bytes = strlen(key), .hash = 7, .group = 3};
    struct entry *entry = entry_create(&k, body, strlen(body), (struct instant){1000}, 5000, 9);

    assert_non_null(entry);
    return entry;
}

static void test_an_entry_has_its_own_copy_of_key_and_body(void **state)
{
    char key[] = "key", body[] = "{\"a\":1}";
    struct entry *entry = make(key, body);

    (void)state;
    memset(key, 'x', sizeof key);
    memset(body, 'x', sizeof body);
    assert_int_equal(entry->key.size_bytes, 3);
    assert_memory_equal(entry->key.bytes, "key", 3);
    assert_int_equal(entry->key.hash, 7);
    assert_int_equal(entry->key.group, 3);
    assert_int_equal(entry->body_bytes, 7);
    assert_memory_equal(entry->body, "{\"a\":1}", 7);
    assert_int_equal(entry->stored_at.us, 1000);
    assert_int_equal(entry->lifetime_us, 5000);
    assert_int_equal(entry->epoch, 9);
    entry_unref(entry);
}

static void test_an_entry_begins_without_failures_uses_and_faults(void **state)
{
    struct entry *entry = make("k", "b");

    (void)state;
    assert_false(entry->is_void);
    assert_int_equal(entry->failure, REASON_NONE);
    assert_int_equal(entry->failure_count, 0);
    assert_int_equal(entry->use_count, 0);
    assert_true(instant_reached((struct instant){0}, entry->retry_at));
    entry_unref(entry);
}

static void test_an_empty_key_and_an_empty_body_are_fine(void **state)
{
    const struct cache_key nothing = {.bytes = NULL};
    struct entry *entry = entry_create(&nothing, NULL, 0, (struct instant){0}, 0, 0);

    (void)state;
    assert_non_null(entry);
    assert_int_equal(entry->body_bytes, 0);
    assert_int_equal(strlen(entry->etag), ETAG_BYTES);
    entry_unref(entry);
    entry_unref(NULL);
}

static void test_a_body_that_no_memory_holds_is_refused(void **state)
{
    const struct cache_key key = {.bytes = "k", .size_bytes = 1};

    (void)state;
    assert_null(entry_create(&key, "b", SIZE_MAX - 8, (struct instant){0}, 0, 0));
}

static void test_the_cost_is_at_least_what_the_allocator_took(void **state)
{
    struct entry *entry = make("key", "body");

    (void)state;
    assert_true(entry->cost_bytes > sizeof *entry + 3 + 4);
    assert_true(entry->cost_bytes >= malloc_usable_size(entry) + sizeof(size_t));
    entry_unref(entry);
}

static void test_equal_bodies_have_equal_tags_and_others_have_others(void **state)
{
    struct entry *a = make("one", "[1,2]"), *b = make("two", "[1,2]"), *c = make("one", "[1,3]");

    (void)state;
    assert_string_equal(a->etag, b->etag);
    assert_string_not_equal(a->etag, c->etag);
    entry_unref(a);
    entry_unref(b);
    entry_unref(c);
}

/* A tag is kept by callers for longer than a process lives, and compared with another instance's:
 * this text is a promise. */
static void test_a_tag_is_the_same_in_every_process(void **state)
{
    struct entry *entry = make("key", "[{\"id\":1}]");

    (void)state;
    assert_string_equal(entry->etag, "\"eea59560692fa698dfd70da0f1d4dd3f\"");
    entry_unref(entry);
}

static void test_the_last_reference_frees_it(void **state)
{
    struct entry *entry = make("key", "body");

    (void)state;
    assert_ptr_equal(entry_ref(entry), entry);
    entry_unref(entry);
    assert_memory_equal(entry->body, "body", 4); /* AddressSanitizer watches */
    entry_unref(entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_entry_has_its_own_copy_of_key_and_body),
        cmocka_unit_test(test_an_entry_begins_without_failures_uses_and_faults),
        cmocka_unit_test(test_an_empty_key_and_an_empty_body_are_fine),
        cmocka_unit_test(test_a_body_that_no_memory_holds_is_refused),
        cmocka_unit_test(test_the_cost_is_at_least_what_the_allocator_took),
        cmocka_unit_test(test_equal_bodies_have_equal_tags_and_others_have_others),
        cmocka_unit_test(test_a_tag_is_the_same_in_every_process),
        cmocka_unit_test(test_the_last_reference_frees_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
#include <jansson.h>
#include <string.h>

#include "base/buffer.h"
#include "cmocka_all.h"
#include "web/problem_internal.h"

static json_t *written(const struct problem *problem)
{
    struct buffer out;
    json_t *json;

    buffer_init(&out, 4096);
    problem_write(&out, problem);
    assert_false(out.failed);
    json = json_loadb(out.data, out.size_bytes, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    buffer_fini(&out);
    return json;
}

static const char *text(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key));
}

static void test_a_problem_has_the_members_of_the_contract(void **state)
{
    json_t *json = written(&(struct problem){
        .status = 503, .reason = REASON_BREAKER_OPEN, .instance = "abc", .dependency = "primary"});

    (void)state;
    assert_string_equal(text(json, "type"), "/problems/breaker-open");
    assert_string_equal(text(json, "title"), reason_title(REASON_BREAKER_OPEN));
    assert_int_equal(json_integer_value(json_object_get(json, "status")), 503);
    assert_string_equal(text(json, "detail"), reason_title(REASON_BREAKER_OPEN));
    assert_string_equal(text(json, "instance"), "abc");
    assert_string_equal(text(json, "reason"), "breaker-open");
    assert_string_equal(text(json, "dependency"), "primary");
    assert_true(json_is_true(json_object_get(json, "retryable")));
    assert_int_equal(json_object_size(json), 8);
    json_decref(json);
}

static void test_a_constraint_is_named_when_there_is_one(void **state)
{
    json_t *json = written(&(struct problem){
        .status = 409, .reason = REASON_CONFLICT, .instance = "abc", .constraint = "books_pkey"});

    (void)state;
    assert_string_equal(text(json, "constraint"), "books_pkey");
    assert_null(json_object_get(json, "dependency"));
    assert_true(json_is_false(json_object_get(json, "retryable")));
    json_decref(json);
}

static void test_a_detail_is_escaped(void **state)
{
    json_t *json = written(&(struct problem){.status = 400,
                                             .reason = REASON_RAISED,
                                             .instance = "abc",
                                             .detail = "no \"more\" than\n5 \\ \x01"});

    (void)state;
    assert_string_equal(text(json, "detail"), "no \"more\" than\n5 \\ \x01");
    json_decref(json);
}

static void test_what_http_itself_got_wrong_has_no_type_of_ours(void **state)
{
    json_t *json =
        written(&(struct problem){.status = 431, .instance = "abc", .detail = "more than 100"});

    (void)state;
    assert_string_equal(text(json, "type"), "about:blank");
    assert_string_equal(text(json, "title"), "Request Header Fields Too Large");
    assert_null(json_object_get(json, "reason"));
    json_decref(json);
}

static void test_every_reason_is_found_by_its_word_and_has_a_page(void **state)
{
    (void)state;
    for (enum reason r = REASON_NONE + 1; r < REASON_COUNT; r++) {
        const char *word = reason_word(r);
        struct buffer out;
        json_t *json;

        assert_int_equal(problem_reason_of(word, strlen(word)), r);
        buffer_init(&out, 4096);
        problem_write_type(&out, r);
        json = json_loadb(out.data, out.size_bytes, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(json, "status")), reason_http(r));
        json_decref(json);
        buffer_fini(&out);
    }
    assert_int_equal(problem_reason_of("none", 4), REASON_COUNT);
    assert_int_equal(problem_reason_of("breaker-opens", 13), REASON_COUNT);
    assert_int_equal(problem_reason_of("", 0), REASON_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_problem_has_the_members_of_the_contract),
        cmocka_unit_test(test_a_constraint_is_named_when_there_is_one),
        cmocka_unit_test(test_a_detail_is_escaped),
        cmocka_unit_test(test_what_http_itself_got_wrong_has_no_type_of_ours),
        cmocka_unit_test(test_every_reason_is_found_by_its_word_and_has_a_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

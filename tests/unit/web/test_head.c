/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cmocka_all.h"
#include "web/head_internal.h"

static struct raw_text raw(const char *text)
{
    return (struct raw_text){text, strlen(text)};
}

/* Header lines, separated by a bar: "Host: x|Accept: y". */
static struct head head_of(const char *lines)
{
    struct head head;

    head_init(&head);
    while (*lines != '\0') {
        size_t size = strcspn(lines, "|");
        const char *colon = memchr(lines, ':', size);

        assert_non_null(colon);
        head_add(&head, (struct raw_text){lines, (size_t)(colon - lines)},
                 (struct raw_text){colon + 1, size - (size_t)(colon - lines) - 1});
        lines += size + (lines[size] == '|');
    }
    return head;
}

static int status_of(const char *lines, const char *version)
{
    struct head head = head_of(lines);
    int status = 0;

    return head_refusal(&head, version, 100, &status) == NULL ? 200 : status;
}

static void test_ambiguous_framing_is_refused(void **state)
{
    static const struct {
        const char *lines, *version;
        int status;
    } cases[] = {
        {"Host: x", "HTTP/1.1", 200},
        {"Host: x|Content-Length: 5", "HTTP/1.1", 200},
        {"Host: x|Transfer-Encoding: chunked", "HTTP/1.1", 200},
        {"Host: x|Transfer-Encoding: Chunked", "HTTP/1.1", 200},
        {"", "HTTP/1.0", 200},
        {"", "HTTP/1.1", 400},
        {"Host: x|host: x", "HTTP/1.1", 400},
        {"Host: x|host: x", "HTTP/1.0", 400},
        {"Host: x", "HTTP/1.7", 400},
        {"Host: x|Content-Length: 5|Content-Length: 5", "HTTP/1.1", 400},
        {"Host: x|Content-Length: +5", "HTTP/1.1", 400},
        {"Host: x|Content-Length: 5, 5", "HTTP/1.1", 400},
        {"Host: x|Content-Length:", "HTTP/1.1", 400},
        {"Host: x|Content-Length: 5|Transfer-Encoding: chunked", "HTTP/1.1", 400},
        {"Host: x|Transfer-Encoding: gzip", "HTTP/1.1", 400},
        {"Host: x|Transfer-Encoding: gzip, chunked", "HTTP/1.1", 400},
        {"Host: x|Transfer-Encoding: chunked|Transfer-Encoding: chunked", "HTTP/1.1", 400},
        {"Host: x|Transfer-Encoding: gzip|Transfer-Encoding: chunked", "HTTP/1.1", 400},
        {"Transfer-Encoding: chunked", "HTTP/1.0", 400},
        {"Host: x|Content-Length : 5", "HTTP/1.1", 400},
        {"Host: x|: 5", "HTTP/1.1", 400},
        {"Host: x|X(y: 5", "HTTP/1.1", 400},
        {"Host: x|X-A: a\rb", "HTTP/1.1", 400},
        {"Host: x|X-A: a\nb", "HTTP/1.1", 400},
        {"Host: x|X-A: a\x7f", "HTTP/1.1", 400},
        {"Host: x|X-A: a\tb \xc3\xa9", "HTTP/1.1", 200},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (status_of(cases[i].lines, cases[i].version) != cases[i].status)
            fail_msg("%s %s", cases[i].version, cases[i].lines);
}

static void test_too_many_headers_are_a_431(void **state)
{
    struct head head;
    int status = 0;

    (void)state;
    head_init(&head);
    head_add(&head, raw("Host"), raw("x"));
    for (int i = 1; i < HEAD_MAX_HEADERS; i++)
        head_add(&head, raw("X"), raw("y"));
    assert_null(head_refusal(&head, "HTTP/1.1", HEAD_MAX_BYTES, &status));
    assert_non_null(head_refusal(&head, "HTTP/1.1", HEAD_MAX_BYTES + 1, &status));
    assert_int_equal(status, 431);
    head_add(&head, raw("X"), raw("y"));
    assert_non_null(head_refusal(&head, "HTTP/1.1", 100, &status));
    assert_int_equal(status, 431);
}

static void test_a_length_beyond_all_numbers_stays_great(void **state)
{
    struct head head = head_of("Content-Length: 99999999999999999999999999999");

    (void)state;
    assert_false(head.has_wrong_length);
    assert_true(head.length_bytes > UINT64_MAX / 100);
}

static void test_the_smaller_of_the_callers_deadlines_counts(void **state)
{
    static const struct {
        const char *lines;
        int64_t us;
    } cases[] = {
        {"Host: x", 0},
        {"X-Request-Timeout-Ms: 250", 250000},
        {"X-Envoy-Expected-Rq-Timeout-Ms: 100", 100000},
        {"X-Request-Timeout-Ms: 250|X-Envoy-Expected-Rq-Timeout-Ms: 100", 100000},
        {"X-Request-Timeout-Ms: 50|X-Envoy-Expected-Rq-Timeout-Ms: 100", 50000},
        {"X-Request-Timeout-Ms: soon|X-Envoy-Expected-Rq-Timeout-Ms: 100", 100000},
        {"X-Request-Timeout-Ms: 0", 0},
        {"X-Request-Timeout-Ms: -5", 0},
        {"X-Request-Timeout-Ms: 1.5", 0},
        {"X-Request-Timeout-Ms: 99999999999999999999", INT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct head head = head_of(cases[i].lines);

        assert_true(head_caller_timeout_us(&head) == cases[i].us);
    }
}

static void test_a_request_id_is_taken_only_if_it_is_harmless(void **state)
{
    static const char longest[] =
        "0123456789012345678901234567890123456789012345678901234567890123";

    (void)state;
    assert_true(head_is_request_id(raw("aZ09._-")));
    assert_true(head_is_request_id(raw(longest)));
    assert_false(head_is_request_id(raw("")));
    assert_false(head_is_request_id((struct raw_text){0}));
    assert_false(head_is_request_id(raw("a b")));
    assert_false(head_is_request_id(raw("a\"b")));
    assert_false(head_is_request_id((struct raw_text){longest, 65}));
}

static void test_a_trace_id_is_read_from_a_valid_traceparent(void **state)
{
    static const char *const wrong[] = {
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    };
    char id[33];

    (void)state;
    assert_true(head_trace_id(raw("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), id));
    assert_string_equal(id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_true(
        head_trace_id(raw("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x"), id));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(head_trace_id(raw(wrong[i]), id));
    assert_false(head_trace_id((struct raw_text){0}, id));
}

static void test_json_types_are_known(void **state)
{
    (void)state;
    assert_true(head_is_json(raw("application/json")));
    assert_true(head_is_json(raw("Application/JSON ; charset=utf-8")));
    assert_true(head_is_json(raw("application/merge-patch+json")));
    assert_false(head_is_json((struct raw_text){0}));
    assert_false(head_is_json(raw("")));
    assert_false(head_is_json(raw("text/plain")));
    assert_false(head_is_json(raw("application/jsonp")));
    assert_false(head_is_json(raw("+json")));
}

static void test_the_first_of_repeated_headers_counts(void **state)
{
    struct head head = head_of("Origin:  https://a |origin: https://b|IF-NONE-MATCH: \"a\"");

    (void)state;
    assert_int_equal(head.fields[HEAD_ORIGIN].size_bytes, 9);
    assert_memory_equal(head.fields[HEAD_ORIGIN].data, "https://a", 9);
    assert_int_equal(head.fields[HEAD_IF_NONE_MATCH].size_bytes, 3);
    assert_memory_equal(head.fields[HEAD_IF_NONE_MATCH].data, "\"a\"", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ambiguous_framing_is_refused),
        cmocka_unit_test(test_too_many_headers_are_a_431),
        cmocka_unit_test(test_a_length_beyond_all_numbers_stays_great),
        cmocka_unit_test(test_the_smaller_of_the_callers_deadlines_counts),
        cmocka_unit_test(test_a_request_id_is_taken_only_if_it_is_harmless),
        cmocka_unit_test(test_a_trace_id_is_read_from_a_valid_traceparent),
        cmocka_unit_test(test_json_types_are_known),
        cmocka_unit_test(test_the_first_of_repeated_headers_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

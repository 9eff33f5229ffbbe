#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cmocka_all.h"

/* A log on a pipe, and what was read from it. */
struct fixture {
    int read_fd, write_fd;
    char text[65536];
    size_t size_bytes;
};

static int make_pipe(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    int fds[2];

    if (f == NULL || pipe2(fds, O_CLOEXEC) != 0) {
        free(f);
        return -1;
    }
    f->read_fd = fds[0];
    f->write_fd = fds[1];
    *state = f;
    return 0;
}

static int close_pipe(void **state)
{
    struct fixture *f = *state;

    log_stop();
    (void)close(f->read_fd);
    (void)close(f->write_fd);
    free(f);
    return 0;
}

static void start(struct fixture *f, enum log_level least, enum log_format format)
{
    assert_true(log_start(f->write_fd, least, format));
}

/* What is in the pipe now; never blocks. */
static const char *read_pipe(struct fixture *f)
{
    ssize_t n;

    (void)fcntl(f->read_fd, F_SETFL, O_NONBLOCK);
    f->size_bytes = 0;
    while ((n = read(f->read_fd, f->text + f->size_bytes, sizeof f->text - 1 - f->size_bytes)) > 0)
        f->size_bytes += (size_t)n;
    f->text[f->size_bytes] = '\0';
    return f->text;
}

/* All that was logged, once the writer has ended. */
static const char *logged(struct fixture *f)
{
    log_stop();
    return read_pipe(f);
}

/* Behind {"time":"2026-01-31T12:00:00.123Z" - or the text form's bare time. */
static const char *after_time(struct fixture *f)
{
    const char *text = logged(f);
    size_t skip = text[0] == '{' ? strlen("{\"time\":\"2026-01-31T12:00:00.123Z\"")
                                 : strlen("2026-01-31T12:00:00.123Z");

    assert_true(strlen(text) > skip);
    return text + skip;
}

static void test_a_line_is_one_object_with_time_level_and_event_first(void **state)
{
    struct fixture *f = *state;
    struct log_line l;

    start(f, LOG_INFO, LOG_JSON);
    log_begin(&l, LOG_WARN, "breaker_moved");
    log_str(&l, "dependency", "primary");
    log_str(&l, "nothing", NULL);
    log_int(&l, "failures", -5);
    log_bool(&l, "soft", true);
    log_bool(&l, "hard", false);
    log_ms(&l, "duration_ms", 1234567);
    log_bytes(&l, "cut", "abcdef", 3);
    log_end(&l);
    assert_string_equal(after_time(f),
                        ",\"level\":\"warn\",\"event\":\"breaker_moved\","
                        "\"dependency\":\"primary\",\"failures\":-5,\"soft\":true,"
                        "\"hard\":false,\"duration_ms\":1234.567,\"cut\":\"abc\"}\n");
    assert_memory_equal(f->text, "{\"time\":\"20", 11);
}

static void test_milliseconds_have_three_digits(void **state)
{
    struct fixture *f = *state;
    struct log_line l;

    start(f, LOG_INFO, LOG_JSON);
    log_begin(&l, LOG_INFO, "e");
    log_ms(&l, "a", 0);
    log_ms(&l, "b", 7);
    log_ms(&l, "c", -1500);
    log_ms(&l, "d", INT64_MIN);
    log_end(&l);
    assert_string_equal(after_time(f),
                        ",\"level\":\"info\",\"event\":\"e\",\"a\":0.000,\"b\":0.007,"
                        "\"c\":-1.500,\"d\":-9223372036854775.808}\n");
}

static void test_what_json_cannot_hold_is_escaped_or_replaced(void **state)
{
    struct fixture *f = *state;
    struct log_line l;

    start(f, LOG_INFO, LOG_JSON);
    log_begin(&l, LOG_INFO, "e");
    log_str(&l, "a", "q\"b\\n\n\x1B[31m\x7F");
    log_str(&l, "b", "\xC3\xA9 \xFF \xC3");
    log_bytes(&l, "c", "x\0y", 3);
    log_end(&l);
    assert_string_equal(
        after_time(f),
        ",\"level\":\"info\",\"event\":\"e\",\"a\":\"q\\\"b\\\\n\\u000a\\u001b[31m\\u007f\","
        "\"b\":\"\xC3\xA9 \xEF\xBF\xBD \xEF\xBF\xBD\",\"c\":\"x\\u0000y\"}\n");
}

static void test_a_line_below_the_level_is_not_made(void **state)
{
    struct fixture *f = *state;
    struct log_line l;

    start(f, LOG_WARN, LOG_JSON);
    log_begin(&l, LOG_INFO, "e");
    assert_false(l.is_wanted);
    log_str(&l, "a", "b");
    log_int(&l, "c", 1);
    log_end(&l);
    assert_string_equal(logged(f), "");
}

static void test_a_second_end_writes_nothing(void **state)
{
    struct fixture *f = *state;
    struct log_line l;

    start(f, LOG_INFO, LOG_JSON);
    log_begin(&l, LOG_INFO, "e");
    log_end(&l);
    log_end(&l);
    assert_string_equal(after_time(f), ",\"level\":\"info\",\"event\":\"e\"}\n");
}

static void test_the_text_form_is_for_people(void **state)
{
    struct fixture *f = *state;
    struct log_line l;

    start(f, LOG_INFO, LOG_TEXT);
    log_begin(&l, LOG_INFO, "request");
    log_str(&l, "route", "GET /books/{id}");
    log_str(&l, "served", "live");
    log_int(&l, "status", 200);
    log_str(&l, "empty", "");
    log_str(&l, "odd", "a\"b\n");
    log_end(&l);
    assert_string_equal(after_time(f), " info  request route=\"GET /books/{id}\" served=live "
                                       "status=200 empty=\"\" odd=\"a\\\"b\\u000a\"\n");
}

static void expect_cut(struct fixture *f, const char *text, size_t size_bytes)
{
    static const char end[] = "\xE2\x80\xA6\"}\n";
    struct log_line l;

    start(f, LOG_INFO, LOG_JSON);
    log_begin(&l, LOG_INFO, "e");
    log_bytes(&l, "long", text, size_bytes);
    for (int i = 0; i < 100; i++)
        log_int(&l, "more", i);
    log_end(&l);
    (void)logged(f);
    assert_true(f->size_bytes <= sizeof l.text);
    assert_true(f->size_bytes > sizeof l.text - 16);
    assert_true(utf8_is_valid(f->text, f->size_bytes));
    assert_string_equal(f->text + f->size_bytes - strlen(end), end);
}

static void test_a_line_that_is_too_long_is_cut_and_stays_json(void **state)
{
    struct fixture *f = *state;
    char text[9000];

    memset(text, 'a', sizeof text);
    expect_cut(f, text, sizeof text);
    memset(text, 1, sizeof text);
    expect_cut(f, text, sizeof text);
    memset(text, '"', sizeof text);
    expect_cut(f, text, sizeof text);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "\xE2\x82\xAC"[i % 3];
    expect_cut(f, text, sizeof text);
}

/* Whatever the length before it, a field is there whole or not at all. */
static void test_fields_at_the_end_of_the_room_are_whole_or_missing(void **state)
{
    struct fixture *f = *state;
    char text[4100];

    memset(text, 'a', sizeof text);
    for (size_t size = 3950; size < 4060; size++) {
        struct log_line l;
        const char *end;

        start(f, LOG_INFO, LOG_JSON);
        log_begin(&l, LOG_INFO, "e");
        log_bytes(&l, "a", text, size);
        log_int(&l, "b", 123456);
        log_str(&l, "c", "xy");
        log_end(&l);
        (void)logged(f);
        assert_true(f->size_bytes <= sizeof l.text);
        end = strchr(f->text + 100, '"');
        assert_non_null(end);
        assert_true(strcmp(end, "\"}\n") == 0 || strcmp(end, "\",\"b\":123456}\n") == 0 ||
                    strcmp(end, "\",\"c\":\"xy\"}\n") == 0 ||
                    strcmp(end, "\",\"c\":\"\xE2\x80\xA6\"}\n") == 0 ||
                    strcmp(end, "\",\"b\":123456,\"c\":\"xy\"}\n") == 0 ||
                    strcmp(end, "\",\"b\":123456,\"c\":\"\xE2\x80\xA6\"}\n") == 0 ||
                    strcmp(end, "\",\"b\":123456,\"c\":\"x\xE2\x80\xA6\"}\n") == 0);
    }
}

static void test_lines_are_written_directly_after_the_stop(void **state)
{
    struct fixture *f = *state;
    struct log_line l;

    start(f, LOG_INFO, LOG_JSON);
    log_stop();
    log_stop(); /* a second one does nothing */
    log_begin(&l, LOG_ERROR, "late");
    log_end(&l);
    assert_non_null(strstr(read_pipe(f), "\"event\":\"late\"}\n"));
}

static void test_there_is_one_log_and_it_can_start_again(void **state)
{
    struct fixture *f = *state;
    struct log_line l;

    start(f, LOG_INFO, LOG_JSON);
    assert_false(log_start(f->write_fd, LOG_INFO, LOG_JSON));
    log_stop();
    start(f, LOG_INFO, LOG_JSON);
    log_begin(&l, LOG_INFO, "again");
    log_end(&l);
    assert_non_null(strstr(logged(f), "again"));
}

static void push_lines(uint64_t count, int64_t pusher)
{
    for (uint64_t i = 0; i < count; i++) {
        struct log_line l;

        log_begin(&l, LOG_INFO, "e");
        log_int(&l, "pusher", pusher);
        log_int(&l, "number", (int64_t)i);
        log_end(&l);
    }
}

/* Nobody reads: the pipe takes 64 KiB, the ring 1 MiB, and the rest is dropped. */
static void test_a_full_pipe_stops_no_caller_and_the_stop_ends(void **state)
{
    enum { LINE_COUNT = 30000 };
    struct fixture *f = *state;
    uint64_t dropped_before = log_dropped_count(), written = 0;
    int64_t began_us;

    start(f, LOG_INFO, LOG_JSON);
    push_lines(LINE_COUNT, 0);
    assert_true(log_dropped_count() > dropped_before);

    began_us = clock_now().us;
    log_stop();
    assert_true(clock_now().us - began_us < 3000000);

    (void)read_pipe(f);
    for (size_t i = 0; i < f->size_bytes; i++)
        written += f->text[i] == '\n';
    assert_true(written > 0);
    /* The fixture's text is a byte shorter than the pipe: one line may be cut there. */
    assert_in_range(written + log_dropped_count() - dropped_before, LINE_COUNT - 1, LINE_COUNT);
}

static void test_a_reader_that_went_away_ends_nothing(void **state)
{
    struct fixture *f = *state;
    uint64_t dropped_before = log_dropped_count();

    (void)close(f->read_fd);
    f->read_fd = -1;
    start(f, LOG_INFO, LOG_JSON);
    push_lines(10, 0);
    log_stop();
    assert_int_equal(log_dropped_count() - dropped_before, 10);
}

enum { PUSHER_COUNT = 4, LINES_EACH = 8000 };

static void *pusher_main(void *ctx)
{
    push_lines(LINES_EACH, *(const int *)ctx);
    return NULL;
}

/* One line as push_lines() makes it: whole, and later than the last one of its pusher. */
static void check_line(const char *line, int64_t last[PUSHER_COUNT])
{
    const char *fields = strstr(line, ",\"pusher\":");
    char *end;
    long pusher, number;

    assert_memory_equal(line, "{\"time\":\"", 9);
    assert_non_null(fields);
    pusher = strtol(fields + strlen(",\"pusher\":"), &end, 10);
    assert_in_range(pusher, 0, PUSHER_COUNT - 1);
    assert_memory_equal(end, ",\"number\":", 10);
    number = strtol(end + 10, &end, 10);
    assert_string_equal(end, "}\n");
    assert_true(number > last[pusher]);
    last[pusher] = number;
}

struct reader {
    FILE *from;
    uint64_t line_count;
    int64_t last[PUSHER_COUNT];
};

static void *reader_main(void *ctx)
{
    struct reader *r = ctx;
    char line[4097];

    for (int i = 0; i < PUSHER_COUNT; i++)
        r->last[i] = -1;
    while (fgets(line, sizeof line, r->from) != NULL) {
        check_line(line, r->last);
        r->line_count++;
    }
    return NULL;
}

/* More than the ring holds, so it goes round several times. */
static void test_lines_of_many_threads_are_whole_in_order_and_all_accounted_for(void **state)
{
    struct fixture *f = *state;
    struct reader r = {.from = fdopen(f->read_fd, "r")};
    uint64_t dropped_before = log_dropped_count();
    pthread_t reader, pushers[PUSHER_COUNT];
    int names[PUSHER_COUNT];

    assert_non_null(r.from);
    start(f, LOG_INFO, LOG_JSON);
    assert_int_equal(pthread_create(&reader, NULL, reader_main, &r), 0);
    for (int i = 0; i < PUSHER_COUNT; i++) {
        names[i] = i;
        assert_int_equal(pthread_create(&pushers[i], NULL, pusher_main, &names[i]), 0);
    }
    for (int i = 0; i < PUSHER_COUNT; i++)
        assert_int_equal(pthread_join(pushers[i], NULL), 0);
    log_stop();
    (void)close(f->write_fd);
    assert_int_equal(pthread_join(reader, NULL), 0);
    (void)fclose(r.from);
    f->read_fd = f->write_fd = -1;

    assert_true(r.line_count > 0);
    assert_int_equal(r.line_count + log_dropped_count() - dropped_before,
                     PUSHER_COUNT * LINES_EACH);
}

static void test_levels_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < LOG_LEVEL_COUNT; i++) {
        enum log_level level = LOG_LEVEL_COUNT;

        assert_true(log_level_parse(log_level_name((enum log_level)i), &level));
        assert_int_equal(level, i);
    }
}

static void test_other_words_are_no_levels(void **state)
{
    enum log_level level = LOG_ERROR;

    (void)state;
    assert_false(log_level_parse("", &level));
    assert_false(log_level_parse("INFO", &level));
    assert_false(log_level_parse("fatal", &level));
    assert_int_equal(level, LOG_ERROR);
}

static void test_a_limit_passes_one_line_a_second_and_counts_the_others(void **state)
{
    struct log_limit limit = {0};

    (void)state;
    assert_true(log_limit_pass(&limit, 5000000));
    assert_false(log_limit_pass(&limit, 5000001));
    assert_false(log_limit_pass(&limit, 5999999));
    assert_int_equal(limit.left_out_count, 2);
    assert_true(log_limit_pass(&limit, 6000000));
    assert_int_equal(limit.left_out_count, 2);
}

#define WITH_PIPE(test) cmocka_unit_test_setup_teardown(test, make_pipe, close_pipe)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PIPE(test_a_line_is_one_object_with_time_level_and_event_first),
        WITH_PIPE(test_milliseconds_have_three_digits),
        WITH_PIPE(test_what_json_cannot_hold_is_escaped_or_replaced),
        WITH_PIPE(test_a_line_below_the_level_is_not_made),
        WITH_PIPE(test_a_second_end_writes_nothing),
        WITH_PIPE(test_the_text_form_is_for_people),
        WITH_PIPE(test_a_line_that_is_too_long_is_cut_and_stays_json),
        WITH_PIPE(test_fields_at_the_end_of_the_room_are_whole_or_missing),
        WITH_PIPE(test_lines_are_written_directly_after_the_stop),
        WITH_PIPE(test_there_is_one_log_and_it_can_start_again),
        WITH_PIPE(test_a_full_pipe_stops_no_caller_and_the_stop_ends),
        WITH_PIPE(test_a_reader_that_went_away_ends_nothing),
        WITH_PIPE(test_lines_of_many_threads_are_whole_in_order_and_all_accounted_for),
        cmocka_unit_test(test_levels_have_names),
        cmocka_unit_test(test_other_words_are_no_levels),
        cmocka_unit_test(test_a_limit_passes_one_line_a_second_and_counts_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What may block for ever around a dependency: a resolver that never answers, a log that nobody
 * reads, a secret file that is a pipe, a peer that swallows packets, a caller that does not read.
 * None of it may be felt elsewhere. SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "child.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "fault_proxy.h"
#include "figure.h"
#include "http_client.h"
#include "lane.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    LANES = 3,
    OTHERS = 2,
    CALLERS = 4,
    CONNECT_MS = 500,
    LATE_MS = 50,
    SLICES = 10,
    SLICE_MS = 400,
    HEAL_MS = 15000,
    FILL_MS = 60000,
    PAUSE_US = 2000,
};

struct fixture {
    struct private_postgres *pg;
    struct fault_proxy *proxy;   /* in front of a */
    struct weir_process *weir;   /* NULL between two tests */
    struct lane *lanes[LANES];   /* who must not notice */
    struct lane *others[OTHERS]; /* who makes the load; may be NULL */
};

static const struct weir_file files[] = {
    {"a_one.sql", "-- GET /a/one\n-- @from a\n-- @result value\nSELECT 1"},
    {"a_rows.sql", "-- GET /a/rows\n-- @from a\n"
                   "SELECT g AS id, repeat('x', 500) AS text FROM generate_series(1, 9000) g"},
    {"b_one.sql", "-- GET /b/one\n-- @from b\n-- @result value\nSELECT 1"},
    {NULL, NULL},
};

/* `a_more`: members of dependency a, each with a comma in front. */
static void make_weir(struct fixture *f, const char *a_conninfo, const char *a_more)
{
    char *b_conninfo = private_postgres_conninfo(f->pg, 0);
    char *dependencies = scratch_format(
        "{\"a\": {\"kind\": \"postgres\", \"conninfo\": \"%s\", \"connect_timeout\": \"%dms\","
        " \"query_timeout\": \"2950ms\", \"breaker\": {\"reset_timeout\": \"500ms\"}%s},"
        " \"b\": {\"kind\": \"postgres\", \"conninfo\": \"%s\", \"connect_timeout\": \"500ms\","
        " \"query_timeout\": \"2950ms\"}}",
        a_conninfo, CONNECT_MS, a_more, b_conninfo);

    f->weir = weir_create(
        &(struct weir_setup){.dependencies = dependencies,
                             .server = "\"request_timeout\": \"3s\", \"drain_timeout\": \"2s\"",
                             .files = files});
    free(dependencies);
    free(b_conninfo);
}

static void make_weir_behind_proxy(struct fixture *f, const char *a_more)
{
    char *conninfo = private_postgres_conninfo(f->pg, fault_proxy_port(f->proxy));

    make_weir(f, conninfo, a_more);
    free(conninfo);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (f == NULL)
        return -1;
    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    f->proxy = fault_proxy_create(private_postgres_port(f->pg));
    *state = f;
    return 0;
}

static int clean_up(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < LANES; i++)
        lane_fini(f->lanes[i]);
    for (size_t i = 0; i < OTHERS; i++)
        lane_fini(f->others[i]);
    memset(f->lanes, 0, sizeof f->lanes);
    memset(f->others, 0, sizeof f->others);
    weir_destroy(f->weir);
    f->weir = NULL;
    fault_proxy_set_mode(f->proxy, FAULT_PASS);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    fault_proxy_destroy(f->proxy);
    private_postgres_destroy(f->pg);
    free(f);
    return 0;
}

static int64_t us_of_ms(int64_t ms)
{
    return ms * 1000;
}

/* --- asking --- */

static int status_of(const struct fixture *f, const char *path)
{
    char *url = weir_url(f->weir, path);
    struct http_answer answer = http_get(url);
    int status = answer.status;

    http_answer_fini(&answer);
    free(url);
    return status;
}

static bool a_answers(void *context)
{
    return status_of(context, "/a/one") == 200;
}

static bool b_answers(void *context)
{
    return status_of(context, "/b/one") == 200;
}

static void set_breaker_mode(const struct fixture *f, const char *body)
{
    char *url = weir_admin_url(f->weir, "/breakers/a");
    const char *const headers[] = {"Content-Type: application/json", NULL};
    struct http_answer answer =
        http_ask(&(struct http_request){.url = url, .body = body, .headers = headers});

    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    free(url);
}

static struct lane *lane_to(const char *what, char *url, int64_t pause_us)
{
    struct lane *lane = lane_start(what, url, pause_us);

    free(url);
    return lane;
}

static void start_lanes(struct fixture *f)
{
    f->lanes[0] = lane_to("b", weir_url(f->weir, "/b/one"), PAUSE_US);
    f->lanes[1] = lane_to("liveness, main port", weir_url(f->weir, "/health/live"), PAUSE_US);
    f->lanes[2] =
        lane_to("liveness, admin port", weir_admin_url(f->weir, "/health/live"), PAUSE_US);
}

static void expect_unchanged(struct fixture *f, const struct lane_slice *with,
                             const struct lane_slice *without)
{
    char what[96];

    for (size_t i = 0; i < LANES; i++)
        lane_stop(f->lanes[i]);
    for (size_t i = 0; i < LANES; i++) {
        const struct lane *lane = f->lanes[i];

        (void)snprintf(what, sizeof what, "%s: p50 beside the fault / without", lane_what(lane));
        figure_ratio_at_most(what, lane_ratio(lane, with, without, SLICES, 50), 1.2);
        (void)snprintf(what, sizeof what, "%s: p99 beside the fault / without", lane_what(lane));
        figure_ratio_at_most(what, lane_ratio(lane, with, without, SLICES, 99), 2);
        (void)snprintf(what, sizeof what, "%s: answers other than 200", lane_what(lane));
        figure_count_is(what, (int64_t)lane_bad_count(lane), 0);
    }
}

static void let_slice_pass(struct lane_slice *slice)
{
    slice->from_us = clock_now().us;
    pass_ms(SLICE_MS);
    slice->to_us = clock_now().us;
}

/* --- a resolver that never answers --- */

static const char name_server[] = "127.0.0.77";

struct dns {
    int fd;
    pthread_t thread;
    _Atomic bool is_over, answers;
    _Atomic uint64_t swallowed_count, answered_count;
};

/* Answers the one question: an address of type A is 127.0.0.1, of others there is none. */
static void answer_question(struct dns *dns, unsigned char *m, size_t size,
                            const struct sockaddr_in *to)
{
    static const unsigned char address[] = {0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1};
    size_t end = 12;
    bool is_a;

    while (end < size && m[end] != 0)
        end += m[end] + 1U;
    end += 5; /* the root, type, class */
    if (end > size)
        return;
    is_a = m[end - 4] == 0 && m[end - 3] == 1;
    m[2] = 0x85;
    m[3] = 0x80;
    m[6] = 0;
    m[7] = is_a ? 1 : 0;
    memset(m + 8, 0, 4);
    if (is_a) {
        memcpy(m + end, address, sizeof address);
        end += sizeof address;
    }
    (void)sendto(dns->fd, m, end, 0, (const struct sockaddr *)to, sizeof *to);
    atomic_fetch_add(&dns->answered_count, 1);
}

static void *serve_names(void *arg)
{
    struct dns *dns = arg;
    unsigned char message[1024];

    while (!atomic_load(&dns->is_over)) {
        struct sockaddr_in from;
        socklen_t from_size = sizeof from;
        ssize_t size =
            recvfrom(dns->fd, message, sizeof message / 2, 0, (struct sockaddr *)&from, &from_size);

        if (size < 17)
            continue; /* nothing came for a while */
        if (atomic_load(&dns->answers))
            answer_question(dns, message, (size_t)size, &from);
        else
            atomic_fetch_add(&dns->swallowed_count, 1);
    }
    return NULL;
}

static void dns_start(struct dns *dns)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct timeval patience = {.tv_usec = 50000};

    *dns = (struct dns){.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    (void)inet_pton(AF_INET, name_server, &address.sin_addr);
    (void)setsockopt(dns->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (bind(dns->fd, (const struct sockaddr *)&address, sizeof address) != 0)
        scratch_give_up("cannot listen on port 53 of %s; run as root", name_server);
    if (pthread_create(&dns->thread, NULL, serve_names, dns) != 0)
        scratch_give_up("no thread for names");
}

static void dns_stop(struct dns *dns)
{
    atomic_store(&dns->is_over, true);
    (void)pthread_join(dns->thread, NULL);
    (void)close(dns->fd);
}

/* A script that starts weir where only our name server is known. The caller's folder. */
static char *make_namespace(const char *binary)
{
    char *folder = scratch_folder("names"), *script, *path;

    script = scratch_format("#!/bin/sh\n"
                            "exec unshare --mount /bin/sh -c '"
                            "mount --bind %s/resolv.conf /etc/resolv.conf && "
                            "mount --bind %s/nsswitch.conf /etc/nsswitch.conf && "
                            "exec \"$0\" \"$@\"' '%s' \"$@\"\n",
                            folder, folder, binary);
    path = scratch_format("%s/weir", folder);
    scratch_write(folder, "weir", script);
    scratch_write(folder, "resolv.conf",
                  "nameserver 127.0.0.77\nsearch .\noptions timeout:1 attempts:2\n");
    scratch_write(folder, "nsswitch.conf", "hosts: dns\npasswd: files\n");
    if (chmod(path, 0755) != 0)
        scratch_give_up("cannot make %s executable", path);
    child_run(&(struct child_setup){.argv = (char *[]){path, "--version", NULL},
                                    .out_fd = -1,
                                    .err_fd = STDERR_FILENO,
                                    .death_signal = SIGKILL});
    free(script);
    free(path);
    return folder;
}

static void make_weir_with_names(struct fixture *f)
{
    const char *was = getenv("WEIR_BIN"); /* NOLINT(concurrency-mt-unsafe): only main does */
    char *binary = scratch_format("%s", was != NULL ? was : "");
    char *folder = make_namespace(binary);
    char *wrapped = scratch_format("%s/weir", folder);
    char *conninfo = scratch_format("host=db.blackhole.test port=%u dbname=app user=app",
                                    private_postgres_port(f->pg));

    (void)setenv("WEIR_BIN", wrapped, 1); /* NOLINT(concurrency-mt-unsafe) */
    make_weir(f, conninfo, "");
    (void)setenv("WEIR_BIN", binary, 1); /* NOLINT(concurrency-mt-unsafe) */
    weir_start(f->weir);
    scratch_remove(folder); /* mounted, it stays there for the one who needs it */
    free(wrapped);
    free(binary);
    free(conninfo);
}

struct crowd_answers {
    char *url;
    char *reasons[CALLERS];
    int64_t elapsed_us[CALLERS];
};

static void ask_once(unsigned index, void *context)
{
    struct crowd_answers *answers = context;
    struct http_answer answer = http_get(answers->url);

    answers->reasons[index] = http_answer_reason(&answer);
    answers->elapsed_us[index] = answer.elapsed_us;
    http_answer_fini(&answer);
}

static void expect_unresolved_in_time(struct fixture *f)
{
    struct noise_meter *noise = noise_meter_start();
    struct crowd_answers answers = {.url = weir_url(f->weir, "/a/one")};

    crowd_run(CALLERS, ask_once, &answers);
    for (unsigned i = 0; i < CALLERS; i++) {
        assert_string_equal(answers.reasons[i], "unresolved");
        free(answers.reasons[i]);
    }
    free(answers.url);
    figure_at_most_us("callers of the dependency without a name, slowest answer",
                      crowd_percentile_us(answers.elapsed_us, CALLERS, 100),
                      us_of_ms(CONNECT_MS + LATE_MS * FIGURE_SLOWDOWN), noise_meter_stop_us(noise));
}

static void ask_for_the_name_in_turns(struct fixture *f)
{
    struct lane_slice with[SLICES], without[SLICES];

    set_breaker_mode(f, "{\"mode\":\"disabled\"}"); /* so that every call waits for the name */
    start_lanes(f);
    for (size_t i = 0; i < SLICES; i++) {
        let_slice_pass(&without[i]);
        f->others[0] = lane_to("a", weir_url(f->weir, "/a/one"), PAUSE_US);
        let_slice_pass(&with[i]);
        lane_fini(f->others[0]);
        f->others[0] = NULL;
    }
    expect_unchanged(f, with, without);
    set_breaker_mode(f, "{\"mode\":\"auto\"}");
}

static void test_names_without_an_answer_stay_in_their_compartment(void **state)
{
    struct fixture *f = *state;
    struct dns dns;
    struct instant from;

    dns_start(&dns);
    make_weir_with_names(f);
    assert_true(poll_until(b_answers, f, HEAL_MS));
    expect_unresolved_in_time(f);
    assert_true(atomic_load(&dns.swallowed_count) > 0); /* the hole bit */
    ask_for_the_name_in_turns(f);

    atomic_store(&dns.answers, true);
    from = clock_now();
    assert_true(poll_until(a_answers, f, HEAL_MS));
    figure_at_most_us("names answer again: first live answer after",
                      instant_span_us(from, clock_now()), us_of_ms(HEAL_MS), 0);
    assert_true(atomic_load(&dns.answered_count) > 0);
    assert_true(weir_metric_reaches(f->weir, "weir_bulkhead_in_use", "dependency=\"a\"", 0, 5000));
    assert_int_equal(weir_stop(f->weir, 5000), 0);
    dns_stop(&dns);
}

static void test_a_lookup_that_hangs_does_not_hold_up_the_end(void **state)
{
    struct fixture *f = *state;
    struct dns dns;
    struct instant from;

    dns_start(&dns);
    make_weir_with_names(f);
    expect_unresolved_in_time(f);
    from = clock_now();
    assert_int_equal(weir_stop(f->weir, 5000), 0);
    figure_at_most_us("SIGTERM to exit 0 beside a lookup that hangs",
                      instant_span_us(from, clock_now()), 3000000, 0);
    assert_true(atomic_load(&dns.swallowed_count) > 0);
    dns_stop(&dns);
}

/* --- a log that nobody reads --- */

struct dropped_before {
    struct fixture *f;
    double count;
};

static double dropped_count(const struct fixture *f)
{
    return weir_metric(f->weir, "weir_log_dropped_total", "");
}

static bool more_is_dropped(void *context)
{
    const struct dropped_before *before = context;

    return dropped_count(before->f) > before->count;
}

/* Nobody reads, until pipe and ring are full and lines are lost. */
static void fill_log(struct fixture *f)
{
    struct dropped_before before = {f, dropped_count(f)};

    weir_pause_log(f->weir, true);
    for (size_t i = 0; i < OTHERS; i++)
        f->others[i] = lane_to("load", weir_url(f->weir, "/health/ready"), 0);
    assert_true(poll_until(more_is_dropped, &before, FILL_MS));
    for (size_t i = 0; i < OTHERS; i++) {
        lane_fini(f->others[i]);
        f->others[i] = NULL;
    }
}

struct lines_before {
    struct fixture *f;
    size_t count;
};

static bool ring_was_read(void *context)
{
    const struct lines_before *before = context;

    return weir_log_count(before->f->weir, "\n") > before->count + 1000;
}

/* All but the last, which may still be on its way. */
static void expect_whole_lines(struct fixture *f)
{
    char *text = weir_log(f->weir);
    size_t count = 0;

    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *object;

        *end = 0;
        object = json_loads(line, 0, NULL);
        assert_true(json_is_object(object));
        json_decref(object);
        count++;
    }
    free(text);
    (void)printf("%zu log lines, all JSON\n", count);
    assert_true(count > 1000);
}

static void test_a_full_log_pipe_is_not_felt(void **state)
{
    struct fixture *f = *state;
    struct lane_slice with[SLICES], without[SLICES];

    make_weir_behind_proxy(f, "");
    weir_start(f->weir);
    assert_true(poll_until(b_answers, f, HEAL_MS));
    start_lanes(f);
    for (size_t i = 0; i < SLICES; i++) {
        struct lines_before before = {f, weir_log_count(f->weir, "\n")};

        let_slice_pass(&without[i]);
        fill_log(f);
        let_slice_pass(&with[i]);
        weir_pause_log(f->weir, false);
        assert_true(poll_until(ring_was_read, &before, HEAL_MS)); /* it goes on */
    }
    (void)printf("figure: lines dropped while nobody read: %.0f (at least 1 a turn)\n",
                 dropped_count(f));
    expect_unchanged(f, with, without);
    assert_int_equal(weir_stop(f->weir, 5000), 0);
    expect_whole_lines(f);
}

static void test_a_log_that_nobody_reads_does_not_hold_up_the_end(void **state)
{
    struct fixture *f = *state;
    struct instant from;

    make_weir_behind_proxy(f, "");
    weir_start(f->weir);
    fill_log(f);
    from = clock_now();
    weir_signal(f->weir, SIGTERM);
    assert_int_equal(child_wait(weir_pid(f->weir), 7000), 0);
    figure_at_most_us("SIGTERM to exit 0 beside a log that nobody reads",
                      instant_span_us(from, clock_now()), 5000000, 0);
}

/* --- a secret file that is a pipe --- */

static void test_a_secret_file_that_is_a_pipe_blocks_nobody(void **state)
{
    static const char *const arguments[] = {"check", "--connect", NULL};
    struct fixture *f = *state;
    char *folder = scratch_folder("secret");
    char *path = scratch_format("%s/pipe", folder);
    char *member = scratch_format(", \"password_file\": \"%s\"", path);
    struct weir_output output;
    struct instant from;

    assert_int_equal(mkfifo(path, 0600), 0);
    make_weir_behind_proxy(f, member);
    weir_start(f->weir);
    assert_true(poll_until(a_answers, f, HEAL_MS)); /* this user needs no password */
    assert_true(poll_until(b_answers, f, HEAL_MS));
    assert_int_equal(weir_stop(f->weir, 5000), 0);

    from = clock_now();
    output = weir_run(f->weir, arguments);
    figure_at_most_us("check --connect with a pipe as a secret file",
                      instant_span_us(from, clock_now()), 5000000, 0);
    assert_int_equal(output.exit_code, 0);
    weir_output_fini(&output);
    free(member);
    free(path);
    scratch_remove(folder);
}

/* --- a peer that swallows packets --- */

static void test_a_black_holed_peer_does_not_hold_up_the_end(void **state)
{
    struct fixture *f = *state;
    struct instant from;

    make_weir_behind_proxy(f, "");
    weir_start(f->weir);
    assert_true(poll_until(a_answers, f, HEAL_MS));
    fault_proxy_set_mode(f->proxy, FAULT_BLACK_HOLE);
    assert_true(status_of(f, "/a/one") >= 503); /* its session is told to stop, in vain */
    assert_true(fault_proxy_counters(f->proxy).swallowed_bytes > 0);
    from = clock_now();
    assert_int_equal(weir_stop(f->weir, 7000), 0);
    figure_at_most_us("SIGTERM to exit 0 beside a peer that swallows packets",
                      instant_span_us(from, clock_now()), 3000000, 0);
}

/* --- a caller that does not read --- */

static void test_a_caller_that_does_not_read_holds_no_permit(void **state)
{
    struct fixture *f = *state;
    struct instant from;
    char *request;
    int fd;

    make_weir_behind_proxy(f, ", \"bulkhead\": {\"max_concurrent\": 1}");
    weir_start(f->weir);
    assert_true(poll_until(a_answers, f, HEAL_MS));
    request =
        scratch_format("GET /a/rows HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", weir_port(f->weir));
    fd = raw_connect(weir_port(f->weir));
    from = clock_now();
    assert_true(raw_send(fd, request));
    assert_true(weir_metric_reaches(f->weir, "weir_dependency_calls_total",
                                    "dependency=\"a\",outcome=\"ok\"", 2, 5000));
    assert_true(weir_metric_reaches(f->weir, "weir_bulkhead_in_use", "dependency=\"a\"", 0, 5000));
    figure_at_most_us("a caller that does not read: the permit is free again after",
                      instant_span_us(from, clock_now()), 1000000, 0);
    for (int i = 0; i < 50; i++) /* with its only permit */
        assert_int_equal(status_of(f, "/a/one"), 200);
    raw_close(fd);
    free(request);
    assert_int_equal(weir_stop(f->weir, 5000), 0);
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_teardown(test, clean_up)
    const struct CMUnitTest tests[] = {
        IN_PLACE(test_names_without_an_answer_stay_in_their_compartment),
        IN_PLACE(test_a_lookup_that_hangs_does_not_hold_up_the_end),
        IN_PLACE(test_a_full_log_pipe_is_not_felt),
        IN_PLACE(test_a_log_that_nobody_reads_does_not_hold_up_the_end),
        IN_PLACE(test_a_secret_file_that_is_a_pipe_blocks_nobody),
        IN_PLACE(test_a_black_holed_peer_does_not_hold_up_the_end),
        IN_PLACE(test_a_caller_that_does_not_read_holds_no_permit),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

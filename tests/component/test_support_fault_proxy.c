/* The fault proxy does what it says, and counts it. The server behind it sends back what it gets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmocka_all.h"
#include "fault_proxy.h"
#include "http_client.h"
#include "patience.h"
#include "scratch.h"

struct echo {
    pthread_t thread;
    int listener;
    uint16_t port;
    atomic_bool is_over;
    atomic_ulong cancel_count; /* first bytes that look like a cancel request */
};

struct fixture {
    struct echo echo;
    struct fault_proxy *proxy;
};

static const char cancel[16] = {0, 0, 0, 16, 4, (char)0xd2, 0x16, 0x2e, 0, 0, 0, 1, 0, 0, 0, 2};

static void echo_once(struct echo *echo, int fd)
{
    char bytes[1024];
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);

    if (got == sizeof cancel && memcmp(bytes, cancel, sizeof cancel) == 0)
        atomic_fetch_add(&echo->cancel_count, 1);
    if (got <= 0 || send(fd, bytes, (size_t)got, MSG_NOSIGNAL) < 0)
        (void)close(fd);
}

static void *echo_run(void *context)
{
    enum { LIMIT = 64 };
    struct echo *echo = context;
    struct pollfd slots[LIMIT] = {{.fd = echo->listener, .events = POLLIN}};
    nfds_t count = 1;

    while (!atomic_load(&echo->is_over)) {
        if (poll(slots, count, 20) <= 0)
            continue;
        for (nfds_t i = 1; i < count; i++) {
            if (slots[i].revents != 0)
                echo_once(echo, slots[i].fd);
            if (fcntl(slots[i].fd, F_GETFD) < 0)
                slots[i--] = slots[--count];
        }
        if (slots[0].revents != 0 && count < LIMIT)
            slots[count++] = (struct pollfd){
                .fd = accept4(echo->listener, NULL, NULL, SOCK_CLOEXEC), .events = POLLIN};
    }
    while (count > 0)
        (void)close(slots[--count].fd);
    return NULL;
}

static void echo_start(struct echo *echo)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    echo->port = scratch_port();
    address.sin_port = htons(echo->port);
    echo->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(echo->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    assert_int_equal(bind(echo->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(echo->listener, 64), 0);
    assert_int_equal(pthread_create(&echo->thread, NULL, echo_run, echo), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    echo_start(&f->echo);
    f->proxy = fault_proxy_create(f->echo.port);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    fault_proxy_destroy(f->proxy);
    atomic_store(&f->echo.is_over, true);
    (void)pthread_join(f->echo.thread, NULL);
    free(f);
    return 0;
}

static int call(struct fixture *f)
{
    return raw_connect(fault_proxy_port(f->proxy));
}

/* The text comes back within the time. */
static bool echoes_within(int fd, const char *text, int64_t limit_ms)
{
    char bytes[256];
    size_t size = strlen(text), have = 0;
    struct instant deadline = instant_after(clock_now(), limit_ms * 1000);

    if (!raw_send(fd, text))
        return false;
    while (have < size && !instant_reached(clock_now(), deadline)) {
        struct pollfd slot = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&slot, 1, 20) > 0 ? recv(fd, bytes + have, size - have, 0) : 0;

        if (got < 0 || (got == 0 && slot.revents != 0))
            return false;
        have += (size_t)got;
    }
    return have == size && memcmp(bytes, text, size) == 0;
}

static struct fault_counters counters(struct fixture *f)
{
    return fault_proxy_counters(f->proxy);
}

static bool all_closed(void *context)
{
    return counters(context).open_count == 0;
}

static void test_passing_forwards_both_ways_and_counts_bytes(void **state)
{
    struct fixture *f = *state;
    int fd = call(f);

    assert_true(echoes_within(fd, "hello", 2000));
    assert_int_equal(counters(f).accepted_count, 1);
    assert_int_equal(counters(f).up_bytes, 5);
    assert_int_equal(counters(f).down_bytes, 5);
    raw_close(fd);
    assert_true(poll_until(all_closed, f, 2000));
}

static void test_refusing_resets_what_is_open_and_comes_back(void **state)
{
    struct fixture *f = *state;
    int fd = call(f);

    assert_true(echoes_within(fd, "hello", 2000));
    fault_proxy_set_mode(f->proxy, FAULT_REFUSE);
    assert_true(raw_is_closed_within(fd, 2000));
    raw_close(fd);
    assert_int_equal(call(f), -1);
    assert_int_equal(counters(f).reset_count, 1);
    fault_proxy_set_mode(f->proxy, FAULT_PASS);
    fd = call(f);
    assert_true(echoes_within(fd, "again", 2000));
    raw_close(fd);
}

static void test_resetting_accepts_and_resets(void **state)
{
    struct fixture *f = *state;
    int fd;

    fault_proxy_set_mode(f->proxy, FAULT_RESET);
    fd = call(f);
    assert_true(fd >= 0);
    assert_true(raw_is_closed_within(fd, 2000));
    assert_int_equal(counters(f).reset_count, 1);
    raw_close(fd);
}

static void test_a_stall_loses_nothing(void **state)
{
    struct fixture *f = *state;
    int fd = call(f);

    assert_true(echoes_within(fd, "before", 2000));
    fault_proxy_set_mode(f->proxy, FAULT_STALL);
    assert_false(echoes_within(fd, "during", 150));
    assert_int_equal(counters(f).stalled_count, 1);
    fault_proxy_set_mode(f->proxy, FAULT_PASS);
    assert_false(raw_is_closed_within(fd, 100)); /* "during" came and was thrown away */
    assert_int_equal(counters(f).down_bytes, strlen("before") + strlen("during"));
    raw_close(fd);
}

static void test_unanswered_lets_connects_hang_until_it_passes(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(fault_proxy_port(f->proxy)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pollfd slot = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                          .events = POLLOUT};

    fault_proxy_set_mode(f->proxy, FAULT_UNANSWERED);
    assert_int_equal(connect(slot.fd, (struct sockaddr *)&address, sizeof address), -1);
    assert_int_equal(errno, EINPROGRESS);
    assert_int_equal(poll(&slot, 1, 200), 0);
    fault_proxy_set_mode(f->proxy, FAULT_PASS);
    assert_int_equal(poll(&slot, 1, 8000), 1); /* the kernel repeats its SYN after 1 s, 3 s */
    assert_true(echoes_within(slot.fd, "hello", 2000));
    assert_int_equal(counters(f).accepted_count, 1);
    raw_close(slot.fd);
}

static void test_what_a_black_hole_swallowed_never_comes_back(void **state)
{
    struct fixture *f = *state;
    int old = call(f), fresh;

    assert_true(echoes_within(old, "before", 2000));
    fault_proxy_set_mode(f->proxy, FAULT_BLACK_HOLE);
    assert_false(echoes_within(old, "lost", 100));
    fresh = call(f);
    assert_false(echoes_within(fresh, "lost", 100));
    assert_int_equal(counters(f).swallowed_bytes, 8);
    fault_proxy_set_mode(f->proxy, FAULT_PASS);
    assert_false(echoes_within(old, "lost", 100));
    raw_close(old);
    raw_close(fresh);
    assert_true(poll_until(all_closed, f, 2000));
}

static void test_latency_delays_each_way(void **state)
{
    struct fixture *f = *state;
    int fd = call(f);
    struct instant start = clock_now();

    fault_proxy_set_latency(f->proxy, 60);
    assert_true(echoes_within(fd, "slow", 3000));
    assert_true(instant_span_us(start, clock_now()) >= 120000);
    assert_int_equal(counters(f).delayed_count, 2);
    raw_close(fd);
}

static void test_a_cut_comes_after_the_bytes_it_was_told(void **state)
{
    struct fixture *f = *state;
    char bytes[16];
    int fd = call(f);

    fault_proxy_cut_after(f->proxy, FAULT_DOWN, 3, 1);
    assert_true(raw_send(fd, "hello"));
    assert_int_equal(recv(fd, bytes, 3, MSG_WAITALL), 3);
    assert_true(raw_is_closed_within(fd, 2000));
    assert_int_equal(counters(f).cut_count, 1);
    assert_int_equal(counters(f).down_bytes, 3);
    raw_close(fd);
    fd = call(f);
    assert_true(echoes_within(fd, "whole", 2000));
    raw_close(fd);
}

static bool cancel_arrived(void *context)
{
    struct fixture *f = context;

    return atomic_load(&f->echo.cancel_count) == 1;
}

static void test_a_delayed_cancel_arrives_though_its_sender_left(void **state)
{
    struct fixture *f = *state;
    int fd = call(f);

    fault_proxy_delay_cancels(f->proxy, 150);
    assert_true(raw_send_bytes(fd, cancel, sizeof cancel));
    raw_close(fd);
    pass_ms(50);
    assert_int_equal(atomic_load(&f->echo.cancel_count), 0);
    assert_true(poll_until(cancel_arrived, f, 3000));
    assert_int_equal(counters(f).cancel_count, 1);
    assert_int_equal(counters(f).delayed_cancel_count, 1);
}

#define WITH_PROXY(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PROXY(test_passing_forwards_both_ways_and_counts_bytes),
        WITH_PROXY(test_refusing_resets_what_is_open_and_comes_back),
        WITH_PROXY(test_resetting_accepts_and_resets),
        WITH_PROXY(test_a_stall_loses_nothing),
        WITH_PROXY(test_unanswered_lets_connects_hang_until_it_passes),
        WITH_PROXY(test_what_a_black_hole_swallowed_never_comes_back),
        WITH_PROXY(test_latency_delays_each_way),
        WITH_PROXY(test_a_cut_comes_after_the_bytes_it_was_told),
        WITH_PROXY(test_a_delayed_cancel_arrives_though_its_sender_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

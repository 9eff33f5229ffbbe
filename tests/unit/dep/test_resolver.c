/* The resolver's thread, with the system's resolver replaced: it answers what the test says, when
 * the test says it. */
#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cmocka_all.h"
#include "dep/resolver.h"
#include "patience.h"

enum { ANSWER_MAX = 20, PATIENCE_MS = 10000 };

/* What getaddrinfo() says. */
static struct {
    sem_t asked, may_answer, left; /* a lookup began; it may end; it ended */
    int failure;
    const char *addresses[ANSWER_MAX];
    struct addrinfo infos[ANSWER_MAX];
    struct sockaddr_storage socks[ANSWER_MAX];
    char name[256];
    _Atomic int freed;
} dns;

static sem_t done;

static void fill(size_t i)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&dns.socks[i];
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&dns.socks[i];

    memset(&dns.socks[i], 0, sizeof dns.socks[i]);
    dns.infos[i] = (struct addrinfo){.ai_addr = (struct sockaddr *)(void *)&dns.socks[i]};
    if (inet_pton(AF_INET, dns.addresses[i], &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        dns.infos[i].ai_addrlen = sizeof *v4;
    } else {
        assert_int_equal(inet_pton(AF_INET6, dns.addresses[i], &v6->sin6_addr), 1);
        v6->sin6_family = AF_INET6;
        dns.infos[i].ai_addrlen = sizeof *v6;
    }
    if (i > 0)
        dns.infos[i - 1].ai_next = &dns.infos[i];
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *req,
                struct addrinfo **pai)
{
    (void)service;
    (void)req;
    (void)snprintf(dns.name, sizeof dns.name, "%s", name);
    (void)sem_post(&dns.asked);
    while (sem_wait(&dns.may_answer) != 0)
        continue;
    if (dns.failure != 0) {
        int failure = dns.failure;

        (void)sem_post(&dns.left);
        return failure;
    }
    for (size_t i = 0; i < ANSWER_MAX && dns.addresses[i] != NULL; i++)
        fill(i);
    *pai = &dns.infos[0];
    (void)sem_post(&dns.left);
    return 0;
}

void freeaddrinfo(struct addrinfo *ai)
{
    assert_ptr_equal(ai, &dns.infos[0]);
    atomic_fetch_add(&dns.freed, 1);
}

static void on_done(void *ctx)
{
    (void)ctx;
    (void)sem_post(&done);
}

/* Ends the test when it does not happen. */
static void wait_for(sem_t *sem)
{
    struct timespec until;

    assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += PATIENCE_MS / 1000;
    assert_int_equal(sem_timedwait(sem, &until), 0);
}

static bool has_happened(sem_t *sem)
{
    return sem_trywait(sem) == 0;
}

static bool is_alone(void *ctx)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0, *expected = ctx;

    assert_non_null(tasks);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the folder stream is this function's own */
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        count += entry->d_name[0] != '.';
    (void)closedir(tasks);
    return count == *expected;
}

static int thread_count(void)
{
    int count = 1;

    while (!is_alone(&count))
        count++;
    return count;
}

/* The resolver's threads are detached: gone when the count of threads is what it was. */
static void assert_threads_become(int count)
{
    assert_true(poll_until(is_alone, &count, PATIENCE_MS));
}

static struct resolver *start(void)
{
    struct error err;
    struct resolver *r;

    (void)sem_init(&dns.asked, 0, 0);
    (void)sem_init(&dns.may_answer, 0, 0);
    (void)sem_init(&dns.left, 0, 0);
    (void)sem_init(&done, 0, 0);
    dns.failure = 0;
    memset(dns.addresses, 0, sizeof dns.addresses);
    atomic_store(&dns.freed, 0);
    r = resolver_start(on_done, NULL, &err);
    assert_non_null(r);
    return r;
}

static uint64_t look_up(struct resolver *r, const char *name, struct resolved *out)
{
    uint64_t ticket = resolver_ask(r, name);

    assert_true(ticket != 0);
    wait_for(&dns.asked);
    (void)sem_post(&dns.may_answer);
    wait_for(&done);
    assert_true(resolver_take(r, out));
    assert_int_equal(out->ticket, ticket);
    return ticket;
}

static void test_a_name_becomes_numeric_addresses_in_order(void **state)
{
    int before = thread_count();
    struct resolver *r = start();
    struct resolved resolved;

    (void)state;
    dns.addresses[0] = "2001:db8::5";
    dns.addresses[1] = "192.0.2.7";
    (void)look_up(r, "db.example.com", &resolved);
    assert_string_equal(dns.name, "db.example.com");
    assert_int_equal(resolved.count, 2);
    assert_string_equal(resolved.addresses[0], "2001:db8::5");
    assert_string_equal(resolved.addresses[1], "192.0.2.7");
    assert_int_equal(atomic_load(&dns.freed), 1);
    assert_false(resolver_take(r, &resolved)); /* each answer once */
    resolver_stop(r);
    assert_threads_become(before);
}

static void test_a_failed_lookup_says_why(void **state)
{
    int before = thread_count();
    struct resolver *r = start();
    struct resolved resolved;

    (void)state;
    dns.failure = EAI_NONAME;
    (void)look_up(r, "nowhere.example.com", &resolved);
    assert_int_equal(resolved.count, 0);
    assert_string_equal(resolved.text, gai_strerror(EAI_NONAME));
    assert_int_equal(atomic_load(&dns.freed), 0);

    dns.failure = 0; /* and the next one is fresh */
    dns.addresses[0] = "192.0.2.7";
    (void)look_up(r, "db.example.com", &resolved);
    assert_int_equal(resolved.count, 1);
    assert_string_equal(resolved.text, "");
    resolver_stop(r);
    assert_threads_become(before);
}

static void test_more_addresses_than_there_is_room_for_are_left_out(void **state)
{
    int before = thread_count();
    struct resolver *r = start();
    struct resolved resolved;

    (void)state;
    for (size_t i = 0; i < ANSWER_MAX; i++)
        dns.addresses[i] = "192.0.2.7";
    (void)look_up(r, "many.example.com", &resolved);
    assert_int_equal(resolved.count, RESOLVER_MAX_ADDRESSES);
    resolver_stop(r);
    assert_threads_become(before);
}

static void test_one_lookup_at_a_time(void **state)
{
    int before = thread_count();
    struct resolver *r = start();
    struct resolved resolved;
    uint64_t first;

    (void)state;
    dns.addresses[0] = "192.0.2.7";
    first = resolver_ask(r, "a.example.com");
    assert_true(first != 0);
    assert_int_equal(resolver_ask(r, "b.example.com"), 0);
    wait_for(&dns.asked);
    assert_int_equal(resolver_ask(r, "b.example.com"), 0);
    assert_false(resolver_take(r, &resolved));
    (void)sem_post(&dns.may_answer);
    wait_for(&done);
    assert_true(resolver_take(r, &resolved));
    assert_int_equal(resolved.ticket, first);
    assert_true(look_up(r, "b.example.com", &resolved) != first);
    assert_string_equal(dns.name, "b.example.com");
    resolver_stop(r);
    assert_threads_become(before);
}

/* Who asks anew has given the old question up. */
static void test_an_answer_nobody_took_is_forgotten_by_the_next_question(void **state)
{
    int before = thread_count();
    struct resolver *r = start();
    struct resolved resolved;

    (void)state;
    dns.addresses[0] = "192.0.2.7";
    assert_true(resolver_ask(r, "a.example.com") != 0);
    wait_for(&dns.asked);
    (void)sem_post(&dns.may_answer);
    wait_for(&done);
    assert_true(resolver_ask(r, "b.example.com") != 0);
    wait_for(&dns.asked);
    assert_false(resolver_take(r, &resolved));
    (void)sem_post(&dns.may_answer);
    wait_for(&done);
    assert_true(resolver_take(r, &resolved));
    assert_string_equal(dns.name, "b.example.com");
    resolver_stop(r);
    assert_threads_become(before);
}

static void test_stop_does_not_wait_for_a_lookup_that_hangs(void **state)
{
    int before = thread_count();
    struct resolver *r = start();

    (void)state;
    dns.addresses[0] = "192.0.2.7";
    assert_true(resolver_ask(r, "hangs.example.com") != 0);
    wait_for(&dns.asked);
    resolver_stop(r); /* comes back although the lookup does not */
    assert_int_equal(thread_count(), before + 1);
    (void)sem_post(&dns.may_answer);
    wait_for(&dns.left); /* it touches nothing of ours from here on */
    assert_threads_become(before);
    assert_false(has_happened(&done)); /* whoever asked may be gone */
}

static void test_stop_of_an_idle_one_ends_its_thread(void **state)
{
    int before = thread_count();

    (void)state;
    resolver_stop(start());
    assert_threads_become(before);
    resolver_stop(NULL);
}

static void *end_at_once(void *arg)
{
    return arg;
}

/* Sanitizers start a thread of their own with the first of ours: before any is counted. */
static int start_first_thread(void **state)
{
    pthread_t thread;

    (void)state;
    return pthread_create(&thread, NULL, end_at_once, NULL) != 0 || pthread_join(thread, NULL) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_becomes_numeric_addresses_in_order),
        cmocka_unit_test(test_a_failed_lookup_says_why),
        cmocka_unit_test(test_more_addresses_than_there_is_room_for_are_left_out),
        cmocka_unit_test(test_one_lookup_at_a_time),
        cmocka_unit_test(test_an_answer_nobody_took_is_forgotten_by_the_next_question),
        cmocka_unit_test(test_stop_does_not_wait_for_a_lookup_that_hangs),
        cmocka_unit_test(test_stop_of_an_idle_one_ends_its_thread),
    };

    return cmocka_run_group_tests(tests, start_first_thread, NULL);
}

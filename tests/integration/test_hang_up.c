/* Callers who go away, cancels that come late, writes that are cut short, and statements that
 * change under load: nobody else notices, and everything is accounted for. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/rand.h"
#include "cmocka_all.h"
#include "crowd.h"
#include "fault_proxy.h"
#include "figure.h"
#include "http_client.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    PERMITS = 24,
    LIMIT_MS = 20000,
    HANG_UP_LIMIT_MS = 250,
    HANG_UP_COUNT = 1000,
    HANGER_COUNT = 4,
    PATIENT_COUNT = 4,
    CANCELS_WANTED = 200,
    PREPARED_ROUTES = 12,
    CANCEL_LOOPS = 1000,
    WRITER_COUNT = 6,
    WRITES_EACH = 60,
};

struct fixture {
    struct private_postgres *pg;
    struct fault_proxy *proxy;
    struct weir_process *weir;
};

/* Sessions live shortly, so that some call always meets one that has prepared nothing yet. */
static const char dependencies[] =
    "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\", \"query_timeout\": \"4s\","
    " \"max_lifetime\": \"3s\", \"bulkhead\": {\"max_concurrent\": %d},"
    " \"probe\": {\"interval\": \"1h\", \"idle\": \"1h\"}}}";

static const char more_sql[] =
    "CREATE FUNCTION forget() RETURNS int LANGUAGE plpgsql AS $$BEGIN"
    "  PERFORM tick('forget'); EXECUTE 'DEALLOCATE ALL'; RETURN 1; END$$;"
    "ALTER ROLE app SET log_min_messages = 'error'";

static const struct weir_file files[] = {
    {"quick.sql", "-- GET /quick\n-- @param id int4\n-- @result one\n"
                  "SELECT id, name FROM items WHERE id = :id"},
    {"hold.sql", "-- GET /hold\n-- @param s float8\n-- @result one\n"
                 "SELECT 'held' AS held FROM pg_sleep(:s)"},
    {"hold_write.sql", "-- POST /hold\n-- @param s float8\n-- @param token text\n-- @result one\n"
                       "INSERT INTO notes (token, body) SELECT :token, 'held'"
                       " FROM pg_sleep(:s) RETURNING id"},
    {"exec.sql", "-- POST /exec\n-- @param s float8\n-- @param token text\n-- @result exec\n"
                 "INSERT INTO notes (token, body) SELECT :token, 'held' FROM pg_sleep(:s)"},
    {"rows.sql", "-- POST /too-many-rows\n-- @max_rows 2\n"
                 "INSERT INTO notes (token) SELECT 'cap' FROM generate_series(1, 3) RETURNING id"},
    {"one.sql", "-- POST /not-one\n-- @result one\n"
                "INSERT INTO notes (token) SELECT 'cap' FROM generate_series(1, 2) RETURNING id"},
    {"value.sql", "-- POST /not-a-value\n-- @result value\n"
                  "INSERT INTO notes (token) VALUES ('cap') RETURNING id, token"},
    {"bytes.sql", "-- POST /too-many-bytes\n-- @max_bytes 1KiB\n"
                  "INSERT INTO notes (token, body) VALUES ('cap', repeat('x', 2000))"
                  " RETURNING body"},
    {"fits.sql", "-- POST /fits\n-- @max_rows 2\n"
                 "INSERT INTO notes (token) SELECT 'cap' FROM generate_series(1, 2) RETURNING id"},
    {"changing.sql", "-- GET /changing\nSELECT * FROM changing"},
    {"forget.sql", "-- GET /forget\n-- @result one\nSELECT forget() AS x"},
    {"timeout.sql", "-- GET /timeout\n-- @result value\n"
                    "SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'"},
    {"timeout_short.sql", "-- GET /timeout-short\n-- @timeout 1s\n-- @result value\n"
                          "SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'"},
    {NULL, NULL},
};

static void write_prepared_routes(struct weir_process *weir)
{
    for (int i = 0; i < PREPARED_ROUTES; i++) {
        char *name = scratch_format("prepared%d.sql", i);
        char *text = scratch_format("-- GET /prepared/%d\n-- @result one\n"
                                    "SELECT %d AS n, count(*) FROM items WHERE id < 900",
                                    i, i);

        weir_write(weir, name, text);
        free(text);
        free(name);
    }
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char *conninfo, *text;

    assert_non_null(f);
    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    private_postgres_exec(f->pg, more_sql);
    f->proxy = fault_proxy_create(private_postgres_port(f->pg));
    conninfo = private_postgres_conninfo(f->pg, fault_proxy_port(f->proxy));
    text = scratch_format(dependencies, conninfo, PERMITS);
    f->weir = weir_create(
        &(struct weir_setup){.dependencies = text, .files = files, .log = "\"access\": \"none\""});
    write_prepared_routes(f->weir);
    weir_start(f->weir);
    free(text);
    free(conninfo);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    int code = weir_stop(f->weir, LIMIT_MS);
    char *log = weir_log(f->weir);

    if (code != 0)
        (void)fprintf(stderr, "weir ended with %d: %s\n", code, log);
    free(log);
    weir_destroy(f->weir);
    fault_proxy_destroy(f->proxy);
    private_postgres_destroy(f->pg);
    free(f);
    return code == 0 ? 0 : -1;
}

/* ---- asking ---- */

struct answered {
    int status;
    char reason[32];
};

/* `header` may be NULL; with a body it is a POST. */
static struct answered ask(struct http_client *client, const struct fixture *f, const char *path,
                           const char *body, const char *header)
{
    const char *headers[] = {header, NULL};
    char *url = weir_url(f->weir, path);
    struct http_answer answer = http_client_ask(
        client, &(struct http_request){
                    .url = url, .body = body, .headers = header != NULL ? headers : NULL});
    char *reason = http_answer_reason(&answer);
    struct answered answered = {.status = answer.status};

    (void)snprintf(answered.reason, sizeof answered.reason, "%s", reason);
    free(reason);
    http_answer_fini(&answer);
    free(url);
    return answered;
}

static int status_of(const struct fixture *f, const char *path, const char *body)
{
    struct http_client *client = http_client_create();
    struct answered answered = ask(client, f, path, body, NULL);

    http_client_destroy(client);
    return answered.status;
}

static bool is_full(const struct answered *a)
{
    return a->status == 503 && strcmp(a->reason, "bulkhead-full") == 0;
}

/* A request on a socket of its own. */
static int send_request(const struct fixture *f, const char *path, const char *body,
                        const char *header)
{
    int fd = raw_connect(weir_port(f->weir));
    char *text = body == NULL ? scratch_format("GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, header)
                              : scratch_format("POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Type: "
                                               "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                                               path, header, strlen(body), body);

    if (fd >= 0 && !raw_send(fd, text)) {
        raw_close(fd);
        fd = -1;
    }
    free(text);
    return fd;
}

typedef void way_to_go(int fd);

static void go_with_fin(int fd)
{
    raw_close(fd);
}

static way_to_go *const ways[] = {go_with_fin, raw_half_close, raw_reset};
static const char *const way_names[] = {"FIN", "half-close", "RST"};

/* ---- at rest everything is accounted for ---- */

static bool is_at_rest(void *context)
{
    const struct fixture *f = context;
    const struct weir_process *weir = f->weir;

    return weir_metric(weir, "weir_bulkhead_in_use", "") < 0.5 &&
           weir_metric(weir, "weir_bulkhead_queued", "") < 0.5 &&
           weir_metric(weir, "weir_connections", "state=\"busy\"") < 0.5 &&
           weir_metric(weir, "weir_connections", "state=\"opening\"") < 0.5;
}

static int64_t app_number(const struct fixture *f, const char *where)
{
    char *sql =
        scratch_format("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'%s", where);
    int64_t number = private_postgres_number(f->pg, sql);

    free(sql);
    return number;
}

static bool is_quiet_at_server(void *context)
{
    return app_number(context, " AND state <> 'idle'") == 0;
}

static double move_count(const struct fixture *f)
{
    return weir_metric(f->weir, "weir_breaker_transitions_total", "");
}

static void hold_one(unsigned index, void *context)
{
    struct {
        const struct fixture *f;
        atomic_uint good;
    } *all = context;

    (void)index;
    if (status_of(all->f, "/hold?s=1", NULL) == 200)
        atomic_fetch_add(&all->good, 1);
}

static void expect_all_permits_usable(const struct fixture *f)
{
    struct {
        const struct fixture *f;
        atomic_uint good;
    } all = {.f = f};

    crowd_run(PERMITS, hold_one, &all);
    figure_count_is("hang-up: permits that can be used afterwards", atomic_load(&all.good),
                    PERMITS);
}

/* What weir said of its breaker and its connections. */
static void show_troubles(const struct fixture *f)
{
    char *log = weir_log(f->weir);

    for (char *rest = log, *line; (line = strsep(&rest, "\n")) != NULL;)
        if (strstr(line, "breaker_moved") != NULL || strstr(line, "connect_failed") != NULL ||
            strstr(line, "dependency_lost") != NULL)
            printf("%s\n", line);
    free(log);
}

static void expect_all_accounted_for(struct fixture *f, double moves_before)
{
    assert_true(poll_until(is_at_rest, f, LIMIT_MS));
    assert_true(poll_until(is_quiet_at_server, f, LIMIT_MS));
    figure_count_at_most("hang-up: sessions at the server", app_number(f, ""), PERMITS);
    figure_count_is("hang-up: sessions idle in a transaction",
                    app_number(f, " AND state LIKE 'idle in transaction%'"), 0);
    if (move_count(f) - moves_before > 0.5)
        show_troubles(f);
    figure_count_is("hang-up: breaker transitions", (int64_t)(move_count(f) - moves_before), 0);
    assert_true(weir_breaker_is(f->weir, "primary", "closed"));
    expect_all_permits_usable(f);
    assert_true(poll_until(is_at_rest, f, LIMIT_MS));
}

/* ---- one hang-up ---- */

struct wanted_active {
    const struct fixture *f;
    int64_t count;
};

static bool has_active(void *context)
{
    const struct wanted_active *wanted = context;

    return private_postgres_active(wanted->f->pg, "%'held'%") == wanted->count;
}

static void await_active(const struct fixture *f, int64_t count)
{
    assert_true(poll_until(has_active, &(struct wanted_active){f, count}, LIMIT_MS));
}

/* Until the statement is gone. */
static int64_t hang_up_once_us(const struct fixture *f, way_to_go *go, const char *body)
{
    struct instant gone_at;
    int64_t span_us;
    int fd = send_request(f, body == NULL ? "/hold?s=3" : "/hold", body, "");

    assert_true(fd >= 0);
    await_active(f, 1);
    gone_at = clock_now();
    go(fd);
    await_active(f, 0);
    span_us = instant_span_us(gone_at, clock_now());
    if (go == raw_half_close)
        raw_close(fd);
    return span_us;
}

static void test_a_hang_up_ends_the_statement_within_250_ms(void **state)
{
    static const char body[] = "{\"s\": 3, \"token\": \"gone\"}";
    struct fixture *f = *state;
    double moves = move_count(f);

    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        struct noise_meter *noise = noise_meter_start();
        uint64_t cancels = fault_proxy_counters(f->proxy).cancel_count;
        char *what = scratch_format("hang-up: statement gone after %s", way_names[way]);
        int64_t worst_us = 0, span_us;

        for (int i = 0; i < 10; i++) {
            span_us = hang_up_once_us(f, ways[way], i % 2 == 0 ? NULL : body);
            worst_us = span_us > worst_us ? span_us : worst_us;
        }
        figure_at_most_us(what, worst_us, (int64_t)HANG_UP_LIMIT_MS * 1000,
                          noise_meter_stop_us(noise));
        /* Now and then a session ends by itself in that moment, and needs none. */
        assert_true(fault_proxy_counters(f->proxy).cancel_count >= cancels + 8);
        free(what);
    }
    assert_int_equal(
        private_postgres_number(f->pg, "SELECT count(*) FROM notes WHERE token = 'gone'"), 0);
    expect_all_accounted_for(f, moves);
}

static void test_pipelined_bytes_are_no_hang_up(void **state)
{
    struct fixture *f = *state;
    uint64_t cancels = fault_proxy_counters(f->proxy).cancel_count;
    int fd = send_request(f, "/hold?s=0.5", NULL, "");
    char *text;

    await_active(f, 1);
    assert_true(raw_send(fd, "GET /quick?id=7 HTTP/1.1\r\nHost: x\r\n\r\nGET /qui"));
    text = raw_read_answer(fd, LIMIT_MS);
    assert_non_null(strstr(text, "{\"held\":\"held\"}"));
    free(text);
    assert_true(raw_send(fd, "ck?id=8 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    text = raw_read_answer(fd, LIMIT_MS);
    assert_non_null(strstr(text, "\"id\":7"));
    free(text);
    text = raw_read_answer(fd, LIMIT_MS);
    assert_non_null(strstr(text, "\"id\":8"));
    free(text);
    raw_close(fd);
    assert_true(fault_proxy_counters(f->proxy).cancel_count == cancels);
}

/* ---- a thousand of them, beside callers with patience ---- */

struct rush {
    struct fixture *f;
    atomic_bool is_over;
    atomic_uint gone, patient_good, patient_full, patient_bad;
    atomic_uint note_number, acknowledged;
    char bad[64]; /* the first; written once */
    uint64_t cancels_before;
    atomic_uint answers[PATIENT_COUNT];
};

static void nap_us(int64_t us)
{
    struct timespec t = {.tv_nsec = us * 1000};

    (void)nanosleep(&t, NULL);
}

static void note_patient(struct rush *rush, const struct answered *a)
{
    if (a->status == 200) {
        atomic_fetch_add(&rush->patient_good, 1);
    } else if (is_full(a)) {
        atomic_fetch_add(&rush->patient_full, 1);
    } else if (atomic_fetch_add(&rush->patient_bad, 1) == 0) {
        (void)snprintf(rush->bad, sizeof rush->bad, "%d %s", a->status, a->reason);
    }
}

static void ask_patiently(struct rush *rush, struct http_client *client, uint64_t random)
{
    char path[64], body[96];
    struct answered a;
    bool is_write = random % 4 == 0;

    (void)snprintf(body, sizeof body, "{\"s\": 0.0%u, \"token\": \"patient-%u\"}",
                   (unsigned)(random >> 8) % 4, atomic_fetch_add(&rush->note_number, 1));
    switch (random % 4) {
    case 0:
        (void)snprintf(path, sizeof path, "%s", (random & 4) != 0 ? "/hold" : "/exec");
        break;
    case 1:
        (void)snprintf(path, sizeof path, "/hold?s=0.0%u", (unsigned)(random >> 8) % 4);
        break;
    case 2:
        (void)snprintf(path, sizeof path, "/prepared/%u",
                       (unsigned)(random >> 8) % PREPARED_ROUTES);
        break;
    default:
        (void)snprintf(path, sizeof path, "/quick?id=%u", 1 + (unsigned)(random >> 8) % 1000);
        break;
    }
    a = ask(client, rush->f, path, is_write ? body : NULL, NULL);
    if (is_write && a.status == 200)
        atomic_fetch_add(&rush->acknowledged, 1);
    note_patient(rush, &a);
}

static void be_patient(struct rush *rush, unsigned index)
{
    struct http_client *client = http_client_create();
    struct rand rand;

    rand_init(&rand, 1000 + index);
    while (!atomic_load(&rush->is_over)) {
        ask_patiently(rush, client, rand_next(&rand));
        nap_us(1000);
    }
    http_client_destroy(client);
}

/* Reads, writes in a transaction and outside of one, and statements that must be prepared first. */
static int begin_something(const struct rush *rush, uint64_t random)
{
    char path[64];
    static const char body[] = "{\"s\": 0.3, \"token\": \"hung-up\"}";

    if (random % 4 == 0)
        return send_request(rush->f, "/hold", body, "");
    if (random % 4 == 1)
        return send_request(rush->f, "/exec", body, "");
    if (random % 4 == 2)
        (void)snprintf(path, sizeof path, "/hold?s=0.%u", 1 + (unsigned)(random >> 8) % 3);
    else
        (void)snprintf(path, sizeof path, "/prepared/%u",
                       (unsigned)(random >> 8) % PREPARED_ROUTES);
    return send_request(rush->f, path, NULL, "");
}

/* A busy machine has not read a request after 10 ms: then it takes more of them to meet calls that
 * are under way. */
static bool has_few_cancels(const struct rush *rush)
{
    return fault_proxy_counters(rush->f->proxy).cancel_count - rush->cancels_before <
           CANCELS_WANTED;
}

static void hang_up_at_random(struct rush *rush, unsigned index)
{
    struct rand rand;

    rand_init(&rand, 1 + index);
    while (atomic_fetch_add(&rush->gone, 1) < HANG_UP_COUNT || has_few_cancels(rush)) {
        uint64_t random = rand_next(&rand);
        way_to_go *go = ways[random % 3];
        int fd = begin_something(rush, random >> 2);

        nap_us((int64_t)((random >> 24) % 10000));
        if (fd < 0)
            continue;
        go(fd);
        nap_us(10000); /* a flood would keep requests from being read before their end comes */
        if (go == raw_half_close)
            raw_close(fd);
    }
}

static void rush_member(unsigned index, void *context)
{
    struct rush *rush = context;

    if (index < PATIENT_COUNT) {
        be_patient(rush, index);
        return;
    }
    hang_up_at_random(rush, index);
    atomic_store(&rush->is_over, true);
}

static void expect_patience_paid(struct rush *rush, const char *what)
{
    struct fixture *f = rush->f;
    char *line = scratch_format("%s: patient callers with another answer than 200 or full", what);

    printf("%s: patient callers got 200 %u times, bulkhead-full %u times\n", what,
           atomic_load(&rush->patient_good), atomic_load(&rush->patient_full));
    if (atomic_load(&rush->patient_bad) != 0)
        printf("%s: the first of the others: %s\n", what, rush->bad);
    figure_count_is(line, atomic_load(&rush->patient_bad), 0);
    free(line);
    assert_true(atomic_load(&rush->patient_good) > 0);
    assert_int_equal(
        private_postgres_number(f->pg, "SELECT count(*) FROM notes WHERE token LIKE 'patient-%'"),
        atomic_load(&rush->acknowledged));
}

static void test_after_a_thousand_random_hang_ups_all_is_accounted_for(void **state)
{
    struct fixture *f = *state;
    struct rush *rush = calloc(1, sizeof *rush);
    double moves = move_count(f), connects = weir_metric(f->weir, "weir_connects_total", "");
    uint64_t cancels = fault_proxy_counters(f->proxy).cancel_count;

    assert_non_null(rush);
    rush->f = f;
    rush->cancels_before = cancels;
    private_postgres_exec(f->pg, "TRUNCATE notes");
    crowd_run(PATIENT_COUNT + HANGER_COUNT, rush_member, rush);
    cancels = fault_proxy_counters(f->proxy).cancel_count - cancels;
    connects = weir_metric(f->weir, "weir_connects_total", "") - connects;
    printf("hang-up: %u at random, %llu cancels sent, %.0f fresh sessions\n",
           atomic_load(&rush->gone) - HANGER_COUNT, (unsigned long long)cancels, connects);
    assert_true(cancels >= CANCELS_WANTED);
    assert_true(connects > 0);
    expect_all_accounted_for(f, moves);
    expect_patience_paid(rush, "hang-up");
    free(rush);
}

/* ---- cancels that come late ---- */

/* Until that many cancels were held back. Statements that end by themselves before their cancel
 * arrives are among them: those are the dangerous ones. */
static void hang_up_with_late_cancels(struct rush *rush, unsigned index)
{
    struct rand rand;
    struct fixture *f = rush->f;

    rand_init(&rand, 77 + index);
    while (fault_proxy_counters(f->proxy).delayed_cancel_count < CANCEL_LOOPS) {
        uint64_t random = rand_next(&rand);
        char path[64];
        int fd;

        (void)snprintf(path, sizeof path, "/hold?s=0.%03u", 10 + (unsigned)(random >> 8) % 200);
        fault_proxy_delay_cancels(f->proxy, 1 + (int64_t)((random >> 24) % 300));
        fd = send_request(f, path, NULL, "");
        nap_us(5000 + (int64_t)((random >> 40) % 20000));
        if (fd >= 0)
            ways[random % 2 == 0 ? 0 : 2](fd);
        atomic_fetch_add(&rush->gone, 1);
        nap_us((int64_t)((random >> 50) % 8192) * 6);
    }
}

static void late_member(unsigned index, void *context)
{
    struct rush *rush = context;

    if (index < PATIENT_COUNT) {
        be_patient(rush, index);
        return;
    }
    hang_up_with_late_cancels(rush, index);
    atomic_store(&rush->is_over, true);
}

struct wanted_cancels {
    const struct fixture *f;
    double count;
};

static bool are_cancels_over(void *context)
{
    const struct wanted_cancels *wanted = context;

    return weir_metric(wanted->f->weir, "weir_cancels_total", "") >= wanted->count;
}

static void test_a_cancel_that_comes_late_never_hits_another_call(void **state)
{
    struct fixture *f = *state;
    struct rush *rush = calloc(1, sizeof *rush);
    double moves = move_count(f);
    double delivered = weir_metric(f->weir, "weir_cancels_total", "result=\"delivered\"");
    double all = weir_metric(f->weir, "weir_cancels_total", "");
    struct fault_counters before = fault_proxy_counters(f->proxy), after;

    assert_non_null(rush);
    rush->f = f;
    private_postgres_exec(f->pg, "TRUNCATE notes");
    crowd_run(PATIENT_COUNT + HANGER_COUNT, late_member, rush);
    after = fault_proxy_counters(f->proxy);
    assert_true(poll_until(
        are_cancels_over,
        &(struct wanted_cancels){f, all + (double)(after.cancel_count - before.cancel_count)},
        LIMIT_MS));
    fault_proxy_delay_cancels(f->proxy, 0);
    delivered = weir_metric(f->weir, "weir_cancels_total", "result=\"delivered\"") - delivered;
    printf("late cancels: %u calls hung up, %llu cancels held back for 1 to 300 ms, %.0f arrived\n",
           atomic_load(&rush->gone),
           (unsigned long long)(after.delayed_cancel_count - before.delayed_cancel_count),
           delivered);
    assert_true(after.delayed_cancel_count - before.delayed_cancel_count >= CANCEL_LOOPS);
    assert_true(delivered >= CANCEL_LOOPS);
    expect_all_accounted_for(f, moves);
    expect_patience_paid(rush, "late cancels");
    free(rush);
}

/* ---- writes cut short ---- */

enum fate { FATE_DONE, FATE_NOT_DONE, FATE_UNKNOWN, FATE_COUNT };

struct writes {
    const struct fixture *f;
    enum fate fates[WRITER_COUNT][WRITES_EACH];
    atomic_uint odd;
    char odd_text[64];
};

static enum fate fate_of(struct writes *writes, const struct answered *a)
{
    if (a->status == 200)
        return FATE_DONE;
    if (is_full(a) || strcmp(a->reason, "deadline") == 0)
        return FATE_NOT_DONE;
    if (strcmp(a->reason, "outcome-unknown") != 0 && atomic_fetch_add(&writes->odd, 1) == 0)
        (void)snprintf(writes->odd_text, sizeof writes->odd_text, "%d %s", a->status, a->reason);
    return FATE_UNKNOWN;
}

static enum fate write_and_hang_up(const struct fixture *f, const char *path, const char *body,
                                   uint64_t random)
{
    int fd = send_request(f, path, body, "");

    nap_us((int64_t)(random % 40000));
    if (fd >= 0)
        ways[random % 2 == 0 ? 0 : 2](fd);
    return FATE_UNKNOWN;
}

static void write_many(unsigned index, void *context)
{
    struct writes *writes = context;
    struct http_client *client = http_client_create();
    struct rand rand;

    rand_init(&rand, 4711 + index);
    for (unsigned i = 0; i < WRITES_EACH; i++) {
        uint64_t random = rand_next(&rand);
        const char *path = random % 2 == 0 ? "/hold" : "/exec";
        char body[96], header[64];
        struct answered a;

        (void)snprintf(body, sizeof body, "{\"s\": 0.0%02u, \"token\": \"<w%u-%u>\"}",
                       (unsigned)(random >> 8) % 40, index, i);
        (void)snprintf(header, sizeof header, "X-Request-Timeout-Ms: %u",
                       5 + (unsigned)(random >> 20) % 195);
        if ((random >> 2) % 3 == 0) {
            writes->fates[index][i] = write_and_hang_up(writes->f, path, body, random >> 20);
            continue;
        }
        a = ask(client, writes->f, path, body, header);
        writes->fates[index][i] = fate_of(writes, &a);
    }
    http_client_destroy(client);
}

struct tally {
    unsigned asked[FATE_COUNT], found[FATE_COUNT], doubled;
};

static struct tally tally_writes(const struct writes *writes)
{
    struct tally tally = {0};
    char *rows = private_postgres_value(writes->f->pg, "SELECT string_agg(token, '') FROM notes");

    for (unsigned w = 0; w < WRITER_COUNT; w++) {
        for (unsigned i = 0; i < WRITES_EACH; i++) {
            char *token = scratch_format("<w%u-%u>", w, i);
            size_t found = scratch_count(rows, token);

            tally.asked[writes->fates[w][i]]++;
            tally.found[writes->fates[w][i]] += found > 0;
            tally.doubled += found > 1;
            free(token);
        }
    }
    free(rows);
    return tally;
}

static void test_no_acknowledged_write_is_missing_and_no_refused_one_is_there(void **state)
{
    struct fixture *f = *state;
    struct writes *writes = calloc(1, sizeof *writes);
    struct tally tally;

    assert_non_null(writes);
    writes->f = f;
    private_postgres_exec(f->pg, "TRUNCATE notes");
    crowd_run(WRITER_COUNT, write_many, writes);
    assert_true(poll_until(is_at_rest, f, LIMIT_MS));
    assert_true(poll_until(is_quiet_at_server, f, LIMIT_MS));
    tally = tally_writes(writes);
    printf("writes: acknowledged %u (in the table %u), unknown %u (%u), not done %u (%u)\n",
           tally.asked[FATE_DONE], tally.found[FATE_DONE], tally.asked[FATE_UNKNOWN],
           tally.found[FATE_UNKNOWN], tally.asked[FATE_NOT_DONE], tally.found[FATE_NOT_DONE]);
    if (atomic_load(&writes->odd) != 0)
        printf("writes: the first odd answer: %s\n", writes->odd_text);
    assert_int_equal(atomic_load(&writes->odd), 0);
    assert_true(tally.asked[FATE_DONE] > 0);
    assert_true(tally.asked[FATE_NOT_DONE] > 0);
    assert_true(tally.asked[FATE_UNKNOWN] > 0);
    figure_count_is("writes: acknowledged ones that are missing",
                    tally.asked[FATE_DONE] - tally.found[FATE_DONE], 0);
    figure_count_is("writes: found though said not to have happened", tally.found[FATE_NOT_DONE],
                    0);
    figure_count_is("writes: found twice", tally.doubled, 0);
    free(writes);
}

static void test_a_write_whose_rows_do_not_fit_is_rolled_back(void **state)
{
    static const char *const paths[] = {"/too-many-rows", "/not-one", "/not-a-value",
                                        "/too-many-bytes"};
    static const char *const reasons[] = {"result-too-large", "more-than-one-row",
                                          "more-than-one-row", "result-too-large"};
    struct fixture *f = *state;
    struct http_client *client = http_client_create();
    double moves = move_count(f);

    private_postgres_exec(f->pg, "TRUNCATE notes");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct answered a = ask(client, f, paths[i], "{}", NULL);

        if (a.status != 500)
            fail_msg("%s: %d %s", paths[i], a.status, a.reason);
        assert_string_equal(a.reason, reasons[i]);
        assert_true(poll_until(is_at_rest, f, LIMIT_MS));
        assert_int_equal(private_postgres_number(f->pg, "SELECT count(*) FROM notes"), 0);
    }
    http_client_destroy(client);
    assert_int_equal(status_of(f, "/fits", "{}"), 200);
    assert_int_equal(private_postgres_number(f->pg, "SELECT count(*) FROM notes"), 2);
    assert_true(move_count(f) - moves < 0.5);
    assert_true(poll_until(is_quiet_at_server, f, LIMIT_MS));
}

/* ---- statements that change under load ---- */

static void ask_changing(struct rush *rush, unsigned index)
{
    struct http_client *client = http_client_create();

    while (!atomic_load(&rush->is_over)) {
        struct answered a =
            ask(client, rush->f, index % 2 == 0 ? "/changing" : "/quick?id=5", NULL, NULL);

        note_patient(rush, &a);
        atomic_fetch_add(&rush->answers[index], 1);
    }
    http_client_destroy(client);
}

struct seen_answers {
    const struct rush *rush;
    unsigned counts[PATIENT_COUNT];
};

static bool has_everybody_asked_again(void *context)
{
    const struct seen_answers *seen = context;

    for (int i = 0; i < PATIENT_COUNT; i++)
        if (atomic_load(&seen->rush->answers[i]) < seen->counts[i] + 2)
            return false;
    return true;
}

/* A call is prepared again once: none may meet two changes. */
static void let_everybody_ask_again(const struct rush *rush)
{
    struct seen_answers seen = {.rush = rush};

    for (int i = 0; i < PATIENT_COUNT; i++)
        seen.counts[i] = atomic_load(&rush->answers[i]);
    (void)poll_until(has_everybody_asked_again, &seen, LIMIT_MS);
}

/* PostgreSQL logs the errors that callers do not see. */
static void change_until_bitten(struct rush *rush)
{
    struct fixture *f = rush->f;
    struct http_client *client = http_client_create();

    for (int i = 0; i < 40; i++) {
        struct answered a;

        private_postgres_exec(f->pg, i % 2 == 0 ? "ALTER TABLE changing ADD COLUMN more int"
                                                : "ALTER TABLE changing DROP COLUMN more");
        let_everybody_ask_again(rush);
        a = ask(client, f, "/forget", NULL, NULL);
        note_patient(rush, &a);
        let_everybody_ask_again(rush);
    }
    http_client_destroy(client);
    atomic_store(&rush->is_over, true);
}

static void change_member(unsigned index, void *context)
{
    if (index < PATIENT_COUNT)
        ask_changing(context, index);
    else
        change_until_bitten(context);
}

static void test_changed_tables_and_forgotten_statements_are_not_seen_by_callers(void **state)
{
    struct fixture *f = *state;
    struct rush *rush = calloc(1, sizeof *rush);
    size_t changed, forgotten;

    assert_non_null(rush);
    rush->f = f;
    crowd_run(PATIENT_COUNT + 1, change_member, rush);
    changed = private_postgres_log_count(f->pg, "cached plan must not change result type");
    forgotten = private_postgres_log_count(f->pg, "\" does not exist");
    printf("changes: %zu changed plans and %zu forgotten statements, %u answers, %u others\n",
           changed, forgotten, atomic_load(&rush->patient_good), atomic_load(&rush->patient_bad));
    if (atomic_load(&rush->patient_bad) != 0)
        printf("changes: the first of the others: %s\n", rush->bad);
    assert_true(changed > 0);
    assert_true(forgotten > 0);
    assert_true(private_postgres_ticks(f->pg, "forget") > 0);
    figure_count_is("changes: callers who saw one",
                    atomic_load(&rush->patient_bad) + atomic_load(&rush->patient_full), 0);
    free(rush);
    assert_true(poll_until(is_at_rest, f, LIMIT_MS));
}

/* ---- deadlines in the server ---- */

static int64_t timeout_seen_ms(const struct fixture *f, const char *path, const char *header)
{
    int fd = send_request(f, path, NULL, header);
    char *text = raw_read_answer(fd, LIMIT_MS);
    const char *body = strstr(text, "\r\n\r\n");
    int64_t ms;

    assert_non_null(body);
    ms = strtoll(body + 4, NULL, 10);
    raw_close(fd);
    free(text);
    return ms;
}

static void test_the_server_is_told_how_long_a_call_may_take(void **state)
{
    struct fixture *f = *state;
    int64_t usual_ms = timeout_seen_ms(f, "/timeout", "");
    int64_t short_ms = timeout_seen_ms(f, "/timeout-short", "");
    int64_t hasty_ms = timeout_seen_ms(f, "/timeout", "X-Request-Timeout-Ms: 600\r\n");
    int64_t envoy_ms = timeout_seen_ms(f, "/timeout", "X-Envoy-Expected-Rq-Timeout-Ms: 600\r\n");
    int64_t patient_ms = timeout_seen_ms(f, "/timeout-short", "X-Request-Timeout-Ms: 3000\r\n");
    int64_t again_ms = timeout_seen_ms(f, "/timeout", "");

    printf("statement_timeout: query_timeout 4 s: %lld ms, @timeout 1 s: %lld ms, caller 600 ms: "
           "%lld ms\n",
           (long long)usual_ms, (long long)short_ms, (long long)hasty_ms);
    assert_in_range(usual_ms, 3900, 3999);
    assert_in_range(short_ms, 1, 999);
    assert_in_range(hasty_ms, 1, 599);
    assert_in_range(envoy_ms, 1, 599);
    assert_in_range(patient_ms, 1, 999);
    assert_int_equal(again_ms, usual_ms);
}

static void test_a_callers_timeout_shortens_the_deadline(void **state)
{
    struct fixture *f = *state;
    struct http_client *client = http_client_create();
    struct noise_meter *noise = noise_meter_start();
    double moves = move_count(f);
    int64_t worst_us = 0;

    for (int i = 0; i < 10; i++) {
        struct instant before = clock_now();
        struct answered a = ask(client, f, "/hold?s=3", NULL, "X-Request-Timeout-Ms: 300");
        int64_t span_us = instant_span_us(before, clock_now());

        assert_int_equal(a.status, 504);
        assert_string_equal(a.reason, "deadline");
        worst_us = span_us > worst_us ? span_us : worst_us;
    }
    figure_at_most_us("deadline: X-Request-Timeout-Ms 300, answer", worst_us, 350000,
                      noise_meter_stop_us(noise));
    http_client_destroy(client);
    assert_true(move_count(f) - moves < 0.5); /* ten in a row, and no blame */
    assert_true(poll_until(is_at_rest, f, LIMIT_MS));
}

static void test_a_statement_ends_in_time_though_weir_is_frozen(void **state)
{
    struct fixture *f = *state;
    struct noise_meter *noise = noise_meter_start();
    struct instant before = clock_now();
    uint64_t cancels = fault_proxy_counters(f->proxy).cancel_count;
    int fd = send_request(f, "/hold?s=3", NULL, "X-Request-Timeout-Ms: 300\r\n");
    int64_t span_us;

    await_active(f, 1);
    weir_signal(f->weir, SIGSTOP);
    await_active(f, 0);
    span_us = instant_span_us(before, clock_now());
    assert_true(fault_proxy_counters(f->proxy).cancel_count == cancels);
    weir_signal(f->weir, SIGCONT);
    /* A poll of the activity is up to 5 ms late. */
    figure_at_most_us("deadline: statement of 300 ms ended by the server, weir frozen", span_us,
                      305000, noise_meter_stop_us(noise));
    free(raw_read_answer(fd, LIMIT_MS));
    raw_close(fd);
    assert_true(poll_until(is_at_rest, f, LIMIT_MS));
    assert_int_equal(status_of(f, "/quick?id=1", NULL), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hang_up_ends_the_statement_within_250_ms),
        cmocka_unit_test(test_pipelined_bytes_are_no_hang_up),
        cmocka_unit_test(test_after_a_thousand_random_hang_ups_all_is_accounted_for),
        cmocka_unit_test(test_a_cancel_that_comes_late_never_hits_another_call),
        cmocka_unit_test(test_no_acknowledged_write_is_missing_and_no_refused_one_is_there),
        cmocka_unit_test(test_a_write_whose_rows_do_not_fit_is_rolled_back),
        cmocka_unit_test(test_changed_tables_and_forgotten_statements_are_not_seen_by_callers),
        cmocka_unit_test(test_the_server_is_told_how_long_a_call_may_take),
        cmocka_unit_test(test_a_callers_timeout_shortens_the_deadline),
        cmocka_unit_test(test_a_statement_ends_in_time_though_weir_is_frozen),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

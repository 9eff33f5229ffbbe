/* What callers get when no source can answer: the stored answer, else the fallback, else an error,
 * each saying which and why; whatever the fault is. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "account.h"
#include "cmocka_all.h"
#include "exchange.h"
#include "fault_proxy.h"
#include "figure.h"
#include "paced.h"
#include "patience.h"
#include "private_postgres.h"
#include "scratch.h"
#include "weir_process.h"

enum {
    PERMITS = 8,
    DEADLINE_MS = 800,
    HASTE_MS = 150, /* of a caller's own header */
    QUEUE_MS = 100,
    LATE_MS = 50,  /* that an answer may come after its deadline */
    NAP_MS = 3500, /* of statements that are to be in the way */
    BITE_MS = 5000,
    START_MS = 10000,
    RECOVER_MS = 5000,
    BIG_BYTES = 7000000, /* more than sockets take */
    CUT_BYTES = 100000,
    COLD = 1000, /* added to an id that was never asked for */
};

#define FALLBACK "[{\"id\": null, \"why\": \"nothing better\"}]"

static const struct weir_file files[] = {
    {"books.sql",
     "-- GET /books/{id}\n-- @param id int4\n-- @timeout 800ms\n"
     "-- @max_rows 100\n-- @cache max-age=1s stale-if-error=10m\n-- @fallback " FALLBACK
     "\n" PACED_SQL},
    {"bare.sql", "-- GET /bare/{id}\n-- @param id int4\n-- @timeout 800ms\n"
                 "-- @max_rows 100\n-- @cache max-age=1s stale-if-error=10m\n" PACED_SQL},
    {"plain.sql", "-- GET /plain/{id}\n-- @param id int4\n-- @timeout 800ms\n"
                  "-- @max_rows 100\n-- @fallback " FALLBACK "\n" PACED_SQL},
    {"sleep.sql", "-- GET /sleep/{ms}\n-- @param ms int4\nSELECT pg_sleep(:ms / 1000.0)\n"},
    {"big.sql", "-- GET /big\n-- @result value\nSELECT repeat('x', 7000000)\n"},
    {NULL, NULL}};

struct house {
    struct private_postgres *pg;
    struct fault_proxy *proxy;
    struct weir_process *swift;   /* nobody waits for a permit */
    struct weir_process *patient; /* callers wait for one, a little */
    struct weir_process *weir;    /* borrowed: of the row */
    int busy[PERMITS];            /* sockets of callers who are in the way; -1: none */
    struct fault_counters before; /* the fault */
    size_t marks_before;          /* what the server's log counted */
    struct pace pace;
    int id; /* of the row */
};

/* --- house --- */

static struct weir_process *open_weir(const struct house *house, int queue_count)
{
    char *more = scratch_format(
        ", \"query_timeout\": \"4s\", \"bulkhead\": {\"max_concurrent\": %d, \"max_queued\": %d,"
        "  \"queue_timeout\": \"%dms\"}, \"breaker\": {\"failure_threshold\": 1000000}",
        PERMITS, queue_count, QUEUE_MS);
    char *dependencies = exchange_primary(house->pg, fault_proxy_port(house->proxy), more);
    struct weir_process *weir = weir_create(&(struct weir_setup){
        .dependencies = dependencies, .server = "\"max_memory\": \"1MiB\"", .files = files});

    weir_start(weir);
    assert_true(exchange_is_healthy_within(weir, START_MS));
    free(dependencies);
    free(more);
    return weir;
}

static int build(void **state)
{
    struct house *house = calloc(1, sizeof *house);

    assert_non_null(house);
    house->pg = private_postgres_create();
    private_postgres_start(house->pg);
    paced_create(house->pg);
    house->proxy = fault_proxy_create(private_postgres_port(house->pg));
    house->swift = open_weir(house, 0);
    house->patient = open_weir(house, PERMITS);
    for (size_t i = 0; i < PERMITS; i++)
        house->busy[i] = -1;
    *state = house;
    return 0;
}

static int tear_down(void **state)
{
    struct house *house = *state;

    assert_int_equal(weir_stop(house->swift, 10000), 0);
    assert_int_equal(weir_stop(house->patient, 10000), 0);
    weir_destroy(house->swift);
    weir_destroy(house->patient);
    fault_proxy_destroy(house->proxy);
    private_postgres_destroy(house->pg);
    free(house);
    return 0;
}

/* --- faults: break, what it broke by its own count, mend --- */

static void set_mode(const struct house *house, const char *mode)
{
    char *body = scratch_format("{\"mode\":\"%s\"}", mode);
    struct http_answer answer = exchange_ask_admin(
        house->weir, &(struct exchange){.path = "/breakers/primary", .body = body});

    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    free(body);
}

static void force_open(struct house *house)
{
    set_mode(house, "forced-open");
}

static void expect_refused(struct house *house)
{
    assert_true(weir_metric(house->weir, "weir_bulkhead_refused_total", "reason=\"breaker-open\"") >
                0);
    /* No statement reached the database but the one that was stored. */
    assert_int_equal(paced_runs(house->pg, house->id), 1);
    assert_int_equal(paced_runs(house->pg, COLD + house->id), 0);
}

static void close_again(struct house *house)
{
    set_mode(house, "auto");
}

static void swallow(struct house *house)
{
    fault_proxy_set_mode(house->proxy, FAULT_BLACK_HOLE);
}

static void expect_swallowed(struct house *house)
{
    assert_true(fault_proxy_counters(house->proxy).swallowed_bytes > house->before.swallowed_bytes);
}

static void stall(struct house *house)
{
    fault_proxy_set_mode(house->proxy, FAULT_STALL);
}

static void expect_stalled(struct house *house)
{
    assert_true(fault_proxy_counters(house->proxy).stalled_count > house->before.stalled_count);
}

static void pass(struct house *house)
{
    fault_proxy_set_mode(house->proxy, FAULT_PASS);
}

static void freeze(struct house *house)
{
    private_postgres_freeze(house->pg);
}

/* The state in /proc of the server's first process. */
static char process_state(pid_t pid)
{
    char *path = scratch_format("/proc/%d/stat", (int)pid);
    char *text = scratch_read(path, NULL);
    const char *end = strrchr(text, ')');
    char letter = '?';

    if (end != NULL && end[1] == ' ')
        letter = end[2];
    free(text);
    free(path);
    return letter;
}

static void expect_frozen(struct house *house)
{
    assert_int_equal(process_state(private_postgres_pid(house->pg)), 'T');
    assert_true(fault_proxy_counters(house->proxy).up_bytes > house->before.up_bytes);
}

static void thaw(struct house *house)
{
    private_postgres_thaw(house->pg);
}

static bool has_no_idle(void *context)
{
    const struct house *house = context;

    return weir_metric(house->weir, "weir_connections", "state=\"idle\"") <= 0;
}

/* Nobody listens any more, and weir has seen that its sessions ended. */
static void stop_database(struct house *house)
{
    private_postgres_stop(house->pg, POSTGRES_FAST);
    fault_proxy_set_mode(house->proxy, FAULT_REFUSE);
    assert_true(poll_until(has_no_idle, house, BITE_MS));
}

static void expect_stopped(struct house *house)
{
    assert_true(private_postgres_log_count(house->pg, "database system is shut down") >
                house->marks_before);
    assert_int_equal(raw_connect(fault_proxy_port(house->proxy)), -1);
    assert_int_equal(raw_connect(private_postgres_port(house->pg)), -1);
}

static void start_database(struct house *house)
{
    private_postgres_start(house->pg);
    fault_proxy_set_mode(house->proxy, FAULT_PASS);
}

static bool are_permits_taken(void *context)
{
    const struct house *house = context;

    return private_postgres_active(house->pg, "%pg_sleep%") == PERMITS;
}

static void fill_bulkhead(struct house *house)
{
    char *head = scratch_format("GET /sleep/%d HTTP/1.1\r\nHost: a\r\n\r\n", NAP_MS);

    for (size_t i = 0; i < PERMITS; i++) {
        house->busy[i] = raw_connect(weir_port(house->weir));
        assert_true(house->busy[i] >= 0);
        assert_true(raw_send(house->busy[i], head));
    }
    free(head);
    assert_true(poll_until(are_permits_taken, house, BITE_MS));
}

static void expect_full(struct house *house)
{
    assert_true(are_permits_taken(house));
}

static void hang_up_all(struct house *house)
{
    for (size_t i = 0; i < PERMITS; i++) {
        if (house->busy[i] >= 0)
            raw_close(house->busy[i]);
        house->busy[i] = -1;
    }
}

static void slow_down(struct house *house)
{
    (void)paced_set(house->pg, (struct pace){.nap_s = NAP_MS / 1000.0, .row_count = 1});
}

/* They began: a refresh, and a cold key of each route. */
static void expect_begun(struct house *house)
{
    assert_true(paced_runs(house->pg, house->id) >= 2);
    assert_int_equal(paced_runs(house->pg, COLD + house->id), 3);
}

static void cut_results(struct house *house)
{
    (void)paced_set(house->pg, (struct pace){.row_count = 50, .filler_bytes = CUT_BYTES / 10});
    fault_proxy_cut_after(house->proxy, FAULT_DOWN, CUT_BYTES, 1000);
}

static void expect_cut(struct house *house)
{
    struct fault_counters now = fault_proxy_counters(house->proxy);

    /* One cold key with a fallback and one without, one uncached, one refresh. */
    assert_int_equal(now.cut_count - house->before.cut_count, 4);
    assert_true(now.down_bytes - house->before.down_bytes >= UINT64_C(4) * CUT_BYTES);
}

static void cut_no_more(struct house *house)
{
    fault_proxy_cut_after(house->proxy, FAULT_DOWN, 0, 0);
}

static void fail_statements(struct house *house)
{
    (void)paced_set(house->pg, house->pace);
}

static void expect_failed(struct house *house)
{
    char *name = scratch_format("fail %s", house->pace.state);

    /* One cold key with a fallback and one without, one uncached, one refresh. */
    assert_int_equal(private_postgres_ticks(house->pg, name), 4);
    free(name);
}

static void answer_too_much(struct house *house)
{
    (void)paced_set(house->pg, (struct pace){.row_count = 101, .filler_bytes = 1});
}

static bool holds_bytes(void *context)
{
    const struct house *house = context;
    int waiting_bytes = 0;

    return ioctl(house->busy[0], FIONREAD, &waiting_bytes) == 0 && waiting_bytes > 0;
}

/* A large answer that its caller does not read. */
static void fill_memory(struct house *house)
{
    house->busy[0] = raw_connect(weir_port(house->weir));
    assert_true(house->busy[0] >= 0);
    assert_true(
        raw_send(house->busy[0], "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    assert_true(poll_until(holds_bytes, house, BITE_MS));
}

static void read_memory(struct house *house)
{
    bool is_closed;
    char *text = exchange_read_to_end(house->busy[0], BITE_MS, &is_closed);

    /* It was on its way all the time. */
    assert_true(is_closed && strlen(text) > BIG_BYTES);
    free(text);
    hang_up_all(house);
}

/* --- the table --- */

struct fault {
    const char *name;
    void (*begin)(struct house *house);
    void (*expect_bitten)(struct house *house); /* by its own counters */
    void (*end)(struct house *house);
    const char *reason;
    int status;          /* of the error */
    int deadline_ms;     /* 0: it is refused, here and now */
    const char *headers; /* of every request */
    const char *mark;    /* in the server's log; NULL: none */
    struct pace pace;    /* of fail_statements() */
    bool is_patient;     /* callers wait for a permit */
    bool is_ours;        /* no dependency is to blame */
};

static void nothing(struct house *house)
{
    (void)house;
}

static const struct fault faults[] = {
    {.name = "refused",
     .begin = force_open,
     .expect_bitten = expect_refused,
     .end = close_again,
     .reason = "breaker-open",
     .status = 503},
    {.name = "bulkhead full",
     .begin = fill_bulkhead,
     .expect_bitten = expect_full,
     .end = hang_up_all,
     .reason = "bulkhead-full",
     .status = 503},
    {.name = "queue full of patience",
     .begin = fill_bulkhead,
     .expect_bitten = expect_full,
     .end = hang_up_all,
     .reason = "queue-timeout",
     .status = 503,
     .deadline_ms = QUEUE_MS,
     .is_patient = true},
    {.name = "memory full",
     .begin = fill_memory,
     .expect_bitten = nothing,
     .end = read_memory,
     .reason = "overloaded",
     .status = 503,
     .is_ours = true},
    {.name = "black-holed",
     .begin = swallow,
     .expect_bitten = expect_swallowed,
     .end = pass,
     .reason = "deadline",
     .status = 504,
     .deadline_ms = DEADLINE_MS},
    {.name = "stalled",
     .begin = stall,
     .expect_bitten = expect_stalled,
     .end = pass,
     .reason = "deadline",
     .status = 504,
     .deadline_ms = DEADLINE_MS},
    {.name = "stopped (SIGSTOP)",
     .begin = freeze,
     .expect_bitten = expect_frozen,
     .end = thaw,
     .reason = "deadline",
     .status = 504,
     .deadline_ms = DEADLINE_MS},
    {.name = "slow past the route's time",
     .begin = slow_down,
     .expect_bitten = expect_begun,
     .end = nothing,
     .reason = "deadline",
     .status = 504,
     .deadline_ms = DEADLINE_MS},
    {.name = "slow past the caller's time",
     .begin = slow_down,
     .expect_bitten = expect_begun,
     .end = nothing,
     .reason = "deadline",
     .status = 504,
     .deadline_ms = HASTE_MS,
     .headers = "X-Request-Timeout-Ms: 150"},
    {.name = "reset in mid-result",
     .begin = cut_results,
     .expect_bitten = expect_cut,
     .end = cut_no_more,
     .reason = "connection-lost",
     .status = 503,
     .deadline_ms = DEADLINE_MS},
    {.name = "database stopped",
     .begin = stop_database,
     .expect_bitten = expect_stopped,
     .end = start_database,
     .reason = "connect-failed",
     .status = 503,
     .deadline_ms = DEADLINE_MS,
     .mark = "database system is shut down"},
    {.name = "statement fails",
     .begin = fail_statements,
     .expect_bitten = expect_failed,
     .end = nothing,
     .reason = "database-error",
     .status = 500,
     .deadline_ms = DEADLINE_MS,
     .pace = {.row_count = 1, .state = "HV000"}},
    {.name = "database out of memory",
     .begin = fail_statements,
     .expect_bitten = expect_failed,
     .end = nothing,
     .reason = "database-unavailable",
     .status = 503,
     .deadline_ms = DEADLINE_MS,
     .pace = {.row_count = 1, .state = "53200"}},
    {.name = "deadlock",
     .begin = fail_statements,
     .expect_bitten = expect_failed,
     .end = nothing,
     .reason = "conflict-retry",
     .status = 503,
     .deadline_ms = DEADLINE_MS,
     .pace = {.row_count = 1, .state = "40P01"}},
    {.name = "statement not valid",
     .begin = fail_statements,
     .expect_bitten = expect_failed,
     .end = nothing,
     .reason = "query-invalid",
     .status = 500,
     .deadline_ms = DEADLINE_MS,
     .pace = {.row_count = 1, .state = "42883"}},
    {.name = "result too large",
     .begin = answer_too_much,
     .expect_bitten = expect_begun,
     .end = nothing,
     .reason = "result-too-large",
     .status = 500,
     .deadline_ms = DEADLINE_MS},
};

enum { FAULT_COUNT = sizeof faults / sizeof faults[0] };

/* --- one row --- */

struct row {
    struct house *house;
    const struct fault *fault;
    int id;
    const struct account *stored; /* what was answered when all was well */
    int64_t worst_us;
};

static char *path_of(const char *folder, int id)
{
    return scratch_format("/%s/%d", folder, id);
}

static char *label_of(const struct row *row, const char *cell)
{
    return scratch_format("%d-%s", row->id, cell);
}

/* With an id of its own, by which its log line is found. */
static struct account ask(struct row *row, const char *cell, const char *folder, int id,
                          const char *more)
{
    char *path = path_of(folder, id), *label = label_of(row, cell);
    char *headers = scratch_format("X-Request-Id: %s\n%s\n%s", label, more != NULL ? more : "",
                                   row->fault->headers != NULL ? row->fault->headers : "");
    struct account account =
        account_of(row->house->weir, &(struct exchange){.path = path, .headers = headers});

    if (account.elapsed_us > row->worst_us)
        row->worst_us = account.elapsed_us;
    free(headers);
    free(label);
    free(path);
    return account;
}

/* Its one line in the log says the same. */
static void expect_logged(const struct row *row, const char *cell, int status, const char *served,
                          bool has_age)
{
    char *label = label_of(row, cell);
    char *needle = scratch_format("\"request_id\":\"%s\"", label);
    char *status_text = scratch_format("\"status\":%d,", status);
    char *served_text =
        scratch_format("\"served\":\"%s\",\"reason\":\"%s\"", served, row->fault->reason);
    char *log, *line;

    assert_true(weir_log_has_within(row->house->weir, needle, BITE_MS));
    log = weir_log(row->house->weir);
    line = strstr(log, needle);
    *strchrnul(line, '\n') = '\0';
    assert_non_null(strstr(line, status_text));
    assert_non_null(strstr(line, served_text));
    assert_int_equal(strstr(line, "\"age_ms\":") != NULL, has_age);
    assert_null(strstr(line + 1, needle));
    free(log);
    free(served_text);
    free(status_text);
    free(needle);
    free(label);
}

static double answers(const struct row *row, const char *folder, const char *served)
{
    char *labels = scratch_format("route=\"GET /%s/{id}\",served=\"%s\",reason=\"%s\"", folder,
                                  served, row->fault->reason);
    double count = weir_metric(row->house->weir, "weir_answers_total", labels);

    free(labels);
    return count > 0 ? count : 0;
}

static void expect_degraded(const struct row *row, const struct account *account,
                            const char *served)
{
    char *degraded =
        scratch_format("%s; dependency=primary; reason=%s", served, row->fault->reason);

    assert_string_equal(account->degraded, degraded);
    assert_string_equal(account->retry_after, "");
    free(degraded);
}

static void expect_stale_headers(const struct row *row, const struct account *account)
{
    int64_t ttl_s = account_ttl_s(account);
    char *status =
        scratch_format("weir; hit; ttl=%lld; detail=%s", (long long)ttl_s, row->fault->reason);
    int64_t age_s = account_age_s(account);

    expect_degraded(row, account, "stale");
    account_assert_age(account, row->stored);
    assert_string_equal(account->cache_status, status);
    /* Its lifetime is 80-100 % of a second. */
    assert_true(ttl_s < 0 && ttl_s >= -age_s - 1 && ttl_s <= 1 - age_s);
    assert_string_equal(account->cache_control, "max-age=0, must-revalidate");
    assert_string_equal(account->etag, row->stored->etag);
    assert_string_equal(account->vary, "Accept");
    free(status);
}

static void expect_stale(struct row *row)
{
    double before = answers(row, "books", "stale");
    struct account account = ask(row, "stale", "books", row->id, NULL);

    assert_int_equal(account.status, 200);
    assert_string_equal(account.body, row->stored->body);
    assert_string_equal(account.content_type, "application/json");
    expect_stale_headers(row, &account);
    expect_logged(row, "stale", 200, "stale", true);
    assert_true(answers(row, "books", "stale") == before + 1);
    account_fini(&account);
}

/* Whoever has it already is told how it stands all the same. */
static void expect_stale_unchanged(struct row *row)
{
    char *condition = scratch_format("If-None-Match: %s", row->stored->etag);
    struct account account = ask(row, "unchanged", "books", row->id, condition);

    assert_int_equal(account.status, 304);
    assert_string_equal(account.body, "");
    expect_stale_headers(row, &account);
    expect_logged(row, "unchanged", 304, "stale", true);
    account_fini(&account);
    free(condition);
}

static void expect_fallback(struct row *row, const char *folder, bool is_cached)
{
    double before = answers(row, folder, "fallback");
    char *status = scratch_format("weir; fwd=miss; detail=%s", row->fault->reason);
    struct account account = ask(row, folder, folder, COLD + row->id, NULL);

    assert_int_equal(account.status, 200);
    assert_string_equal(account.body, FALLBACK);
    assert_string_equal(account.content_type, "application/json");
    expect_degraded(row, &account, "fallback");
    assert_string_equal(account.cache_control, "no-store");
    assert_string_equal(account.cache_status, is_cached ? status : "");
    assert_string_equal(account.vary, is_cached ? "Accept" : "");
    assert_string_equal(account.age, "");
    assert_string_equal(account.etag, "");
    expect_logged(row, folder, 200, "fallback", false);
    assert_true(answers(row, folder, "fallback") == before + 1);
    account_fini(&account);
    free(status);
}

static void expect_problem(const struct row *row, const struct account *account)
{
    const struct fault *fault = row->fault;
    char *type = scratch_format("/problems/%s", fault->reason), *label = label_of(row, "bare");
    json_t *problem = json_loads(account->body, 0, NULL);
    const char *dependency = json_string_value(json_object_get(problem, "dependency"));

    assert_string_equal(account->content_type, "application/problem+json");
    assert_string_equal(json_string_value(json_object_get(problem, "type")), type);
    assert_string_equal(json_string_value(json_object_get(problem, "reason")), fault->reason);
    assert_string_equal(json_string_value(json_object_get(problem, "instance")), label);
    assert_int_equal(json_integer_value(json_object_get(problem, "status")), fault->status);
    assert_string_equal(dependency != NULL ? dependency : "", fault->is_ours ? "" : "primary");
    json_decref(problem);
    free(label);
    free(type);
}

static void expect_error(struct row *row)
{
    double before = answers(row, "bare", "error");
    char *status = scratch_format("weir; fwd=miss; detail=%s", row->fault->reason);
    struct account account = ask(row, "bare", "bare", COLD + row->id, NULL);

    assert_int_equal(account.status, row->fault->status);
    expect_problem(row, &account);
    assert_string_equal(account.degraded, "");
    assert_string_equal(account.cache_control, "no-store");
    assert_string_equal(account.cache_status, status);
    assert_string_equal(account.age, "");
    assert_string_equal(account.etag, "");
    if (row->fault->status == 503)
        assert_true(strtol(account.retry_after, NULL, 10) >= 1);
    else
        assert_string_equal(account.retry_after, "");
    expect_logged(row, "bare", row->fault->status, "error", false);
    assert_true(answers(row, "bare", "error") == before + 1);
    account_fini(&account);
    free(status);
}

struct hope {
    const struct weir_process *weir;
    const char *path;
    int64_t version;
};

static bool is_live(void *context)
{
    const struct hope *hope = context;
    struct account account = account_get(hope->weir, hope->path);
    bool is_well = account.status == 200 && account.degraded[0] == '\0' &&
                   account_number(&account, "version") == hope->version;

    account_fini(&account);
    return is_well;
}

/* What is in the database now comes back on every route and key, whatever was answered before. */
static void expect_recovered(const struct row *row)
{
    int64_t version = paced_set(row->house->pg, PACED_WELL);
    const struct {
        const char *folder;
        int id;
    } keys[] = {{"books", row->id},
                {"books", COLD + row->id},
                {"bare", COLD + row->id},
                {"plain", row->id}};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char *path = path_of(keys[i].folder, keys[i].id);

        assert_true(
            poll_until(is_live, &(struct hope){row->house->weir, path, version}, RECOVER_MS));
        free(path);
    }
}

static void begin_fault(struct row *row)
{
    struct house *house = row->house;

    house->weir = row->fault->is_patient ? house->patient : house->swift;
    house->pace = row->fault->pace;
    house->id = row->id;
    house->before = fault_proxy_counters(house->proxy);
    house->marks_before =
        row->fault->mark != NULL ? private_postgres_log_count(house->pg, row->fault->mark) : 0;
    row->fault->begin(house);
}

/* What the machine itself adds to an answer at a deadline: its timer is late, and then its way from
 * thread to thread. */
struct noise {
    struct noise_meter *timers;
    struct figure_noise *ways;
};

static struct noise noise_start(void)
{
    return (struct noise){.timers = noise_meter_start(), .ways = figure_noise_start()};
}

static int64_t noise_stop_us(const struct noise *noise)
{
    return noise_meter_stop_us(noise->timers) + figure_noise_stop(noise->ways).worst_us;
}

static void judge_times(const struct row *row, const struct noise *noise)
{
    char *what = scratch_format("%s: slowest answer (%s)", row->fault->name, row->fault->reason);

    figure_at_most_us(what, row->worst_us, (row->fault->deadline_ms + LATE_MS) * INT64_C(1000),
                      noise_stop_us(noise));
    free(what);
}

static void play(struct row *row)
{
    struct noise noise = noise_start();
    int64_t ended_ms;
    char *what;

    print_message("%s\n", row->fault->name);
    begin_fault(row);
    expect_stale(row);
    expect_stale_unchanged(row);
    expect_fallback(row, "books", true);
    expect_fallback(row, "plain", false);
    expect_error(row);
    row->fault->expect_bitten(row->house);
    judge_times(row, &noise);

    row->fault->end(row->house);
    ended_ms = exchange_now_ms();
    expect_recovered(row);
    what = scratch_format("%s: until all is live again", row->fault->name);
    figure_at_most_us(what, (exchange_now_ms() - ended_ms) * 1000, RECOVER_MS * INT64_C(1000), 0);
    free(what);
}

static void warm(const struct house *house, struct account stored[FAULT_COUNT])
{
    for (int i = 0; i < FAULT_COUNT; i++) {
        char *path = path_of("books", i);

        stored[i] = account_get(faults[i].is_patient ? house->patient : house->swift, path);
        assert_int_equal(stored[i].status, 200);
        assert_string_equal(stored[i].cache_status, "weir; fwd=miss; stored");
        assert_string_equal(stored[i].degraded, "");
        free(path);
    }
    pass_ms(1100); /* past the lifetime of them all */
}

static void test_every_fault_gives_stale_then_fallback_then_its_error(void **state)
{
    struct house *house = *state;
    struct account stored[FAULT_COUNT];

    warm(house, stored);
    for (int i = 0; i < FAULT_COUNT; i++)
        play(&(struct row){.house = house, .fault = &faults[i], .id = i, .stored = &stored[i]});
    for (int i = 0; i < FAULT_COUNT; i++)
        account_fini(&stored[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_fault_gives_stale_then_fallback_then_its_error,
                                        build, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The command line: mistakes are all told at once and with their place, nothing waits for ever, the
 * log is JSON, and no secret is ever said. */
#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "exchange.h"
#include "fault_proxy.h"
#include "patience.h"
#include "scratch.h"

static const char good_sql[] = "-- GET /good\nSELECT 1 AS a\n";

struct fixture {
    struct private_postgres *pg;
};

static int start_all(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    *state = f;
    return 0;
}

static int stop_all(void **state)
{
    struct fixture *f = *state;

    private_postgres_destroy(f->pg);
    free(f);
    return 0;
}

static struct weir_process *folder_with(const char *dependencies, const struct weir_file *files,
                                        const char *server)
{
    return weir_create(
        &(struct weir_setup){.dependencies = dependencies, .files = files, .server = server});
}

static void expect_words(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strstr(text, *words) == NULL)
            fail_msg("\"%s\" is not in: %s", *words, text);
}

/* --- check --- */

static const struct weir_file wrong_files[] = {
    {"unknown.sql", "-- GET /unknown\nSELECT :nobody AS a\n"},
    {"type.sql", "-- GET /type\n-- @param a int4 mni=1\nSELECT :a\n"},
    {"one.sql", "-- GET /same\nSELECT 1 AS a\n"},
    {"two.sql", "-- GET /same\nSELECT 2 AS a\n"},
    {"write.sql", "-- GET /write\nDELETE FROM items\n"},
    {"second.sql", "-- GET /second\nSELECT 1; SELECT 2\n"},
    {"commit.sql", "-- POST /commit\nCOMMIT\n"},
    {"later.sql", "-- GET /later\n-- @rate 5/s\nSELECT 1 AS a\n"},
    {"first.sql", "-- FETCH /first\nSELECT 1 AS a\n"},
    {"from.sql", "-- GET /from\n-- @from nobody\nSELECT 1 AS a\n"},
    {NULL, NULL},
};
static const char *const wrong_words[] = {"unknown.sql:2:8:",
                                          "type.sql:2:",
                                          "/same",
                                          "write.sql:2:1:",
                                          "second.sql:2:",
                                          "commit.sql:2:1:",
                                          "later.sql:2:",
                                          "not supported yet",
                                          "first.sql:1:",
                                          "from.sql:2:",
                                          NULL};

static void test_check_tells_every_mistake_with_its_place(void **state)
{
    struct fixture *f = *state;
    char *dependencies = exchange_primary(f->pg, 0, NULL);
    struct weir_process *weir = folder_with(dependencies, wrong_files, NULL);
    struct weir_output check = weir_run(weir, (const char *[]){"check", NULL});
    struct weir_output serve = weir_run(weir, (const char *[]){"serve", NULL});

    assert_int_equal(check.exit_code, 1);
    expect_words(check.out, wrong_words);
    assert_int_equal(serve.exit_code, 1);
    expect_words(serve.err, wrong_words);
    weir_output_fini(&serve);
    weir_output_fini(&check);
    weir_destroy(weir);
    free(dependencies);
}

static void test_a_wrong_config_is_told_whole_and_not_served(void **state)
{
    static const char *const words[] = {"weir.json:1:",
                                        "server.prot",
                                        "\"port\"",
                                        "dependencies.primary.query_timeout",
                                        "dependencies.primary.breaker.mode",
                                        "dependencies.other.kind",
                                        NULL};
    static const char dependencies[] =
        "{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=x dbname=x user=x\","
        " \"query_timeout\": \"2 sheep\", \"breaker\": {\"mode\": \"sometimes\"}},"
        " \"other\": {\"kind\": \"oracle\", \"conninfo\": \"\"}}";
    const struct weir_file files[] = {{"good.sql", good_sql}, {NULL, NULL}};
    struct weir_process *weir = folder_with(dependencies, files, "\"prot\": 1");
    struct weir_output serve = weir_run(weir, (const char *[]){"serve", NULL});

    (void)state;
    assert_int_equal(serve.exit_code, 1);
    expect_words(serve.err, words);
    weir_output_fini(&serve);
    weir_write(weir, "../weir.json", "{\"server\": {\"port\": 80,}}");
    serve = weir_run(weir, (const char *[]){"serve", NULL});
    assert_int_equal(serve.exit_code, 1);
    assert_non_null(strstr(serve.err, "weir.json:1:"));
    weir_output_fini(&serve);
    weir_destroy(weir);
}

static void test_usage_errors_exit_2_with_one_line(void **state)
{
    static const char *const rows[][4] = {
        {"serv", NULL}, {"serve", "--nothing", NULL}, {"check", "-c", NULL}, {"serve", "x", NULL}};
    struct fixture *f = *state;
    char *dependencies = exchange_primary(f->pg, 0, NULL);
    struct weir_process *weir = folder_with(dependencies, NULL, NULL);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_output output = weir_run(weir, rows[i]);

        assert_int_equal(output.exit_code, 2);
        assert_int_equal(scratch_count(output.err, "\n"), 1);
        weir_output_fini(&output);
    }
    weir_destroy(weir);
    free(dependencies);
}

/* --- check --connect --- */

static void test_check_connect_finds_what_only_the_server_knows(void **state)
{
    static const struct weir_file files[] = {
        {"column.sql", "-- GET /column\nSELECT id,\n       nme\n  FROM items\n"},
        {"twice.sql", "-- GET /twice\nSELECT i.id, j.id FROM items i JOIN items j USING (id)\n"},
        {"table.sql", "-- GET /table\nSELECT a FROM no_such_table\n"},
        {"type.sql", "-- GET /type\n-- @param a no_such_type\nSELECT :a AS a\n"},
        {"rows.sql", "-- POST /rows\n-- @param t text\nINSERT INTO notes (token) VALUES (:t)\n"},
        {"value.sql", "-- GET /value\n-- @result value\nSELECT 1 AS a, 2 AS b\n"},
        {"good.sql", good_sql},
        {NULL, NULL},
    };
    static const char *const words[] = {
        "column.sql:3:8:",  "\"id\" comes twice", "twice.sql:", "table.sql:2:15:",
        "\"no_such_type\"", "rows.sql:",          "value.sql:", NULL};
    struct fixture *f = *state;
    char *dependencies = exchange_primary(f->pg, 0, NULL);
    struct weir_process *weir = folder_with(dependencies, files, NULL);
    struct weir_output without = weir_run(weir, (const char *[]){"check", NULL});
    struct weir_output with = weir_run(weir, (const char *[]){"check", "--connect", NULL});

    assert_int_equal(without.exit_code, 0);
    assert_int_equal(with.exit_code, 1);
    expect_words(with.out, words);
    assert_null(strstr(with.out, "good.sql"));
    weir_output_fini(&with);
    weir_output_fini(&without);
    weir_destroy(weir);
    free(dependencies);
}

static void expect_refusal_in_time(const char *conninfo, const char *what)
{
    char *dependencies = scratch_format("{\"primary\": {\"kind\": \"postgres\", \"conninfo\": "
                                        "\"%s\", \"connect_timeout\": \"1s\"}}",
                                        conninfo);
    const struct weir_file files[] = {{"good.sql", good_sql}, {NULL, NULL}};
    struct weir_process *weir = folder_with(dependencies, files, NULL);
    int64_t start_ms = exchange_now_ms(), spent_ms, plain_ms, noise_ms;
    struct weir_output output = weir_run(weir, (const char *[]){"check", NULL});
    struct noise_meter *meter = noise_meter_start();

    plain_ms = exchange_now_ms() - start_ms; /* what the same takes without a server */
    assert_int_equal(output.exit_code, 0);
    weir_output_fini(&output);
    start_ms = exchange_now_ms();
    output = weir_run(weir, (const char *[]){"check", "--connect", NULL});
    spent_ms = exchange_now_ms() - start_ms;
    noise_ms = noise_meter_stop_us(meter) / 1000;
    print_message("[figure] check --connect, %s: exit %d after %lld ms (limit: connect_timeout "
                  "1000 + plain check %lld + 500 + %lld ms noise)\n",
                  what, output.exit_code, (long long)spent_ms, (long long)plain_ms,
                  (long long)noise_ms);
    assert_int_equal(output.exit_code, 1);
    assert_true(spent_ms <= 1500 + plain_ms + noise_ms);
    assert_non_null(strstr(output.out, "dependencies.primary"));
    assert_null(strstr(output.out, "s3cr3t"));
    weir_output_fini(&output);
    weir_destroy(weir);
    free(dependencies);
}

static void test_check_connect_gives_up_at_the_connect_timeout(void **state)
{
    struct fixture *f = *state;
    struct fault_proxy *proxy = fault_proxy_create(private_postgres_port(f->pg));
    char *hole = scratch_format("host=127.0.0.1 port=%u dbname=app user=app password=s3cr3t",
                                fault_proxy_port(proxy));
    char *down = scratch_format("host=127.0.0.1 port=%u dbname=app user=app password=s3cr3t",
                                scratch_port());

    expect_refusal_in_time(down, "nobody listens");
    fault_proxy_set_mode(proxy, FAULT_BLACK_HOLE);
    expect_refusal_in_time(hole, "a black hole");
    assert_true(fault_proxy_counters(proxy).accepted_count > 0);
    fault_proxy_set_mode(proxy, FAULT_UNANSWERED);
    expect_refusal_in_time(hole, "no answer to a SYN");
    expect_refusal_in_time("host=no.such.host.invalid dbname=app user=app password=s3cr3t",
                           "no such name");
    free(down);
    free(hole);
    fault_proxy_destroy(proxy);
}

/* --- ports, health --- */

static int listen_on(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void test_a_taken_port_is_named_and_exits_1(void **state)
{
    struct fixture *f = *state;
    char *dependencies = exchange_primary(f->pg, 0, NULL);
    const struct weir_file files[] = {{"good.sql", good_sql}, {NULL, NULL}};
    struct weir_process *weir = folder_with(dependencies, files, NULL);
    const uint16_t ports[] = {weir_port(weir), weir_admin_port(weir)};

    for (size_t i = 0; i < 2; i++) {
        int taken = listen_on(ports[i]);
        struct weir_output output = weir_run(weir, (const char *[]){"serve", NULL});
        char *port = scratch_format("%u", ports[i]);

        assert_int_equal(output.exit_code, 1);
        expect_words(output.err, (const char *const[]){"127.0.0.1", port, NULL});
        free(port);
        weir_output_fini(&output);
        (void)close(taken);
    }
    weir_destroy(weir);
    free(dependencies);
}

static void test_the_health_command_says_what_health_says(void **state)
{
    struct fixture *f = *state;
    char *dependencies = exchange_primary(f->pg, 0, NULL);
    const struct weir_file files[] = {{"good.sql", good_sql}, {NULL, NULL}};
    struct weir_process *weir = folder_with(dependencies, files, NULL);
    struct weir_output before = weir_run(weir, (const char *[]){"health", NULL}), up, down;
    struct http_answer answer;
    char *url;

    assert_int_equal(before.exit_code, 1); /* nobody is there */
    weir_start(weir);
    assert_true(exchange_is_healthy_within(weir, 10000));
    up = weir_run(weir, (const char *[]){"health", NULL});
    assert_int_equal(up.exit_code, 0);
    answer = exchange_ask_admin(weir, &(struct exchange){.path = "/breakers/primary",
                                                         .body = "{\"mode\":\"forced-open\"}"});
    assert_int_equal(answer.status, 200);
    url = weir_url(weir, "/health");
    down = weir_run(weir, (const char *[]){"health", url, NULL});
    assert_int_equal(down.exit_code, 1);
    assert_true(strlen(down.out) + strlen(down.err) > 0);
    assert_int_equal(weir_stop(weir, 10000), 0);
    free(url);
    http_answer_fini(&answer);
    weir_output_fini(&down);
    weir_output_fini(&up);
    weir_output_fini(&before);
    weir_destroy(weir);
    free(dependencies);
}

/* --- the log, and secrets --- */

static void assert_log_line(const char *line, size_t size)
{
    static const char *const of_requests[] = {"request_id", "route",  "status",  "duration_ms",
                                              "served",     "reason", "attempts"};
    json_error_t where;
    json_t *entry = json_loadb(line, size, JSON_REJECT_DUPLICATES, &where);
    const char *event;

    if (entry == NULL)
        fail_msg("no JSON: %.*s", (int)size, line);
    event = json_string_value(json_object_get(entry, "event"));
    assert_true(json_is_string(json_object_get(entry, "time")));
    assert_true(json_is_string(json_object_get(entry, "level")));
    assert_non_null(event);
    for (size_t i = 0; strcmp(event, "request") == 0 && i < 7; i++)
        if (json_object_get(entry, of_requests[i]) == NULL)
            fail_msg("no %s: %.*s", of_requests[i], (int)size, line);
    json_decref(entry);
}

static void assert_says_no_secret(const char *where, const char *text)
{
    static const char *const secrets[] = {"first-Secret-77",   "wr0ng-passw0rd",
                                          "va1ue-of-a-caller", "SELECT",
                                          "fail_with",         "words of the server"};

    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
        if (strstr(text, secrets[i]) != NULL)
            fail_msg("%s says \"%s\": %s", where, secrets[i], text);
}

static void test_logs_are_json_and_nothing_says_a_secret(void **state)
{
    static const struct weir_file files[] = {
        {"fail.sql", "-- GET /fail/{v}\n-- @param v text\n-- @from open\nSELECT fail_with('XX000')"
                     " AS a, :v AS v\n"},
        {"cast.sql", "-- GET /cast/{v}\n-- @param v text\n-- @from open\nSELECT :v::int4 AS a\n"},
        {"int.sql", "-- GET /int/{v}\n-- @param v int4\n-- @from open\nSELECT :v AS a\n"},
        {"wrong.sql", "-- GET /wrong/{v}\n-- @param v text\n-- @from wrong\nSELECT :v AS a\n"},
        {"gone.sql", "-- GET /gone/{v}\n-- @param v text\n-- @from open\nSELECT gone, :v AS a FROM "
                     "items\n"},
        {NULL, NULL},
    };
    static const char *const paths[] = {"/fail/va1ue-of-a-caller", "/cast/va1ue-of-a-caller",
                                        "/int/va1ue-of-a-caller",  "/wrong/va1ue-of-a-caller",
                                        "/gone/va1ue-of-a-caller", "/va1ue-of-a-caller"};
    static const char *const pages[] = {"/health", "/metrics", "/status"};
    struct fixture *f = *state;
    char *dependencies = scratch_format(
        "{\"open\": {\"kind\": \"postgres\", \"conninfo\": \"host=127.0.0.1 port=%u dbname=app "
        "user=secured password=first-Secret-77\"},"
        " \"wrong\": {\"kind\": \"postgres\", \"conninfo\": \"host=127.0.0.1 port=%u dbname=app "
        "user=secured password=wr0ng-passw0rd\"}}",
        private_postgres_port(f->pg), private_postgres_port(f->pg));
    struct weir_process *weir = weir_create(&(struct weir_setup){
        .dependencies = dependencies, .files = files, .log = "\"level\": \"debug\""});
    struct weir_output check;
    char *log;
    size_t lines = 0;

    weir_start(weir);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct http_answer answer = exchange_ask(weir, &(struct exchange){.path = paths[i]});

        assert_true(answer.status >= 400);
        assert_says_no_secret(paths[i], answer.body);
        http_answer_fini(&answer);
    }
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        struct http_answer answer = exchange_ask_admin(weir, &(struct exchange){.path = pages[i]});

        assert_says_no_secret(pages[i], answer.body);
        http_answer_fini(&answer);
    }
    check = weir_run(weir, (const char *[]){"check", "--connect", NULL});
    assert_null(strstr(check.out, "first-Secret-77"));
    assert_null(strstr(check.out, "wr0ng-passw0rd"));
    assert_int_equal(weir_stop(weir, 20000), 0);
    log = weir_log(weir);
    for (const char *line = log; *line != '\0'; lines++) {
        size_t size = strcspn(line, "\n");

        assert_log_line(line, size);
        line += size + (line[size] != '\0' ? 1 : 0);
    }
    assert_says_no_secret("the log", log);
    assert_true(strstr(log, "\"sqlstate\":\"28P01\"") != NULL);
    print_message("[figure] log lines that are JSON: %zu of %zu\n", lines, lines);
    free(log);
    weir_output_fini(&check);
    weir_destroy(weir);
    free(dependencies);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_tells_every_mistake_with_its_place),
        cmocka_unit_test(test_a_wrong_config_is_told_whole_and_not_served),
        cmocka_unit_test(test_usage_errors_exit_2_with_one_line),
        cmocka_unit_test(test_check_connect_finds_what_only_the_server_knows),
        cmocka_unit_test(test_check_connect_gives_up_at_the_connect_timeout),
        cmocka_unit_test(test_a_taken_port_is_named_and_exits_1),
        cmocka_unit_test(test_the_health_command_says_what_health_says),
        cmocka_unit_test(test_logs_are_json_and_nothing_says_a_secret),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}

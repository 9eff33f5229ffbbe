/* What a config file may say, and what is said about its mistakes. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/complaint.h"
#include "cmocka_all.h"
#include "config/config.h"

/* A folder with api/ok.sql and, after load(), weir.json. */
struct fixture {
    char folder[64], file[96], api[96], sql[96];
    struct complaints complaints;
    struct config *config;
};

static void file_write(const char *name, const char *text)
{
    FILE *stream = fopen(name, "w");

    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/weir-config-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->file, sizeof f->file, "%s/weir.json", f->folder);
    (void)snprintf(f->api, sizeof f->api, "%s/api", f->folder);
    (void)snprintf(f->sql, sizeof f->sql, "%s/api/ok.sql", f->folder);
    assert_int_equal(mkdir(f->api, 0700), 0);
    file_write(f->sql, "-- GET /ok\n-- @result value\nSELECT 1\n");
    complaints_init(&f->complaints);
    *state = f;
    return 0;
}

static void unload(struct fixture *f)
{
    config_destroy(f->config);
    f->config = NULL;
    complaints_fini(&f->complaints);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    unload(f);
    (void)unlink(f->sql);
    (void)rmdir(f->api);
    (void)unlink(f->file);
    (void)rmdir(f->folder);
    free(f);
    return 0;
}

static void load(struct fixture *f, const char *text)
{
    unload(f);
    file_write(f->file, text);
    f->config = config_load(f->file, &f->complaints);
}

static void print_complaints(struct fixture *f)
{
    complaints_print(&f->complaints, stdout);
}

/* Exactly this complaint about weir.json, and no other. */
static void assert_says(struct fixture *f, int line, int column, const char *text)
{
    const struct complaint *found = NULL;
    size_t count = 0;

    for (size_t i = 0; i < f->complaints.count; i++) {
        if (strcmp(f->complaints.items[i].file, f->file) == 0) {
            found = &f->complaints.items[i];
            count++;
        }
    }
    if (count != 1 || found->line != line || found->column != column ||
        strcmp(found->text, text) != 0) {
        print_complaints(f);
        fail_msg("expected only %d:%d: %s", line, column, text);
    }
}

static void assert_good(struct fixture *f)
{
    if (f->complaints.count != 0)
        print_complaints(f);
    assert_int_equal(f->complaints.count, 0);
    assert_non_null(f->config);
}

#define DB      "\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"host=x\"}"
#define WITH_DB "\"dependencies\": {" DB "}"

static void test_the_shortest_config_has_the_documented_defaults(void **state)
{
    struct fixture *f = *state;
    const struct dependency_config *d;

    load(f, "{" WITH_DB "}");
    assert_good(f);
    assert_string_equal(f->config->server.address, "0.0.0.0");
    assert_int_equal(f->config->server.port, 8080);
    assert_int_equal(f->config->server.workers, 2);
    assert_int_equal(f->config->server.max_connections, 4096);
    assert_int_equal(f->config->server.max_body_bytes, 1 << 20);
    assert_int_equal(f->config->server.max_uri_bytes, 8 << 10);
    assert_int_equal(f->config->server.header_timeout_us, 10000000);
    assert_int_equal(f->config->server.body_timeout_us, 30000000);
    assert_int_equal(f->config->server.idle_timeout_us, 75000000);
    assert_int_equal(f->config->server.write_timeout_us, 30000000);
    assert_int_equal(f->config->server.request_timeout_us, 5000000);
    assert_int_equal(f->config->server.caller_timeout_us, 30000000);
    assert_int_equal(f->config->server.drain_delay_us, 0);
    assert_int_equal(f->config->server.drain_timeout_us, 8000000);
    assert_int_equal(f->config->server.max_memory_bytes, 512 << 20);
    assert_int_equal(f->config->server.cors_origin_count, 0);
    assert_string_equal(f->config->admin.address, "127.0.0.1");
    assert_int_equal(f->config->admin.port, 8081);
    assert_null(f->config->admin.token_file);
    assert_int_equal(f->config->log.level, LOG_INFO);
    assert_int_equal(f->config->log.format, LOG_JSON);
    assert_int_equal(f->config->log.access, ACCESS_ALL);
    assert_int_equal(f->config->cache.max_bytes, 64 << 20);
    assert_string_equal(f->config->api_folder, f->api);

    assert_int_equal(f->config->dependency_count, 1);
    d = &f->config->dependencies[0];
    assert_string_equal(d->name, "primary");
    assert_string_equal(d->conninfo, "host=x");
    assert_null(d->password_file);
    assert_false(d->is_read_only);
    assert_int_equal(d->connections, 8);
    assert_true(d->prepare);
    assert_false(d->is_production);
    assert_int_equal(d->connect_timeout_us, 2000000);
    assert_int_equal(d->query_timeout_us, 2000000);
    assert_int_equal(d->max_lifetime_us, 1800000000);
    assert_int_equal(d->idle_timeout_us, 300000000);
    assert_int_equal(d->bulkhead.max_concurrent, 8);
    assert_int_equal(d->bulkhead.max_queued, 0);
    assert_int_equal(d->bulkhead.queue_timeout_us, 100000);
    assert_int_equal(d->breaker.failure_threshold, 5);
    assert_int_equal(d->breaker.reset_timeout_us, 30000000);
    assert_int_equal(d->breaker.max_reset_timeout_us, 300000000);
    assert_int_equal(d->breaker.half_open_calls, 1);
    assert_int_equal(d->breaker.mode, BREAKER_AUTO);
    assert_int_equal(d->probe.interval_us, 1000000);
    assert_int_equal(d->probe.idle_us, 10000000);
    assert_int_equal(d->probe.timeout_us, 3000000);
}

static void test_what_is_given_is_stored(void **state)
{
    struct fixture *f = *state;
    const struct dependency_config *d;
    char path[128];

    load(
        f,
        "{\"server\": {\"address\": \"::1\", \"port\": 1, \"max_uri\": \"1KiB\",\n"
        " \"cors_origins\": [\"https://a.example\", \"http://b:3000\"], \"trusted_proxies\": []},\n"
        " \"admin\": {\"token_file\": \"token\"}, \"log\": {\"level\": \"warn\",\n"
        " \"format\": \"text\", \"access\": \"none\", \"parameters\": false},\n"
        " \"cache\": {\"max_bytes\": \"64KiB\", \"shared\": null, \"file\": null},\n"
        " \"dependencies\": {\"z_db-2\": {\"kind\": \"postgres\", \"conninfo\": \"host=y\",\n"
        " \"password_file\": \"/run/secrets/pw\", \"access\": \"read\", \"connections\": 4,\n"
        " \"prepare\": true, \"max_lag\": null, \"production\": true, \"query_timeout\": \"5s\",\n"
        " \"bulkhead\": {\"max_concurrent\": 3, \"max_queued\": 9},\n"
        " \"breaker\": {\"half_open_calls\": 255, \"mode\": \"disabled\", \"slow_rate\": null},\n"
        " \"retry\": {\"attempts\": 1, \"base\": \"10ms\", \"cap\": \"1s\", \"budget\": 0.5},\n"
        " \"probe\": {\"path\": \"/up\", \"interval\": \"1h\"}}, " DB "}}");
    if (f->complaints.error_count > 0)
        print_complaints(f);
    assert_int_equal(f->complaints.error_count, 0);
    assert_string_equal(f->config->server.address, "::1");
    assert_int_equal(f->config->server.port, 1);
    assert_int_equal(f->config->server.max_uri_bytes, 1024);
    assert_int_equal(f->config->server.cors_origin_count, 2);
    assert_string_equal(f->config->server.cors_origins[1], "http://b:3000");
    (void)snprintf(path, sizeof path, "%s/token", f->folder);
    assert_string_equal(f->config->admin.token_file, path);
    assert_int_equal(f->config->log.level, LOG_WARN);
    assert_int_equal(f->config->log.format, LOG_TEXT);
    assert_int_equal(f->config->log.access, ACCESS_NONE);
    assert_int_equal(f->config->cache.max_bytes, 65536);
    assert_int_equal(f->config->dependency_count, 2);
    d = &f->config->dependencies[0];
    assert_string_equal(d->name, "z_db-2");
    assert_string_equal(d->password_file, "/run/secrets/pw");
    assert_true(d->is_read_only);
    assert_true(d->is_production);
    assert_int_equal(d->connections, 4);
    assert_int_equal(d->bulkhead.max_concurrent, 3);
    assert_int_equal(d->bulkhead.max_queued, 9);
    assert_int_equal(d->breaker.half_open_calls, 255);
    assert_int_equal(d->breaker.mode, BREAKER_DISABLED);
    assert_int_equal(d->probe.interval_us, INT64_C(3600000000));
    assert_string_equal(f->config->dependencies[1].name, "primary");
}

static void test_paths_start_at_the_folder_of_the_config(void **state)
{
    struct fixture *f = *state;
    char here[256], path[128];

    file_write(f->file, "{\"admin\": {\"token_file\": \"a/../token\"}, " WITH_DB "}");
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(f->folder), 0);
    f->config = config_load("weir.json", &f->complaints);
    (void)snprintf(path, sizeof path, "%s/a/../token", f->folder);
    assert_string_equal(f->config->admin.token_file, path);
    assert_string_equal(f->config->api_folder, "api");
    unload(f);

    assert_int_equal(chdir("/tmp"), 0);
    f->config = config_load(f->file + strlen("/tmp/"), &f->complaints);
    assert_string_equal(f->config->admin.token_file, path);
    assert_string_equal(f->config->api_folder, f->api + strlen("/tmp/"));
    assert_int_equal(chdir(here), 0);
}

static void test_a_secret_file_that_is_not_there_is_a_warning(void **state)
{
    struct fixture *f = *state;

    load(f, "{\"admin\": {\n\"token_file\": \"nowhere\"}, " WITH_DB "}");
    assert_int_equal(f->complaints.error_count, 0);
    assert_says(f, 2, 15,
                "admin.token_file: the file cannot be read now: No such file or directory");
}

struct mistake {
    const char *text;
    int line, column;
    const char *says;
};

#define DURATION_WORDS                                                                             \
    "must be a duration such as \"250ms\", \"2s\", \"1m\" or \"1h\", from 1ms to 1h"
#define DEP_WITH(more)                                                                             \
    "{\"dependencies\": {\"primary\": {\"kind\": \"postgres\",\n"                                  \
    " \"conninfo\": \"host=x\",\n  " more "}}}"

static const struct mistake mistakes[] = {
    {"[]", 1, 1, "must be an object: { ... }"},
    {"{\n \"servre\": {}, " WITH_DB "}", 2, 2, "servre: unknown key; did you mean \"server\"?"},
    {"{\n \"zzz\": 1, " WITH_DB "}", 2, 2, "zzz: unknown key"},
    {"{\"a\\nb\": 1, " WITH_DB "}", 1, 2, "a?b: unknown key"},
    {"{\"server.port\": 1, " WITH_DB "}", 1, 2, "server.port: unknown key"},
    {"{\"server\": [], " WITH_DB "}", 1, 12, "server: must be an object: { ... }"},
    {"{\"server\": {\"port\": 99999}, " WITH_DB "}", 1, 21,
     "server.port: must be a whole number from 1 to 65535"},
    {"{\"server\": {\"port\": 80.5}, " WITH_DB "}", 1, 21,
     "server.port: must be a whole number from 1 to 65535"},
    {"{\"server\": {\"port\": null}, " WITH_DB "}", 1, 21,
     "server.port: must be a whole number from 1 to 65535"},
    {"{\"server\": {\"port\": 1,\n \"port\": 2}, " WITH_DB "}", 2, 2, "server.port: given twice"},
    {"{\"server\": {\"port\": 8081}, " WITH_DB "}", 1, 21,
     "server.port: 8081 is admin.port too; they must differ"},
    {"{\"server\": {\"port\": 80}, \"admin\": {\"port\": 80}, " WITH_DB "}", 1, 44,
     "admin.port: 80 is server.port too; they must differ"},
    {"{\"server\": {\"address\": \"localhost\"}, " WITH_DB "}", 1, 24,
     "server.address: must be an IPv4 or IPv6 address such as \"127.0.0.1\""},
    {"{\"server\": {\"request_timeout\": \"5 parsecs\"}, " WITH_DB "}", 1, 32,
     "server.request_timeout: " DURATION_WORDS},
    {"{\"server\": {\"request_timeout\": 5}, " WITH_DB "}", 1, 32,
     "server.request_timeout: " DURATION_WORDS},
    {"{\"server\": {\"request_timeout\": \"-1s\"}, " WITH_DB "}", 1, 32,
     "server.request_timeout: " DURATION_WORDS},
    {"{\"server\": {\"request_timeout\": \"0s\"}, " WITH_DB "}", 1, 32,
     "server.request_timeout: " DURATION_WORDS},
    {"{\"server\": {\"request_timeout\": \"99999999999999999999h\"}, " WITH_DB "}", 1, 32,
     "server.request_timeout: " DURATION_WORDS},
    {"{\"server\": {\"max_body\": \"1MB!\"}, " WITH_DB "}", 1, 25,
     "server.max_body: must be a size such as \"64KiB\" or \"1MiB\", from 1B to 1GiB"},
    {"{\"server\": {\"cors_origins\": [\"*\",\n 7]}, " WITH_DB "}", 2, 2,
     "server.cors_origins: must be a list of origins such as \"https://app.example\", or [\"*\"]"},
    {"{\"server\": {\"cors_origins\": [\"https://a.example/\"]}, " WITH_DB "}", 1, 30,
     "server.cors_origins: must be a list of origins such as \"https://app.example\", or [\"*\"]"},
    {"{\"server\": {\"trusted_proxies\": [\"10.0.0.1\"]}, " WITH_DB "}", 1, 32,
     "server.trusted_proxies: anything but [] is not supported yet"},
    {"{\"auth\": {\"tokens_file\": \"t\"}, " WITH_DB "}", 1, 2,
     "auth: not supported yet; leave it out"},
    {"{\"cache\": {\"shared\": \"redis\"}, " WITH_DB "}", 1, 22,
     "cache.shared: anything but null is not supported yet"},
    {"{\"log\": {\"level\": \"loud\"}, " WITH_DB "}", 1, 19,
     "log.level: must be one of \"debug\", \"info\", \"warn\", \"error\""},
    {"{\"log\": {\"parameters\": true}, " WITH_DB "}", 1, 24,
     "log.parameters: anything but false is not supported yet"},
    {"{\"cache\": {\"file\": \"cache.bin\"}, " WITH_DB "}", 1, 20,
     "cache.file: anything but null is not supported yet"},
    {"{\"cache\": {\"max_bytes\": \"65535B\"}, " WITH_DB "}", 1, 25,
     "cache.max_bytes: must be a size such as \"64KiB\" or \"1MiB\", from 64KiB to 1024GiB"},
    {"{\"cache\": {\"max_bytes\": 0}, " WITH_DB "}", 1, 25,
     "cache.max_bytes: must be a size such as \"64KiB\" or \"1MiB\", from 64KiB to 1024GiB"},
    {"{\"cache\": {\"max_byte\": \"1MiB\"}, " WITH_DB "}", 1, 12,
     "cache.max_byte: unknown key; did you mean \"max_bytes\"?"},
    {"{\"log\": {\"parameters\": 1}, " WITH_DB "}", 1, 24, "log.parameters: must be true or false"},
    {"{\"api\": \"nowhere\", " WITH_DB "}", 1, 9, NULL},
    {"{\"api\": \"\", " WITH_DB "}", 1, 9, "api: must be a string of 1 to 4096 characters"},
    {"{\"api\": \"a${WT_UNSET}\", " WITH_DB "}", 1, 11,
     "api: the environment has no WT_UNSET; set it, or write ${WT_UNSET:-default}"},
    {"{\"api\": \"\\\"\\n${WT_SET}/${WT_UNSET}\", " WITH_DB "}", 1, 24,
     "api: the environment has no WT_UNSET; set it, or write ${WT_UNSET:-default}"},

    {"{\"dependencies\": {\n\"primary\": {\"kind\": \"postgres\"}}}", 2, 1,
     "dependencies.primary.conninfo: is missing; it has no default"},
    {"{\"dependencies\": {\"primary\": {\"conninfo\": \"host=x\"}}}", 1, 19,
     "dependencies.primary.kind: is missing; it has no default"},
    {"{\"dependencies\": {\"primary\": 7}}", 1, 30,
     "dependencies.primary: must be an object: { ... }"},
    {"{\"dependencies\": {" DB ", \"Big\": {\"kind\": \"postgres\", \"conninfo\": \"x\"}}}", 1, 74,
     "dependencies.Big: a name is 1 to 32 of a-z, 0-9, _ and -"},
    {"{\"dependencies\": {" DB ",\n" DB "}}", 2, 1, "dependencies.primary: given twice"},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"oracle\", \"conninfo\": \"x\"}}}", 1, 39,
     "dependencies.primary.kind: must be \"postgres\""},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"redis\", \"url\": \"x\"}}}", 1, 39,
     "dependencies.primary.kind: \"redis\" is not supported yet"},
    {"{\"dependencies\": {\"primary\": {\"kind\": \"http\", \"base_url\": \"x\"}}}", 1, 39,
     "dependencies.primary.kind: \"http\" is not supported yet"},

    {DEP_WITH("\"querytimeout\": \"1s\""), 3, 3,
     "dependencies.primary.querytimeout: unknown key; did you mean \"query_timeout\"?"},
    {DEP_WITH("\"bulkhead\": {\"max_concurent\": 8}"), 3, 16,
     "dependencies.primary.bulkhead.max_concurent: unknown key; did you mean \"max_concurrent\"?"},
    {DEP_WITH("\"bulkhead\": {\"max_concurrent\": 0}"), 3, 34,
     "dependencies.primary.bulkhead.max_concurrent: must be a whole number from 1 to 65535"},
    {DEP_WITH("\"bulkhead\": {\"max_concurrent\": \"8\"}"), 3, 34,
     "dependencies.primary.bulkhead.max_concurrent: must be a whole number from 1 to 65535"},
    {DEP_WITH("\"breaker\": {\"failure_threshold\": -1}"), 3, 36,
     "dependencies.primary.breaker.failure_threshold: must be a whole number from 1 to 1000000"},
    {DEP_WITH("\"breaker\": {\"half_open_calls\": 256}"), 3, 34,
     "dependencies.primary.breaker.half_open_calls: must be a whole number from 1 to 255"},
    {DEP_WITH("\"breaker\": {\"mode\": \"shadow\"}"), 3, 23,
     "dependencies.primary.breaker.mode: \"shadow\" is not supported yet"},
    {DEP_WITH("\"breaker\": {\"failure_rate\": 0.5}"), 3, 31,
     "dependencies.primary.breaker.failure_rate: anything but null is not supported yet"},
    {DEP_WITH("\"breaker\": {\"failure_rate\": 1.5}"), 3, 31,
     "dependencies.primary.breaker.failure_rate: must be a number from 0 to 1, or null"},
    {DEP_WITH("\"breaker\": {\"slow_after\": \"1s\"}"), 3, 29,
     "dependencies.primary.breaker.slow_after: anything but null is not supported yet"},
    {DEP_WITH("\"retry\": {\"attempts\": 3}"), 3, 25,
     "dependencies.primary.retry.attempts: anything but 1 is not supported yet"},
    {DEP_WITH("\"prepare\": false"), 3, 14,
     "dependencies.primary.prepare: anything but true is not supported yet"},
    {DEP_WITH("\"max_lag\": \"10s\""), 3, 14,
     "dependencies.primary.max_lag: anything but null is not supported yet"},
    {DEP_WITH("\"connections\": 4"), 3, 18,
     "dependencies.primary.connections: fewer connections than bulkhead.max_concurrent (8) would "
     "be shared between calls, which is not supported yet; leave it out, or give at least as many"},

    {DEP_WITH("\"query_timeout\": \"6s\""), 3, 20,
     "dependencies.primary.query_timeout: 6s must not be longer than server.request_timeout, 5s"},
    {DEP_WITH("\"connect_timeout\": \"5s\""), 3, 22,
     "dependencies.primary.connect_timeout: 5s must be shorter than server.request_timeout, 5s"},
    {DEP_WITH("\"breaker\": {\"reset_timeout\": \"6m\"}"), 3, 32,
     "dependencies.primary.breaker.reset_timeout: 6m must not be longer than "
     "breaker.max_reset_timeout, 5m"},
    {DEP_WITH("\"breaker\": {\"max_reset_timeout\": \"1s\"}"), 3, 36,
     "dependencies.primary.breaker.max_reset_timeout: 1s is too short: breaker.reset_timeout, 30s, "
     "must not be longer than it"},
    {"{\"server\": {\"caller_timeout\": \"5s\"}, " WITH_DB "}", 1, 31,
     "server.caller_timeout: 5s is too short: server.request_timeout, 5s, must be shorter than it"},
    {"{\"server\": {\"request_timeout\": \"30s\"}, " WITH_DB "}", 1, 32,
     "server.request_timeout: 30s must be shorter than server.caller_timeout, 30s"},
};

static void test_each_mistake_is_told_at_its_place(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        char text[256];
        const char *says = mistakes[i].says;

        load(f, mistakes[i].text);
        (void)snprintf(text, sizeof text,
                       "api: folder %s/nowhere cannot be read: No such file or directory",
                       f->folder);
        assert_says(f, mistakes[i].line, mistakes[i].column, says != NULL ? says : text);
        assert_true(f->complaints.error_count > 0);
    }
}

static void test_a_default_that_is_out_of_order_is_told_at_its_owner(void **state)
{
    struct fixture *f = *state;

    load(f, "{\"server\": {\"request_timeout\": \"2s\"},\n " WITH_DB "}");
    assert_says(f, 2, 19,
                "dependencies.primary.connect_timeout (its default): 2s must be shorter than "
                "server.request_timeout, 2s");
}

static void test_all_mistakes_are_told_at_once(void **state)
{
    struct fixture *f = *state;

    load(f, "{\"server\": {\"request_timeout\": \"soon\", \"wrokers\": 1, \"workers\": 0},\n"
            " \"dependencies\": {\"primary\": {\"kind\": \"postgres\", \"query_timeout\": \"6s\",\n"
            " \"bulkhead\": {\"max_concurent\": 4}}}}");
    assert_int_equal(f->complaints.error_count, 5);
}

static void test_a_dependency_with_mistakes_can_still_be_looked_at(void **state)
{
    struct fixture *f = *state;

    load(f, "{\"dependencies\": {\"a\": {}, \"b\": {\"kind\": \"http\"}, \"c\": 1}}");
    assert_int_equal(f->config->dependency_count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(f->config->dependencies[i].conninfo, "");
}

static void test_an_unreadable_file_is_named(void **state)
{
    struct fixture *f = *state;

    f->config = config_load("/nowhere/weir.json", &f->complaints);
    assert_null(f->config);
    assert_int_equal(f->complaints.count, 1);
    assert_string_equal(f->complaints.items[0].file, "/nowhere/weir.json");
    assert_string_equal(f->complaints.items[0].text, "cannot be read: No such file or directory");
    unload(f);

    f->config = config_load(f->folder, &f->complaints);
    assert_null(f->config);
    assert_int_equal(f->complaints.count, 1);
    unload(f);

    f->config = config_load("/dev/zero", &f->complaints);
    assert_null(f->config);
    assert_string_equal(f->complaints.items[0].text, "is larger than 4 MiB");
}

static void test_broken_json_is_told_with_its_place(void **state)
{
    struct fixture *f = *state;

    load(f, "{\n \"server\": {\"port\": 1,,}}");
    assert_null(f->config);
    assert_int_equal(f->complaints.count, 1);
    assert_int_equal(f->complaints.items[0].line, 2);
    assert_memory_equal(f->complaints.items[0].text, "no valid JSON: ", 15);
}

static void test_the_environment_never_shows_in_a_complaint(void **state)
{
    struct fixture *f = *state;

    load(f, "{\"api\": \"${WT_UNSET:-api}\", \"log\": {\"level\": \"${WT_SET}\"}, " WITH_DB "}");
    assert_says(f, 1, 46, "log.level: must be one of \"debug\", \"info\", \"warn\", \"error\"");
}

static void test_the_environment_is_put_into_values(void **state)
{
    struct fixture *f = *state;

    load(f, "{\"dependencies\": {\"primary\": {\"kind\": \"postgres\",\n"
            " \"conninfo\": \"host=${WT_SET} dbname=${WT_UNSET:-app} user=$${x}\"}}}");
    assert_good(f);
    assert_string_equal(f->config->dependencies[0].conninfo, "host=hush dbname=app user=${x}");
}

static void test_the_health_url_is_where_the_admin_port_listens(void **state)
{
    static const struct {
        const char *admin, *url;
    } cases[] = {
        {"{}", "http://127.0.0.1:8081/health"},
        {"{\"address\": \"0.0.0.0\", \"port\": 9}", "http://127.0.0.1:9/health"},
        {"{\"address\": \"10.1.2.3\"}", "http://10.1.2.3:8081/health"},
        {"{\"address\": \"::\"}", "http://[::1]:8081/health"},
        {"{\"address\": \"fd00::2\"}", "http://[fd00::2]:8081/health"},
    };
    struct fixture *f = *state;
    char text[256], url[256];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(text, sizeof text, "{\"server\": {\"wrong\": 1}, \"admin\": %s}",
                       cases[i].admin);
        file_write(f->file, text);
        assert_true(config_admin_health_url(f->file, url, sizeof url));
        assert_string_equal(url, cases[i].url);
    }
}

static void test_without_a_health_url_the_reason_is_told(void **state)
{
    struct fixture *f = *state;
    char text[256];

    file_write(f->file, "{\"admin\": {\"port\": \"x\"}}");
    assert_false(config_admin_health_url(f->file, text, sizeof text));
    assert_non_null(strstr(text, "weir.json:1:20: admin.port: must be a whole number"));
    assert_false(config_admin_health_url("/nowhere/weir.json", text, sizeof text));
    assert_non_null(strstr(text, "/nowhere/weir.json:1:1: cannot be read"));
}

static void test_the_file_is_the_given_one_then_the_environments(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("WEIR_CONFIG"), 0);
    assert_string_equal(config_file_name("a.json"), "a.json");
    assert_string_equal(config_file_name(NULL), "weir.json");
    assert_int_equal(setenv("WEIR_CONFIG", "/b.json", 1), 0);
    assert_string_equal(config_file_name("a.json"), "a.json");
    assert_string_equal(config_file_name(NULL), "/b.json");
}

static int environment_set(void **state)
{
    (void)state;
    return setenv("WT_SET", "hush", 1) | unsetenv("WT_UNSET");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_shortest_config_has_the_documented_defaults),
        TEST(test_what_is_given_is_stored),
        TEST(test_paths_start_at_the_folder_of_the_config),
        TEST(test_a_secret_file_that_is_not_there_is_a_warning),
        TEST(test_each_mistake_is_told_at_its_place),
        TEST(test_a_default_that_is_out_of_order_is_told_at_its_owner),
        TEST(test_all_mistakes_are_told_at_once),
        TEST(test_a_dependency_with_mistakes_can_still_be_looked_at),
        TEST(test_an_unreadable_file_is_named),
        TEST(test_broken_json_is_told_with_its_place),
        TEST(test_the_environment_never_shows_in_a_complaint),
        TEST(test_the_environment_is_put_into_values),
        TEST(test_the_health_url_is_where_the_admin_port_listens),
        TEST(test_without_a_health_url_the_reason_is_told),
        TEST(test_the_file_is_the_given_one_then_the_environments),
    };

    return cmocka_run_group_tests(tests, environment_set, NULL);
}

#include "config/config_fields.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "config/config.h"

/* clang-format off */
static const struct field_word kinds[] = {
    {"postgres", 0, false}, {"http", 0, true}, {"redis", 0, true}, {NULL, 0, false}};
static const struct field_word accesses[] = {
    {"read-write", false, false}, {"read", true, false}, {NULL, 0, false}};
static const struct field_word modes[] = {
    {"auto", BREAKER_AUTO, false}, {"forced-open", BREAKER_FORCED_OPEN, false},
    {"disabled", BREAKER_DISABLED, false}, {"shadow", 0, true}, {NULL, 0, false}};
static const struct field_word levels[] = {
    {"debug", LOG_DEBUG, false}, {"info", LOG_INFO, false}, {"warn", LOG_WARN, false},
    {"error", LOG_ERROR, false}, {NULL, 0, false}};
static const struct field_word formats[] = {
    {"json", LOG_JSON, false}, {"text", LOG_TEXT, false}, {NULL, 0, false}};
static const struct field_word accesses_logged[] = {
    {"all", ACCESS_ALL, false}, {"errors", ACCESS_ERRORS, false}, {"none", ACCESS_NONE, false},
    {NULL, 0, false}};

#define MS(n) ((n) * INT64_C(1000))
#define HOURS(n) ((n) * INT64_C(3600000000))
#define KIB(n) ((n) * INT64_C(1024))
#define MIB(n) ((n) * INT64_C(1048576))
#define GIB(n) ((n) * INT64_C(1073741824))
#define IN(type, member) offsetof(struct type, member), sizeof(((struct type *)0)->member)
#define CONF(member) IN(config, member)
#define DEP(member) IN(dependency_config, member)
#define UNSTORED 0, 0
#define ANY 0, 0

const struct config_field config_fields[] = {
/*   path, type, stored, min, max, default, only, words, help */
    {"$schema", FIELD_STRING, UNSTORED, 1, PATH_MAX, "null", NULL, NULL, "Where editors find the schema of this file; weir does not look."},

    {"server", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "The port that callers use."},
    {"server.address", FIELD_ADDRESS, CONF(server.address), ANY, "0.0.0.0", NULL, NULL, "Address to listen on."},
    {"server.port", FIELD_INTEGER, CONF(server.port), 1, 65535, "8080", NULL, NULL, "Port to listen on."},
    {"server.workers", FIELD_INTEGER, CONF(server.workers), 1, 256, "2", NULL, NULL, "Threads that serve callers; they never wait for a dependency."},
    {"server.max_connections", FIELD_INTEGER, CONF(server.max_connections), 1, 1000000, "4096", NULL, NULL, "Most open caller connections; 64 more answer /health* alone."},
    {"server.max_body", FIELD_SIZE, CONF(server.max_body_bytes), 1, GIB(1), "1MiB", NULL, NULL, "Largest request body; a larger one is a 413."},
    {"server.max_uri", FIELD_SIZE, CONF(server.max_uri_bytes), 64, KIB(64), "8KiB", NULL, NULL, "Longest request target; a longer one is a 414."},
    {"server.header_timeout", FIELD_DURATION, CONF(server.header_timeout_us), MS(1), HOURS(1), "10s", NULL, NULL, "Time for a request's headers to arrive."},
    {"server.body_timeout", FIELD_DURATION, CONF(server.body_timeout_us), MS(1), HOURS(1), "30s", NULL, NULL, "Time for a request's body to arrive."},
    {"server.idle_timeout", FIELD_DURATION, CONF(server.idle_timeout_us), MS(1), HOURS(24), "75s", NULL, NULL, "Time a connection may stay without a request."},
    {"server.write_timeout", FIELD_DURATION, CONF(server.write_timeout_us), MS(1), HOURS(1), "30s", NULL, NULL, "Time for an answer to be taken by the caller."},
    {"server.request_timeout", FIELD_DURATION, CONF(server.request_timeout_us), MS(1), HOURS(1), "5s", NULL, NULL, "A request's whole budget."},
    {"server.caller_timeout", FIELD_DURATION, CONF(server.caller_timeout_us), MS(1), HOURS(24), "30s", NULL, NULL, "How long callers wait at most; must exceed request_timeout."},
    {"server.drain_delay", FIELD_DURATION, CONF(server.drain_delay_us), 0, HOURS(1), "0s", NULL, NULL, "At SIGTERM: time between failing readiness and closing the listener."},
    {"server.drain_timeout", FIELD_DURATION, CONF(server.drain_timeout_us), 0, HOURS(1), "8s", NULL, NULL, "At SIGTERM: time for requests under way to end."},
    {"server.max_memory", FIELD_SIZE, CONF(server.max_memory_bytes), KIB(64), GIB(1024), "512MiB", NULL, NULL, "Request bodies and answers not yet sent, together; above it 503 overloaded."},
    {"server.cors_origins", FIELD_ORIGINS, CONF(server.cors_origins), ANY, "[]", NULL, NULL, "Exact origins whose pages may call, or \"*\"."},
    {"server.trusted_proxies", FIELD_LIST, UNSTORED, ANY, "[]", "[]", NULL, "Proxies whose forwarding headers are believed."},

    {"admin", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "The operator's port: health, metrics, status."},
    {"admin.address", FIELD_ADDRESS, CONF(admin.address), ANY, "127.0.0.1", NULL, NULL, "Address to listen on."},
    {"admin.port", FIELD_INTEGER, CONF(admin.port), 1, 65535, "8081", NULL, NULL, "Port to listen on."},
    {"admin.token_file", FIELD_FILE, CONF(admin.token_file), 1, PATH_MAX, "null", NULL, NULL, "File with the token that POST needs (Authorization: Bearer TOKEN); without one, no POST on a non-loopback address."},

    {"api", FIELD_STRING, CONF(api_folder), 1, PATH_MAX, "api", NULL, NULL, "Folder of the SQL files, subfolders too."},
    {"auth", FIELD_OBJECT, UNSTORED, ANY, NULL, "null", NULL, "Who may call."},

    {"cache", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "Stored answers."},
    {"cache.max_bytes", FIELD_SIZE, CONF(cache.max_bytes), KIB(64), GIB(1024), "64MiB", NULL, NULL, "Memory for stored answers, with all that belongs to them."},
    {"cache.shared", FIELD_STRING, UNSTORED, 1, 32, "null", "null", NULL, "The redis dependency that instances share."},
    {"cache.file", FIELD_FILE, UNSTORED, 1, PATH_MAX, "null", "null", NULL, "File that keeps stored answers over a restart."},

    {"log", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "The log on standard error."},
    {"log.level", FIELD_WORD, CONF(log.level), ANY, "info", NULL, levels, "Least level that is written."},
    {"log.format", FIELD_WORD, CONF(log.format), ANY, "json", NULL, formats, "One JSON object a line, or text."},
    {"log.access", FIELD_WORD, CONF(log.access), ANY, "all", NULL, accesses_logged, "Which requests are logged; errors: 4xx, 5xx, degraded answers, callers that hung up."},
    {"log.parameters", FIELD_BOOL, UNSTORED, ANY, "false", "false", NULL, "Log parameter values too."},

    {"dependencies", FIELD_MAP, UNSTORED, ANY, NULL, NULL, NULL, "What weir calls, by name."},
    {"dependencies.*", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "One dependency."},
    {"dependencies.*.kind", FIELD_WORD, UNSTORED, ANY, NULL, NULL, kinds, "What it is."},
    {"dependencies.*.conninfo", FIELD_STRING, DEP(conninfo), 1, 16384, NULL, NULL, NULL, "libpq's connection string or URI; several hosts are tried in order."},
    {"dependencies.*.password_file", FIELD_FILE, DEP(password_file), 1, PATH_MAX, "null", NULL, NULL, "File with the password, read again before each connection."},
    {"dependencies.*.access", FIELD_WORD, DEP(is_read_only), ANY, "read-write", NULL, accesses, "read: no route that writes may use it."},
    {"dependencies.*.connections", FIELD_INTEGER, DEP(connections), 1, 65535, "null", NULL, NULL, "Sessions at the server; null: as many as max_concurrent. Fewer are not supported yet."},
    {"dependencies.*.prepare", FIELD_BOOL, DEP(prepare), ANY, "true", "true", NULL, "Prepare statements once a session."},
    {"dependencies.*.max_lag", FIELD_DURATION, UNSTORED, 0, HOURS(24), "null", "null", NULL, "Most replay lag of a replica."},
    {"dependencies.*.production", FIELD_BOOL, DEP(is_production), ANY, "false", NULL, NULL, "Drills leave it alone; without effect yet."},
    {"dependencies.*.connect_timeout", FIELD_DURATION, DEP(connect_timeout_us), MS(1), HOURS(1), "2s", NULL, NULL, "Time for DNS, connecting and login, for each address."},
    {"dependencies.*.query_timeout", FIELD_DURATION, DEP(query_timeout_us), MS(1), HOURS(1), "2s", NULL, NULL, "Time for each statement."},
    {"dependencies.*.max_lifetime", FIELD_DURATION, DEP(max_lifetime_us), MS(1), HOURS(8760), "30m", NULL, NULL, "Age at which a connection is replaced, jittered."},
    {"dependencies.*.idle_timeout", FIELD_DURATION, DEP(idle_timeout_us), MS(1), HOURS(8760), "5m", NULL, NULL, "Idle time after which a connection is closed, jittered."},

    {"dependencies.*.bulkhead", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "How many calls at once."},
    {"dependencies.*.bulkhead.max_concurrent", FIELD_INTEGER, DEP(bulkhead.max_concurrent), 1, 65535, "8", NULL, NULL, "Permits: calls in flight."},
    {"dependencies.*.bulkhead.max_queued", FIELD_INTEGER, DEP(bulkhead.max_queued), 0, 65535, "0", NULL, NULL, "Calls that may wait for a permit."},
    {"dependencies.*.bulkhead.queue_timeout", FIELD_DURATION, DEP(bulkhead.queue_timeout_us), MS(1), HOURS(1), "100ms", NULL, NULL, "How long they may wait."},

    {"dependencies.*.breaker", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "When calls are refused."},
    {"dependencies.*.breaker.failure_threshold", FIELD_INTEGER, DEP(breaker.failure_threshold), 1, 1000000, "5", NULL, NULL, "Failures in a row that open it."},
    {"dependencies.*.breaker.failure_rate", FIELD_RATE, UNSTORED, 0, 1, "null", "null", NULL, "Share of failed calls that opens it."},
    {"dependencies.*.breaker.slow_rate", FIELD_RATE, UNSTORED, 0, 1, "null", "null", NULL, "Share of slow calls that opens it."},
    {"dependencies.*.breaker.slow_after", FIELD_DURATION, UNSTORED, MS(1), HOURS(1), "null", "null", NULL, "Time after which a call is slow."},
    {"dependencies.*.breaker.window", FIELD_DURATION, UNSTORED, MS(1), HOURS(1), "10s", NULL, NULL, "Time over which the rates are taken; without effect yet."},
    {"dependencies.*.breaker.min_calls", FIELD_INTEGER, UNSTORED, 1, 1000000, "20", NULL, NULL, "Calls without which the rates say nothing; without effect yet."},
    {"dependencies.*.breaker.reset_timeout", FIELD_DURATION, DEP(breaker.reset_timeout_us), MS(1), HOURS(24), "30s", NULL, NULL, "Time open before a trial, give or take 10 %; doubled each time that a trial fails."},
    {"dependencies.*.breaker.max_reset_timeout", FIELD_DURATION, DEP(breaker.max_reset_timeout_us), MS(1), HOURS(24), "5m", NULL, NULL, "Where the doubling of reset_timeout ends."},
    {"dependencies.*.breaker.half_open_calls", FIELD_INTEGER, DEP(breaker.half_open_calls), 1, 255, "1", NULL, NULL, "Trials at once when half-open."},
    {"dependencies.*.breaker.mode", FIELD_WORD, DEP(breaker.mode), ANY, "auto", NULL, modes, "auto: failures open it. forced-open: every call is refused. disabled: none is."},

    {"dependencies.*.retry", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "Repeated attempts."},
    {"dependencies.*.retry.attempts", FIELD_INTEGER, UNSTORED, 1, 100, "1", "1", NULL, "Tries in all."},
    {"dependencies.*.retry.base", FIELD_DURATION, UNSTORED, MS(1), HOURS(1), "50ms", NULL, NULL, "First back-off, at most; without effect yet."},
    {"dependencies.*.retry.cap", FIELD_DURATION, UNSTORED, MS(1), HOURS(1), "1s", NULL, NULL, "Longest back-off; without effect yet."},
    {"dependencies.*.retry.budget", FIELD_RATE, UNSTORED, 0, 1, "0.2", NULL, NULL, "Retries per request, on average; without effect yet."},

    {"dependencies.*.probe", FIELD_OBJECT, UNSTORED, ANY, NULL, NULL, NULL, "weir's own test calls."},
    {"dependencies.*.probe.interval", FIELD_DURATION, DEP(probe.interval_us), MS(1), HOURS(24), "1s", NULL, NULL, "Time between probes while open."},
    {"dependencies.*.probe.idle", FIELD_DURATION, DEP(probe.idle_us), MS(1), HOURS(24), "10s", NULL, NULL, "Time without a good call before a probe while closed."},
    {"dependencies.*.probe.timeout", FIELD_DURATION, DEP(probe.timeout_us), MS(1), HOURS(1), "3s", NULL, NULL, "Time for a probe, connecting included."},
    {"dependencies.*.probe.path", FIELD_STRING, UNSTORED, 1, 2048, "/", NULL, NULL, "What an HTTP probe asks for; without effect yet."},
};
/* clang-format on */

const size_t config_field_count = sizeof config_fields / sizeof config_fields[0];

/* --- finding a row --- */

/* The part of a row's path below `parent`, or NULL if it is not directly below. */
const char *config_field_key(const struct config_field *field, const char *parent)
{
    size_t size = strlen(parent);
    const char *key = field->path;

    if (size > 0) {
        if (strncmp(field->path, parent, size) != 0 || field->path[size] != '.')
            return NULL;
        key += size + 1;
    }
    return strchr(key, '.') == NULL && strcmp(key, "*") != 0 ? key : NULL;
}

const struct config_field *config_field_find(const char *parent, const char *key)
{
    for (size_t i = 0; i < config_field_count; i++) {
        const char *known = config_field_key(&config_fields[i], parent);

        if (known != NULL && strcmp(known, key) == 0)
            return &config_fields[i];
    }
    return NULL;
}

/* --- what a value must be, in words --- */

static void describe_words(const struct field_word *words, char *out_text, size_t size)
{
    size_t built = 0, used;

    for (const struct field_word *w = words; w->text != NULL; w++)
        built += !w->is_not_built;
    used = (size_t)snprintf(out_text, size, "must be%s", built > 1 ? " one of" : "");
    for (const struct field_word *w = words; w->text != NULL && used < size; w++) {
        if (!w->is_not_built)
            used += (size_t)snprintf(out_text + used, size - used, "%s \"%s\"",
                                     w == words ? "" : ",", w->text);
    }
}

void config_field_describe(const struct config_field *field, char *out_text, size_t size)
{
    char least[32], most[32];

    switch (field->type) {
    case FIELD_OBJECT:
    case FIELD_MAP:
        (void)snprintf(out_text, size, "must be an object: { ... }");
        break;
    case FIELD_INTEGER:
        (void)snprintf(out_text, size, "must be a whole number from %lld to %lld",
                       (long long)field->min, (long long)field->max);
        break;
    case FIELD_RATE:
        (void)snprintf(out_text, size, "must be a number from 0 to 1");
        break;
    case FIELD_BOOL:
        (void)snprintf(out_text, size, "must be true or false");
        break;
    case FIELD_DURATION:
        duration_format(field->min, least);
        duration_format(field->max, most);
        (void)snprintf(
            out_text, size,
            "must be a duration such as \"250ms\", \"2s\", \"1m\" or \"1h\", from %s to %s", least,
            most);
        break;
    case FIELD_SIZE:
        size_format(field->min, least);
        size_format(field->max, most);
        (void)snprintf(out_text, size,
                       "must be a size such as \"64KiB\" or \"1MiB\", from %s to %s", least, most);
        break;
    case FIELD_WORD:
        describe_words(field->words, out_text, size);
        break;
    case FIELD_STRING:
    case FIELD_FILE:
        (void)snprintf(out_text, size, "must be a string of %lld to %lld characters",
                       (long long)field->min, (long long)field->max);
        break;
    case FIELD_ADDRESS:
        (void)snprintf(out_text, size, "must be an IPv4 or IPv6 address such as \"127.0.0.1\"");
        break;
    case FIELD_ORIGINS:
        (void)snprintf(out_text, size,
                       "must be a list of origins such as \"https://app.example\", or [\"*\"]");
        break;
    case FIELD_LIST:
        (void)snprintf(out_text, size, "must be a list of strings");
        break;
    case FIELD_TYPE_COUNT:
        break;
    }
}

const struct field_word *config_word_find(const struct field_word *words, const char *text)
{
    for (; words->text != NULL; words++) {
        if (strcmp(words->text, text) == 0)
            return words;
    }
    return NULL;
}

bool config_field_may_be_null(const struct config_field *field)
{
    return field->default_text != NULL && strcmp(field->default_text, "null") == 0;
}

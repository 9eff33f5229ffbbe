#include "observe/health.h"

#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/ensure.h"
#include "json/json_text.h"

static const char *const status_names[] = {
    [HEALTH_PASS] = "pass", [HEALTH_WARN] = "warn", [HEALTH_FAIL] = "fail"};

const char *health_status_name(enum health_status status)
{
    ENSURE(status <= HEALTH_FAIL);
    return status_names[status];
}

int health_status_http(enum health_status status)
{
    return status == HEALTH_FAIL ? 503 : 200;
}

static bool is_refusing(const struct health_fact *fact)
{
    if (fact->mode == BREAKER_FORCED_OPEN)
        return true;
    return fact->mode == BREAKER_AUTO && fact->state == BREAKER_OPEN;
}

/* Half-open is neither: it may work again, and only its trials can tell. */
static bool is_doubtful(const struct health_fact *fact)
{
    return fact->mode == BREAKER_AUTO && fact->state == BREAKER_HALF_OPEN;
}

enum health_status health_of_dependency(const struct health_fact *fact)
{
    if (is_refusing(fact) || !fact->is_reached)
        return fact->is_hard ? HEALTH_FAIL : HEALTH_WARN;
    return is_doubtful(fact) ? HEALTH_WARN : HEALTH_PASS;
}

enum health_status health_overall(const struct health_fact *facts, size_t count, bool is_draining)
{
    enum health_status worst = is_draining ? HEALTH_FAIL : HEALTH_PASS;

    for (size_t i = 0; i < count; i++) {
        enum health_status one = health_of_dependency(&facts[i]);

        if (one > worst)
            worst = one;
    }
    return worst;
}

static void json_string_append(struct buffer *out, const char *text)
{
    json_text_append(out, text, strlen(text));
}

static void member_append(struct buffer *out, const char *name, const char *text)
{
    buffer_append_format(out, ",\"%s\":", name);
    json_string_append(out, text);
}

static void endpoints_append(struct buffer *out, const struct health_fact *fact)
{
    buffer_append_text(out, ",\"affectedEndpoints\":[");
    for (size_t i = 0; i < fact->endpoint_count; i++) {
        if (i > 0)
            buffer_append_char(out, ',');
        json_string_append(out, fact->endpoints[i]);
    }
    buffer_append_char(out, ']');
}

/* Why a dependency does not pass, in words. */
static const char *output_of(const struct health_fact *fact)
{
    if (fact->mode == BREAKER_FORCED_OPEN)
        return "the breaker is forced open by an operator";
    if (fact->output != NULL)
        return fact->output;
    if (!fact->is_reached)
        return "not reached yet";
    return fact->state == BREAKER_OPEN ? "the breaker is open" : "the breaker lets trials through";
}

static const char *observed_value(const struct health_fact *fact)
{
    if (fact->mode == BREAKER_FORCED_OPEN)
        return breaker_mode_name(fact->mode);
    return breaker_state_name(fact->state);
}

static void details_append(struct buffer *out, const struct health_fact *fact)
{
    char time[32];

    member_append(out, "componentType", "datastore");
    member_append(out, "observedValue", observed_value(fact));
    endpoints_append(out, fact);
    if (health_of_dependency(fact) != HEALTH_PASS)
        member_append(out, "output", output_of(fact));
    if (fact->time_wall_us != 0) {
        clock_format_wall(fact->time_wall_us, time);
        member_append(out, "time", time);
    }
}

static void check_append(struct buffer *out, const struct health_fact *fact, bool is_brief)
{
    json_string_append(out, fact->name);
    buffer_append_format(out, ":[{\"status\":\"%s\"",
                         health_status_name(health_of_dependency(fact)));
    if (!is_brief)
        details_append(out, fact);
    buffer_append_text(out, "}]");
}

void health_write(struct buffer *out, const struct health_fact *facts, size_t count,
                  bool is_draining, bool is_brief)
{
    buffer_append_format(out, "{\"status\":\"%s\"",
                         health_status_name(health_overall(facts, count, is_draining)));
    if (!is_brief)
        member_append(out, "version", WEIR_VERSION);
    if (!is_brief && is_draining)
        member_append(out, "output", "draining");
    buffer_append_text(out, ",\"checks\":{");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buffer_append_char(out, ',');
        check_append(out, &facts[i], is_brief);
    }
    buffer_append_text(out, "}}");
}

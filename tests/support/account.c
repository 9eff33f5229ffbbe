#include "account.h"

#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "scratch.h"

static char *header_of(const struct http_answer *answer, const char *name)
{
    char *value = http_answer_header(answer, name);

    return value != NULL ? value : scratch_format("%s", "");
}

struct account account_of(const struct weir_process *weir, const struct exchange *exchange)
{
    int64_t asked_ms = exchange_now_ms();
    struct http_answer answer = exchange_ask(weir, exchange);
    struct account account = {
        .status = answer.status,
        .body = scratch_format("%s", answer.body != NULL ? answer.body : ""),
        .headers = scratch_format("%s", answer.headers != NULL ? answer.headers : ""),
        .cache_status = header_of(&answer, "Cache-Status"),
        .age = header_of(&answer, "Age"),
        .etag = header_of(&answer, "ETag"),
        .cache_control = header_of(&answer, "Cache-Control"),
        .vary = header_of(&answer, "Vary"),
        .degraded = header_of(&answer, "Weir-Degraded"),
        .retry_after = header_of(&answer, "Retry-After"),
        .content_type = header_of(&answer, "Content-Type"),
        .content_length = header_of(&answer, "Content-Length"),
        .asked_ms = asked_ms,
        .answered_ms = exchange_now_ms(),
        .elapsed_us = answer.elapsed_us,
    };

    http_answer_fini(&answer);
    return account;
}

struct account account_get(const struct weir_process *weir, const char *path)
{
    return account_of(weir, &(struct exchange){.path = path});
}

void account_fini(struct account *account)
{
    free(account->body);
    free(account->headers);
    free(account->cache_status);
    free(account->age);
    free(account->etag);
    free(account->cache_control);
    free(account->vary);
    free(account->degraded);
    free(account->retry_after);
    free(account->content_type);
    free(account->content_length);
    *account = (struct account){0};
}

int64_t account_ttl_s(const struct account *account)
{
    const char *ttl = strstr(account->cache_status, "; ttl=");

    if (ttl == NULL)
        scratch_give_up("no ttl in Cache-Status: %s", account->cache_status);
    return strtoll(ttl + strlen("; ttl="), NULL, 10);
}

int64_t account_age_s(const struct account *account)
{
    return account->age[0] != '\0' ? strtoll(account->age, NULL, 10) : -1;
}

void account_assert_age(const struct account *account, const struct account *stored)
{
    int64_t least_s = (account->asked_ms - stored->answered_ms) / 1000;
    int64_t most_s = (account->answered_ms - stored->asked_ms) / 1000;

    assert_true(account->age[0] != '\0');
    assert_in_range((uintmax_t)account_age_s(account), (uintmax_t)(least_s > 0 ? least_s : 0),
                    (uintmax_t)most_s);
}

int64_t account_number(const struct account *account, const char *member)
{
    json_t *body = json_loads(account->body, JSON_DECODE_ANY, NULL);
    json_t *object = json_is_array(body) ? json_array_get(body, 0) : body;
    json_t *value = json_object_get(object, member);
    int64_t number;

    if (!json_is_integer(value))
        scratch_give_up("no number %s in %d: %s", member, account->status, account->body);
    number = json_integer_value(value);
    json_decref(body);
    return number;
}

/* account.h - what an answer says of itself: where it comes from, how old it is, what it lacks.
 * SPDX-License-Identifier: MIT
 *
 * Owner    account_of() .. account_fini().
 * Units    _s seconds, _ms milliseconds of the monotonic clock. */
#ifndef SUPPORT_ACCOUNT_H
#define SUPPORT_ACCOUNT_H
#include <stdbool.h>
#include <stdint.h>

#include "exchange.h"
#include "weir_process.h"

/* Headers are "" when absent. */
struct account {
    int status; /* 0: no answer */
    char *body, *headers;
    char *cache_status, *age, *etag, *cache_control, *vary;
    char *degraded, *retry_after, *content_type, *content_length;
    int64_t asked_ms, answered_ms;
    int64_t elapsed_us;
};

struct account account_of(const struct weir_process *weir, const struct exchange *exchange);
struct account account_get(const struct weir_process *weir, const char *path);
void account_fini(struct account *account);

/* The number behind "ttl=" of Cache-Status; gives the test up when there is none. */
int64_t account_ttl_s(const struct account *account);
/* Of Age; -1: there is none. */
int64_t account_age_s(const struct account *account);

/* Age is what has passed since an answer that was stored between two instants. */
void account_assert_age(const struct account *account, const struct account *stored);

/* A number member of the first row (or the object) of the body; gives the test up without. */
int64_t account_number(const struct account *account, const char *member);
#endif

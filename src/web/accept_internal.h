/* accept_internal.h - does a caller take application/json? (RFC 9110, section 12.5.1)
 * SPDX-License-Identifier: MIT
 *
 * Threads  pure. Errors  an element that makes no sense is passed over. */
#ifndef WEB_ACCEPT_INTERNAL_H
#define WEB_ACCEPT_INTERNAL_H
#include <stdbool.h>

#include "query/params.h"

/* All Accept headers of a request, folded; the most specific range that covers JSON decides. */
struct accept {
    int specificity; /* 0: none yet, 1: any type, 2: application of any kind, 3: application/json */
    int quality;     /* 0..1000, of that range */
    bool is_present; /* some range was asked for */
};

void accept_add(struct accept *accept, struct raw_text value);
bool accept_allows_json(const struct accept *accept);
#endif

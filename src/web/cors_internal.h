/* cors_internal.h - which pages of other origins may call, and read what. SPDX-License-Identifier:
 * MIT
 *
 * Credentials are never allowed, so "*" gives away nothing that a plain client could not get.
 *
 * Threads  pure. */
#ifndef WEB_CORS_INTERNAL_H
#define WEB_CORS_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>

#include "query/params.h"

/* The value of Access-Control-Allow-Origin: "*" or one of `origins`; NULL: not allowed. */
const char *cors_allowed_origin(char *const *origins, size_t origin_count, struct raw_text origin);

/* May this Access-Control-Request-Headers be given back as it is? A list of tokens, at most 1 KiB.
 */
bool cors_is_token_list(struct raw_text value);
#endif

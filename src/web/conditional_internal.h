/* conditional_internal.h - does the caller have this answer already? (RFC 9110 section 13.1.2)
 * SPDX-License-Identifier: MIT
 *
 * Threads  pure. */
#ifndef WEB_CONDITIONAL_INTERNAL_H
#define WEB_CONDITIONAL_INTERNAL_H
#include <stdbool.h>

#include "query/params.h"

/* Does this value of If-None-Match name the entity tag (a strong one, with its quotes)? A list of
 * tags, strong or weak alike, or "*" alone, which names every one. What stands behind a mistake in
 * the list is not read: at worst the caller gets what it has. */
bool conditional_names(struct raw_text list, const char *etag);
#endif

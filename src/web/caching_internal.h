/* caching_internal.h - what the headers of an answer say of its age, its source and its worth.
 * SPDX-License-Identifier: MIT
 *
 *   answer     Cache-Status                               Cache-Control                 Age
 *   stored     weir; hit; ttl=4                           max-age=5                     yes
 *   (expired)  weir; hit; ttl=-3                          max-age=0, must-revalidate    yes
 *   live       weir; fwd=miss; stored                     max-age=5                     no
 *   stale      weir; hit; ttl=-37; detail=breaker-open    max-age=0, must-revalidate    yes
 *   fallback   weir; fwd=miss; detail=breaker-open        no-store                      no
 *   error      weir; fwd=miss; detail=breaker-open        no-store                      no
 *
 * RFC 9211 (Cache-Status), RFC 9111 (Age, Cache-Control). Seconds are whole: an age is rounded
 * down, and so is what is left, so that an answer past its time never says 0.
 *
 * Each function: true: *out is the header's value. False: this answer has no such header.
 *
 * Threads  pure. */
#ifndef WEB_CACHING_INTERNAL_H
#define WEB_CACHING_INTERNAL_H
#include <stdbool.h>

#include "plan/endpoint.h"
#include "web/header_text_internal.h"

bool caching_status(const struct answer *answer, struct header_text *out);
bool caching_control(const struct answer *answer, bool is_private, struct header_text *out);
bool caching_age(const struct answer *answer, struct header_text *out);

/* Weir-Degraded, of an answer that is less than a live one. */
bool caching_degraded(const struct answer *answer, struct header_text *out);
#endif

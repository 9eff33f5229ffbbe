/* saturation_internal.h - has this process been refusing for want of permits or memory for 10 s?
 * SPDX-License-Identifier: MIT
 *
 * A second is bad when more requests were refused so than were answered otherwise. Ten bad seconds
 * in a row are saturation; the first better one ends it.
 *
 * Threads  saturation_count() and saturation_is_reached() from any; saturation_tick() from one. */
#ifndef WEB_SATURATION_INTERNAL_H
#define WEB_SATURATION_INTERNAL_H
#include <stdbool.h>
#include <stdint.h>

#include "base/reason.h"
#include "web/service.h"

enum { SATURATION_AFTER_SECONDS = 10 };

/* Refusals that degraded (stale, fallback) turned nobody away, and are none. */
bool saturation_is_refusal(enum served served, enum reason reason);
void saturation_count(struct saturation *s, uint64_t refused_count, uint64_t other_count);
void saturation_tick(struct saturation *s); /* once a second */
bool saturation_is_reached(const struct saturation *s);
#endif

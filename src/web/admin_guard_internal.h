/* admin_guard_internal.h - who may change something through the admin port.
 * SPDX-License-Identifier: MIT
 *
 * A page in somebody's browser must not be able to: it cannot send application/json elsewhere
 * without asking first, and a name it controls (DNS rebinding) is not a name of ours. Where others
 * than this machine can connect, a token is required, too.
 *
 * Threads  pure, but admin_token_check(), which reads the token's file. */
#ifndef WEB_ADMIN_GUARD_INTERNAL_H
#define WEB_ADMIN_GUARD_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "guard/admission.h"

/* "localhost", 127.0.0.0/8, ::1 */
bool admin_address_is_loopback(const char *address);

/* The names by which the admin port may be asked, besides those of loopback. */
struct admin_names {
    const char *address;    /* as configured */
    const char *host_name;  /* of this machine */
    const char *reached_at; /* the local address of the connection; NULL: unknown */
};

/* `host`: the header's value, with or without a port; NULL: there was none. */
bool admin_host_is_known(const char *host, const struct admin_names *names);

enum token_verdict { TOKEN_RIGHT, TOKEN_WRONG, TOKEN_UNREADABLE };

/* `authorization`: the header's value, NULL: there was none. The file is read each time, so that a
 * new token needs no restart; a file without a token lets nobody in. */
enum token_verdict admin_token_check(const char *authorization, const char *token_file);

/* {"mode":"auto|forced-open|disabled"}, and nothing else. False: err says what is wrong. */
bool admin_mode_parse(const char *body, size_t size_bytes, enum breaker_mode *out_mode,
                      struct error *err);
#endif

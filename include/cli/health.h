/* health.h - `weir health`: is a weir well? For a container's HEALTHCHECK. SPDX-License-Identifier:
 * MIT
 *
 * A GET of its own over plain sockets. Whatever the network or the name server does, it is over
 * after 2 s: connecting, writing and reading share one deadline, and a timer ends the process where
 * the system's name lookup blocks.
 *
 * Errors   any reason goes to standard error, and the exit code is 1. */
#ifndef CLI_HEALTH_H
#define CLI_HEALTH_H
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct health_url {
    char host[256]; /* without the brackets of IPv6 */
    char port[6];
    char target[1024];   /* "/health?x=1" */
    char authority[272]; /* as the Host header wants it */
};

/* http://HOST[:PORT][/PATH][?QUERY]; anything else is refused with the reason. */
bool health_url_parse(const char *text, struct health_url *out_url, struct error *err);

/* The status of an HTTP/1 answer whose first bytes these are; 0: no status line (yet). */
int health_status_parse(const char *head, size_t size_bytes);

/* text NULL: the admin port's /health of the config file. The exit code. */
int health_run(const char *text, const char *config_file);
#endif

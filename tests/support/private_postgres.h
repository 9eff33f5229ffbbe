/* private_postgres.h - a PostgreSQL of the test's own. SPDX-License-Identifier: MIT
 *
 * What     a server on a free port of 127.0.0.1, in a folder of its own, as the user `postgres`
 * when the test runs as root. initdb and the seed run once per server version; the result is kept
 * under /tmp and copied. It dies with the test. Seed     superuser `postgres`; database `app`,
 * owned by `app` (no password); `secured` (password "first-Secret-77"). Tables and functions: see
 * the seed in private_postgres.c. Threads  one thread starts, stops and asks; the others only use
 * the port. Errors   what cannot be done gives the test up. */
#ifndef SUPPORT_PRIVATE_POSTGRES_H
#define SUPPORT_PRIVATE_POSTGRES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct private_postgres;

enum postgres_stop { POSTGRES_FAST, POSTGRES_IMMEDIATE };

/* With its data, not yet started. */
struct private_postgres *private_postgres_create(void);
void private_postgres_destroy(struct private_postgres *pg); /* NULL is fine */

/* Returns when the server accepts sessions. */
void private_postgres_start(struct private_postgres *pg);
void private_postgres_stop(struct private_postgres *pg, enum postgres_stop how);

/* kill -9 of the server and everything below it. */
void private_postgres_kill9(struct private_postgres *pg);

/* SIGSTOP of the whole tree: the kernel still accepts connections, nobody answers. */
void private_postgres_freeze(struct private_postgres *pg);
void private_postgres_thaw(struct private_postgres *pg);

uint16_t private_postgres_port(const struct private_postgres *pg);
pid_t private_postgres_pid(const struct private_postgres *pg);

/* "host=127.0.0.1 port=N dbname=app user=app"; through `port` when it is not 0. The caller's. */
char *private_postgres_conninfo(const struct private_postgres *pg, uint16_t port);

/* As superuser in database app; several statements are fine. */
void private_postgres_exec(struct private_postgres *pg, const char *sql);

/* The first cell, the caller's to free(); empty text for NULL and for no row. */
char *private_postgres_value(struct private_postgres *pg, const char *sql);
int64_t private_postgres_number(struct private_postgres *pg, const char *sql);

/* Statements running now whose text is LIKE the pattern, seen from the server. */
int64_t private_postgres_active(struct private_postgres *pg, const char *like);

/* Sessions of clients, ours not counted. */
int64_t private_postgres_sessions(struct private_postgres *pg);

/* How often a text stands in the server's log. */
size_t private_postgres_log_count(const struct private_postgres *pg, const char *needle);

/* How often tick('name') ran; counted in the log, so that rolled back and read-only work counts. */
size_t private_postgres_ticks(const struct private_postgres *pg, const char *name);
#endif

/* http_client.h - callers of weir: requests with a keep-alive connection, and raw sockets for those
 * that misbehave. SPDX-License-Identifier: MIT
 *
 * Owner    an http_client serves one thread; answers are the caller's: http_answer_fini().
 * Errors   a request without an answer has status 0 and says why in `failure`. */
#ifndef SUPPORT_HTTP_CLIENT_H
#define SUPPORT_HTTP_CLIENT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_client;

struct http_answer {
    int status;    /* 0: no answer */
    char *headers; /* as received, status line included; of the last answer (not of a 100) */
    char *body;    /* NUL-terminated */
    size_t body_bytes;
    int64_t elapsed_us;
    char failure[256]; /* "" when there is an answer */
};

struct http_request {
    const char *method; /* NULL: GET, POST with a body */
    const char *url;
    const char *const *headers; /* "Name: value"; ends with NULL; NULL: none */
    const char *body;           /* NULL: none; application/json unless a header says otherwise */
    int64_t timeout_ms;         /* 0: 30 s */
};

struct http_client *http_client_create(void);
void http_client_destroy(struct http_client *client); /* NULL is fine */
struct http_answer http_client_ask(struct http_client *client, const struct http_request *request);

/* With a connection of its own. */
struct http_answer http_ask(const struct http_request *request);
struct http_answer http_get(const char *url);
void http_answer_fini(struct http_answer *answer);

/* The value of a header of the answer, the caller's; NULL when absent. */
char *http_answer_header(const struct http_answer *answer, const char *name);

/* The member "reason" of a problem body, the caller's; "" when there is none. */
char *http_answer_reason(const struct http_answer *answer);

/* --- raw sockets to 127.0.0.1 --- */

int raw_connect(uint16_t port);
bool raw_send(int fd, const char *text);
bool raw_send_bytes(int fd, const void *bytes, size_t size_bytes);
void raw_half_close(int fd);
void raw_reset(int fd); /* RST, and closed */
void raw_close(int fd);

/* Reads one answer (head, and as much body as Content-Length says; to the end of file without).
 * The text, the caller's; what had come when `timeout_ms` passed. */
char *raw_read_answer(int fd, int64_t timeout_ms);

/* The peer closes (or resets) before `timeout_ms` pass; what it sends until then is thrown away. */
bool raw_is_closed_within(int fd, int64_t timeout_ms);
#endif

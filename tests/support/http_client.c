#include "http_client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "scratch.h"

struct http_client {
    CURL *easy; /* owned */
};

struct text {
    char *data; /* owned, NUL-terminated */
    size_t size;
};

static void text_add(struct text *text, const void *bytes, size_t size)
{
    text->data = realloc(text->data, text->size + size + 1);
    if (text->data == NULL)
        scratch_give_up("out of memory");
    if (size > 0)
        memcpy(text->data + text->size, bytes, size);
    text->size += size;
    text->data[text->size] = 0;
}

static size_t take_body(char *bytes, size_t one, size_t size, void *context)
{
    text_add(context, bytes, one * size);
    return one * size;
}

/* Each status line starts anew, so that a 100 in front leaves no trace. */
static size_t take_header(char *bytes, size_t one, size_t size, void *context)
{
    struct text *text = context;

    if (one * size > 5 && strncmp(bytes, "HTTP/", 5) == 0)
        text->size = 0;
    text_add(text, bytes, one * size);
    return one * size;
}

static void start_curl(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct http_client *http_client_create(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct http_client *client = calloc(1, sizeof *client);

    (void)pthread_once(&once, start_curl);
    if (client == NULL || (client->easy = curl_easy_init()) == NULL)
        scratch_give_up("no HTTP client");
    return client;
}

void http_client_destroy(struct http_client *client)
{
    if (client == NULL)
        return;
    curl_easy_cleanup(client->easy);
    free(client);
}

static bool names_header(const char *const *headers, const char *name)
{
    size_t size = strlen(name);

    for (; headers != NULL && *headers != NULL; headers++) {
        if (strncasecmp(*headers, name, size) == 0 && (*headers)[size] == ':')
            return true;
    }
    return false;
}

static struct curl_slist *header_list(const struct http_request *request)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");

    if (request->body != NULL && !names_header(request->headers, "Content-Type"))
        list = curl_slist_append(list, "Content-Type: application/json");
    for (const char *const *at = request->headers; at != NULL && *at != NULL; at++)
        list = curl_slist_append(list, *at);
    return list;
}

static void set_method(CURL *easy, const struct http_request *request)
{
    if (request->body != NULL) {
        (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
        (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)strlen(request->body));
    }
    if (request->method == NULL)
        return;
    if (strcmp(request->method, "HEAD") == 0)
        (void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    else
        (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static void set_rest(CURL *easy, const struct http_request *request)
{
    long timeout_ms = request->timeout_ms > 0 ? (long)request->timeout_ms : 30000L;

    (void)curl_easy_setopt(easy, CURLOPT_URL, request->url);
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms);
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
}

struct http_answer http_client_ask(struct http_client *client, const struct http_request *request)
{
    struct http_answer answer = {0};
    struct text headers = {0}, body = {0};
    struct curl_slist *list = header_list(request);
    struct instant start;
    CURLcode code;
    long status = 0;

    text_add(&headers, "", 0);
    text_add(&body, "", 0);
    curl_easy_reset(client->easy); /* keeps the connection */
    set_method(client->easy, request);
    set_rest(client->easy, request);
    (void)curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, list);
    (void)curl_easy_setopt(client->easy, CURLOPT_WRITEDATA, &body);
    (void)curl_easy_setopt(client->easy, CURLOPT_HEADERDATA, &headers);
    start = clock_now();
    code = curl_easy_perform(client->easy);
    answer.elapsed_us = instant_span_us(start, clock_now());
    if (code == CURLE_OK)
        (void)curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &status);
    else
        (void)snprintf(answer.failure, sizeof answer.failure, "%s", curl_easy_strerror(code));
    answer.status = (int)status;
    answer.headers = headers.data;
    answer.body = body.data;
    answer.body_bytes = body.size;
    curl_slist_free_all(list);
    return answer;
}

struct http_answer http_ask(const struct http_request *request)
{
    struct http_client *client = http_client_create();
    struct http_answer answer = http_client_ask(client, request);

    http_client_destroy(client);
    return answer;
}

struct http_answer http_get(const char *url)
{
    return http_ask(&(struct http_request){.url = url});
}

void http_answer_fini(struct http_answer *answer)
{
    free(answer->headers);
    free(answer->body);
    *answer = (struct http_answer){0};
}

char *http_answer_header(const struct http_answer *answer, const char *name)
{
    size_t size = strlen(name);
    const char *line = answer->headers;

    while (line != NULL && (line = strstr(line, "\r\n")) != NULL) {
        line += 2;
        if (strncasecmp(line, name, size) == 0 && line[size] == ':') {
            line += size + 1;
            line += strspn(line, " \t");
            return scratch_format("%.*s", (int)strcspn(line, "\r\n"), line);
        }
    }
    return NULL;
}

char *http_answer_reason(const struct http_answer *answer)
{
    json_t *problem = json_loadb(answer->body, answer->body_bytes, 0, NULL);
    const char *reason = json_string_value(json_object_get(problem, "reason"));
    char *copy = scratch_format("%s", reason != NULL ? reason : "");

    json_decref(problem);
    return copy;
}

/* --- raw sockets --- */

int raw_connect(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        (void)close(fd);
        return -1;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return fd;
}

bool raw_send_bytes(int fd, const void *bytes, size_t size_bytes)
{
    const char *at = bytes;

    while (size_bytes > 0) {
        ssize_t sent = send(fd, at, size_bytes, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        at += sent;
        size_bytes -= (size_t)sent;
    }
    return true;
}

bool raw_send(int fd, const char *text)
{
    return raw_send_bytes(fd, text, strlen(text));
}

void raw_half_close(int fd)
{
    (void)shutdown(fd, SHUT_WR);
}

void raw_reset(int fd)
{
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1, .l_linger = 0},
                     sizeof(struct linger));
    (void)close(fd);
}

void raw_close(int fd)
{
    (void)close(fd);
}

/* Bytes, 0 at the end or on a reset, -1 when the deadline passed first. */
static ssize_t read_before(int fd, char *bytes, size_t size, struct instant deadline)
{
    struct pollfd slot = {.fd = fd, .events = POLLIN};
    int64_t left_us = instant_span_us(clock_now(), deadline);
    ssize_t got;

    if (left_us <= 0 || poll(&slot, 1, (int)(left_us / 1000 + 1)) <= 0)
        return -1;
    got = recv(fd, bytes, size, 0);
    return got < 0 ? 0 : got;
}

static bool is_whole(const struct text *text)
{
    const char *end = strstr(text->data, "\r\n\r\n");
    const char *length = strcasestr(text->data, "\r\nContent-Length:");

    if (end == NULL || length == NULL || length > end)
        return false;
    return text->size >= (size_t)(end + 4 - text->data) + strtoul(length + 17, NULL, 10);
}

/* Without a byte of the next answer: a pipelining caller reads them one by one. */
char *raw_read_answer(int fd, int64_t timeout_ms)
{
    struct instant deadline = instant_after(clock_now(), timeout_ms * 1000);
    struct text text = {0};
    char byte;

    text_add(&text, "", 0);
    while (!is_whole(&text) && read_before(fd, &byte, 1, deadline) > 0)
        text_add(&text, &byte, 1);
    return text.data;
}

bool raw_is_closed_within(int fd, int64_t timeout_ms)
{
    struct instant deadline = instant_after(clock_now(), timeout_ms * 1000);
    char bytes[4096];
    ssize_t got;

    while ((got = read_before(fd, bytes, sizeof bytes, deadline)) > 0) {
    }
    return got == 0;
}

#include "cli/health.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "config/config.h"

/* The deadline leaves the timer, which is the backstop, 50 ms. */
enum { DEADLINE_MS = 1900, TIMER_US = 1950000, MOST_ANSWER_BYTES = 8192, MOST_SHOWN_BYTES = 400 };

/* --- the URL --- */

static bool port_is_valid(const char *text, size_t size)
{
    long number = 0;

    if (size == 0 || size > 5)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        number = 10 * number + (text[i] - '0');
    }
    return number >= 1 && number <= 65535;
}

/* HOST or [IPV6]; *out_rest is what follows it in the authority. */
static bool host_parse(const char *authority, size_t size, struct health_url *url,
                       const char **out_rest)
{
    const char *end = authority + size, *host = authority, *after;
    const char *closing = memchr(authority, ']', size);

    if (size > 0 && authority[0] == '[') {
        if (closing == NULL)
            return false;
        host++;
        after = closing;
        *out_rest = closing + 1;
    } else {
        after = memchr(authority, ':', size);
        if (after == NULL)
            after = end;
        *out_rest = after;
    }
    if (after == host || (size_t)(after - host) >= sizeof url->host)
        return false;
    (void)snprintf(url->host, sizeof url->host, "%.*s", (int)(after - host), host);
    return true;
}

static bool authority_parse(const char *authority, size_t size, struct health_url *url)
{
    const char *end = authority + size, *rest;

    if (memchr(authority, '@', size) != NULL || size >= sizeof url->authority ||
        !host_parse(authority, size, url, &rest))
        return false;
    (void)snprintf(url->authority, sizeof url->authority, "%.*s", (int)size, authority);
    (void)snprintf(url->port, sizeof url->port, "80");
    if (rest == end)
        return true;
    if (*rest != ':' || !port_is_valid(rest + 1, (size_t)(end - rest) - 1))
        return false;
    (void)snprintf(url->port, sizeof url->port, "%.*s", (int)(end - rest) - 1, rest + 1);
    return true;
}

static bool has_blanks(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text <= ' ' || *text == 0x7f)
            return true;
    }
    return false;
}

bool health_url_parse(const char *text, struct health_url *out_url, struct error *err)
{
    static const char scheme[] = "http://";
    const char *authority = text + sizeof scheme - 1;
    struct health_url url;
    size_t size, target_size;

    if (strncasecmp(text, scheme, sizeof scheme - 1) != 0)
        return error_set(err, "the URL must begin with http://");
    size = strcspn(authority, "/?#");
    if (has_blanks(text) || !authority_parse(authority, size, &url))
        return error_set(err, "the URL must be http://HOST[:PORT][/PATH]");

    /* What follows # never goes to a server. */
    target_size = strcspn(authority + size, "#");
    if (target_size + 2 > sizeof url.target)
        return error_set(err, "the URL is too long");
    (void)snprintf(url.target, sizeof url.target, "%s%.*s", authority[size] == '/' ? "" : "/",
                   (int)target_size, authority + size);
    *out_url = url;
    return true;
}

int health_status_parse(const char *head, size_t size_bytes)
{
    const char *code = head + 9;

    if (size_bytes < 13 || memcmp(head, "HTTP/1.", 7) != 0 || head[8] != ' ')
        return 0;
    for (size_t i = 0; i < 3; i++) {
        if (!isdigit((unsigned char)code[i]))
            return 0;
    }
    if (code[3] != ' ' && code[3] != '\r' && code[3] != '\n')
        return 0;
    return 100 * (code[0] - '0') + 10 * (code[1] - '0') + (code[2] - '0');
}

/* --- the time --- */

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void end_late(int signal_number)
{
    static const char text[] = "weir: health: no answer within 2 s\n";

    (void)signal_number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}

/* Nothing can stop getaddrinfo() but the end of the process. */
static void timer_start(void)
{
    struct sigaction action = {.sa_handler = end_late};
    struct itimerval span = {
        .it_value = {.tv_sec = TIMER_US / 1000000, .tv_usec = TIMER_US % 1000000}};
    sigset_t set;

    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGALRM, &action, NULL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGALRM);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)setitimer(ITIMER_REAL, &span, NULL);
}

/* --- the exchange --- */

static bool wait_for(int fd, short events, int64_t deadline_ms, struct error *err)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        int64_t left_ms = deadline_ms - now_ms();
        int n = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;

        if (n > 0)
            return true;
        if (n == 0)
            return error_set(err, "no answer in time");
        if (errno != EINTR)
            return error_set(err, "poll: %s", error_of_errno(errno));
    }
}

static bool connect_finish(int fd, int64_t deadline_ms, struct error *err)
{
    int failure = 0;
    socklen_t size = sizeof failure;

    if (!wait_for(fd, POLLOUT, deadline_ms, err))
        return false;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
    return failure == 0 || error_set(err, "cannot connect: %s", error_of_errno(failure));
}

/* A connected socket, or -1. */
static int connect_one(const struct addrinfo *address, int64_t deadline_ms, struct error *err)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        (void)error_set(err, "cannot connect: %s", error_of_errno(errno));
        return -1;
    }
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        return fd;
    if (errno != EINPROGRESS)
        (void)error_set(err, "cannot connect: %s", error_of_errno(errno));
    else if (connect_finish(fd, deadline_ms, err))
        return fd;
    (void)close(fd);
    return -1;
}

/* Each address gets an equal share of what is left, so that a silent one does not use up all. */
static int connect_any(const struct addrinfo *first, int64_t deadline_ms, struct error *err)
{
    int64_t count = 0;
    int fd = -1;

    for (const struct addrinfo *a = first; a != NULL; a = a->ai_next)
        count++;
    for (const struct addrinfo *a = first; a != NULL && fd < 0; a = a->ai_next) {
        int64_t now = now_ms();

        fd = connect_one(a, now + (deadline_ms - now) / count--, err);
    }
    return fd;
}

static int connect_url(const struct health_url *url, int64_t deadline_ms, struct error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *addresses;
    int failure = getaddrinfo(url->host, url->port, &hints, &addresses);
    int fd;

    if (failure != 0) {
        (void)error_set(err, "%s does not resolve: %s", url->host, gai_strerror(failure));
        return -1;
    }
    fd = connect_any(addresses, deadline_ms, err);
    freeaddrinfo(addresses);
    return fd;
}

static bool send_all(int fd, const char *bytes, size_t size, int64_t deadline_ms, struct error *err)
{
    while (size > 0) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);

        if (n >= 0) {
            bytes += n;
            size -= (size_t)n;
        } else if (errno == EAGAIN) {
            if (!wait_for(fd, POLLOUT, deadline_ms, err))
                return false;
        } else if (errno != EINTR) {
            return error_set(err, "the connection broke: %s", error_of_errno(errno));
        }
    }
    return true;
}

/* More of the answer. False: no more will come (err says why, if it is not the end). */
static bool receive_more(int fd, char *answer, size_t *size, int64_t deadline_ms, struct error *err)
{
    ssize_t n;

    if (!wait_for(fd, POLLIN, deadline_ms, err))
        return false;
    n = recv(fd, answer + *size, MOST_ANSWER_BYTES - *size, 0);
    if (n > 0)
        *size += (size_t)n;
    else if (n == 0)
        (void)error_set(err, "the connection was closed without an answer");
    else if (errno != EAGAIN && errno != EINTR)
        (void)error_set(err, "the connection broke: %s", error_of_errno(errno));
    else
        return true;
    return n > 0;
}

static bool is_good(int status)
{
    return status >= 200 && status <= 299;
}

/* Why it is not well stands in the body; it is read to its end, but a status is enough. */
static int answer_read(int fd, char *answer, size_t *size, int64_t deadline_ms, struct error *err)
{
    int status = 0;

    *size = 0;
    while (*size < MOST_ANSWER_BYTES && receive_more(fd, answer, size, deadline_ms, err)) {
        status = health_status_parse(answer, *size);
        if (is_good(status))
            break;
    }
    if (status == 0 && *size >= 13)
        (void)error_set(err, "the answer is not HTTP");
    return status;
}

/* The body's beginning, on one line of plain characters. */
static void body_shorten(const char *answer, size_t size, char out_text[MOST_SHOWN_BYTES + 1])
{
    const char *body = memmem(answer, size, "\r\n\r\n", 4);
    size_t used = 0;

    if (body != NULL) {
        for (body += 4; body < answer + size && used < MOST_SHOWN_BYTES; body++)
            out_text[used++] = (char)(*body >= ' ' && *body <= '~' ? *body : ' ');
    }
    out_text[used] = '\0';
}

static bool exchange(int fd, const struct health_url *url, int64_t deadline_ms, struct error *err)
{
    char request[sizeof *url + 128], answer[MOST_ANSWER_BYTES], shown[MOST_SHOWN_BYTES + 1];
    int status, length = snprintf(request, sizeof request,
                                  "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: weir/" WEIR_VERSION
                                  "\r\nConnection: close\r\n\r\n",
                                  url->target, url->authority);
    size_t size;

    if (!send_all(fd, request, (size_t)length, deadline_ms, err))
        return false;
    status = answer_read(fd, answer, &size, deadline_ms, err);
    if (status == 0)
        return false;
    if (is_good(status))
        return true;
    body_shorten(answer, size, shown);
    return error_set(err, "status %d%s%.300s", status, shown[0] != '\0' ? ": " : "", shown);
}

static bool ask(const struct health_url *url, struct error *err)
{
    int64_t deadline_ms = now_ms() + DEADLINE_MS;
    int fd = connect_url(url, deadline_ms, err);
    bool is_well;

    if (fd < 0)
        return false;
    is_well = exchange(fd, url, deadline_ms, err);
    (void)close(fd);
    return is_well;
}

static int tell(const char *about, const char *reason)
{
    (void)fprintf(stderr, "weir: health: %s%s%s\n", about, about[0] != '\0' ? ": " : "", reason);
    return 1;
}

int health_run(const char *text, const char *config_file)
{
    char reason_or_url[1024];
    struct health_url url;
    struct error err;

    timer_start();
    if (text == NULL) {
        if (!config_admin_health_url(config_file, reason_or_url, sizeof reason_or_url))
            return tell("", reason_or_url);
        text = reason_or_url;
    }
    /* A URL that is refused is not repeated: it may hold a password. */
    if (!health_url_parse(text, &url, &err))
        return tell("", err.text);
    return ask(&url, &err) ? 0 : tell(text, err.text);
}

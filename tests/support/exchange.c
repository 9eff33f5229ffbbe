#include "exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "patience.h"
#include "scratch.h"

enum { HEADER_LIMIT = 32 };

static struct http_answer ask_at(char *url, const struct exchange *exchange)
{
    char *lines = scratch_format("%s", exchange->headers != NULL ? exchange->headers : "");
    const char *headers[HEADER_LIMIT + 1] = {NULL};
    struct http_answer answer;
    size_t count = 0;
    char *rest = NULL;

    for (char *line = strtok_r(lines, "\n", &rest); line != NULL && count < HEADER_LIMIT;
         line = strtok_r(NULL, "\n", &rest))
        headers[count++] = line;
    answer = http_ask(&(struct http_request){
        .method = exchange->method, .url = url, .headers = headers, .body = exchange->body});
    free(lines);
    free(url);
    return answer;
}

struct http_answer exchange_ask(const struct weir_process *weir, const struct exchange *exchange)
{
    return ask_at(weir_url(weir, exchange->path), exchange);
}

struct http_answer exchange_ask_admin(const struct weir_process *weir,
                                      const struct exchange *exchange)
{
    return ask_at(weir_admin_url(weir, exchange->path), exchange);
}

int exchange_status(const struct weir_process *weir, const char *method, const char *path)
{
    struct http_answer answer =
        exchange_ask(weir, &(struct exchange){.method = method, .path = path});
    int status = answer.status;

    http_answer_fini(&answer);
    return status;
}

json_t *exchange_json(const struct http_answer *answer)
{
    return json_loadb(answer->body, answer->body_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
                      NULL);
}

int64_t exchange_now_ms(void)
{
    return clock_now().us / 1000;
}

char *exchange_read_to_end(int fd, int64_t limit_ms, bool *out_is_closed)
{
    int64_t until_ms = exchange_now_ms() + limit_ms, left_ms;
    size_t size = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    ssize_t got = -1;

    if (text == NULL)
        scratch_give_up("out of memory");
    *out_is_closed = false;
    while ((left_ms = until_ms - exchange_now_ms()) > 0) {
        struct pollfd slot = {.fd = fd, .events = POLLIN};

        if (poll(&slot, 1, (int)left_ms) <= 0)
            continue;
        got = recv(fd, text + size, capacity - size - 1, 0);
        if (got <= 0) {
            *out_is_closed = true;
            break;
        }
        size += (size_t)got;
        if (capacity - size < 4096) {
            capacity *= 2;
            text = realloc(text, capacity);
            if (text == NULL)
                scratch_give_up("out of memory");
        }
    }
    text[size] = '\0';
    return text;
}

int exchange_raw_status(const char *text)
{
    return strncmp(text, "HTTP/1.", 7) == 0 ? (int)strtol(text + 9, NULL, 10) : 0;
}

size_t exchange_answer_count(const char *text)
{
    return scratch_count(text, "HTTP/1.1 ") + scratch_count(text, "HTTP/1.0 ");
}

char *exchange_primary(const struct private_postgres *pg, uint16_t port, const char *more)
{
    char *conninfo = private_postgres_conninfo(pg, port);
    char *text = scratch_format("{\"primary\": {\"kind\": \"postgres\", \"conninfo\": \"%s\"%s}}",
                                conninfo, more != NULL ? more : "");

    free(conninfo);
    return text;
}

static bool is_healthy(void *context)
{
    const struct weir_process *const *weir = context;
    struct http_answer answer = exchange_ask_admin(*weir, &(struct exchange){.path = "/health"});
    static const char pass[] = "{\"status\":\"pass\""; /* the whole, not one of its checks */
    bool is_pass = answer.status == 200 && strncmp(answer.body, pass, sizeof pass - 1) == 0;

    http_answer_fini(&answer);
    return is_pass;
}

bool exchange_is_healthy_within(const struct weir_process *weir, int64_t limit_ms)
{
    return poll_until(is_healthy, &weir, limit_ms);
}

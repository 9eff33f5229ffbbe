#include "swarm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "http_client.h"
#include "scratch.h"

enum { FIRST_ROOM_BYTES = 4096, STATUS_OFFSET = 9 /* behind "HTTP/1.1 " */ };

/* One caller. */
struct member {
    int fd; /* owned; -1: hung up, or the peer closed */
    bool is_busy;
    uint64_t tag;
    int64_t due_us, sent_us;
    int64_t hang_up_at_us; /* INT64_MAX: never */
    char *text;            /* owned; what came so far, NUL-terminated */
    size_t size_bytes, room_bytes;
    size_t head_bytes;  /* 0: the head is not whole */
    size_t whole_bytes; /* head and body */
};

struct swarm {
    uint16_t port;
    unsigned count;
    struct member *members; /* owned */
    struct pollfd *slots;   /* owned; slot i is member i's */
    unsigned *free_members; /* owned; a ring of indexes: whoever rested longest asks next */
    unsigned free_first, free_count;
    unsigned hang_up_count; /* busy members who will hang up */
    swarm_done *done;       /* of this run */
    void *context;
};

static void member_connect(struct swarm *swarm, unsigned index)
{
    struct member *m = &swarm->members[index];

    m->fd = raw_connect(swarm->port);
    if (m->fd < 0)
        scratch_give_up("caller %u gets no connection: %s", index, strerrordesc_np(errno));
}

static void add_free(struct swarm *swarm, unsigned index)
{
    swarm->free_members[(swarm->free_first + swarm->free_count++) % swarm->count] = index;
}

static unsigned take_free(struct swarm *swarm)
{
    unsigned index = swarm->free_members[swarm->free_first];

    swarm->free_first = (swarm->free_first + 1) % swarm->count;
    swarm->free_count--;
    return index;
}

struct swarm *swarm_create(uint16_t port, unsigned connection_count)
{
    struct swarm *swarm = calloc(1, sizeof *swarm);

    if (swarm == NULL ||
        (swarm->members = calloc(connection_count, sizeof *swarm->members)) == NULL ||
        (swarm->slots = calloc(connection_count, sizeof *swarm->slots)) == NULL ||
        (swarm->free_members = calloc(connection_count, sizeof *swarm->free_members)) == NULL)
        scratch_give_up("out of memory");
    swarm->port = port;
    swarm->count = connection_count;
    for (unsigned i = 0; i < connection_count; i++) {
        member_connect(swarm, i);
        add_free(swarm, i);
    }
    return swarm;
}

void swarm_destroy(struct swarm *swarm)
{
    if (swarm == NULL)
        return;
    for (unsigned i = 0; i < swarm->count; i++) {
        if (swarm->members[i].fd >= 0)
            raw_close(swarm->members[i].fd);
        free(swarm->members[i].text);
    }
    free(swarm->members);
    free(swarm->slots);
    free(swarm->free_members);
    free(swarm);
}

/* --- asking --- */

static void member_send(struct swarm *swarm, unsigned index, const struct swarm_request *request)
{
    struct member *m = &swarm->members[index];
    char text[512];
    int size = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: weir\r\n%s%s\r\n",
                        request->path, request->header, request->header[0] != '\0' ? "\r\n" : "");

    if (m->fd < 0)
        member_connect(swarm, index);
    m->is_busy = true;
    m->tag = request->tag;
    m->size_bytes = m->head_bytes = m->whole_bytes = 0;
    m->sent_us = clock_now().us;
    m->due_us = request->due_us != 0 ? request->due_us : m->sent_us;
    m->hang_up_at_us = INT64_MAX;
    if (request->hang_up_after_us > 0) {
        m->hang_up_at_us = m->sent_us + request->hang_up_after_us;
        swarm->hang_up_count++;
    }
    /* When the peer closed an idle connection, that shows as an answer that never came. */
    (void)raw_send_bytes(m->fd, text, (size_t)size);
}

static bool is_whole(const struct member *m)
{
    return m->head_bytes > 0 && m->size_bytes >= m->whole_bytes;
}

static void member_end(struct swarm *swarm, unsigned index, bool is_hung_up)
{
    struct member *m = &swarm->members[index];
    bool is_answered = !is_hung_up && is_whole(m);
    struct swarm_answer answer = {.tag = m->tag,
                                  .is_hung_up = is_hung_up,
                                  .due_us = m->due_us,
                                  .sent_us = m->sent_us,
                                  .end_us = clock_now().us,
                                  .head = "",
                                  .body = ""};

    if (is_answered) {
        m->text[m->head_bytes - 1] = '\0'; /* the line feed of the empty line */
        answer.status = (int)strtol(m->text + STATUS_OFFSET, NULL, 10);
        answer.head = m->text;
        answer.body = m->text + m->head_bytes;
        answer.body_bytes = m->whole_bytes - m->head_bytes;
    }
    if (m->hang_up_at_us != INT64_MAX)
        swarm->hang_up_count--;
    m->hang_up_at_us = INT64_MAX;
    m->is_busy = false;
    add_free(swarm, index);
    swarm->done(swarm->context, &answer);
}

/* --- reading --- */

static void look_for_head(struct member *m)
{
    const char *end = strstr(m->text, "\r\n\r\n");
    const char *length;

    if (end == NULL)
        return;
    m->head_bytes = (size_t)(end + 4 - m->text);
    length = strcasestr(m->text, "\r\nContent-Length:");
    if (length == NULL || length > end)
        scratch_give_up("an answer without a length: %s", m->text);
    m->whole_bytes = m->head_bytes + strtoul(length + 17, NULL, 10);
}

static void make_room(struct member *m)
{
    if (m->room_bytes - m->size_bytes > FIRST_ROOM_BYTES)
        return;
    m->room_bytes = m->room_bytes == 0 ? (size_t)2 * FIRST_ROOM_BYTES : m->room_bytes * 2;
    m->text = realloc(m->text, m->room_bytes);
    if (m->text == NULL)
        scratch_give_up("out of memory");
}

/* False: the connection is over. */
static bool member_read(struct member *m)
{
    for (;;) {
        ssize_t got;

        make_room(m);
        got = recv(m->fd, m->text + m->size_bytes, m->room_bytes - m->size_bytes - 1, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        m->size_bytes += (size_t)got;
        m->text[m->size_bytes] = '\0';
        if (m->head_bytes == 0)
            look_for_head(m);
        if (is_whole(m))
            return true;
    }
}

/* A connection that asks nothing for long is told so (408), and closed. */
static void member_heard_at_rest(struct member *m)
{
    static const char timed_out[] = "HTTP/1.1 408 ";

    if (m->size_bytes > 0 && strncmp(m->text, timed_out, sizeof timed_out - 1) != 0)
        scratch_give_up("an answer that nobody asked for: %s", m->text);
}

static void member_heard(struct swarm *swarm, unsigned index)
{
    struct member *m = &swarm->members[index];
    bool is_open;

    if (!m->is_busy)
        m->size_bytes = m->head_bytes = 0;
    is_open = member_read(m);
    if (!m->is_busy)
        member_heard_at_rest(m);
    if (!is_open || (!m->is_busy && m->size_bytes > 0)) {
        raw_close(m->fd);
        m->fd = -1;
    }
    if (m->is_busy && (!is_open || is_whole(m)))
        member_end(swarm, index, false);
}

/* Some reset, some just close. */
static void member_hang_up(struct swarm *swarm, unsigned index)
{
    struct member *m = &swarm->members[index];

    if (m->tag % 2 == 0)
        raw_close(m->fd);
    else
        raw_reset(m->fd);
    m->fd = -1;
    member_end(swarm, index, true);
}

static void hang_up_due(struct swarm *swarm, int64_t now_us)
{
    for (unsigned i = 0; i < swarm->count && swarm->hang_up_count > 0; i++) {
        if (swarm->members[i].is_busy && swarm->members[i].hang_up_at_us <= now_us)
            member_hang_up(swarm, i);
    }
}

static int64_t first_hang_up_us(const struct swarm *swarm)
{
    int64_t first_us = INT64_MAX;

    for (unsigned i = 0; i < swarm->count && swarm->hang_up_count > 0; i++) {
        if (swarm->members[i].is_busy && swarm->members[i].hang_up_at_us < first_us)
            first_us = swarm->members[i].hang_up_at_us;
    }
    return first_us;
}

static void wait_until(struct swarm *swarm, int64_t until_us)
{
    int64_t left_us = until_us - clock_now().us;
    struct timespec span;
    int ready;

    if (left_us < 0)
        left_us = 0;
    span = (struct timespec){.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
    for (unsigned i = 0; i < swarm->count; i++)
        swarm->slots[i] = (struct pollfd){.fd = swarm->members[i].fd, .events = POLLIN};
    ready = ppoll(swarm->slots, swarm->count, until_us == INT64_MAX ? NULL : &span, NULL);
    for (unsigned i = 0; i < swarm->count && ready > 0; i++) {
        if (swarm->slots[i].revents != 0)
            member_heard(swarm, i);
    }
}

/* Sends what is due while somebody is free. */
static void send_due(struct swarm *swarm, struct swarm_request *request, bool *has_request,
                     swarm_next *next)
{
    int64_t now_us = clock_now().us;

    while (*has_request && swarm->free_count > 0 && request->due_us <= now_us) {
        member_send(swarm, take_free(swarm), request);
        *request = (struct swarm_request){0};
        *has_request = next(swarm->context, request);
    }
}

void swarm_run(struct swarm *swarm, swarm_next *next, swarm_done *done, void *context)
{
    struct swarm_request request = {0};
    bool has_request;

    swarm->done = done;
    swarm->context = context;
    has_request = next(context, &request);
    while (has_request || swarm->free_count < swarm->count) {
        int64_t until_us;

        send_due(swarm, &request, &has_request, next);
        until_us = first_hang_up_us(swarm);
        if (has_request && swarm->free_count > 0 && request.due_us < until_us)
            until_us = request.due_us;
        wait_until(swarm, until_us);
        hang_up_due(swarm, clock_now().us);
    }
}

/* --- reading an answer's head --- */

bool swarm_header(const struct swarm_answer *answer, const char *name, char *out_value,
                  size_t size_bytes)
{
    size_t name_bytes = strlen(name);
    const char *line = answer->head;

    out_value[0] = '\0';
    while ((line = strstr(line, "\r\n")) != NULL) {
        line += 2;
        if (strncasecmp(line, name, name_bytes) == 0 && line[name_bytes] == ':') {
            line += name_bytes + 1;
            line += strspn(line, " \t");
            (void)snprintf(out_value, size_bytes, "%.*s", (int)strcspn(line, "\r\n"), line);
            return true;
        }
    }
    return false;
}

int64_t swarm_header_number(const struct swarm_answer *answer, const char *name, const char *before,
                            int64_t otherwise)
{
    char value[128];
    const char *at;
    char *end;
    int64_t number;

    if (!swarm_header(answer, name, value, sizeof value))
        return otherwise;
    at = strstr(value, before);
    if (at == NULL)
        return otherwise;
    at += strlen(before);
    number = strtoll(at, &end, 10);
    return end != at ? number : otherwise;
}

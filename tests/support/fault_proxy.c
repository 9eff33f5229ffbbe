#include "fault_proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "scratch.h"

enum {
    CHUNK_BYTES = 16384,
    QUEUE_BYTES = 256 * 1024, /* held per direction before reading stops */
    CONNECTION_LIMIT = 4096,
    FILLER_COUNT = 4, /* own connections that fill the accept queue when SYNs go unanswered */
    BACKLOG = 1024,
};

static const uint32_t cancel_code = 80877102; /* PostgreSQL: CancelRequest */

struct chunk {
    struct chunk *next; /* owned */
    struct instant due;
    size_t size_bytes, sent_bytes;
    char data[];
};

/* One way through a connection. */
struct lane {
    int from, to; /* borrowed from the connection */
    struct chunk *first, **last;
    size_t queued_bytes;
    bool has_ended; /* end of file read */
    bool is_shut;   /* and passed on */
};

struct connection {
    struct connection *next;
    int caller, server; /* owned; server is -1 where no server was asked */
    struct lane up, down;
    bool is_connecting;
    bool has_lost;  /* bytes were swallowed: it can only go on swallowing */
    bool is_cancel; /* delivers its request whatever its sender does */
    bool is_counted_stalled;
    bool has_begun; /* the first bytes were looked at */
};

struct fault_proxy {
    pthread_t thread;
    uint16_t port, server_port; /* immutable */
    int wake_fd;                /* immutable */

    pthread_mutex_t lock; /* protects everything below; leaf */
    pthread_cond_t turned;
    uint64_t asked_turn, done_turn; /* settings are in force once done has caught up */
    bool is_over;
    enum fault_mode mode;
    int64_t latency_ms, cancel_delay_ms;
    uint64_t cut_bytes[2];
    unsigned cut_times[2];
    uint64_t cut_passed[2];
    bool wants_reset_open;
    struct fault_counters counters;

    /* The thread's own. */
    enum fault_mode mode_in_force;
    int listener; /* -1: closed */
    int fillers[FILLER_COUNT];
    uint16_t filler_ports[FILLER_COUNT];
    struct connection *connections;
};

/* --- sockets --- */

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int start_connect(uint16_t port)
{
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static int open_listener(uint16_t port)
{
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG) != 0)
        scratch_give_up("fault proxy: port %u is taken: %s", port, strerrordesc_np(errno));
    return fd;
}

static void reset_socket(int fd)
{
    if (fd < 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1, .l_linger = 0},
                     sizeof(struct linger));
    (void)close(fd);
}

/* --- connections --- */

static void lane_init(struct lane *lane, int from, int to)
{
    *lane = (struct lane){.from = from, .to = to};
    lane->last = &lane->first;
}

static void lane_pop(struct lane *lane)
{
    struct chunk *chunk = lane->first;

    lane->queued_bytes -= chunk->size_bytes;
    lane->first = chunk->next;
    if (lane->first == NULL)
        lane->last = &lane->first;
    free(chunk);
}

static void lane_clear(struct lane *lane)
{
    while (lane->first != NULL)
        lane_pop(lane);
}

static void connection_drop(struct fault_proxy *p, struct connection *c, bool with_reset)
{
    struct connection **at = &p->connections;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    lane_clear(&c->up);
    lane_clear(&c->down);
    if (with_reset) {
        reset_socket(c->caller);
        reset_socket(c->server);
    } else {
        (void)close(c->caller);
        if (c->server >= 0)
            (void)close(c->server);
    }
    p->counters.open_count--;
    free(c);
}

static void reset_all(struct fault_proxy *p)
{
    while (p->connections != NULL) {
        p->counters.reset_count++;
        connection_drop(p, p->connections, true);
    }
}

static bool is_stalling(const struct fault_proxy *p)
{
    return p->mode == FAULT_STALL || p->mode == FAULT_UNANSWERED;
}

static bool is_filler(const struct fault_proxy *p, uint16_t caller_port)
{
    for (int i = 0; i < FILLER_COUNT; i++) {
        if (p->filler_ports[i] == caller_port)
            return true;
    }
    return false;
}

static void count_stalled(struct fault_proxy *p)
{
    for (struct connection *c = p->connections; c != NULL; c = c->next) {
        if (!c->is_counted_stalled)
            p->counters.stalled_count++;
        c->is_counted_stalled = true;
    }
}

static void connection_add(struct fault_proxy *p, int caller)
{
    struct connection *c = calloc(1, sizeof *c);

    if (c == NULL)
        scratch_give_up("out of memory");
    (void)setsockopt(caller, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    c->caller = caller;
    c->has_lost = p->mode == FAULT_BLACK_HOLE;
    c->server = c->has_lost ? -1 : start_connect(p->server_port);
    c->is_connecting = c->server >= 0;
    lane_init(&c->up, c->caller, c->server);
    lane_init(&c->down, c->server, c->caller);
    c->next = p->connections;
    p->connections = c;
    p->counters.open_count++;
    if (is_stalling(p))
        count_stalled(p);
    if (c->server < 0 && !c->has_lost) {
        p->counters.upstream_failed_count++;
        connection_drop(p, c, true);
    }
}

static void accept_all(struct fault_proxy *p)
{
    struct sockaddr_in peer = {0};
    socklen_t size = sizeof peer;
    int fd;

    while ((fd = accept4(p->listener, (struct sockaddr *)&peer, &size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (is_filler(p, ntohs(peer.sin_port))) {
            (void)close(fd);
            continue;
        }
        p->counters.accepted_count++;
        if (p->mode == FAULT_RESET) {
            p->counters.reset_count++;
            reset_socket(fd);
        } else {
            connection_add(p, fd);
        }
    }
}

/* --- bytes --- */

/* A cancel request is 16 bytes: its length, its code, and whom it means. */
static bool is_cancel_request(const char *data, size_t size_bytes)
{
    uint32_t words[2];

    if (size_bytes < sizeof words)
        return false;
    memcpy(words, data, sizeof words);
    return ntohl(words[0]) == 16 && ntohl(words[1]) == cancel_code;
}

static int64_t delay_of(struct fault_proxy *p, struct connection *c, const struct lane *lane,
                        const struct chunk *chunk)
{
    int64_t delay_ms = p->latency_ms;

    if (delay_ms > 0)
        p->counters.delayed_count++;
    if (lane != &c->up || c->has_begun)
        return delay_ms;
    c->has_begun = true;
    c->is_cancel = is_cancel_request(chunk->data, chunk->size_bytes);
    if (!c->is_cancel)
        return delay_ms;
    p->counters.cancel_count++;
    if (p->cancel_delay_ms > 0)
        p->counters.delayed_cancel_count++;
    return delay_ms + p->cancel_delay_ms;
}

static void lane_push(struct lane *lane, struct chunk *chunk)
{
    *lane->last = chunk;
    lane->last = &chunk->next;
    lane->queued_bytes += chunk->size_bytes;
}

/* False: the connection is broken. */
static bool lane_read(struct fault_proxy *p, struct connection *c, struct lane *lane)
{
    struct chunk *chunk = malloc(sizeof *chunk + CHUNK_BYTES);
    ssize_t got;

    if (chunk == NULL)
        scratch_give_up("out of memory");
    got = recv(lane->from, chunk->data, CHUNK_BYTES, 0);
    c->has_lost = c->has_lost || p->mode == FAULT_BLACK_HOLE; /* an end of file is lost as well */
    if (got <= 0) {
        bool is_broken = got < 0 && errno != EAGAIN && errno != EINTR;

        lane->has_ended = got == 0 || is_broken;
        free(chunk);
        return !is_broken;
    }
    if (c->has_lost) {
        p->counters.swallowed_bytes += (uint64_t)got;
        free(chunk);
        return true;
    }
    chunk->next = NULL;
    chunk->size_bytes = (size_t)got;
    chunk->sent_bytes = 0;
    chunk->due = instant_after(clock_now(), delay_of(p, c, lane, chunk) * 1000);
    lane_push(lane, chunk);
    return true;
}

/* How much may still pass before the next cut. */
static size_t allowance(const struct fault_proxy *p, enum fault_direction direction, size_t size)
{
    uint64_t left;

    if (p->cut_times[direction] == 0)
        return size;
    left = p->cut_bytes[direction] - p->cut_passed[direction];
    return left < size ? (size_t)left : size;
}

static bool must_cut(struct fault_proxy *p, enum fault_direction direction, size_t passed_bytes)
{
    if (p->cut_times[direction] == 0)
        return false;
    p->cut_passed[direction] += passed_bytes;
    if (p->cut_passed[direction] < p->cut_bytes[direction])
        return false;
    p->cut_passed[direction] = 0;
    p->cut_times[direction]--;
    p->counters.cut_count++;
    return true;
}

/* Sends what is due. False: the connection is to be reset. */
static bool lane_write(struct fault_proxy *p, struct lane *lane, enum fault_direction direction,
                       struct instant now)
{
    while (lane->first != NULL && instant_reached(now, lane->first->due)) {
        struct chunk *chunk = lane->first;
        size_t size = allowance(p, direction, chunk->size_bytes - chunk->sent_bytes);
        ssize_t sent = send(lane->to, chunk->data + chunk->sent_bytes, size, MSG_NOSIGNAL);

        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        chunk->sent_bytes += (size_t)sent;
        *(direction == FAULT_UP ? &p->counters.up_bytes : &p->counters.down_bytes) +=
            (uint64_t)sent;
        if (must_cut(p, direction, (size_t)sent))
            return false;
        if (chunk->sent_bytes == chunk->size_bytes)
            lane_pop(lane);
    }
    if (lane->has_ended && lane->first == NULL && !lane->is_shut) {
        lane->is_shut = true;
        (void)shutdown(lane->to, SHUT_WR);
    }
    return true;
}

static bool finish_connect(struct fault_proxy *p, struct connection *c)
{
    int error = 0;
    socklen_t size = sizeof error;

    c->is_connecting = false;
    (void)getsockopt(c->server, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0)
        p->counters.upstream_failed_count++;
    return error == 0;
}

/* --- the loop --- */

static bool wants_read(const struct lane *lane)
{
    return lane->from >= 0 && !lane->has_ended && lane->queued_bytes < QUEUE_BYTES;
}

static bool wants_write(const struct lane *lane, struct instant now)
{
    return lane->first != NULL && instant_reached(now, lane->first->due);
}

static int events_of(const struct lane *in, const struct lane *out, struct instant now)
{
    return (wants_read(in) ? POLLIN : 0) | (wants_write(out, now) ? POLLOUT : 0);
}

/* A socket we want nothing from is left out: its hang-up would wake us without end. */
static void watch(struct pollfd *slot, int fd, int events)
{
    *slot = (struct pollfd){.fd = events != 0 ? fd : -1, .events = (short)events};
}

static void watch_connection(const struct fault_proxy *p, const struct connection *c,
                             struct pollfd slots[2], struct instant now)
{
    bool is_still = is_stalling(p);

    watch(&slots[0], c->caller,
          is_still || c->is_connecting ? 0 : events_of(&c->up, &c->down, now));
    watch(&slots[1], c->server,
          c->is_connecting ? POLLOUT : (is_still ? 0 : events_of(&c->down, &c->up, now)));
}

static bool is_finished(const struct fault_proxy *p, const struct connection *c)
{
    if (c->has_lost) /* the hole hides the end as well, until it is closed */
        return p->mode != FAULT_BLACK_HOLE && (c->up.has_ended || c->down.has_ended);
    return c->up.is_shut && c->down.is_shut;
}

/* False: reset it. A cancel request is delivered whatever became of its sender. */
static bool move_bytes(struct fault_proxy *p, struct connection *c, const struct pollfd slots[2],
                       struct instant now)
{
    bool ok = true;

    if ((slots[0].revents & ~POLLOUT) != 0 && !c->up.has_ended)
        ok = lane_read(p, c, &c->up);
    if ((slots[1].revents & ~POLLOUT) != 0 && !c->down.has_ended)
        ok = lane_read(p, c, &c->down) && ok;
    if (c->has_lost)
        return true;
    if (!ok && c->is_cancel && c->up.first != NULL)
        ok = true;
    return ok && lane_write(p, &c->up, FAULT_UP, now) && lane_write(p, &c->down, FAULT_DOWN, now);
}

static void serve_connection(struct fault_proxy *p, struct connection *c,
                             const struct pollfd slots[2], struct instant now)
{
    if (c->is_connecting) {
        if (slots[1].revents != 0 && !finish_connect(p, c))
            connection_drop(p, c, true);
        return;
    }
    if (is_stalling(p))
        return;
    if (!move_bytes(p, c, slots, now))
        connection_drop(p, c, true);
    else if (is_finished(p, c))
        connection_drop(p, c, false);
}

static int turn_timeout_ms(const struct fault_proxy *p, struct instant now)
{
    struct instant next = INSTANT_NEVER;

    if (is_stalling(p))
        return -1;
    for (const struct connection *c = p->connections; c != NULL; c = c->next) {
        if (c->up.first != NULL && !instant_reached(now, c->up.first->due))
            next = instant_earlier(next, c->up.first->due);
        if (c->down.first != NULL && !instant_reached(now, c->down.first->due))
            next = instant_earlier(next, c->down.first->due);
    }
    return next.us == INSTANT_NEVER.us ? -1 : (int)(instant_span_us(now, next) / 1000 + 1);
}

static void close_fillers(struct fault_proxy *p)
{
    for (int i = 0; i < FILLER_COUNT; i++) {
        if (p->fillers[i] >= 0)
            (void)close(p->fillers[i]);
        p->fillers[i] = -1;
    }
}

/* The kernel drops SYNs while the accept queue is full: make it short, and fill it ourselves. */
static void stop_answering(struct fault_proxy *p)
{
    (void)listen(p->listener, 0);
    for (int i = 0; i < FILLER_COUNT; i++) {
        struct sockaddr_in own = {0};
        socklen_t size = sizeof own;

        p->fillers[i] = start_connect(p->port);
        (void)getsockname(p->fillers[i], (struct sockaddr *)&own, &size);
        p->filler_ports[i] = ntohs(own.sin_port);
    }
}

static void enter_mode(struct fault_proxy *p)
{
    if (p->mode_in_force == FAULT_UNANSWERED) {
        close_fillers(p);
        (void)listen(p->listener, BACKLOG);
        accept_all(p);
        memset(p->filler_ports, 0, sizeof p->filler_ports);
    }
    p->mode_in_force = p->mode;
    if (p->mode == FAULT_REFUSE && p->listener >= 0) {
        (void)close(p->listener);
        p->listener = -1;
    } else if (p->mode != FAULT_REFUSE && p->listener < 0) {
        p->listener = open_listener(p->port);
    }
    if (p->mode == FAULT_REFUSE || p->mode == FAULT_RESET)
        reset_all(p);
    if (p->mode == FAULT_UNANSWERED)
        stop_answering(p);
    if (is_stalling(p))
        count_stalled(p);
}

static void apply_settings(struct fault_proxy *p)
{
    if (p->mode != p->mode_in_force)
        enter_mode(p);
    if (p->wants_reset_open)
        reset_all(p);
    p->wants_reset_open = false;
    p->done_turn = p->asked_turn;
    (void)pthread_cond_broadcast(&p->turned);
}

/* Fills the slots: wake, listener, then two per connection in list order. Returns their number. */
static nfds_t watch_all(const struct fault_proxy *p, struct pollfd *slots, struct instant now)
{
    nfds_t count = 2;

    watch(&slots[0], p->wake_fd, POLLIN);
    watch(&slots[1], p->listener, p->mode == FAULT_UNANSWERED ? 0 : POLLIN);
    for (const struct connection *c = p->connections; c != NULL; c = c->next) {
        if (count + 2 > 2 + 2 * CONNECTION_LIMIT)
            scratch_give_up("fault proxy: more than %d connections", CONNECTION_LIMIT);
        watch_connection(p, c, &slots[count], now);
        count += 2;
    }
    return count;
}

static void serve_all(struct fault_proxy *p, const struct pollfd *slots)
{
    struct instant now = clock_now();
    struct connection *c = p->connections;

    for (const struct pollfd *slot = slots + 2; c != NULL; slot += 2) {
        struct connection *next = c->next;

        serve_connection(p, c, slot, now);
        c = next;
    }
    if (slots[1].revents != 0 && p->listener >= 0)
        accept_all(p);
}

static void *proxy_run(void *context)
{
    struct fault_proxy *p = context;
    struct pollfd *slots = calloc(2 + 2 * CONNECTION_LIMIT, sizeof *slots);
    uint64_t wakes;

    if (slots == NULL)
        scratch_give_up("out of memory");
    (void)pthread_mutex_lock(&p->lock);
    while (!p->is_over) {
        struct instant now = clock_now();
        nfds_t count = watch_all(p, slots, now);
        int timeout_ms = turn_timeout_ms(p, now);

        (void)pthread_mutex_unlock(&p->lock);
        (void)poll(slots, count, timeout_ms);
        (void)pthread_mutex_lock(&p->lock);
        serve_all(p, slots);
        if (slots[0].revents != 0)
            (void)!read(p->wake_fd, &wakes, sizeof wakes);
        apply_settings(p);
    }
    (void)pthread_mutex_unlock(&p->lock);
    free(slots);
    return NULL;
}

/* --- for the test --- */

struct fault_proxy *fault_proxy_create(uint16_t server_port)
{
    struct fault_proxy *p = calloc(1, sizeof *p);

    if (p == NULL)
        scratch_give_up("out of memory");
    p->server_port = server_port;
    p->port = scratch_port();
    p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->listener = open_listener(p->port);
    for (int i = 0; i < FILLER_COUNT; i++)
        p->fillers[i] = -1;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->turned, NULL);
    if (pthread_create(&p->thread, NULL, proxy_run, p) != 0)
        scratch_give_up("no thread for the fault proxy");
    return p;
}

/* Wakes the thread and waits until it has seen the settings. */
static void settle_locked(struct fault_proxy *p)
{
    uint64_t mine = ++p->asked_turn;

    (void)!write(p->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    while (p->done_turn < mine)
        (void)pthread_cond_wait(&p->turned, &p->lock);
}

void fault_proxy_destroy(struct fault_proxy *p)
{
    if (p == NULL)
        return;
    (void)pthread_mutex_lock(&p->lock);
    p->is_over = true;
    (void)!write(p->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    reset_all(p);
    close_fillers(p);
    if (p->listener >= 0)
        (void)close(p->listener);
    (void)close(p->wake_fd);
    (void)pthread_cond_destroy(&p->turned);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

uint16_t fault_proxy_port(const struct fault_proxy *p)
{
    return p->port;
}

void fault_proxy_set_mode(struct fault_proxy *p, enum fault_mode mode)
{
    (void)pthread_mutex_lock(&p->lock);
    p->mode = mode;
    settle_locked(p);
    (void)pthread_mutex_unlock(&p->lock);
}

void fault_proxy_set_latency(struct fault_proxy *p, int64_t latency_ms)
{
    (void)pthread_mutex_lock(&p->lock);
    p->latency_ms = latency_ms;
    settle_locked(p);
    (void)pthread_mutex_unlock(&p->lock);
}

void fault_proxy_delay_cancels(struct fault_proxy *p, int64_t delay_ms)
{
    (void)pthread_mutex_lock(&p->lock);
    p->cancel_delay_ms = delay_ms;
    settle_locked(p);
    (void)pthread_mutex_unlock(&p->lock);
}

void fault_proxy_cut_after(struct fault_proxy *p, enum fault_direction direction,
                           uint64_t size_bytes, unsigned times)
{
    (void)pthread_mutex_lock(&p->lock);
    p->cut_bytes[direction] = size_bytes > 0 ? size_bytes : 1;
    p->cut_times[direction] = times;
    p->cut_passed[direction] = 0;
    settle_locked(p);
    (void)pthread_mutex_unlock(&p->lock);
}

void fault_proxy_reset_open(struct fault_proxy *p)
{
    (void)pthread_mutex_lock(&p->lock);
    p->wants_reset_open = true;
    settle_locked(p);
    (void)pthread_mutex_unlock(&p->lock);
}

struct fault_counters fault_proxy_counters(struct fault_proxy *p)
{
    struct fault_counters counters;

    (void)pthread_mutex_lock(&p->lock);
    counters = p->counters;
    (void)pthread_mutex_unlock(&p->lock);
    return counters;
}

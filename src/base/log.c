#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

/* The ring
 *
 *      tail                    head
 *   ----[size|line..][size|line..]-----      positions only grow; the ring is them modulo its size
 *      ^ writer                ^ callers
 *
 * A caller claims room by moving `head` (compare-and-swap), copies its line behind the first word,
 * then stores the line's size in that word: the record is complete. The writer takes complete
 * records at `tail`, clears them (every word may be the first of a later record: 0 means "not
 * complete yet") and moves `tail`. Neither side ever waits for the other. */
enum {
    RING_BYTES = 1 << 20,
    WORD_BYTES = sizeof(uint64_t),
    RING_WORDS = RING_BYTES / WORD_BYTES,
    LINE_BYTES = sizeof((struct log_line *)NULL)->text,
    END_BYTES = 2,      /* "}\n" */
    WRITE_BYTES = 4096, /* PIPE_BUF: such a write is whole, and does not block after POLLOUT */
    STOP_MS = 1000,
    STOP_GRACE_MS = 200,
    PAUSE_MS = 10,
    MS_PLACE = 20, /* of the milliseconds in 2026-01-31T12:00:00.123Z */
};

static const int64_t LIMIT_SPAN_US = 1000000;

static _Atomic uint64_t ring[RING_WORDS]; /* apart, so that it takes no room in the binary */

static struct {
    _Atomic uint64_t head; /* moved by callers */
    _Atomic uint64_t tail; /* moved by the writer */
    _Atomic bool is_writer_idle;
    _Atomic bool is_running;
    _Atomic uint64_t dropped_count;
    _Atomic int64_t stop_at_us; /* monotonic; INT64_MAX: not stopping */
    _Atomic int level, format, fd;
    _Atomic bool is_fd_stuck; /* of direct writes: the last one found no room in time */
    bool is_lost;             /* a writer that did not end in time still owns the ring */
    int wake_fd, done_fd;     /* eventfds; written by log_start() before there is a writer */
    pthread_t thread;
} the = {.level = LOG_INFO, .format = LOG_JSON, .fd = STDERR_FILENO, .wake_fd = -1, .done_fd = -1};

static const char *const level_names[LOG_LEVEL_COUNT] = {"debug", "info", "warn", "error"};

static uint64_t record_bytes(uint64_t line_bytes)
{
    return WORD_BYTES + (line_bytes + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES;
}

static _Atomic uint64_t *word_at(uint64_t position)
{
    return &ring[position / WORD_BYTES % RING_WORDS];
}

/* --- callers --------------------------------------------------------------------------------- */

static bool claim(uint64_t need_bytes, uint64_t *out_position)
{
    for (;;) {
        /* In this order: head can only be at or past a tail already seen. */
        uint64_t tail = atomic_load_explicit(&the.tail, memory_order_acquire);
        uint64_t head = atomic_load_explicit(&the.head, memory_order_relaxed);

        if (head + need_bytes - tail > RING_BYTES)
            return false;
        if (atomic_compare_exchange_weak_explicit(&the.head, &head, head + need_bytes,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *out_position = head;
            return true;
        }
    }
}

static void ring_push(const struct log_line *l)
{
    uint64_t position, word;

    if (!claim(record_bytes(l->size_bytes), &position)) {
        atomic_fetch_add_explicit(&the.dropped_count, 1, memory_order_relaxed);
        return;
    }
    for (size_t i = 0; i < l->size_bytes; i += WORD_BYTES) {
        size_t left = l->size_bytes - i;

        word = 0;
        memcpy(&word, l->text + i, left < WORD_BYTES ? left : WORD_BYTES);
        atomic_store_explicit(word_at(position + WORD_BYTES + i), word, memory_order_relaxed);
    }
    /* Sequentially consistent, as are the writer's two steps to sleep: one of the two sees the
     * other, so no line is left lying while the writer sleeps. */
    atomic_store(word_at(position), l->size_bytes);
    if (atomic_load(&the.is_writer_idle) && atomic_exchange(&the.is_writer_idle, false))
        (void)eventfd_write(the.wake_fd, 1);
}

/* --- the writer ------------------------------------------------------------------------------ */

/* A complete record at the tail: its line's size, else 0. */
static uint64_t ring_peek(void)
{
    return atomic_load(word_at(atomic_load_explicit(&the.tail, memory_order_relaxed)));
}

static void ring_take(char *out_line, uint64_t size_bytes)
{
    uint64_t tail = atomic_load_explicit(&the.tail, memory_order_relaxed);
    uint64_t whole_bytes = record_bytes(size_bytes);

    for (uint64_t i = WORD_BYTES; i < whole_bytes; i += WORD_BYTES) {
        uint64_t done = i - WORD_BYTES, left = size_bytes - done;
        uint64_t word = atomic_exchange_explicit(word_at(tail + i), 0, memory_order_relaxed);

        memcpy(out_line + done, &word, left < WORD_BYTES ? left : WORD_BYTES);
    }
    atomic_store_explicit(word_at(tail), 0, memory_order_relaxed);
    atomic_store_explicit(&the.tail, tail + whole_bytes, memory_order_release);
}

/* As many whole lines as one write may carry. */
static size_t ring_take_batch(char out_batch[WRITE_BYTES], uint64_t *out_line_count)
{
    size_t used = 0;
    uint64_t size;

    *out_line_count = 0;
    while ((size = ring_peek()) != 0 && used + size <= WRITE_BYTES) {
        ring_take(out_batch + used, size);
        used += (size_t)size;
        ++*out_line_count;
    }
    return used;
}

static int64_t stop_at_us(void)
{
    return atomic_load_explicit(&the.stop_at_us, memory_order_acquire);
}

/* What poll() may wait: for ever, or what is left until the stop. */
static int wait_ms(void)
{
    int64_t stop_us = stop_at_us(), left_us;

    if (stop_us == INT64_MAX)
        return -1;
    left_us = stop_us - clock_now().us;
    return left_us <= 0 ? 0 : (int)((left_us + 999) / 1000);
}

static bool is_past_stop(void)
{
    return stop_at_us() != INT64_MAX && wait_ms() == 0;
}

static void sleep_until_woken(int fd)
{
    struct pollfd fds[] = {{.fd = the.wake_fd, .events = POLLIN}, {.fd = fd, .events = POLLOUT}};
    eventfd_t ignored;

    if (poll(fds, fd >= 0 ? 2 : 1, wait_ms()) > 0 && fds[0].revents != 0)
        (void)eventfd_read(the.wake_fd, &ignored);
}

/* One step of a write. False: the descriptor will not take it, now or ever. */
static bool write_some(int fd, const char *bytes, size_t size_bytes, size_t *done_bytes)
{
    ssize_t n = write(fd, bytes + *done_bytes, size_bytes - *done_bytes);

    if (n >= 0)
        *done_bytes += (size_t)n;
    else if (errno == EAGAIN) /* room, but not for all of it */
        (void)poll(NULL, 0, PAUSE_MS);
    else if (errno != EINTR)
        return false;
    return true;
}

static bool can_take(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n;

    do
        n = poll(&p, 1, timeout_ms);
    while (n < 0 && errno == EINTR);
    return n != 0; /* an error too: write() tells which */
}

static bool write_batch(const char *bytes, size_t size_bytes)
{
    int fd = atomic_load_explicit(&the.fd, memory_order_relaxed);
    size_t done = 0;

    while (done < size_bytes) {
        if (!can_take(fd, 0)) {
            if (is_past_stop())
                return false;
            sleep_until_woken(fd);
        } else if (!write_some(fd, bytes, size_bytes, &done)) {
            return false;
        }
    }
    return true;
}

/* Announces the sleep, looks once more, then sleeps (see ring_push). */
static void wait_for_lines(void)
{
    atomic_store(&the.is_writer_idle, true);
    if (ring_peek() == 0)
        sleep_until_woken(-1);
    atomic_store(&the.is_writer_idle, false);
}

static void *writer_main(void *unused)
{
    char batch[WRITE_BYTES];
    uint64_t lines;

    for (;;) {
        size_t size = ring_take_batch(batch, &lines);

        if (size == 0) {
            if (stop_at_us() != INT64_MAX)
                break;
            wait_for_lines();
        } else if (is_past_stop() || !write_batch(batch, size)) {
            atomic_fetch_add_explicit(&the.dropped_count, lines, memory_order_relaxed);
        }
    }
    (void)eventfd_write(the.done_fd, 1);
    return unused;
}

/* --- start and stop -------------------------------------------------------------------------- */

/* Made once and kept: a caller may still wake a writer that has just ended. */
static bool make_eventfds(void)
{
    if (the.wake_fd < 0)
        the.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (the.done_fd < 0)
        the.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return the.wake_fd >= 0 && the.done_fd >= 0;
}

/* Signals are for other threads, and a reader that went away must not end the process. */
static bool make_thread(void)
{
    sigset_t all, before;
    bool is_made;

    (void)sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    is_made = pthread_create(&the.thread, NULL, writer_main, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_made;
}

bool log_start(int fd, enum log_level least, enum log_format format)
{
    if (atomic_load(&the.is_running) || the.is_lost || !make_eventfds())
        return false;
    atomic_store(&the.fd, fd);
    atomic_store(&the.level, (int)least);
    atomic_store(&the.format, (int)format);
    atomic_store(&the.stop_at_us, INT64_MAX);
    atomic_store(&the.is_fd_stuck, false);
    if (!make_thread())
        return false;
    atomic_store(&the.is_running, true);
    return true;
}

void log_stop(void)
{
    struct pollfd done = {.fd = the.done_fd, .events = POLLIN};
    eventfd_t ignored;

    if (!atomic_exchange(&the.is_running, false))
        return;
    atomic_store(&the.stop_at_us, clock_now().us + (int64_t)STOP_MS * 1000);
    (void)eventfd_write(the.wake_fd, 1);

    /* Someone else who fills the same pipe can catch the writer inside write(): leave it there. */
    if (poll(&done, 1, STOP_MS + STOP_GRACE_MS) > 0) {
        (void)eventfd_read(the.done_fd, &ignored);
        (void)pthread_join(the.thread, NULL);
    } else {
        the.is_lost = true;
        (void)pthread_detach(the.thread);
    }
}

/* Without a writer. A stuck descriptor costs one second once, then only what fits is written. */
static void write_directly(const struct log_line *l)
{
    int fd = atomic_load(&the.fd);
    int timeout_ms = atomic_load(&the.is_fd_stuck) ? 0 : STOP_MS;
    bool is_taken = can_take(fd, timeout_ms);
    size_t done = 0;

    atomic_store(&the.is_fd_stuck, !is_taken);
    while (is_taken && done < l->size_bytes)
        is_taken = write_some(fd, l->text, l->size_bytes, &done) && can_take(fd, STOP_MS);
    if (done < l->size_bytes)
        atomic_fetch_add_explicit(&the.dropped_count, 1, memory_order_relaxed);
}

/* --- lines ----------------------------------------------------------------------------------- */

static bool is_json(const struct log_line *l)
{
    return l->text[0] == '{';
}

static size_t room_bytes(const struct log_line *l)
{
    return LINE_BYTES - END_BYTES - l->size_bytes;
}

static void put(struct log_line *l, const char *bytes, size_t size_bytes)
{
    memcpy(l->text + l->size_bytes, bytes, size_bytes);
    l->size_bytes += size_bytes;
}

/* Keys are ours: names without anything to escape. False: no room for it and a value of
 * `value_bytes`; then nothing is written. */
static bool put_key(struct log_line *l, const char *key, size_t value_bytes)
{
    size_t size = strlen(key);

    if (!l->is_wanted || room_bytes(l) < size + 4 + value_bytes)
        return false;
    if (is_json(l)) {
        if (l->size_bytes > 1)
            put(l, ",", 1);
        put(l, "\"", 1);
        put(l, key, size);
        put(l, "\":", 2);
    } else {
        put(l, " ", 1);
        put(l, key, size);
        put(l, "=", 1);
    }
    return true;
}

static void put_field(struct log_line *l, const char *key, const char *value)
{
    size_t size = strlen(value);

    if (put_key(l, key, size))
        put(l, value, size);
}

/* The bytes that stand for the character at `text`, and how many it takes from there. */
static size_t escape(const char *text, size_t size_bytes, char out[8], size_t *out_taken_bytes)
{
    static const char replacement[3] = {'\xEF', '\xBF', '\xBD'}; /* U+FFFD */
    static const char hex[] = "0123456789abcdef";
    unsigned char c = (unsigned char)*text;
    size_t length = utf8_character(text, size_bytes);

    *out_taken_bytes = length > 0 ? length : 1;
    if (length == 0) {
        memcpy(out, replacement, sizeof replacement);
        return sizeof replacement;
    }
    if (c < 0x20 || c == 0x7F) {
        out[0] = '\\';
        out[1] = 'u';
        out[2] = out[3] = '0';
        out[4] = hex[c >> 4];
        out[5] = hex[c & 0xF];
        return 6;
    }
    if (c == '"' || c == '\\') {
        out[0] = '\\';
        out[1] = (char)c;
        return 2;
    }
    memcpy(out, text, length);
    return length;
}

static const char CUT[] = "\xE2\x80\xA6"; /* an ellipsis where a value was cut */
enum { CUT_BYTES = sizeof CUT - 1 };

static bool is_plain_byte(char c)
{
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

/* Copies what needs no escape, as far as there is room for it and a cut. */
static size_t put_run(struct log_line *l, const char *text, size_t size_bytes)
{
    size_t most = room_bytes(l) - CUT_BYTES - 1, run = 0;

    while (run < size_bytes && run < most && is_plain_byte(text[run]))
        run++;
    put(l, text, run);
    return run;
}

/* There is room for the two quotes and a cut. */
static void put_quoted(struct log_line *l, const char *text, size_t size_bytes)
{
    size_t i;

    put(l, "\"", 1);
    i = put_run(l, text, size_bytes);
    while (i < size_bytes) {
        char bytes[8];
        size_t taken, n = escape(text + i, size_bytes - i, bytes, &taken);

        if (n + CUT_BYTES + 1 > room_bytes(l)) {
            put(l, CUT, CUT_BYTES);
            break;
        }
        put(l, bytes, n);
        i += taken;
        i += put_run(l, text + i, size_bytes - i);
    }
    put(l, "\"", 1);
}

static bool is_plain(const char *text, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        if (!is_plain_byte(text[i]) || text[i] == ' ' || text[i] == '=')
            return false;
    return size_bytes > 0;
}

/* The calendar is worked out once a second and thread; between, only the milliseconds change. */
static void format_now(char out_text[32])
{
    static _Thread_local int64_t second = -1;
    static _Thread_local char text[32];
    int64_t now_us = clock_wall_us();
    int ms = (int)(now_us / 1000 % 1000);

    if (now_us / 1000000 != second) {
        clock_format_wall(now_us, text);
        second = now_us / 1000000;
    }
    text[MS_PLACE] = (char)('0' + ms / 100);
    text[MS_PLACE + 1] = (char)('0' + ms / 10 % 10);
    text[MS_PLACE + 2] = (char)('0' + ms % 10);
    memcpy(out_text, text, sizeof text);
}

void log_begin(struct log_line *l, enum log_level level, const char *event)
{
    char time[32];

    l->size_bytes = 0;
    l->is_wanted = (int)level >= atomic_load_explicit(&the.level, memory_order_relaxed);
    if (!l->is_wanted)
        return;
    format_now(time);
    if (atomic_load_explicit(&the.format, memory_order_relaxed) == LOG_JSON) {
        put(l, "{", 1);
        log_str(l, "time", time);
        log_str(l, "level", level_names[level]);
        log_str(l, "event", event);
    } else {
        l->size_bytes = (size_t)snprintf(l->text, sizeof l->text, "%s %-5s %.200s", time,
                                         level_names[level], event);
    }
}

void log_str(struct log_line *l, const char *key, const char *value)
{
    if (value != NULL)
        log_bytes(l, key, value, strlen(value));
}

void log_bytes(struct log_line *l, const char *key, const char *value, size_t size_bytes)
{
    if (!l->is_wanted)
        return;
    if (!is_json(l) && size_bytes < room_bytes(l) && is_plain(value, size_bytes)) {
        if (put_key(l, key, size_bytes))
            put(l, value, size_bytes);
    } else if (put_key(l, key, CUT_BYTES + 2)) {
        put_quoted(l, value, size_bytes);
    }
}

void log_int(struct log_line *l, const char *key, int64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%" PRId64, value);
    put_field(l, key, text);
}

void log_bool(struct log_line *l, const char *key, bool value)
{
    put_field(l, key, value ? "true" : "false");
}

void log_ms(struct log_line *l, const char *key, int64_t value_us)
{
    uint64_t us = value_us < 0 ? -(uint64_t)value_us : (uint64_t)value_us;
    char text[32];

    (void)snprintf(text, sizeof text, "%s%" PRIu64 ".%03u", value_us < 0 ? "-" : "", us / 1000,
                   (unsigned)(us % 1000));
    put_field(l, key, text);
}

void log_end(struct log_line *l)
{
    if (!l->is_wanted)
        return;
    if (is_json(l))
        put(l, "}", 1);
    put(l, "\n", 1);
    if (atomic_load_explicit(&the.is_running, memory_order_acquire))
        ring_push(l);
    else
        write_directly(l);
    l->is_wanted = false; /* a second log_end() writes nothing */
}

/* --- the rest -------------------------------------------------------------------------------- */

uint64_t log_dropped_count(void)
{
    return atomic_load_explicit(&the.dropped_count, memory_order_relaxed);
}

bool log_level_parse(const char *text, enum log_level *out_level)
{
    for (int i = 0; i < LOG_LEVEL_COUNT; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *out_level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

const char *log_level_name(enum log_level level)
{
    return level_names[level];
}

bool log_limit_pass(struct log_limit *limit, int64_t now_us)
{
    if (now_us < limit->next_us) {
        limit->left_out_count++;
        return false;
    }
    limit->next_us = now_us + LIMIT_SPAN_US;
    return true;
}

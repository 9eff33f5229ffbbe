#include "scratch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_LIMIT = 64, PORT_FIRST = 20000, PORT_COUNT = 12000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects folders, leaf */
static char *folders[FOLDER_LIMIT];                      /* owned copies; NULL: a free place */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    (void)remove(path);
    return 0;
}

void scratch_remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_all(void)
{
    for (int i = 0; i < FOLDER_LIMIT; i++) {
        if (folders[i] != NULL)
            scratch_remove_tree(folders[i]);
        free(folders[i]);
        folders[i] = NULL;
    }
}

void scratch_give_up(const char *fmt, ...)
{
    va_list args;

    (void)fputs("NOT RUN: ", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputc('\n', stderr);
    remove_all();
    _exit(1);
}

static void remember(const char *folder)
{
    static bool is_registered = false;
    bool found = false;

    (void)pthread_mutex_lock(&lock);
    if (!is_registered)
        is_registered = atexit(remove_all) == 0;
    for (int i = 0; i < FOLDER_LIMIT && !found; i++) {
        if (folders[i] == NULL) {
            folders[i] = strdup(folder);
            found = true;
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

static void forget(const char *folder)
{
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < FOLDER_LIMIT; i++) {
        if (folders[i] != NULL && strcmp(folders[i], folder) == 0) {
            free(folders[i]);
            folders[i] = NULL;
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

char *scratch_folder(const char *prefix)
{
    const char *top = getenv("TMPDIR");
    char *path = scratch_format("%s/%s-XXXXXX", top != NULL ? top : "/tmp", prefix);

    if (mkdtemp(path) == NULL || chmod(path, 0755) != 0)
        scratch_give_up("cannot make %s: %s", path, strerrordesc_np(errno));
    remember(path);
    return path;
}

void scratch_remove(char *folder)
{
    if (folder == NULL)
        return;
    forget(folder);
    scratch_remove_tree(folder);
    free(folder);
}

static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0755);
        *slash = '/';
    }
}

static void write_file(const char *folder, const char *name, const char *text, const char *mode)
{
    char *path = scratch_format("%s/%s", folder, name);
    FILE *file;

    make_parents(path);
    file = fopen(path, mode);
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        scratch_give_up("cannot write %s: %s", path, strerrordesc_np(errno));
    free(path);
}

void scratch_write(const char *folder, const char *name, const char *text)
{
    write_file(folder, name, text, "we");
}

void scratch_append(const char *folder, const char *name, const char *text)
{
    write_file(folder, name, text, "ae");
}

char *scratch_read(const char *path, size_t *out_size_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size = 0, capacity = 16384;
    char *text = malloc(capacity + 1);
    ssize_t got;

    while (text != NULL && fd >= 0 && (got = read(fd, text + size, capacity - size)) > 0) {
        size += (size_t)got;
        if (size == capacity) {
            capacity *= 2;
            text = realloc(text, capacity + 1);
        }
    }
    if (text == NULL)
        scratch_give_up("out of memory");
    if (fd >= 0)
        (void)close(fd);
    text[size] = 0;
    if (out_size_bytes != NULL)
        *out_size_bytes = size;
    return text;
}

char *scratch_format(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int size;

    va_start(args, fmt);
    size = vasprintf(&text, fmt, args);
    va_end(args);
    if (size < 0)
        scratch_give_up("out of memory");
    return text;
}

/* Not by strstr(): AddressSanitizer's measures the rest of the text at each call, which makes a
 * long log take minutes. */
size_t scratch_count(const char *text, const char *needle)
{
    size_t left = strlen(text), size = strlen(needle), count = 0;
    const char *at;

    while (left >= size && (at = memchr(text, needle[0], left - size + 1)) != NULL) {
        count += memcmp(at, needle, size) == 0;
        left -= (size_t)(at + 1 - text);
        text = at + 1;
    }
    return count;
}

static bool is_free(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;

    (void)close(fd);
    return ok;
}

uint16_t scratch_port(void)
{
    for (int i = 0; i < 1000; i++) {
        uint16_t number, port;

        if (getrandom(&number, sizeof number, 0) != sizeof number)
            break;
        port = (uint16_t)(PORT_FIRST + number % PORT_COUNT);
        if (is_free(port))
            return port;
    }
    scratch_give_up("no free port on 127.0.0.1");
}

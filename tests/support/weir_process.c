#include "weir_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "http_client.h"
#include "patience.h"
#include "scratch.h"

enum { READY_MS = 20000, COMMAND_MS = 60000, ENV_LIMIT = 256 };

struct weir_process {
    char *folder; /* owned scratch */
    char *binary; /* owned */
    char **env;   /* owned array; its strings are borrowed */
    uint16_t port, admin_port;
    pid_t pid; /* 0: not running */

    pthread_t reader;
    int log_fd;

    pthread_mutex_t lock; /* protects the rest; leaf */
    pthread_cond_t resumed;
    bool is_paused, is_leaving;
    char *log; /* owned, NUL-terminated */
    size_t log_size, log_capacity;
};

/* --- the folder --- */

static char **environment_with(char *const *more)
{
    char **env = calloc(ENV_LIMIT + 1, sizeof *env);
    size_t count = 0;

    if (env == NULL)
        scratch_give_up("out of memory");
    for (; more != NULL && *more != NULL && count < ENV_LIMIT; more++)
        env[count++] = *more;
    for (char **at = environ; *at != NULL && count < ENV_LIMIT; at++)
        env[count++] = *at;
    return env;
}

static void write_config(const struct weir_process *weir, const struct weir_setup *setup)
{
    char *text = scratch_format("{\"server\": {\"address\": \"127.0.0.1\", \"port\": %u%s%s},\n"
                                " \"admin\": {\"address\": \"127.0.0.1\", \"port\": %u},\n"
                                " \"api\": \"api\",\n"
                                " \"log\": {%s},\n"
                                " \"dependencies\": %s}\n",
                                weir->port, setup->server != NULL ? ", " : "",
                                setup->server != NULL ? setup->server : "", weir->admin_port,
                                setup->log != NULL ? setup->log : "\"level\": \"info\"",
                                setup->dependencies);

    scratch_write(weir->folder, "weir.json", text);
    free(text);
}

void weir_write(struct weir_process *weir, const char *name, const char *text)
{
    char *path = scratch_format("api/%s", name);

    if (strncmp(name, "../", 3) == 0)
        scratch_write(weir->folder, name + 3, text);
    else
        scratch_write(weir->folder, path, text);
    free(path);
}

static char *binary_path(void)
{
    const char *path = getenv("WEIR_BIN");

    if (path == NULL)
        scratch_give_up("WEIR_BIN does not say where weir is; run ctest");
    return scratch_format("%s", path);
}

struct weir_process *weir_create(const struct weir_setup *setup)
{
    struct weir_process *weir = calloc(1, sizeof *weir);

    if (weir == NULL)
        scratch_give_up("out of memory");
    weir->binary = binary_path();
    weir->folder = scratch_folder("weir-test");
    weir->env = environment_with(setup->env);
    weir->port = scratch_port();
    do {
        weir->admin_port = scratch_port();
    } while (weir->admin_port == weir->port);
    (void)pthread_mutex_init(&weir->lock, NULL);
    (void)pthread_cond_init(&weir->resumed, NULL);
    scratch_write(weir->folder, "api/README", "");
    write_config(weir, setup);
    for (const struct weir_file *f = setup->files; f != NULL && f->name != NULL; f++)
        weir_write(weir, f->name, f->text);
    return weir;
}

/* --- its log --- */

static void keep_locked(struct weir_process *weir, const char *bytes, size_t size)
{
    if (weir->log_size + size + 1 > weir->log_capacity) {
        weir->log_capacity = 2 * (weir->log_size + size + 4096);
        weir->log = realloc(weir->log, weir->log_capacity);
        if (weir->log == NULL)
            scratch_give_up("out of memory");
    }
    memcpy(weir->log + weir->log_size, bytes, size);
    weir->log_size += size;
    weir->log[weir->log_size] = 0;
}

static void *read_log(void *context)
{
    struct weir_process *weir = context;
    char bytes[65536];
    ssize_t got;

    while ((got = read(weir->log_fd, bytes, sizeof bytes)) > 0 || (got < 0 && errno == EINTR)) {
        (void)pthread_mutex_lock(&weir->lock);
        if (got > 0)
            keep_locked(weir, bytes, (size_t)got);
        while (weir->is_paused && !weir->is_leaving)
            (void)pthread_cond_wait(&weir->resumed, &weir->lock);
        (void)pthread_mutex_unlock(&weir->lock);
    }
    return NULL;
}

char *weir_log(struct weir_process *weir)
{
    char *copy;

    (void)pthread_mutex_lock(&weir->lock);
    copy = scratch_format("%s", weir->log != NULL ? weir->log : "");
    (void)pthread_mutex_unlock(&weir->lock);
    return copy;
}

size_t weir_log_count(struct weir_process *weir, const char *needle)
{
    char *text = weir_log(weir);
    size_t count = scratch_count(text, needle);

    free(text);
    return count;
}

struct wanted_line {
    struct weir_process *weir;
    const char *needle;
};

static bool has_line(void *context)
{
    const struct wanted_line *wanted = context;

    return weir_log_count(wanted->weir, wanted->needle) > 0;
}

bool weir_log_has_within(struct weir_process *weir, const char *needle, int64_t limit_ms)
{
    return poll_until(has_line, &(struct wanted_line){weir, needle}, limit_ms);
}

void weir_pause_log(struct weir_process *weir, bool is_paused)
{
    (void)pthread_mutex_lock(&weir->lock);
    weir->is_paused = is_paused;
    (void)pthread_cond_broadcast(&weir->resumed);
    (void)pthread_mutex_unlock(&weir->lock);
}

/* --- life --- */

void weir_launch(struct weir_process *weir)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        scratch_give_up("no pipe: %s", strerrordesc_np(errno));
    weir->pid = child_start(
        &(struct child_setup){.argv = (char *[]){weir->binary, "serve", "-c", "weir.json", NULL},
                              .env = weir->env,
                              .folder = weir->folder,
                              .out_fd = STDERR_FILENO,
                              .err_fd = ends[1],
                              .death_signal = SIGKILL});
    (void)close(ends[1]);
    weir->log_fd = ends[0];
    weir->is_leaving = false;
    if (pthread_create(&weir->reader, NULL, read_log, weir) != 0)
        scratch_give_up("no thread for the log");
}

static bool lives(void *context)
{
    struct weir_process *weir = context;
    char *url = weir_admin_url(weir, "/health/live");
    struct http_answer answer = http_ask(&(struct http_request){.url = url, .timeout_ms = 2000});
    bool ok = answer.status == 200;

    http_answer_fini(&answer);
    free(url);
    if (!ok && child_wait(weir->pid, 0) != -1)
        scratch_give_up("weir ended: %s", weir_log(weir));
    return ok;
}

void weir_start(struct weir_process *weir)
{
    weir_launch(weir);
    if (!poll_until(lives, weir, READY_MS))
        scratch_give_up("weir does not answer: %s", weir_log(weir));
}

static void join_reader(struct weir_process *weir)
{
    (void)pthread_mutex_lock(&weir->lock);
    weir->is_leaving = true;
    (void)pthread_cond_broadcast(&weir->resumed);
    (void)pthread_mutex_unlock(&weir->lock);
    (void)pthread_join(weir->reader, NULL);
    (void)close(weir->log_fd);
}

/* What weir wrote that is no line of its log: whoever asks why it ended badly needs it. */
static void print_report(const struct weir_process *weir)
{
    const char *line = weir->log != NULL ? weir->log : "";

    while (*line != '\0') {
        size_t size = strcspn(line, "\n");

        if (*line != '{')
            (void)fprintf(stderr, "%.*s\n", (int)size, line);
        line += size + (line[size] == '\n');
    }
}

int weir_wait(struct weir_process *weir, int64_t limit_ms)
{
    int code = child_wait(weir->pid, limit_ms);

    if (code == -1) {
        (void)kill(weir->pid, SIGKILL);
        (void)child_wait(weir->pid, limit_ms);
    }
    weir->pid = 0;
    join_reader(weir);
    if (code != 0)
        print_report(weir);
    return code;
}

int weir_stop(struct weir_process *weir, int64_t limit_ms)
{
    weir_signal(weir, SIGTERM);
    return weir_wait(weir, limit_ms);
}

void weir_signal(struct weir_process *weir, int signal_number)
{
    if (weir->pid != 0)
        (void)kill(weir->pid, signal_number);
}

void weir_destroy(struct weir_process *weir)
{
    if (weir == NULL)
        return;
    if (weir->pid != 0) {
        (void)kill(weir->pid, SIGKILL);
        (void)weir_wait(weir, 5000);
    }
    scratch_remove(weir->folder);
    (void)pthread_cond_destroy(&weir->resumed);
    (void)pthread_mutex_destroy(&weir->lock);
    free(weir->env);
    free(weir->binary);
    free(weir->log);
    free(weir);
}

static int output_file(const char *folder, const char *name)
{
    char *path = scratch_format("%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    free(path);
    return fd;
}

static char *output_text(const char *folder, const char *name)
{
    char *path = scratch_format("%s/%s", folder, name);
    char *text = scratch_read(path, NULL);

    free(path);
    return text;
}

struct weir_output weir_run(struct weir_process *weir, const char *const *arguments)
{
    char *argv[16] = {weir->binary};
    struct weir_output output;
    int out = output_file(weir->folder, "stdout"), err = output_file(weir->folder, "stderr");
    size_t count = 0;
    pid_t pid;

    for (size_t i = 0; arguments[i] != NULL && i < 14; i++)
        argv[++count] = scratch_format("%s", arguments[i]);
    pid = child_start(&(struct child_setup){.argv = argv,
                                            .env = weir->env,
                                            .folder = weir->folder,
                                            .out_fd = out,
                                            .err_fd = err,
                                            .death_signal = SIGKILL});
    output.exit_code = child_wait(pid, COMMAND_MS);
    if (output.exit_code == -1) {
        (void)kill(pid, SIGKILL);
        (void)child_wait(pid, 5000);
    }
    while (count > 0)
        free(argv[count--]);
    (void)close(out);
    (void)close(err);
    output.out = output_text(weir->folder, "stdout");
    output.err = output_text(weir->folder, "stderr");
    return output;
}

void weir_output_fini(struct weir_output *output)
{
    free(output->out);
    free(output->err);
    *output = (struct weir_output){0};
}

/* --- asking --- */

uint16_t weir_port(const struct weir_process *weir)
{
    return weir->port;
}

uint16_t weir_admin_port(const struct weir_process *weir)
{
    return weir->admin_port;
}

pid_t weir_pid(const struct weir_process *weir)
{
    return weir->pid;
}

char *weir_url(const struct weir_process *weir, const char *path)
{
    return scratch_format("http://127.0.0.1:%u%s", weir->port, path);
}

char *weir_admin_url(const struct weir_process *weir, const char *path)
{
    return scratch_format("http://127.0.0.1:%u%s", weir->admin_port, path);
}

/* One label (`name="value"`) of the wanted list is among those of the sample. */
static bool has_label(const char *labels, size_t size, const char *wanted, size_t wanted_size)
{
    for (size_t i = 0; i + wanted_size <= size; i++) {
        bool starts = i == 0 || labels[i - 1] == ',';
        bool ends = i + wanted_size == size || labels[i + wanted_size] == ',';

        if (starts && ends && memcmp(labels + i, wanted, wanted_size) == 0)
            return true;
    }
    return false;
}

static bool has_labels(const char *labels, size_t size, const char *wanted)
{
    while (*wanted != 0) {
        const char *end = strstr(wanted, "\",");
        size_t wanted_size = end != NULL ? (size_t)(end + 1 - wanted) : strlen(wanted);

        if (!has_label(labels, size, wanted, wanted_size))
            return false;
        wanted += wanted_size + (end != NULL ? 1 : 0);
    }
    return true;
}

/* A line of the exposition: NAME{LABELS} VALUE. A label's value may hold braces. */
static bool is_sample(const char *line, size_t size, const char *name, const char *labels,
                      double *out_value)
{
    size_t name_size = strlen(name);
    const char *value = memrchr(line, ' ', size);

    if (value == NULL || size <= name_size || strncmp(line, name, name_size) != 0)
        return false;
    if (line[name_size] == '{') {
        if (!has_labels(line + name_size + 1, (size_t)(value - line) - name_size - 2, labels))
            return false;
    } else if (line[name_size] != ' ' || *labels != 0) {
        return false;
    }
    *out_value = strtod(value, NULL);
    return true;
}

static double sum_samples(const char *text, const char *name, const char *labels)
{
    double sum = -1, value;

    for (const char *line = text; *line != 0;) {
        size_t size = strcspn(line, "\n");

        if (is_sample(line, size, name, labels, &value))
            sum = (sum < 0 ? 0 : sum) + value;
        line += size + (line[size] != 0 ? 1 : 0);
    }
    return sum;
}

double weir_metric(const struct weir_process *weir, const char *name, const char *labels)
{
    char *url = weir_admin_url(weir, "/metrics");
    struct http_answer answer = http_get(url);
    double value = answer.status == 200 ? sum_samples(answer.body, name, labels) : -1;

    http_answer_fini(&answer);
    free(url);
    return value;
}

struct wanted_metric {
    const struct weir_process *weir;
    const char *name, *labels;
    double value;
};

static bool has_value(void *context)
{
    const struct wanted_metric *wanted = context;
    double found = weir_metric(wanted->weir, wanted->name, wanted->labels);

    return found >= wanted->value && found <= wanted->value;
}

bool weir_metric_reaches(const struct weir_process *weir, const char *name, const char *labels,
                         double value, int64_t limit_ms)
{
    return poll_until(has_value, &(struct wanted_metric){weir, name, labels, value}, limit_ms);
}

bool weir_breaker_becomes(const struct weir_process *weir, const char *dependency,
                          const char *state, int64_t limit_ms)
{
    char *labels = scratch_format("dependency=\"%s\",state=\"%s\"", dependency, state);
    bool ok = weir_metric_reaches(weir, "weir_breaker_state", labels, 1, limit_ms);

    free(labels);
    return ok;
}

bool weir_breaker_is(const struct weir_process *weir, const char *dependency, const char *state)
{
    return weir_breaker_becomes(weir, dependency, state, 0);
}

/* --- what it uses --- */

static int64_t status_number(const struct weir_process *weir, const char *name)
{
    char *path = scratch_format("/proc/%d/status", (int)weir->pid);
    char *text = scratch_read(path, NULL);
    const char *at = strstr(text, name);
    int64_t number = at != NULL ? strtoll(at + strlen(name), NULL, 10) : -1;

    free(text);
    free(path);
    return number;
}

int64_t weir_rss_bytes(const struct weir_process *weir)
{
    return status_number(weir, "VmRSS:") * 1024;
}

int64_t weir_thread_count(const struct weir_process *weir)
{
    return status_number(weir, "Threads:");
}

int64_t weir_fd_count(const struct weir_process *weir)
{
    char *path = scratch_format("/proc/%d/fd", (int)weir->pid);
    DIR *folder = opendir(path);
    int64_t count = -2; /* "." and ".." */

    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        (void)closedir(folder);
    free(path);
    return count;
}

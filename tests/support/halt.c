#include "halt.h"

#include <dirent.h>
#include <errno.h>
#include <linux/elf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "child.h"
#include "patience.h"
#include "scratch.h"

/* The C library's header and the kernel's do not go together; these are the kernel's words. */
enum { SYSCALL_INFO = 0x420e, INFO_ENTRY = 1, EVENT_STOP = 128, STOP_MS = 5000, RUN_US = 150 };

struct syscall_info {
    uint8_t op;
    uint8_t pad[3];
    uint32_t arch;
    uint64_t instruction_pointer;
    uint64_t stack_pointer;
    uint64_t number;
    uint64_t arguments[6];
    uint64_t more[4];
};

struct function {
    uint64_t from;
    char name[64];
};

struct halt {
    pid_t pid, tid;
    bool is_halted, is_gone;
    struct function *functions; /* owned; by address; NULL until needed */
    size_t function_count, function_capacity;
    uint64_t base; /* where the program is mapped */
};

/* --- finding --- */

static char *thread_fact(pid_t pid, const char *tid, const char *fact)
{
    char *path = scratch_format("/proc/%d/task/%s/%s", (int)pid, tid, fact);
    char *text = scratch_read(path, NULL);

    text[strcspn(text, "\n")] = 0;
    free(path);
    return text;
}

static bool has_name(pid_t pid, const char *tid, const char *name)
{
    char *text = thread_fact(pid, tid, "comm");
    bool is_it = strcmp(text, name) == 0;

    free(text);
    return is_it;
}

static pid_t find_thread(pid_t pid, const char *name)
{
    char *path = scratch_format("/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    pid_t tid = 0;

    while (folder != NULL && tid == 0 && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && has_name(pid, entry->d_name, name))
            tid = (pid_t)strtol(entry->d_name, NULL, 10);
    if (folder != NULL)
        (void)closedir(folder);
    free(path);
    return tid;
}

void halt_print_threads(const struct halt *halt)
{
    char *path = scratch_format("/proc/%d/task", (int)halt->pid);
    DIR *folder = opendir(path);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char *name = thread_fact(halt->pid, entry->d_name, "comm");
        char *call = thread_fact(halt->pid, entry->d_name, "syscall");

        if (entry->d_name[0] != '.')
            (void)printf("  %s %s: %s\n", entry->d_name, name, call);
        free(name);
        free(call);
    }
    if (folder != NULL)
        (void)closedir(folder);
    free(path);
}

struct halt *halt_take(pid_t pid, const char *thread_name)
{
    struct halt *halt = calloc(1, sizeof *halt);

    if (halt == NULL)
        scratch_give_up("out of memory");
    halt->pid = pid;
    halt->tid = find_thread(pid, thread_name);
    if (halt->tid == 0)
        scratch_give_up("process %d has no thread %s", (int)pid, thread_name);
    if (ptrace(PTRACE_SEIZE, halt->tid, 0UL, (unsigned long)PTRACE_O_TRACESYSGOOD) != 0)
        scratch_give_up("ptrace is not permitted here (%s); halting a thread from outside needs it",
                        strerrordesc_np(errno));
    return halt;
}

/* --- standing still and going on --- */

/* A stop of the thread. False: it did not come in time, or the thread is gone. */
static bool wait_for_stop(struct halt *halt, int *out_status, int64_t limit_ms)
{
    struct instant until = instant_after(clock_now(), limit_ms * 1000);
    pid_t got;

    while ((got = waitpid(halt->tid, out_status, __WALL | WNOHANG)) == 0) {
        if (instant_reached(clock_now(), until))
            return false;
        (void)usleep(20);
    }
    if (got == halt->tid && WIFSTOPPED(*out_status)) {
        halt->is_halted = true;
        return true;
    }
    halt->is_gone = true;
    return false;
}

static void run(struct halt *halt, enum __ptrace_request how)
{
    if (halt->is_halted && ptrace(how, halt->tid, NULL, NULL) == 0)
        halt->is_halted = false;
}

bool halt_now(struct halt *halt)
{
    int status;

    if (halt->is_halted)
        return true;
    if (halt->is_gone || ptrace(PTRACE_INTERRUPT, halt->tid, NULL, NULL) != 0)
        return false;
    return wait_for_stop(halt, &status, STOP_MS);
}

void halt_go_on(struct halt *halt)
{
    run(halt, PTRACE_CONT);
}

void halt_release(struct halt *halt)
{
    if (halt == NULL)
        return;
    if (halt_now(halt))
        (void)ptrace(PTRACE_DETACH, halt->tid, NULL, NULL);
    free(halt->functions);
    free(halt);
}

bool halt_reap(struct halt *halt, int64_t limit_ms)
{
    struct instant until = instant_after(clock_now(), limit_ms * 1000);
    int status;

    while (!halt->is_gone && !instant_reached(clock_now(), until)) {
        if (wait_for_stop(halt, &status, 50))
            run(halt, PTRACE_CONT); /* on its way out */
    }
    return halt->is_gone;
}

/* --- at a system call --- */

static bool is_syscall_stop(int status)
{
    return WSTOPSIG(status) == (SIGTRAP | 0x80);
}

static bool is_wanted_entry(const struct halt *halt, halt_wanted_call *is_wanted)
{
    struct syscall_info info = {0};
    struct halt_call call;

    if (ptrace((enum __ptrace_request)SYSCALL_INFO, halt->tid, sizeof info, &info) <= 0 ||
        info.op != INFO_ENTRY)
        return false;
    call.number = info.number;
    memcpy(call.arguments, info.arguments, sizeof call.arguments);
    return is_wanted(&call);
}

bool halt_before_call(struct halt *halt, halt_wanted_call *is_wanted, int64_t limit_ms)
{
    struct instant until = instant_after(clock_now(), limit_ms * 1000);
    int status;

    if (!halt_now(halt))
        return false;
    do {
        int64_t left_us = instant_span_us(clock_now(), until);

        run(halt, PTRACE_SYSCALL);
        if (!wait_for_stop(halt, &status, left_us > 0 ? left_us / 1000 + 1 : 1))
            break;
        if (is_syscall_stop(status) && is_wanted_entry(halt, is_wanted))
            return true;
    } while (!instant_reached(clock_now(), until));
    if (halt_now(halt))
        halt_go_on(halt);
    return false;
}

/* --- in a function --- */

static void find_base(struct halt *halt)
{
    char *path = scratch_format("/proc/%d/maps", (int)halt->pid);
    char *exe_link = scratch_format("/proc/%d/exe", (int)halt->pid), exe[4096];
    ssize_t size = readlink(exe_link, exe, sizeof exe - 1);
    char *text = scratch_read(path, NULL), *line;

    exe[size > 0 ? size : 0] = 0;
    line = strstr(text, exe); /* the first mapping of the program is its lowest */
    while (line != NULL && line > text && line[-1] != '\n')
        line--;
    halt->base = line != NULL ? strtoull(line, NULL, 16) : 0;
    free(text);
    free(exe_link);
    free(path);
}

/* A line of nm: ADDRESS KIND NAME. */
static bool parse_function(const char *line, struct function *out)
{
    char *end;

    out->from = strtoull(line, &end, 16);
    if (end == line || (strncmp(end, " t ", 3) != 0 && strncmp(end, " T ", 3) != 0))
        return false;
    (void)snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(end + 3, "\n"), end + 3);
    return true;
}

static void keep_function(struct halt *halt, const struct function *function)
{
    if (halt->functions == NULL || halt->function_count == halt->function_capacity) {
        halt->function_capacity = 2 * (halt->function_capacity + 256);
        halt->functions =
            realloc(halt->functions, halt->function_capacity * sizeof *halt->functions);
        if (halt->functions == NULL)
            scratch_give_up("out of memory");
    }
    halt->functions[halt->function_count++] = *function;
}

static void read_functions(struct halt *halt)
{
    char *command = scratch_format("nm -n /proc/%d/exe", (int)halt->pid);
    FILE *lines = popen(command, "re"); /* NOLINT(cert-env33-c): a fixed command of a test */
    struct function function;
    char line[512];

    if (lines == NULL)
        scratch_give_up("nm does not run; install the package binutils");
    while (fgets(line, sizeof line, lines) != NULL)
        if (parse_function(line, &function))
            keep_function(halt, &function);
    if (pclose(lines) != 0 || halt->function_count == 0)
        scratch_give_up("nm tells no functions of the program under test");
    free(command);
    find_base(halt);
}

static uint64_t program_counter(const struct halt *halt)
{
    struct syscall_info info = {0};

    if (ptrace((enum __ptrace_request)SYSCALL_INFO, halt->tid, sizeof info, &info) <= 0)
        return 0;
    return info.instruction_pointer;
}

const char *halt_function(struct halt *halt)
{
    uint64_t at = program_counter(halt);
    size_t low = 0, high;

    if (halt->functions == NULL)
        read_functions(halt);
    high = halt->function_count;
    if (halt->functions == NULL || high == 0)
        return "";
    if (at < halt->base || at - halt->base > halt->functions[high - 1].from + 4096)
        return "";
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (halt->functions[middle].from <= at - halt->base)
            low = middle;
        else
            high = middle;
    }
    return halt->functions[low].name;
}

static bool is_in(struct halt *halt, const char *const *prefixes)
{
    const char *name = halt_function(halt);

    for (; *prefixes != NULL; prefixes++)
        if (strncmp(name, *prefixes, strlen(*prefixes)) == 0)
            return true;
    return false;
}

bool halt_in_function(struct halt *halt, const char *const *prefixes, int64_t limit_ms)
{
    struct instant until = instant_after(clock_now(), limit_ms * 1000);

    while (!instant_reached(clock_now(), until) && halt_now(halt)) {
        if (is_in(halt, prefixes))
            return true;
        halt_go_on(halt);
        (void)usleep(RUN_US);
    }
    halt_go_on(halt);
    return false;
}

#include "child.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "patience.h"
#include "scratch.h"

struct waiting {
    pid_t pid;
    int status;
};

static bool become(const struct child_setup *setup)
{
    if (setup->uid == 0)
        return true;
    return setgroups(0, NULL) == 0 && setgid(setup->gid) == 0 && setuid(setup->uid) == 0;
}

static void reset_signals(void)
{
    sigset_t none;

    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
}

/* Only async-signal-safe calls: the test may have threads. */
__attribute__((noreturn)) static void turn_into(const struct child_setup *setup, pid_t parent)
{
    int null_fd = open("/dev/null", O_RDWR);

    reset_signals();
    if (setup->own_group)
        (void)setpgid(0, 0);
    /* The death signal is forgotten when the user changes, hence this order. */
    if (!become(setup) || prctl(PR_SET_PDEATHSIG, setup->death_signal) != 0)
        _exit(126);
    if (getppid() != parent)
        _exit(126);
    (void)dup2(null_fd, 0);
    (void)dup2(setup->out_fd >= 0 ? setup->out_fd : null_fd, 1);
    (void)dup2(setup->err_fd >= 0 ? setup->err_fd : null_fd, 2);
    if (setup->folder != NULL && chdir(setup->folder) != 0)
        _exit(126);
    (void)execve(setup->argv[0], setup->argv, setup->env != NULL ? setup->env : environ);
    _exit(127);
}

pid_t child_start(const struct child_setup *setup)
{
    pid_t parent = getpid();
    pid_t pid = fork();

    if (pid < 0)
        scratch_give_up("cannot start %s: %s", setup->argv[0], strerrordesc_np(errno));
    if (pid == 0)
        turn_into(setup, parent);
    return pid;
}

static bool has_ended(void *context)
{
    struct waiting *waiting = context;

    return waitpid(waiting->pid, &waiting->status, WNOHANG) != 0;
}

int child_wait(pid_t pid, int64_t limit_ms)
{
    struct waiting waiting = {.pid = pid};

    if (!poll_until(has_ended, &waiting, limit_ms))
        return -1;
    if (WIFSIGNALED(waiting.status))
        return 128 + WTERMSIG(waiting.status);
    return WEXITSTATUS(waiting.status);
}

void child_run(const struct child_setup *setup)
{
    pid_t pid = child_start(setup);
    int code = child_wait(pid, 120000);

    if (code == -1) {
        (void)kill(pid, SIGKILL);
        (void)child_wait(pid, 5000);
    }
    if (code != 0)
        scratch_give_up("%s ended with %d", setup->argv[0], code);
}

static pid_t parent_of(pid_t pid)
{
    char *path = scratch_format("/proc/%d/stat", (int)pid);
    char *text = scratch_read(path, NULL);
    const char *after_name = strrchr(text, ')'); /* ") S PPID ..." */
    long parent =
        after_name != NULL && strlen(after_name) > 4 ? strtol(after_name + 4, NULL, 10) : 0;

    free(text);
    free(path);
    return (pid_t)parent;
}

static size_t children_of(pid_t pid, pid_t *out_pids, size_t limit)
{
    DIR *folder = opendir("/proc");
    size_t count = 0;
    struct dirent *entry;

    while (folder != NULL && count < limit && (entry = readdir(folder)) != NULL) {
        pid_t found = (pid_t)strtol(entry->d_name, NULL, 10);

        if (isdigit((unsigned char)entry->d_name[0]) && parent_of(found) == pid)
            out_pids[count++] = found;
    }
    if (folder != NULL)
        (void)closedir(folder);
    return count;
}

size_t child_descendants(pid_t pid, pid_t *out_pids, size_t limit)
{
    size_t count = children_of(pid, out_pids, limit);

    for (size_t i = 0; i < count; i++)
        count += children_of(out_pids[i], out_pids + count, limit - count);
    return count;
}

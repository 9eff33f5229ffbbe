#include "observe/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t timeval_us(struct timeval t)
{
    return (int64_t)t.tv_sec * 1000000 + t.tv_usec;
}

static int64_t cpu_read(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return timeval_us(usage.ru_utime) + timeval_us(usage.ru_stime);
}

/* statm: total and resident size, in pages. Not by fopen(), whose list of all open files has one
 * lock for the process: another thread that is halted with it would halt this one. */
static void memory_read(struct process_facts *out)
{
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    char line[128];
    char *end;
    ssize_t size;

    if (fd < 0)
        return;
    size = read(fd, line, sizeof line - 1);
    (void)close(fd);
    if (size <= 0)
        return;
    line[size] = '\0';
    out->virtual_bytes = strtoull(line, &end, 10) * page_bytes;
    out->resident_bytes = strtoull(end, NULL, 10) * page_bytes;
}

static uint64_t open_fds_read(void)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    uint64_t count = 0;

    if (folder == NULL)
        return 0;
    /* Each caller reads a stream of its own. */
    while ((entry = readdir(folder)) != NULL) /* NOLINT(concurrency-mt-unsafe) */
        count += entry->d_name[0] != '.';
    (void)closedir(folder);
    return count > 0 ? count - 1 : 0; /* the folder itself was open, too */
}

static uint64_t max_fds_read(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (uint64_t)limit.rlim_cur : 0;
}

void process_read(struct process_facts *out, int64_t started_wall_us)
{
    *out = (struct process_facts){
        .cpu_us = cpu_read(),
        .started_wall_us = started_wall_us,
        .open_fds = open_fds_read(),
        .max_fds = max_fds_read(),
    };
    memory_read(out);
}

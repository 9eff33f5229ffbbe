/* strict_epoll.c - a weir that dies when it hands the kernel's epoll a number that is not open.
 * SPDX-License-Identifier: MIT
 *
 * A number that its owner closed may be another thread's socket a moment later, so naming it is a
 * mistake even where nothing comes of it. libuv ignores the kernel's answer; this does not. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    static const char words[] = "strict epoll: a closed number\n";
    int failed = (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);

    if (failed != 0 && errno == EBADF) {
        (void)!write(STDERR_FILENO, words, sizeof words - 1);
        abort();
    }
    return failed;
}

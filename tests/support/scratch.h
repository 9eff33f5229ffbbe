/* scratch.h - what the helpers of the tests stand on: folders, ports, files, and a way to give up.
 * SPDX-License-Identifier: MIT
 *
 * Owner    scratch_folder() returns memory of the caller; scratch_remove() removes the folder and
 *          frees it. Folders that nobody removed go away at exit.
 * Threads  any.
 * Errors   a helper that cannot do its work ends the test: a test that did not run must not pass.
 */
#ifndef SUPPORT_SCRATCH_H
#define SUPPORT_SCRATCH_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Says "NOT RUN: ..." on stderr, removes the scratch folders and ends the process with 1. */
__attribute__((noreturn, format(printf, 1, 2))) void scratch_give_up(const char *fmt, ...);

/* A new folder under $TMPDIR (or /tmp), mode 0755. */
char *scratch_folder(const char *prefix);
void scratch_remove(char *folder); /* NULL is fine */

/* Removes a folder and everything in it. */
void scratch_remove_tree(const char *path);

/* Writes folder/name, making the folders in between. */
void scratch_write(const char *folder, const char *name, const char *text);
void scratch_append(const char *folder, const char *name, const char *text);

/* The whole file, NUL-terminated, the caller's to free(); empty text when it cannot be read. */
char *scratch_read(const char *path, size_t *out_size_bytes);

/* printf into memory of the caller. */
__attribute__((format(printf, 1, 2))) char *scratch_format(const char *fmt, ...);

/* How often `needle` occurs in `text`, overlapping ones too. */
size_t scratch_count(const char *text, const char *needle);

/* A port of 127.0.0.1 that nobody listens on. It lies outside the range from which the kernel takes
 * the local ports of outgoing connections, so that it stays free while a listener is away. */
uint16_t scratch_port(void);
#endif

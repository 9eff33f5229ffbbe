/* ensure.h - broken promises end the process, in release too: a restart beats a wrong count.
 * SPDX-License-Identifier: MIT */
#ifndef BASE_ENSURE_H
#define BASE_ENSURE_H

#define ENSURE(cond) ((cond) ? (void)0 : ensure_failed(#cond, __FILE__, __LINE__))

/* Writes one line to standard error and aborts. */
_Noreturn void ensure_failed(const char *cond, const char *file, int line);
#endif

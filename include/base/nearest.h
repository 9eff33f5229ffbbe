/* nearest.h - "did you mean": the known word closest to a wrong one. SPDX-License-Identifier: MIT
 */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H
#include <stddef.h>

/* The known word with the smallest edit distance (insert, delete, replace, swap; capitals count
 * as small letters), if at most a third of its length rounded up, else NULL. `words` are
 * NUL-terminated; the result is one of them. */
const char *nearest_word(const char *wrong, const char *const *words, size_t word_count);
#endif

#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LONGEST_WORD = 64 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A capital is no slip of its own: "Port" is as near to "port" as can be. */
static bool is_same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* One cell of the table: the cheapest way from i characters of a to j of b. */
static size_t cell(const char *a, size_t i, const char *b, size_t j,
                   size_t rows[3][LONGEST_WORD + 1])
{
    const size_t *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
    size_t cost = above[j - 1] + !is_same(a[i - 1], b[j - 1]);

    cost = smaller(cost, smaller(above[j], rows[i % 3][j - 1]) + 1);
    if (i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]))
        cost = smaller(cost, two_above[j - 2] + 1);
    return cost;
}

/* Insertions, deletions, replacements and swaps of neighbours; three rows of the table suffice. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t rows[3][LONGEST_WORD + 1];

    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        rows[i % 3][0] = i;
        for (size_t j = 1; j <= b_size; j++)
            rows[i % 3][j] = cell(a, i, b, j, rows);
    }
    return rows[a_size % 3][b_size];
}

const char *nearest_word(const char *wrong, const char *const *words, size_t word_count)
{
    const char *best = NULL;
    size_t best_distance = LONGEST_WORD, wrong_size = strlen(wrong);

    if (wrong_size > LONGEST_WORD)
        return NULL;
    for (size_t i = 0; i < word_count; i++) {
        size_t size = strlen(words[i]), d;

        if (size > LONGEST_WORD)
            continue;
        d = distance(wrong, wrong_size, words[i], size);
        /* A word of which no letter is left is no likeness, however short it is. */
        if (d < best_distance && d <= (size + 2) / 3 && d < size) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}

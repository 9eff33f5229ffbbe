#include "query/array_literal.h"

#include <string.h>

void array_literal_begin(struct array_literal *a, char *out, char delimiter)
{
    a->at = out;
    a->delimiter = delimiter;
    a->has_elements = false;
    *a->at++ = '{';
}

static void separate(struct array_literal *a)
{
    if (a->has_elements)
        *a->at++ = a->delimiter;
    a->has_elements = true;
}

void array_literal_add(struct array_literal *a, const char *text, size_t size_bytes)
{
    separate(a);
    *a->at++ = '"';
    for (size_t i = 0; i < size_bytes; i++) {
        if (text[i] == '"' || text[i] == '\\')
            *a->at++ = '\\';
        *a->at++ = text[i];
    }
    *a->at++ = '"';
}

void array_literal_add_null(struct array_literal *a)
{
    separate(a);
    memcpy(a->at, "NULL", 4);
    a->at += 4;
}

char *array_literal_end(struct array_literal *a)
{
    *a->at++ = '}';
    *a->at++ = '\0';
    return a->at;
}

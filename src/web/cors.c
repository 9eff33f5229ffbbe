#include <string.h>

#include "web/cors_internal.h"
#include "web/head_internal.h"

enum { MAX_LIST_BYTES = 1024 };

const char *cors_allowed_origin(char *const *origins, size_t origin_count, struct raw_text origin)
{
    if (origin.data == NULL)
        return NULL;
    for (size_t i = 0; i < origin_count; i++) {
        if (strcmp(origins[i], "*") == 0)
            return "*";
        /* Scheme and host have no case, and browsers send them in lower case. */
        if (raw_text_equals(origin, origins[i]))
            return origins[i];
    }
    return NULL;
}

bool cors_is_token_list(struct raw_text value)
{
    size_t at = 0;

    if (value.data == NULL || value.size_bytes > MAX_LIST_BYTES)
        return false;
    while (at <= value.size_bytes) {
        const char *start = value.data + at;
        const char *comma = memchr(start, ',', value.size_bytes - at);
        size_t size = comma == NULL ? value.size_bytes - at : (size_t)(comma - start);

        if (!head_is_token(raw_text_trimmed((struct raw_text){start, size})))
            return false;
        at += size + 1;
    }
    return true;
}

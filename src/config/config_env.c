#include "config/config_env.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/ensure.h"

enum { LONGEST_NAME = 128 };

static size_t name_size(const char *text)
{
    size_t size = 0;

    if (isdigit((unsigned char)text[0]))
        return 0;
    while (isalnum((unsigned char)text[size]) || text[size] == '_')
        size++;
    return size;
}

/* `inside` is what stands between the braces, size bytes of it. */
static bool replace_one(const char *inside, size_t size, struct buffer *out, struct error *err)
{
    char name[LONGEST_NAME + 1];
    size_t length = name_size(inside);
    bool has_default = length + 2 <= size && memcmp(inside + length, ":-", 2) == 0;
    const char *value;

    if (length == 0 || length > LONGEST_NAME || (length != size && !has_default))
        return error_set(err,
                         "${...} must be ${NAME} or ${NAME:-default}; write $${ for a plain ${");

    memcpy(name, inside, length);
    name[length] = '\0';
    value = getenv(name); /* NOLINT(concurrency-mt-unsafe): nothing here writes the environment */
    if (has_default && (value == NULL || value[0] == '\0')) {
        buffer_append(out, inside + length + 2, size - length - 2);
        return true;
    }
    if (value == NULL)
        return error_set(err, "the environment has no %s; set it, or write ${%s:-default}", name,
                         name);
    buffer_append_text(out, value);
    return true;
}

static bool replace_all(const char *text, struct buffer *out, size_t *out_offset, struct error *err)
{
    const char *at = text;

    while (*at != '\0') {
        const char *closing;

        if (strncmp(at, "$${", 3) == 0) {
            buffer_append_text(out, "${");
            at += 3;
            continue;
        }
        if (strncmp(at, "${", 2) != 0) {
            buffer_append_char(out, *at++);
            continue;
        }
        *out_offset = (size_t)(at - text);
        closing = strchr(at, '}');
        if (closing == NULL)
            return error_set(err, "${ without a closing brace; write $${ for a plain ${");
        if (!replace_one(at + 2, (size_t)(closing - at) - 2, out, err))
            return false;
        at = closing + 1;
    }
    buffer_append_char(out, '\0');
    return true;
}

char *config_env_replace(const char *text, size_t *out_offset, struct error *err)
{
    struct buffer out;
    char *replaced = NULL;

    buffer_init(&out, SIZE_MAX);
    if (replace_all(text, &out, out_offset, err)) {
        ENSURE(!out.failed);
        replaced = strdup(out.data);
        ENSURE(replaced != NULL);
    }
    buffer_fini(&out);
    return replaced;
}

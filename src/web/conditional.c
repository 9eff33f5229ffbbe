#include <string.h>

#include "web/conditional_internal.h"
#include "web/head_internal.h"

static void skip(struct raw_text *text, size_t size_bytes)
{
    text->data += size_bytes;
    text->size_bytes -= size_bytes;
}

/* Commas without anything in between are allowed. */
static void skip_to_tag(struct raw_text *list)
{
    while (list->size_bytes > 0 &&
           (list->data[0] == ',' || list->data[0] == ' ' || list->data[0] == '\t'))
        skip(list, 1);
}

/* Takes one tag, as it is between its quotes and with them. False: there is none. */
static bool take_tag(struct raw_text *list, struct raw_text *out_tag)
{
    const char *end;

    if (list->size_bytes >= 2 && memcmp(list->data, "W/", 2) == 0)
        skip(list, 2);
    if (list->size_bytes < 2 || list->data[0] != '"')
        return false;
    end = memchr(list->data + 1, '"', list->size_bytes - 1);
    if (end == NULL)
        return false;
    *out_tag = (struct raw_text){list->data, (size_t)(end - list->data) + 1};
    skip(list, out_tag->size_bytes);
    *list = raw_text_trimmed(*list);
    return list->size_bytes == 0 || list->data[0] == ',';
}

bool conditional_names(struct raw_text list, const char *etag)
{
    size_t etag_bytes = strlen(etag);
    struct raw_text tag;

    list = raw_text_trimmed(list);
    if (list.size_bytes == 1 && list.data[0] == '*')
        return true;
    for (skip_to_tag(&list); take_tag(&list, &tag); skip_to_tag(&list))
        if (tag.size_bytes == etag_bytes && memcmp(tag.data, etag, etag_bytes) == 0)
            return true;
    return false;
}

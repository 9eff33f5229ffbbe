#include <string.h>

#include "web/accept_internal.h"
#include "web/head_internal.h"

/* "0.8" is 800; what is not RFC 9110's qvalue counts as 1. */
static int quality_of(struct raw_text text)
{
    int quality = 0, scale = 1000;

    if (text.size_bytes == 0 || text.size_bytes > 5 || (text.data[0] != '0' && text.data[0] != '1'))
        return 1000;
    if (text.size_bytes > 1 && text.data[1] != '.')
        return 1000;
    quality = (text.data[0] - '0') * 1000;
    for (size_t i = 2; i < text.size_bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return 1000;
        scale /= 10;
        quality += (text.data[i] - '0') * scale;
    }
    return quality > 1000 ? 1000 : quality;
}

/* Takes what stands before `mark` off the front of *rest. */
static struct raw_text cut_at(struct raw_text *rest, char mark)
{
    const char *found = memchr(rest->data, mark, rest->size_bytes);
    struct raw_text front = *rest;

    if (found == NULL) {
        rest->data += rest->size_bytes;
        rest->size_bytes = 0;
        return raw_text_trimmed(front);
    }
    front.size_bytes = (size_t)(found - front.data);
    rest->data = found + 1;
    rest->size_bytes -= front.size_bytes + 1;
    return raw_text_trimmed(front);
}

static int specificity_of(struct raw_text range)
{
    if (raw_text_equals(range, "application/json"))
        return 3;
    if (raw_text_equals(range, "application/*"))
        return 2;
    return raw_text_equals(range, "*/*") ? 1 : 0;
}

static void add_range(struct accept *accept, struct raw_text element)
{
    struct raw_text rest = element;
    int specificity = specificity_of(cut_at(&rest, ';'));
    int quality = 1000;

    accept->is_present = true;
    while (rest.size_bytes > 0) {
        struct raw_text param = cut_at(&rest, ';');

        if (param.size_bytes >= 2 && (param.data[0] == 'q' || param.data[0] == 'Q') &&
            param.data[1] == '=')
            quality = quality_of((struct raw_text){param.data + 2, param.size_bytes - 2});
    }
    if (specificity > accept->specificity ||
        (specificity == accept->specificity && quality > accept->quality)) {
        accept->specificity = specificity;
        accept->quality = quality;
    }
}

void accept_add(struct accept *accept, struct raw_text value)
{
    struct raw_text rest = value;

    while (rest.size_bytes > 0) {
        struct raw_text element = cut_at(&rest, ',');

        if (element.size_bytes > 0)
            add_range(accept, element);
    }
}

bool accept_allows_json(const struct accept *accept)
{
    return !accept->is_present || (accept->specificity > 0 && accept->quality > 0);
}

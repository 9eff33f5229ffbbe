#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool error_set(struct error *err, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return false;
}

bool error_prefix(struct error *err, const char *fmt, ...)
{
    struct error whole;
    va_list args;
    size_t used;

    va_start(args, fmt);
    (void)vsnprintf(whole.text, sizeof whole.text, fmt, args);
    va_end(args);
    used = strlen(whole.text);
    (void)snprintf(whole.text + used, sizeof whole.text - used, ": %.*s",
                   (int)(sizeof whole.text - used), err->text);
    *err = whole;
    return false;
}

const char *error_of_errno(int number)
{
    const char *text = strerrordesc_np(number);

    return text != NULL ? text : "unknown error";
}

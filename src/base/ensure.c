#include "base/ensure.h"

#include <stdio.h>
#include <stdlib.h>

void ensure_failed(const char *cond, const char *file, int line)
{
    (void)fprintf(stderr,
                  "{\"level\":\"fatal\",\"event\":\"broken_promise\",\"where\":\"%s:%d\","
                  "\"promise\":\"%s\"}\n",
                  file, line, cond);
    abort();
}

/* config_env.h - ${NAME} and ${NAME:-default} in the strings of a config. SPDX-License-Identifier:
 * MIT
 *
 * As a shell does it: the default stands in for a name that is unset or empty, and is everything up
 * to the next brace. `$${` is a plain `${`. A `$` before anything else is only a `$`.
 *
 * Owner    the caller frees the text.
 * Errors   NULL, and the error names the variable; never its value. */
#ifndef CONFIG_CONFIG_ENV_H
#define CONFIG_CONFIG_ENV_H
#include <stddef.h>

#include "base/error.h"

/* On an error *out_offset is where in `text` the `${` stands. */
char *config_env_replace(const char *text, size_t *out_offset, struct error *err);
#endif

/* front.c - in the image, `weir` is this small program: it is `weir health` itself, and becomes the
 * whole program for anything else. SPDX-License-Identifier: MIT
 *
 * A health check is a new process every second. The whole program would load libpq, GnuTLS,
 * Kerberos and LDAP for one GET on loopback: four times the CPU. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/health.h"
#include "config/config.h"

/* Options and help are the whole program's. */
static int is_plain_health(int argc, char *const *argv)
{
    return (argc == 2 || (argc == 3 && argv[2][0] != '-' && argv[2][0] != '\0')) &&
           strcmp(argv[1], "health") == 0;
}

int main(int argc, char **argv)
{
    if (is_plain_health(argc, argv))
        return health_run(argc == 3 ? argv[2] : NULL, config_file_name(NULL));
    (void)execv(WEIR_PROGRAM, argv);
    perror(WEIR_PROGRAM);
    return 1;
}

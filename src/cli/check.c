#include "cli/check.h"

#include <stdio.h>

#include "base/complaint.h"
#include "config/config.h"
#include "dep/check_connect.h"
#include "query/catalog.h"

static void summary_print(const struct config *config)
{
    size_t routes = config->catalog->route_count, dependencies = config->dependency_count;

    (void)printf("ok: %zu route%s, %zu %s\n", routes, routes == 1 ? "" : "s", dependencies,
                 dependencies == 1 ? "dependency" : "dependencies");
}

int check_run(const char *config_file, bool is_connecting)
{
    struct complaints complaints;
    struct config *config;
    bool is_good;

    complaints_init(&complaints);
    config = config_load(config_file, &complaints);
    if (config != NULL)
        check_conninfo(config, &complaints);
    is_good = config != NULL && complaints.error_count == 0;
    if (is_good && is_connecting)
        is_good = check_connect(config, &complaints) && complaints.error_count == 0;

    complaints_print(&complaints, stdout);
    if (is_good)
        summary_print(config);
    config_destroy(config);
    complaints_fini(&complaints);
    return is_good ? 0 : 1;
}

#include "cli/serve.h"

#include <stdio.h>

#include "app/app.h"
#include "base/complaint.h"
#include "config/config.h"
#include "dep/check_connect.h"

int serve_run(const char *config_file)
{
    struct complaints complaints;
    struct config *config;
    int code = 1;

    complaints_init(&complaints);
    config = config_load(config_file, &complaints);
    if (config != NULL)
        check_conninfo(config, &complaints);
    complaints_print(&complaints, stderr);
    if (config != NULL && complaints.error_count == 0)
        code = app_run(config);
    config_destroy(config);
    complaints_fini(&complaints);
    return code;
}

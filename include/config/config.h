/* config.h - everything weir.json and the SQL files say, checked. SPDX-License-Identifier: MIT
 *
 * Owner    config_load() .. config_destroy() by app or a command.
 * Units    _us microseconds, _bytes bytes.
 * Threads  immutable after config_load(); read by all.
 * Errors   config_load() puts every problem, with FILE:LINE:COL and JSON path, into complaints. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "guard/admission.h"

struct catalog;
struct complaints;

struct server_config {
    char *address; /* owned */
    uint16_t port;
    uint32_t workers;
    uint32_t max_connections;
    size_t max_body_bytes, max_uri_bytes;
    int64_t header_timeout_us, body_timeout_us, idle_timeout_us, write_timeout_us;
    int64_t request_timeout_us, caller_timeout_us, drain_delay_us, drain_timeout_us;
    size_t max_memory_bytes;
    char **cors_origins; /* owned; "*" or exact origins */
    size_t cors_origin_count;
};

struct admin_config {
    char *address; /* owned */
    uint16_t port;
    char *token_file; /* owned; NULL: none */
};

struct log_config {
    enum log_level level;
    enum log_format format;
    enum { ACCESS_ALL, ACCESS_ERRORS, ACCESS_NONE } access;
};

struct cache_config {
    size_t max_bytes; /* of stored answers, with all overhead */
};

struct bulkhead_config {
    uint32_t max_concurrent, max_queued;
    int64_t queue_timeout_us;
};

struct breaker_settings {
    uint32_t failure_threshold;
    int64_t reset_timeout_us, max_reset_timeout_us;
    uint32_t half_open_calls;
    enum breaker_mode mode;
};

struct probe_config {
    int64_t interval_us, idle_us, timeout_us;
};

struct dependency_config {
    char *name;           /* owned */
    char *conninfo;       /* owned; ${} replaced */
    char *password_file;  /* owned, absolute; NULL: none. Read before each connect */
    bool is_read_only;    /* access: read */
    uint32_t connections; /* = max_concurrent when null */
    bool prepare;
    bool is_production;
    int64_t connect_timeout_us, query_timeout_us, max_lifetime_us, idle_timeout_us;
    struct bulkhead_config bulkhead;
    struct breaker_settings breaker;
    struct probe_config probe;
    int line, column; /* of its name in the file */
    int conninfo_line, conninfo_column;
};

struct config {
    char *file;       /* owned: as given */
    char *folder;     /* owned: of the file; relative paths start here */
    char *api_folder; /* owned, absolute or relative to the process's folder */
    struct server_config server;
    struct admin_config admin;
    struct log_config log;
    struct cache_config cache;
    struct dependency_config *dependencies; /* owned; in the file's order */
    size_t dependency_count;
    struct catalog *catalog; /* owned */
};

/* Reads, replaces ${NAME}, checks and loads the catalog. NULL: nothing usable (no file, no JSON);
 * otherwise a config, usable only if complaints->error_count is 0. */
struct config *config_load(const char *file, struct complaints *complaints);
void config_destroy(struct config *config); /* NULL is fine */

/* $WEIR_CONFIG, else "weir.json"; `given` wins when not NULL. */
const char *config_file_name(const char *given);

/* The admin port's health URL of a config file, without loading SQL files (for `weir health`).
 * False: `out_text` holds why. */
bool config_admin_health_url(const char *file, char *out_text, size_t size_bytes);
#endif

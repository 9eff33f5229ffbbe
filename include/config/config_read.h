/* config_read.h - from scanned JSON to the config's structs, by the table of keys.
 * SPDX-License-Identifier: MIT
 *
 * Threads  start and reload only.
 * Errors   everything that is found wrong is complained about, with its place and JSON path, and
 *          reading goes on: what is wrong keeps its default, and its node is marked. */
#ifndef CONFIG_CONFIG_READ_H
#define CONFIG_CONFIG_READ_H

struct complaints;
struct config;
struct scan_node;

enum { CONFIG_PATH_SIZE = 256 };

/* What reading needs besides the node. */
struct config_reader {
    const char *file; /* as complaints name it */
    struct complaints *complaints;
    struct config *config;
};

/* Fills in the defaults of the stored keys: parent "" for all of struct config, "dependencies.*"
 * for one struct dependency_config. */
void config_set_defaults(const struct config_reader *reader, const char *parent, void *base);

/* Reads an object whose keys are the rows below `parent`; `shown` is its path in complaints. `base`
 * is the struct that the rows' offsets belong to. */
void config_read_object(const struct config_reader *reader, struct scan_node *object,
                        const char *parent, const char *shown, void *base);

/* "parent.key", or only "key" below the root (""). */
void config_path_join(char out_path[CONFIG_PATH_SIZE], const char *parent, const char *key);
#endif

#include "private_postgres.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "patience.h"
#include "scratch.h"

enum { TREE_LIMIT = 512, START_MS = 60000, STOP_MS = 30000 };

struct private_postgres {
    char *folder; /* owned scratch; NULL: the template's own server */
    char *data;   /* owned */
    char *log;    /* owned */
    uint16_t port;
    pid_t pid; /* 0: not running */
    bool is_frozen;
    PGconn *session; /* owned; superuser; NULL until needed */
};

/* Who runs the server. */
struct server_user {
    uid_t uid; /* 0: we ourselves */
    gid_t gid;
};

static const char settings[] = "listen_addresses = '127.0.0.1'\n"
                               "unix_socket_directories = ''\n"
                               "max_connections = 120\n"
                               "superuser_reserved_connections = 5\n"
                               "shared_buffers = 16MB\n"
                               "dynamic_shared_memory_type = mmap\n"
                               "fsync = off\n"
                               "synchronous_commit = off\n"
                               "full_page_writes = off\n"
                               "autovacuum = off\n"
                               "jit = off\n"
                               "timezone = 'UTC'\n"
                               "log_timezone = 'UTC'\n"
                               "logging_collector = off\n"
                               "log_min_messages = log\n"
                               "log_connections = on\n"
                               "log_line_prefix = '%m [%p] %u '\n";

static const char access_rules[] = "host all secured 127.0.0.1/32 scram-sha-256\n"
                                   "host all all 127.0.0.1/32 trust\n";

static const char seed[] =
    "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL, price numeric(10,2));"
    "INSERT INTO items SELECT g, 'item ' || g, g * 1.25 FROM generate_series(1, 1000) g;"
    "CREATE TABLE notes (id bigserial PRIMARY KEY, token text NOT NULL, body text);"
    "CREATE TABLE strict (id int PRIMARY KEY, name text NOT NULL, amount int CHECK (amount > 0),"
    "  parent int REFERENCES strict);"
    "INSERT INTO strict VALUES (1, 'one', 1, NULL);"
    "CREATE TABLE changing (id int PRIMARY KEY, a text);"
    "INSERT INTO changing VALUES (1, 'x');"
    "CREATE TABLE closed (id int);"
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'so happy');"
    "CREATE TYPE pair AS (a int, b text);"
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0);"
    "CREATE FUNCTION tick(name text) RETURNS text LANGUAGE plpgsql AS"
    "  $$BEGIN RAISE LOG 'tick <%>', name; RETURN name; END$$;"
    "CREATE FUNCTION fail_with(state text) RETURNS int LANGUAGE plpgsql AS"
    "  $$BEGIN RAISE LOG 'tick <fail %>', state;"
    "  RAISE EXCEPTION 'words of the server' USING ERRCODE = state; END$$;"
    "GRANT ALL ON ALL TABLES IN SCHEMA public TO app, secured;"
    "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app, secured;"
    "REVOKE ALL ON closed FROM app, secured;";

static const char roles[] = "CREATE ROLE app LOGIN; CREATE ROLE secured LOGIN PASSWORD "
                            "'first-Secret-77'; GRANT pg_read_all_stats TO app;";

/* --- finding and making --- */

static struct server_user server_user(void)
{
    struct server_user user = {0};
    struct passwd entry, *found = NULL;
    char text[4096];

    if (geteuid() != 0)
        return user;
    if (getpwnam_r("postgres", &entry, text, sizeof text, &found) != 0 || found == NULL)
        scratch_give_up("PostgreSQL does not run as root and there is no user postgres; install "
                        "the package postgresql");
    return (struct server_user){.uid = entry.pw_uid, .gid = entry.pw_gid};
}

static void give_to_server(const char *path)
{
    struct server_user user = server_user();

    if (user.uid != 0 && chown(path, user.uid, user.gid) != 0)
        scratch_give_up("cannot give %s to postgres: %s", path, strerrordesc_np(errno));
}

/* The folder of the newest server's programs; the caller's. */
static char *server_programs(void)
{
    glob_t found;
    char *newest = NULL;
    long newest_version = 0;

    if (glob("/usr/lib/postgresql/*/bin/initdb", 0, NULL, &found) != 0)
        scratch_give_up("no /usr/lib/postgresql/*/bin/initdb; install the package postgresql");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        long version = strtol(found.gl_pathv[i] + strlen("/usr/lib/postgresql/"), NULL, 10);

        if (version > newest_version) {
            newest_version = version;
            free(newest);
            newest = scratch_format("/usr/lib/postgresql/%ld/bin", version);
        }
    }
    globfree(&found);
    if (newest == NULL)
        scratch_give_up("no numbered version in /usr/lib/postgresql");
    return newest;
}

static char *server_environment[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", NULL};

static void run_as_server(char *const *argv, const char *folder)
{
    struct server_user user = server_user();

    child_run(&(struct child_setup){.argv = argv,
                                    .env = server_environment,
                                    .folder = folder,
                                    .out_fd = -1,
                                    .err_fd = STDERR_FILENO,
                                    .death_signal = SIGKILL,
                                    .uid = user.uid,
                                    .gid = user.gid});
}

static uint64_t fold_text(uint64_t hash, const char *text)
{
    for (; *text != 0; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* One name for each server version and seed. */
static char *template_path(const char *programs)
{
    uint64_t hash = fold_text(UINT64_C(0xcbf29ce484222325), programs);

    hash = fold_text(fold_text(fold_text(hash, settings), seed), roles);
    return scratch_format("/tmp/weir-test-postgres-%u-%016llx", geteuid(),
                          (unsigned long long)hash);
}

static struct private_postgres *server_at(char *data, char *log)
{
    struct private_postgres *pg = calloc(1, sizeof *pg);

    if (pg == NULL)
        scratch_give_up("out of memory");
    pg->data = data;
    pg->log = log;
    pg->port = scratch_port();
    return pg;
}

static void seed_database(struct private_postgres *pg, const char *database, const char *sql)
{
    char *conninfo =
        scratch_format("host=127.0.0.1 port=%u dbname=%s user=postgres", pg->port, database);

    PQfinish(pg->session);
    pg->session = PQconnectdb(conninfo);
    private_postgres_exec(pg, sql);
    free(conninfo);
}

/* Runs the new cluster once, to seed it. */
static void fill_template(const char *top)
{
    struct private_postgres *pg =
        server_at(scratch_format("%s/data", top), scratch_format("%s/log", top));

    scratch_write(top, "log", "");
    give_to_server(pg->log);
    private_postgres_start(pg);
    seed_database(pg, "postgres", roles);
    seed_database(pg, "postgres", "CREATE DATABASE app OWNER app");
    seed_database(pg, "app", seed);
    private_postgres_destroy(pg);
}

static void make_template(const char *programs, const char *top)
{
    char *data = scratch_format("%s/data", top);
    char *initdb = scratch_format("%s/initdb", programs);

    scratch_remove_tree(data);
    run_as_server((char *[]){initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync",
                             "--encoding=UTF8", "--locale=C", "--wal-segsize=1", NULL},
                  top);
    scratch_append(data, "postgresql.conf", settings);
    scratch_write(data, "pg_hba.conf", access_rules);
    fill_template(top);
    scratch_write(top, "done", "");
    free(initdb);
    free(data);
}

/* The folder must be ours: /tmp is everybody's. */
static void open_template(const char *top)
{
    struct stat st;

    if (mkdir(top, 0700) == 0)
        give_to_server(top);
    else if (errno != EEXIST)
        scratch_give_up("cannot make %s: %s", top, strerrordesc_np(errno));
    if (lstat(top, &st) != 0 || !S_ISDIR(st.st_mode) ||
        (st.st_uid != geteuid() && st.st_uid != server_user().uid))
        scratch_give_up("%s belongs to somebody else; remove it", top);
}

/* The cluster that all others are copies of; made by whoever comes first. The caller's. */
static char *template_data(void)
{
    char *programs = server_programs();
    char *top = template_path(programs);
    char *done = scratch_format("%s/done", top);
    char *data = scratch_format("%s/data", top);
    char *lock_file = scratch_format("%s.lock", top);
    int lock_fd = open(lock_file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (lock_fd < 0 || flock(lock_fd, LOCK_EX) != 0)
        scratch_give_up("cannot lock %s: %s", lock_file, strerrordesc_np(errno));
    open_template(top);
    if (access(done, F_OK) != 0)
        make_template(programs, top);
    (void)close(lock_fd);
    free(lock_file);
    free(done);
    free(top);
    free(programs);
    return data;
}

struct private_postgres *private_postgres_create(void)
{
    char *folder = scratch_folder("weir-postgres");
    char *source = template_data();
    struct private_postgres *pg =
        server_at(scratch_format("%s/data", folder), scratch_format("%s/log", folder));

    /* Orphans of a server that was killed come to us, and can be waited for. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    pg->folder = folder;
    child_run(&(struct child_setup){.argv = (char *[]){"/bin/cp", "-a", source, pg->data, NULL},
                                    .out_fd = -1,
                                    .err_fd = STDERR_FILENO,
                                    .death_signal = SIGKILL});
    scratch_write(folder, "log", "");
    give_to_server(folder);
    give_to_server(pg->log);
    free(source);
    return pg;
}

void private_postgres_destroy(struct private_postgres *pg)
{
    if (pg == NULL)
        return;
    private_postgres_stop(pg, POSTGRES_FAST);
    scratch_remove(pg->folder);
    free(pg->data);
    free(pg->log);
    free(pg);
}

/* --- life --- */

static bool accepts(void *context)
{
    const struct private_postgres *pg = context;
    char *conninfo = scratch_format(
        "host=127.0.0.1 port=%u dbname=postgres user=postgres connect_timeout=2", pg->port);
    PGconn *conn = PQconnectdb(conninfo);
    bool ok = PQstatus(conn) == CONNECTION_OK;

    PQfinish(conn);
    free(conninfo);
    return ok || child_wait(pg->pid, 0) != -1;
}

void private_postgres_start(struct private_postgres *pg)
{
    char *programs = server_programs();
    char *binary = scratch_format("%s/postgres", programs);
    char *port = scratch_format("%u", pg->port);
    struct server_user user = server_user();
    const char *locales = getenv("LOCPATH"); /* of a test that wants others than the machine has */
    char *locale_path = scratch_format("LOCPATH=%s", locales != NULL ? locales : "");
    char *environment[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC",
                           locales != NULL ? locale_path : NULL, NULL};
    int log_fd = open(pg->log, O_WRONLY | O_APPEND | O_CLOEXEC);

    pg->pid = child_start(
        &(struct child_setup){.argv = (char *[]){binary, "-D", pg->data, "-p", port, NULL},
                              .env = environment,
                              .folder = pg->data,
                              .out_fd = log_fd,
                              .err_fd = log_fd,
                              .death_signal = SIGQUIT,
                              .uid = user.uid,
                              .gid = user.gid,
                              .own_group = true});
    if (!poll_until(accepts, pg, START_MS) || kill(pg->pid, 0) != 0)
        scratch_give_up("PostgreSQL did not start: %s", scratch_read(pg->log, NULL));
    (void)close(log_fd);
    free(locale_path);
    free(port);
    free(binary);
    free(programs);
}

static void close_session(struct private_postgres *pg)
{
    PQfinish(pg->session);
    pg->session = NULL;
}

void private_postgres_stop(struct private_postgres *pg, enum postgres_stop how)
{
    close_session(pg);
    if (pg->pid == 0)
        return;
    private_postgres_thaw(pg);
    (void)kill(pg->pid, how == POSTGRES_FAST ? SIGINT : SIGQUIT);
    if (child_wait(pg->pid, STOP_MS) == -1)
        private_postgres_kill9(pg);
    pg->pid = 0;
}

static size_t server_tree(const struct private_postgres *pg, pid_t *out_pids)
{
    out_pids[0] = pg->pid;
    return 1 + child_descendants(pg->pid, out_pids + 1, TREE_LIMIT - 1);
}

void private_postgres_kill9(struct private_postgres *pg)
{
    pid_t pids[TREE_LIMIT];
    size_t count;

    close_session(pg);
    (void)kill(pg->pid, SIGSTOP); /* no new children while we count them */
    count = server_tree(pg, pids);
    for (size_t i = 0; i < count; i++)
        (void)kill(pids[i], SIGKILL);
    for (size_t i = 0; i < count; i++)
        (void)child_wait(pids[i], STOP_MS);
    pg->pid = 0;
    pg->is_frozen = false;
}

void private_postgres_freeze(struct private_postgres *pg)
{
    pid_t pids[TREE_LIMIT];
    size_t count;

    (void)kill(pg->pid, SIGSTOP);
    count = server_tree(pg, pids);
    for (size_t i = 1; i < count; i++)
        (void)kill(pids[i], SIGSTOP);
    pg->is_frozen = true;
}

void private_postgres_thaw(struct private_postgres *pg)
{
    pid_t pids[TREE_LIMIT];
    size_t count = pg->is_frozen ? server_tree(pg, pids) : 0;

    while (count > 0)
        (void)kill(pids[--count], SIGCONT);
    pg->is_frozen = false;
}

/* --- asking --- */

uint16_t private_postgres_port(const struct private_postgres *pg)
{
    return pg->port;
}

pid_t private_postgres_pid(const struct private_postgres *pg)
{
    return pg->pid;
}

char *private_postgres_conninfo(const struct private_postgres *pg, uint16_t port)
{
    /* Without TLS, so that a proxy can tell a cancel request by its first bytes. */
    return scratch_format("host=127.0.0.1 port=%u dbname=app user=app sslmode=disable",
                          port != 0 ? port : pg->port);
}

static PGconn *superuser(struct private_postgres *pg)
{
    char *conninfo;

    if (pg->session != NULL && PQstatus(pg->session) == CONNECTION_OK)
        return pg->session;
    conninfo = scratch_format("host=127.0.0.1 port=%u dbname=app user=postgres connect_timeout=5 "
                              "application_name=test",
                              pg->port);
    PQfinish(pg->session);
    pg->session = PQconnectdb(conninfo);
    free(conninfo);
    return pg->session;
}

static PGresult *ask(struct private_postgres *pg, const char *sql)
{
    PGresult *result = PQexec(superuser(pg), sql);

    if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
        scratch_give_up("superuser: %s in: %s", PQerrorMessage(pg->session), sql);
    return result;
}

void private_postgres_exec(struct private_postgres *pg, const char *sql)
{
    PQclear(ask(pg, sql));
}

char *private_postgres_value(struct private_postgres *pg, const char *sql)
{
    PGresult *result = ask(pg, sql);
    char *value = scratch_format("%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");

    PQclear(result);
    return value;
}

int64_t private_postgres_number(struct private_postgres *pg, const char *sql)
{
    char *value = private_postgres_value(pg, sql);
    int64_t number = strtoll(value, NULL, 10);

    free(value);
    return number;
}

int64_t private_postgres_active(struct private_postgres *pg, const char *like)
{
    char *literal = PQescapeLiteral(superuser(pg), like, strlen(like));
    char *sql = scratch_format("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND "
                               "pid <> pg_backend_pid() AND query LIKE %s",
                               literal != NULL ? literal : "''");
    int64_t count = private_postgres_number(pg, sql);

    free(sql);
    PQfreemem(literal);
    return count;
}

int64_t private_postgres_sessions(struct private_postgres *pg)
{
    return private_postgres_number(
        pg, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND "
            "pid <> pg_backend_pid()");
}

size_t private_postgres_log_count(const struct private_postgres *pg, const char *needle)
{
    char *text = scratch_read(pg->log, NULL);
    size_t count = scratch_count(text, needle);

    free(text);
    return count;
}

size_t private_postgres_ticks(const struct private_postgres *pg, const char *name)
{
    char *needle = scratch_format("tick <%s>", name);
    size_t count = private_postgres_log_count(pg, needle);

    free(needle);
    return count;
}

#include "dep/check_connect.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/complaint.h"
#include "config/config.h"
#include "dep/postgres_internal.h"
#include "query/catalog.h"
#include "query/route.h"

struct check {
    const struct config *config;                /* borrowed */
    const struct dependency_config *dependency; /* borrowed */
    struct complaints *complaints;              /* borrowed */
    PGconn *conn;
    bool is_stuck; /* nothing more can be asked on this connection */
};

/* How much later than its statement_timeout the server may say so. */
enum { ANSWER_MARGIN_US = 500000 };

static void complain(const struct check *c, const char *text)
{
    complaints_add(c->complaints, c->config->file, c->dependency->line, c->dependency->column,
                   "dependencies.%s: %s", c->dependency->name, text);
}

void check_conninfo(const struct config *config, struct complaints *complaints)
{
    for (size_t i = 0; i < config->dependency_count; i++) {
        struct check c = {config, &config->dependencies[i], complaints, NULL, false};
        struct targets targets;
        struct error err;

        if (targets_parse(&targets, c.dependency->conninfo, &err))
            targets_fini(&targets);
        else
            complaints_add(complaints, config->file, c.dependency->conninfo_line,
                           c.dependency->conninfo_column, "dependencies.%s.%s", c.dependency->name,
                           err.text);
    }
}

/* ---- waiting, always with a deadline ---- */

static bool wait_for(int fd, short events, struct instant until)
{
    struct pollfd ask = {.fd = fd, .events = events};
    int64_t left_us = instant_span_us(clock_now(), until);

    return left_us > 0 && poll(&ask, 1, (int)(left_us / 1000 + 1)) > 0;
}

static void wake(void *ctx)
{
    uint64_t one = 1;

    (void)!write(*(int *)ctx, &one, sizeof one);
}

/* The address of a name, by the thread that may block. `fd` lives as long as the process, as a
 * lookup that hangs may still wake it. */
static bool look_up(struct target *t, struct instant until)
{
    static int fd;
    struct error err;
    struct resolver *resolver;
    bool is_found;

    fd = eventfd(0, EFD_CLOEXEC);
    resolver = fd >= 0 ? resolver_start(wake, &fd, &err) : NULL;
    if (resolver == NULL)
        return false;
    (void)resolver_ask(resolver, t->host);
    is_found = wait_for(fd, POLLIN, until) && resolver_take(resolver, &t->resolved) &&
               t->resolved.count > 0;
    resolver_stop(resolver);
    return is_found;
}

/* Else libpq would write it to standard error. */
static void ignore_notice(void *ctx, const char *message)
{
    (void)ctx;
    (void)message;
}

static bool log_in(PGconn *conn, struct instant until)
{
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;

    if (conn == NULL || PQstatus(conn) == CONNECTION_BAD)
        return false;
    while (next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING) {
        if (!wait_for(PQsocket(conn), next == PGRES_POLLING_READING ? POLLIN : POLLOUT, until))
            return false;
        next = PQconnectPoll(conn);
    }
    return next == PGRES_POLLING_OK;
}

/* The last result of what was sent, or NULL: then the connection is of no more use. */
static PGresult *wait_result(struct check *c)
{
    struct instant until =
        instant_after(clock_now(), c->dependency->query_timeout_us + ANSWER_MARGIN_US);
    PGresult *last = NULL, *next;

    for (;;) {
        while (PQisBusy(c->conn) != 0) {
            if (!wait_for(PQsocket(c->conn), POLLIN, until) || PQconsumeInput(c->conn) == 0) {
                c->is_stuck = true;
                PQclear(last);
                return NULL;
            }
        }
        next = PQgetResult(c->conn);
        if (next == NULL)
            return last;
        PQclear(last);
        last = next;
    }
}

/* What a statement of our own says; its values are NULL where `values` is. */
static PGresult *ask(struct check *c, const char *sql, int count, const Oid *types,
                     const char *const *values)
{
    const char *nothing[1] = {NULL};
    const char **nulls = NULL;
    PGresult *result = NULL;

    if (values == NULL && count > 0)
        nulls = calloc((size_t)count, sizeof *nulls);
    if (values == NULL)
        values = nulls != NULL ? nulls : nothing;
    if (PQsendQueryParams(c->conn, sql, count, types, values, NULL, NULL, 0) != 0)
        result = wait_result(c);
    else
        c->is_stuck = true;
    free(nulls);
    return result;
}

static bool has_sqlstate(const PGresult *result, const char *sqlstate)
{
    const char *is = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    return is != NULL && strcmp(is, sqlstate) == 0;
}

/* ---- connecting ---- */

static bool try_target(struct check *c, const struct targets *all, struct target *t,
                       struct instant until, struct error *err)
{
    char password[PASSWORD_MAX];
    bool has_password;

    if (!t->is_local && t->address[0] == '\0') {
        if (!look_up(t, until))
            return error_set(err, "host \"%s\" does not resolve", t->host);
        memcpy(t->address, t->resolved.addresses[0], sizeof t->address);
    }
    has_password = targets_read_password(c->dependency->password_file, password);
    c->conn = targets_connect(all, t, t->address, has_password ? password : NULL,
                              c->dependency->query_timeout_us);
    explicit_bzero(password, sizeof password);
    (void)PQsetNoticeProcessor(c->conn, ignore_notice, NULL);
    if (log_in(c->conn, until))
        return true;
    (void)error_set(err, "cannot connect: %s",
                    PQerrorMessage(c->conn)[0] != '\0' ? PQerrorMessage(c->conn)
                                                       : "no answer within connect_timeout");
    err->text[strcspn(err->text, "\n")] = '\0';
    PQfinish(c->conn);
    c->conn = NULL;
    return false;
}

static bool connect_any(struct check *c)
{
    struct instant until = instant_after(clock_now(), c->dependency->connect_timeout_us);
    struct targets targets;
    struct error err = {"no address"};
    bool is_connected = false;

    if (!targets_parse(&targets, c->dependency->conninfo, &err)) {
        complain(c, err.text);
        return false;
    }
    for (int i = 0; i < targets.count && !is_connected; i++)
        is_connected = try_target(c, &targets, &targets.items[i], until, &err);
    targets_fini(&targets);
    if (!is_connected)
        complain(c, err.text);
    return is_connected;
}

/* Which of the settings that bound what the server does for us does it, or a pooler, refuse? */
static void check_settings(struct check *c)
{
    char query_timeout[32];
    const char *const settings[][2] = {
        {"statement_timeout", query_timeout},
        {"idle_in_transaction_session_timeout", query_timeout},
        {"client_connection_check_interval", "1000"},
        {"tcp_user_timeout", "1000"},
        {"default_transaction_read_only", "on"},
    };

    (void)snprintf(query_timeout, sizeof query_timeout, "%lld",
                   (long long)(c->dependency->query_timeout_us / 1000));
    for (size_t i = 0; i < sizeof settings / sizeof settings[0] && !c->is_stuck; i++) {
        PGresult *result =
            ask(c, "SELECT pg_catalog.set_config($1, $2, false)", 2, NULL, settings[i]);
        char text[200];

        if (PQresultStatus(result) != PGRES_TUPLES_OK) {
            (void)snprintf(text, sizeof text, "the server refuses to set %s for the session",
                           settings[i][0]);
            complaints_warn(c->complaints, c->config->file, c->dependency->line,
                            c->dependency->column, "dependencies.%s: %s", c->dependency->name,
                            text);
        }
        PQclear(result);
    }
}

static size_t count_writes(const struct check *c)
{
    const struct catalog *catalog = c->config->catalog;
    size_t count = 0;

    for (size_t i = 0; i < catalog->route_count; i++)
        count += catalog->routes[i].is_write &&
                 &c->config->dependencies[catalog->routes[i].source] == c->dependency;
    return count;
}

/* A standby refuses every write, whatever the statement. */
static void check_role(struct check *c)
{
    size_t writes = count_writes(c);
    PGresult *result;
    char text[200];

    if (writes == 0)
        return;
    result = ask(c, "SELECT pg_catalog.pg_is_in_recovery()", 0, NULL, NULL);
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQgetvalue(result, 0, 0)[0] == 't') {
        (void)snprintf(text, sizeof text,
                       "the server is a standby, which refuses writes, and %zu route%s there",
                       writes, writes == 1 ? " writes" : "s write");
        complain(c, text);
    }
    PQclear(result);
}

/* ---- one route ---- */

static void complain_at(const struct check *c, const struct route *route, const PGresult *result)
{
    int position = failure_position(result);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    int line = route->sql_line, column = route->sql_column;

    if (position > 0)
        route_place_of(route, (size_t)position, &line, &column);
    complaints_add(c->complaints, route->file, line, column, "on %s: %s (SQLSTATE %s)",
                   c->dependency->name, message != NULL ? message : "no answer in time",
                   message != NULL ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : "none");
}

static Oid type_oid(struct check *c, const struct param *param)
{
    char name[PARAM_TYPE_NAME_BYTES];
    const char *values[] = {name};
    PGresult *result;
    Oid oid = 0;

    if (param->type.oid != 0)
        return param->type.oid;
    param_type_name(&param->type, name);
    result = ask(c, statement_param_lookup_sql, 1, NULL, values);
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQgetisnull(result, 0, 0) == 0)
        oid = (Oid)strtoul(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return oid;
}

static bool find_types(struct check *c, const struct route *route, Oid *out)
{
    bool is_good = true;

    for (size_t i = 0; i < route->bind_count; i++) {
        const struct param *param = &route->params[route->bind_params[i]];

        out[i] = type_oid(c, param);
        if (c->is_stuck)
            return false;
        if (out[i] != 0)
            continue;
        complaints_add(c->complaints, route->file, param->line, param->column,
                       "on %s: the type \"%s\" of parameter \"%s\" does not exist",
                       c->dependency->name, param->type.name, param->name);
        is_good = false;
    }
    return is_good;
}

static void check_columns(const struct check *c, const struct route *route, const PGresult *result)
{
    int count = PQnfields(result);

    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(PQfname(result, i), PQfname(result, j)) == 0)
                complaints_add(c->complaints, route->file, route->sql_line, route->sql_column,
                               "on %s: column \"%s\" comes twice; give one another name with AS",
                               c->dependency->name, PQfname(result, i));
    if (route->result == RESULT_VALUE && count != 1)
        complaints_add(c->complaints, route->file, route->sql_line, route->sql_column,
                       "on %s: @result value wants one column, the statement has %d",
                       c->dependency->name, count);
    if (route->result != RESULT_EXEC && count == 0)
        complaints_add(c->complaints, route->file, route->sql_line, route->sql_column,
                       "on %s: the statement returns no rows; use @result exec, or RETURNING",
                       c->dependency->name);
}

/* Planned, and started up to the point where the server looks at privileges and at what a read-only
 * transaction allows; not run: no row is read, locked or written. A write that is no DML (CALL,
 * DDL) cannot be planned, and other errors say nothing, as each value is NULL here. */
static void check_plan(struct check *c, const struct route *route, const Oid *types)
{
    PGresult *begun =
        ask(c, route->is_write ? "BEGIN READ WRITE" : "BEGIN READ ONLY", 0, NULL, NULL);
    PGresult *result = NULL;
    char *sql = NULL;

    if (PQresultStatus(begun) == PGRES_COMMAND_OK &&
        asprintf(&sql, "%s%s", route->is_write ? "EXPLAIN " : "DECLARE weir_check CURSOR FOR ",
                 route->sql) >= 0)
        result = ask(c, sql, (int)route->bind_count, types, NULL);
    if (has_sqlstate(result, "25006") || has_sqlstate(result, "42501"))
        complaints_add(c->complaints, route->file, route->sql_line, route->sql_column,
                       "on %s: %s (SQLSTATE %s)", c->dependency->name,
                       PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
                       PQresultErrorField(result, PG_DIAG_SQLSTATE));
    if (PQresultStatus(begun) == PGRES_COMMAND_OK && !c->is_stuck)
        PQclear(ask(c, "ROLLBACK", 0, NULL, NULL));
    PQclear(result);
    PQclear(begun);
    free(sql);
}

/* True: the server knows all that it names. */
static bool check_names(struct check *c, const struct route *route, const Oid *types)
{
    PGresult *result = NULL;
    bool is_good;

    if (PQsendPrepare(c->conn, "", route->sql, (int)route->bind_count, types) != 0)
        result = wait_result(c);
    is_good = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (!is_good && !c->is_stuck)
        complain_at(c, route, result);
    PQclear(result);
    result = NULL;
    if (is_good && PQsendDescribePrepared(c->conn, "") != 0)
        result = wait_result(c);
    if (is_good && !c->is_stuck)
        check_columns(c, route, result);
    PQclear(result);
    return is_good && !c->is_stuck;
}

static void check_route(struct check *c, const struct route *route)
{
    Oid *types = calloc(route->bind_count + 1, sizeof *types);

    if (types != NULL && find_types(c, route, types) && check_names(c, route, types))
        check_plan(c, route, types);
    free(types);
}

/* Each of its routes; one line when the server stops answering in between, not one for each. */
static void check_dependency(struct check *c, uint32_t source)
{
    const struct catalog *catalog = c->config->catalog;

    check_settings(c);
    if (!c->is_stuck)
        check_role(c);
    for (size_t i = 0; i < catalog->route_count && !c->is_stuck; i++)
        if (catalog->routes[i].source == source)
            check_route(c, &catalog->routes[i]);
    if (c->is_stuck)
        complain(c, PQstatus(c->conn) == CONNECTION_BAD
                        ? "the connection was lost during the check"
                        : "no answer within query_timeout; not all was checked");
}

bool check_connect(const struct config *config, struct complaints *complaints)
{
    size_t before = complaints->error_count;

    for (uint32_t i = 0; i < config->dependency_count; i++) {
        struct check c = {config, &config->dependencies[i], complaints, NULL, false};

        if (!connect_any(&c))
            continue;
        check_dependency(&c, i);
        PQfinish(c.conn);
    }
    return complaints->error_count == before;
}

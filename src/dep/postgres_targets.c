#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "dep/postgres_internal.h"

static const char *option(const PQconninfoOption *options, const char *keyword)
{
    for (const PQconninfoOption *o = options; o->keyword != NULL; o++)
        if (strcmp(o->keyword, keyword) == 0)
            return o->val != NULL && o->val[0] != '\0' ? o->val : NULL;
    return NULL;
}

/* libpq's own default needs no telling, and where weir's differs (gssencmode) it is no choice. */
static bool is_choice(const PQconninfoOption *o, const char *value)
{
    return value != NULL && (o->compiled == NULL || strcmp(value, o->compiled) != 0);
}

/* What was given, else what libpq would take from the environment. */
static void fill_defaults(PQconninfoOption *options)
{
    PQconninfoOption *defaults = PQconndefaults();

    for (PQconninfoOption *o = options; defaults != NULL && o->keyword != NULL; o++) {
        const char *value = option(defaults, o->keyword);

        if (o->val == NULL && is_choice(o, value))
            o->val = strdup(value);
    }
    PQconninfoFree(defaults);
}

/* The n-th of a comma-separated list into `out`; false: there is none. */
static bool list_item(const char *list, int n, char *out, size_t size)
{
    const char *end;

    out[0] = '\0';
    for (; n > 0 && list != NULL; n--) {
        list = strchr(list, ',');
        if (list != NULL)
            list++;
    }
    if (list == NULL)
        return false;
    end = strchrnul(list, ',');
    (void)snprintf(out, size, "%.*s", (int)(end - list), list);
    return true;
}

static int list_count(const char *list)
{
    int count = list != NULL;

    for (; list != NULL && *list != '\0'; list++)
        count += *list == ',';
    return count;
}

/* libpq would find these only when it connects, and then again and again. */
static bool check_counts(const PQconninfoOption *options, struct error *err)
{
    int hosts = list_count(option(options, "host"));
    int addresses = list_count(option(options, "hostaddr"));
    int ports = list_count(option(options, "port"));
    int targets = hosts > 0 ? hosts : addresses;

    if (hosts > 0 && addresses > 0 && hosts != addresses)
        return error_set(err, "conninfo: %d hosts, but %d in hostaddr: give one for each", hosts,
                         addresses);
    if (targets == 0)
        targets = 1; /* the local socket */
    if (targets > TARGETS_MAX)
        return error_set(err, "conninfo: %d hosts, but weir tries at most %d", targets,
                         TARGETS_MAX);
    if (ports > 1 && ports != targets)
        return error_set(err, "conninfo: %d ports for %d host%s: give one, or one for each", ports,
                         targets, targets > 1 ? "s" : "");
    return true;
}

/* Of at most five digits. */
static bool is_port(const char *text)
{
    size_t size = strlen(text);
    long port = strtol(text, NULL, 10);

    return size <= 5 && strspn(text, "0123456789") == size && port >= 1 && port <= UINT16_MAX;
}

static bool check_target(const PQconninfoOption *options, int n, bool has_one_port,
                         struct error *err)
{
    char text[300];

    (void)list_item(option(options, "host"), n, text, sizeof text);
    if (strlen(text) >= sizeof((struct target *)NULL)->host)
        return error_set(err, "conninfo: host number %d is too long", n + 1);
    (void)list_item(option(options, "hostaddr"), n, text, sizeof text);
    if (strlen(text) >= sizeof((struct target *)NULL)->address)
        return error_set(err, "conninfo: hostaddr number %d is too long", n + 1);
    (void)list_item(option(options, "port"), has_one_port ? 0 : n, text, sizeof text);
    if (text[0] != '\0' && !is_port(text))
        return error_set(err, "conninfo: port number %d in the list is not one from 1 to 65535",
                         has_one_port ? 1 : n + 1);
    return true;
}

static bool is_numeric(const char *host)
{
    unsigned char bytes[16];

    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static void add_target(struct targets *t, int n, bool has_one_port)
{
    struct target *target = &t->items[t->count];
    const char *ports = option(t->options, "port");

    *target = (struct target){.resolved_at = INSTANT_NEVER};
    (void)list_item(option(t->options, "host"), n, target->host, sizeof target->host);
    (void)list_item(option(t->options, "hostaddr"), n, target->address, sizeof target->address);
    (void)list_item(ports, has_one_port ? 0 : n, target->port, sizeof target->port);
    if (target->port[0] == '\0')
        (void)snprintf(target->port, sizeof target->port, "5432");
    if (target->host[0] == '\0' && target->address[0] == '\0')
        (void)snprintf(target->host, sizeof target->host, "/var/run/postgresql");
    target->is_local = target->host[0] == '/' || target->host[0] == '@';
    if (target->address[0] == '\0' && is_numeric(target->host))
        memcpy(target->address, target->host, sizeof target->address); /* short, or not numeric */
    t->count++;
}

/* Everything after the parsing by libpq; on failure the options are left. */
static bool add_targets(struct targets *t, struct error *err)
{
    const char *hosts = option(t->options, "host");
    bool has_one_port = list_count(option(t->options, "port")) == 1;
    int count = list_count(hosts != NULL ? hosts : option(t->options, "hostaddr"));

    if (!check_counts(t->options, err))
        return false;
    do {
        if (!check_target(t->options, t->count, has_one_port, err))
            return false;
        add_target(t, t->count, has_one_port);
    } while (t->count < count);
    return true;
}

/* The end of a value of libpq's keyword=value form. */
static const char *skip_value(const char *at)
{
    bool is_quoted = *at == '\'';

    for (at += is_quoted; *at != '\0' && (is_quoted ? *at != '\'' : !isspace((unsigned char)*at));
         at++)
        at += at[0] == '\\' && at[1] != '\0';
    return at + (is_quoted && *at != '\0');
}

/* The known keyword nearest to the first unknown one of keyword=value pairs, or NULL. The unknown
 * one is not told: it may be part of a password that should have been quoted. */
static const char *nearest_keyword(const char *at, const PQconninfoOption *known)
{
    const char *names[CONNINFO_MAX];
    size_t count = 0;

    for (; known != NULL && known[count].keyword != NULL && count < CONNINFO_MAX; count++)
        names[count] = known[count].keyword;
    while (*(at += strspn(at, " \t\r\n\f\v")) != '\0') {
        size_t size = strcspn(at, "= \t\r\n\f\v");
        char keyword[64];
        const char *nearest;

        (void)snprintf(keyword, sizeof keyword, "%.*s", (int)size, at);
        nearest = nearest_word(keyword, names, count);
        if (nearest == NULL || strcmp(nearest, keyword) != 0)
            return nearest;
        at += size;
        at += strspn(at, " \t\r\n\f\v");
        if (*at != '=')
            return NULL;
        at++;
        at = skip_value(at + strspn(at, " \t\r\n\f\v"));
    }
    return NULL;
}

/* libpq's own message would quote the text, which may hold a password. */
static bool refuse_conninfo(const char *conninfo, struct error *err)
{
    PQconninfoOption *known = PQconndefaults();
    const char *nearest = nearest_keyword(conninfo, known);

    (void)error_set(err,
                    "conninfo is not a connection string of libpq: keyword=value pairs (quote "
                    "values that hold spaces with '), or a postgresql:// URI%s%s%s",
                    nearest != NULL ? "; a keyword is unknown, did you mean \"" : "",
                    nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
    PQconninfoFree(known);
    return false;
}

bool targets_parse(struct targets *t, const char *conninfo, struct error *err)
{
    *t = (struct targets){.options = PQconninfoParse(conninfo, NULL)};
    if (t->options == NULL)
        return refuse_conninfo(conninfo, err);
    if (option(t->options, "service") != NULL) {
        targets_fini(t);
        return error_set(err, "conninfo: service= is not supported; give host, port and the rest");
    }
    fill_defaults(t->options);
    if (!add_targets(t, err)) {
        targets_fini(t);
        return false;
    }
    return true;
}

void targets_fini(struct targets *t)
{
    PQconninfoFree(t->options);
    t->options = NULL;
}

bool targets_read_password(const char *file, char out[PASSWORD_MAX])
{
    int fd = file != NULL ? open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    ssize_t size;

    if (fd < 0)
        return false;
    size = read(fd, out, PASSWORD_MAX - 1);
    (void)close(fd);
    if (size <= 0)
        return false;
    out[size] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    return true;
}

struct keywords {
    const char *names[CONNINFO_MAX], *values[CONNINFO_MAX];
    int count;
};

static void put(struct keywords *k, const char *name, const char *value)
{
    if (value == NULL || value[0] == '\0' || k->count >= CONNINFO_MAX - 1)
        return;
    k->names[k->count] = name;
    k->values[k->count] = value;
    k->count++;
    k->names[k->count] = k->values[k->count] = NULL;
}

static bool is_ours(const char *keyword)
{
    static const char *const ours[] = {"host",       "hostaddr",         "port",
                                       "password",   "tcp_user_timeout", "client_encoding",
                                       "gssencmode", "connect_timeout"};

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strcmp(keyword, ours[i]) == 0)
            return true;
    return false;
}

PGconn *targets_connect(const struct targets *t, const struct target *target, const char *address,
                        const char *password, int64_t tcp_user_timeout_us)
{
    struct keywords k = {.count = 0};
    const char *gssencmode = option(t->options, "gssencmode");
    char timeout_ms[24];

    for (const PQconninfoOption *o = t->options; o->keyword != NULL; o++)
        if (!is_ours(o->keyword))
            put(&k, o->keyword, o->val);
    (void)snprintf(timeout_ms, sizeof timeout_ms, "%lld", (long long)(tcp_user_timeout_us / 1000));
    put(&k, "host", target->host);
    put(&k, "hostaddr", address);
    put(&k, "port", target->port);
    put(&k, "password", password != NULL ? password : option(t->options, "password"));
    put(&k, "tcp_user_timeout", timeout_ms);
    put(&k, "client_encoding", "UTF8");
    /* Else libpq looks for Kerberos files, and may ask a key server, before it says hello. */
    put(&k, "gssencmode", gssencmode != NULL ? gssencmode : "disable");
    put(&k, "fallback_application_name", "weir");
    return PQconnectStartParams(k.names, k.values, 0);
}

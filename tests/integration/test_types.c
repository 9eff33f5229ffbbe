/* Types out: every value as the server's own to_json gives it, to a session of the same role, byte
 * for byte: as one object, as many and as value, whatever the server, the database or the role has
 * set. A table of values first, then random ones of every type that the server has. */
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "cmocka_all.h"
#include "exchange.h"
#include "figure.h"
#include "patience.h"
#include "scratch.h"
#include "type_values.h"

/* --- settings that change how a server writes values --- */

struct server_setting {
    const char *whose; /* what is altered */
    const char *list;  /* with semicolons; %s: a locale for money */
    const char *money;
};

static const struct server_setting settings[] = {
    {"ROLE app", "DateStyle = 'ISO, MDY'", NULL},
    {"ROLE app",
     "DateStyle = 'German, DMY'; IntervalStyle = 'iso_8601'; bytea_output = 'escape'; "
     "extra_float_digits = 0; TimeZone = 'Asia/Kolkata'",
     "de_DE.UTF-8"},
    {"ROLE app",
     "DateStyle = 'SQL, DMY'; IntervalStyle = 'sql_standard'; extra_float_digits = 3; "
     "TimeZone = 'America/St_Johns'; xmlbinary = 'hex'; search_path = public, pg_catalog",
     "ja_JP.UTF-8"},
    {"DATABASE app",
     "DateStyle = 'Postgres, YMD'; IntervalStyle = 'postgres_verbose'; bytea_output = 'escape'; "
     "extra_float_digits = -15; TimeZone = 'Europe/Amsterdam'; quote_all_identifiers = on",
     NULL},
};
enum { SETTING_COUNT = sizeof settings / sizeof settings[0] };

/* --- the server and weir --- */

/* Instrumented programs, many times slower, see every fourth value and type. */
enum { STEP = FIGURE_SLOWDOWN > 1 ? 4 : 1, RANDOM_ROWS = 210, RANDOM_WANTED = 100000 };

struct fixture {
    struct private_postgres *pg;
    struct weir_process *weir;
    struct http_client *client;
    PGconn *oracle; /* as app; NULL between two settings */
    char *locales;  /* folder; NULL: there are none but C */
    size_t checked_count, random_count;
    char **before;        /* owned; what each value was under the settings before */
    size_t changed_count; /* of those under the present ones */
};

/* Locales for money, in a folder of their own: few machines have any but C. */
static bool make_locale(const char *folder, const char *name)
{
    char *source = scratch_format("/usr/share/i18n/locales/%.5s", name);
    char *input = scratch_format("%.5s", name);
    char *path = scratch_format("%s/%s", folder, name);
    bool can_make = access("/usr/bin/localedef", X_OK) == 0 && access(source, R_OK) == 0;

    if (can_make)
        child_run(&(struct child_setup){.argv = (char *[]){"/usr/bin/localedef", "-i", input, "-f",
                                                           "UTF-8", "--no-archive", path, NULL},
                                        .out_fd = -1,
                                        .err_fd = STDERR_FILENO,
                                        .death_signal = SIGKILL});
    free(path);
    free(input);
    free(source);
    return can_make;
}

static char *make_locales(void)
{
    char *folder = scratch_folder("weir-locales");
    bool is_good = true;

    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (settings[i].money != NULL)
            is_good = is_good && make_locale(folder, settings[i].money);
    if (is_good) {
        assert_int_equal(setenv("LOCPATH", folder, 1), 0); /* for the server */
        return folder;
    }
    (void)printf("figure: lc_monetary is C throughout: the package locales is not here\n");
    scratch_remove(folder);
    return NULL;
}

static void write_route(struct weir_process *weir, const char *path, const char *result,
                        const char *sql)
{
    char *name = scratch_format("%s.sql", path);
    char *text = scratch_format("-- GET /%s\n-- @result %s\n%s\n", path, result, sql);

    for (char *c = name; *c != '\0'; c++)
        if (*c == '/')
            *c = '-';
    weir_write(weir, name, text);
    free(text);
    free(name);
}

static void write_value_route(struct weir_process *weir, const char *kind, size_t i,
                              const char *result, const char *sql)
{
    char *path = scratch_format("%s/%zu", kind, i);

    write_route(weir, path, result, sql);
    free(path);
}

static void write_value_routes(struct weir_process *weir)
{
    for (size_t i = 0; i < type_value_count; i += STEP) {
        char *sql = scratch_format("SELECT %s AS v", type_values[i]);
        char *many = scratch_format("%s, g FROM generate_series(1, 2) AS g", sql);

        write_value_route(weir, "one", i, "one", sql);
        write_value_route(weir, "many", i, "many", many);
        write_value_route(weir, "value", i, "value", sql);
        free(many);
        free(sql);
    }
}

/* Of a random table: what is written from the text, and what only the server can write. */
static const char *const random_columns[] = {"v, a", "c, ROW(v, id) AS r, ARRAY[c, NULL] AS ca"};

static char *random_query(size_t type, size_t columns)
{
    return scratch_format("SELECT %s FROM random_%zu ORDER BY id", random_columns[columns], type);
}

static void write_random_routes(struct weir_process *weir)
{
    for (size_t i = 0; i < random_type_count; i += STEP)
        for (size_t c = 0; c < 2; c++) {
            char *path = scratch_format("random/%zu/%zu", i, c);
            char *sql = random_query(i, c);

            write_route(weir, path, "many", sql);
            free(sql);
            free(path);
        }
}

/* Arrays: empty, with NULLs, of two dimensions, with a lower bound of their own. */
static void fill_random_table(struct private_postgres *pg, size_t i)
{
    const struct random_type *t = &random_types[i];
    const char *x = t->through;
    char *sql = scratch_format(
        "CREATE TYPE random_c_%zu AS (v %s, a %s[], \"t \"\"x\" text);"
        "CREATE TABLE random_%zu AS SELECT id, v, a, CASE WHEN id %% 9 > 0 THEN"
        " ROW(v, a, random_text())::random_c_%zu END AS c FROM ("
        "SELECT id, v, CASE id %% 5 WHEN 0 THEN NULL WHEN 1 THEN ARRAY[v%s, w%s, NULL]::%s[]"
        " WHEN 2 THEN ARRAY[ARRAY[v%s, w%s], ARRAY[NULL, v%s]]::%s[]"
        " WHEN 3 THEN '{}'::%s[] ELSE array_cat(array_fill(NULL::text, ARRAY[3], ARRAY[-1])::%s[],"
        " ARRAY[w%s]::%s[]) END AS a"
        " FROM (SELECT id, CASE WHEN random() < 0.95 THEN (%s)::%s END AS v, (%s)::%s AS w"
        " FROM generate_series(1, %d) AS id OFFSET 0) AS values OFFSET 0) AS arrays",
        i, t->name, t->name, i, i, x, x, t->name, x, x, x, t->name, t->name, t->name, x, t->name,
        t->expression, t->name, t->expression, t->name, RANDOM_ROWS);

    private_postgres_exec(pg, sql);
    free(sql);
}

static void fill_database(struct private_postgres *pg)
{
    private_postgres_exec(pg, type_seed);
    private_postgres_exec(pg, "SELECT setseed(0.4711)");
    for (size_t i = 0; i < random_type_count; i += STEP)
        fill_random_table(pg, i);
    private_postgres_exec(pg, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO app");
}

static int start_all(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char *dependencies;

    assert_non_null(f);
    f->locales = make_locales();
    f->pg = private_postgres_create();
    private_postgres_start(f->pg);
    assert_int_equal(unsetenv("LOCPATH"), 0);
    fill_database(f->pg);
    dependencies = exchange_primary(f->pg, 0, NULL);
    f->weir = weir_create(&(struct weir_setup){.dependencies = dependencies});
    write_value_routes(f->weir);
    write_random_routes(f->weir);
    weir_start(f->weir);
    assert_true(exchange_is_healthy_within(f->weir, 10000));
    f->client = http_client_create();
    f->before = calloc(type_value_count, sizeof *f->before);
    assert_non_null(f->before);
    free(dependencies);
    *state = f;
    return 0;
}

static int stop_all(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < type_value_count; i += STEP)
        free(f->before[i]);
    free(f->before);
    PQfinish(f->oracle);
    http_client_destroy(f->client);
    assert_int_equal(weir_stop(f->weir, 20000), 0);
    weir_destroy(f->weir);
    private_postgres_destroy(f->pg);
    scratch_remove(f->locales);
    free(f);
    return 0;
}

/* --- applying settings --- */

static bool has_no_sessions(void *context)
{
    const struct fixture *f = context;

    return weir_metric(f->weir, "weir_connections", "state=\"idle\"") < 1;
}

static PGconn *log_in(const struct fixture *f)
{
    char *conninfo = private_postgres_conninfo(f->pg, 0);
    PGconn *conn = PQconnectdb(conninfo);

    if (PQstatus(conn) != CONNECTION_OK)
        scratch_give_up("the oracle cannot log in: %s", PQerrorMessage(conn));
    free(conninfo);
    return conn;
}

static void alter(struct fixture *f, const char *whose, const char *what)
{
    char *sql = scratch_format("ALTER %s %s", whose, what);

    private_postgres_exec(f->pg, sql);
    free(sql);
}

/* For sessions to come; weir's and the oracle's are opened anew. */
static void apply(struct fixture *f, const struct server_setting *setting)
{
    char *list = scratch_format("%s", setting->list), *rest = NULL;

    alter(f, "ROLE app", "RESET ALL");
    alter(f, "DATABASE app", "RESET ALL");
    for (char *one = strtok_r(list, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest)) {
        char *set = scratch_format("SET %s", one);

        alter(f, setting->whose, set);
        free(set);
    }
    if (f->locales != NULL && setting->money != NULL) {
        char *set = scratch_format("SET lc_monetary = '%s'", setting->money);

        alter(f, setting->whose, set);
        free(set);
    }
    free(list);
    PQfinish(f->oracle);
    f->oracle = NULL;
    private_postgres_exec(f->pg, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                 "WHERE usename = 'app'");
    assert_true(poll_until(has_no_sessions, f, 2000));
    f->oracle = log_in(f);
}

/* --- comparing --- */

static PGresult *ask_oracle(const struct fixture *f, const char *sql)
{
    PGresult *result = PQexec(f->oracle, sql);

    if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
        scratch_give_up("the oracle: %s in: %s", PQerrorMessage(f->oracle), sql);
    return result;
}

static struct http_answer ask(const struct fixture *f, const char *path)
{
    char *url = weir_url(f->weir, path);
    struct http_answer answer = http_client_ask(f->client, &(struct http_request){.url = url});

    free(url);
    return answer;
}

static size_t first_difference(const char *a, const char *b)
{
    size_t i = 0;

    while (a[i] != '\0' && a[i] == b[i])
        i++;
    return i < 40 ? 0 : i - 40;
}

/* True: as the server says. */
static bool is_same(struct fixture *f, const char *path, const char *expected, const char *what)
{
    struct http_answer answer = ask(f, path);
    bool is_equal = answer.status == 200 && strcmp(answer.body, expected) == 0;

    if (!is_equal) {
        size_t at = answer.body != NULL ? first_difference(answer.body, expected) : 0;

        print_error("%s, %s: %d\n  weir:    %.200s\n  to_json: %.200s\n", what, path, answer.status,
                    answer.body != NULL ? answer.body + at : answer.failure, expected + at);
    }
    http_answer_fini(&answer);
    return is_equal;
}

/* --- the table --- */

/* Settings that change nothing would prove nothing. */
static void note_change(struct fixture *f, size_t i, const char *value)
{
    f->changed_count += f->before[i] != NULL && strcmp(f->before[i], value) != 0 ? 1 : 0;
    free(f->before[i]);
    f->before[i] = scratch_format("%s", value);
}

/* How many of the three are wrong. */
static int64_t check_value(struct fixture *f, size_t i)
{
    static const char *const kinds[] = {"one", "many", "value"};
    const char *v = type_values[i];
    char *sql = scratch_format(
        "SELECT to_json(w), (SELECT '[' || string_agg(to_json(m)::text, ',') || ']' FROM (SELECT "
        "%s AS v, g FROM generate_series(1, 2) AS g) AS m), coalesce(to_json(w.v)::text, 'null') "
        "FROM (SELECT %s AS v) AS w",
        v, v);
    PGresult *expected = ask_oracle(f, sql);
    int64_t wrong = 0;

    for (int k = 0; k < 3; k++) {
        char *path = scratch_format("/%s/%zu", kinds[k], i);

        wrong += is_same(f, path, PQgetvalue(expected, 0, k), v) ? 0 : 1;
        f->checked_count++;
        free(path);
    }
    note_change(f, i, PQgetvalue(expected, 0, 0));
    PQclear(expected);
    free(sql);
    return wrong;
}

static void test_every_value_is_what_to_json_gives(void **state)
{
    struct fixture *f = *state;
    int64_t wrong = 0;

    assert_true(type_value_count >= 150);
    for (size_t s = 0; s < SETTING_COUNT; s++) {
        apply(f, &settings[s]);
        f->changed_count = 0;
        for (size_t i = 0; i < type_value_count; i += STEP)
            wrong += check_value(f, i);
        (void)printf("figure: values that look different under %s: %zu\n", settings[s].list,
                     f->changed_count);
        assert_true(s == 0 || f->changed_count * STEP >= 20);
    }
    (void)printf("figure: %zu values under %d kinds of settings, as one, many and value: %zu "
                 "answers compared\n",
                 type_value_count, SETTING_COUNT, f->checked_count);
    figure_count_is("answers that are not what to_json gives", wrong, 0);
}

/* --- random ones --- */

static void test_no_type_of_the_server_is_left_out(void **state)
{
    struct fixture *f = *state;
    char *names = scratch_format("0");
    char *sql, *missing;

    for (size_t i = 0; i < random_type_count; i++) {
        char *longer = scratch_format("%s, '%s'::regtype::oid", names, random_types[i].name);

        free(names);
        names = longer;
    }
    /* The last three are internal: there are no values of them to be had. */
    sql = scratch_format("SELECT string_agg(oid::regtype::text, ' ') FROM pg_type WHERE typtype IN "
                         "('b', 'd', 'e', 'm', 'r') AND typarray <> 0 AND typcategory <> 'A' AND "
                         "typnamespace IN ('pg_catalog'::regnamespace, 'public'::regnamespace) "
                         "AND oid NOT IN (%s) AND typname NOT IN "
                         "('gtsvector', 'ghstore', 'ltree_gist')",
                         names);
    missing = private_postgres_value(f->pg, sql);
    assert_string_equal(missing, "");
    free(missing);
    free(sql);
    free(names);
}

static int64_t check_random(struct fixture *f, size_t type, size_t columns)
{
    char *query = random_query(type, columns);
    char *sql = scratch_format("SELECT '[' || string_agg(to_json(w)::text, ',') || ']', count(*) "
                               "FROM (%s) AS w",
                               query);
    char *path = scratch_format("/random/%zu/%zu", type, columns);
    PGresult *expected = ask_oracle(f, sql);
    bool is_right = is_same(f, path, PQgetvalue(expected, 0, 0), random_types[type].name);

    f->random_count += strtoul(PQgetvalue(expected, 0, 1), NULL, 10) * (columns == 0 ? 2 : 3);
    PQclear(expected);
    free(path);
    free(sql);
    free(query);
    return is_right ? 0 : 1;
}

static void test_random_values_of_every_type_are_what_to_json_gives(void **state)
{
    struct fixture *f = *state;
    int64_t wrong = 0;

    for (size_t s = 0; s < SETTING_COUNT; s++) {
        apply(f, &settings[s]);
        f->random_count = 0;
        for (size_t i = 0; i < random_type_count; i += STEP)
            wrong += check_random(f, i, 0) + check_random(f, i, 1);
        (void)printf("figure: random values compared under %s: %zu, of %zu types\n",
                     settings[s].list, f->random_count, random_type_count);
        assert_true(f->random_count * STEP >= RANDOM_WANTED);
    }
    figure_count_is("random answers that are not what to_json gives", wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value_is_what_to_json_gives),
        cmocka_unit_test(test_no_type_of_the_server_is_left_out),
        cmocka_unit_test(test_random_values_of_every_type_are_what_to_json_gives),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}

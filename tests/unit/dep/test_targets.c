/* Which servers a connection string names, without asking any. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "dep/postgres_internal.h"

/* libpq reads these; no variable of whoever runs the tests may change what they see. */
static int forget_environment(void **state)
{
    static const char *const names[] = {"PGHOST",    "PGHOSTADDR",   "PGPORT",    "PGDATABASE",
                                        "PGUSER",    "PGPASSWORD",   "PGSERVICE", "PGPASSFILE",
                                        "PGSSLMODE", "PGGSSENCMODE", "PGOPTIONS", "PGAPPNAME"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unsetenv(names[i]); /* NOLINT(concurrency-mt-unsafe): one thread */
    return 0;
}

static void set_variable(const char *name, const char *value)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    assert_int_equal(setenv(name, value, 1), 0);
}

struct expected {
    const char *host, *address, *port;
    bool is_local;
};

static void check(const char *conninfo, const struct expected *rows, int count)
{
    struct targets t;
    struct error err;

    if (!targets_parse(&t, conninfo, &err))
        fail_msg("%s: %s", conninfo, err.text);
    assert_int_equal(t.count, count);
    assert_int_equal(t.preferred, 0);
    for (int i = 0; i < count; i++) {
        assert_string_equal(t.items[i].host, rows[i].host);
        assert_string_equal(t.items[i].address, rows[i].address);
        assert_string_equal(t.items[i].port, rows[i].port);
        assert_int_equal(t.items[i].is_local, rows[i].is_local);
        assert_int_equal(t.items[i].resolved_at.us, INSTANT_NEVER.us);
    }
    targets_fini(&t);
}

/* It is refused, in words that hold `word` and nothing secret. */
static void check_refused(const char *conninfo, const char *word)
{
    struct targets t;
    struct error err;

    assert_false(targets_parse(&t, conninfo, &err));
    assert_non_null(strstr(err.text, "conninfo"));
    if (strstr(err.text, word) == NULL)
        fail_msg("%s: says \"%s\"", conninfo, err.text);
    assert_null(strstr(err.text, "hunter2"));
    assert_null(t.options);
}

static void test_a_name_must_be_looked_up_and_a_number_not(void **state)
{
    (void)state;
    check("host=db.example.com port=5433",
          (struct expected[]){{"db.example.com", "", "5433", false}}, 1);
    check("host=192.0.2.7", (struct expected[]){{"192.0.2.7", "192.0.2.7", "5432", false}}, 1);
    check("host=2001:db8::5 port=1",
          (struct expected[]){{"2001:db8::5", "2001:db8::5", "1", false}}, 1);
}

static void test_hostaddr_is_where_and_host_is_who(void **state)
{
    (void)state;
    check("host=db.example.com hostaddr=192.0.2.7",
          (struct expected[]){{"db.example.com", "192.0.2.7", "5432", false}}, 1);
    check("hostaddr=192.0.2.7,192.0.2.8 port=1,2",
          (struct expected[]){{"", "192.0.2.7", "1", false}, {"", "192.0.2.8", "2", false}}, 2);
}

static void test_lists_of_hosts_share_one_port_or_have_one_each(void **state)
{
    (void)state;
    check("host=a,b,c port=7",
          (struct expected[]){{"a", "", "7", false}, {"b", "", "7", false}, {"c", "", "7", false}},
          3);
    check("host=a,b port=1,2", (struct expected[]){{"a", "", "1", false}, {"b", "", "2", false}},
          2);
    check("host=a,b port=,2", (struct expected[]){{"a", "", "5432", false}, {"b", "", "2", false}},
          2);
}

static void test_uris_say_the_same(void **state)
{
    (void)state;
    check("postgresql://u:p@a:1,b:2/shop?target_session_attrs=any",
          (struct expected[]){{"a", "", "1", false}, {"b", "", "2", false}}, 2);
    check("postgres://a,b/shop",
          (struct expected[]){{"a", "", "5432", false}, {"b", "", "5432", false}}, 2);
    check("postgresql://[2001:db8::5]:5433/shop",
          (struct expected[]){{"2001:db8::5", "2001:db8::5", "5433", false}}, 1);
    check("postgresql://%2Frun%2Fpg/shop", (struct expected[]){{"/run/pg", "", "5432", true}}, 1);
}

static void test_sockets_are_local(void **state)
{
    (void)state;
    check("host=/run/pg port=6000", (struct expected[]){{"/run/pg", "", "6000", true}}, 1);
    check("host=@abstract", (struct expected[]){{"@abstract", "", "5432", true}}, 1);
    check("dbname=shop", (struct expected[]){{"/var/run/postgresql", "", "5432", true}}, 1);
    check("", (struct expected[]){{"/var/run/postgresql", "", "5432", true}}, 1);
}

static void test_the_environment_fills_what_was_not_given(void **state)
{
    (void)state;
    set_variable("PGHOST", "from.env.example.com");
    set_variable("PGPORT", "6543");
    check("dbname=shop", (struct expected[]){{"from.env.example.com", "", "6543", false}}, 1);
    check("host=given.example.com", (struct expected[]){{"given.example.com", "", "6543", false}},
          1);
    check("host=given.example.com port=1",
          (struct expected[]){{"given.example.com", "", "1", false}}, 1);
    (void)forget_environment(state);
}

static void test_what_is_no_connection_string_is_refused_without_quoting_it(void **state)
{
    (void)state;
    check_refused("password=hunter2 nonsense", "not a connection string");
    check_refused("password='hunter2", "not a connection string");
    check_refused("passwort=hunter2", "not a connection string");
    check_refused("postgresql://u:hunter2@[::1/shop", "not a connection string");
    check_refused("password=hunter2 host", "not a connection string");
}

static void test_a_service_is_refused(void **state)
{
    (void)state;
    check_refused("service=shop password=hunter2", "service= is not supported");
    check_refused("postgresql://u:hunter2@a/shop?service=shop", "service= is not supported");
}

static void test_lists_that_do_not_match_are_refused(void **state)
{
    (void)state;
    check_refused("host=a,b port=1,2,3 password=hunter2", "3 ports for 2 hosts");
    check_refused("host=a port=1,2 password=hunter2", "2 ports for 1 host");
    check_refused("host=a,b hostaddr=192.0.2.7 password=hunter2", "hostaddr");
    check_refused("port=1,2 password=hunter2", "2 ports for 1 host");
}

static void test_more_hosts_than_are_tried_are_refused_not_dropped(void **state)
{
    struct targets t;
    struct error err;

    (void)state;
    assert_true(targets_parse(&t, "host=a,b,c,d,e,f,g,h", &err));
    assert_int_equal(t.count, TARGETS_MAX);
    assert_string_equal(t.items[TARGETS_MAX - 1].host, "h");
    targets_fini(&t);
    check_refused("host=a,b,c,d,e,f,g,h,i password=hunter2", "at most 8");
}

static void test_a_port_is_a_number_of_a_port(void **state)
{
    (void)state;
    check_refused("host=a port=0 password=hunter2", "port");
    check_refused("host=a port=65536 password=hunter2", "port");
    check_refused("host=a port=hunter2", "port");
    check_refused("host=a,b port=1,-2 password=hunter2", "port");
    check("host=a port=65535", (struct expected[]){{"a", "", "65535", false}}, 1);
}

static void test_what_is_too_long_to_be_a_host_is_refused(void **state)
{
    char conninfo[400] = "password=hunter2 host=";

    (void)state;
    memset(conninfo + strlen(conninfo), 'a', 300);
    check_refused(conninfo, "too long");
}

/* ---- what libpq is told ---- */

static const char *told(PGconn *conn, const char *keyword, PQconninfoOption **out_options)
{
    *out_options = PQconninfo(conn);
    assert_non_null(*out_options);
    for (const PQconninfoOption *o = *out_options; o->keyword != NULL; o++)
        if (strcmp(o->keyword, keyword) == 0)
            return o->val != NULL ? o->val : "";
    fail_msg("no option %s", keyword);
    return "";
}

static void assert_told(PGconn *conn, const char *keyword, const char *value)
{
    PQconninfoOption *options;

    assert_string_equal(told(conn, keyword, &options), value);
    PQconninfoFree(options);
}

/* To an address that nothing answers at, as nothing is ever sent. */
static PGconn *connect_to(const char *conninfo, const char *password)
{
    struct targets t;
    struct error err;
    PGconn *conn;

    assert_true(targets_parse(&t, conninfo, &err));
    conn = targets_connect(&t, &t.items[0], "127.0.0.1", password, 1500000);
    assert_non_null(conn);
    targets_fini(&t);
    return conn;
}

static void test_one_address_is_connected_to_and_our_settings_stand_on_top(void **state)
{
    PGconn *conn = connect_to("host=db.example.com,other.example.com port=1 user=u dbname=shop "
                              "client_encoding=LATIN1 tcp_user_timeout=9 connect_timeout=7 "
                              "sslmode=disable password=old",
                              NULL);

    (void)state;
    assert_told(conn, "host", "db.example.com");
    assert_told(conn, "hostaddr", "127.0.0.1");
    assert_told(conn, "port", "1");
    assert_told(conn, "user", "u");
    assert_told(conn, "dbname", "shop");
    assert_told(conn, "password", "old");
    assert_told(conn, "sslmode", "disable");
    assert_told(conn, "client_encoding", "UTF8");
    assert_told(conn, "tcp_user_timeout", "1500");
    assert_told(conn, "gssencmode", "disable");
    assert_told(conn, "fallback_application_name", "weir");
    PQfinish(conn);
}

/* Whoever asks for Kerberos gets it, also through the environment. */
static void test_kerberos_is_off_unless_asked_for(void **state)
{
    PGconn *conn = connect_to("host=127.0.0.1 port=1", NULL);

    assert_told(conn, "gssencmode", "disable");
    PQfinish(conn);
    conn = connect_to("host=127.0.0.1 port=1 gssencmode=prefer", NULL);
    assert_told(conn, "gssencmode", "prefer");
    PQfinish(conn);
    set_variable("PGGSSENCMODE", "require");
    conn = connect_to("host=127.0.0.1 port=1", NULL);
    assert_told(conn, "gssencmode", "require");
    PQfinish(conn);
    (void)forget_environment(state);
}

static void test_the_password_file_wins_and_chosen_names_stay(void **state)
{
    PGconn *conn = connect_to("host=127.0.0.1 port=1 password=old application_name=mine", "new");

    (void)state;
    assert_told(conn, "password", "new");
    assert_told(conn, "application_name", "mine");
    PQfinish(conn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_must_be_looked_up_and_a_number_not),
        cmocka_unit_test(test_hostaddr_is_where_and_host_is_who),
        cmocka_unit_test(test_lists_of_hosts_share_one_port_or_have_one_each),
        cmocka_unit_test(test_uris_say_the_same),
        cmocka_unit_test(test_sockets_are_local),
        cmocka_unit_test(test_the_environment_fills_what_was_not_given),
        cmocka_unit_test(test_what_is_no_connection_string_is_refused_without_quoting_it),
        cmocka_unit_test(test_a_service_is_refused),
        cmocka_unit_test(test_lists_that_do_not_match_are_refused),
        cmocka_unit_test(test_more_hosts_than_are_tried_are_refused_not_dropped),
        cmocka_unit_test(test_a_port_is_a_number_of_a_port),
        cmocka_unit_test(test_what_is_too_long_to_be_a_host_is_refused),
        cmocka_unit_test(test_one_address_is_connected_to_and_our_settings_stand_on_top),
        cmocka_unit_test(test_kerberos_is_off_unless_asked_for),
        cmocka_unit_test(test_the_password_file_wins_and_chosen_names_stay),
    };

    return cmocka_run_group_tests(tests, forget_environment, NULL);
}

/* What went wrong, read from libpq's results and connections. A server of a few bytes stands at the
 * other end, on the same thread. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "dep/postgres_internal.h"

enum { PATIENCE_MS = 10000 };

/* ---- the server ---- */

struct server {
    int listener, client; /* -1: not open */
    PGconn *conn;
};

static void wait_for(int fd, short events)
{
    struct pollfd ask = {.fd = fd, .events = events};

    assert_int_equal(poll(&ask, 1, PATIENCE_MS), 1);
}

static in_port_t listen_somewhere(struct server *s)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;

    s->client = -1;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s->listener >= 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

static void dial(struct server *s, in_port_t port)
{
    char conninfo[160];

    (void)snprintf(conninfo, sizeof conninfo,
                   "host=127.0.0.1 port=%u user=u dbname=shop sslmode=disable gssencmode=disable",
                   port);
    s->conn = PQconnectStart(conninfo);
    assert_non_null(s->conn);
    (void)PQsetErrorVerbosity(s->conn, PQERRORS_SQLSTATE);
}

/* Drives the login until it needs the server, or ends. */
static PostgresPollingStatusType poll_login(struct server *s)
{
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;

    while (next == PGRES_POLLING_WRITING) {
        wait_for(PQsocket(s->conn), POLLOUT);
        next = PQconnectPoll(s->conn);
    }
    return next;
}

static void swallow(struct server *s)
{
    char bytes[4096];

    wait_for(s->client, POLLIN);
    assert_true(recv(s->client, bytes, sizeof bytes, 0) > 0);
}

static void say(struct server *s, const void *bytes, size_t size)
{
    assert_int_equal(send(s->client, bytes, size, MSG_NOSIGNAL), size);
}

/* One message: its type and its body. */
static void say_message(struct server *s, char type, const char *body, size_t size)
{
    uint32_t length = htonl((uint32_t)size + 4);

    say(s, &type, 1);
    say(s, &length, 4);
    say(s, body, size);
}

/* The client's first words are heard. */
static void accept_login(struct server *s)
{
    dial(s, listen_somewhere(s));
    assert_int_equal(poll_login(s), PGRES_POLLING_READING);
    s->client = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(s->client >= 0);
    swallow(s);
}

static void finish_login(struct server *s)
{
    PostgresPollingStatusType next;

    do {
        wait_for(PQsocket(s->conn), POLLIN);
        next = PQconnectPoll(s->conn);
    } while (next == PGRES_POLLING_READING);
}

static void log_in(struct server *s)
{
    accept_login(s);
    say_message(s, 'R', "\0\0\0\0", 4);
    say_message(s, 'Z', "I", 1);
    finish_login(s);
    assert_int_equal(PQstatus(s->conn), CONNECTION_OK);
}

static void hang_up(struct server *s)
{
    if (s->client >= 0)
        (void)close(s->client);
    s->client = -1;
}

static void server_fini(struct server *s)
{
    PQfinish(s->conn);
    hang_up(s);
    (void)close(s->listener);
}

/* ---- results ---- */

/* A statement that fails with these fields ("C28P01" is the field C, ...; NULL ends them). */
static void fail_statement(const char *const *fields, struct failure *out)
{
    struct server s;
    char body[1024];
    size_t size = 0;
    PGresult *result;

    log_in(&s);
    assert_int_equal(PQsendQuery(s.conn, "SELECT 1"), 1);
    swallow(&s);
    for (; *fields != NULL; fields++) {
        memcpy(body + size, *fields, strlen(*fields) + 1);
        size += strlen(*fields) + 1;
    }
    body[size++] = '\0';
    say_message(&s, 'E', body, size);
    say_message(&s, 'Z', "I", 1);
    result = PQgetResult(s.conn);
    assert_int_equal(PQresultStatus(result), PGRES_FATAL_ERROR);
    memset(out, 0xa5, sizeof *out);
    failure_from_result(out, result);
    PQclear(result);
    server_fini(&s);
}

#define FIELDS(...) ((const char *const[]){"SERROR", "VERROR", __VA_ARGS__, NULL})

static void test_a_result_without_sqlstate_is_a_lost_connection(void **state)
{
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
    struct failure failure;

    (void)state;
    memset(&failure, 0xa5, sizeof failure);
    failure_from_result(&failure, result);
    assert_int_equal(failure.reason, REASON_CONNECTION_LOST);
    assert_int_equal(failure.evidence, EVIDENCE_BAD_CONNECTION);
    assert_string_equal(failure.sqlstate, "");
    assert_string_equal(failure.constraint, "");
    assert_int_equal(failure.position, 0);
    assert_true(failure.detail[0] != '\0');
    PQclear(result);
}

static void test_a_raised_message_is_for_the_caller(void **state)
{
    struct failure failure;

    (void)state;
    fail_statement(FIELDS("CP0001", "Monly three left"), &failure);
    assert_int_equal(failure.reason, REASON_RAISED);
    assert_int_equal(failure.evidence, EVIDENCE_NONE);
    assert_string_equal(failure.detail, "only three left");
}

static void test_a_raised_message_that_is_too_long_is_cut(void **state)
{
    char message[401] = "M";
    struct failure failure;

    (void)state;
    memset(message + 1, 'x', sizeof message - 2);
    fail_statement(FIELDS("CP0001", message), &failure);
    assert_int_equal(strlen(failure.detail), sizeof failure.detail - 1);
}

/* The server's words hold the value; only its code is passed on. */
static void test_a_value_in_the_servers_words_is_not_passed_on(void **state)
{
    struct failure failure;

    (void)state;
    fail_statement(FIELDS("C22P02", "Minvalid input syntax: \"hunter2\"", "Dhunter2", "Hhunter2",
                          "Whunter2", "qhunter2"),
                   &failure);
    assert_int_equal(failure.reason, REASON_BAD_PARAMETER);
    assert_string_equal(failure.sqlstate, "22P02");
    assert_non_null(strstr(failure.detail, "22P02"));
    assert_null(strstr(failure.detail, "hunter2"));
    assert_null(strstr(failure.log_text, "hunter2"));
}

static void test_a_violated_constraint_is_named(void **state)
{
    struct failure failure;

    (void)state;
    fail_statement(FIELDS("C23505", "Mduplicate key", "D(id)=(hunter2)", "nbooks_pkey"), &failure);
    assert_int_equal(failure.reason, REASON_CONFLICT);
    assert_string_equal(failure.constraint, "books_pkey");
    assert_non_null(strstr(failure.detail, "\"books_pkey\""));
    assert_null(strstr(failure.detail, "hunter2"));
}

static void test_a_position_is_kept_and_nonsense_is_none(void **state)
{
    struct failure failure;

    (void)state;
    fail_statement(FIELDS("C42703", "Mno such column", "P17"), &failure);
    assert_int_equal(failure.reason, REASON_QUERY_INVALID);
    assert_int_equal(failure.position, 17);
    assert_string_equal(failure.detail, "");
    fail_statement(FIELDS("C42703", "Mno such column", "P99999999999999999999"), &failure);
    assert_int_equal(failure.position, 0);
    fail_statement(FIELDS("C42703", "Mno such column", "P-3"), &failure);
    assert_int_equal(failure.position, 0);
    fail_statement(FIELDS("C42703", "Mno such column", "Pten"), &failure);
    assert_int_equal(failure.position, 0);
}

/* ---- connections ---- */

/* A login that the server ends with these bytes. */
static void fail_login(const char *body, size_t size, struct failure *out)
{
    struct server s;

    accept_login(&s);
    if (size > 0)
        say_message(&s, 'E', body, size);
    hang_up(&s);
    finish_login(&s);
    assert_int_equal(PQstatus(s.conn), CONNECTION_BAD);
    memset(out, 0xa5, sizeof *out);
    failure_from_connection(out, s.conn, false);
    server_fini(&s);
}

#define LOGIN_ERROR(code) "SFATAL\0VFATAL\0C" code "\0Msecret words\0"

static void test_a_refused_login_is_known_by_its_code(void **state)
{
    struct failure failure;

    (void)state;
    fail_login(LOGIN_ERROR("28P01"), sizeof LOGIN_ERROR("28P01"), &failure);
    assert_string_equal(failure.sqlstate, "28P01");
    assert_int_equal(failure.reason, REASON_CONNECT_FAILED);
    assert_true(failure.blames_only_without_connection);
    assert_null(strstr(failure.log_text, "secret"));
    assert_null(strchr(failure.log_text, '\n'));
    assert_non_null(strstr(failure.log_text, "127.0.0.1"));

    fail_login(LOGIN_ERROR("53300"), sizeof LOGIN_ERROR("53300"), &failure);
    assert_string_equal(failure.sqlstate, "53300");
    assert_int_equal(failure.reason, REASON_DATABASE_UNAVAILABLE);
}

static void test_a_login_that_breaks_off_has_no_code(void **state)
{
    struct failure failure;

    (void)state;
    fail_login("", 0, &failure);
    assert_string_equal(failure.sqlstate, "");
    assert_int_equal(failure.reason, REASON_CONNECT_FAILED);
    assert_int_equal(failure.evidence, EVIDENCE_BAD_CONNECTION);
    assert_false(failure.blames_only_without_connection);
}

static void test_nobody_listening_has_no_code(void **state)
{
    struct server s;
    struct failure failure;
    in_port_t port = listen_somewhere(&s);

    (void)state;
    (void)close(s.listener);
    dial(&s, port);
    assert_int_equal(poll_login(&s), PGRES_POLLING_FAILED);
    failure_from_connection(&failure, s.conn, false);
    assert_string_equal(failure.sqlstate, "");
    assert_int_equal(failure.reason, REASON_CONNECT_FAILED);
    assert_non_null(strstr(failure.log_text, "127.0.0.1"));
    PQfinish(s.conn);
}

static void test_a_session_that_breaks_is_a_lost_connection(void **state)
{
    struct server s;
    struct failure failure;

    (void)state;
    log_in(&s);
    hang_up(&s);
    assert_int_equal(PQsendQuery(s.conn, "SELECT 1"), 1);
    PQclear(PQgetResult(s.conn));
    assert_int_equal(PQstatus(s.conn), CONNECTION_BAD);
    failure_from_connection(&failure, s.conn, true);
    assert_int_equal(failure.reason, REASON_CONNECTION_LOST);
    assert_int_equal(failure.evidence, EVIDENCE_BAD_CONNECTION);
    assert_null(strchr(failure.log_text, '\n'));
    server_fini(&s);
}

static void test_no_connection_at_all_is_no_crash(void **state)
{
    struct failure failure;

    (void)state;
    failure_from_connection(&failure, NULL, false);
    assert_int_equal(failure.reason, REASON_CONNECT_FAILED);
    assert_string_equal(failure.log_text, "out of memory");
}

static void test_words_of_our_own_fit_their_place(void **state)
{
    char words[500];
    struct failure failure;

    (void)state;
    memset(words, 'x', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    memset(&failure, 0xa5, sizeof failure);
    failure_set(&failure, REASON_INTERNAL, EVIDENCE_NONE, "%s", words);
    assert_int_equal(failure.reason, REASON_INTERNAL);
    assert_int_equal(failure.again, AGAIN_NO);
    assert_string_equal(failure.sqlstate, "");
    assert_int_equal(strlen(failure.detail), sizeof failure.detail - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_result_without_sqlstate_is_a_lost_connection),
        cmocka_unit_test(test_a_raised_message_is_for_the_caller),
        cmocka_unit_test(test_a_raised_message_that_is_too_long_is_cut),
        cmocka_unit_test(test_a_value_in_the_servers_words_is_not_passed_on),
        cmocka_unit_test(test_a_violated_constraint_is_named),
        cmocka_unit_test(test_a_position_is_kept_and_nonsense_is_none),
        cmocka_unit_test(test_a_refused_login_is_known_by_its_code),
        cmocka_unit_test(test_a_login_that_breaks_off_has_no_code),
        cmocka_unit_test(test_nobody_listening_has_no_code),
        cmocka_unit_test(test_a_session_that_breaks_is_a_lost_connection),
        cmocka_unit_test(test_no_connection_at_all_is_no_crash),
        cmocka_unit_test(test_words_of_our_own_fit_their_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

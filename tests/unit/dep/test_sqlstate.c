/* The table of answers by SQLSTATE, row for row.
 * SPDX-License-Identifier: MIT */
#include "cmocka_all.h"
#include "dep/sqlstate.h"

struct expected {
    const char *code;
    enum reason reason;
    enum evidence evidence;
    bool blames_only_without_connection;
    enum again again;
};

#define COUNT_OF(rows) (sizeof(rows) / sizeof(rows)[0])

typedef struct sqlstate_meaning meaning_fn(const char *sqlstate);

static void check(meaning_fn *meaning_of, const struct expected *rows, size_t row_count)
{
    for (size_t i = 0; i < row_count; i++) {
        const struct expected *row = &rows[i];
        struct sqlstate_meaning got = meaning_of(row->code);

        if (got.reason != row->reason || got.evidence != row->evidence ||
            got.blames_only_without_connection != row->blames_only_without_connection ||
            got.again != row->again)
            fail_msg("%s: %s, evidence %d, only without connection %d, again %d",
                     row->code == NULL ? "(null)" : row->code, reason_word(got.reason),
                     (int)got.evidence, got.blames_only_without_connection, (int)got.again);
    }
}

/* clang-format off */
static void test_lost_connections_are_connection_class_and_reads_may_go_again(void **state)
{
    static const struct expected rows[] = {
        {NULL,    REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"",      REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"08000", REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"08001", REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"08003", REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"08006", REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"08P01", REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_an_unavailable_server_is_connection_class_and_rolled_back(void **state)
{
    static const struct expected rows[] = {
        {"57P01", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"57P02", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"57P03", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"57P04", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"57P05", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"53000", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"53100", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"53200", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"53400", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"58000", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"58030", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"58P01", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"XX001", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"XX002", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_no_more_connections_and_refused_logins_blame_only_without_connection(void **state)
{
    static const struct expected rows[] = {
        {"53300", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, true, AGAIN_ROLLED_BACK},
        {"28000", REASON_CONNECT_FAILED,       EVIDENCE_BAD_CONNECTION, true, AGAIN_NO},
        {"28P01", REASON_CONNECT_FAILED,       EVIDENCE_BAD_CONNECTION, true, AGAIN_NO},
        {"3D000", REASON_CONNECT_FAILED,       EVIDENCE_BAD_CONNECTION, true, AGAIN_NO},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
    check(sqlstate_meaning_of_connect, rows, COUNT_OF(rows));
}

static void test_a_late_statement_blames_and_is_not_repeated(void **state)
{
    static const struct expected rows[] = {
        {"57014", REASON_DEADLINE, EVIDENCE_BAD, false, AGAIN_NO},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_conflicts_blame_nobody_and_may_go_again(void **state)
{
    static const struct expected rows[] = {
        {"40001", REASON_CONFLICT_RETRY, EVIDENCE_NONE, false, AGAIN_ROLLED_BACK},
        {"40P01", REASON_CONFLICT_RETRY, EVIDENCE_NONE, false, AGAIN_ROLLED_BACK},
        {"55P03", REASON_CONFLICT_RETRY, EVIDENCE_NONE, false, AGAIN_ROLLED_BACK},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_a_read_only_server_is_the_wrong_node(void **state)
{
    static const struct expected rows[] = {
        {"25006", REASON_WRONG_NODE, EVIDENCE_BAD, false, AGAIN_OTHER_NODE},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_stale_statements_are_prepared_again(void **state)
{
    static const struct expected rows[] = {
        {"0A000", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_PREPARE},
        {"26000", REASON_QUERY_INVALID,  EVIDENCE_NONE, false, AGAIN_PREPARE},
        {"42P05", REASON_QUERY_INVALID,  EVIDENCE_NONE, false, AGAIN_PREPARE},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_what_the_caller_sent_is_the_callers(void **state)
{
    static const struct expected rows[] = {
        {"P0001", REASON_RAISED,        EVIDENCE_NONE, false, AGAIN_NO},
        {"22000", REASON_BAD_PARAMETER, EVIDENCE_NONE, false, AGAIN_NO},
        {"22003", REASON_BAD_PARAMETER, EVIDENCE_NONE, false, AGAIN_NO},
        {"22P02", REASON_BAD_PARAMETER, EVIDENCE_NONE, false, AGAIN_NO},
        {"23505", REASON_CONFLICT,      EVIDENCE_NONE, false, AGAIN_NO},
        {"23503", REASON_CONFLICT,      EVIDENCE_NONE, false, AGAIN_NO},
        {"23P01", REASON_CONFLICT,      EVIDENCE_NONE, false, AGAIN_NO},
        {"23502", REASON_CONSTRAINT,    EVIDENCE_NONE, false, AGAIN_NO},
        {"23514", REASON_CONSTRAINT,    EVIDENCE_NONE, false, AGAIN_NO},
        {"42501", REASON_FORBIDDEN,     EVIDENCE_NONE, false, AGAIN_NO},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_a_wrong_statement_is_the_routes(void **state)
{
    static const struct expected rows[] = {
        {"42000", REASON_QUERY_INVALID, EVIDENCE_NONE, false, AGAIN_NO},
        {"42601", REASON_QUERY_INVALID, EVIDENCE_NONE, false, AGAIN_NO},
        {"42P01", REASON_QUERY_INVALID, EVIDENCE_NONE, false, AGAIN_NO},
        {"42703", REASON_QUERY_INVALID, EVIDENCE_NONE, false, AGAIN_NO},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_everything_else_is_a_database_error(void **state)
{
    static const struct expected rows[] = {
        {"0A001", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"23000", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"23001", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"25P02", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"3F000", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"40002", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"54001", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"55006", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"57000", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"57P06", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"P0000", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"P0002", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"XX000", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"APP01", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_codes_that_are_cut_short_are_a_database_error(void **state)
{
    static const struct expected rows[] = {
        {"2",    REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
        {"57P0", REASON_DATABASE_ERROR, EVIDENCE_NONE, false, AGAIN_NO},
    };

    (void)state;
    check(sqlstate_meaning_of, rows, COUNT_OF(rows));
}

static void test_while_connecting_no_code_means_not_reached(void **state)
{
    static const struct expected rows[] = {
        {NULL,    REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"",      REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"08006", REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"08P01", REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
        {"57014", REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, false, AGAIN_READS},
    };

    (void)state;
    check(sqlstate_meaning_of_connect, rows, COUNT_OF(rows));
}

static void test_while_connecting_an_unavailable_server_says_so(void **state)
{
    static const struct expected rows[] = {
        {"57P01", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"57P03", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"53200", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"58030", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
        {"XX001", REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK},
    };

    (void)state;
    check(sqlstate_meaning_of_connect, rows, COUNT_OF(rows));
}

static void test_while_connecting_any_other_code_is_a_refused_login(void **state)
{
    static const struct expected rows[] = {
        {"42501", REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, true, AGAIN_NO},
        {"42704", REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, true, AGAIN_NO},
        {"22023", REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, true, AGAIN_NO},
        {"0A000", REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, true, AGAIN_NO},
        {"55000", REASON_CONNECT_FAILED, EVIDENCE_BAD_CONNECTION, true, AGAIN_NO},
    };

    (void)state;
    check(sqlstate_meaning_of_connect, rows, COUNT_OF(rows));
}
/* clang-format on */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_connections_are_connection_class_and_reads_may_go_again),
        cmocka_unit_test(test_an_unavailable_server_is_connection_class_and_rolled_back),
        cmocka_unit_test(test_no_more_connections_and_refused_logins_blame_only_without_connection),
        cmocka_unit_test(test_a_late_statement_blames_and_is_not_repeated),
        cmocka_unit_test(test_conflicts_blame_nobody_and_may_go_again),
        cmocka_unit_test(test_a_read_only_server_is_the_wrong_node),
        cmocka_unit_test(test_stale_statements_are_prepared_again),
        cmocka_unit_test(test_what_the_caller_sent_is_the_callers),
        cmocka_unit_test(test_a_wrong_statement_is_the_routes),
        cmocka_unit_test(test_everything_else_is_a_database_error),
        cmocka_unit_test(test_codes_that_are_cut_short_are_a_database_error),
        cmocka_unit_test(test_while_connecting_no_code_means_not_reached),
        cmocka_unit_test(test_while_connecting_an_unavailable_server_says_so),
        cmocka_unit_test(test_while_connecting_any_other_code_is_a_refused_login),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

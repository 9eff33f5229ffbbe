/* SPDX-License-Identifier: MIT */
#include "dep/sqlstate.h"

#include <stddef.h>
#include <string.h>

struct row {
    const char *code; /* five characters, or the two of a class */
    struct sqlstate_meaning meaning;
};

/* The first match wins, so whole codes stand above the classes. The third column is
 * blames_only_without_connection. */
/* clang-format off */
static const struct row table[] = {
    /* the statement is late: statement_timeout */
    {"57014", {REASON_DEADLINE,             EVIDENCE_BAD,            false, AGAIN_NO}},

    /* the server goes, comes, or lacks something */
    {"57P01", {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},
    {"57P02", {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},
    {"57P03", {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},
    {"57P04", {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},
    {"57P05", {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},
    {"53300", {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, true,  AGAIN_ROLLED_BACK}},
    {"XX001", {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},
    {"XX002", {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},

    /* no such database; the password and the role are class 28 */
    {"3D000", {REASON_CONNECT_FAILED,       EVIDENCE_BAD_CONNECTION, true,  AGAIN_NO}},

    /* serialization failure, deadlock, lock not available */
    {"40001", {REASON_CONFLICT_RETRY,       EVIDENCE_NONE,           false, AGAIN_ROLLED_BACK}},
    {"40P01", {REASON_CONFLICT_RETRY,       EVIDENCE_NONE,           false, AGAIN_ROLLED_BACK}},
    {"55P03", {REASON_CONFLICT_RETRY,       EVIDENCE_NONE,           false, AGAIN_ROLLED_BACK}},

    /* read-only: this was the primary once */
    {"25006", {REASON_WRONG_NODE,           EVIDENCE_BAD,            false, AGAIN_OTHER_NODE}},

    /* the prepared statement is stale, gone, or there already */
    {"0A000", {REASON_DATABASE_ERROR,       EVIDENCE_NONE,           false, AGAIN_PREPARE}},
    {"26000", {REASON_QUERY_INVALID,        EVIDENCE_NONE,           false, AGAIN_PREPARE}},
    {"42P05", {REASON_QUERY_INVALID,        EVIDENCE_NONE,           false, AGAIN_PREPARE}},

    /* what the caller sent does not fit the data */
    {"P0001", {REASON_RAISED,               EVIDENCE_NONE,           false, AGAIN_NO}},
    {"23503", {REASON_CONFLICT,             EVIDENCE_NONE,           false, AGAIN_NO}},
    {"23505", {REASON_CONFLICT,             EVIDENCE_NONE,           false, AGAIN_NO}},
    {"23P01", {REASON_CONFLICT,             EVIDENCE_NONE,           false, AGAIN_NO}},
    {"23502", {REASON_CONSTRAINT,           EVIDENCE_NONE,           false, AGAIN_NO}},
    {"23514", {REASON_CONSTRAINT,           EVIDENCE_NONE,           false, AGAIN_NO}},
    {"42501", {REASON_FORBIDDEN,            EVIDENCE_NONE,           false, AGAIN_NO}},

    /* classes */
    {"08",    {REASON_CONNECTION_LOST,      EVIDENCE_BAD_CONNECTION, false, AGAIN_READS}},
    {"22",    {REASON_BAD_PARAMETER,        EVIDENCE_NONE,           false, AGAIN_NO}},
    {"28",    {REASON_CONNECT_FAILED,       EVIDENCE_BAD_CONNECTION, true,  AGAIN_NO}},
    {"42",    {REASON_QUERY_INVALID,        EVIDENCE_NONE,           false, AGAIN_NO}},
    {"53",    {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},
    {"58",    {REASON_DATABASE_UNAVAILABLE, EVIDENCE_BAD_CONNECTION, false, AGAIN_ROLLED_BACK}},

    /* everything else */
    {"",      {REASON_DATABASE_ERROR,       EVIDENCE_NONE,           false, AGAIN_NO}},
};

static const struct sqlstate_meaning lost =
              {REASON_CONNECTION_LOST,      EVIDENCE_BAD_CONNECTION, false, AGAIN_READS};
static const struct sqlstate_meaning not_reached =
              {REASON_CONNECT_FAILED,       EVIDENCE_BAD_CONNECTION, false, AGAIN_READS};
static const struct sqlstate_meaning login_refused =
              {REASON_CONNECT_FAILED,       EVIDENCE_BAD_CONNECTION, true,  AGAIN_NO};
/* clang-format on */

static bool is_absent(const char *sqlstate)
{
    return sqlstate == NULL || sqlstate[0] == '\0';
}

struct sqlstate_meaning sqlstate_meaning_of(const char *sqlstate)
{
    const struct row *row = table;

    if (is_absent(sqlstate))
        return lost;
    while (strncmp(row->code, sqlstate, strlen(row->code)) != 0)
        row++; /* the last row matches all */
    return row->meaning;
}

struct sqlstate_meaning sqlstate_meaning_of_connect(const char *sqlstate)
{
    if (is_absent(sqlstate))
        return not_reached;

    struct sqlstate_meaning meaning = sqlstate_meaning_of(sqlstate);
    if (meaning.reason == REASON_DATABASE_UNAVAILABLE || meaning.reason == REASON_CONNECT_FAILED)
        return meaning;
    if (meaning.reason == REASON_CONNECTION_LOST || meaning.reason == REASON_DEADLINE)
        return not_reached; /* it went away, or was too slow, in the middle of the login */
    return login_refused;
}

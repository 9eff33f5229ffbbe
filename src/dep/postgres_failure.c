#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dep/postgres_internal.h"

void failure_set(struct failure *out, enum reason reason, enum evidence evidence, const char *fmt,
                 ...)
{
    va_list args;

    *out = (struct failure){.reason = reason, .evidence = evidence};
    va_start(args, fmt);
    (void)vsnprintf(out->detail, sizeof out->detail, fmt, args);
    va_end(args);
}

static void take_meaning(struct failure *out, struct sqlstate_meaning meaning)
{
    out->reason = meaning.reason;
    out->evidence = meaning.evidence;
    out->again = meaning.again;
    out->blames_only_without_connection = meaning.blames_only_without_connection;
}

static void copy_field(char *out, size_t size, const PGresult *result, int field)
{
    const char *text = PQresultErrorField(result, field);

    (void)snprintf(out, size, "%s", text != NULL ? text : "");
}

/* What a caller may read. The server's own words are passed on only when a statement raised them
 * for the caller (P0001); they may hold values otherwise. */
static void describe(struct failure *out, const PGresult *result)
{
    const char *raised = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    if (out->reason == REASON_RAISED && raised != NULL)
        (void)snprintf(out->detail, sizeof out->detail, "%s", raised);
    else if (out->reason == REASON_BAD_PARAMETER)
        (void)snprintf(out->detail, sizeof out->detail,
                       "the database does not accept the value of a parameter (SQLSTATE %s)",
                       out->sqlstate);
    else if (out->constraint[0] != '\0')
        (void)snprintf(out->detail, sizeof out->detail, "constraint \"%s\" is violated",
                       out->constraint);
}

int failure_position(const PGresult *result)
{
    const char *text = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
    long position = text != NULL ? strtol(text, NULL, 10) : 0;

    return position > 0 && position < INT_MAX ? (int)position : 0;
}

void failure_from_result(struct failure *out, const PGresult *result)
{
    *out = (struct failure){0};
    copy_field(out->sqlstate, sizeof out->sqlstate, result, PG_DIAG_SQLSTATE);
    if (out->sqlstate[0] == '\0') {
        failure_set(out, REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION,
                    "the connection to the database was lost");
        return;
    }
    take_meaning(out, sqlstate_meaning_of(out->sqlstate));
    copy_field(out->constraint, sizeof out->constraint, result, PG_DIAG_CONSTRAINT_NAME);
    out->position = failure_position(result);
    describe(out, result);
}

/* Connect errors have no PGresult. With PQERRORS_SQLSTATE the code is the last word of the last
 * line. */
static void sqlstate_of_message(const char *message, char out[6])
{
    size_t end = strlen(message);

    while (end > 0 && isspace((unsigned char)message[end - 1]))
        end--;
    out[0] = '\0';
    if (end < 6 || message[end - 6] != ' ')
        return;
    for (size_t i = end - 5; i < end; i++)
        if (!isdigit((unsigned char)message[i]) && !isupper((unsigned char)message[i]))
            return;
    memcpy(out, message + end - 5, 5);
    out[5] = '\0';
}

static void first_line(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text);
    out[strcspn(out, "\n")] = '\0';
}

void failure_from_connection(struct failure *out, PGconn *conn, bool was_logged_in)
{
    const char *message = conn != NULL ? PQerrorMessage(conn) : "out of memory";

    *out = (struct failure){0};
    if (was_logged_in) {
        failure_set(out, REASON_CONNECTION_LOST, EVIDENCE_BAD_CONNECTION,
                    "the connection to the database was lost");
    } else {
        sqlstate_of_message(message, out->sqlstate);
        take_meaning(out, sqlstate_meaning_of_connect(out->sqlstate));
    }
    first_line(out->log_text, sizeof out->log_text, message);
}

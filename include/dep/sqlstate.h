/* sqlstate.h - what each SQLSTATE means to a caller, to the breaker and to a retry: one table.
 * SPDX-License-Identifier: MIT
 *
 * Decided by the code alone (PostgreSQL manual, appendix A), never by message text, so that it is
 * the same in every language. The most specific row wins: a whole code before its class.
 *
 * What a row says of 57014 and 25006 holds for our own time limit and for a session opened
 * read-write; the caller, who knows, speaks for itself after its own cancel or in a read-only
 * session.
 *
 * Threads  pure. */
#ifndef DEP_SQLSTATE_H
#define DEP_SQLSTATE_H
#include <stdbool.h>

#include "base/reason.h"
#include "guard/breaker.h"

/* Whether another attempt may help (used by retries; the columns of the contract's table). */
enum again {
    AGAIN_NO,
    AGAIN_READS,       /* reads and idempotent writes; any when nothing was sent */
    AGAIN_ROLLED_BACK, /* any method: nothing of it remains (but CALL and DO) */
    AGAIN_PREPARE,     /* unseen by the caller: prepare again, once */
    AGAIN_OTHER_NODE,  /* drop the read-write sessions, once */
};

struct sqlstate_meaning {
    enum reason reason;
    enum evidence evidence;
    bool blames_only_without_connection; /* evidence counts only while no connection is open */
    enum again again;
};

/* `sqlstate`: five characters and NUL. NULL or empty: the words are libpq's own, for a connection
 * that was lost under the statement. */
struct sqlstate_meaning sqlstate_meaning_of(const char *sqlstate);

/* The same for an error while connecting or logging in (NULL or empty: the server was not reached).
 * Codes that say nothing about the server's health are refused logins there, as 28* is. */
struct sqlstate_meaning sqlstate_meaning_of_connect(const char *sqlstate);
#endif

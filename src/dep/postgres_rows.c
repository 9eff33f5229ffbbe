#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dep/call.h"
#include "dep/postgres_internal.h"
#include "query/route.h"

enum { FRAME_BYTES = 64 }; /* brackets and the like are not the statement's data */

/* A buffer looks only at its memory when it appends: more of it than this route may use, kept from
 * another, would let a result pass that is over its cap. */
void rows_begin(struct postgres_session *s)
{
    size_t limit_bytes = s->route->max_bytes;

    s->row_count = s->affected_count = 0;
    if (s->rows.capacity_bytes > limit_bytes) {
        buffer_fini(&s->rows);
        buffer_init_mapped(&s->rows, limit_bytes);
    }
    s->rows.limit_bytes = limit_bytes;
    buffer_clear(&s->rows);
}

static bool is_single(const struct route *route)
{
    return route->result == RESULT_ONE || route->result == RESULT_VALUE;
}

static void write_row(struct postgres_session *s, const PGresult *result, int row)
{
    const struct row_shape *shape = s->statements[s->route->id].shape;

    if (s->route->result == RESULT_VALUE) {
        row_write_cell(&s->rows, shape, result, row, 0);
        return;
    }
    if (s->route->result == RESULT_MANY)
        buffer_append_char(&s->rows, s->row_count == 1 ? '[' : ',');
    row_write(&s->rows, shape, result, row);
}

static bool refuse(struct failure *out, enum reason reason, const char *what)
{
    failure_set(out, reason, EVIDENCE_GOOD, "%s", what);
    return false;
}

static bool take_row(struct postgres_session *s, const PGresult *result, int row,
                     struct failure *out)
{
    s->row_count++;
    if (s->route->result == RESULT_EXEC)
        return true;
    if (is_single(s->route) && s->row_count > 1)
        return refuse(out, REASON_MORE_THAN_ONE_ROW, "the statement gave more than one row");
    if (s->route->result == RESULT_VALUE && PQnfields(result) != 1)
        return refuse(out, REASON_MORE_THAN_ONE_ROW, "the statement gave more than one column");
    if (s->row_count > s->route->max_rows)
        return refuse(out, REASON_RESULT_TOO_LARGE, "the result has more rows than max_rows");
    write_row(s, result, row);
    if (s->rows.failed)
        return refuse(out, REASON_RESULT_TOO_LARGE, "the result is larger than max_bytes");
    return true;
}

bool rows_take(struct postgres_session *s, PGresult *result, struct failure *out)
{
    int count = PQntuples(result);
    const char *affected = PQcmdTuples(result);

    /* With rows in chunks (libpq 17) the last chunk has the count, and the result after it none. */
    if (affected[0] != '\0')
        s->affected_count = strtoull(affected, NULL, 10);
    for (int row = 0; row < count; row++)
        if (!take_row(s, result, row, out))
            return false;
    return true;
}

static void write_frame(struct postgres_session *s)
{
    s->rows.limit_bytes += FRAME_BYTES;
    switch (s->route->result) {
    case RESULT_MANY:
        buffer_append_text(&s->rows, s->row_count == 0 ? "[]" : "]");
        break;
    case RESULT_EXEC:
        buffer_append_format(&s->rows, "{\"rows\":%" PRIu64 "}", s->affected_count);
        break;
    case RESULT_ONE:
    case RESULT_VALUE:
    case RESULT_KIND_COUNT:
        break;
    }
}

static void give_body(struct postgres_session *s, struct outcome *out)
{
    if (s->rows.size_bytes > sizeof out->small_body) {
        out->body = buffer_take(&s->rows);
        return;
    }
    if (s->rows.size_bytes > 0)
        memcpy(out->small_body, s->rows.data, s->rows.size_bytes);
    out->small_bytes = s->rows.size_bytes;
    buffer_clear(&s->rows);
}

bool rows_finish(struct postgres_session *s, struct outcome *out, struct failure *failure)
{
    if (s->row_count == 0 && is_single(s->route))
        return refuse(failure, REASON_NO_ROW, "no row matches");
    write_frame(s);
    if (s->rows.failed) {
        failure_set(failure, REASON_INTERNAL, EVIDENCE_NONE, "out of memory");
        return false;
    }
    give_body(s, out);
    return true;
}

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "dep/dependency.h"
#include "dep/postgres_internal.h"
#include "query/route.h"
#include "query/wrap.h"

/* What a type that is not built in is made of: through domains to their base, through arrays to
 * their element. The last row is the innermost type; arrays: how many were gone through (one inside
 * another is possible with a domain between them); has_cast: to_json() would use a cast to json. */
static const char column_lookup_sql[] =
    "WITH RECURSIVE t AS (SELECT y.oid, y.typtype, y.typelem, y.typbasetype, y.typdelim,"
    " y.typcategory, y.typlen, 0 AS arrays, ','::\"char\" AS delimiter, 0 AS depth"
    " FROM pg_catalog.pg_type y WHERE y.oid = $1::pg_catalog.oid"
    " UNION ALL SELECT n.oid, n.typtype, n.typelem, n.typbasetype, n.typdelim, n.typcategory,"
    " n.typlen, t.arrays + (t.typtype <> 'd')::int4, CASE WHEN t.typtype <> 'd' THEN t.typdelim"
    " ELSE t.delimiter END, t.depth + 1 FROM t JOIN pg_catalog.pg_type n ON n.oid = CASE"
    " WHEN t.typtype = 'd' THEN t.typbasetype WHEN t.typcategory = 'A' AND t.typlen = -1 AND"
    " t.typelem <> 0 THEN t.typelem END)"
    " SELECT t.oid, t.typtype, t.arrays, t.delimiter, EXISTS (SELECT FROM pg_catalog.pg_cast c"
    " WHERE c.castsource = t.oid AND c.casttarget = 'pg_catalog.json'::pg_catalog.regtype"
    " AND c.castmethod = 'f') FROM t ORDER BY t.depth DESC LIMIT 1";

enum { OID_JSON = 114 };

const char statement_param_lookup_sql[] = "SELECT pg_catalog.to_regtype($1)::pg_catalog.oid";

void statement_fini(struct statement *st)
{
    free(st->types);
    free(st->type_oids);
    PQclear(st->described);
    row_shape_destroy(st->shape);
    *st = (struct statement){.version = st->version};
}

void statement_name(const struct route *route, const struct statement *st, char out[48])
{
    /* Two routes may have the same statement, so its own name alone would be taken. */
    (void)snprintf(out, 48, "%.24s_%" PRIu32 "_%" PRIu32, route->statement_name,
                   (uint32_t)route->id, st->version);
}

/* ---- types known to the dependency ---- */

static const struct known_type *known_by_name(const struct postgres *p, const char *name)
{
    for (size_t i = 0; i < p->known_type_count; i++)
        if (strcmp(p->known_types[i].name, name) == 0)
            return &p->known_types[i];
    return NULL;
}

static const struct known_type *known_column(const struct postgres *p, uint32_t oid)
{
    for (size_t i = 0; i < p->known_type_count; i++)
        if (p->known_types[i].is_column && p->known_types[i].oid == oid)
            return &p->known_types[i];
    return NULL;
}

static void remember(struct postgres *p, const struct known_type *type)
{
    struct known_type *all =
        realloc(p->known_types, (p->known_type_count + 1) * sizeof *p->known_types);

    ENSURE(all != NULL);
    all[p->known_type_count++] = *type;
    p->known_types = all;
}

void statement_forget_types(struct postgres *p)
{
    free(p->known_types);
    p->known_types = NULL;
    p->known_type_count = 0;
}

static uint32_t param_oid(const struct postgres *p, const struct param_type *type)
{
    const struct known_type *known;
    char name[PARAM_TYPE_NAME_BYTES];

    if (type->oid != 0)
        return type->oid;
    param_type_name(type, name);
    known = known_by_name(p, name);
    return known != NULL ? known->oid : 0;
}

int statement_unknown_param(const struct postgres *p, const struct route *route)
{
    for (size_t i = 0; i < route->bind_count; i++)
        if (param_oid(p, &route->params[route->bind_params[i]].type) == 0)
            return (int)i;
    return -1;
}

bool statement_send_param_lookup(struct postgres_session *s, const struct route *route, int index)
{
    char name[PARAM_TYPE_NAME_BYTES];
    const char *values[] = {name};

    param_type_name(&route->params[route->bind_params[index]].type, name);
    s->lookup_index = index;
    s->has_lookup_row = false;
    session_push(s, STEP_LOOK_UP);
    return PQsendQueryParams(s->conn, statement_param_lookup_sql, 1, NULL, values, NULL, NULL, 0) !=
           0;
}

bool statement_take_param_lookup(struct postgres_session *s, const struct route *route,
                                 struct failure *out)
{
    const struct param *param = &route->params[route->bind_params[s->lookup_index]];
    struct known_type type = {.oid = (uint32_t)strtoul(s->lookup_text, NULL, 10)};
    char name[PARAM_TYPE_NAME_BYTES];

    param_type_name(&param->type, name);
    if (!s->has_lookup_row || type.oid == 0) {
        failure_set(out, REASON_QUERY_INVALID, EVIDENCE_NONE,
                    "the type of parameter \"%s\" does not exist in the database", param->name);
        return false;
    }
    memcpy(type.name, name, sizeof type.name);
    remember(s->owner, &type);
    return true;
}

/* ---- Parse and Describe ---- */

static bool send_parse(struct postgres_session *s, const struct route *route, const char *name,
                       const char *sql)
{
    Oid *oids = calloc(route->bind_count + 1, sizeof *oids);
    bool is_sent;

    if (oids == NULL)
        return false;
    for (size_t i = 0; i < route->bind_count; i++)
        oids[i] = param_oid(s->owner, &route->params[route->bind_params[i]].type);
    is_sent = PQsendPrepare(s->conn, name, sql, (int)route->bind_count, oids) != 0;
    free(oids);
    return is_sent;
}

/* Under the name of this version. */
static bool send_prepare(struct postgres_session *s, const struct route *route, const char *sql)
{
    char name[48];

    statement_name(route, &s->statements[route->id], name);
    session_push(s, STEP_PREPARE);
    if (!send_parse(s, route, name, sql))
        return false;
    session_push(s, STEP_DESCRIBE);
    return PQsendDescribePrepared(s->conn, name) != 0;
}

bool statement_send_prepare(struct postgres_session *s, const struct route *route)
{
    struct statement *st = &s->statements[route->id];

    statement_fini(st);
    st->version++;
    return send_prepare(s, route, route->sql);
}

/* to_json() writes dates in ISO 8601 whatever DateStyle is, and so their text will do only when it
 * is ISO, too. It is left as the role has it: it also decides how ranges of dates, or dates that
 * the statement itself makes text of, look. */
static struct value_type in_session(const struct postgres_session *s, struct value_type type)
{
    if (!s->has_iso_dates && value_type_is_dated(type))
        type.kind = VALUE_SERVER;
    return type;
}

bool statement_described(struct postgres_session *s, const struct route *route,
                         const PGresult *result)
{
    struct statement *st = &s->statements[route->id];
    size_t count = (size_t)PQnfields(result);

    st->column_count = (int)count;
    st->types = calloc(count + 1, sizeof *st->types);
    st->type_oids = calloc(count + 1, sizeof *st->type_oids);
    if (st->types == NULL || st->type_oids == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        st->type_oids[i] = PQftype(result, (int)i);
        st->types[i] = in_session(s, value_type_of(st->type_oids[i]));
    }
    st->described = PQcopyResult(result, PG_COPYRES_ATTRS);
    return st->described != NULL;
}

bool statement_finish(struct postgres_session *s, const struct route *route)
{
    struct statement *st = &s->statements[route->id];

    st->shape = row_shape_create(st->described, st->types);
    PQclear(st->described);
    st->described = NULL;
    st->is_prepared = st->shape != NULL;
    return st->is_prepared;
}

/* ---- columns ---- */

int statement_unknown_column(struct postgres_session *s, const struct route *route)
{
    struct statement *st = &s->statements[route->id];

    for (int i = 0; i < st->column_count && route->result != RESULT_EXEC; i++) {
        const struct known_type *known;

        if (st->types[i].kind != VALUE_UNKNOWN)
            continue;
        known = known_column(s->owner, st->type_oids[i]);
        if (known == NULL)
            return i;
        st->types[i] = in_session(s, known->type);
    }
    return -1;
}

bool statement_send_column_lookup(struct postgres_session *s, const struct route *route, int index)
{
    char oid[16];
    const char *values[] = {oid};

    (void)snprintf(oid, sizeof oid, "%" PRIu32, s->statements[route->id].type_oids[index]);
    s->lookup_index = index;
    s->has_lookup_row = false;
    session_push(s, STEP_LOOK_UP);
    return PQsendQueryParams(s->conn, column_lookup_sql, 1, NULL, values, NULL, NULL, 0) != 0;
}

/* Of the innermost type: composites and pseudo-types (record, anyarray) do not say in their text
 * what is in them. */
static enum value_kind kind_of(uint32_t oid, char typtype, bool has_cast)
{
    enum value_kind kind = value_type_of(oid).kind;

    if (kind != VALUE_UNKNOWN)
        return kind;
    return typtype == 'c' || typtype == 'p' || has_cast ? VALUE_SERVER : VALUE_TEXT;
}

void statement_take_column_lookup(struct postgres_session *s, const struct route *route,
                                  const PGresult *row)
{
    const struct statement *st = &s->statements[route->id];
    struct known_type type = {.oid = st->type_oids[s->lookup_index], .is_column = true};
    uint32_t innermost = (uint32_t)strtoul(PQgetvalue(row, 0, 0), NULL, 10);
    long arrays = strtol(PQgetvalue(row, 0, 2), NULL, 10);

    type.type.kind = kind_of(innermost, PQgetvalue(row, 0, 1)[0], PQgetvalue(row, 0, 4)[0] == 't');
    if (arrays > 1)
        type.type.kind = VALUE_SERVER;
    type.type.is_array = arrays == 1;
    type.type.delimiter = PQgetvalue(row, 0, 3)[0];
    remember(s->owner, &type);
}

/* ---- columns that only the server can write ---- */

int statement_server_column(const struct postgres_session *s, const struct route *route)
{
    const struct statement *st = &s->statements[route->id];

    for (int i = 0; i < st->column_count && route->result != RESULT_EXEC; i++)
        if (st->types[i].kind == VALUE_SERVER)
            return i;
    return -1;
}

static char *wrapped_text(const struct statement *st, const struct route *route)
{
    size_t count = (size_t)st->column_count;
    struct wrap_column *columns = calloc(count, sizeof *columns);
    char *text;

    ENSURE(columns != NULL);
    for (size_t i = 0; i < count; i++)
        columns[i] = (struct wrap_column){.name = PQfname(st->described, (int)i),
                                          .is_given_as_json = st->types[i].kind == VALUE_SERVER};
    text = wrap_statement(route->sql, columns, count);
    free(columns);
    return text;
}

/* The plain one gave its columns, and is of no more use. */
static bool send_drop(struct postgres_session *s, const char *name)
{
    char sql[80];

    (void)snprintf(sql, sizeof sql, "DEALLOCATE %s", name);
    session_push(s, STEP_DROP);
    return PQsendQueryParams(s->conn, sql, 0, NULL, NULL, NULL, NULL, 0) != 0;
}

enum statement_sent statement_send_wrapped(struct postgres_session *s, const struct route *route)
{
    struct statement *st = &s->statements[route->id];
    char *sql = wrapped_text(st, route);
    char name[48];
    bool is_sent;

    statement_name(route, st, name);
    is_sent = send_drop(s, name);
    if (is_sent && sql != NULL) {
        st->version++;
        is_sent = send_prepare(s, route, sql);
    }
    free(sql);
    if (!is_sent)
        return STATEMENT_LOST;
    return sql != NULL ? STATEMENT_SENT : STATEMENT_REFUSED;
}

bool statement_wrapped_described(struct postgres_session *s, const struct route *route,
                                 const PGresult *result)
{
    struct statement *st = &s->statements[route->id];

    if (PQnfields(result) != st->column_count)
        return false;
    for (int i = 0; i < st->column_count; i++) {
        bool is_json = st->types[i].kind == VALUE_SERVER;

        if (PQftype(result, i) != (is_json ? OID_JSON : st->type_oids[i]))
            return false;
        if (is_json)
            st->types[i].kind = VALUE_JSON;
        st->types[i].is_array = st->types[i].is_array && !is_json;
    }
    st->is_wrapped = true;
    return true;
}

#include "json/row_writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "json/json_text.h"

/* --- types ----------------------------------------------------------------------------------- */

/* The built-in types, from PostgreSQL's pg_type.dat: those whose value to_json() writes by its text
 * alone. Missing on purpose, so that the server renders them: records and row types, anyarray,
 * arrays of vectors, and the domains of information_schema (their OIDs are not fixed).
 * An array of 0: there is none. */
struct built_in {
    uint16_t oid, array_oid;
    enum value_kind kind;
};

/* clang-format off */
static const struct built_in built_ins[] = {
    {  16,  1000, VALUE_BOOL},        /* bool */
    {  17,  1001, VALUE_TEXT},        /* bytea */
    {  18,  1002, VALUE_TEXT},        /* "char" */
    {  19,  1003, VALUE_TEXT},        /* name */
    {  20,  1016, VALUE_NUMBER},      /* int8 */
    {  21,  1005, VALUE_NUMBER},      /* int2 */
    {  23,  1007, VALUE_NUMBER},      /* int4 */
    {  24,  1008, VALUE_TEXT},        /* regproc */
    {  25,  1009, VALUE_TEXT},        /* text */
    {  26,  1028, VALUE_TEXT},        /* oid: to_json quotes it */
    {  27,  1010, VALUE_TEXT},        /* tid */
    {  28,  1011, VALUE_TEXT},        /* xid */
    {  29,  1012, VALUE_TEXT},        /* cid */
    { 114,   199, VALUE_JSON},        /* json */
    { 142,   143, VALUE_TEXT},        /* xml */
    { 194,     0, VALUE_TEXT},        /* pg_node_tree */
    { 600,  1017, VALUE_TEXT},        /* point */
    { 601,  1018, VALUE_TEXT},        /* lseg */
    { 602,  1019, VALUE_TEXT},        /* path */
    { 603,  1020, VALUE_TEXT},        /* box */
    { 604,  1027, VALUE_TEXT},        /* polygon */
    { 628,   629, VALUE_TEXT},        /* line */
    { 650,   651, VALUE_TEXT},        /* cidr */
    { 700,  1021, VALUE_NUMBER},      /* float4 */
    { 701,  1022, VALUE_NUMBER},      /* float8 */
    { 705,     0, VALUE_TEXT},        /* unknown */
    { 718,   719, VALUE_TEXT},        /* circle */
    { 774,   775, VALUE_TEXT},        /* macaddr8 */
    { 790,   791, VALUE_TEXT},        /* money */
    { 829,  1040, VALUE_TEXT},        /* macaddr */
    { 869,  1041, VALUE_TEXT},        /* inet */
    {1033,  1034, VALUE_TEXT},        /* aclitem */
    {1042,  1014, VALUE_TEXT},        /* bpchar */
    {1043,  1015, VALUE_TEXT},        /* varchar */
    {1082,  1182, VALUE_DATE},        /* date */
    {1083,  1183, VALUE_TEXT},        /* time */
    {1114,  1115, VALUE_TIMESTAMP},   /* timestamp */
    {1184,  1185, VALUE_TIMESTAMPTZ}, /* timestamptz */
    {1186,  1187, VALUE_TEXT},        /* interval */
    {1266,  1270, VALUE_TEXT},        /* timetz */
    {1560,  1561, VALUE_TEXT},        /* bit */
    {1562,  1563, VALUE_TEXT},        /* varbit */
    {1700,  1231, VALUE_NUMBER},      /* numeric */
    {1790,  2201, VALUE_TEXT},        /* refcursor */
    {2202,  2207, VALUE_TEXT},        /* regprocedure */
    {2203,  2208, VALUE_TEXT},        /* regoper */
    {2204,  2209, VALUE_TEXT},        /* regoperator */
    {2205,  2210, VALUE_TEXT},        /* regclass */
    {2206,  2211, VALUE_TEXT},        /* regtype */
    {2275,  1263, VALUE_TEXT},        /* cstring */
    {2278,     0, VALUE_TEXT},        /* void: an empty string */
    {2950,  2951, VALUE_TEXT},        /* uuid */
    {2970,  2949, VALUE_TEXT},        /* txid_snapshot */
    {3220,  3221, VALUE_TEXT},        /* pg_lsn */
    {3361,     0, VALUE_TEXT},        /* pg_ndistinct */
    {3402,     0, VALUE_TEXT},        /* pg_dependencies */
    {3614,  3643, VALUE_TEXT},        /* tsvector */
    {3615,  3645, VALUE_TEXT},        /* tsquery */
    {3642,  3644, VALUE_TEXT},        /* gtsvector */
    {3734,  3735, VALUE_TEXT},        /* regconfig */
    {3769,  3770, VALUE_TEXT},        /* regdictionary */
    {3802,  3807, VALUE_JSON},        /* jsonb */
    {3904,  3905, VALUE_TEXT},        /* int4range */
    {3906,  3907, VALUE_TEXT},        /* numrange */
    {3908,  3909, VALUE_TEXT},        /* tsrange */
    {3910,  3911, VALUE_TEXT},        /* tstzrange */
    {3912,  3913, VALUE_TEXT},        /* daterange */
    {3926,  3927, VALUE_TEXT},        /* int8range */
    {4072,  4073, VALUE_TEXT},        /* jsonpath */
    {4089,  4090, VALUE_TEXT},        /* regnamespace */
    {4096,  4097, VALUE_TEXT},        /* regrole */
    {4191,  4192, VALUE_TEXT},        /* regcollation */
    {4451,  6150, VALUE_TEXT},        /* int4multirange */
    {4532,  6151, VALUE_TEXT},        /* nummultirange */
    {4533,  6152, VALUE_TEXT},        /* tsmultirange */
    {4534,  6153, VALUE_TEXT},        /* tstzmultirange */
    {4535,  6155, VALUE_TEXT},        /* datemultirange */
    {4536,  6157, VALUE_TEXT},        /* int8multirange */
    {4600,     0, VALUE_TEXT},        /* pg_brin_bloom_summary */
    {4601,     0, VALUE_TEXT},        /* pg_brin_minmax_multi_summary */
    {5017,     0, VALUE_TEXT},        /* pg_mcv_list */
    {5038,  5039, VALUE_TEXT},        /* pg_snapshot */
    {5069,   271, VALUE_TEXT},        /* xid8 */
};
/* clang-format on */

enum {
    BUILT_IN_COUNT = sizeof built_ins / sizeof *built_ins,
    OID_BOX_ARRAY = 1020,
    OID_INT2VECTOR = 22,
    OID_OIDVECTOR = 30,
};

struct value_type value_type_of(uint32_t type_oid)
{
    /* To to_json() the two vectors are arrays; their text is the elements between spaces. */
    if (type_oid == OID_INT2VECTOR || type_oid == OID_OIDVECTOR)
        return (struct value_type){.kind = type_oid == OID_INT2VECTOR ? VALUE_NUMBER : VALUE_TEXT,
                                   .is_array = true,
                                   .delimiter = ' '};
    for (size_t i = 0; i < BUILT_IN_COUNT && type_oid != 0; i++) {
        enum value_kind kind = built_ins[i].kind;

        if (built_ins[i].oid == type_oid)
            return (struct value_type){.kind = kind, .delimiter = ','};
        if (built_ins[i].array_oid == type_oid)
            return (struct value_type){
                .kind = kind, .is_array = true, .delimiter = type_oid == OID_BOX_ARRAY ? ';' : ','};
    }
    return (struct value_type){.kind = VALUE_UNKNOWN, .delimiter = ','};
}

bool value_type_is_dated(struct value_type type)
{
    return type.kind == VALUE_DATE || type.kind == VALUE_TIMESTAMP ||
           type.kind == VALUE_TIMESTAMPTZ;
}

/* --- single values --------------------------------------------------------------------------- */

/* buffer_append(), inlined: this runs for every cell. */
static inline void append(struct buffer *out, const char *bytes, size_t size_bytes)
{
    if (size_bytes == 0 || !buffer_reserve(out, size_bytes))
        return;
    memcpy(out->data + out->size_bytes, bytes, size_bytes);
    out->size_bytes += size_bytes;
}

static void number_write(struct buffer *out, const char *text, size_t size_bytes)
{
    if (json_text_is_number(text, size_bytes))
        append(out, text, size_bytes);
    else
        json_text_append(out, text, size_bytes); /* NaN, Infinity */
}

static void bool_write(struct buffer *out, const char *text, size_t size_bytes)
{
    if (size_bytes > 0 && text[0] == 't')
        append(out, "true", 4);
    else
        append(out, "false", 5);
}

/* Where the zone of HH:MM:SS[.ffffff][zone][ BC] begins; size_bytes: there is none. */
static size_t find_zone(const char *text, size_t size_bytes)
{
    size_t i = 0;

    while (i < size_bytes && text[i] != '+' && text[i] != '-')
        i++;
    return i;
}

/* 2026-01-01 10:00:00[.5][+00][ BC]: a T for the first space, and +00:00 for +00. A zone that
 * already has minutes (+05:30) stays. What is not of this form (infinity has no space, and another
 * DateStyle no "-DD" before it) is given as it is. */
static void timestamp_write(struct buffer *out, bool has_zone, const char *text, size_t size_bytes)
{
    const char *space = memchr(text, ' ', size_bytes);
    const char *time;
    size_t time_bytes, zone;

    if (space == NULL || space - text < 10 || space[-3] != '-') {
        json_text_append(out, text, size_bytes);
        return;
    }
    time = space + 1;
    time_bytes = size_bytes - (size_t)(time - text);
    zone = has_zone ? find_zone(time, time_bytes) : time_bytes;

    append(out, "\"", 1);
    append(out, text, (size_t)(space - text));
    append(out, "T", 1);
    if (time_bytes - zone >= 3 && (time_bytes - zone == 3 || time[zone + 3] == ' ')) {
        append(out, time, zone + 3);
        append(out, ":00", 3);
        append(out, time + zone + 3, time_bytes - zone - 3);
    } else {
        append(out, time, time_bytes);
    }
    append(out, "\"", 1);
}

static void scalar_write(struct buffer *out, enum value_kind kind, const char *text,
                         size_t size_bytes)
{
    switch (kind) {
    case VALUE_NUMBER:
        number_write(out, text, size_bytes);
        break;
    case VALUE_BOOL:
        bool_write(out, text, size_bytes);
        break;
    case VALUE_JSON:
        append(out, text, size_bytes);
        break;
    case VALUE_TIMESTAMP:
    case VALUE_TIMESTAMPTZ:
        timestamp_write(out, kind == VALUE_TIMESTAMPTZ, text, size_bytes);
        break;
    case VALUE_TEXT:
    case VALUE_DATE:
    case VALUE_SERVER:
    case VALUE_UNKNOWN:
        json_text_append(out, text, size_bytes);
        break;
    }
}

/* --- arrays ---------------------------------------------------------------------------------- */

/* Reads PostgreSQL's array text: [bounds=]{e,"e",NULL,{..}}. */
struct array_reader {
    struct buffer *out;
    struct value_type type;
    const char *at, *end;
    size_t depth;
};

/* A quoted element whose backslashes are to go. Short ones on the stack. */
static void unescape_write(struct array_reader *r, const char *text, size_t size_bytes)
{
    char small[256];
    char *plain = size_bytes <= sizeof small ? small : malloc(size_bytes);
    size_t used = 0;

    if (plain == NULL) {
        r->out->failed = true;
        return;
    }
    for (size_t i = 0; i < size_bytes; i++) {
        if (text[i] == '\\' && i + 1 < size_bytes)
            i++;
        plain[used++] = text[i];
    }
    scalar_write(r->out, r->type.kind, plain, used);
    if (plain != small)
        free(plain);
}

/* From behind the opening quote. False: the closing one is missing. */
static bool quoted_element(struct array_reader *r)
{
    const char *start = r->at;
    bool has_backslash = false;

    while (r->at < r->end && *r->at != '"') {
        if (*r->at == '\\' && r->at + 1 < r->end) {
            has_backslash = true;
            r->at++;
        }
        r->at++;
    }
    if (r->at >= r->end)
        return false;
    if (has_backslash)
        unescape_write(r, start, (size_t)(r->at - start));
    else
        scalar_write(r->out, r->type.kind, start, (size_t)(r->at - start));
    r->at++;
    return true;
}

static bool bare_element(struct array_reader *r)
{
    const char *start = r->at;
    size_t size;

    while (r->at < r->end && *r->at != r->type.delimiter && *r->at != '}')
        r->at++;
    size = (size_t)(r->at - start);
    if (size == 0)
        return false;
    if (size == 4 && memcmp(start, "NULL", 4) == 0)
        append(r->out, "null", 4);
    else
        scalar_write(r->out, r->type.kind, start, size);
    return true;
}

static bool take(struct array_reader *r, char c)
{
    if (r->at >= r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* One element, or the opening of one array or more with their first element: {{1 */
static bool element(struct array_reader *r)
{
    while (take(r, '{')) {
        append(r->out, "[", 1);
        r->depth++;
        if (r->at < r->end && *r->at == '}')
            return true; /* an empty array */
    }
    return take(r, '"') ? quoted_element(r) : bare_element(r);
}

static void close_arrays(struct array_reader *r)
{
    while (r->depth > 0 && take(r, '}')) {
        append(r->out, "]", 1);
        r->depth--;
    }
}

static bool array_read(struct array_reader *r)
{
    if (r->at < r->end && *r->at == '[') { /* bounds */
        while (r->at < r->end && *r->at != '=')
            r->at++;
        (void)take(r, '=');
    }
    if (r->at >= r->end || *r->at != '{')
        return false;
    do {
        if (!element(r))
            return false;
        close_arrays(r);
        if (r->depth == 0)
            return r->at == r->end;
        append(r->out, ",", 1);
    } while (take(r, r->type.delimiter));
    return false;
}

static void vector_write(struct buffer *out, enum value_kind kind, const char *text,
                         size_t size_bytes)
{
    append(out, "[", 1);
    for (size_t i = 0, end; i < size_bytes; i = end + 1) {
        const char *space = memchr(text + i, ' ', size_bytes - i);

        end = space != NULL ? (size_t)(space - text) : size_bytes;
        if (i > 0)
            append(out, ",", 1);
        scalar_write(out, kind, text + i, end - i);
    }
    append(out, "]", 1);
}

static void array_write(struct buffer *out, struct value_type type, const char *text,
                        size_t size_bytes)
{
    struct array_reader r = {.out = out, .type = type, .at = text, .end = text + size_bytes};
    size_t before = out->size_bytes;

    if (array_read(&r) || out->failed)
        return;
    /* No array after all. No server writes that; still the answer has to be JSON. */
    out->size_bytes = before;
    json_text_append(out, text, size_bytes);
}

void value_write(struct buffer *out, struct value_type type, const char *text, size_t size_bytes)
{
    if (!type.is_array)
        scalar_write(out, type.kind, text, size_bytes);
    else if (type.delimiter == ' ')
        vector_write(out, type.kind, text, size_bytes);
    else
        array_write(out, type, text, size_bytes);
}

/* --- rows ------------------------------------------------------------------------------------ */

struct column {
    struct value_type type;
    size_t name_begin, name_bytes; /* in names: {"a": of the first column, ,"b": of the others */
};

struct row_shape {
    char *names; /* owned */
    int column_count;
    struct column columns[];
};

static void name_columns(struct row_shape *shape, struct buffer *names, const PGresult *result)
{
    for (int c = 0; c < shape->column_count; c++) {
        const char *name = PQfname(result, c);

        shape->columns[c].name_begin = names->size_bytes;
        buffer_append_char(names, c == 0 ? '{' : ',');
        json_text_append(names, name, strlen(name));
        buffer_append_char(names, ':');
        shape->columns[c].name_bytes = names->size_bytes - shape->columns[c].name_begin;
    }
}

struct row_shape *row_shape_create(const PGresult *result, const struct value_type *types)
{
    size_t count = (size_t)PQnfields(result);
    struct row_shape *shape = calloc(1, sizeof *shape + count * sizeof *shape->columns);
    struct buffer names;

    if (shape == NULL)
        return NULL;
    shape->column_count = (int)count;
    for (size_t c = 0; c < count; c++)
        shape->columns[c].type = types[c];

    buffer_init(&names, SIZE_MAX);
    name_columns(shape, &names, result);
    if (names.failed) {
        buffer_fini(&names);
        row_shape_destroy(shape);
        return NULL;
    }
    shape->names = buffer_take(&names).data;
    return shape;
}

void row_shape_destroy(struct row_shape *shape)
{
    if (shape == NULL)
        return;
    free(shape->names);
    free(shape);
}

void row_write_cell(struct buffer *out, const struct row_shape *shape, const PGresult *result,
                    int row, int column)
{
    int size = PQgetlength(result, row, column);

    /* Only an empty value may be NULL: one question less for the others. */
    if (size == 0 && PQgetisnull(result, row, column))
        append(out, "null", 4);
    else
        value_write(out, shape->columns[column].type, PQgetvalue(result, row, column),
                    (size_t)size);
}

void row_write(struct buffer *out, const struct row_shape *shape, const PGresult *result, int row)
{
    if (shape->column_count == 0)
        append(out, "{", 1);
    for (int c = 0; c < shape->column_count; c++) {
        const struct column *column = &shape->columns[c];

        append(out, shape->names + column->name_begin, column->name_bytes);
        row_write_cell(out, shape, result, row, c);
    }
    append(out, "}", 1);
}

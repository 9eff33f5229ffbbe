#include "query/sql_type.h"

#include <ctype.h>
#include <string.h>

#include "base/nearest.h"
#include "query/sql_word.h"

struct built_in {
    const char *name;
    uint32_t oid, array_oid;
    enum param_check check;
};

/* clang-format off */
static const struct built_in built_ins[] = {
    {"bool", 16, 1000, CHECK_BOOL},          {"bytea", 17, 1001, CHECK_SERVER},
    {"name", 19, 1003, CHECK_TEXT},          {"int8", 20, 1016, CHECK_INTEGER},
    {"int2", 21, 1005, CHECK_INTEGER},       {"int4", 23, 1007, CHECK_INTEGER},
    {"text", 25, 1009, CHECK_TEXT},          {"oid", 26, 1028, CHECK_INTEGER},
    {"regproc", 24, 1008, CHECK_SERVER},     {"regprocedure", 2202, 2207, CHECK_SERVER},
    {"regoper", 2203, 2208, CHECK_SERVER},   {"regoperator", 2204, 2209, CHECK_SERVER},
    {"regclass", 2205, 2210, CHECK_SERVER},  {"regtype", 2206, 2211, CHECK_SERVER},
    {"regrole", 4096, 4097, CHECK_SERVER},   {"regnamespace", 4089, 4090, CHECK_SERVER},
    {"regconfig", 3734, 3735, CHECK_SERVER}, {"regdictionary", 3769, 3770, CHECK_SERVER},
    {"regcollation", 4191, 4192, CHECK_SERVER},
    {"tid", 27, 1010, CHECK_SERVER},         {"xid", 28, 1011, CHECK_SERVER},
    {"cid", 29, 1012, CHECK_SERVER},         {"xid8", 5069, 271, CHECK_SERVER},
    {"json", 114, 199, CHECK_JSON},          {"jsonb", 3802, 3807, CHECK_JSON},
    {"jsonpath", 4072, 4073, CHECK_SERVER},  {"xml", 142, 143, CHECK_SERVER},
    {"point", 600, 1017, CHECK_SERVER},      {"lseg", 601, 1018, CHECK_SERVER},
    {"path", 602, 1019, CHECK_SERVER},       {"box", 603, 1020, CHECK_SERVER},
    {"polygon", 604, 1027, CHECK_SERVER},    {"line", 628, 629, CHECK_SERVER},
    {"circle", 718, 719, CHECK_SERVER},
    {"float4", 700, 1021, CHECK_FLOAT},      {"float8", 701, 1022, CHECK_FLOAT},
    {"numeric", 1700, 1231, CHECK_NUMERIC},  {"money", 790, 791, CHECK_SERVER},
    {"macaddr", 829, 1040, CHECK_SERVER},    {"macaddr8", 774, 775, CHECK_SERVER},
    {"inet", 869, 1041, CHECK_SERVER},       {"cidr", 650, 651, CHECK_SERVER},
    {"bpchar", 1042, 1014, CHECK_TEXT},      {"varchar", 1043, 1015, CHECK_TEXT},
    {"date", 1082, 1182, CHECK_SERVER},      {"time", 1083, 1183, CHECK_SERVER},
    {"timetz", 1266, 1270, CHECK_ZONED},     {"timestamp", 1114, 1115, CHECK_SERVER},
    {"timestamptz", 1184, 1185, CHECK_ZONED}, {"interval", 1186, 1187, CHECK_SERVER},
    {"bit", 1560, 1561, CHECK_SERVER},       {"varbit", 1562, 1563, CHECK_SERVER},
    {"uuid", 2950, 2951, CHECK_UUID},        {"pg_lsn", 3220, 3221, CHECK_SERVER},
    {"tsvector", 3614, 3643, CHECK_SERVER},  {"tsquery", 3615, 3645, CHECK_SERVER},
    {"pg_snapshot", 5038, 5039, CHECK_SERVER},
    {"txid_snapshot", 2970, 2949, CHECK_SERVER},
    {"int4range", 3904, 3905, CHECK_SERVER}, {"int8range", 3926, 3927, CHECK_SERVER},
    {"numrange", 3906, 3907, CHECK_SERVER},  {"daterange", 3912, 3913, CHECK_SERVER},
    {"tsrange", 3908, 3909, CHECK_SERVER},   {"tstzrange", 3910, 3911, CHECK_SERVER},
    {"int4multirange", 4451, 6150, CHECK_SERVER}, {"int8multirange", 4536, 6157, CHECK_SERVER},
    {"nummultirange", 4532, 6151, CHECK_SERVER},  {"datemultirange", 4535, 6155, CHECK_SERVER},
    {"tsmultirange", 4533, 6152, CHECK_SERVER},   {"tstzmultirange", 4534, 6153, CHECK_SERVER},
};

/* The SQL standard's names, and PostgreSQL's own shorthands. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"smallint", "int2"},           {"int", "int4"},
    {"integer", "int4"},            {"bigint", "int8"},
    {"decimal", "numeric"},         {"dec", "numeric"},
    {"real", "float4"},             {"float", "float8"},
    {"double precision", "float8"}, {"boolean", "bool"},
    {"character varying", "varchar"}, {"char varying", "varchar"},
    {"character", "bpchar"},        {"char", "bpchar"},
    {"bit varying", "varbit"},      {"time without time zone", "time"},
    {"time with time zone", "timetz"}, {"timestamp without time zone", "timestamp"},
    {"timestamp with time zone", "timestamptz"},
};

static const struct {
    uint32_t oid;
    int64_t least, greatest;
} integer_ranges[] = {
    {21, INT16_MIN, INT16_MAX}, {23, INT32_MIN, INT32_MAX},
    {20, INT64_MIN, INT64_MAX}, {26, 0, UINT32_MAX},
};
/* clang-format on */

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

enum { BOX_OID = 603 };

static const struct built_in *find_built_in(const char *name)
{
    if (strncmp(name, "pg_catalog.", 11) == 0)
        name += 11;
    for (size_t i = 0; i < COUNT_OF(aliases); i++)
        if (strcmp(name, aliases[i].alias) == 0)
            name = aliases[i].name;
    for (size_t i = 0; i < COUNT_OF(built_ins); i++)
        if (strcmp(name, built_ins[i].name) == 0)
            return &built_ins[i];
    return NULL;
}

/* Lower case, and one space for any run of them: how the tables spell names. */
static void spell_plainly(const char *text, size_t size_bytes, char *out)
{
    size_t size = 0;

    for (size_t i = 0; i < size_bytes; i++) {
        char c = text[i];

        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');

        if (c == '\t')
            c = ' ';
        if (c == ' ' && (size == 0 || out[size - 1] == ' '))
            continue;
        out[size++] = c;
    }
    while (size > 0 && out[size - 1] == ' ')
        size--;
    out[size] = '\0';
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || c == '_' || (unsigned char)c >= 0x80;
}

/* The size of the name at `text`, in small letters; 0: there is none. */
static size_t skip_name(const char *text)
{
    size_t i = 0;

    if (!is_name_start(text[0]))
        return 0;
    while (is_name_start(text[i]) || (text[i] >= '0' && text[i] <= '9') || text[i] == '$')
        i++;
    return i;
}

/* name or schema.name */
static bool looks_like_a_name(const char *text)
{
    size_t first = skip_name(text), second;

    if (first == 0 || text[first] == '\0')
        return first > 0;
    if (text[first] != '.')
        return false;
    second = skip_name(text + first + 1);
    return second > 0 && text[first + 1 + second] == '\0';
}

static void fill(struct param_type *out, const struct built_in *type)
{
    out->oid = out->is_array ? type->array_oid : type->oid;
    out->element_oid = out->is_array ? type->oid : 0;
    out->check = type->check;
    if (type->oid == BOX_OID)
        out->delimiter = ';';
    for (size_t i = 0; i < COUNT_OF(integer_ranges); i++) {
        if (integer_ranges[i].oid == type->oid) {
            out->least = integer_ranges[i].least;
            out->greatest = integer_ranges[i].greatest;
        }
    }
}

static const char *problem_of(const char *text, size_t size_bytes)
{
    if (size_bytes >= sizeof((struct param_type *)NULL)->name)
        return "the name is too long";
    if (memchr(text, '(', size_bytes) != NULL)
        return "a length or precision is no part of a parameter's type (see maxlen, max)";
    if (memchr(text, '[', size_bytes) != NULL || memchr(text, ']', size_bytes) != NULL)
        return "an array is T[], of one dimension";
    return "not the name of a type";
}

enum sql_type_found sql_type_parse(const char *text, struct param_type *out,
                                   const char **out_problem)
{
    struct param_type type = {.check = CHECK_SERVER, .delimiter = ','};
    size_t size = strlen(text);
    char plain[sizeof type.name] = "";
    const struct built_in *found;

    if (size >= 2 && strcmp(text + size - 2, "[]") == 0) {
        type.is_array = true;
        size -= 2;
    }
    if (size >= sizeof type.name) {
        *out_problem = problem_of(text, size);
        return SQL_TYPE_MALFORMED;
    }
    memcpy(type.name, text, size);
    type.name[size] = '\0';
    spell_plainly(text, size, plain);

    found = find_built_in(plain);
    if (found == NULL && !looks_like_a_name(plain)) {
        *out_problem = problem_of(text, size);
        return SQL_TYPE_MALFORMED;
    }
    if (found != NULL)
        fill(&type, found);
    *out = type;
    return found != NULL ? SQL_TYPE_BUILT_IN : SQL_TYPE_ON_TRUST;
}

const char *sql_type_nearest(const char *text)
{
    const char *names[COUNT_OF(built_ins) + COUNT_OF(aliases)];
    char scalar[sizeof((struct param_type *)NULL)->name];
    const char *near;
    size_t size = strlen(text), count = 0;

    if (size >= 2 && strcmp(text + size - 2, "[]") == 0)
        size -= 2;
    if (size >= sizeof scalar)
        return NULL;
    memcpy(scalar, text, size);
    scalar[size] = '\0';
    for (size_t i = 0; i < COUNT_OF(built_ins); i++)
        names[count++] = built_ins[i].name;
    for (size_t i = 0; i < COUNT_OF(aliases); i++)
        names[count++] = aliases[i].alias;
    near = nearest_word(scalar, names, count);
    /* mood is a type of somebody's own, and no bool with two slips. */
    return near != NULL && tolower((unsigned char)scalar[0]) == near[0] ? near : NULL;
}

const char *sql_type_name(size_t index, enum param_check *out_check)
{
    if (index >= COUNT_OF(built_ins))
        return NULL;
    *out_check = built_ins[index].check;
    return built_ins[index].name;
}

const char *sql_type_alias(size_t index, const char **out_name)
{
    if (index >= COUNT_OF(aliases))
        return NULL;
    *out_name = aliases[index].name;
    return aliases[index].alias;
}

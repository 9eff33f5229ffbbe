#include <stdarg.h>
#include <stdio.h>

#include "base/complaint.h"
#include "base/nearest.h"
#include "query/array_literal.h"
#include "query/decimal.h"
#include "query/query_file_internal.h"
#include "query/sql_type.h"
#include "query/sql_word.h"
#include "query/value_check.h"

/* A @param line being read. */
struct spec {
    struct query_file *file;
    const struct words *words;
    struct param *param;
    const struct word *given[16]; /* by row of the table of options; NULL: absent */
    bool is_wrong;                /* complained: later checks would only repeat it */
};

enum option_id {
    OPTION_OPTIONAL,
    OPTION_DEFAULT,
    OPTION_MIN,
    OPTION_MAX,
    OPTION_MINLEN,
    OPTION_MAXLEN,
    OPTION_PATTERN,
    OPTION_ENUM,
    OPTION_EXAMPLE,
    OPTION_IN,
    OPTION_CLAIM,
    OPTION_COUNT
};

/* clang-format off */
static const struct option {
    const char *name, *usage, *meaning;
    bool is_not_built;
} options[OPTION_COUNT] = {
    [OPTION_OPTIONAL] = {"optional", "", "may be left out, and is NULL then", false},
    [OPTION_DEFAULT]  = {"default", "=V", "may be left out, and is this then", false},
    [OPTION_MIN]      = {"min", "=N", "least number", false},
    [OPTION_MAX]      = {"max", "=N", "greatest number", false},
    [OPTION_MINLEN]   = {"minlen", "=N", "least number of characters", false},
    [OPTION_MAXLEN]   = {"maxlen", "=N", "greatest number of characters", false},
    [OPTION_PATTERN]  = {"pattern", "=ERE", "a POSIX extended regular expression that the whole value matches", false},
    [OPTION_ENUM]     = {"enum", "=A,B,...", "one of these", false},
    [OPTION_EXAMPLE]  = {"example", "=V", "for documentation and drills", false},
    [OPTION_IN]       = {"in", "=path \\| query \\| body \\| header",
                         "where it comes from: the path if named there, else the query of a GET or DELETE and the body of "
                         "the others", false},
    [OPTION_CLAIM]    = {"claim", "=NAME", "what of the caller's token it is", true},
};
/* clang-format on */

static const char *nearest_option(const char *wrong)
{
    const char *names[OPTION_COUNT];

    for (unsigned i = 0; i < OPTION_COUNT; i++)
        names[i] = options[i].name;
    return nearest_word(wrong, names, OPTION_COUNT);
}

bool param_option_word(size_t index, struct sql_word *out)
{
    if (index >= OPTION_COUNT)
        return false;
    *out = (struct sql_word){.name = options[index].name,
                             .usage = options[index].usage,
                             .meaning = options[index].meaning,
                             .is_built = !options[index].is_not_built};
    return true;
}

PRINTF_LIKE(3, 4)
static void complain(struct spec *spec, int column, const char *fmt, ...)
{
    char *text;
    va_list args;

    va_start(args, fmt);
    ENSURE(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    query_file_complain(spec->file, spec->words->line, column, "@param %s", text);
    free(text);
    spec->is_wrong = true;
}

bool param_name_is_valid(const char *name, size_t size_bytes)
{
    if (size_bytes == 0 || size_bytes > 63 || (name[0] >= '0' && name[0] <= '9'))
        return false;
    for (size_t i = 0; i < size_bytes; i++)
        if (!(name[i] >= 'a' && name[i] <= 'z') && !(name[i] >= '0' && name[i] <= '9') &&
            name[i] != '_')
            return false;
    return true;
}

static bool read_name(struct spec *spec)
{
    const struct words *words = spec->words;
    const struct word *word = words->count > 1 ? &words->items[1] : NULL;

    if (word == NULL || words->count < 3) {
        complain(spec, words->end_column, "needs a name and a type");
        return false;
    }
    if (word->value != NULL || !param_name_is_valid(word->text, strlen(word->text))) {
        complain(spec, word->column,
                 "'%s': a name is small letters, digits and _, and starts with no digit",
                 word->text);
        return false;
    }
    for (size_t i = 0; i < spec->file->route->param_count; i++) {
        if (strcmp(spec->file->route->params[i].name, word->text) == 0) {
            complain(spec, word->column, "%s is already declared on line %d", word->text,
                     spec->file->route->params[i].line);
            return false;
        }
    }
    return true;
}

/* The parameter joins the route before its options are read, so that route_fini() owns all of it.
 */
static void add_param(struct spec *spec)
{
    struct route *route = spec->file->route;
    const struct word *word = &spec->words->items[1];

    route->params = grow_by_one(route->params, route->param_count, sizeof *route->params);
    spec->param = &route->params[route->param_count++];
    *spec->param = (struct param){.name = copy_text(word->text, strlen(word->text)),
                                  .place = IN_QUERY,
                                  .path_segment = -1,
                                  .min_length = -1,
                                  .max_length = -1,
                                  .line = spec->words->line,
                                  .column = word->column};
}

static void read_type(struct spec *spec)
{
    const struct word *word = &spec->words->items[2];
    const char *problem = "not the name of a type", *near;

    if (word->value != NULL) {
        complain(spec, word->column, "%s: a type must come before '%s='", spec->param->name,
                 word->text);
        return;
    }
    switch (sql_type_parse(word->text, &spec->param->type, &problem)) {
    case SQL_TYPE_BUILT_IN:
        break;
    case SQL_TYPE_ON_TRUST:
        near = sql_type_nearest(word->text);
        complaints_warn(spec->file->complaints, spec->file->shown, spec->words->line, word->column,
                        "the type %s is not built in: taken on trust until the statement is "
                        "prepared%s%s",
                        word->text, near != NULL ? "; did you mean " : "",
                        near != NULL ? near : "");
        break;
    case SQL_TYPE_MALFORMED:
        complain(spec, word->column, "%s: '%s' is no type: %s", spec->param->name, word->text,
                 problem);
        break;
    }
}

static void read_option(struct spec *spec, const struct word *word)
{
    size_t row = 0;
    const char *near;

    while (row < OPTION_COUNT && strcmp(options[row].name, word->text) != 0)
        row++;
    if (row == OPTION_COUNT) {
        near = nearest_option(word->text);
        complain(spec, word->column, "%s: there is no '%s'%s%s", spec->param->name, word->text,
                 near != NULL ? "; did you mean " : "", near != NULL ? near : "");
    } else if (spec->given[row] != NULL) {
        complain(spec, word->column, "%s: %s is given twice", spec->param->name, word->text);
    } else if ((row == OPTION_OPTIONAL) != (word->value == NULL)) {
        complain(spec, word->column,
                 row == OPTION_OPTIONAL ? "%s: %s takes no value" : "%s: %s needs =value",
                 spec->param->name, word->text);
    } else {
        spec->given[row] = word;
    }
}

static int find_segment(const struct route *route, const char *name)
{
    for (size_t i = 0; i < route->segment_count; i++)
        if (route->segments[i].is_parameter && strcmp(route->segments[i].text, name) == 0)
            return (int)i;
    return -1;
}

static const char *const place_names[PARAM_PLACE_COUNT] = {"path", "query", "body", "header"};

static bool parse_place(const char *text, enum param_place *out)
{
    for (unsigned i = 0; i < PARAM_PLACE_COUNT; i++) {
        if (strcmp(place_names[i], text) == 0) {
            *out = (enum param_place)i;
            return true;
        }
    }
    return false;
}

static void check_place(struct spec *spec, const struct word *word)
{
    const struct param *param = spec->param;
    int column = word != NULL ? word->value_column : param->column;

    if (param->place == IN_PATH && param->path_segment < 0)
        complain(spec, column, "%s: in=path, but the path has no {%s}", param->name, param->name);
    else if (param->place != IN_PATH && param->path_segment >= 0)
        complain(spec, column, "%s: the path has {%s}, so it is in=path", param->name, param->name);
    else if (param->place == IN_BODY && spec->file->route->method == METHOD_GET)
        complain(spec, column, "%s: a GET has no body", param->name);
    if (param->type.is_array && (param->place == IN_PATH || param->place == IN_HEADER))
        complain(spec, column, "%s: an array comes in the query or in the body", param->name);
    if (param->place == IN_PATH &&
        (spec->given[OPTION_OPTIONAL] != NULL || spec->given[OPTION_DEFAULT] != NULL))
        complain(spec, param->column,
                 "%s: what is in the path is always there: neither optional "
                 "nor default",
                 param->name);
}

static void read_place(struct spec *spec)
{
    const struct word *word = spec->given[OPTION_IN], *claim = spec->given[OPTION_CLAIM];
    const struct route *route = spec->file->route;
    struct param *param = spec->param;
    const char *near;

    if (claim != NULL || (word != NULL && strcmp(word->value, "claim") == 0)) {
        complain(spec, claim != NULL ? claim->column : word->column,
                 "%s: in=claim is not supported yet", param->name);
        return;
    }
    if (!spec->file->has_first_line)
        return; /* which place is right hangs on method and path */
    param->path_segment = find_segment(route, param->name);
    if (param->path_segment >= 0)
        param->place = IN_PATH;
    else if (route->method != METHOD_GET && route->method != METHOD_DELETE)
        param->place = IN_BODY;
    if (word != NULL && !parse_place(word->value, &param->place)) {
        near = nearest_word(word->value, place_names, PARAM_PLACE_COUNT);
        complain(spec, word->value_column, "%s: in is path, query, body or header%s%s", param->name,
                 near != NULL ? "; did you mean " : "", near != NULL ? near : "");
        return;
    }
    check_place(spec, word);
}

static bool is_number(const struct param *param)
{
    return param->type.check == CHECK_INTEGER || param->type.check == CHECK_NUMERIC ||
           param->type.check == CHECK_FLOAT;
}

static char *read_bound(struct spec *spec, enum option_id id)
{
    const struct word *word = spec->given[id];
    struct decimal value;
    struct error err;

    if (word == NULL)
        return NULL;
    if (!is_number(spec->param)) {
        complain(spec, word->column, "%s: %s is for numbers", spec->param->name, word->text);
        return NULL;
    }
    if (!value_check_type(&spec->param->type, word->value, strlen(word->value), &err)) {
        complain(spec, word->value_column, "%s: %s: %s", spec->param->name, word->text, err.text);
        return NULL;
    }
    if (decimal_parse(word->value, strlen(word->value), &value) && value.kind == DECIMAL_NAN) {
        complain(spec, word->value_column, "%s: %s: NaN bounds nothing", spec->param->name,
                 word->text);
        return NULL;
    }
    return copy_text(word->value, strlen(word->value));
}

static void read_bounds(struct spec *spec)
{
    struct param *param = spec->param;
    struct decimal least, most;

    param->min_text = read_bound(spec, OPTION_MIN);
    param->max_text = read_bound(spec, OPTION_MAX);
    if (param->min_text != NULL && param->max_text != NULL &&
        decimal_parse(param->min_text, strlen(param->min_text), &least) &&
        decimal_parse(param->max_text, strlen(param->max_text), &most) &&
        decimal_compare(&least, &most) > 0)
        complain(spec, spec->given[OPTION_MIN]->column, "%s: min=%s is more than max=%s",
                 param->name, param->min_text, param->max_text);
}

static int64_t read_length(struct spec *spec, enum option_id id)
{
    const struct word *word = spec->given[id];
    int64_t value = 0;

    if (word == NULL)
        return -1;
    if (is_number(spec->param) || spec->param->type.check == CHECK_BOOL ||
        spec->param->type.check == CHECK_UUID) {
        complain(spec, word->column, "%s: %s is for text", spec->param->name, word->text);
        return -1;
    }
    for (const char *at = word->value; *at != '\0' || at == word->value; at++) {
        if (*at < '0' || *at > '9' || value > INT32_MAX) {
            complain(spec, word->value_column, "%s: %s must be a number of characters",
                     spec->param->name, word->text);
            return -1;
        }
        value = value * 10 + (*at - '0');
    }
    return value;
}

static void read_lengths(struct spec *spec)
{
    struct param *param = spec->param;

    param->min_length = read_length(spec, OPTION_MINLEN);
    param->max_length = read_length(spec, OPTION_MAXLEN);
    if (param->min_length >= 0 && param->max_length >= 0 && param->min_length > param->max_length)
        complain(spec, spec->given[OPTION_MINLEN]->column, "%s: minlen is more than maxlen",
                 param->name);
}

static void read_pattern(struct spec *spec)
{
    const struct word *word = spec->given[OPTION_PATTERN];
    struct error err;

    if (word == NULL)
        return;
    if (!value_pattern_compile(&spec->param->pattern, word->value, &err))
        complain(spec, word->value_column, "%s: pattern: %s", spec->param->name, err.text);
    else
        spec->param->pattern_text = copy_text(word->value, strlen(word->value));
}

/* Calls for each piece between commas, or once for a scalar; stops at the first false. */
typedef bool piece_fn(struct spec *spec, const char *text, struct error *err);

static bool each_piece(struct spec *spec, const char *list, bool is_list, piece_fn *call,
                       struct error *err)
{
    bool goes_on = true, is_good = true;

    while (goes_on && is_good) {
        size_t size = is_list ? strcspn(list, ",") : strlen(list);
        char *piece = copy_text(list, size);

        is_good = call(spec, piece, err);
        goes_on = list[size] == ',';
        list += size + goes_on;
        free(piece);
    }
    return is_good;
}

static bool add_enum(struct spec *spec, const char *text, struct error *err)
{
    struct param *param = spec->param;
    struct param bare = *param;

    bare.enum_count = 0; /* everything else that a value must be */
    if (!value_check(&bare, text, strlen(text), err))
        return false;
    param->enum_texts =
        grow_by_one(param->enum_texts, param->enum_count, sizeof *param->enum_texts);
    param->enum_texts[param->enum_count++] = copy_text(text, strlen(text));
    return true;
}

static bool check_piece(struct spec *spec, const char *text, struct error *err)
{
    return value_check(spec->param, text, strlen(text), err);
}

static void read_enum(struct spec *spec)
{
    const struct word *word = spec->given[OPTION_ENUM];
    struct error err;

    if (word != NULL && !each_piece(spec, word->value, true, add_enum, &err))
        complain(spec, word->value_column, "%s: enum: %s", spec->param->name, err.text);
}

/* default= and example=; an array's is a list with commas, and an empty one has no elements. */
static bool check_sample(struct spec *spec, const struct word *word)
{
    bool is_array = spec->param->type.is_array;
    struct error err;

    if (is_array && word->value[0] == '\0')
        return true;
    if (each_piece(spec, word->value, is_array, check_piece, &err))
        return true;
    complain(spec, word->value_column, "%s: %s: %s", spec->param->name, word->text, err.text);
    return false;
}

static char *list_to_literal(const char *list, char delimiter)
{
    size_t size = strlen(list);
    char *out = malloc(5 * size + 16);
    struct array_literal literal;

    ENSURE(out != NULL);
    array_literal_begin(&literal, out, delimiter);
    while (size > 0) {
        size_t piece = strcspn(list, ",");

        array_literal_add(&literal, list, piece);
        if (list[piece] == '\0')
            break;
        list += piece + 1;
    }
    (void)array_literal_end(&literal);
    return out;
}

static void read_samples(struct spec *spec)
{
    struct param *param = spec->param;
    const struct word *fallback = spec->given[OPTION_DEFAULT],
                      *example = spec->given[OPTION_EXAMPLE];

    param->is_optional = spec->given[OPTION_OPTIONAL] != NULL;
    if (param->is_optional && fallback != NULL)
        complain(spec, fallback->column, "%s: either optional or default, not both", param->name);
    if (fallback != NULL && check_sample(spec, fallback))
        param->default_text = param->type.is_array
                                  ? list_to_literal(fallback->value, param->type.delimiter)
                                  : copy_text(fallback->value, strlen(fallback->value));
    if (example != NULL && check_sample(spec, example))
        param->example_text = copy_text(example->value, strlen(example->value));
}

void param_spec_read(struct query_file *file, const struct words *words)
{
    struct spec spec = {.file = file, .words = words};

    if (file->route->param_count == PARAM_MAX_COUNT) {
        complain(&spec, words->column, "one file has at most %d parameters", PARAM_MAX_COUNT);
        return;
    }
    if (!read_name(&spec))
        return;
    add_param(&spec);
    read_type(&spec);
    for (size_t i = 3; i < words->count; i++)
        read_option(&spec, &words->items[i]);
    read_place(&spec);
    if (spec.is_wrong)
        return; /* the type decides about all that follows */
    read_bounds(&spec);
    read_lengths(&spec);
    read_pattern(&spec);
    if (spec.is_wrong)
        return;
    read_enum(&spec);
    if (!spec.is_wrong)
        read_samples(&spec);
}

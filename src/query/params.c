#include "query/params.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "query/array_literal.h"
#include "query/json_input.h"
#include "query/route.h"
#include "query/value_check.h"

enum { SHOWN_NAME_MAX_BYTES = 64, SLACK_MAX_BYTES = 64 * 1024 };
enum { IN_ANY_PLACE = PARAM_PLACE_COUNT };

/* What one parameter got so far. */
struct slot {
    size_t offset_bytes; /* of its text in the block; 0: SQL NULL */
    bool is_given;
};

/* One params_bind() under way. Everything it makes lies in one block, whose size is known before:
 *
 *   values[bind_count] | slots[param_count] | text ...
 *
 * Values are offsets until the end, when the block has its final place. */
struct binder {
    const struct route *route;
    const struct raw_inputs *inputs; /* NULL: `object` is all */
    struct raw_text object;
    char *memory;
    struct slot *slots;
    char *at, *end; /* the free part of the text */
    enum reason reason;
    struct error *err;
};

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool percent_decode(const char *text, size_t size_bytes, bool is_form, char *out,
                    size_t *out_size_bytes)
{
    size_t size = 0;

    for (size_t i = 0; i < size_bytes; i++) {
        char c = text[i];

        if (c == '%') {
            int high = i + 2 < size_bytes ? hex_value(text[i + 1]) : -1;
            int low = high >= 0 ? hex_value(text[i + 2]) : -1;

            if (low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && is_form) {
            c = ' ';
        }
        out[size++] = c;
    }
    *out_size_bytes = size;
    return true;
}

static bool refuse(struct binder *b, enum reason reason)
{
    b->reason = reason;
    return false;
}

/* b->err says what is wrong with a value of this parameter. */
static bool refuse_value(struct binder *b, const struct param *param)
{
    (void)error_prefix(b->err, "parameter \"%s\"", param->name);
    return refuse(b, REASON_BAD_PARAMETER);
}

/* A name that the caller made up: cut, and without what could confuse a terminal. */
static bool refuse_name(struct binder *b, const char *what, const char *name, size_t size_bytes)
{
    char shown[SHOWN_NAME_MAX_BYTES + 1];
    size_t size = size_bytes < SHOWN_NAME_MAX_BYTES ? size_bytes : SHOWN_NAME_MAX_BYTES;

    if (memchr(name, '\0', size_bytes) != NULL)
        (void)error_set(b->err, "a parameter's name holds a NUL character");
    else if (!utf8_is_valid(name, size_bytes))
        (void)error_set(b->err, "a parameter's name is not valid UTF-8");
    else {
        while (size < size_bytes && size > 0 && ((unsigned char)name[size] & 0xC0) == 0x80)
            size--;
        for (size_t i = 0; i < size; i++)
            shown[i] = (char)((unsigned char)name[i] < 0x20 || name[i] == 0x7F ? '?' : name[i]);
        shown[size] = '\0';
        (void)error_set(b->err, "%s parameter \"%s\"", what, shown);
    }
    return refuse(b, REASON_BAD_PARAMETER);
}

/* place: IN_ANY_PLACE is one too. */
static const struct param *find_param(const struct route *route, unsigned place, const char *name,
                                      size_t size_bytes)
{
    for (size_t i = 0; i < route->param_count; i++) {
        const struct param *param = &route->params[i];

        if ((param->place == place || place == IN_ANY_PLACE) &&
            strncmp(param->name, name, size_bytes) == 0 && param->name[size_bytes] == '\0')
            return param;
    }
    return NULL;
}

static struct slot *slot_of(const struct binder *b, const struct param *param)
{
    return &b->slots[param - b->route->params];
}

/* A raw + is a space in a form: then the text ends in a time, a space, and what could be an offset:
 * 02, 0230, 02:30 (a year, as in "Jan 1 00:00 2026", is none: offsets end at 15:59). */
static bool has_lost_its_plus(const char *text, size_t size_bytes)
{
    const char *space = memrchr(text, ' ', size_bytes), *end = text + size_bytes;

    if (space == NULL || memchr(text, ':', (size_t)(space - text)) == NULL || end - space < 3)
        return false;
    for (const char *at = space + 1; at < end; at++)
        if ((*at < '0' || *at > '9') && *at != ':')
            return false;
    return space[1] == '0' || (space[1] == '1' && space[2] <= '5');
}

/* Decoded text of one value, NUL-terminated, as far as it has to be right. */
static bool check_value(struct binder *b, const struct param *param, const char *text,
                        size_t size_bytes)
{
    if (!value_check_text(text, size_bytes, b->err))
        return refuse_value(b, param);
    if (param->type.check == CHECK_ZONED && param->place == IN_QUERY &&
        has_lost_its_plus(text, size_bytes)) {
        (void)error_set(b->err, "a space before the offset: write a + as %%2B");
        return refuse_value(b, param);
    }
    if (!value_check(param, text, size_bytes, b->err))
        return refuse_value(b, param);
    return true;
}

/* Decodes to the free part, NUL-terminated, without taking it: the caller moves b->at. */
static bool decode_value(struct binder *b, const struct param *param, struct raw_text raw,
                         bool is_form, size_t *out_size)
{
    if (!percent_decode(raw.data, raw.size_bytes, is_form, b->at, out_size)) {
        (void)error_set(b->err, "a percent sign that starts no escape: write it as %%25");
        return refuse_value(b, param);
    }
    b->at[*out_size] = '\0';
    return check_value(b, param, b->at, *out_size);
}

static bool bind_scalar(struct binder *b, const struct param *param, struct raw_text raw,
                        bool is_form)
{
    struct slot *slot = slot_of(b, param);
    size_t size;

    if (slot->is_given) {
        (void)error_set(b->err, "given more than once");
        return refuse_value(b, param);
    }
    if (!decode_value(b, param, raw, is_form, &size))
        return false;
    slot->is_given = true;
    slot->offset_bytes = (size_t)(b->at - b->memory);
    b->at += size + 1;
    return true;
}

static bool bind_path(struct binder *b)
{
    for (size_t i = 0; i < b->route->param_count; i++) {
        const struct param *param = &b->route->params[i];

        if (param->place == IN_PATH &&
            !bind_scalar(b, param, b->inputs->segments[param->path_segment], false))
            return false;
    }
    return true;
}

/* name=value or name, between ampersands. */
struct pair {
    struct raw_text name, value; /* raw */
};

static bool next_pair(struct raw_text *query, struct pair *out)
{
    while (query->size_bytes > 0) {
        const char *start = query->data, *ampersand = memchr(start, '&', query->size_bytes);
        size_t size = ampersand != NULL ? (size_t)(ampersand - start) : query->size_bytes;
        const char *equals = memchr(start, '=', size);
        size_t name_size = equals != NULL ? (size_t)(equals - start) : size;
        size_t step = size + (ampersand != NULL);

        query->data += step;
        query->size_bytes -= step;
        if (size == 0)
            continue;
        out->name = (struct raw_text){start, name_size};
        out->value = equals != NULL ? (struct raw_text){equals + 1, size - name_size - 1}
                                    : (struct raw_text){start + size, 0};
        return true;
    }
    return false;
}

/* The parameter a pair is for, its name decoded in the free part; NULL: refused. */
static const struct param *param_of_pair(struct binder *b, const struct pair *pair)
{
    const struct param *param;
    size_t size;

    if (!percent_decode(pair->name.data, pair->name.size_bytes, true, b->at, &size)) {
        (void)error_set(b->err, "a parameter's name has a percent sign that starts no escape");
        (void)refuse(b, REASON_BAD_PARAMETER);
        return NULL;
    }
    param = memchr(b->at, '\0', size) == NULL ? find_param(b->route, IN_QUERY, b->at, size) : NULL;
    if (param == NULL)
        (void)refuse_name(b, "unknown", b->at, size);
    return param;
}

/* Is the pair, whose name was not decoded yet, for this parameter? Names hold no escapes as a rule.
 */
static bool is_pair_of(struct binder *b, const struct pair *pair, const struct param *param)
{
    size_t size;

    return percent_decode(pair->name.data, pair->name.size_bytes, true, b->at, &size) &&
           strlen(param->name) == size && memcmp(param->name, b->at, size) == 0;
}

/* The literal grows at the low end of the free part, each element is decoded above it first. What
 * an element needs at most (2 n + 3) its pair has brought (see text_limit()). */
static bool add_element(struct binder *b, const struct param *param, struct array_literal *literal,
                        struct raw_text raw)
{
    char *scratch = b->end - raw.size_bytes - 1, *kept = b->at;
    size_t size;
    bool is_good;

    b->at = scratch;
    is_good = decode_value(b, param, raw, true, &size);
    b->at = kept;
    if (is_good)
        array_literal_add(literal, scratch, size);
    return is_good;
}

/* All elements at once, from here to the end of the query; later pairs of the name are then
 * skipped. */
static bool bind_array(struct binder *b, const struct param *param, const struct pair *first,
                       struct raw_text rest)
{
    struct slot *slot = slot_of(b, param);
    struct array_literal literal;
    struct pair pair = *first;
    bool is_more = true;

    slot->is_given = true;
    slot->offset_bytes = (size_t)(b->at - b->memory);
    array_literal_begin(&literal, b->at, param->type.delimiter);
    while (is_more) {
        b->at = literal.at;
        if (!add_element(b, param, &literal, pair.value))
            return false;
        b->at = literal.at;
        do {
            is_more = next_pair(&rest, &pair);
        } while (is_more && !is_pair_of(b, &pair, param));
    }
    b->at = array_literal_end(&literal);
    return true;
}

static bool bind_query(struct binder *b)
{
    struct raw_text rest = b->inputs->query;
    struct pair pair;

    if (rest.data == NULL)
        return true;
    while (next_pair(&rest, &pair)) {
        const struct param *param = param_of_pair(b, &pair);

        if (param == NULL)
            return false;
        if (!param->type.is_array) {
            if (!bind_scalar(b, param, pair.value, true))
                return false;
        } else if (!slot_of(b, param)->is_given && !bind_array(b, param, &pair, rest)) {
            return false;
        }
    }
    return true;
}

/* How often it came; *out is the first. Both spellings count, x_tenant and x-tenant: many proxies
 * drop names with underscores, and those that don't set the other one beside the caller's. */
static size_t find_header(const struct raw_inputs *inputs, const struct param *param,
                          struct raw_text *out)
{
    char dashed[sizeof param->type.name];
    struct raw_text other = {NULL, 0};
    size_t i = 0, count, other_count;

    *out = other;
    if (inputs->header == NULL)
        return 0;
    count = inputs->header(inputs->header_ctx, param->name, out);
    if (strchr(param->name, '_') == NULL)
        return count;
    for (; param->name[i] != '\0' && i + 1 < sizeof dashed; i++)
        dashed[i] = (char)(param->name[i] == '_' ? '-' : param->name[i]);
    dashed[i] = '\0';
    other_count = inputs->header(inputs->header_ctx, dashed, &other);
    if (count == 0)
        *out = other;
    return count + other_count;
}

static bool bind_header(struct binder *b, const struct param *param)
{
    struct raw_text raw;
    size_t count = find_header(b->inputs, param, &raw);

    if (count == 0)
        return true;
    if (count > 1) {
        (void)error_set(b->err, "given more than once");
        return refuse_value(b, param);
    }
    memcpy(b->at, raw.data, raw.size_bytes);
    b->at[raw.size_bytes] = '\0';
    if (!check_value(b, param, b->at, raw.size_bytes))
        return false;
    *slot_of(b, param) = (struct slot){(size_t)(b->at - b->memory), true};
    b->at += raw.size_bytes + 1;
    return true;
}

static bool bind_headers(struct binder *b)
{
    for (size_t i = 0; i < b->route->param_count; i++) {
        const struct param *param = &b->route->params[i];

        if (param->place == IN_HEADER && !bind_header(b, param))
            return false;
    }
    return true;
}

/* What kind of JSON value may stand for a type; only PostgreSQL knows what its other types take. */
static const char *json_problem(const struct param_type *type, enum json_input_kind kind)
{
    bool is_number =
        type->check == CHECK_INTEGER || type->check == CHECK_NUMERIC || type->check == CHECK_FLOAT;

    switch (kind) {
    case JSON_INPUT_STRING:
        return NULL;
    case JSON_INPUT_NUMBER:
        return is_number || type->check == CHECK_SERVER ? NULL : "a JSON number does not fit";
    case JSON_INPUT_TRUE:
    case JSON_INPUT_FALSE:
        return type->check == CHECK_BOOL || type->check == CHECK_SERVER
                   ? NULL
                   : "a JSON boolean does not fit";
    case JSON_INPUT_ARRAY:
        return "a JSON array does not fit";
    case JSON_INPUT_OBJECT:
        return "a JSON object does not fit";
    case JSON_INPUT_NULL:
        break;
    }
    return "a JSON null does not fit";
}

static bool refuse_json(struct binder *b, const struct param *param, const char *problem)
{
    (void)error_set(b->err, "%s", problem);
    return refuse_value(b, param);
}

/* The text of one JSON value that is not null, into `out` (raw_bytes + 1 long), checked. */
static bool read_json(struct binder *b, const struct param *param,
                      const struct json_input_value *value, char *out, size_t *out_size)
{
    bool is_raw = param->type.check == CHECK_JSON;
    const char *problem = is_raw ? NULL : json_problem(&param->type, value->kind);

    if (problem != NULL)
        return refuse_json(b, param, problem);
    if (value->has_nul)
        return refuse_json(b, param, "holds a NUL character");
    if (value->has_lone_surrogate)
        return refuse_json(b, param, "holds half of a surrogate pair");
    if (value->kind == JSON_INPUT_STRING && !is_raw) {
        *out_size = json_input_decode(value, out);
    } else {
        memcpy(out, value->raw, value->raw_bytes);
        *out_size = value->raw_bytes;
    }
    out[*out_size] = '\0';
    return check_value(b, param, out, *out_size);
}

static bool bind_json_array(struct binder *b, const struct param *param,
                            const struct json_input_value *array)
{
    struct slot *slot = slot_of(b, param);
    struct json_input inside;
    struct json_input_value element;
    struct array_literal literal;
    size_t size;

    if (array->kind != JSON_INPUT_ARRAY)
        return refuse_json(b, param, "not a JSON array");
    inside = json_input_open(array);
    slot->offset_bytes = (size_t)(b->at - b->memory);
    array_literal_begin(&literal, b->at, param->type.delimiter);
    while (json_input_next_element(&inside, &element)) {
        char *scratch = b->end - element.raw_bytes - 1;

        if (element.kind == JSON_INPUT_NULL) {
            array_literal_add_null(&literal);
            continue;
        }
        if (!read_json(b, param, &element, scratch, &size))
            return false;
        array_literal_add(&literal, scratch, size);
    }
    b->at = array_literal_end(&literal);
    return true;
}

static bool bind_json_value(struct binder *b, const struct param *param,
                            const struct json_input_value *value)
{
    struct slot *slot = slot_of(b, param);
    size_t size;

    if (value->kind == JSON_INPUT_NULL)
        return true; /* as if it were absent */
    if (param->type.is_array)
        return bind_json_array(b, param, value);
    if (!read_json(b, param, value, b->at, &size))
        return false;
    slot->offset_bytes = (size_t)(b->at - b->memory);
    b->at += size + 1;
    return true;
}

static bool bind_member(struct binder *b, unsigned place, const struct json_input_value *name,
                        const struct json_input_value *value)
{
    const struct param *param = NULL;
    struct slot *slot;
    size_t size;

    if (name->has_lone_surrogate) {
        (void)error_set(b->err, "a parameter's name holds half of a surrogate pair");
        return refuse(b, REASON_BAD_PARAMETER);
    }
    size = json_input_decode(name, b->at);
    if (!name->has_nul)
        param = find_param(b->route, place, b->at, size);
    if (param == NULL)
        return refuse_name(b, "unknown", b->at, size);
    slot = slot_of(b, param);
    /* What was named, not what has a value: a doubled null is a doubled name too. */
    if (slot->is_given) {
        (void)error_set(b->err, "given more than once");
        return refuse_value(b, param);
    }
    slot->is_given = true;
    return bind_json_value(b, param, value);
}

/* The members of a JSON object, as parameters of this place. */
static bool bind_members(struct binder *b, unsigned place, const char *what, struct raw_text text)
{
    struct json_input in;
    struct json_input_value object, name, value;

    json_input_init(&in, text.data, text.size_bytes);
    if (!json_input_document(&in, &object)) {
        (void)error_set(b->err, "%s is not JSON: %s (at byte %zu)", what, in.problem, in.at + 1);
        return refuse(b, REASON_BAD_BODY);
    }
    if (object.kind != JSON_INPUT_OBJECT) {
        (void)error_set(b->err, "%s must be a JSON object", what);
        return refuse(b, REASON_BAD_BODY);
    }
    in = json_input_open(&object);
    while (json_input_next_member(&in, &name, &value))
        if (!bind_member(b, place, &name, &value))
            return false;
    return true;
}

static bool bind_body(struct binder *b)
{
    struct raw_text body = b->inputs->body;

    if (body.data != NULL && body.size_bytes > 0)
        return bind_members(b, IN_BODY, "the body", body);
    if (!route_has_body_params(b->route))
        return true;
    (void)error_set(b->err, "the body must be a JSON object, and there is none");
    return refuse(b, REASON_BAD_BODY);
}

/* What is absent (or a JSON null) is its default, or NULL, or missed. */
static bool fill_absent(struct binder *b)
{
    for (size_t i = 0; i < b->route->param_count; i++) {
        const struct param *param = &b->route->params[i];

        if (b->slots[i].offset_bytes != 0)
            continue;
        if (param->default_text != NULL) {
            size_t size = strlen(param->default_text) + 1;

            memcpy(b->at, param->default_text, size);
            b->slots[i].offset_bytes = (size_t)(b->at - b->memory);
            b->at += size;
        } else if (!param->is_optional) {
            (void)error_set(b->err, "missing, and it is required");
            return refuse_value(b, param);
        }
    }
    return true;
}

/* The most that the values can need. A scalar, decoded, is never longer than what came. An element
 * of n bytes becomes 2 n + 3 at most (every byte escaped, quotes, delimiter) and brought more than
 * n (name or comma): at worst "", of a jsonb[], 7 bytes for 3. With the room to decode one element
 * at the far end, three times what came holds any mix of them. */
static size_t text_limit(const struct route *route, size_t came_bytes)
{
    size_t factor = 1, sum = 64;

    for (size_t i = 0; i < route->param_count; i++) {
        const struct param *param = &route->params[i];

        sum += 4; /* braces and NUL */
        factor = param->type.is_array ? 3 : factor;
        if (param->default_text != NULL)
            sum += strlen(param->default_text);
    }
    return sum + factor * came_bytes;
}

/* What a request brings for its parameters. */
static size_t request_bytes(const struct route *route, const struct raw_inputs *inputs)
{
    struct raw_text header;
    size_t sum = 0;

    for (size_t i = 0; i < route->param_count; i++) {
        const struct param *param = &route->params[i];

        if (param->place == IN_PATH)
            sum += inputs->segments[param->path_segment].size_bytes;
        if (param->place == IN_HEADER && find_header(inputs, param, &header) > 0)
            sum += header.size_bytes;
    }
    if (inputs->query.data != NULL)
        sum += inputs->query.size_bytes;
    if (inputs->body.data != NULL && route->is_write)
        sum += inputs->body.size_bytes;
    return sum;
}

static bool bind_request(struct binder *b)
{
    return bind_path(b) && bind_query(b) && bind_headers(b) &&
           (!b->route->is_write || bind_body(b)) && fill_absent(b);
}

static bool bind_object(struct binder *b)
{
    return (b->object.data == NULL ||
            bind_members(b, IN_ANY_PLACE, "the text of the parameters", b->object)) &&
           fill_absent(b);
}

/* A large body leaves much of the block unused: what waits with a call should not hold it. */
static void give_back_rest(struct binder *b, size_t *memory_bytes)
{
    size_t used = (size_t)(b->at - b->memory);
    char *smaller;

    if (*memory_bytes - used < SLACK_MAX_BYTES)
        return;
    smaller = realloc(b->memory, used);
    if (smaller == NULL)
        return;
    b->memory = smaller;
    *memory_bytes = used;
}

/* `b` comes with what there is to read. */
static bool bind_all(struct binder *b, size_t text_bytes, bool (*bind_values)(struct binder *b),
                     struct bound_params *out, enum reason *out_reason)
{
    const struct route *route = b->route;
    size_t values_bytes = route->bind_count * sizeof *out->values;
    size_t head_bytes = values_bytes + route->param_count * sizeof(struct slot);
    size_t memory_bytes = head_bytes + text_bytes;

    b->memory = malloc(memory_bytes);
    *out = (struct bound_params){0};
    if (b->memory == NULL) {
        *out_reason = REASON_INTERNAL;
        return error_set(b->err, "out of memory");
    }
    memset(b->memory, 0, head_bytes);
    b->slots = (struct slot *)(void *)(b->memory + values_bytes);
    b->at = b->memory + head_bytes;
    b->end = b->memory + memory_bytes;
    if (!bind_values(b)) {
        free(b->memory);
        *out_reason = b->reason;
        return false;
    }
    give_back_rest(b, &memory_bytes);
    *out = (struct bound_params){.count = route->bind_count,
                                 .values = (const char **)(void *)b->memory,
                                 .memory = b->memory,
                                 .memory_bytes = memory_bytes};
    b->slots = (struct slot *)(void *)(b->memory + values_bytes);
    for (size_t i = 0; i < route->bind_count; i++) {
        size_t offset = b->slots[route->bind_params[i]].offset_bytes;

        out->values[i] = offset != 0 ? b->memory + offset : NULL;
    }
    return true;
}

bool params_bind(const struct route *route, const struct raw_inputs *inputs,
                 struct bound_params *out, enum reason *out_reason, struct error *err)
{
    struct binder b = {.route = route, .inputs = inputs, .err = err};

    return bind_all(&b, text_limit(route, request_bytes(route, inputs)), bind_request, out,
                    out_reason);
}

bool params_bind_object(const struct route *route, struct raw_text object, struct bound_params *out,
                        enum reason *out_reason, struct error *err)
{
    struct binder b = {.route = route, .object = object, .err = err};

    return bind_all(&b, text_limit(route, object.size_bytes), bind_object, out, out_reason);
}

void bound_params_fini(struct bound_params *params)
{
    free(params->memory);
    *params = (struct bound_params){0};
}

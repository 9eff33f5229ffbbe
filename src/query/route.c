#include "query/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

static const char *const method_names[METHOD_COUNT] = {"GET", "POST", "PUT", "PATCH", "DELETE"};
static const char *const result_names[RESULT_KIND_COUNT] = {"many", "one", "value", "exec"};

const char *http_method_name(enum http_method method)
{
    ENSURE((unsigned)method < METHOD_COUNT);
    return method_names[method];
}

bool http_method_parse(const char *text, size_t size_bytes, enum http_method *out_method)
{
    for (unsigned i = 0; i < METHOD_COUNT; i++) {
        if (strlen(method_names[i]) == size_bytes &&
            memcmp(method_names[i], text, size_bytes) == 0) {
            *out_method = (enum http_method)i;
            return true;
        }
    }
    return false;
}

const char *result_kind_name(enum result_kind kind)
{
    ENSURE((unsigned)kind < RESULT_KIND_COUNT);
    return result_names[kind];
}

bool route_has_body_params(const struct route *route)
{
    for (size_t i = 0; i < route->param_count; i++)
        if (route->params[i].place == IN_BODY)
            return true;
    return false;
}

void param_type_name(const struct param_type *type, char out[PARAM_TYPE_NAME_BYTES])
{
    (void)snprintf(out, PARAM_TYPE_NAME_BYTES, "%.63s%s", type->name, type->is_array ? "[]" : "");
}

static void param_fini(struct param *param)
{
    free(param->name);
    free(param->default_text);
    free(param->min_text);
    free(param->max_text);
    if (param->pattern_text != NULL)
        regfree(&param->pattern);
    free(param->pattern_text);
    for (size_t i = 0; i < param->enum_count; i++)
        free(param->enum_texts[i]);
    free(param->enum_texts);
    free(param->example_text);
}

void route_fini(struct route *route)
{
    for (size_t i = 0; i < route->param_count; i++)
        param_fini(&route->params[i]);
    for (size_t i = 0; i < route->segment_count; i++)
        free(route->segments[i].text);
    free(route->params);
    free(route->segments);
    free(route->label);
    free(route->template);
    free(route->description);
    free(route->sql);
    free(route->bind_params);
    free(route->vary);
    free(route->fallback);
    free(route->purges);
    free(route->file);
    free(route->sql_places);
    *route = (struct route){0};
}

/* The byte of the character counted from 1; at most the size of the text. */
static size_t byte_of_character(const char *text, size_t character)
{
    size_t at = 0;

    for (size_t seen = 1; seen < character && text[at] != '\0'; seen++) {
        at++;
        while (((unsigned char)text[at] & 0xC0) == 0x80)
            at++;
    }
    return at;
}

void route_place_of(const struct route *route, size_t sql_character, int *out_line, int *out_column)
{
    size_t target = byte_of_character(route->sql, sql_character), at = 0;
    int line = route->sql_line, column = route->sql_column;

    for (size_t i = 0; i < route->sql_place_count; i++) {
        if (route->sql_places[i].offset_bytes > target)
            break;
        at = route->sql_places[i].offset_bytes;
        line = route->sql_places[i].line;
        column = route->sql_places[i].column;
    }
    for (; at < target; at++) {
        column = route->sql[at] == '\n' ? 1 : column + 1;
        line += route->sql[at] == '\n';
    }
    *out_line = line;
    *out_column = column;
}

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/utf8.h"
#include "cache/cache.h"
#include "plan/endpoint.h"
#include "query/catalog.h"
#include "query/json_input.h"
#include "query/route.h"
#include "web/admin_purge_internal.h"

enum { LONGEST_WORD = 200 }; /* that is said again in an error */

/* ---- the body ---- */

enum member { MEMBER_ROUTE, MEMBER_PARAMETERS, MEMBER_COUNT };

static const char *const member_names[MEMBER_COUNT] = {
    [MEMBER_ROUTE] = "route", [MEMBER_PARAMETERS] = "parameters"};

struct wish {
    bool is_given[MEMBER_COUNT];
    struct json_input_value values[MEMBER_COUNT];
};

/* False: it is too long, or holds what no name has. */
static bool read_word(const struct json_input_value *string, char out[LONGEST_WORD + 1])
{
    if (string->raw_bytes > LONGEST_WORD || string->has_nul || string->has_lone_surrogate)
        return false;
    out[json_input_decode(string, out)] = '\0';
    return true;
}

static bool refuse_member(const char *name, struct error *err)
{
    const char *near = nearest_word(name, member_names, MEMBER_COUNT);

    if (near != NULL)
        return error_set(err, "unknown member \"%s\"; did you mean \"%s\"?", name, near);
    return error_set(err, "unknown member \"%s\": a purge may have \"route\" and \"parameters\"",
                     name);
}

static bool take_member(struct wish *wish, const struct json_input_value *name,
                        const struct json_input_value *value, struct error *err)
{
    char word[LONGEST_WORD + 1];

    if (!read_word(name, word))
        return error_set(err, "a purge may have \"route\" and \"parameters\", and nothing else");
    for (size_t i = 0; i < MEMBER_COUNT; i++) {
        if (strcmp(word, member_names[i]) != 0)
            continue;
        if (wish->is_given[i])
            return error_set(err, "\"%s\" is given more than once", word);
        wish->is_given[i] = true;
        wish->values[i] = *value;
        return true;
    }
    return refuse_member(word, err);
}

static bool check_kinds(const struct wish *wish, struct error *err)
{
    if (wish->is_given[MEMBER_ROUTE] && wish->values[MEMBER_ROUTE].kind != JSON_INPUT_STRING)
        return error_set(err, "\"route\" must be a string: method and path, as in its SQL file");
    if (wish->is_given[MEMBER_PARAMETERS] &&
        wish->values[MEMBER_PARAMETERS].kind != JSON_INPUT_OBJECT)
        return error_set(err, "\"parameters\" must be an object: a value for each name");
    if (wish->is_given[MEMBER_PARAMETERS] && !wish->is_given[MEMBER_ROUTE])
        return error_set(err, "\"parameters\" are those of a route: \"route\" is missing");
    return true;
}

static bool read_wish(struct raw_text body, struct wish *wish, struct error *err)
{
    struct json_input in, inside;
    struct json_input_value root, name, value;

    if (body.size_bytes == 0)
        return error_set(err, "the body is empty: {} purges all that is stored");
    if (!utf8_is_valid(body.data, body.size_bytes))
        return error_set(err, "the body is not valid UTF-8");
    json_input_init(&in, body.data, body.size_bytes);
    if (!json_input_document(&in, &root))
        return error_set(err, "the body is not JSON: %s, at byte %zu", in.problem, in.at);
    if (root.kind != JSON_INPUT_OBJECT)
        return error_set(err, "the body must be an object: {} purges all that is stored");
    inside = json_input_open(&root);
    while (json_input_next_member(&inside, &name, &value))
        if (!take_member(wish, &name, &value, err))
            return false;
    return check_kinds(wish, err);
}

/* ---- which answers? ---- */

static enum reason find_route(const struct purge_place *place, const struct json_input_value *label,
                              const struct route **out_route, struct error *err)
{
    const struct catalog *catalog = place->catalog;
    char word[LONGEST_WORD + 1];
    const char *near;

    if (!read_word(label, word)) {
        (void)error_set(err, "there is no such route");
        return REASON_NOT_FOUND;
    }
    for (size_t i = 0; i < catalog->route_count; i++) {
        if (strcmp(catalog->routes[i].label, word) != 0)
            continue;
        *out_route = &catalog->routes[i];
        return REASON_NONE;
    }
    near = nearest_word(word, place->route_labels, catalog->route_count);
    (void)error_set(err, "there is no route \"%s\"%s%s%s", word,
                    near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                    near != NULL ? "\"?" : "");
    return REASON_NOT_FOUND;
}

/* What earlier purges left is none of this one's entries. */
static void purge_all(const struct purge_place *place, struct purge *out)
{
    (void)cache_sweep(place->cache);
    for (size_t i = 0; i < place->catalog->route_count; i++)
        if (place->catalog->routes[i].is_cached)
            cache_purge_group(place->cache, place->catalog->routes[i].id);
    out->entry_count = cache_sweep(place->cache);
}

static void purge_route(const struct purge_place *place, struct purge *out)
{
    (void)cache_sweep(place->cache);
    cache_purge_group(place->cache, out->route->id);
    out->entry_count = cache_sweep(place->cache);
}

static enum reason purge_one(const struct purge_place *place,
                             const struct json_input_value *parameters, struct purge *out,
                             struct error *err)
{
    struct raw_text object = {parameters->raw, parameters->raw_bytes};
    struct bound_params params;
    struct cache_key key;
    enum reason reason;
    bool has_key;

    if (!params_bind_object(out->route, object, &params, &reason, err))
        return reason;
    has_key = endpoint_key(place->cache, out->route, &params, &key);
    bound_params_fini(&params);
    if (!has_key) {
        (void)error_set(err, "out of memory");
        return REASON_INTERNAL;
    }
    out->entry_count = cache_purge_key(place->cache, &key) ? 1 : 0;
    free((void *)key.bytes);
    return REASON_NONE;
}

enum reason admin_purge(const struct purge_place *place, struct raw_text body, struct purge *out,
                        struct error *err)
{
    struct wish wish = {0};
    enum reason reason;

    *out = (struct purge){0};
    if (!read_wish(body, &wish, err))
        return REASON_BAD_BODY;
    if (!wish.is_given[MEMBER_ROUTE]) {
        purge_all(place, out);
        return REASON_NONE;
    }
    reason = find_route(place, &wish.values[MEMBER_ROUTE], &out->route, err);
    if (reason != REASON_NONE)
        return reason;
    if (!out->route->is_cached) {
        (void)error_set(err, "%s has no @cache: nothing of it is ever stored", out->route->label);
        return REASON_BAD_BODY;
    }
    if (wish.is_given[MEMBER_PARAMETERS])
        return purge_one(place, &wish.values[MEMBER_PARAMETERS], out, err);
    purge_route(place, out);
    return REASON_NONE;
}

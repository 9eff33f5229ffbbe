#include "query/value_check.h"

#include <locale.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "query/decimal.h"
#include "query/json_input.h"

/* A pattern counts characters, so it must be compiled and run in a UTF-8 locale; the process's own
 * is left alone (numbers, messages). (locale_t)0, should it not exist, makes patterns count bytes.
 */
static locale_t utf8_locale;
static pthread_once_t utf8_locale_once = PTHREAD_ONCE_INIT;

static void make_utf8_locale(void)
{
    utf8_locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

/* For this thread alone; hand the result back to uselocale(). */
static locale_t enter_utf8_locale(void)
{
    (void)pthread_once(&utf8_locale_once, make_utf8_locale);
    return uselocale(utf8_locale);
}

/* glibc takes \1, which POSIX ERE does not have, and which can take for ever to match. */
static bool has_back_reference(const char *pattern)
{
    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '\\')
            continue;
        if (pattern[1] >= '1' && pattern[1] <= '9')
            return true;
        pattern += pattern[1] != '\0';
    }
    return false;
}

bool value_pattern_compile(regex_t *out, const char *pattern, struct error *err)
{
    size_t size = strlen(pattern) + sizeof "^()$";
    char *whole = malloc(size), why[128];
    locale_t before;
    int failure;

    if (whole == NULL)
        return error_set(err, "out of memory");
    if (has_back_reference(pattern)) {
        free(whole);
        return error_set(err, "a back-reference is no part of a POSIX extended expression");
    }
    (void)snprintf(whole, size, "^(%s)$", pattern);
    before = enter_utf8_locale();
    failure = regcomp(out, whole, REG_EXTENDED | REG_NOSUB);
    (void)uselocale(before);
    free(whole);
    if (failure == 0)
        return true;
    (void)regerror(failure, out, why, sizeof why);
    return error_set(err, "not a POSIX extended regular expression: %s", why);
}

static bool pattern_matches(const regex_t *pattern, const char *text)
{
    locale_t before = enter_utf8_locale();
    bool matches = regexec(pattern, text, 0, NULL, 0) == 0;

    (void)uselocale(before);
    return matches;
}

bool value_check_text(const char *text, size_t size_bytes, struct error *err)
{
    if (memchr(text, '\0', size_bytes) != NULL)
        return error_set(err, "holds a NUL character");
    if (!utf8_is_valid(text, size_bytes))
        return error_set(err, "not valid UTF-8");
    return true;
}

/* [+-] digits, within the type's range. Counted downwards: there is one more below zero. */
static bool check_integer(const struct param_type *type, const char *text, size_t size_bytes,
                          struct error *err)
{
    bool is_negative = size_bytes > 0 && text[0] == '-';
    size_t i = size_bytes > 0 && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    int64_t value = 0;
    bool is_beyond = false;

    if (i == size_bytes)
        return error_set(err, "not an integer");
    for (; i < size_bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return error_set(err, "not an integer");
        is_beyond = is_beyond || __builtin_mul_overflow(value, 10, &value) ||
                    __builtin_sub_overflow(value, text[i] - '0', &value);
    }
    if (!is_negative && !is_beyond)
        is_beyond = __builtin_sub_overflow((int64_t)0, value, &value);
    if (is_beyond || value < type->least || value > type->greatest)
        return error_set(err, "out of range for %s", type->name);
    return true;
}

static bool check_decimal(const char *text, size_t size_bytes, struct error *err)
{
    struct decimal ignored;

    return decimal_parse(text, size_bytes, &ignored) || error_set(err, "not a number");
}

static bool check_bool(const char *text, size_t size_bytes, struct error *err)
{
    static const char *const words[] = {"true", "false", "t",  "f",   "yes", "no",
                                        "y",    "n",     "on", "off", "1",   "0"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == size_bytes && strncasecmp(text, words[i], size_bytes) == 0)
            return true;
    return error_set(err, "not a boolean (true or false)");
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* 32 hex digits; a dash may follow every fourth; braces around all of it. */
static bool is_uuid(const char *text, size_t size_bytes)
{
    size_t digit_count = 0;
    bool may_dash = false;

    if (size_bytes >= 2 && text[0] == '{') {
        if (text[size_bytes - 1] != '}')
            return false;
        text++;
        size_bytes -= 2;
    }
    for (size_t i = 0; i < size_bytes; i++) {
        if (is_hex(text[i])) {
            digit_count++;
            may_dash = digit_count % 4 == 0 && digit_count < 32;
        } else if (text[i] == '-' && may_dash) {
            may_dash = false;
        } else {
            return false;
        }
    }
    return digit_count == 32;
}

static bool check_json(const char *text, size_t size_bytes, struct error *err)
{
    struct json_input in;
    struct json_input_value value;

    json_input_init(&in, text, size_bytes);
    if (!json_input_document(&in, &value))
        return error_set(err, "not JSON: %s", in.problem);
    if (value.has_nul)
        return error_set(err, "holds a NUL character");
    return !value.has_lone_surrogate || error_set(err, "holds half of a surrogate pair");
}

bool value_check_type(const struct param_type *type, const char *text, size_t size_bytes,
                      struct error *err)
{
    switch (type->check) {
    case CHECK_INTEGER:
        return check_integer(type, text, size_bytes, err);
    case CHECK_NUMERIC:
    case CHECK_FLOAT:
        return check_decimal(text, size_bytes, err);
    case CHECK_BOOL:
        return check_bool(text, size_bytes, err);
    case CHECK_UUID:
        return is_uuid(text, size_bytes) || error_set(err, "not a uuid");
    case CHECK_JSON:
        return check_json(text, size_bytes, err);
    case CHECK_TEXT:
    case CHECK_ZONED:
    case CHECK_SERVER:
        break;
    }
    return true;
}

static bool is_number(const struct param *param)
{
    return param->type.check == CHECK_INTEGER || param->type.check == CHECK_NUMERIC ||
           param->type.check == CHECK_FLOAT;
}

/* Both are numbers. NaN is on neither side of a bound, so that no bound admits it. */
static bool check_bounds(const struct param *param, const char *text, size_t size_bytes,
                         struct error *err)
{
    struct decimal value, bound;

    if (!decimal_parse(text, size_bytes, &value))
        return error_set(err, "not a number");
    if (value.kind == DECIMAL_NAN)
        return error_set(err, "NaN is not within the bounds");
    if (param->min_text != NULL &&
        decimal_parse(param->min_text, strlen(param->min_text), &bound) &&
        decimal_compare(&value, &bound) < 0)
        return error_set(err, "less than %s", param->min_text);
    if (param->max_text != NULL &&
        decimal_parse(param->max_text, strlen(param->max_text), &bound) &&
        decimal_compare(&value, &bound) > 0)
        return error_set(err, "greater than %s", param->max_text);
    return true;
}

static bool check_length(const struct param *param, const char *text, size_t size_bytes,
                         struct error *err)
{
    int64_t length = (int64_t)utf8_count(text, size_bytes);

    if (param->min_length >= 0 && length < param->min_length)
        return error_set(err, "shorter than %lld characters", (long long)param->min_length);
    if (param->max_length >= 0 && length > param->max_length)
        return error_set(err, "longer than %lld characters", (long long)param->max_length);
    return true;
}

/* Numbers are equal as numbers: 1.0 is 1. */
static bool is_equal(const struct param *param, const char *one, const char *other)
{
    struct decimal a, b;

    if (strcmp(one, other) == 0)
        return true;
    return is_number(param) && decimal_parse(one, strlen(one), &a) &&
           decimal_parse(other, strlen(other), &b) && a.kind != DECIMAL_NAN &&
           b.kind != DECIMAL_NAN && decimal_compare(&a, &b) == 0;
}

static bool check_enum(const struct param *param, const char *text, struct error *err)
{
    for (size_t i = 0; i < param->enum_count; i++)
        if (is_equal(param, text, param->enum_texts[i]))
            return true;
    return error_set(err, "not one of the values that are allowed");
}

bool value_check(const struct param *param, const char *text, size_t size_bytes, struct error *err)
{
    if (!value_check_type(&param->type, text, size_bytes, err))
        return false;
    if ((param->min_text != NULL || param->max_text != NULL) &&
        !check_bounds(param, text, size_bytes, err))
        return false;
    if ((param->min_length >= 0 || param->max_length >= 0) &&
        !check_length(param, text, size_bytes, err))
        return false;
    if (param->pattern_text != NULL && !pattern_matches(&param->pattern, text))
        return error_set(err, "does not match the pattern");
    return param->enum_count == 0 || check_enum(param, text, err);
}

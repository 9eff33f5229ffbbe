#include "base/quantity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t factor; /* in microseconds, or in bytes */
    bool may_have_fraction;
};

static const struct unit duration_units[] = {
    {"h", INT64_C(3600000000), true},
    {"m", 60000000, true},
    {"s", 1000000, true},
    {"ms", 1000, false},
};
static const struct unit size_units[] = {
    {"GiB", INT64_C(1) << 30, false},
    {"MiB", INT64_C(1) << 20, false},
    {"KiB", INT64_C(1) << 10, false},
    {"B", 1, false},
};

enum { UNIT_COUNT = 4, MOST_WHOLE_DIGITS = 15, MOST_FRACTION_DIGITS = 9 };

static const int64_t LONGEST_US = INT64_C(365) * 24 * 3600 * 1000000;
static const int64_t LARGEST_BYTES = INT64_C(1) << 40;

/* A number cut into its halves: 1.50 is whole 1, fraction 50, scale 100. */
struct number {
    int64_t whole, fraction, scale;
    size_t size_bytes; /* of its text; 0: no number */
};

/* Reads digits and stops at the first other byte; the value is meaningless past `most` digits. */
static size_t read_digits(const char *text, size_t size_bytes, size_t most, int64_t *out_value)
{
    size_t i = 0;

    *out_value = 0;
    while (i < size_bytes && i <= most && text[i] >= '0' && text[i] <= '9')
        *out_value = *out_value * 10 + (text[i++] - '0');
    return i;
}

static struct number read_number(const char *text, size_t size_bytes)
{
    const struct number none = {.scale = 1};
    struct number n = none;
    size_t digits = read_digits(text, size_bytes, MOST_WHOLE_DIGITS, &n.whole);

    if (digits == 0 || digits > MOST_WHOLE_DIGITS)
        return none;
    n.size_bytes = digits;
    if (digits == size_bytes || text[digits] != '.')
        return n;

    text += digits + 1;
    digits = read_digits(text, size_bytes - digits - 1, MOST_FRACTION_DIGITS, &n.fraction);
    if (digits == 0 || digits > MOST_FRACTION_DIGITS)
        return none;
    n.size_bytes += 1 + digits;
    while (digits-- > 0)
        n.scale *= 10;
    return n;
}

static const struct unit *find_unit(const struct unit *units, const char *name, size_t size_bytes)
{
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (strlen(units[i].name) == size_bytes && memcmp(units[i].name, name, size_bytes) == 0)
            return &units[i];
    return NULL;
}

static bool quantity_parse(const struct unit *units, int64_t most, const char *text,
                           size_t size_bytes, int64_t *out_value)
{
    struct number n = read_number(text, size_bytes);
    const struct unit *unit;
    int64_t rest;

    if (n.size_bytes == 0)
        return false;
    unit = find_unit(units, text + n.size_bytes, size_bytes - n.size_bytes);
    if (unit == NULL || (n.scale > 1 && !unit->may_have_fraction))
        return false;
    if (n.whole > most / unit->factor)
        return false;

    /* 3.6e9 (an hour) times less than 1e9: no overflow. What is finer than 1 us is refused. */
    rest = n.fraction * unit->factor;
    if (rest % n.scale != 0 || n.whole * unit->factor + rest / n.scale > most)
        return false;
    *out_value = n.whole * unit->factor + rest / n.scale;
    return true;
}

bool duration_parse(const char *text, size_t size_bytes, int64_t *out_us)
{
    return quantity_parse(duration_units, LONGEST_US, text, size_bytes, out_us);
}

bool size_parse(const char *text, size_t size_bytes, size_t *out_bytes)
{
    int64_t value;

    if (!quantity_parse(size_units, LARGEST_BYTES, text, size_bytes, &value))
        return false;
    *out_bytes = (size_t)value;
    return true;
}

static void format_seconds(int64_t us, char out_text[32])
{
    size_t end;

    (void)snprintf(out_text, 32, "%s%" PRId64 ".%06d", us < 0 ? "-" : "",
                   us < 0 ? -(us / 1000000) : us / 1000000,
                   (int)(us < 0 ? -(us % 1000000) : us % 1000000));
    end = strlen(out_text);
    while (out_text[end - 1] == '0')
        end--;
    (void)snprintf(out_text + end, 32 - end, "s");
}

void duration_format(int64_t us, char out_text[32])
{
    for (size_t i = 0; us != 0 && i < UNIT_COUNT; i++) {
        if (us % duration_units[i].factor == 0) {
            (void)snprintf(out_text, 32, "%" PRId64 "%s", us / duration_units[i].factor,
                           duration_units[i].name);
            return;
        }
    }
    if (us == 0)
        (void)snprintf(out_text, 32, "0s");
    else
        format_seconds(us, out_text); /* no unit is below a millisecond */
}

void size_format(int64_t bytes, char out_text[32])
{
    size_t i = 0;

    while (i + 1 < UNIT_COUNT && (bytes == 0 || bytes % size_units[i].factor != 0))
        i++;
    (void)snprintf(out_text, 32, "%" PRId64 "%s", bytes / size_units[i].factor, size_units[i].name);
}

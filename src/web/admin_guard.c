#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "web/admin_guard_internal.h"

enum { MAX_NAME_BYTES = 256, MAX_TOKEN_BYTES = 4096 };

bool admin_address_is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (strcasecmp(address, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static bool is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    return digits > 0 && digits <= 5 && text[digits] == '\0';
}

/* The size of the name in "name", "name:port", "[v6]" or "[v6]:port"; *out_rest is what follows. */
static size_t name_size(const char *name, bool is_bracketed, const char **out_rest)
{
    size_t size = strcspn(name, is_bracketed ? "]" : ":");

    *out_rest = name + size;
    if (is_bracketed && name[size] == ']')
        (*out_rest)++;
    else if (is_bracketed)
        size = 0;
    return size;
}

static bool host_split(const char *host, char out_name[MAX_NAME_BYTES])
{
    bool is_bracketed = host[0] == '[';
    const char *name = host + (is_bracketed ? 1 : 0);
    const char *rest;
    size_t size = name_size(name, is_bracketed, &rest);

    if (rest[0] != '\0' && (rest[0] != ':' || !is_port(rest + 1)))
        return false;
    if (!is_bracketed && size > 0 && name[size - 1] == '.')
        size--; /* a name with its root is the same name */
    if (size == 0 || size >= MAX_NAME_BYTES)
        return false;
    memcpy(out_name, name, size);
    out_name[size] = '\0';
    return true;
}

/* "::1" and "0:0:0:0:0:0:0:1" are one address, so compare what they mean. */
static bool is_same_name(const char *a, const char *b)
{
    struct in6_addr a6, b6;

    if (strcasecmp(a, b) == 0)
        return true;
    return inet_pton(AF_INET6, a, &a6) == 1 && inet_pton(AF_INET6, b, &b6) == 1 &&
           memcmp(&a6, &b6, sizeof a6) == 0;
}

static bool is_one_of(const char *name, const struct admin_names *names)
{
    const char *const known[] = {names->address, names->host_name, names->reached_at};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i] != NULL && known[i][0] != '\0' && is_same_name(name, known[i]))
            return true;
    return false;
}

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* A name that no attacker can make a browser reach by DNS: a bare one, as in Compose, or one under
 * a top level that public DNS never has (RFC 6761). */
static bool is_beyond_public_dns(const char *name)
{
    static const char *const reserved[] = {".localhost", ".test", ".example", ".invalid"};
    size_t size = strlen(name);

    if (strspn(name, NAME_CHARACTERS ".") != size)
        return false;
    if (strchr(name, '.') == NULL)
        return true;
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        size_t end = strlen(reserved[i]);

        if (size > end && strcasecmp(name + size - end, reserved[i]) == 0)
            return true;
    }
    return false;
}

bool admin_host_is_known(const char *host, const struct admin_names *names)
{
    char name[MAX_NAME_BYTES];

    if (host == NULL || !host_split(host, name))
        return false;
    return admin_address_is_loopback(name) || is_one_of(name, names) || is_beyond_public_dns(name);
}

/* False: the file cannot be read, is too long for a token, or has none. */
static bool token_read(const char *file, char out_token[MAX_TOKEN_BYTES], size_t *out_size_bytes)
{
    /* O_NONBLOCK: not even a pipe in its place may stop this thread. */
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n;
    size_t size;

    if (fd < 0)
        return false;
    n = read(fd, out_token, MAX_TOKEN_BYTES);
    (void)close(fd);
    if (n <= 0 || n == MAX_TOKEN_BYTES)
        return false;
    size = (size_t)n;
    while (size > 0 && (out_token[size - 1] == '\n' || out_token[size - 1] == '\r'))
        size--;
    *out_size_bytes = size;
    return size > 0;
}

/* Takes as long for the first wrong byte as for the last. `right` is not empty. */
static bool is_equal_in_constant_time(const char *given, size_t given_size, const char *right,
                                      size_t right_size)
{
    volatile unsigned char difference = given_size != right_size;

    for (size_t i = 0; i < given_size; i++)
        difference |=
            (unsigned char)((unsigned char)given[i] ^ (unsigned char)right[i % right_size]);
    return difference == 0;
}

/* What follows "Bearer "; NULL: something else. */
static const char *bearer_of(const char *authorization)
{
    static const char scheme[] = "Bearer ";

    if (authorization == NULL || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return NULL;
    authorization += sizeof scheme - 1;
    return authorization + strspn(authorization, " ");
}

enum token_verdict admin_token_check(const char *authorization, const char *token_file)
{
    const char *given = bearer_of(authorization);
    char right[MAX_TOKEN_BYTES];
    size_t right_size;
    bool is_right;

    if (!token_read(token_file, right, &right_size))
        return TOKEN_UNREADABLE;
    is_right = given != NULL && is_equal_in_constant_time(given, strlen(given), right, right_size);
    explicit_bzero(right, sizeof right);
    return is_right ? TOKEN_RIGHT : TOKEN_WRONG;
}

static bool mode_of(const json_t *root, enum breaker_mode *out_mode, struct error *err)
{
    const char *mode = json_string_value(json_object_get(root, "mode"));

    if (mode == NULL || json_object_size(root) != 1)
        return error_set(err, "the body must be an object with \"mode\" alone, a string");
    if (strcmp(mode, "shadow") == 0)
        return error_set(err, "the mode shadow is not supported yet; use auto, forced-open or "
                              "disabled");
    if (!breaker_mode_parse(mode, out_mode))
        return error_set(err, "the mode must be auto, forced-open or disabled");
    return true;
}

bool admin_mode_parse(const char *body, size_t size_bytes, enum breaker_mode *out_mode,
                      struct error *err)
{
    json_error_t place;
    json_t *root = json_loadb(body != NULL ? body : "", size_bytes, JSON_REJECT_DUPLICATES, &place);
    bool is_fine;

    if (root == NULL)
        return error_set(err, "the body is not JSON: line %d, column %d", place.line, place.column);
    is_fine = mode_of(root, out_mode, err);
    json_decref(root);
    return is_fine;
}

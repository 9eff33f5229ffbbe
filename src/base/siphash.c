/* SPDX-License-Identifier: MIT */
#include "base/siphash.h"

struct sip_state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate_left(uint64_t word, unsigned bits)
{
    return (word << bits) | (word >> (64 - bits));
}

static void sip_round(struct sip_state *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate_left(s->v1, 13) ^ s->v0;
    s->v3 = rotate_left(s->v3, 16) ^ s->v2;
    s->v0 = rotate_left(s->v0, 32);

    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotate_left(s->v1, 17) ^ s->v2;
    s->v3 = rotate_left(s->v3, 21) ^ s->v0;
    s->v2 = rotate_left(s->v2, 32);
}

static void sip_compress(struct sip_state *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

/* Little-endian on every machine, so that a hash means the same everywhere. Compilers make one load
 * of it. */
static uint64_t load_word(const unsigned char *bytes)
{
    uint64_t word = 0;

    for (unsigned i = 0; i < 8; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

/* What is left after the whole words, and the size modulo 256 on top. */
static uint64_t last_word(const unsigned char *rest, size_t size_bytes)
{
    uint64_t word = (uint64_t)(size_bytes & 0xff) << 56;

    for (unsigned i = 0; i < size_bytes % 8; i++)
        word |= (uint64_t)rest[i] << (8 * i);
    return word;
}

/* The constants are the paper's: "somepseudorandomlygeneratedbytes". */
static struct sip_state sip_begin(const struct siphash_key *key)
{
    return (struct sip_state){
        .v0 = key->k0 ^ UINT64_C(0x736f6d6570736575),
        .v1 = key->k1 ^ UINT64_C(0x646f72616e646f6d),
        .v2 = key->k0 ^ UINT64_C(0x6c7967656e657261),
        .v3 = key->k1 ^ UINT64_C(0x7465646279746573),
    };
}

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t size_bytes)
{
    struct sip_state s = sip_begin(key);
    const unsigned char *at = bytes;

    for (size_t words = size_bytes / 8; words > 0; words--, at += 8)
        sip_compress(&s, load_word(at));
    sip_compress(&s, last_word(at, size_bytes));

    s.v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

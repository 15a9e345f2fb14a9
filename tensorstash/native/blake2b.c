/* BLAKE2b (RFC 7693) of many short byte strings: the first 8 bytes of digests of 8 bytes, without a key. */

#include "kernel.h"

enum { LANES = 4, BLOCK = 128, WORDS = BLOCK / 8 };

/* One word of each of LANES strings that are hashed side by side. */
typedef uint64_t Lanes __attribute__((vector_size(8 * LANES)));

static const uint64_t START[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const uint8_t ORDER[10][WORDS] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

INLINE void turn(Lanes *word, const Lanes *other, int by) {
  Lanes both = *word ^ *other;
  *word = (both >> by) | (both << (64 - by));
}

INLINE void stir(Lanes *v, int a, int b, int c, int d, const Lanes *x, const Lanes *y) {
  v[a] += v[b] + *x, turn(&v[d], &v[a], 32), v[c] += v[d], turn(&v[b], &v[c], 24);
  v[a] += v[b] + *y, turn(&v[d], &v[a], 16), v[c] += v[d], turn(&v[b], &v[c], 63);
}

/* A block of each string; `read` is how many bytes of each there were so far, and `last` is all ones in its last. */
INLINE void compress(Lanes *h, const Lanes *m, const Lanes *read, const Lanes *last) {
  Lanes v[16] = {{0}};
  for (int i = 0; i < 8; i++) v[i] = h[i], v[i + 8] += START[i];
  v[12] ^= *read, v[14] ^= *last;
  for (int round = 0; round < 12; round++) {
    const uint8_t *s = ORDER[round % 10];
    for (int i = 0; i < 4; i++) stir(v, i, i + 4, i + 8, i + 12, &m[s[2 * i]], &m[s[2 * i + 1]]);
    for (int i = 0; i < 4; i++)
      stir(v, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, &m[s[2 * i + 8]], &m[s[2 * i + 9]]);
  }
  for (int i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
}

/* Up to LANES strings. A string that is shorter than another in its number of blocks keeps what its last block made. */
INLINE void hash_together(const int64_t *offsets, int64_t n, const char *bytes, const uint64_t *person, uint64_t *out) {
  int64_t longest = 0;
  for (int64_t k = 0; k < n; k++)
    if (offsets[k + 1] - offsets[k] > longest) longest = offsets[k + 1] - offsets[k];
  Lanes h[8] = {{0}};
  for (int i = 0; i < 8; i++) h[i] += START[i];
  h[0] ^= 0x01010008, h[6] ^= person[0], h[7] ^= person[1]; /* 8 bytes, no key, one leaf that is the root */
  for (int64_t at = 0; at == 0 || at < longest; at += BLOCK) {
    uint64_t words[LANES][WORDS] = {{0}};
    Lanes m[WORDS] = {{0}}, read = {0}, last = {0};
    for (int64_t k = 0; k < LANES; k++) {
      int64_t length = k < n ? offsets[k + 1] - offsets[k] : 0, end = least(length, at + BLOCK);
      if (end > at) memcpy(words[k], bytes + offsets[k] + at, (size_t)(end - at));
      read[k] = (uint64_t)end, last[k] = end == length ? UINT64_MAX : 0;
    }
    for (int i = 0; i < WORDS; i++)
      for (int k = 0; k < LANES; k++) m[i][k] = words[k][i];
    compress(h, m, &read, &last);
    for (int64_t k = 0; k < n; k++) {
      int64_t length = offsets[k + 1] - offsets[k];
      if (length <= at + BLOCK && (at == 0 || length > at)) out[k] = h[0][k];
    }
  }
}

INLINE void hash_all(const int64_t *offsets, int64_t count, const char *bytes, const uint64_t *person, uint64_t *out) {
  for (int64_t i = 0; i < count; i += LANES)
    hash_together(offsets + i, least(count - i, LANES), bytes, person, out + i);
}

#ifdef FOR_AVX2
FOR_AVX2 static void hash_avx2(const int64_t *offsets, int64_t count, const char *bytes, const uint64_t *person,
                               uint64_t *out) {
  hash_all(offsets, count, bytes, person, out);
}
#endif

/* String i is bytes[offsets[i]:offsets[i + 1]]; `person` is the personalization, 16 bytes. */
EXPORT int64_t tensorstash_hash(const int64_t *offsets, int64_t count, const char *bytes, int64_t size,
                                const uint64_t *person, uint64_t *out) {
  for (int64_t i = 0; i < count; i++)
    if (offsets[i] < 0 || offsets[i + 1] < offsets[i] || offsets[i + 1] > size) return i;
#ifdef FOR_AVX2
  if (__builtin_cpu_supports("avx2")) {
    hash_avx2(offsets, count, bytes, person, out);
    return DONE;
  }
#endif
  hash_all(offsets, count, bytes, person, out);
  return DONE;
}

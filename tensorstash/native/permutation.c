/* The order of an epoch: a keyed permutation of 0..n-1, evaluated at the positions that are asked for. */

#include "kernel.h"

enum { LANES = 64, ROUNDS = 6 }; /* so many that compilers vectorise loops over them instead of unrolling these */

/* A Feistel network over the cells (left, right) of an a by b grid, a * b >= n, walked until it lands below n. */
typedef struct {
  int64_t n, a, b; /* both sides at most 2^31 */
  uint64_t keys[ROUNDS];
} Permutation;

/* The constants of one permutation per lane. Sides, cells and hashes have 32 bits each, so the 64-bit products of the
 * hash are taken apart into 32-bit ones, which every vector unit has. */
typedef struct {
  uint32_t a[LANES], b[LANES];
  uint32_t key[ROUNDS][LANES]; /* the lower half of a key */
  uint32_t top[ROUNDS][LANES]; /* what the upper half adds to the upper half of the first product */
  double inverse[LANES];       /* of b, a little too small */
} Lanes;

static const uint64_t FIRST = 0x9E3779B97F4A7C15, SECOND = 0xD6E8FEB86659FD93;

static bool is_permutation(const Permutation *p) {
  const int64_t most = (int64_t)1 << 31;
  return p->a >= 1 && p->a <= most && p->b >= 1 && p->b <= most && p->n >= 1 && p->n <= p->a * p->b;
}

static void set_lane(Lanes *lanes, int j, const Permutation *p) {
  lanes->a[j] = (uint32_t)p->a;
  lanes->b[j] = (uint32_t)p->b;
  lanes->inverse[j] = (1.0 - 0x1p-50) / (double)p->b;
  for (int r = 0; r < ROUNDS; r++) {
    lanes->key[r][j] = (uint32_t)p->keys[r];
    lanes->top[r][j] = (uint32_t)(p->keys[r] >> 32) * (uint32_t)FIRST;
  }
}

/* moved = (moved + hash(by, key) * size / 2^32) % size, with h = (by ^ key) * FIRST; h ^= h >> 32; h = h * SECOND >> 32
 */
INLINE void feistel_round(uint32_t *moved, const uint32_t *by, const uint32_t *size, const uint32_t *key,
                          const uint32_t *top) {
  for (int j = 0; j < LANES; j++) {
    uint32_t x = by[j] ^ key[j];
    uint64_t product = (uint64_t)x * (uint32_t)FIRST;
    uint32_t high = (uint32_t)(product >> 32) + x * (uint32_t)(FIRST >> 32) + top[j];
    uint32_t low = (uint32_t)product ^ high;
    uint32_t hash =
        (uint32_t)((uint64_t)low * (uint32_t)SECOND >> 32) + low * (uint32_t)(SECOND >> 32) + high * (uint32_t)SECOND;
    uint32_t sum = moved[j] + (uint32_t)((uint64_t)hash * size[j] >> 32);
    uint32_t less = sum - size[j]; /* wraps to a huge number where sum < size */
    moved[j] = less < sum ? less : sum;
  }
}

INLINE void feistel(const Lanes *lanes, uint64_t *x) {
  uint32_t left[LANES], right[LANES];
  for (int j = 0; j < LANES; j++) { /* x / b and x % b: the quotient by the inverse is right or one too small */
    double value = (double)(int32_t)(x[j] >> 31) * 0x1p31 + (double)(int32_t)(x[j] & 0x7FFFFFFF);
    uint32_t quotient = (uint32_t)(int32_t)(value * lanes->inverse[j]);
    uint32_t rest = (uint32_t)x[j] - quotient * lanes->b[j];
    bool over = rest >= lanes->b[j];
    left[j] = quotient + over;
    right[j] = over ? rest - lanes->b[j] : rest;
  }
  for (int r = 0; r < ROUNDS; r += 2) {
    feistel_round(left, right, lanes->a, lanes->key[r], lanes->top[r]);
    feistel_round(right, left, lanes->b, lanes->key[r + 1], lanes->top[r + 1]);
  }
  for (int j = 0; j < LANES; j++) x[j] = (uint64_t)left[j] * lanes->b[j] + right[j];
}

INLINE void permute_all(const Permutation *all, const int32_t *which, const int64_t *positions, int64_t m,
                        int64_t *ids) {
  Lanes lanes;
  uint64_t x[LANES] = {0}, n[LANES];
  for (int64_t at = 0; at < m; at += LANES) {
    int some = m - at < LANES ? (int)(m - at) : LANES;
    if (which || !at) {
      for (int j = 0; j < LANES; j++) {
        const Permutation *p = which && j < some ? &all[which[at + j]] : all;
        set_lane(&lanes, j, p);
        n[j] = (uint64_t)p->n;
      }
    }
    for (int j = 0; j < LANES; j++) x[j] = j < some ? (uint64_t)positions[at + j] : 0;
    feistel(&lanes, x);
    for (;;) { /* few leave [0, n): the grid has hardly more cells */
      uint64_t again[LANES];
      bool outside = false;
      for (int j = 0; j < LANES; j++) outside |= x[j] >= n[j];
      if (!outside) break;
      memcpy(again, x, sizeof x);
      feistel(&lanes, again);
      for (int j = 0; j < LANES; j++) x[j] = x[j] >= n[j] ? again[j] : x[j];
    }
    for (int j = 0; j < some; j++) ids[at + j] = (int64_t)x[j];
  }
}

/* The ids at m positions, each in the permutation `which` says, or all in the first one without it. */
EXPORT int64_t tensorstash_permute(const Permutation *all, int64_t count, const int32_t *which,
                                   const int64_t *positions, int64_t m, int64_t *ids) {
  for (int64_t k = 0; k < count; k++)
    if (!is_permutation(&all[k])) return MALFORMED;
  if (count < 1) return MALFORMED;
  bool outside = false; /* first whether there is any, because a loop without an exit is vectorised */
  for (int64_t i = 0; !which && i < m; i++) outside |= (uint64_t)positions[i] >= (uint64_t)all->n;
  for (int64_t i = 0; (which || outside) && i < m; i++) {
    int64_t k = which ? which[i] : 0;
    if (k < 0 || k >= count || positions[i] < 0 || positions[i] >= all[k].n) return i;
  }
  permute_all(all, which, positions, m, ids);
  return DONE;
}

/* The order of an epoch: a keyed permutation of 0..n-1, evaluated at the positions that are asked for. */

#include "kernel.h"

#ifdef FOR_AVX2
#include <immintrin.h>
#endif

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

#ifdef FOR_AVX2
#define WIDE FOR_AVX2 INLINE

enum { VECTORS = 4, PER_VECTOR = 4, AT_ONCE = VECTORS * PER_VECTOR }; /* one vector's products while another waits for its own */

typedef __m256i Vector; /* 4 numbers of 64 bits, of which `_mm256_mul_epu32` multiplies the lower halves */

/* As `Lanes`, of one permutation. */
typedef struct {
  Vector n, a, b, key[ROUNDS], top[ROUNDS];
  __m256d inverse;
} Constants;

WIDE Vector same(uint64_t x) { return _mm256_set1_epi64x((int64_t)x); }

WIDE Vector upper(Vector x) { return _mm256_srli_epi64(x, 32); }

WIDE Constants constants_of(const Permutation *p) {
  Constants c = {.n = same((uint64_t)p->n), .a = same((uint64_t)p->a), .b = same((uint64_t)p->b)};
  c.inverse = _mm256_set1_pd((1.0 - 0x1p-50) / (double)p->b);
  for (int r = 0; r < ROUNDS; r++) {
    c.key[r] = same((uint32_t)p->keys[r]);
    c.top[r] = same((uint32_t)(p->keys[r] >> 32) * (uint32_t)FIRST);
  }
  return c;
}

/* As `feistel_round`; the upper halves of `high` and `hash` hold what nothing reads. */
WIDE Vector wide_round(Vector moved, Vector by, Vector size, Vector key, Vector top) {
  Vector x = _mm256_xor_si256(by, key), product = _mm256_mul_epu32(x, same((uint32_t)FIRST));
  Vector more = _mm256_add_epi64(_mm256_mul_epu32(x, same(FIRST >> 32)), top);
  Vector high = _mm256_add_epi64(upper(product), more), low = _mm256_xor_si256(product, high);
  Vector hash = upper(_mm256_mul_epu32(low, same((uint32_t)SECOND)));
  hash = _mm256_add_epi64(hash, _mm256_mul_epu32(low, same(SECOND >> 32)));
  hash = _mm256_add_epi64(hash, _mm256_mul_epu32(high, same((uint32_t)SECOND)));
  Vector sum = _mm256_add_epi64(moved, upper(_mm256_mul_epu32(hash, size)));
  Vector less = _mm256_and_si256(_mm256_sub_epi64(sum, size), same(UINT32_MAX)); /* huge where sum < size */
  return _mm256_min_epu32(sum, less);
}

/* As `feistel`, for cells below 2^52: such a number, as the fraction of a double, is 2^52 less than that double. */
WIDE void wide_feistel(const Constants *c, Vector *x) {
  Vector left[VECTORS], right[VECTORS];
  const __m256d most = _mm256_set1_pd(0x1p52);
  for (int k = 0; k < VECTORS; k++) {
    __m256d value = _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(x[k], _mm256_castpd_si256(most))), most);
    Vector quotient = _mm256_cvtepi32_epi64(_mm256_cvttpd_epi32(_mm256_mul_pd(value, c->inverse)));
    Vector rest = _mm256_sub_epi64(x[k], _mm256_mul_epu32(quotient, c->b));
    Vector under = _mm256_cmpgt_epi64(c->b, rest); /* -1 or 0 */
    left[k] = _mm256_add_epi64(quotient, _mm256_add_epi64(under, same(1)));
    right[k] = _mm256_sub_epi64(rest, _mm256_andnot_si256(under, c->b));
  }
  for (int r = 0; r < ROUNDS; r += 2) {
    for (int k = 0; k < VECTORS; k++) left[k] = wide_round(left[k], right[k], c->a, c->key[r], c->top[r]);
    for (int k = 0; k < VECTORS; k++) right[k] = wide_round(right[k], left[k], c->b, c->key[r + 1], c->top[r + 1]);
  }
  for (int k = 0; k < VECTORS; k++) x[k] = _mm256_add_epi64(_mm256_mul_epu32(left[k], c->b), right[k]);
}

/* The ids at AT_ONCE positions. */
WIDE void wide_walk(const Constants *c, const int64_t *positions, int64_t *ids) {
  Vector x[VECTORS], again[VECTORS];
  for (int k = 0; k < VECTORS; k++) x[k] = _mm256_loadu_si256((const Vector *)(positions + k * PER_VECTOR));
  wide_feistel(c, x);
  for (;;) {
    Vector inside = same(UINT64_MAX);
    for (int k = 0; k < VECTORS; k++) inside = _mm256_and_si256(inside, _mm256_cmpgt_epi64(c->n, x[k]));
    if (_mm256_movemask_epi8(inside) == -1) break;
    memcpy(again, x, sizeof x);
    wide_feistel(c, again);
    for (int k = 0; k < VECTORS; k++) x[k] = _mm256_blendv_epi8(again[k], x[k], _mm256_cmpgt_epi64(c->n, x[k]));
  }
  for (int k = 0; k < VECTORS; k++) _mm256_storeu_si256((Vector *)(ids + k * PER_VECTOR), x[k]);
}

/* In one permutation of fewer than 2^52 cells the rounds stay in registers, which takes half the time. */
FOR_AVX2 static void permute_avx2(const Permutation *all, const int32_t *which, const int64_t *positions, int64_t m,
                                  int64_t *ids) {
  int64_t at = 0;
  if (!which && all->a * all->b < (int64_t)1 << 52) {
    const Constants constants = constants_of(all);
    for (; at + AT_ONCE <= m; at += AT_ONCE) wide_walk(&constants, positions + at, ids + at);
  }
  permute_all(all, which, positions + at, m - at, ids + at);
}
#endif

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
#ifdef FOR_AVX2
  if (__builtin_cpu_supports("avx2")) {
    permute_avx2(all, which, positions, m, ids);
    return DONE;
  }
#endif
  permute_all(all, which, positions, m, ids);
  return DONE;
}

/* Which windows come next, and where they begin: look-ups, the order of an epoch, the draws of mixes and weights. */

#include "kernel.h"

EXPORT int64_t tensorstash_version(void) { return VERSION; }

/* ---- Pieces of the numbers from 0 on, found by a table ---- */

enum { GUIDE_STEPS = 8, AHEAD = 16 };

/* A few steps from where the table points, then bisection, because one entry may stand for a million tiny pieces. */
INLINE int64_t piece_from(const Guide *guide, int64_t k, int64_t number) {
  k += end_of(guide, k) <= number; /* without a branch, which would be mispredicted too often */
  for (int step = 0; step < GUIDE_STEPS; step++) {
    if (end_of(guide, k) > number) return k;
    k++;
  }
  int64_t high = guide->count - 1;
  while (k < high) {
    int64_t middle = k + (high - k) / 2;
    if (end_of(guide, middle) > number) high = middle;
    else k = middle + 1;
  }
  return k;
}

/* The piece of each of n numbers, or its base + stride * number, and then the piece too if anybody wants it. The tables of
 * a million pieces are larger than the caches, so each number passes three stages, `ahead` numbers apart, and each stage
 * asks for the memory of the next. */
INLINE int64_t look_up(const Guide *all, const int64_t *numbers, int64_t n, int64_t ahead, bool located, int64_t stride,
                       int64_t *found, int32_t *pieces) {
  const Guide own = *all, *guide = &own; /* or the compiler would read it again after every number that is written */
  int64_t total = guide->count ? end_of(guide, guide->count - 1) : 0;
  if (guide->width < 1 + located) return MALFORMED;
  for (int64_t i = 0, j = -ahead, k = -2 * ahead; k < n; i++, j++, k++) {
    if (i < n) {
      if (numbers[i] < 0 || numbers[i] >= total || numbers[i] >> guide->shift >= guide->entries) return i;
      __builtin_prefetch(&guide->table[numbers[i] >> guide->shift]);
    }
    if (j >= 0 && j < n) {
      found[j] = guide->table[numbers[j] >> guide->shift];
      if (found[j] < 0 || found[j] >= guide->count) return j;
      __builtin_prefetch(&guide->records[found[j] * guide->width]);
    }
    if (k >= 0) {
      found[k] = piece_from(guide, found[k], numbers[k]);
      if (pieces) pieces[k] = (int32_t)found[k];
      if (located) found[k] = guide->records[found[k] * guide->width + 1] + stride * numbers[k];
    }
  }
  return DONE;
}

int64_t find_pieces(const Guide *guide, const int64_t *numbers, int64_t n, int64_t *k) {
  return look_up(guide, numbers, n, least(AHEAD, n), false, 0, k, NULL); /* n may be 1 */
}

/* The piece of each of n numbers. */
EXPORT int64_t tensorstash_find(const Guide *guide, const int64_t *numbers, int64_t n, int32_t *pieces) {
  int64_t k[FOUND_TOGETHER];
  for (int64_t at = 0; at < n; at += FOUND_TOGETHER) {
    int64_t some = least(n - at, FOUND_TOGETHER), bad = find_pieces(guide, numbers + at, some, k);
    if (bad != DONE) return bad < 0 ? bad : at + bad;
    for (int64_t i = 0; i < some; i++) pieces[at + i] = (int32_t)k[i];
  }
  return DONE;
}

/* base + stride * id for each of n ids, with the base of its piece: the slot at which a window starts. The pieces may be
 * null. */
EXPORT int64_t tensorstash_locate(const Guide *guide, int64_t stride, const int64_t *ids, int64_t n, int64_t *slots,
                                  int32_t *pieces) {
  return pieces ? look_up(guide, ids, n, AHEAD, true, stride, slots, pieces)
                : look_up(guide, ids, n, AHEAD, true, stride, slots, NULL);
}

/* ---- Rows by time: bisection in a range of rows for each window ---- */

enum { BISECTED_TOGETHER = 32 };

/* For each of n ranges of ascending numbers, the first place whose number is at least the bound, or the range's end.
 * A few ranges at a time, so that the memory of one is on its way while the others are looked at. */
EXPORT int64_t tensorstash_first_rows(const int64_t *numbers, int64_t count, const int64_t *low, const int64_t *high,
                                      const int64_t *bounds, int64_t n, int64_t *first) {
  int64_t end[BISECTED_TOGETHER];
  for (int64_t i = 0; i < n; i++)
    if (low[i] < 0 || low[i] > high[i] || high[i] > count) return i;
  for (int64_t at = 0; at < n; at += BISECTED_TOGETHER) {
    int64_t some = least(n - at, BISECTED_TOGETHER);
    for (int64_t i = 0; i < some; i++) {
      first[at + i] = low[at + i], end[i] = high[at + i];
      __builtin_prefetch(&numbers[first[at + i] + (end[i] - first[at + i]) / 2]);
    }
    for (bool open = true; open;) {
      open = false;
      for (int64_t i = 0; i < some; i++) {
        int64_t from = first[at + i], middle = from + (end[i] - from) / 2;
        if (from == end[i]) continue;
        if (numbers[middle] < bounds[at + i]) first[at + i] = from = middle + 1;
        else end[i] = middle;
        __builtin_prefetch(&numbers[from + (end[i] - from) / 2]);
        open |= from < end[i];
      }
    }
  }
  return DONE;
}

/* ---- The order of an epoch: a keyed permutation of 0..n-1, evaluated where it is asked for ---- */

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
FOR_AVX2 static void permute_avx2(const Permutation *all, const int32_t *which, const int64_t *positions, int64_t m,
                                  int64_t *ids) {
  permute_all(all, which, positions, m, ids);
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

/* ---- Draws: the component of a mix and the weight at positions ---- */

/* Of a run of numbers, those that reach a node: their places in `order`, and what the first of them is there. */
typedef struct {
  int64_t begin, end, number;
} Reached;

/* The inner nodes of a binary tree; of the first n numbers that reach a node, (rest + n * two_left) / two_weight go to
 * its left child. A child is a later node, or ~k for leaf k. */
typedef struct {
  const int32_t *child;                        /* (count, 2) */
  const int64_t *two_left, *two_weight, *rest; /* (count,) */
  const double *ratio, *offset;                /* (count,) of an estimate that is right or one too small */
  Reached *reached;                            /* (count,) scratch */
  int32_t *order, *other;                      /* (numbers,) scratch */
  int64_t count;
} Tree;

/* How many of the first n numbers of a node go to its left child, and the remainder. */
INLINE int64_t left_of(const Tree *tree, int64_t node, int64_t n, uint64_t *remainder) {
  uint64_t two_left = (uint64_t)tree->two_left[node], two_weight = (uint64_t)tree->two_weight[node];
  int64_t left = (int64_t)((double)n * tree->ratio[node] + tree->offset[node]);
  /* the products wrap around, but their difference fits */
  uint64_t rest = (uint64_t)n * two_left + (uint64_t)tree->rest[node] - (uint64_t)left * two_weight;
  bool low = rest >= two_weight;
  *remainder = rest - (low ? two_weight : 0);
  return left + low;
}

/* The child that number *n of a node goes to, and its number there. */
INLINE int64_t step_down(const Tree *tree, int64_t node, int64_t *n) {
  uint64_t rest;
  int64_t left = left_of(tree, node, *n, &rest);
  bool right = rest < (uint64_t)(tree->two_weight[node] - tree->two_left[node]);
  *n = right ? *n - left : left;
  return tree->child[2 * node + right];
}

enum { DESCENTS = 8 };

/* Each step down waits for the one before, so several numbers descend in turn, and the next number takes the place of
 * one that has arrived. Inlined, it would have to share its caller's registers, and take half as long again. */
__attribute__((noinline)) static void descend_in_turn(const Tree *tree, const int64_t *numbers, int64_t m,
                                                      int32_t *leaf, int64_t *index) {
  int64_t number[DESCENTS], node[DESCENTS], n[DESCENTS], open = least(DESCENTS, m), next = open;
  for (int64_t j = 0; j < open; j++) number[j] = j, node[j] = 0, n[j] = numbers[j];
  while (open)
    for (int64_t j = 0; j < open; j++) {
      node[j] = step_down(tree, node[j], &n[j]);
      if (node[j] >= 0) continue;
      leaf[number[j]] = (int32_t)~node[j];
      index[number[j]] = n[j];
      if (next < m) number[j] = next, node[j] = 0, n[j] = numbers[next++];
      else open--, number[j] = number[open], node[j] = node[open], n[j] = n[open], j--;
    }
}

/* Those that reached a node go to its children, in their order. How many of them: the left ones. */
INLINE int64_t divide(const Tree *tree, int64_t node, int32_t *order, int64_t m, uint64_t rest) {
  uint64_t two_left = (uint64_t)tree->two_left[node], two_weight = (uint64_t)tree->two_weight[node];
  int64_t left = 0, right = 0;
  for (int64_t i = 0; i < m; i++) { /* without a branch, which would be mispredicted half of the time */
    bool is_left = rest + two_left >= two_weight;
    order[left] = tree->other[right] = order[i];
    left += is_left, right += !is_left;
    rest += two_left - (is_left ? two_weight : 0);
  }
  memcpy(order + left, tree->other, (size_t)right * sizeof *order);
  return left;
}

/* m numbers from `first` on go down node by node: those that reach a node follow each other there too, so that each
 * remainder follows from the one before. */
static void descend_run(const Tree *tree, int64_t first, int64_t m, int32_t *leaf, int64_t *index) {
  for (int64_t i = 0; i < m; i++) tree->order[i] = (int32_t)i;
  for (int64_t k = 0; k < tree->count; k++) tree->reached[k] = (Reached){0};
  tree->reached[0] = (Reached){0, m, first};
  for (int64_t k = 0; k < tree->count; k++) {
    Reached of = tree->reached[k];
    if (of.begin == of.end) continue;
    uint64_t rest;
    int64_t before = left_of(tree, k, of.number, &rest);
    int64_t upto = of.begin + divide(tree, k, tree->order + of.begin, of.end - of.begin, rest);
    Reached halves[2] = {{of.begin, upto, before}, {upto, of.end, of.number - before}};
    for (int side = 0; side < 2; side++) {
      int32_t child = tree->child[2 * k + side];
      if (child >= 0) tree->reached[child] = halves[side];
      for (int64_t i = halves[side].begin; child < 0 && i < halves[side].end; i++) {
        leaf[tree->order[i]] = ~child;
        index[tree->order[i]] = halves[side].number + i - halves[side].begin;
      }
    }
  }
}

enum { SHORTEST_RUN = 16 }; /* shorter ones are faster in turn, even in a tree of one node */

/* Where the run of numbers from `at` on ends, each one more than the last. Most runs shorter than `enough` are noticed by
 * a look ahead, and only their first number is passed: to look for their ends would mispredict a branch each time. */
INLINE int64_t end_of_run(const int64_t *numbers, int64_t at, int64_t m, int64_t enough) {
  if (m - at < enough || numbers[at + enough - 1] != numbers[at] + enough - 1) return at + 1;
  do at++;
  while (at < m && numbers[at] == numbers[at - 1] + 1);
  return at;
}

/* The leaf of each of m numbers below 2^48, and how many smaller numbers have the same leaf. Long runs go down together,
 * and all numbers between two of them in turn. */
EXPORT int64_t tensorstash_descend(const Tree *tree, const int64_t *numbers, int64_t m, int32_t *leaf, int64_t *index) {
  for (int64_t k = 0; k < 2 * tree->count; k++)
    if (tree->child[k] >= tree->count || (tree->child[k] >= 0 && tree->child[k] <= k / 2)) return MALFORMED;
  if (tree->count < 1 || m >> 31) return MALFORMED;
  for (int64_t i = 0; i < m; i++)
    if (numbers[i] < 0 || numbers[i] >> 48) return i;
  int64_t enough = 2 * tree->count, done = 0;
  if (enough < SHORTEST_RUN) enough = SHORTEST_RUN;
  for (int64_t at = 0, upto; at < m; at = upto) {
    upto = end_of_run(numbers, at, m, enough);
    if (upto - at < enough) continue;
    descend_in_turn(tree, numbers + done, at - done, leaf + done, index + done);
    descend_run(tree, numbers[at], upto - at, leaf + at, index + at);
    done = upto;
  }
  descend_in_turn(tree, numbers + done, m - done, leaf + done, index + done);
  return DONE;
}

/* Weight i owns the numbers below 2^52 from ends[i - 1] up to ends[i]; cell c of those, from c << shift on, begins in
 * weight table[c], and one entry more ends the last cell. */
typedef struct {
  const int64_t *ends; /* (count,) ascending */
  const void *table;   /* (entries,) of `width` bytes each, 4 or 8 */
  int64_t count, entries, shift, width;
} Shares;

INLINE uint64_t splitmix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

INLINE int64_t share_of(const Shares *shares, int64_t cell) {
  return shares->width == 4 ? ((const int32_t *)shares->table)[cell] : ((const int64_t *)shares->table)[cell];
}

enum { DRAWN_TOGETHER = 64 };

/* The owners of the upper 52 bits of the hashes of m positions, in stages, each of which asks for the memory of
 * the next. */
EXPORT int64_t tensorstash_draw(const Shares *shares, uint64_t first, uint64_t second, const int64_t *positions,
                                int64_t m, int64_t *owners) {
  int64_t number[DRAWN_TOGETHER], low[DRAWN_TOGETHER], high[DRAWN_TOGETHER];
  if (shares->shift < 0 || shares->shift > 52 || shares->entries <= (int64_t)1 << (52 - shares->shift))
    return MALFORMED;
  if (shares->width != 4 && shares->width != 8) return MALFORMED;
  for (int64_t at = 0; at < m; at += DRAWN_TOGETHER) {
    int64_t some = least(m - at, DRAWN_TOGETHER);
    for (int64_t i = 0; i < some; i++) {
      number[i] = (int64_t)(splitmix(splitmix((uint64_t)positions[at + i] ^ first) ^ second) >> 12);
      __builtin_prefetch((const char *)shares->table + (number[i] >> shares->shift) * shares->width);
    }
    for (int64_t i = 0; i < some; i++) {
      low[i] = share_of(shares, number[i] >> shares->shift);
      high[i] = share_of(shares, (number[i] >> shares->shift) + 1);
      if (low[i] < 0 || high[i] < low[i] || high[i] >= shares->count) return MALFORMED;
      __builtin_prefetch(&shares->ends[low[i] + (high[i] - low[i]) / 2]);
    }
    for (int64_t i = 0; i < some; i++) {
      while (low[i] < high[i]) {
        int64_t middle = low[i] + (high[i] - low[i]) / 2;
        if (shares->ends[middle] <= number[i]) low[i] = middle + 1;
        else high[i] = middle;
      }
      owners[at + i] = low[i];
    }
  }
  return DONE;
}

/* Windows of rows into batches, the order of an epoch, and what else is too slow in numpy: integers and bytes only.
 *
 * Every function does a bounded amount of work, allocates nothing, starts no thread and keeps nothing, so that it may
 * run without the interpreter's lock and in a forked child. Each checks every index first, and writes nothing to a
 * batch before it has: it returns DONE, MALFORMED, or the number of the first index that is out of place. numpy and
 * torch do the same, bit by bit, where this file was not compiled; `library.py` loads it and declares the same structs.
 *
 * C11 for little-endian machines of 64 bits, compiled with -ffp-contract=off: rounding is part of the result.
 */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
/* wheels run on the oldest x86-64, so what profits from newer instructions is compiled twice and chosen when called */
#define FOR_AVX2 __attribute__((target("avx2")))
#define FOR_FMA __attribute__((target("avx2,fma")))
#endif
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

enum { VERSION = 2 }; /* of these functions and structs; `library.py` refuses another */
enum { DONE = -1, MALFORMED = -2 };

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

EXPORT int64_t tensorstash_version(void) { return VERSION; }

/* ---- Pieces of the numbers from 0 on, found by a table ---- */

/* Piece k holds the numbers from ends[k - 1] up to ends[k]; table[i >> shift] is the piece of (i >> shift) << shift. */
typedef struct {
  const int64_t *ends;  /* (count,) ascending */
  const int32_t *table; /* (entries,) */
  int64_t count, entries, shift;
} Guide;

enum { FOUND_TOGETHER = 64, GUIDE_STEPS = 8 };

/* A few steps from where the table points, then bisection, because one entry may stand for a million tiny pieces. */
INLINE int64_t piece_from(const Guide *guide, int64_t k, int64_t number) {
  k += guide->ends[k] <= number; /* without a branch, which would be mispredicted too often */
  for (int step = 0; step < GUIDE_STEPS; step++) {
    if (guide->ends[k] > number) return k;
    k++;
  }
  int64_t high = guide->count - 1;
  while (k < high) {
    int64_t middle = k + (high - k) / 2;
    if (guide->ends[middle] > number) high = middle;
    else k = middle + 1;
  }
  return k;
}

/* The pieces of up to FOUND_TOGETHER numbers; in stages, each of which asks for the memory of the next, because the
 * tables of a million pieces are larger than the caches. If there is a base of each piece, it is asked for too. */
static int64_t find_together(const Guide *guide, const int64_t *base, const int64_t *numbers, int64_t n, int64_t *k) {
  int64_t total = guide->count ? guide->ends[guide->count - 1] : 0;
  for (int64_t i = 0; i < n; i++) {
    if (numbers[i] < 0 || numbers[i] >= total || numbers[i] >> guide->shift >= guide->entries) return i;
    __builtin_prefetch(&guide->table[numbers[i] >> guide->shift]);
  }
  for (int64_t i = 0; i < n; i++) {
    k[i] = guide->table[numbers[i] >> guide->shift];
    if (k[i] < 0 || k[i] >= guide->count) return i;
    __builtin_prefetch(&guide->ends[k[i]]);
    if (base) __builtin_prefetch(&base[k[i]]);
  }
  for (int64_t i = 0; i < n; i++) k[i] = piece_from(guide, k[i], numbers[i]);
  return DONE;
}

/* The piece of each of n numbers. */
EXPORT int64_t tensorstash_find(const Guide *guide, const int64_t *numbers, int64_t n, int32_t *pieces) {
  int64_t k[FOUND_TOGETHER];
  for (int64_t at = 0; at < n; at += FOUND_TOGETHER) {
    int64_t some = least(n - at, FOUND_TOGETHER);
    int64_t bad = find_together(guide, NULL, numbers + at, some, k);
    if (bad >= 0) return at + bad;
    for (int64_t i = 0; i < some; i++) pieces[at + i] = (int32_t)k[i];
  }
  return DONE;
}

/* base[k] + stride * id for each of n ids, k its piece: the slot at which a window starts. */
EXPORT int64_t tensorstash_locate(const Guide *guide, const int64_t *base, int64_t stride, const int64_t *ids,
                                  int64_t n, int64_t *slots) {
  int64_t k[FOUND_TOGETHER];
  for (int64_t at = 0; at < n; at += FOUND_TOGETHER) {
    int64_t some = least(n - at, FOUND_TOGETHER);
    int64_t bad = find_together(guide, base, ids + at, some, k);
    if (bad >= 0) return at + bad;
    for (int64_t i = 0; i < some; i++) slots[at + i] = base[k[i]] + stride * ids[at + i];
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

/* The inner nodes of a binary tree; of the first n numbers that reach a node, (rest + n * two_left) / two_weight go to
 * its left child. A child is a later node, or ~k for leaf k. */
typedef struct {
  const int32_t *child;                        /* (count, 2) */
  const int64_t *two_left, *two_weight, *rest; /* (count,) */
  const double *ratio, *offset;                /* (count,) of an estimate that is right or one too small */
  int64_t count;
} Tree;

/* The leaf of each of m numbers below 2^48, and how many smaller numbers have the same leaf. */
EXPORT int64_t tensorstash_descend(const Tree *tree, const int64_t *numbers, int64_t m, int32_t *leaf, int64_t *index) {
  for (int64_t k = 0; k < 2 * tree->count; k++)
    if (tree->child[k] >= tree->count || (tree->child[k] >= 0 && tree->child[k] <= k / 2)) return MALFORMED;
  for (int64_t i = 0; i < m; i++)
    if (numbers[i] < 0 || numbers[i] >> 48) return i;
  for (int64_t i = 0; i < m; i++) {
    int64_t n = numbers[i], node = 0;
    while (node >= 0) {
      uint64_t two_left = (uint64_t)tree->two_left[node], two_weight = (uint64_t)tree->two_weight[node];
      int64_t left = (int64_t)((double)n * tree->ratio[node] + tree->offset[node]);
      /* the products wrap around, but their difference fits */
      uint64_t rest = (uint64_t)n * two_left + (uint64_t)tree->rest[node] - (uint64_t)left * two_weight;
      bool low = rest >= two_weight;
      left += low;
      rest -= low ? two_weight : 0;
      bool right = rest < two_weight - two_left;
      n = right ? n - left : left;
      node = tree->child[2 * node + right];
    }
    leaf[i] = (int32_t)~node;
    index[i] = n;
  }
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

/* The owners of the upper 52 bits of the hashes of m positions, in stages as in `find_together`. */
EXPORT int64_t tensorstash_draw(const Shares *shares, uint64_t first, uint64_t second, const int64_t *positions,
                                int64_t m, int64_t *owners) {
  int64_t number[FOUND_TOGETHER], low[FOUND_TOGETHER], high[FOUND_TOGETHER];
  if (shares->shift < 0 || shares->shift > 52 || shares->entries <= (int64_t)1 << (52 - shares->shift))
    return MALFORMED;
  if (shares->width != 4 && shares->width != 8) return MALFORMED;
  for (int64_t at = 0; at < m; at += FOUND_TOGETHER) {
    int64_t some = least(m - at, FOUND_TOGETHER);
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

/* ---- Gather ---- */

/* Slots begin, begin + step, ... of a column, relative to a window's anchor. */
typedef struct {
  int64_t begin, length, step;
  int64_t row_bytes, item_bytes; /* a row is one item or, of a pack, several */
  uint64_t empty;                /* the bits of an item where there is no row */
} Span;

/* Rows that windows are taken from. Without fragments, windows count in rows. With them, they count in slots: fragment
 * k is the rows row[k] up to row[k] + rows[k], at the slots from first[k] on; its piece in the guide goes on to the
 * next. */
typedef struct {
  int64_t rows;
  const int64_t *first, *row, *count; /* (guide.count,) */
  Guide guide;
} Source;

typedef struct {
  const Span *spans;
  const Source *sources;
  const char *const *columns; /* (source_count, span_count) where the first row of each is */
  int64_t span_count, source_count;
  int64_t history, horizon; /* slots of a window before its anchor, and from it on */
} Plan;

/* The windows of a call: `steps` batches of `size` windows each. */
typedef struct {
  const int64_t *anchors; /* (steps, size) */
  const int32_t *which;   /* (steps, size) the source of each, or null where there is only one */
  int64_t
      *places; /* (steps, size) scratch: the anchor's row, or ~k for a window with empty slots that begins at piece k */
  char *const *out;      /* (steps, span_count) where the (size, length) rows of each go */
  char *const *observed; /* (steps, span_count) likewise a byte per slot, and null where nobody wants it; or null */
  int64_t size, steps;
} Batches;

/* Cache lines asked for ahead of the window that is copied: enough to hide memory behind copying, and a small part of
 * the second cache, which they go to: the first one can wait for far fewer lines at a time, and then copying waits as
 * well. Of a longer window only so many are asked for; then the processor has noticed that it is a stream. */
enum { LINE = 64, LINES_AHEAD = 128, PAGE = 4096 };

INLINE int64_t ceil_div(int64_t a, int64_t b) { return b == 1 ? a : (a + b - 1) / b; } /* for 0 <= a */

/* n items of a fixed size, one in every step: the compiler knows the size where this is called. */
INLINE void copy_items(char *to, const char *from, int64_t n, int64_t step, size_t bytes) {
  for (int64_t i = 0; i < n; i++) memcpy(to + i * (int64_t)bytes, from + i * step, bytes);
}

INLINE void copy_rows(char *to, const char *from, int64_t n, const Span *span) {
  int64_t bytes = span->row_bytes, step = span->step * bytes;
  if (n == 1 || span->step == 1) {
    int64_t all = n * bytes;
    if (all == 4) memcpy(to, from, 4); /* without a call */
    else if (all == 8) memcpy(to, from, 8);
    else memcpy(to, from, (size_t)all);
  } else if (bytes == 1) copy_items(to, from, n, step, 1);
  else if (bytes == 2) copy_items(to, from, n, step, 2);
  else if (bytes == 4) copy_items(to, from, n, step, 4);
  else if (bytes == 8) copy_items(to, from, n, step, 8);
  else copy_items(to, from, n, step, (size_t)bytes);
}

enum { CHUNK = 64 };

/* Copies n bytes and up to a chunk more: a loop that ends at another byte each time is mispredicted each time. */
INLINE void copy_over(char *to, const char *from, int64_t n) {
  int64_t at = 0;
  do memcpy(to + at, from + at, CHUNK);
  while ((at += CHUNK) < n);
}

/* Writes n bytes, the same eight again and again, and up to seven more if there is room behind them. */
INLINE void fill(char *to, int64_t n, uint64_t bits, int64_t room) {
  int64_t at = 0;
  for (; at + (room >= 8 ? 0 : 7) < n; at += 8) memcpy(to + at, &bits, 8);
  for (; at < n; at++) to[at] = (char)(bits >> 8 * (at & 7)); /* little-endian */
}

/* The lowest bytes of some bits, as often as eight bytes hold them. */
static uint64_t repeated(uint64_t bits, int64_t bytes) {
  for (int64_t n = 8 * bytes; n < 64; n *= 2) bits = bits << n | (bits & (((uint64_t)1 << n) - 1));
  return bits;
}

static bool is_plan(const Plan *plan) {
  for (int64_t s = 0; s < plan->span_count; s++) {
    const Span *span = &plan->spans[s];
    int64_t item = span->item_bytes;
    if (span->length < 1 || span->step < 1 || (item != 1 && item != 2 && item != 4 && item != 8)) return false;
    if (span->row_bytes < item || span->row_bytes % item) return false;
    /* by division: the product might not fit */
    if (span->begin < -plan->history || span->begin >= plan->horizon) return false;
    if (span->length - 1 > (plan->horizon - 1 - span->begin) / span->step) return false;
  }
  return plan->source_count >= 1 && plan->history >= 0 && plan->horizon >= 0;
}

/* The place of a window of which piece k is the first, or MALFORMED if one of its rows is not there. */
INLINE bool place(const Source *source, const Plan *plan, int64_t anchor, int64_t k, int64_t *found) {
  int64_t length = plan->history + plan->horizon, start = anchor - plan->history;
  bool whole = start >= source->first[k] && start + length <= source->first[k] + source->count[k];
  *found = whole ? source->row[k] + anchor - source->first[k] : ~k;
  for (; k < source->guide.count && source->first[k] < start + length; k++)
    if (source->count[k] < 0 || source->row[k] < 0 || source->row[k] > source->rows - source->count[k]) return false;
  return true;
}

/* Checks all windows of a call and writes their places; nothing is copied yet. */
static int64_t find_places(const Plan *plan, const Batches *batches) {
  int64_t n = batches->size * batches->steps, starts[FOUND_TOGETHER], k[FOUND_TOGETHER];
  for (int64_t at = 0, some; at < n; at += some) {
    int64_t w = batches->which ? batches->which[at] : 0;
    if (w < 0 || w >= plan->source_count) return at;
    const Source *source = &plan->sources[w];
    int64_t upto = source->guide.count ? source->guide.ends[source->guide.count - 1] : source->rows;
    for (some = 0; some < FOUND_TOGETHER && at + some < n; some++) { /* neighbours of one source go together */
      if (batches->which && batches->which[at + some] != w) break;
      int64_t anchor = batches->anchors[at + some];
      if (anchor < plan->history || anchor > upto - plan->horizon) return at + some;
      starts[some] = anchor - plan->history;
      batches->places[at + some] = anchor;
    }
    if (!source->guide.count) continue;
    int64_t bad = find_together(&source->guide, NULL, starts, some, k);
    if (bad >= 0) return at + bad;
    for (int64_t i = 0; i < some; i++) {
      __builtin_prefetch(&source->first[k[i]]);
      __builtin_prefetch(&source->row[k[i]]);
      __builtin_prefetch(&source->count[k[i]]);
    }
    for (int64_t i = 0; i < some; i++)
      if (!place(source, plan, starts[i] + plan->history, k[i], &batches->places[at + i])) return at + i;
  }
  return DONE;
}

/* Windows are cut into pieces once for all spans of the same slots, because that takes as long as copying them. */
typedef struct {
  int64_t slot;         /* the first, counted through all windows of the batch */
  int64_t empty, count; /* slots without a row, and then rows that follow each other, */
  int64_t row;          /* from this one on */
  int64_t spare;        /* so many slots and rows behind them may be written and read too: they are written later */
  int32_t step, source;
} Piece;

/* Rows of some pieces that follow each other: those of a window mostly do, across its empty slots. */
typedef struct {
  int64_t row, count, source;
  int64_t end; /* the number of the piece behind them */
} Stretch;

enum { PIECES = 1024 };

typedef struct {
  int64_t pieces, stretches;
  Piece piece[PIECES];
  Stretch stretch[PIECES];
} Tile;

/* Where the next piece begins: a window of a step, a slot in it, and a fragment of its source. */
typedef struct {
  int64_t step, i, slot, k;
} Cut;

/* The next piece of a window in fragments, whose span begins at the slot `start` of its source. */
INLINE Piece next_piece(const Source *source, const Span *span, int64_t start, Cut *at) {
  int64_t length = span->length, step = span->step, from, upto, row;
  do { /* the first fragments may lie before the span */
    bool any = at->k < source->guide.count;
    int64_t low = any ? source->first[at->k] - start : length * step, high = any ? low + source->count[at->k] : low;
    from = low <= at->slot * step ? at->slot : least(ceil_div(low, step), length);
    upto = high <= from * step ? from : least(ceil_div(high, step), length);
    row = any ? source->row[at->k++] + from * step - low : 0;
  } while (upto == from && from < length);
  Piece piece = {at->slot, from - at->slot, upto - from, row, 0, (int32_t)at->step, 0};
  at->slot = upto;
  return piece;
}

/* Adds a piece, and its rows to the last stretch if they are the next of the same window. */
INLINE void add(Tile *tile, Piece piece, bool joins) {
  Stretch *last = joins ? &tile->stretch[tile->stretches - 1] : NULL;
  tile->piece[tile->pieces++] = piece;
  if (last && (!piece.count || last->row + last->count == piece.row)) last->count += piece.count, last->end++;
  else tile->stretch[tile->stretches++] = (Stretch){piece.row, piece.count, piece.source, tile->pieces};
}

/* Cuts as many windows as there is room for, where the last call ended. */
static void cut(const Plan *plan, const Batches *batches, const Span *span, Cut *at, Tile *tile) {
  tile->pieces = tile->stretches = 0;
  for (; at->step < batches->steps; at->i = 0, at->step++)
    for (; at->i < batches->size; at->slot = 0, at->i++) {
      int64_t number = at->step * batches->size + at->i, row = batches->places[number];
      int64_t w = batches->which ? batches->which[number] : 0, before = at->i * span->length;
      if (tile->pieces == PIECES) return;
      if (row >= 0) {
        add(tile, (Piece){before, 0, span->length, row + span->begin, 0, (int32_t)at->step, (int32_t)w}, false);
        continue;
      }
      const Source *source = &plan->sources[w];
      if (!at->slot) at->k = ~row;
      for (bool joins = false; at->slot < span->length; joins = span->step == 1) {
        if (tile->pieces == PIECES) return;
        Piece piece = next_piece(source, span, batches->anchors[number] + span->begin, at);
        if (span->step == 1 && at->slot < span->length) /* what is behind a window might not have been asked for */
          piece.spare =
              least((batches->size - at->i) * span->length - at->slot, source->rows - piece.row - piece.count);
        piece.slot += before;
        piece.source = (int32_t)w;
        add(tile, piece, joins);
      }
    }
}

INLINE void copy_piece(const Piece *piece, const Span *span, uint64_t empty, const char *column, char *to, char *seen) {
  int64_t bytes = span->row_bytes, count = piece->count, spare = piece->spare;
  const char *from = column + piece->row * bytes;
  to += piece->slot * bytes;
  if (piece->empty) fill(to, piece->empty * bytes, empty, (count + spare) * bytes);
  to += piece->empty * bytes;
  if (spare * bytes >= CHUNK) copy_over(to, from, count * bytes);
  else copy_rows(to, from, count, span);
  if (!seen) return;
  if (piece->empty) fill(seen + piece->slot, piece->empty, 0, count + spare);
  fill(seen + piece->slot + piece->empty, count, 0x0101010101010101, spare);
}

/* Asks for some stretches of a column: first for all of their pages, because the processor looks up several addresses
 * at a time, but copies nothing before it has found those that it was asked for. */
INLINE void ask_for(const Plan *plan, int64_t s, const Stretch *stretch, const Stretch *end) {
  const Span *span = &plan->spans[s];
  int64_t bytes = span->row_bytes, apart = span->step * bytes;
  for (const Stretch *one = stretch; one < end; one++) {
    const char *from = plan->columns[one->source * plan->span_count + s] + one->row * bytes;
    int64_t extent = (one->count - 1) * apart + bytes;
    for (int64_t b = 0; b < extent; b += PAGE) __builtin_prefetch(from + b, 0, 2);
    __builtin_prefetch(from + extent - 1, 0, 2);
  }
  for (const Stretch *one = stretch; one < end; one++) {
    const char *from = plan->columns[one->source * plan->span_count + s] + one->row * bytes;
    int64_t extent = (one->count - 1) * apart + bytes, into = (int64_t)((uintptr_t)from & (LINE - 1));
    if (apart <= LINE)
      for (int64_t b = LINE - into; b < least(extent, LINES_AHEAD * LINE); b += LINE)
        __builtin_prefetch(from + b, 0, 2);
    else
      for (int64_t i = 0, lines = 0; i < one->count && lines < LINES_AHEAD; i++)
        for (int64_t b = 0; b < bytes; b += LINE, lines++) __builtin_prefetch(from + i * apart + b, 0, 2);
  }
}

/* How many windows of a span are asked for together. */
static int64_t block_of(const Span *span) {
  int64_t apart = span->step * span->row_bytes;
  int64_t lines = span->length * (apart <= LINE ? apart : span->row_bytes + LINE) / LINE + 1;
  return lines < LINES_AHEAD ? least(LINES_AHEAD / lines, 64) : 1;
}

/* Copies the pieces of the spans from s up to `end`; always, a block is asked for before the previous one is copied. */
static void copy_tile(const Plan *plan, const Batches *batches, const Tile *tile, int64_t s, int64_t end) {
  int64_t n = tile->stretches, block = block_of(&plan->spans[s]);
  ask_for(plan, s, tile->stretch, tile->stretch + least(block, n));
  for (; s < end; s++) {
    const Span span = plan->spans[s];
    const Piece *piece = tile->piece;
    uint64_t empty = repeated(span.empty, span.item_bytes);
    for (int64_t upto, at = 0; at < n; at = upto) {
      upto = least(at + block, n);
      if (upto == n && s + 1 < end) block = block_of(&plan->spans[s + 1]);
      if (upto < n) ask_for(plan, s, tile->stretch + upto, tile->stretch + least(upto + block, n));
      else if (s + 1 < end) ask_for(plan, s + 1, tile->stretch, tile->stretch + least(block, n));
      for (const Piece *last = tile->piece + tile->stretch[upto - 1].end; piece < last; piece++) {
        int64_t to = piece->step * plan->span_count + s;
        const char *column = plan->columns[piece->source * plan->span_count + s];
        copy_piece(piece, &span, empty, column, batches->out[to], batches->observed ? batches->observed[to] : NULL);
      }
    }
  }
}

static bool same_slots(const Span *one, const Span *two) {
  return one->begin == two->begin && one->length == two->length && one->step == two->step;
}

/* Fills the batches of a few steps: checks first, so that nothing is written where an anchor is out of place. */
EXPORT int64_t tensorstash_gather(const Plan *plan, const Batches *batches) {
  if (!is_plan(plan) || batches->size < 0 || batches->steps < 0) return MALFORMED;
  const Batches own = *batches; /* or the compiler would read it again after every byte that is written */
  int64_t bad = find_places(plan, &own);
  if (bad != DONE) return bad;
  Tile tile;
  for (int64_t s = 0, end; s < plan->span_count; s = end) {
    for (end = s + 1; end < plan->span_count && same_slots(&plan->spans[s], &plan->spans[end]);) end++;
    Cut at = {0, 0, 0, 0};
    for (cut(plan, &own, &plan->spans[s], &at, &tile); tile.pieces; cut(plan, &own, &plan->spans[s], &at, &tile))
      copy_tile(plan, &own, &tile, s, end);
  }
  return DONE;
}

/* ---- Scaling: value * factor + shift, in place ---- */

typedef struct {
  void *values;               /* (windows, slots, items) */
  const void *factor, *shift; /* (groups, items) */
  int64_t slots, items;
  int64_t item_bytes;  /* 4 for float, 8 for double, of all three */
  int64_t rounds_once; /* whether the sum is rounded once, as fma does, or the product before it too */
} Scaled;

/* Constants stand side by side for so many numbers, because an inner loop over the few of a pack's row is slow. */
enum { TILE = 64 };

INLINE void scale_floats(float *values, const float *factor, const float *shift, int64_t n, int64_t items, bool once) {
  float factors[2 * TILE], shifts[2 * TILE];
  int64_t tile = items;
  if (items == 1) {
    float one = *factor, two = *shift;
    for (int64_t i = 0; i < n; i++) values[i] = once ? fmaf(values[i], one, two) : values[i] * one + two;
    return;
  }
  if (items < TILE) {
    for (tile = 0; tile < TILE; tile += items) {
      memcpy(factors + tile, factor, (size_t)items * sizeof *factor);
      memcpy(shifts + tile, shift, (size_t)items * sizeof *shift);
    }
    factor = factors, shift = shifts;
  }
  for (; n > 0; n -= tile, values += tile)
    for (int64_t i = 0; i < least(tile, n); i++)
      values[i] = once ? fmaf(values[i], factor[i], shift[i]) : values[i] * factor[i] + shift[i];
}

INLINE void scale_doubles(double *values, const double *factor, const double *shift, int64_t n, int64_t items,
                          bool once) {
  double factors[2 * TILE], shifts[2 * TILE];
  int64_t tile = items;
  if (items == 1) {
    double one = *factor, two = *shift;
    for (int64_t i = 0; i < n; i++) values[i] = once ? fma(values[i], one, two) : values[i] * one + two;
    return;
  }
  if (items < TILE) {
    for (tile = 0; tile < TILE; tile += items) {
      memcpy(factors + tile, factor, (size_t)items * sizeof *factor);
      memcpy(shifts + tile, shift, (size_t)items * sizeof *shift);
    }
    factor = factors, shift = shifts;
  }
  for (; n > 0; n -= tile, values += tile)
    for (int64_t i = 0; i < least(tile, n); i++)
      values[i] = once ? fma(values[i], factor[i], shift[i]) : values[i] * factor[i] + shift[i];
}

INLINE void scale_all(const Scaled *part, const int64_t *group, int64_t windows, bool once) {
  int64_t n = part->slots * part->items, together = group ? 1 : windows; /* with one group a batch is one long window */
  for (int64_t i = 0; i < windows; i += together) {
    int64_t at = i * n, constants = (group ? group[i] : 0) * part->items;
    if (part->item_bytes == 4)
      scale_floats((float *)part->values + at, (const float *)part->factor + constants,
                   (const float *)part->shift + constants, n * together, part->items, once);
    else
      scale_doubles((double *)part->values + at, (const double *)part->factor + constants,
                    (const double *)part->shift + constants, n * together, part->items, once);
  }
}

#ifdef FOR_AVX2
FOR_FMA static void scale_avx2(const Scaled *part, const int64_t *group, int64_t windows) {
  if (part->rounds_once) scale_all(part, group, windows, true);
  else scale_all(part, group, windows, false);
}
#endif

/* Scales some tensors of a batch, each window by the constants of its group, or all by the first without `group`. */
EXPORT int64_t tensorstash_scale(const Scaled *parts, int64_t count, const int64_t *group, int64_t groups,
                                 int64_t windows) {
  for (int64_t k = 0; k < count; k++)
    if ((parts[k].item_bytes != 4 && parts[k].item_bytes != 8) || parts[k].items < 1 || parts[k].slots < 0)
      return MALFORMED;
  for (int64_t i = 0; group && i < windows; i++)
    if (group[i] < 0 || group[i] >= groups) return i;
  for (int64_t k = 0; k < count; k++) {
#ifdef FOR_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      scale_avx2(&parts[k], group, windows);
      continue;
    }
#endif
    if (parts[k].rounds_once) scale_all(&parts[k], group, windows, true);
    else scale_all(&parts[k], group, windows, false);
  }
  return DONE;
}

/* Look-ups: the piece that holds a number, by a guide table, and the rows of a range of time, by bisection. */

#include "kernel.h"

EXPORT int64_t tensorstash_version(void) { return VERSION; }

enum { GUIDE_STEPS = 8, AHEAD = 16 };

/* A few steps from where the table points, then bisection, because one entry may stand for a million tiny pieces. */
INLINE int64_t piece_from(const Guide *guide, int64_t k, int64_t number) {
  k += end_of(guide, k) <= number; /* without a branch, which would be mispredicted too often */
  for (int step = 0; step < GUIDE_STEPS; step++) {
    if (end_of(guide, k) > number) return k;
    k++;
  }
  return bisect(guide->records, guide->width, k, guide->count - 1, number + 1);
}

/* The piece of each of n numbers, and if they are located its base + stride * number in place of it. The tables of
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
      if (!located) continue;
      pieces[k] = (int32_t)found[k];
      found[k] = guide->records[found[k] * guide->width + 1] + stride * numbers[k];
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

/* base + stride * id for each of n ids, with the base of its piece: the slot at which a window starts; and the pieces. */
EXPORT int64_t tensorstash_locate(const Guide *guide, int64_t stride, const int64_t *ids, int64_t n, int64_t *slots,
                                  int32_t *pieces) {
  return look_up(guide, ids, n, AHEAD, true, stride, slots, pieces);
}

enum { BISECTED_TOGETHER = 32 };

/* For each of n ranges of ascending numbers, the first place whose number is at least the bound, or the range's end.
 * A few ranges at a time, so that the memory of one is on its way while the others are looked at; without a branch on
 * what a number is, which would be mispredicted every second time. */
EXPORT int64_t tensorstash_first_rows(const int64_t *numbers, int64_t count, const int64_t *low, const int64_t *high,
                                      const int64_t *bounds, int64_t n, int64_t *first) {
  int64_t from[BISECTED_TOGETHER], left[BISECTED_TOGETHER];
  for (int64_t i = 0; i < n; i++)
    if (low[i] < 0 || low[i] > high[i] || high[i] > count) return i;
  for (int64_t at = 0; at < n; at += BISECTED_TOGETHER) {
    int64_t some = least(n - at, BISECTED_TOGETHER), most = 0;
    for (int64_t i = 0; i < some; i++) {
      from[i] = low[at + i], left[i] = high[at + i] - low[at + i];
      most = most > left[i] ? most : left[i];
      __builtin_prefetch(&numbers[from[i] + left[i] / 2]);
    }
    for (; most > 0; most /= 2)
      for (int64_t i = 0; i < some; i++) {
        int64_t half = left[i] / 2, middle = from[i] + half;
        const int64_t *number = left[i] ? &numbers[middle] : &bounds[at + i]; /* an empty range may be at the end */
        int64_t before = -(int64_t)(*number < bounds[at + i]); /* all bits, or none */
        from[i] += (half + 1) & before;
        left[i] = half + ((left[i] - 2 * half - 1) & before);
        __builtin_prefetch(&numbers[from[i] + left[i] / 2]);
      }
    memcpy(first + at, from, (size_t)some * sizeof *from);
  }
  return DONE;
}

/* Weighted draws: the owner of the hash of each position, by a table of shares. */

#include "kernel.h"

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
    for (int64_t i = 0; i < some; i++) owners[at + i] = bisect(shares->ends, 1, low[i], high[i], number[i] + 1);
  }
  return DONE;
}

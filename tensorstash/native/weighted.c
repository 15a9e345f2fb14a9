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

/* The owners of the upper 52 bits of the hashes of m positions. */
EXPORT int64_t tensorstash_draw(const Shares *shares, uint64_t first, uint64_t second, const int64_t *positions,
                                int64_t m, int64_t *owners) {
  if (shares->shift < 0 || shares->shift > 52 || shares->entries <= (int64_t)1 << (52 - shares->shift))
    return MALFORMED;
  if (shares->width != 4 && shares->width != 8) return MALFORMED;
  for (int64_t i = 0; i < m; i++) {
    int64_t number = (int64_t)(splitmix(splitmix((uint64_t)positions[i] ^ first) ^ second) >> 12);
    int64_t low = share_of(shares, number >> shares->shift), high = share_of(shares, (number >> shares->shift) + 1);
    if (low < 0 || high < low || high >= shares->count) return MALFORMED;
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (shares->ends[middle] <= number) low = middle + 1;
      else high = middle;
    }
    owners[i] = low;
  }
  return DONE;
}

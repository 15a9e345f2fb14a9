/* Scaling: value * factor + shift, in place. */

#include <math.h>

#include "kernel.h"

typedef struct {
  void *values;               /* (windows, slots, items) */
  const void *factor, *shift; /* (groups, items) */
  int64_t slots, items;
  int64_t item_bytes;  /* 4 for float, 8 for double, of all three */
  int64_t rounds_once; /* whether the sum is rounded once, as fma does, or the product before it too */
} Scaled;

/* Constants stand side by side for so many numbers, because an inner loop over the few of a pack's row is slow. */
enum { TILE = 64 };

/* With one factor and shift for all values, or with one for each. */
INLINE void scale_floats(float *values, const float *factor, const float *shift, int64_t n, bool one, bool once) {
  float a = *factor, b = *shift;
  if (one)
    for (int64_t i = 0; i < n; i++) values[i] = once ? fmaf(values[i], a, b) : values[i] * a + b;
  else
    for (int64_t i = 0; i < n; i++)
      values[i] = once ? fmaf(values[i], factor[i], shift[i]) : values[i] * factor[i] + shift[i];
}

INLINE void scale_doubles(double *values, const double *factor, const double *shift, int64_t n, bool one, bool once) {
  double a = *factor, b = *shift;
  if (one)
    for (int64_t i = 0; i < n; i++) values[i] = once ? fma(values[i], a, b) : values[i] * a + b;
  else
    for (int64_t i = 0; i < n; i++)
      values[i] = once ? fma(values[i], factor[i], shift[i]) : values[i] * factor[i] + shift[i];
}

INLINE void scale_some(char *values, const char *factor, const char *shift, int64_t n, const Scaled *part, bool once) {
  bool one = part->items == 1;
  if (part->item_bytes == 4) scale_floats((float *)values, (const float *)factor, (const float *)shift, n, one, once);
  else scale_doubles((double *)values, (const double *)factor, (const double *)shift, n, one, once);
}

/* n values, by the constants of a group. */
INLINE void scale_window(char *values, const char *factor, const char *shift, int64_t n, const Scaled *part,
                         bool once) {
  double factors[2 * TILE], shifts[2 * TILE];
  int64_t bytes = part->item_bytes, tile = part->items;
  if (tile == 1) tile = n;
  else if (tile < TILE) {
    int64_t row = tile * bytes;
    for (tile = 0; tile < TILE; tile += part->items) {
      memcpy((char *)factors + tile * bytes, factor, (size_t)row);
      memcpy((char *)shifts + tile * bytes, shift, (size_t)row);
    }
    factor = (char *)factors, shift = (char *)shifts;
  }
  for (; n > 0; n -= tile, values += tile * bytes) scale_some(values, factor, shift, least(tile, n), part, once);
}

INLINE void scale_all(const Scaled *part, const int64_t *group, int64_t windows, bool once) {
  int64_t n = part->slots * part->items, together = group ? 1 : windows; /* with one group a batch is one long window */
  for (int64_t i = 0; i < windows; i += together) {
    int64_t at = i * n * part->item_bytes, constants = (group ? group[i] : 0) * part->items * part->item_bytes;
    scale_window((char *)part->values + at, (const char *)part->factor + constants,
                 (const char *)part->shift + constants, n * together, part, once);
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

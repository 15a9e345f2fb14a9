/* Columns of a pack, which lie side by side, into rows of their own. */

#include "kernel.h"

#ifdef FOR_AVX2
#include <immintrin.h>
#endif

/* Bytes of a pack that are read again for each of its columns: they stay in the first cache. */
enum { AT_ONCE = 1 << 14 };

/* n items of a fixed size, which lie `apart` bytes from each other. */
INLINE void copy_items(char *to, const char *from, int64_t n, int64_t apart, size_t bytes) {
  for (int64_t i = 0; i < n; i++) memcpy(to + i * (int64_t)bytes, from + i * apart, bytes);
}

static void copy_column(char *to, const char *from, int64_t n, int64_t apart, int64_t bytes) {
  if (bytes == 1) copy_items(to, from, n, apart, 1);
  else if (bytes == 2) copy_items(to, from, n, apart, 2);
  else if (bytes == 4) copy_items(to, from, n, apart, 4);
  else copy_items(to, from, n, apart, 8);
}

#ifdef FOR_AVX2
/* Eight items of four bytes of each of eight columns that lie side by side. */
FOR_AVX2 static void copy_eight_by_eight(const Column *column, int64_t at, const char *from, int64_t apart) {
  __m256 row[8], pair[8], four[8];
  for (int64_t i = 0; i < 8; i++) row[i] = _mm256_loadu_ps((const float *)(const void *)(from + i * apart));
  for (int64_t i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int64_t i = 0; i < 8; i += 4) {
    four[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    four[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xEE);
    four[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    four[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xEE);
  }
  for (int64_t k = 0; k < 4; k++) {
    _mm256_storeu_ps((float *)(void *)(column[k].to + at), _mm256_permute2f128_ps(four[k], four[k + 4], 0x20));
    _mm256_storeu_ps((float *)(void *)(column[k + 4].to + at), _mm256_permute2f128_ps(four[k], four[k + 4], 0x31));
  }
}

/* The first rows of eight columns that lie side by side, eight at a time; returns how many. */
FOR_AVX2 static int64_t copy_eight(const Column *column, int64_t first, int64_t n, int64_t apart) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) copy_eight_by_eight(column, 4 * (first + i), column->from + (first + i) * apart, apart);
  return i;
}
#endif

void copy_columns(const Column *column, int64_t count, int64_t n, int64_t apart, int64_t bytes) {
  int64_t each = (AT_ONCE / apart + 8) & ~(int64_t)7;
  for (int64_t first = 0, some; first < n; first += some) {
    some = least(each, n - first);
    for (int64_t k = 0, together; k < count; k += together) {
      int64_t done = 0;
      together = 1;
#ifdef FOR_AVX2
      int64_t eight = least(k, count - 8); /* the last ones may have some columns that were copied before */
      if (bytes == 4 && eight >= 0 && column[eight + 7].from == column[eight].from + 28 &&
          __builtin_cpu_supports("avx2"))
        done = copy_eight(&column[eight], first, some, apart), together = eight + 8 - k;
#endif
      for (int64_t j = k; j < k + together && done < some; j++)
        copy_column(column[j].to + (first + done) * bytes, column[j].from + (first + done) * apart, some - done, apart,
                    bytes);
    }
  }
}

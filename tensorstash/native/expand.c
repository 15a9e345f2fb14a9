/* Rows that follow each other into the slots of a window that have one; the others are filled. */

#include "kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
/* wheels run on the oldest x86-64, so what profits from newer instructions is compiled twice and chosen when called */
#define FOR_AVX2 __attribute__((target("avx2")))
#endif

static const uint64_t ALL = 0x0101010101010101; /* eight marks: every slot has a row */

/* Slots with rows of up to 8 bytes, without a branch on a mark, which would be mispredicted too often; returns
 * how many rows. The compiler mostly knows n and `bytes`. */
INLINE int64_t expand_some(char *to, const char *from, int64_t stride, const uint8_t *mark, int64_t n, uint64_t empty,
                           size_t bytes) {
  int64_t rows = 0;
  for (int64_t i = 0; i < n; i++) {
    uint64_t bits = 0;
    memcpy(&bits, from + rows * stride, bytes);
    bits = mark[i] ? bits : empty;
    memcpy(to + i * (int64_t)bytes, &bits, bytes); /* little-endian */
    rows += mark[i];
  }
  return rows;
}

INLINE void expand_all(char *to, const char *from, int64_t stride, const uint8_t *mark, int64_t n, uint64_t empty,
                       size_t bytes) {
  for (; n >= 8; n -= 8, mark += 8, to += 8 * bytes) {
    if (stride == (int64_t)bytes && !memcmp(mark, &ALL, 8)) memcpy(to, from, 8 * bytes), from += 8 * bytes;
    else from += stride * expand_some(to, from, stride, mark, 8, empty, bytes);
  }
  expand_some(to, from, stride, mark, n, empty, bytes);
}

#ifdef FOR_AVX2
/* Slots with rows of four bytes, eight at a time while there are eight rows to read; returns how many slots. */
FOR_AVX2 static int64_t expand_eights(char *to, const char **from, const uint8_t *mark, int64_t n, int64_t count,
                                      uint64_t empty) {
  const __m256i none = _mm256_set1_epi32((int)(uint32_t)empty);
  int64_t i = 0, row = 0;
  for (; i + 8 <= n && row + 8 <= count; i += 8) {
    uint64_t marks;
    memcpy(&marks, mark + i, 8);
    uint64_t rows = marks * ALL; /* byte k: how many rows slots 0 to k have */
    __m256i which = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)(rows - marks)));
    __m256i there = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((int64_t)(marks * 255)));
    __m256i eight = _mm256_loadu_si256((const __m256i *)(const void *)(*from + 4 * row));
    __m256i moved = _mm256_blendv_epi8(none, _mm256_permutevar8x32_epi32(eight, which), there);
    _mm256_storeu_si256((__m256i *)(void *)(to + 4 * i), moved);
    row += (int64_t)(rows >> 56);
  }
  *from += 4 * row;
  return i;
}
#endif

void expand(char *to, const char *from, int64_t count, int64_t step, int64_t bytes, const uint8_t *mark, int64_t n,
            uint64_t empty) {
  int64_t stride = step * bytes, upto = count ? n : 0;
  while (upto && !mark[upto - 1]) upto--; /* behind the last row nothing may be read */
  fill(to + upto * bytes, (n - upto) * bytes, empty);
#ifdef FOR_AVX2
  if (bytes == 4 && step == 1 && __builtin_cpu_supports("avx2")) {
    int64_t at = expand_eights(to, &from, mark, upto, count, empty);
    to += 4 * at, mark += at, upto -= at;
  }
#endif
  if (bytes == 1) expand_all(to, from, stride, mark, upto, empty, 1);
  else if (bytes == 2) expand_all(to, from, stride, mark, upto, empty, 2);
  else if (bytes == 4) expand_all(to, from, stride, mark, upto, empty, 4);
  else if (bytes == 8) expand_all(to, from, stride, mark, upto, empty, 8);
  else expand_all(to, from, stride, mark, upto, empty, (size_t)bytes);
}

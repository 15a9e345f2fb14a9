/* The kernel: which windows come next and where they are (`draws.c`), their bytes (`gather.c`, and `expand.c` where
 * slots are empty), and batches without empty slots (`pack.c`).
 *
 * Every function does a bounded amount of work, allocates nothing, starts no thread and keeps nothing, so that it may
 * run without the interpreter's lock and in a forked child. Each checks every index first, and writes nothing to a
 * batch before it has: it returns DONE, MALFORMED, or the number of the first index that is out of place. numpy and
 * torch do the same, bit by bit, where these files were not compiled; `library.py` declares the same structs.
 *
 * C11 for little-endian machines of 64 bits, compiled with -ffp-contract=off: rounding is part of the result.
 */

#ifndef TENSORSTASH_KERNEL_H
#define TENSORSTASH_KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
/* wheels run on the oldest x86-64, so what profits from newer instructions is compiled twice and chosen when called */
#define FOR_AVX2 __attribute__((target("avx2")))
#endif
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

enum { VERSION = 7 }; /* of the functions and structs; `library.py` refuses another */
enum { DONE = -1, MALFORMED = -2 };
enum { FOUND_TOGETHER = 256 };

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Consecutive pieces of the numbers from 0 on; table[i >> shift] is the piece of (i >> shift) << shift. */
typedef struct {
  const int64_t *records; /* (count, width) the end of each piece, ascending, and its base, if they have one */
  const int32_t *table;   /* (entries,) */
  int64_t count, width, entries, shift;
} Guide;

INLINE int64_t end_of(const Guide *guide, int64_t k) { return guide->records[k * guide->width]; }

/* The pieces of n numbers. */
int64_t find_pieces(const Guide *guide, const int64_t *numbers, int64_t n, int64_t *k);

/* Writes n bytes, the same eight again and again. */
INLINE void fill(char *to, int64_t n, uint64_t bits) {
  int64_t at = 0;
  for (; at + 8 <= n; at += 8) memcpy(to + at, &bits, 8);
  for (; at < n; at++) to[at] = (char)(bits >> 8 * (at & 7)); /* little-endian */
}

/* `count` rows of up to 8 bytes, one in every `step`, into those of n slots whose mark is 1, not 0; `empty` into
 * the others. */
void expand(char *to, const char *from, int64_t count, int64_t step, int64_t bytes, const uint8_t *mark, int64_t n,
            uint64_t empty);

#endif

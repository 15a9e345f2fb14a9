/* The kernel: which windows come next and where they are (`draws.c`), their bytes (`gather.c`), scaling (`scale.c`),
 * and hashes of texts (`blake2b.c`).
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
#define FOR_FMA __attribute__((target("avx2,fma")))
#endif
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

enum { VERSION = 3 }; /* of the functions and structs; `library.py` refuses another */
enum { DONE = -1, MALFORMED = -2 };
enum { FOUND_TOGETHER = 64 };

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Piece k holds the numbers from ends[k - 1] up to ends[k]; table[i >> shift] is the piece of (i >> shift) << shift. */
typedef struct {
  const int64_t *ends;  /* (count,) ascending */
  const int32_t *table; /* (entries,) */
  int64_t count, entries, shift;
} Guide;

/* The pieces of up to FOUND_TOGETHER numbers. If there is a base of each piece, its memory is asked for too. */
int64_t find_together(const Guide *guide, const int64_t *base, const int64_t *numbers, int64_t n, int64_t *k);

#endif

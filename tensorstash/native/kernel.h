/* The kernel: which windows come next (`permutation.c`, `mix.c`, `weighted.c`), where they are (`lookup.c`; by time, as
 * rows were known, `versions.c`), their bytes (`gather.c` and `copy.c`, `expand.c` where slots are empty), and batches
 * without empty slots (`pack.c`).
 *
 * Every function does a bounded amount of work, allocates nothing and keeps nothing but sleeping threads (`threads.c`),
 * which a forked child starts anew, so that it may run without the interpreter's lock and in any process. Each checks
 * every index, those of a batch before it writes to it: it returns DONE, MALFORMED, or the number of the first index that
 * is out of place. numpy and torch do the same, bit by bit, where these files were not compiled;
 * `library.py` declares the same structs.
 *
 * C11 for little-endian machines of 64 bits, compiled with -ffp-contract=off: rounding is part of the result.
 */

#ifndef TENSORSTASH_KERNEL_H
#define TENSORSTASH_KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

enum { VERSION = 16 }; /* of the functions and structs; `library.py` refuses another */
enum { DONE = -1, MALFORMED = -2 };
enum { FOUND_TOGETHER = 256, LINE = 64 /* bytes of a line of the cache */ };

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The first place in [low, high) whose number is at least the bound, or high; the numbers ascend, and one in every
 * `stride` counts. */
INLINE int64_t bisect(const int64_t *numbers, int64_t stride, int64_t low, int64_t high, int64_t bound) {
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (numbers[middle * stride] < bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Consecutive pieces of the numbers from 0 on; table[i >> shift] is the piece of (i >> shift) << shift. */
typedef struct {
  const int64_t *records; /* (count, width) the end of each piece, ascending, and its base, if they have one */
  const int32_t *table;   /* (entries,) */
  int64_t count, width, entries, shift;
} Guide;

INLINE int64_t end_of(const Guide *guide, int64_t k) { return guide->records[k * guide->width]; }

/* The pieces of n numbers. */
int64_t find_pieces(const Guide *guide, const int64_t *numbers, int64_t n, int64_t *k);

/* Of each of n ranges of ascending numbers, the first place whose number is at least its bound. */
EXPORT int64_t tensorstash_first_rows(const int64_t *numbers, int64_t count, const int64_t *low, const int64_t *high,
                                      const int64_t *bounds, int64_t n, int64_t *first);

/* The lowest bytes of some bits, as often as eight bytes hold them. */
INLINE uint64_t repeated(uint64_t bits, int64_t bytes) {
  for (int64_t n = 8 * bytes; n < 64; n *= 2) bits = bits << n | (bits & (((uint64_t)1 << n) - 1));
  return bits;
}

/* Writes n bytes, the same eight again and again. */
INLINE void fill(char *to, int64_t n, uint64_t bits) {
  int64_t at = 0;
  for (; at + 8 <= n; at += 8) memcpy(to + at, &bits, 8);
  for (; at < n; at++) to[at] = (char)(bits >> 8 * (at & 7)); /* little-endian */
}

/* The first slot from `at` on whose mark is not `value`. */
INLINE int64_t run_end(const uint8_t *mark, int64_t at, int64_t n, uint8_t value) {
  while (at < n && mark[at] == value) at++;
  return at;
}

/* `count` rows of up to 8 bytes, one in every `step`, into those of n slots whose mark is 1, not 0; `empty` into
 * the others. */
void expand(char *to, const char *from, int64_t count, int64_t step, int64_t bytes, const uint8_t *mark, int64_t n,
            uint64_t empty);

/* Slots start, start + step, ... of a column, relative to a window's anchor. */
typedef struct {
  int64_t start, length, step;
  int64_t row_bytes, item_bytes; /* a row is one item or, of a pack, several */
  int64_t draw;                  /* by which windows skip its first slots, or -1 */
  uint64_t empty;                /* the bits of an item where there is no row */
} Span;

/* Rows that windows are taken from. Without fragments, windows count in rows. With them, they count in slots: fragment
 * k is the rows row[k] up to row[k] + count[k], at the slots from first[k] on; its piece in the guide goes on to the
 * next.
 *
 * A window with empty slots, of a source with two fragments; first = {11, 16}, row = {4, 7}, count = {3, 2}:
 *
 *   slot     10  11  12  13  14  15  16  17  18
 *   row       .   4   5   6   .   .   7   8   .
 *   window    [-------------------------------]   anchor 15, history 5, horizon 4
 *   span          [-----------------------)       start -4, length 7
 *   mark          1   1   1   0   0   1   1       a byte a slot: 1 where it has a row
 *
 * The rows 4 to 8 follow each other in memory, so the span is one chunk: 7 slots, 5 rows from row 4 on, and the marks
 * that say which slots they go to. Where the rows of the next fragment lie elsewhere, another chunk begins. */
typedef struct {
  int64_t rows, width;                /* the columns hold `width` rows side by side, of which windows take one: a pack
                                         is as many sources as it has columns */
  const int64_t *first, *row, *count; /* (guide.count,) */
  Guide guide;
} Source;

typedef struct {
  const Span *spans;
  const Source *sources;
  const char *const *columns; /* (source_count, span_count) where the first row of each is */
  int64_t span_count, source_count;
  int64_t history, horizon; /* slots of a window before its anchor, and from it on */
  int64_t by_item;          /* whether a source may be an item of each row, wider than 1 */
  int64_t streamed;         /* batches of at least so many bytes are written past the caches */
} Plan;

/* The windows of a call. */
typedef struct {
  const int64_t *anchors; /* (size,) */
  const int32_t *which;   /* (size,) the source of each, or null where there is only one */
  int64_t *places; /* (size,) scratch: the anchor's row, or ~k for a window with empty slots that begins in fragment k, or
                      in the empty slots before it; null where no source has fragments */
  char *const *out;      /* (span_count,) where the (size, length) rows of each go */
  char *const *observed; /* (span_count,) likewise a byte per slot, and null where nobody wants it; or null */
  const int64_t *skips;  /* (draws, size) from the first slot of a span to the first one that is not empty; or null, and
                            then no span skips any */
  int64_t size, draws, threads;
} Batch;

/* Work that is done part by part, in any order and by any thread. */
typedef struct {
  void (*work)(const void *about, int64_t part);
  const void *about;
  int64_t count;
} Parts;

/* Does all parts with up to so many threads, of which the caller is one. */
void in_parts(const Parts *parts, int64_t threads);

#endif

/* Windows without their empty slots, one after the other: which row of a packed batch each goes to, and its bytes. */

#include "kernel.h"

typedef struct {
  const uint8_t *mark;  /* (windows, slots) 1 where a slot has a row, else 0; or null: all have one */
  const int64_t *sizes; /* (windows,) how many have one */
  const int64_t *place; /* (windows,) the slot of the packed tensor at which each begins */
  const int64_t *used;  /* (rows,) how many slots of each row hold a slot of a window */
  int64_t windows, slots, rows, length;
} Packed;

/* The room that rows have left: row k is the first of `first[room]`, and followed by `next[k]`. */
typedef struct {
  uint64_t *rooms; /* (length / 64 + 1,) a bit for each room that some row has */
  int64_t *first;  /* (length + 1,) */
  int64_t *next;   /* (windows,) */
} Rooms;

/* The smallest room of at least `size` that some row has, or -1. */
INLINE int64_t tightest(const Rooms *rooms, int64_t size, int64_t length) {
  uint64_t bits = rooms->rooms[size / 64] & ~(uint64_t)0 << size % 64;
  for (int64_t word = size / 64; word <= length / 64; bits = rooms->rooms[++word])
    if (bits) return word * 64 + __builtin_ctzll(bits);
    else if (word == length / 64) break;
  return -1;
}

/* Puts windows, of which none is longer than `length`, into rows of that many slots: each where the least room is left
 * that it fits into, of equal ones where the last one went. Returns how many rows there are. */
EXPORT int64_t tensorstash_best_fit(const int64_t *sizes, int64_t windows, int64_t length, const Rooms *rooms,
                                    int64_t *row, int64_t *begin) {
  int64_t rows = 0;
  for (int64_t i = 0; i < windows; i++)
    if (sizes[i] < 1 || sizes[i] > length) return MALFORMED;
  for (int64_t i = 0; i < windows; i++) {
    int64_t room = tightest(rooms, sizes[i], length), k;
    if (room < 0) room = length, k = rows++;
    else {
      k = rooms->first[room];
      rooms->first[room] = rooms->next[k];
      if (rooms->first[room] < 0) rooms->rooms[room / 64] &= ~((uint64_t)1 << room % 64);
    }
    row[i] = k, begin[i] = length - room;
    int64_t left = room - sizes[i];
    if (!left) continue;
    rooms->next[k] = rooms->rooms[left / 64] >> left % 64 & 1 ? rooms->first[left] : -1;
    rooms->first[left] = k;
    rooms->rooms[left / 64] |= (uint64_t)1 << left % 64;
  }
  return rows;
}

/* The first slot from `at` on whose mark is not `value`. */
INLINE int64_t run_end(const uint8_t *mark, int64_t at, int64_t n, uint8_t value) {
  const uint64_t eight = 0x0101010101010101 * (uint64_t)value;
  while (at + 8 <= n && !memcmp(mark + at, &eight, 8)) at += 8;
  while (at < n && mark[at] == value) at++;
  return at;
}

/* How many of n marks are 1, or -1 if one is neither 0 nor 1. */
INLINE int64_t count_marks(const uint8_t *mark, int64_t n) {
  const uint64_t ones = 0x0101010101010101;
  uint64_t all = 0, eight;
  int64_t count = 0;
  for (; n >= 8; n -= 8, mark += 8) {
    memcpy(&eight, mark, 8);
    all |= eight, count += (int64_t)(eight * ones >> 56);
  }
  for (; n > 0; n--, mark++) all |= *mark, count += *mark;
  return all & ~ones ? -1 : count;
}

/* Counts the marks of each window. */
EXPORT int64_t tensorstash_count(const uint8_t *mark, int64_t windows, int64_t slots, int64_t *counts) {
  for (int64_t i = 0; i < windows; i++)
    if ((counts[i] = count_marks(mark + i * slots, slots)) < 0) return MALFORMED;
  return DONE;
}

static bool fits(const Packed *packed) {
  int64_t n = packed->slots, room = packed->rows * packed->length;
  for (int64_t i = 0; i < packed->windows; i++) {
    int64_t size = packed->sizes[i];
    if (size < 0 || size > n || (!packed->mark && size < n)) return false;
    if (packed->place[i] < 0 || packed->place[i] > room - size) return false;
  }
  for (int64_t row = 0; row < packed->rows; row++)
    if (packed->used[row] < 0 || packed->used[row] > packed->length) return false;
  return packed->windows >= 0 && n >= 0;
}

/* Slots `begin` to `end` of a window, which have rows, and how many others after them do: never more than its size,
 * whatever the marks say. */
typedef struct {
  int64_t begin, end, left;
} Run;

INLINE Run next_run(const Packed *packed, int64_t i, Run run) {
  int64_t n = packed->slots;
  if (!packed->mark) return (Run){0, n, 0};
  const uint8_t *mark = packed->mark + i * n;
  int64_t begin = run_end(mark, run.end, n, 0), end = least(run_end(mark, begin, n, 1), begin + run.left);
  return (Run){begin, end, run.left - (end - begin)};
}

/* Copies the slots that have a row, and writes 0 into the unused ones of rows. */
EXPORT int64_t tensorstash_pack(const Packed *packed, const char *from, char *to, int64_t bytes) {
  if (!fits(packed) || bytes < 0) return MALFORMED;
  for (int64_t row = 0; row < packed->rows; row++) {
    int64_t unused = packed->length - packed->used[row];
    memset(to + ((row + 1) * packed->length - unused) * bytes, 0, (size_t)(unused * bytes));
  }
  for (int64_t i = 0; i < packed->windows; i++, from += packed->slots * bytes) {
    char *at = to + packed->place[i] * bytes;
    for (Run run = {0, 0, packed->sizes[i]}; run.left;) {
      run = next_run(packed, i, run);
      int64_t count = run.end - run.begin;
      if (!count) return MALFORMED; /* fewer marks than the size */
      memcpy(at, from + run.begin * bytes, (size_t)(count * bytes));
      at += count * bytes;
    }
  }
  return DONE;
}

/* Writes the segment of each window, and the position of each slot after the window's first one that has a row; 0 into
 * the unused slots of rows. */
EXPORT int64_t tensorstash_mark(const Packed *packed, const int32_t *segment, int32_t *segments, int32_t *positions) {
  if (!fits(packed)) return MALFORMED;
  for (int64_t row = 0; row < packed->rows; row++) {
    int64_t at = row * packed->length + packed->used[row];
    size_t unused = (size_t)(packed->length - packed->used[row]) * sizeof(int32_t);
    memset(segments + at, 0, unused);
    memset(positions + at, 0, unused);
  }
  for (int64_t i = 0; i < packed->windows; i++) {
    int64_t at = packed->place[i], first = -1;
    for (Run run = {0, 0, packed->sizes[i]}; run.left;) {
      run = next_run(packed, i, run);
      int64_t count = run.end - run.begin;
      if (!count) return MALFORMED;
      if (first < 0) first = run.begin;
      for (int64_t k = 0; k < count; k++) segments[at + k] = segment[i];
      for (int64_t k = 0; k < count; k++) positions[at + k] = (int32_t)(run.begin - first + k);
      at += count;
    }
  }
  return DONE;
}

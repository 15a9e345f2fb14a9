/* Windows without their empty slots, one after the other: which row of a packed batch each goes to, and its bytes. */

#include "kernel.h"

typedef struct {
  const uint8_t *mark;  /* (windows, slots) 1 where a slot has a row, else 0; or null: all have one */
  const int64_t *sizes; /* (windows,) how many have one */
  const int64_t *place; /* (windows,) the slot of the packed tensor at which each begins */
  const int64_t *used;  /* (rows,) how many slots of each row hold a slot of a window */
  int64_t windows, slots, rows, length;
} Packed;

/* The room that rows have left: row k is the first of `first[room]`, and followed by `next[k]`. Before it is needed for
 * that, the memory holds the order of the windows. */
typedef struct {
  uint64_t *rooms; /* (length / 64 + 1,) a bit for each room that some row has */
  int64_t *first;  /* (length + 1,) */
  int64_t *next;   /* (windows,) */
} Rooms;

/* The windows by descending size, equal ones in their order; `ends` is memory for `length + 1` numbers. */
static void by_size(const int64_t *sizes, int64_t windows, int64_t length, int64_t *ends, int64_t *order) {
  memset(ends, 0, (size_t)(length + 1) * sizeof(int64_t));
  for (int64_t i = 0; i < windows; i++) ends[sizes[i]]++;
  for (int64_t size = length, end = 0; size >= 0; size--) ends[size] = end += ends[size];
  for (int64_t i = windows - 1; i >= 0; i--) order[--ends[sizes[i]]] = i;
}

/* The smallest room of at least `size` that some row has, or -1. */
INLINE int64_t tightest(const Rooms *rooms, int64_t size, int64_t length) {
  uint64_t bits = rooms->rooms[size / 64] & ~(uint64_t)0 << size % 64;
  for (int64_t word = size / 64; word <= length / 64; bits = rooms->rooms[++word])
    if (bits) return word * 64 + __builtin_ctzll(bits);
    else if (word == length / 64) break;
  return -1;
}

/* Puts windows, of which none is longer than `length`, into rows of that many slots, the longest first: each where the
 * least room is left that it fits into, of equal ones where the last one went. A window of size 0 goes to the first slot
 * of all. Returns how many rows there are. */
EXPORT int64_t tensorstash_best_fit(const int64_t *sizes, int64_t windows, int64_t length, const Rooms *rooms,
                                    int64_t *row, int64_t *start) {
  int64_t rows = 0;
  for (int64_t i = 0; i < windows; i++)
    if (sizes[i] < 0 || sizes[i] > length) return MALFORMED;
  by_size(sizes, windows, length, rooms->first, rooms->next);
  for (int64_t k = 0; k < windows; k++) {
    int64_t i = rooms->next[k], size = sizes[i], at = 0; /* at most k rows have needed `next` yet */
    row[i] = start[i] = 0;
    if (!size) continue;
    int64_t room = tightest(rooms, size, length);
    if (room < 0) room = length, at = rows++;
    else {
      at = rooms->first[room];
      rooms->first[room] = rooms->next[at];
      if (rooms->first[room] < 0) rooms->rooms[room / 64] &= ~((uint64_t)1 << room % 64);
    }
    row[i] = at, start[i] = length - room;
    int64_t left = room - size;
    if (!left) continue;
    rooms->next[at] = rooms->rooms[left / 64] >> left % 64 & 1 ? rooms->first[left] : -1;
    rooms->first[left] = at;
    rooms->rooms[left / 64] |= (uint64_t)1 << left % 64;
  }
  return rows;
}

/* How many of n marks are 1, or -1 if one is neither 0 nor 1. */
INLINE int64_t count_marks(const uint8_t *mark, int64_t n) {
  uint8_t all = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) all |= mark[i], count += mark[i];
  return all > 1 ? -1 : count;
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

/* Slots `start` to `end` of a window, which have rows, and how many others after them do: never more than its size,
 * whatever the marks say. */
typedef struct {
  int64_t start, stop, left;
} Run;

INLINE Run next_run(const Packed *packed, int64_t i, Run run) {
  int64_t n = packed->slots;
  if (!packed->mark) return (Run){0, n, 0};
  const uint8_t *mark = packed->mark + i * n;
  int64_t start = run_end(mark, run.stop, n, 0);
  int64_t stop = start + run.left; /* if that is the last slot, all from `start` on have a row: no need to look */
  if (stop != n) stop = run_end(mark, start, least(n, stop), 1);
  return (Run){start, stop, run.left - (stop - start)};
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
      int64_t count = run.stop - run.start;
      if (!count) return MALFORMED; /* fewer marks than the size */
      memcpy(at, from + run.start * bytes, (size_t)(count * bytes));
      at += count * bytes;
    }
  }
  return DONE;
}

/* The number of each window in its row: 1, 2, ... `at` is memory for a number per slot, in which the first slot of each
 * window tells which it is, so that a row can be walked from window to window. */
static bool count_in_rows(const Packed *packed, int32_t *at, int32_t *number) {
  int64_t ahead = 0; /* windows that no row has led to */
  for (int64_t i = 0; i < packed->windows; i++)
    if (packed->sizes[i]) at[packed->place[i]] = (int32_t)i, ahead++;
  for (int64_t row = 0; row < packed->rows; row++) {
    int64_t slot = row * packed->length, end = slot + packed->used[row];
    for (int32_t count = 1; slot < end; count++) {
      int64_t i = at[slot];
      if (i < 0 || i >= packed->windows || packed->place[i] != slot || !packed->sizes[i]) return false;
      number[i] = count, slot += packed->sizes[i], ahead--;
    }
    if (slot != end) return false;
  }
  return !ahead;
}

INLINE int64_t mark_windows(const Packed *packed, const int32_t *number, int32_t *segments, int32_t *positions) {
  const int32_t *counted = positions; /* the longest run of 0, 1, 2, ... so far: copying it is faster than counting */
  int64_t most = 0;
  for (int64_t i = 0; i < packed->windows; i++) {
    int64_t at = packed->place[i], first = -1;
    for (Run run = {0, 0, packed->sizes[i]}; run.left;) {
      run = next_run(packed, i, run);
      int64_t count = run.stop - run.start;
      if (!count) return MALFORMED;
      if (first < 0) first = run.start;
      for (int64_t k = 0; k < count; k++) segments[at + k] = number[i];
      if (run.start == first && count <= most) memcpy(positions + at, counted, (size_t)count * sizeof(int32_t));
      else {
        for (int64_t k = 0; k < count; k++) positions[at + k] = (int32_t)(run.start - first + k);
        if (run.start == first) counted = positions + at, most = count;
      }
      at += count;
    }
  }
  return DONE;
}

/* Writes for each slot the number of its window in the row, and its position after the window's first slot with a row; 0
 * into the unused slots of rows. `number` is memory for a number per window. */
EXPORT int64_t tensorstash_mark(const Packed *packed, int32_t *number, int32_t *segments, int32_t *positions) {
  if (!fits(packed) || !count_in_rows(packed, segments, number)) return MALFORMED;
  for (int64_t row = 0; row < packed->rows; row++) {
    int64_t at = row * packed->length + packed->used[row];
    size_t unused = (size_t)(packed->length - packed->used[row]) * sizeof(int32_t);
    memset(segments + at, 0, unused);
    memset(positions + at, 0, unused);
  }
  return mark_windows(packed, number, segments, positions);
}

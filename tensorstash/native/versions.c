/* Rows by their times, as they were known: the newest one in each bucket of a stretch of time, or the newest few. */

#include "kernel.h"

enum { BLOCK = 64, LINES_BACK = 10, NUMBERS_OF_LINE = 8, SOON = 8 /* windows ahead */ };

/* Rows of a table. Those of an entity follow each other, in the order of times or, with `reach`, of known times:
 *
 *   without reach   time   1 1 1 2 2 3     with reach   time   1 2 3 2 3 4      times may be equal, and of equal
 *                   known  0 4 9 3 4 4                  known  0 0 0 3 3 3      times the last known row counts */
typedef struct {
  const int64_t *times; /* (rows,) */
  const int64_t *known; /* (rows,) when each row became known, or null: always */
  const int64_t *reach; /* (rows / BLOCK,) the latest time of the entity of the last row of a block, up to this row */
  int64_t rows;
  int64_t unit;    /* ticks in a unit of `times` */
  int64_t every;   /* ticks of a bucket, or 0: the newest rows, however far apart */
  int64_t slots;   /* of a window: buckets, or rows */
  int64_t spacing; /* ticks by which different times differ at least */
  int64_t all;     /* 1: rows of one time do not replace each other */
} Versions;

/* Of each window: its rows, its stretch in ticks, and the first known time that is too late. */
typedef struct {
  const int64_t *low, *high, *begin, *end, *late;
  int64_t n;
} Moments;

typedef struct {
  int64_t low, begin, end, late;
} Window;

/* The first time in a unit of the rows at or after a tick. */
INLINE int64_t at_or_after(int64_t tick, int64_t unit) { return unit == 1 ? tick : tick / unit + (tick % unit > 0); }

/* The first place in [low, stop) whose number is at least the bound, or stop; near the stop it is found soonest. */
INLINE int64_t back_to(const int64_t *numbers, int64_t low, int64_t stop, int64_t bound) {
  int64_t jump = 1, high = stop;
  for (; high - low >= jump && numbers[high - jump] >= bound; jump *= 2) high -= jump;
  return bisect(numbers, 1, high - low >= jump ? high - jump + 1 : low, high, bound);
}

/* The last row of the newest time in [low, stop) with a known row, or -1; rows are in the order of times. */
INLINE int64_t newest(const Versions *of, int64_t low, int64_t stop, int64_t late) {
  if (!of->known) return stop > low ? stop - 1 : -1;
  while (stop > low) {
    int64_t from = back_to(of->times, low, stop, of->times[stop - 1]);
    int64_t known = back_to(of->known, from, stop, late);
    if (known > from) return known - 1;
    stop = from;
  }
  return -1;
}

/* A window over rows in the order of times, of which `stop` is the first one after its stretch. */
static void by_time(const Versions *of, const Window *at, int64_t stop, int64_t *rows) {
  if (of->every) {
    for (int64_t k = of->slots; k-- && stop > at->low;) {
      int64_t from = back_to(of->times, at->low, stop, at_or_after(at->begin + k * of->every, of->unit));
      rows[k] = newest(of, from, stop, at->late);
      stop = from;
    }
    return;
  }
  int64_t first = back_to(of->times, at->low, stop, at_or_after(at->begin, of->unit));
  for (int64_t k = of->slots; k && stop > first;) {
    int64_t row = newest(of, first, stop, at->late);
    if (row < 0) return;
    rows[--k] = row;
    stop = of->all || !of->known ? row : back_to(of->times, first, row, of->times[row]);
  }
}

/* Puts the rows [from, stop) of one known time, all in the stretch, into the buckets of their times, where no newer row
 * is; times ascend. */
INLINE void into_buckets(const Versions *of, const Window *at, int64_t from, int64_t stop, int64_t *rows) {
  int64_t k = of->slots, edge = k * of->every; /* ticks from the beginning of the stretch to that of bucket k */
  for (int64_t row = stop - 1; row >= from; row--) {
    int64_t after = of->times[row] * of->unit - at->begin;
    if (after < edge) {
      k--, edge -= of->every;
      if (after < edge) k = after / of->every, edge = k * of->every;
    }
    if (rows[k] < 0 || of->times[rows[k]] < of->times[row]) rows[k] = row;
  }
}

/* Puts the rows [from, stop) of one known time among the `count` newest rows, at the end of the slots in the order of
 * times, unless their times are there; returns the count. Times ascend. */
INLINE int64_t among_newest(const Versions *of, int64_t from, int64_t stop, int64_t count, int64_t *rows) {
  int64_t k = of->slots; /* all slots from k on have newer times */
  for (int64_t row = stop - 1; row >= from; row--) {
    int64_t time = of->times[row], oldest = of->slots - count, full = !oldest;
    while (k > oldest && of->times[rows[k - 1]] > time) k--;
    if (k > oldest && of->times[rows[k - 1]] == time) continue;
    if (full && !k) return count;
    for (int64_t j = oldest - !full; j < k - 1; j++) rows[j] = rows[j + 1]; /* as a rule none, or the oldest goes */
    rows[k - 1] = row;
    count += !full;
  }
  return count;
}

/* How many slots from the last one on no earlier row can change, and the tick at which the first of these begins: rows
 * without a newer time that could lie between them, or before the end of their bucket. */
INLINE int64_t settled(const Versions *of, const Window *at, int64_t count, int64_t *edge, const int64_t *rows) {
  if (of->every && of->every <= of->spacing) { /* a bucket has one time at most */
    while (count < of->slots && rows[of->slots - 1 - count] >= 0) count++;
    *edge = at->begin + (of->slots - count) * of->every;
    return count;
  }
  for (; count < of->slots; count++) {
    int64_t row = rows[of->slots - 1 - count];
    if (row < 0 || *edge - of->times[row] * of->unit > of->spacing) break;
    *edge = of->every ? at->begin + (of->slots - 1 - count) * of->every : of->times[row] * of->unit;
  }
  return count;
}

/* A row before which no row of the run that ends at `stop` lies in the stretch: the times of a run ascend, at least so
 * far apart. So the beginning of the run, which is as far away, need not be found as a rule. */
INLINE int64_t before_stretch(const Versions *of, const Window *at, int64_t low, int64_t stop) {
  int64_t after;
  if (__builtin_mul_overflow(of->times[stop - 1], of->unit, &after)) return low;
  if (__builtin_sub_overflow(after, at->begin, &after)) return low;
  int64_t rows = after < 0 ? 1 : after / of->spacing + 1;
  return rows < stop - low ? stop - rows : low;
}

/* A window over rows in the order of known times, of which `stop` is the first one that is too late: run by run of
 * equal known times, from the newest back, until no earlier row matters. */
static void by_known(const Versions *all, const Window *window, int64_t stop, int64_t *rows) {
  const Versions own = *all, *of = &own; /* or the compiler would read them again after every row that is written */
  const Window one = *window, *at = &one;
  int64_t low = at->low, begin = at_or_after(at->begin, of->unit), edge = at->end;
  for (int64_t done = 0, count = 0; stop > low && done < of->slots;) {
    int64_t block = stop / BLOCK; /* the rows before it, of this entity, are not later than its reach */
    if (block * BLOCK > low && of->reach[block - 1] < begin) low = block * BLOCK;
    if (low == stop) break;
    int64_t known = of->known[stop - 1], limit = before_stretch(of, at, low, stop);
    int64_t from = of->known[limit] == known ? limit : back_to(of->known, limit, stop, known);
    int64_t last = back_to(of->times, from, stop, at_or_after(edge, of->unit));
    int64_t first = back_to(of->times, from, last, begin);
    if (of->every) into_buckets(of, at, first, last, rows);
    else count = among_newest(of, first, last, count, rows);
    if (count == of->slots) begin = of->times[rows[0]] + 1; /* older rows have no place */
    done = settled(of, at, done, &edge, rows);
    stop = from > limit || done == of->slots ? from : back_to(of->known, low, from, known);
  }
}

INLINE void ask_back(const int64_t *numbers, int64_t low, int64_t stop) {
  for (int64_t line = 0, row = stop - 1; line < LINES_BACK && row >= low; line++, row -= NUMBERS_OF_LINE)
    __builtin_prefetch(&numbers[row]);
}

INLINE Window window_of(const Moments *all, int64_t i) {
  return (Window){all->low[i], all->begin[i], all->end[i], all->late ? all->late[i] : 0};
}

/* Asks for what says how far back a window looks. */
INLINE void ask_how_far(const Versions *of, int64_t low, int64_t stop) {
  if (stop <= low) return;
  __builtin_prefetch(&of->times[stop - 1]);
  if (of->reach && stop >= BLOCK) __builtin_prefetch(&of->reach[stop / BLOCK - 1]);
}

/* Asks for the rows that a window looks at as a rule. */
INLINE void ask_for_window(const Versions *of, const Window *at, int64_t stop) {
  ask_back(of->times, at->low, stop);
  if (of->known && !of->reach) ask_back(of->known, at->low, stop);
  else if (of->reach && stop > at->low) __builtin_prefetch(&of->known[before_stretch(of, at, at->low, stop)]);
}

/* The rows of n windows, `(n, slots)`; -1 for an empty slot. What a window looks at is asked for in two steps, as only the
 * first says where the second is: the first for many windows at once, because the processor looks up several pages in
 * the time of one, and the program waits for them. */
EXPORT int64_t tensorstash_pick(const Versions *of, const Moments *all, int64_t *rows) {
  int64_t bounds[FOUND_TOGETHER], stop[FOUND_TOGETHER], whole;
  if (of->unit < 1 || of->spacing < 1 || of->every < 0 || of->slots < 1 || of->rows < 0) return MALFORMED;
  if ((of->reach && !of->known) || (of->known && !all->late)) return MALFORMED;
  if (__builtin_mul_overflow(of->every, of->slots, &whole)) whole = -1;
  for (int64_t i = 0; i < all->n; i++) {
    int64_t length;
    if (all->low[i] < 0 || all->low[i] > all->high[i] || all->high[i] > of->rows) return i;
    if (__builtin_sub_overflow(all->end[i], all->begin[i], &length) || length < 0) return i;
    if (of->every && length != whole) return i;
  }
  for (int64_t at = 0, some; at < all->n; at += some) {
    const int64_t *low = all->low + at, *order = of->reach ? of->known : of->times;
    some = least(all->n - at, FOUND_TOGETHER);
    for (int64_t i = 0; i < some; i++)
      bounds[i] = of->reach ? all->late[at + i] : at_or_after(all->end[at + i], of->unit);
    tensorstash_first_rows(order, of->rows, low, all->high + at, bounds, some, stop);
    for (int64_t i = 0; i < some; i++) ask_how_far(of, low[i], stop[i]);
    for (int64_t i = -SOON; i < some; i++) {
      int64_t next = i + SOON;
      if (next < some) {
        Window window = window_of(all, at + next);
        ask_for_window(of, &window, stop[next]);
      }
      if (i < 0) continue;
      Window one = window_of(all, at + i);
      int64_t *slots = rows + (at + i) * of->slots;
      memset(slots, -1, (size_t)of->slots * sizeof *slots);
      (of->reach ? by_known : by_time)(of, &one, stop[i], slots);
    }
  }
  return DONE;
}

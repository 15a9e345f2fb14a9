/* Rows of windows and of chunks into the buffers of a batch, with the memory asked for ahead. */

#include "copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* Cache lines asked for in one go, ahead of the windows that are copied: enough to hide memory behind copying, and few
 * enough that the processor drops none. They go to the second cache: the first can wait for far fewer lines at a time,
 * and then copying waits as well. Twice as far ahead for longer windows: by then the
 * prefetcher has locked on. */
enum { LINES_AHEAD = 128, PAGE = 4096 };

/* n items of a fixed size, one in every `stride` bytes: the compiler knows the size where this is called. */
INLINE void copy_items(char *to, const char *from, int64_t n, int64_t stride, size_t bytes) {
  for (int64_t i = 0; i < n; i++) memcpy(to + i * (int64_t)bytes, from + i * stride, bytes);
}

INLINE void copy_strided(char *to, const char *from, int64_t n, int64_t stride, int64_t bytes) {
  if (bytes == 1) copy_items(to, from, n, stride, 1);
  else if (bytes == 2) copy_items(to, from, n, stride, 2);
  else if (bytes == 4) copy_items(to, from, n, stride, 4);
  else if (bytes == 8) copy_items(to, from, n, stride, 8);
  else copy_items(to, from, n, stride, (size_t)bytes);
}

/* n bytes, of which whole lines are written past the caches. A store to a line that is not in a cache fetches the line
 * first, which is a third of all traffic when the rows of a large batch are copied. */
INLINE void stream(char *to, const char *from, int64_t n) {
  int64_t at = 0;
#if defined(__x86_64__)
  at = (int64_t)(-(uintptr_t)to & (LINE - 1));
  memcpy(to, from, (size_t)at);
  for (; at + LINE <= n; at += LINE) {
    __m128i one = _mm_loadu_si128((const void *)(from + at)), two = _mm_loadu_si128((const void *)(from + at + 16));
    __m128i three = _mm_loadu_si128((const void *)(from + at + 32)), four = _mm_loadu_si128((const void *)(from + at + 48));
    _mm_stream_si128((void *)(to + at), one);
    _mm_stream_si128((void *)(to + at + 16), two);
    _mm_stream_si128((void *)(to + at + 32), three);
    _mm_stream_si128((void *)(to + at + 48), four);
  }
#endif
  memcpy(to + at, from + at, (size_t)(n - at));
}

void end_streams(void) {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

INLINE void copy_rows(char *to, const char *from, int64_t n, const Span *span, bool streams) {
  int64_t bytes = span->row_bytes, all = n * bytes;
  if (n > 1 && span->step > 1) copy_strided(to, from, n, span->step * bytes, bytes);
  else if (all == 4) memcpy(to, from, 4); /* without a call */
  else if (all == 8) memcpy(to, from, 8);
  else if (streams && all >= LINE) stream(to, from, all);
  else memcpy(to, from, (size_t)all);
}

/* How many windows of a span are asked for together. */
static int64_t block_of(const Span *span) {
  int64_t stride = span->step * span->row_bytes;
  int64_t lines = span->length * (stride <= LINE ? stride : span->row_bytes + LINE) / LINE + 1;
  return lines < LINES_AHEAD ? least(LINES_AHEAD / lines, 64) : 1;
}

/* Asks for the pages of some rows, and for their first and last line. Inline, like `ask_lines`, because GCC drops calls
 * of a function that does nothing but this. */
INLINE void ask_pages(const char *from, int64_t rows, const Span *span) {
  int64_t extent = ((rows - 1) * span->step + 1) * span->row_bytes;
  for (int64_t b = 0; b < extent; b += PAGE) __builtin_prefetch(from + b, 0, 2);
  __builtin_prefetch(from + extent - 1, 0, 2);
}

/* Asks for the other lines of some rows. */
INLINE void ask_lines(const char *from, int64_t rows, const Span *span) {
  int64_t bytes = span->row_bytes, stride = span->step * bytes, most = 2 * LINES_AHEAD;
  int64_t second = LINE - (int64_t)((uintptr_t)from & (LINE - 1));
  if (stride <= LINE)
    for (int64_t b = second; b < least((rows - 1) * stride + bytes, most * LINE); b += LINE)
      __builtin_prefetch(from + b, 0, 2);
  else
    for (int64_t i = 0, lines = 0; i < rows && lines < most; i++)
      for (int64_t b = 0; b < bytes; b += LINE, lines++) __builtin_prefetch(from + i * stride + b, 0, 2);
}

/* What is copied span by span, up to the span `end`: chunks of a tile or, if there is none, windows of the call, of
 * which every slot has a row. They need no tile, which takes as long as copying a short window. */
typedef struct {
  const Plan *plan;
  const Batch *batch;
  const Tile *tile;
  int64_t first, last, end; /* the first chunk or window, and the last one + 1 */
  bool by_item;             /* whether a source may be an item of each row */
  bool streams;             /* whether rows are written past the caches */
} Job;

/* How far a job has asked for memory ahead of its copies: the next chunk or window, `at`, of a span, of which so many
 * are asked for together. */
typedef struct {
  int64_t span, at, block;
} Ahead;

INLINE int64_t source_of(const Job *job, int64_t i) {
  return job->tile ? job->tile->chunk[i].source : job->batch->which ? job->batch->which[i] : 0;
}

/* How many rows of chunk or window number i lie side by side. */
INLINE int64_t width_at(const Job *job, int64_t i) {
  return job->by_item ? job->plan->sources[source_of(job, i)].width : 1;
}

/* A span as it lies in the source of chunk or window number i. */
INLINE Span span_in(const Job *job, const Span *span, int64_t i) {
  Span own = *span;
  own.step *= width_at(job, i);
  return own;
}

/* Where the rows of a span, number s, in chunk or window number i begin. */
INLINE const char *rows_of(const Job *job, int64_t s, const Span *span, int64_t i) {
  int64_t row = job->tile ? job->tile->chunk[i].row : place_of(job->batch, i) + span->start;
  const char *column = job->plan->columns[source_of(job, i) * job->plan->span_count + s];
  return column + row * span->row_bytes * width_at(job, i);
}

/* The window of chunk number i, or window i. */
INLINE int64_t window_of(const Job *job, const Span *span, int64_t i) {
  return job->tile ? job->tile->chunk[i].slot / span->length : i;
}

/* Whether chunk or window number i is of another column of the pack than the one before, in the same window: then its
 * rows lie in the lines that are read for that one. Parts of one window count too. */
INLINE bool continues(const Job *job, int64_t s, int64_t i) {
  const Plan *plan = job->plan;
  const Span *span = &plan->spans[s];
  if (width_at(job, i) == 1 || i == job->first) return false;
  int64_t source = source_of(job, i), before = source_of(job, i - 1), window = window_of(job, span, i);
  if (source == before) return window == window_of(job, span, i - 1);
  if (source < before || job->batch->anchors[window - 1] != job->batch->anchors[window]) return false;
  const char *const *column = &plan->columns[s]; /* of source 0 */
  int64_t between = column[source * plan->span_count] - column[before * plan->span_count];
  return between > 0 && between < plan->sources[before].width * span->row_bytes; /* in one row */
}

/* The end of the block of a span that begins at number `at`, or of the span; columns of one window stay together. */
INLINE int64_t end_of_block(const Job *job, int64_t s, int64_t at, int64_t block) {
  int64_t end = least(at + block, job->last);
  while (end < job->last && continues(job, s, end)) end++;
  return end;
}

INLINE int64_t rows_at(const Job *job, const Span *span, int64_t i) {
  return job->tile ? job->tile->chunk[i].count : span->length;
}

INLINE Ahead beginning_of(const Job *job, int64_t s) {
  return (Ahead){s, job->first, s < job->end ? block_of(&job->plan->spans[s]) : 0};
}

INLINE Ahead moved_to(const Job *job, const Ahead *ahead, int64_t at) {
  return at < job->last ? (Ahead){ahead->span, at, ahead->block} : beginning_of(job, ahead->span + 1);
}

/* Asks for the pages of the next two blocks, or for the lines of the next one. */
INLINE void ask_next(const Job *job, Ahead *ahead, bool pages) {
  if (ahead->span == job->end) return;
  const Span span = job->plan->spans[ahead->span];
  int64_t i = ahead->at, upto = end_of_block(job, ahead->span, i, ahead->block);
  if (pages && upto < job->last) upto = end_of_block(job, ahead->span, upto, ahead->block);
  for (; i < upto; i++) {
    if (i > ahead->at && continues(job, ahead->span, i)) continue;
    const Span own = span_in(job, &span, i);
    const char *from = rows_of(job, ahead->span, &span, i);
    if (pages) ask_pages(from, rows_at(job, &span, i), &own);
    else ask_lines(from, rows_at(job, &span, i), &own);
  }
  *ahead = moved_to(job, ahead, i);
}

/* Copies the rows of a chunk to the slots that have one, and fills the others. */
INLINE void copy_chunk(const Job *job, int64_t s, int64_t i, const Span *span, uint64_t empty) {
  const Chunk *one = &job->tile->chunk[i];
  const uint8_t *mark = job->tile->mark + (one->marks < 0 ? 0 : one->marks);
  const char *from = rows_of(job, s, span, i);
  int64_t bytes = span->row_bytes, n = one->length;
  char *to = job->batch->out[s] + one->slot * bytes;
  char *seen = job->batch->observed ? job->batch->observed[s] : NULL;
  if (one->marks < 0) copy_rows(to, from, n, span, job->streams);
  else if (!one->count) fill(to, n * bytes, empty);
  else if (bytes <= 8) expand(to, from, one->count, span->step, bytes, mark, n, empty);
  else
    for (int64_t at = 0, some; at < n; at += some, to += some * bytes) {
      some = run_end(mark, at, n, mark[at]) - at;
      if (mark[at]) copy_rows(to, from, some, span, job->streams), from += some * span->step * bytes;
      else fill(to, some * bytes, empty);
    }
  if (!seen) return;
  if (n == 1) seen[one->slot] = one->count > 0; /* without a call */
  else if (one->marks < 0 || !one->count) memset(seen + one->slot, one->count > 0, (size_t)n);
  else memcpy(seen + one->slot, mark, (size_t)n);
}

/* Columns that are copied together, and the bytes of a pack that are read again for each of them: they stay in the first
 * cache. */
enum { COLUMNS = 64, AT_ONCE = 1 << 14 };

/* Where rows of one column of a pack begin, and where they go. */
typedef struct {
  char *to;
  const char *from;
} Column;

/* n rows of each column, of up to 8 bytes and `stride` bytes from each other. */
static __attribute__((noinline)) void copy_columns(const Column *column, int64_t count, int64_t n, int64_t stride,
                                                   int64_t bytes) {
  int64_t each = (AT_ONCE / stride + 8) & ~(int64_t)7;
  for (int64_t first = 0, some; first < n; first += some) {
    some = least(each, n - first);
    for (int64_t k = 0; k < count; k++)
      copy_strided(column[k].to + first * bytes, column[k].from + first * stride, some, stride, bytes);
  }
}

/* Whether chunk or window number i is of a column that lies beside others, and has all its rows. */
INLINE bool is_column(const Job *job, const Span *span, int64_t i) {
  if (span->row_bytes > 8 || width_at(job, i) == 1) return false;
  return !job->tile || (job->tile->chunk[i].marks < 0 && job->tile->chunk[i].count);
}

/* Whether the rows of two columns of a window are the same ones. */
INLINE bool same_rows(const Job *job, int64_t i, int64_t j) {
  if (!job->tile) return place_of(job->batch, i) == place_of(job->batch, j);
  const Chunk *one = &job->tile->chunk[i], *two = &job->tile->chunk[j];
  return one->row == two->row && one->count == two->count;
}

/* Copies the rows of a column, number `first`, together with those of other columns of the window, up to number `end`;
 * returns the number of the first that is left. Empty chunks between them are filled. The step of the span is that
 * between rows of the pack. */
INLINE int64_t copy_beside(const Job *job, int64_t s, const Span *span, int64_t first, int64_t end, uint64_t empty) {
  const Batch *batch = job->batch;
  int64_t bytes = span->row_bytes, n = rows_at(job, span, first), count = 0, i = first;
  Column column[COLUMNS];
  for (; i < end && count < COLUMNS; i++) {
    if (i > first && !continues(job, s, i)) break;
    if (job->tile && !job->tile->chunk[i].count) {
      copy_chunk(job, s, i, span, empty);
      continue;
    }
    if (i > first && (!is_column(job, span, i) || !same_rows(job, first, i))) break;
    int64_t slot = job->tile ? job->tile->chunk[i].slot : i * span->length;
    column[count++] = (Column){batch->out[s] + slot * bytes, rows_of(job, s, span, i)};
    if (job->tile && batch->observed && batch->observed[s]) memset(batch->observed[s] + slot, 1, (size_t)n);
  }
  copy_columns(column, count, n, span->step * bytes, bytes);
  return i;
}

/* Copies the chunks or windows [i, upto) of span number s. */
INLINE void copy_block(const Job *job, int64_t s, const Span *span, int64_t i, int64_t upto) {
  uint64_t empty = repeated(span->empty, span->item_bytes);
  char *to = job->batch->out[s];
  while (i < upto) {
    const Span own = span_in(job, span, i);
    if (is_column(job, &own, i)) {
      i = copy_beside(job, s, &own, i, upto, empty);
      continue;
    }
    if (job->tile) copy_chunk(job, s, i, &own, empty);
    else copy_rows(to + i * own.length * own.row_bytes, rows_of(job, s, &own, i), own.length, &own, job->streams);
    i++;
  }
}

/* Before a block is copied, the lines of the next block are asked for, and every second time the pages of the two blocks
 * after it. The processor looks up several pages at a time, but all that follows in the program waits for them: so they
 * are not asked for one by one between the copies, nor just before their lines. */
INLINE void copy_job(const Job *job, int64_t s) {
  Ahead pages = beginning_of(job, s), lines = pages;
  ask_next(job, &pages, true);
  ask_next(job, &lines, false);
  for (; s < job->end; s++) {
    const Span span = job->plan->spans[s];
    int64_t block = block_of(&span);
    for (int64_t i = job->first, upto, number = 0; i < job->last; i = upto, number++) {
      if (number % 2 == 0) ask_next(job, &pages, true);
      ask_next(job, &lines, false);
      upto = end_of_block(job, s, i, block);
      copy_block(job, s, &span, i, upto);
    }
  }
}

/* What all windows of a job have in common is decided here and not at each of them: the compiler makes a loop for each
 * kind of job. It reads from copies, or it would read again after every row that is written. */
void copy_spans(const Plan *plan, const Batch *batch, const Tile *tile, int64_t first, int64_t last, int64_t s,
                int64_t end) {
  const Plan one = *plan;
  const Batch part = *batch;
  bool streams = is_streamed(plan, batch);
  if (one.by_item && tile) copy_job(&(Job){&one, &part, tile, first, last, end, true, streams}, s);
  else if (one.by_item) copy_job(&(Job){&one, &part, NULL, first, last, end, true, streams}, s);
  else if (tile) copy_job(&(Job){&one, &part, tile, first, last, end, false, streams}, s);
  else copy_job(&(Job){&one, &part, NULL, first, last, end, false, streams}, s);
}

enum { SLOTS_AHEAD = 32, SHORT = 4 };

/* Rows of a fixed size in any order, asked for a few slots ahead; without a branch on empty slots. */
INLINE void copy_each(char *to, const char *from, const int64_t *rows, int64_t n, uint64_t empty, size_t bytes) {
  for (int64_t i = 0; i < n; i++) {
    if (i + SLOTS_AHEAD < n) __builtin_prefetch(from + rows[i + SLOTS_AHEAD] * (int64_t)bytes);
    const char *row = rows[i] < 0 ? (const char *)&empty : from + rows[i] * (int64_t)bytes; /* little-endian */
    memcpy(to + i * (int64_t)bytes, row, bytes);
  }
}

/* Copies the slots [at, end) of a span, counted through all windows of the batch. */
static void copy_slots(const Plan *plan, const Batch *batch, const int64_t *picked, int64_t at, int64_t end, int64_t s) {
  const Span span = plan->spans[s];
  uint64_t empty = repeated(span.empty, span.item_bytes);
  char *seen = batch->observed ? batch->observed[s] : NULL;
  for (int64_t k = at; seen && k < end; k++) seen[k] = picked[k] >= 0;
  for (int64_t some; at < end; at += some) {
    int64_t i = at / span.length, source = batch->which ? batch->which[i] : 0;
    some = batch->which ? least(end, (i + 1) * span.length) - at : end - at;
    const char *from = plan->columns[source * plan->span_count + s];
    char *to = batch->out[s] + at * span.row_bytes;
    if (span.row_bytes == 1) copy_each(to, from, picked + at, some, empty, 1);
    else if (span.row_bytes == 2) copy_each(to, from, picked + at, some, empty, 2);
    else if (span.row_bytes == 4) copy_each(to, from, picked + at, some, empty, 4);
    else copy_each(to, from, picked + at, some, empty, 8);
  }
}

/* Where chunks have a few rows, single rows are copied faster. */
void copy_picked(const Plan *plan, const Batch *batch, const int64_t *picked, const Tile *tile, int64_t s, int64_t end) {
  const Chunk *last = &tile->chunk[tile->chunks - 1];
  int64_t first = tile->chunk[0].slot, upto = last->slot + last->length;
  if (upto - first > SHORT * tile->chunks) {
    copy_spans(plan, batch, tile, 0, tile->chunks, s, end);
    return;
  }
  for (; s < end; s++) {
    int64_t bytes = plan->spans[s].row_bytes;
    if (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) copy_slots(plan, batch, picked, first, upto, s);
    else copy_spans(plan, batch, tile, 0, tile->chunks, s, s + 1);
  }
}

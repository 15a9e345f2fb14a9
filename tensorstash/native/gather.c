/* Windows of rows into batches: bytes only, whatever they mean. */

#include "kernel.h"

/* Cache lines asked for in one go, ahead of the windows that are copied: enough to hide memory behind copying, and few
 * enough that the processor drops none. They go to the second cache: the first can wait for far fewer lines at a time,
 * and then copying waits as well. Of a longer window twice as many are asked for: by then it is a known stream. */
enum { LINE = 64, LINES_AHEAD = 128, PAGE = 4096 };

INLINE int64_t ceil_div(int64_t a, int64_t b) { return b == 1 ? a : (a + b - 1) / b; } /* for 0 <= a */

/* n items of a fixed size, one in every step: the compiler knows the size where this is called. */
INLINE void copy_items(char *to, const char *from, int64_t n, int64_t step, size_t bytes) {
  for (int64_t i = 0; i < n; i++) memcpy(to + i * (int64_t)bytes, from + i * step, bytes);
}

INLINE void copy_rows(char *to, const char *from, int64_t n, const Span *span) {
  int64_t bytes = span->row_bytes, step = span->step * bytes;
  if (n == 1 || span->step == 1) {
    int64_t all = n * bytes;
    if (all == 4) memcpy(to, from, 4); /* without a call */
    else if (all == 8) memcpy(to, from, 8);
    else memcpy(to, from, (size_t)all);
  } else if (bytes == 1) copy_items(to, from, n, step, 1);
  else if (bytes == 2) copy_items(to, from, n, step, 2);
  else if (bytes == 4) copy_items(to, from, n, step, 4);
  else if (bytes == 8) copy_items(to, from, n, step, 8);
  else copy_items(to, from, n, step, (size_t)bytes);
}

static bool is_plan(const Plan *plan) {
  for (int64_t s = 0; s < plan->span_count; s++) {
    const Span *span = &plan->spans[s];
    int64_t item = span->item_bytes;
    if (span->length < 1 || span->step < 1 || (item != 1 && item != 2 && item != 4 && item != 8)) return false;
    if (span->row_bytes < item || span->row_bytes % item) return false;
    /* by division: the product might not fit */
    if (span->start < -plan->history || span->start >= plan->horizon) return false;
    if (span->length - 1 > (plan->horizon - 1 - span->start) / span->step) return false;
  }
  return plan->source_count >= 1 && plan->history >= 0 && plan->horizon >= 0;
}

INLINE int64_t width_of(const Plan *plan, int64_t source) { return plan->apart ? plan->sources[source].width : 1; }

INLINE int64_t place_of(const Batch *batch, int64_t i) { return batch->places ? batch->places[i] : batch->anchors[i]; }

/* How many slots of a span are skipped by window i. */
INLINE int64_t skipped(const Batch *batch, const Span *span, int64_t i) {
  if (!batch->skips || span->draw < 0) return 0;
  return batch->skips[span->draw * batch->size + i] / span->step;
}

/* Whether of each span some slot is left. */
static bool are_skips(const Plan *plan, const Batch *batch) {
  for (int64_t s = 0; batch->skips && s < plan->span_count; s++) {
    const Span *span = &plan->spans[s];
    if (span->draw < -1 || span->draw >= batch->draws) return false;
    for (int64_t i = 0; i < batch->size; i++) {
      int64_t skip = skipped(batch, span, i);
      if (skip < 0 || skip >= span->length) return false;
    }
  }
  return true;
}

/* Writes the place of a window that begins at piece k; false if one of its fragments is out of range. */
INLINE bool place(const Source *source, const Plan *plan, int64_t anchor, int64_t k, int64_t *found) {
  int64_t length = plan->history + plan->horizon, start = anchor - plan->history;
  bool whole = start >= source->first[k] && start + length <= source->first[k] + source->count[k];
  *found = whole ? source->row[k] + anchor - source->first[k] : ~k;
  for (; k < source->guide.count && source->first[k] < start + length; k++)
    if (source->count[k] < 0 || source->row[k] < 0 || source->row[k] > source->rows - source->count[k]) return false;
  return true;
}

enum { SOON = 8 }; /* windows ahead: more would not stay in the first cache until they are looked at */

/* Asks for the fragments of a window, from fragment k on: mostly few, in two cache lines of each array. */
INLINE void ask_for_fragments(const Source *source, int64_t k) {
  int64_t line = LINE / (int64_t)sizeof(int64_t), next = least(k + line, source->guide.count - 1);
  __builtin_prefetch(&source->first[k]);
  __builtin_prefetch(&source->row[k]);
  __builtin_prefetch(&source->count[k]);
  __builtin_prefetch(&source->first[next]);
  __builtin_prefetch(&source->row[next]);
  __builtin_prefetch(&source->count[next]);
}

/* Checks all windows of a call whose slots are rows. */
static int64_t check_rows(const Plan *plan, const Batch *batch) {
  for (int64_t i = 0; i < batch->size; i++) {
    int64_t w = batch->which ? batch->which[i] : 0, anchor = batch->anchors[i];
    if (w < 0 || w >= plan->source_count || width_of(plan, w) < 1) return i;
    if (anchor < plan->history || anchor > plan->sources[w].rows - plan->horizon) return i;
  }
  return DONE;
}

/* Checks all windows of a call and writes their places; nothing is copied yet. */
static int64_t find_places(const Plan *plan, const Batch *batch) {
  int64_t n = batch->size, starts[FOUND_TOGETHER], k[FOUND_TOGETHER];
  for (int64_t at = 0, some; at < n; at += some) {
    int64_t w = batch->which ? batch->which[at] : 0;
    if (w < 0 || w >= plan->source_count || width_of(plan, w) < 1) return at;
    const Source *source = &plan->sources[w];
    int64_t upto = source->guide.count ? end_of(&source->guide, source->guide.count - 1) : source->rows;
    for (some = 0; some < FOUND_TOGETHER && at + some < n; some++) { /* neighbours of one source go together */
      if (batch->which && batch->which[at + some] != w) break;
      int64_t anchor = batch->anchors[at + some];
      if (anchor < plan->history || anchor > upto - plan->horizon) return at + some;
      starts[some] = anchor - plan->history;
      batch->places[at + some] = anchor;
    }
    if (!source->guide.count) continue;
    int64_t bad = find_pieces(&source->guide, starts, some, k);
    if (bad != DONE) return bad < 0 ? bad : at + bad;
    for (int64_t soon = least(SOON, some), i = -soon; i < some; i++) {
      if (i + soon < some) ask_for_fragments(source, k[i + soon]);
      if (i >= 0 && !place(source, plan, starts[i] + plan->history, k[i], &batch->places[at + i])) return at + i;
    }
  }
  return DONE;
}

/* Slots of a window. Some may be empty; the rows of the others follow each other, as those of a window mostly do.
 * Windows are cut into stretches once for all spans of the same slots, because that takes as long as copying them. */
typedef struct {
  int64_t slot, length; /* the first slot, counted through all windows of the batch, and how many there are */
  int64_t row, count;   /* likewise of the rows */
  int64_t marks;        /* where the marks of these slots begin in the tile, or -1 if none of them is empty */
  int64_t source;
} Stretch;

enum { STRETCHES = 1024, MARKS = 1 << 15 };

typedef struct {
  int64_t stretches, marks;
  Stretch stretch[STRETCHES];
  uint8_t mark[MARKS]; /* 1 for a slot with a row, 0 for an empty one */
} Tile;

/* Where the next stretch begins: a window, a slot in it, and a fragment of its source. */
typedef struct {
  int64_t i, slot, k;
} Cut;

/* Empty slots, and then as many slots as there are rows, one in every `step` of the span. */
typedef struct {
  int64_t empty, count, row;
} Piece;

/* The next piece, up to the slot `end`, of a window whose span begins at the slot `start` of its source. */
INLINE Piece next_piece(const Source *source, int64_t step, int64_t start, int64_t end, Cut *at) {
  for (;; at->k++) { /* the first fragments may lie before the span */
    bool any = at->k < source->guide.count;
    int64_t low = any ? source->first[at->k] - start : end * step, high = any ? low + source->count[at->k] : low;
    int64_t from = low <= at->slot * step ? at->slot : least(ceil_div(low, step), end);
    int64_t upto = high <= from * step ? from : least(ceil_div(high, step), end);
    if (upto == from && from < end) continue;
    Piece piece = {from - at->slot, upto - from, any ? source->row[at->k] + from * step - low : 0};
    at->k += upto < end;
    at->slot = upto;
    return piece;
  }
}

/* Cuts a window with empty slots, of which `next` is the beginning, up to its end or until the tile is full. */
INLINE void cut_window(const Source *source, const Span *span, int64_t start, Stretch next, Cut *at, Tile *tile) {
  int64_t end = least(span->length, at->slot + MARKS - tile->marks);
  memset(tile->mark + tile->marks, 1, (size_t)(end - at->slot));
  for (Stretch *last = NULL; at->slot < end && tile->stretches < STRETCHES;) {
    Piece piece = next_piece(source, span->step, start, end, at);
    if (last && !last->count) last->row = piece.row;
    if (!last || (piece.count && piece.row != last->row + last->count * span->step)) {
      next.row = piece.row, next.marks = tile->marks;
      last = &tile->stretch[tile->stretches++];
      *last = next;
    }
    if (piece.empty == 1) tile->mark[tile->marks] = 0; /* without a call */
    else memset(tile->mark + tile->marks, 0, (size_t)piece.empty);
    tile->marks += piece.empty + piece.count;
    next.slot += piece.empty + piece.count;
    last->length += piece.empty + piece.count;
    last->count += piece.count;
  }
}

/* Cuts as many windows before window `end` as there is room for, where the last call ended. */
static void cut(const Plan *plan, const Batch *batch, const Span *span, int64_t end, Cut *at, Tile *tile) {
  tile->stretches = tile->marks = 0;
  for (; at->i < end; at->slot = 0, at->i++) {
    int64_t row = place_of(batch, at->i), slot = at->i * span->length;
    int64_t w = batch->which ? batch->which[at->i] : 0;
    if (tile->stretches == STRETCHES) return;
    if (!at->slot) {
      at->k = ~row;
      at->slot = skipped(batch, span, at->i);
      if (at->slot) tile->stretch[tile->stretches++] = (Stretch){slot, at->slot, 0, 0, 0, w};
      if (tile->stretches == STRETCHES) return;
    }
    slot += at->slot;
    if (row >= 0) {
      int64_t n = span->length - at->slot, from = row + span->start + at->slot * span->step;
      tile->stretch[tile->stretches++] = (Stretch){slot, n, from, n, -1, w};
      continue;
    }
    Stretch next = {slot, 0, 0, 0, 0, w};
    cut_window(&plan->sources[w], span, batch->anchors[at->i] + span->start, next, at, tile);
    if (at->slot < span->length) return;
  }
}

/* How many of n marks follow each other that are the same as the first. */
INLINE int64_t alike(const uint8_t *mark, int64_t n) {
  int64_t i = 1;
  while (i < n && mark[i] == mark[0]) i++;
  return i;
}

/* How many windows of a span are asked for together. */
static int64_t block_of(const Span *span) {
  int64_t apart = span->step * span->row_bytes;
  int64_t lines = span->length * (apart <= LINE ? apart : span->row_bytes + LINE) / LINE + 1;
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
  int64_t bytes = span->row_bytes, apart = span->step * bytes, most = 2 * LINES_AHEAD;
  int64_t second = LINE - (int64_t)((uintptr_t)from & (LINE - 1));
  if (apart <= LINE)
    for (int64_t b = second; b < least((rows - 1) * apart + bytes, most * LINE); b += LINE)
      __builtin_prefetch(from + b, 0, 2);
  else
    for (int64_t i = 0, lines = 0; i < rows && lines < most; i++)
      for (int64_t b = 0; b < bytes; b += LINE, lines++) __builtin_prefetch(from + i * apart + b, 0, 2);
}

/* What is copied span by span, up to the span `end`: stretches of a tile or, if there is none, windows of the call, of
 * which every slot has a row. They need no tile, which takes as long as copying a short window. */
typedef struct {
  const Plan *plan;
  const Batch *batch;
  const Tile *tile;
  int64_t first, last, end; /* the first stretch or window, and the last one + 1 */
  bool apart;               /* whether rows of a source may lie apart */
} Job;

/* How far a job has asked for memory ahead of its copies: the next stretch or window, `at`, of a span, of which so many
 * are asked for together. */
typedef struct {
  int64_t span, at, block;
} Ahead;

INLINE int64_t source_of(const Job *job, int64_t i) {
  return job->tile ? job->tile->stretch[i].source : job->batch->which ? job->batch->which[i] : 0;
}

/* How many rows of stretch or window number i lie side by side. */
INLINE int64_t width_at(const Job *job, int64_t i) { return job->apart ? job->plan->sources[source_of(job, i)].width : 1; }

/* A span as it lies in the source of stretch or window number i. */
INLINE Span span_in(const Job *job, const Span *span, int64_t i) {
  Span own = *span;
  own.step *= width_at(job, i);
  return own;
}

/* Where the rows of a span, number s, in stretch or window number i begin. */
INLINE const char *rows_of(const Job *job, int64_t s, const Span *span, int64_t i) {
  int64_t row = job->tile ? job->tile->stretch[i].row : place_of(job->batch, i) + span->start;
  const char *column = job->plan->columns[source_of(job, i) * job->plan->span_count + s];
  return column + row * span->row_bytes * width_at(job, i);
}

/* The window of stretch number i, or window i. */
INLINE int64_t window_of(const Job *job, const Span *span, int64_t i) {
  return job->tile ? job->tile->stretch[i].slot / span->length : i;
}

/* Whether stretch or window number i is of another column of the pack than the one before, in the same window: then its
 * rows lie in the lines that are read for that one. Parts of one window count too. */
INLINE bool continues(const Job *job, int64_t s, int64_t i) {
  const Plan *plan = job->plan;
  if (width_at(job, i) == 1 || i == job->first) return false;
  int64_t two = source_of(job, i), spans = plan->span_count;
  int64_t one = source_of(job, i - 1);
  if (one == two) return window_of(job, &plan->spans[s], i - 1) == window_of(job, &plan->spans[s], i);
  int64_t w = window_of(job, &plan->spans[s], i);
  if (two < one || job->batch->anchors[w - 1] != job->batch->anchors[w]) return false;
  int64_t between = plan->columns[two * spans + s] - plan->columns[one * spans + s];
  return between > 0 && between < plan->sources[one].width * plan->spans[s].row_bytes;
}

/* The end of the block of a span that begins at number `at`, or of the span; columns of one window stay together. */
INLINE int64_t end_of_block(const Job *job, int64_t s, int64_t at, int64_t block) {
  int64_t end = least(at + block, job->last);
  while (end < job->last && continues(job, s, end)) end++;
  return end;
}

INLINE int64_t rows_at(const Job *job, const Span *span, int64_t i) {
  return job->tile ? job->tile->stretch[i].count : span->length;
}

INLINE Ahead beginning_of(const Job *job, int64_t s) {
  return (Ahead){s, job->first, s < job->end ? block_of(&job->plan->spans[s]) : 0};
}

INLINE Ahead moved_to(const Job *job, const Ahead *ahead, int64_t at) {
  return at < job->last ? (Ahead){ahead->span, at, ahead->block} : beginning_of(job, ahead->span + 1);
}

/* Asks for the pages of the next two blocks. */
INLINE void ask_next_pages(const Job *job, Ahead *pages) {
  if (pages->span == job->end) return;
  const Span span = job->plan->spans[pages->span];
  int64_t i = pages->at, upto = end_of_block(job, pages->span, i, pages->block);
  if (upto < job->last) upto = end_of_block(job, pages->span, upto, pages->block);
  for (; i < upto; i++) {
    if (i > pages->at && continues(job, pages->span, i)) continue;
    const Span own = span_in(job, &span, i);
    ask_pages(rows_of(job, pages->span, &span, i), rows_at(job, &span, i), &own);
  }
  *pages = moved_to(job, pages, i);
}

/* Asks for the lines of the next block. */
INLINE void ask_next_lines(const Job *job, Ahead *lines) {
  if (lines->span == job->end) return;
  const Span span = job->plan->spans[lines->span];
  int64_t i = lines->at, upto = end_of_block(job, lines->span, i, lines->block);
  for (; i < upto; i++) {
    if (i > lines->at && continues(job, lines->span, i)) continue;
    const Span own = span_in(job, &span, i);
    ask_lines(rows_of(job, lines->span, &span, i), rows_at(job, &span, i), &own);
  }
  *lines = moved_to(job, lines, i);
}

/* Copies the rows of a stretch to the slots that have one, and fills the others. */
INLINE void copy_stretch(const Job *job, int64_t s, int64_t i, const Span *span, uint64_t empty) {
  const Stretch *one = &job->tile->stretch[i];
  const uint8_t *mark = job->tile->mark + (one->marks < 0 ? 0 : one->marks);
  const char *from = rows_of(job, s, span, i);
  int64_t bytes = span->row_bytes, n = one->length;
  char *to = job->batch->out[s] + one->slot * bytes;
  char *seen = job->batch->observed ? job->batch->observed[s] : NULL;
  if (one->marks < 0) copy_rows(to, from, n, span);
  else if (!one->count) fill(to, n * bytes, empty);
  else if (bytes <= 8) expand(to, from, one->count, span->step, bytes, mark, n, empty);
  else
    for (int64_t at = 0, some; at < n; at += some, to += some * bytes) {
      some = alike(mark + at, n - at);
      if (mark[at]) copy_rows(to, from, some, span), from += some * span->step * bytes;
      else fill(to, some * bytes, empty);
    }
  if (!seen) return;
  if (one->marks < 0 || !one->count) memset(seen + one->slot, one->count > 0, (size_t)n);
  else memcpy(seen + one->slot, mark, (size_t)n);
}

enum { COLUMNS = 64 }; /* that are copied together */

/* Whether stretch or window number i is of a column that lies beside others, and has all its rows. */
INLINE bool is_column(const Job *job, const Span *span, int64_t i) {
  if (span->row_bytes > 8 || width_at(job, i) == 1) return false;
  return !job->tile || (job->tile->stretch[i].marks < 0 && job->tile->stretch[i].count);
}

/* Whether the rows of two columns of a window are the same ones. */
INLINE bool same_rows(const Job *job, int64_t i, int64_t j) {
  if (!job->tile) return place_of(job->batch, i) == place_of(job->batch, j);
  const Stretch *one = &job->tile->stretch[i], *two = &job->tile->stretch[j];
  return one->row == two->row && one->count == two->count;
}

/* Copies the rows of a column, number i, together with those of other columns of the window, up to number `end`;
 * returns the number of the first that is left. Empty stretches between them are filled. */
INLINE int64_t copy_beside(const Job *job, int64_t s, const Span *apart, int64_t i, int64_t end, uint64_t empty) {
  const Batch *batch = job->batch;
  int64_t bytes = apart->row_bytes, n = rows_at(job, apart, i), count = 0, first = i;
  Column column[COLUMNS];
  for (; i < end && count < COLUMNS; i++) {
    if (i > first && !continues(job, s, i)) break;
    if (job->tile && !job->tile->stretch[i].count) {
      copy_stretch(job, s, i, apart, empty);
      continue;
    }
    if (i > first && (!is_column(job, apart, i) || !same_rows(job, first, i))) break;
    int64_t slot = job->tile ? job->tile->stretch[i].slot : i * apart->length;
    column[count++] = (Column){batch->out[s] + slot * bytes, rows_of(job, s, apart, i)};
    if (job->tile && batch->observed && batch->observed[s]) memset(batch->observed[s] + slot, 1, (size_t)n);
  }
  copy_columns(column, count, n, apart->step * bytes, bytes);
  return i;
}

/* Before a block is copied, the lines of the next block are asked for, and every second time the pages of the two blocks
 * after it. The processor looks up several pages at a time, but all that follows in the program waits for them: so they
 * are not asked for one by one between the copies, nor just before their lines. */
INLINE void copy_job(const Job *job, int64_t s) {
  Ahead pages = beginning_of(job, s), lines = pages;
  ask_next_pages(job, &pages);
  ask_next_lines(job, &lines);
  for (; s < job->end; s++) {
    const Span span = job->plan->spans[s];
    uint64_t empty = repeated(span.empty, span.item_bytes);
    int64_t block = block_of(&span), window = span.length * span.row_bytes;
    char *to = job->batch->out[s];
    for (int64_t i = job->first, upto, number = 0; i < job->last; number++) {
      if (number % 2 == 0) ask_next_pages(job, &pages);
      ask_next_lines(job, &lines);
      upto = end_of_block(job, s, i, block);
      for (int64_t next; i < upto; i = next) {
        const Span own = span_in(job, &span, i);
        next = i + 1;
        if (is_column(job, &own, i)) next = copy_beside(job, s, &own, i, upto, empty);
        else if (job->tile) copy_stretch(job, s, i, &own, empty);
        else copy_rows(to + i * window, rows_of(job, s, &own, i), own.length, &own);
      }
    }
  }
}

/* What all windows of a job have in common is decided here and not at each of them: the compiler makes a loop for each
 * kind of job. It reads from copies, or it would read again after every row that is written. */
static void copy_spans(const Plan *plan, const Batch *batch, const Tile *tile, int64_t first, int64_t last, int64_t s,
                       int64_t end) {
  const Plan one = *plan;
  const Batch part = *batch;
  if (one.apart) copy_job(&(Job){&one, &part, tile, first, last, end, true}, s);
  else if (tile) copy_job(&(Job){&one, &part, tile, first, last, end, false}, s);
  else copy_job(&(Job){&one, &part, NULL, first, last, end, false}, s);
}

static bool same_slots(const Span *one, const Span *two) {
  return one->start == two->start && one->length == two->length && one->step == two->step && one->draw == two->draw;
}

static bool has_fragments(const Plan *plan) {
  for (int64_t k = 0; k < plan->source_count; k++)
    if (plan->sources[k].guide.count) return true;
  return false;
}

enum { PART = 1 << 16, SPLIT = 1 << 20 }; /* bytes: of a part, and below which threads gain nothing */

/* The windows of a call, as many in each part but the last of a buffer. */
typedef struct {
  const Plan *plan;
  const Batch *batch;
  int64_t each, parts; /* windows of a part, and parts of a buffer */
  bool pieces;         /* whether slots may be empty */
} Shared;

/* The windows of one buffer, except that `size` remains the distance between the rows of `skips`. */
static Batch of_buffer(const Plan *plan, const Batch *batch, int64_t number) {
  Batch one = *batch;
  int64_t windows = number * (batch->size / batch->buffers), addresses = number * plan->span_count;
  one.anchors += windows;
  if (one.which) one.which += windows;
  if (one.places) one.places += windows;
  if (one.skips) one.skips += windows;
  one.out += addresses;
  if (one.observed) one.observed += addresses;
  return one;
}

static void copy_part(const void *about, int64_t part) {
  const Shared *all = about;
  const Plan *plan = all->plan;
  const Batch batch = of_buffer(plan, all->batch, part / all->parts);
  int64_t first = part % all->parts * all->each, last = least(first + all->each, batch.size / batch.buffers);
  if (!all->pieces) {
    copy_spans(plan, &batch, NULL, first, last, 0, plan->span_count);
    return;
  }
  Tile tile;
  for (int64_t s = 0, end; s < plan->span_count; s = end) {
    const Span *span = &plan->spans[s];
    for (end = s + 1; end < plan->span_count && same_slots(span, &plan->spans[end]);) end++;
    Cut at = {first, 0, 0};
    for (cut(plan, &batch, span, last, &at, &tile); tile.stretches; cut(plan, &batch, span, last, &at, &tile))
      copy_spans(plan, &batch, &tile, 0, tile.stretches, s, end);
  }
}

/* Fills a batch: checks first, so that nothing is written where an anchor is out of place. */
EXPORT int64_t tensorstash_gather(const Plan *plan, const Batch *batch) {
  if (batch->size < 0 || batch->buffers < 1 || batch->size % batch->buffers) return MALFORMED;
  if (!is_plan(plan) || !are_skips(plan, batch)) return MALFORMED;
  bool pieces = has_fragments(plan);
  if (pieces && !batch->places) return MALFORMED;
  int64_t bad = batch->places ? find_places(plan, batch) : check_rows(plan, batch);
  int64_t bytes = 1, windows = batch->size / batch->buffers, each = windows;
  if (bad != DONE || !windows) return bad;
  for (int64_t s = 0; s < plan->span_count; s++) bytes += plan->spans[s].length * plan->spans[s].row_bytes;
  if (batch->threads > 1 && bytes >= SPLIT / batch->size) each = least(windows, 1 + PART / bytes);
  Shared all = {plan, batch, each, ceil_div(windows, each), batch->observed || batch->skips || pieces};
  in_parts(&(Parts){copy_part, &all, all.parts * batch->buffers}, batch->threads);
  return DONE;
}

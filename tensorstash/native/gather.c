/* Windows of rows into batches: their indices are checked, and windows with empty slots are cut into chunks. */

#include "copy.h"

INLINE int64_t ceil_div(int64_t a, int64_t b) { return b == 1 ? a : (a + b - 1) / b; } /* for 0 <= a */

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

INLINE int64_t width_of(const Plan *plan, int64_t source) { return plan->by_item ? plan->sources[source].width : 1; }

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

/* Where the next chunk begins: a window, a slot in it, and a fragment of its source. */
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
INLINE void cut_window(const Source *source, const Span *span, int64_t start, Chunk next, Cut *at, Tile *tile) {
  int64_t end = least(span->length, at->slot + MARKS - tile->marks);
  memset(tile->mark + tile->marks, 1, (size_t)(end - at->slot));
  for (Chunk *last = NULL; at->slot < end && tile->chunks < CHUNKS;) {
    Piece piece = next_piece(source, span->step, start, end, at);
    if (last && !last->count) last->row = piece.row;
    if (!last || (piece.count && piece.row != last->row + last->count * span->step)) {
      next.row = piece.row, next.marks = tile->marks;
      last = &tile->chunk[tile->chunks++];
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
  tile->chunks = tile->marks = 0;
  for (; at->i < end; at->slot = 0, at->i++) {
    int64_t row = place_of(batch, at->i), slot = at->i * span->length;
    int64_t w = batch->which ? batch->which[at->i] : 0;
    if (tile->chunks == CHUNKS) return;
    if (!at->slot) {
      at->k = ~row;
      at->slot = skipped(batch, span, at->i);
      if (at->slot) tile->chunk[tile->chunks++] = (Chunk){slot, at->slot, 0, 0, 0, w};
      if (tile->chunks == CHUNKS) return;
    }
    slot += at->slot;
    if (row >= 0) {
      int64_t n = span->length - at->slot, from = row + span->start + at->slot * span->step;
      tile->chunk[tile->chunks++] = (Chunk){slot, n, from, n, -1, w};
      continue;
    }
    Chunk next = {slot, 0, 0, 0, 0, w};
    cut_window(&plan->sources[w], span, batch->anchors[at->i] + span->start, next, at, tile);
    if (at->slot < span->length) return;
  }
}

/* Cuts windows of rows in any order, `(size, length)`, -1 for an empty slot, before window `end`, likewise: rows that
 * follow each other are a chunk, as those are as a rule that became known at one time. */
static void cut_picked(const int64_t *rows, const Batch *batch, int64_t length, int64_t end, Cut *at, Tile *tile) {
  tile->chunks = 0;
  for (; at->i < end; at->slot = 0, at->i++) {
    const int64_t *row = rows + at->i * length;
    int64_t w = batch->which ? batch->which[at->i] : 0;
    while (at->slot < length) {
      if (tile->chunks == CHUNKS) return;
      int64_t from = at->slot, first = row[from], k = from + 1;
      if (first < 0) while (k < length && row[k] < 0) k++;
      else while (k < length && row[k] - k == first - from) k++;
      Chunk *one = &tile->chunk[tile->chunks++];
      if (first < 0) *one = (Chunk){at->i * length + from, k - from, 0, 0, 0, w};
      else *one = (Chunk){at->i * length + from, k - from, first, k - from, -1, w};
      at->slot = k;
    }
  }
}

static bool same_slots(const Span *one, const Span *two) {
  return one->start == two->start && one->length == two->length && one->step == two->step && one->draw == two->draw;
}

enum { PART = 1 << 16, SPLIT = 1 << 20 }; /* bytes: of a part, and below which threads gain nothing */

/* The windows of a call, as many in each part but the last. */
typedef struct {
  const Plan *plan;
  const Batch *batch;
  const int64_t *picked; /* (size, length) the row of each slot, or -1; or null, and windows have anchors */
  int64_t each;          /* windows of a part */
  bool pieces;           /* whether slots may be empty */
} Shared;

static void copy_windows(const Shared *all, int64_t first, int64_t last) {
  const Plan *plan = all->plan;
  const Batch *batch = all->batch;
  if (!all->picked && !all->pieces) {
    copy_spans(plan, batch, NULL, first, last, 0, plan->span_count);
    return;
  }
  Tile tile;
  for (int64_t s = 0, end; s < plan->span_count; s = end) {
    const Span *span = &plan->spans[s];
    for (end = s + 1; end < plan->span_count && same_slots(span, &plan->spans[end]);) end++;
    for (Cut at = {first, 0, 0};;) {
      if (all->picked) cut_picked(all->picked, batch, span->length, last, &at, &tile);
      else cut(plan, batch, span, last, &at, &tile);
      if (!tile.chunks) break;
      if (all->picked) copy_picked(plan, batch, all->picked, &tile, s, end);
      else copy_spans(plan, batch, &tile, 0, tile.chunks, s, end);
    }
  }
}

static void copy_part(const void *about, int64_t part) {
  const Shared *all = about;
  int64_t first = part * all->each;
  copy_windows(all, first, least(first + all->each, all->batch->size));
  if (is_streamed(all->plan, all->batch)) end_streams();
}

/* Copies windows that were checked. */
static void copy_all(const Plan *plan, const Batch *batch, const int64_t *picked, bool pieces) {
  int64_t bytes = 1 + bytes_of_window(plan), each = batch->size;
  if (!each) return;
  if (batch->threads > 1 && bytes >= SPLIT / batch->size) each = least(each, 1 + PART / bytes);
  Shared all = {plan, batch, picked, each, pieces};
  in_parts(&(Parts){copy_part, &all, ceil_div(batch->size, each)}, batch->threads);
}

/* Fills a batch: checks first, so that nothing is written where an anchor is out of place. */
EXPORT int64_t tensorstash_gather(const Plan *plan, const Batch *batch) {
  if (batch->size < 0 || !is_plan(plan) || !are_skips(plan, batch)) return MALFORMED;
  int64_t bad = batch->places ? find_places(plan, batch) : check_rows(plan, batch);
  if (bad == DONE) copy_all(plan, batch, NULL, batch->observed || batch->skips || batch->places);
  return bad;
}

/* Checks all windows of rows in any order. */
static int64_t check_picked(const Plan *plan, const Batch *batch, const int64_t *rows) {
  int64_t length = plan->spans[0].length;
  for (int64_t i = 0; i < batch->size; i++, rows += length) {
    int64_t w = batch->which ? batch->which[i] : 0;
    if (w < 0 || w >= plan->source_count) return i;
    uint64_t upto = (uint64_t)plan->sources[w].rows, bad = 0;
    for (int64_t j = 0; j < length; j++) bad |= (uint64_t)rows[j] + 1 > upto; /* of -1 it is 0 */
    if (bad) return i;
  }
  return DONE;
}

/* The same from rows in any order, `(size, length)`, -1 for an empty slot: all spans are as long. The batch has neither
 * anchors nor places. */
EXPORT int64_t tensorstash_take(const Plan *plan, const Batch *batch, const int64_t *rows) {
  if (batch->size < 0 || !is_plan(plan) || !plan->span_count || plan->by_item) return MALFORMED;
  for (int64_t s = 0; s < plan->span_count; s++)
    if (plan->spans[s].length != plan->spans[0].length || plan->spans[s].step != 1) return MALFORMED;
  int64_t bad = check_picked(plan, batch, rows);
  if (bad == DONE) copy_all(plan, batch, rows, true);
  return bad;
}

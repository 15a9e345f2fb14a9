/* What is copied: whole windows, or chunks of them. */

#ifndef TENSORSTASH_COPY_H
#define TENSORSTASH_COPY_H

#include "kernel.h"

INLINE int64_t place_of(const Batch *batch, int64_t i) { return batch->places ? batch->places[i] : batch->anchors[i]; }

/* Bytes of a window in a batch. */
INLINE int64_t bytes_of_window(const Plan *plan) {
  int64_t bytes = 0;
  for (int64_t s = 0; s < plan->span_count; s++) bytes += plan->spans[s].length * plan->spans[s].row_bytes;
  return bytes;
}

/* Whether the batch is so large that its rows are written past the caches. */
INLINE bool is_streamed(const Plan *plan, const Batch *batch) {
  return batch->size && bytes_of_window(plan) >= plan->streamed / batch->size;
}

/* Slots of a window. Some may be empty; the rows of the others follow each other, as those of a window mostly do.
 * Windows are cut into chunks once for all spans of the same slots, because that takes as long as copying them. */
typedef struct {
  int64_t slot, length; /* the first slot, counted through all windows of the batch, and how many there are */
  int64_t row, count;   /* likewise of the rows */
  int64_t marks;        /* where the marks of these slots begin in the tile, or -1 if none of them is empty */
  int64_t source;
} Chunk;

enum { CHUNKS = 1024, MARKS = 1 << 15 };

typedef struct {
  int64_t chunks, marks;
  Chunk chunk[CHUNKS];
  uint8_t mark[MARKS]; /* 1 for a slot with a row, 0 for an empty one */
} Tile;

/* Copies of the spans from s up to `end` the chunks from `first` up to `last` of a tile or, without one, such windows
 * of the batch, which then have no empty slots. */
void copy_spans(const Plan *plan, const Batch *batch, const Tile *tile, int64_t first, int64_t last, int64_t s,
                int64_t end);

/* Makes what was written past the caches visible to other threads. */
void end_streams(void);

/* The same of rows in any order; `picked` is the row of each slot of the batch, or -1, of which the tile was cut. */
void copy_picked(const Plan *plan, const Batch *batch, const int64_t *picked, const Tile *tile, int64_t s, int64_t end);

#endif

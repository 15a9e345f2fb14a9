#include <stdint.h>
#include <string.h>

enum { BLOCK_BYTES = 8192, LINE = 64 };

/* Asks for the windows from `begin` up to `end`, counted through all columns: first for their pages, several of which
 * the processor looks up at a time, and then for all lines, into the second cache: the first one can wait for far fewer
 * at a time. Inline, because GCC drops calls of a function that does nothing else. */
static inline __attribute__((always_inline)) void ask(const char *const *columns, const int64_t *starts, int64_t count,
                                                      int64_t bytes, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        const char *from = columns[i / count] + starts[i % count] * 4;
        __builtin_prefetch(from, 0, 2);
        __builtin_prefetch(from + bytes - 1, 0, 2);
    }
    for (int64_t i = begin; i < end; i++) {
        const char *from = columns[i / count] + starts[i % count] * 4;
        for (int64_t at = LINE; at < bytes; at += LINE) __builtin_prefetch(from + at, 0, 2);
    }
}

/* out[c][i] = columns[c][starts[i]], `bytes` of it; while a block of windows is copied, the next one, across the ends
 * of columns too, is on its way. */
void gather(const char *const *columns, int64_t width, const int64_t *starts, int64_t count, int64_t bytes, char *out) {
    int64_t all = width * count, block = BLOCK_BYTES / bytes + 1;
    for (int64_t done = -block; done < all; done += block) {
        int64_t next = done + block, end = next + block < all ? next + block : all;
        if (next < all) ask(columns, starts, count, bytes, next, end);
        for (int64_t i = done < 0 ? 0 : done; i < next && i < all; i++)
            memcpy(out + i * bytes, columns[i / count] + starts[i % count] * 4, bytes);
    }
}

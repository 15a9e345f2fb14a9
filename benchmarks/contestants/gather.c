#include <stdint.h>
#include <string.h>

enum { AHEAD_BYTES = 8192, LINE = 64 };

/* out[c][i] = columns[c][starts[i]], `bytes` of it, while the cache lines of a later window, across the ends of columns
 * too, are on their way to the second cache: the first one can wait for far fewer at a time. */
void gather(const char *const *columns, int64_t width, const int64_t *starts, int64_t count, int64_t bytes, char *out) {
    int64_t all = width * count, ahead = AHEAD_BYTES / bytes + 1, column = 0, row = 0;
    for (int64_t i = -ahead; i < all; i++) {
        if (i + ahead < all) {
            const char *later = columns[column] + starts[row] * 4;
            for (int64_t at = 0; at < bytes + LINE - 1; at += LINE) __builtin_prefetch(later + at, 0, 2);
            if (++row == count) row = 0, column++;
        }
        if (i >= 0) memcpy(out + i * bytes, columns[i / count] + starts[i % count] * 4, bytes);
    }
}

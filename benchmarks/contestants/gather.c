#include <stdint.h>
#include <string.h>

enum { AHEAD = 8, LINE = 64 };

/* out[i] = base[starts[i]], `bytes` of it, while the cache lines of a later window are on their way. */
void gather(const char *base, const int64_t *starts, int64_t count, int64_t bytes, char *out) {
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            const char *later = base + starts[i + AHEAD] * 4;
            for (int64_t at = 0; at < bytes + LINE - 1; at += LINE) __builtin_prefetch(later + at, 0, 3);
        }
        memcpy(out + i * bytes, base + starts[i] * 4, bytes);
    }
}

/* Columns of a pack, which lie side by side, into rows of their own. */

#include "kernel.h"

/* Bytes of a pack that are read again for each of its columns: they stay in the first cache. */
enum { AT_ONCE = 1 << 14 };

/* n items of a fixed size, which lie `apart` bytes from each other. */
INLINE void copy_items(char *to, const char *from, int64_t n, int64_t apart, size_t bytes) {
  for (int64_t i = 0; i < n; i++) memcpy(to + i * (int64_t)bytes, from + i * apart, bytes);
}

static void copy_column(char *to, const char *from, int64_t n, int64_t apart, int64_t bytes) {
  if (bytes == 1) copy_items(to, from, n, apart, 1);
  else if (bytes == 2) copy_items(to, from, n, apart, 2);
  else if (bytes == 4) copy_items(to, from, n, apart, 4);
  else copy_items(to, from, n, apart, 8);
}

void copy_columns(const Column *column, int64_t count, int64_t n, int64_t apart, int64_t bytes) {
  int64_t each = (AT_ONCE / apart + 8) & ~(int64_t)7;
  for (int64_t first = 0, some; first < n; first += some) {
    some = least(each, n - first);
    for (int64_t k = 0; k < count; k++)
      copy_column(column[k].to + first * bytes, column[k].from + first * apart, some, apart, bytes);
  }
}

/* A few threads that help a caller with the parts of its work. They sleep if the next call does not come soon. */

#if defined(__linux__)
#define _GNU_SOURCE /* for sched_getaffinity */
#endif

#include "kernel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/* To wake a thread takes up to 100 us on a virtual machine, in which a hundred windows are copied. So a thread looks for
 * what it waits for before it sleeps: the caller 50 us for the last helper, as long as it copies a few parts, and
 * helpers 300 us for the next call, but only if the last one came as soon. Where batches are small, Python takes 100 to
 * 200 us to hand out those of one call. A step that trains on a call of 1 MB takes longer even with the smallest of
 * models, and needs the processor itself. The clock counts, not the looks: a look takes ten times as long on one
 * processor as on another. */
enum { MOST_THREADS = 64, LOOKS = 16 /* without a look at the clock */, PATIENCE = 50000, SOON = 300000 /* ns */ };

typedef struct {
  Parts parts;
  _Atomic int64_t next;    /* the part that nobody has taken yet */
  _Atomic int64_t helping; /* threads that may still work on a part */
  _Atomic int64_t places;  /* how many more may help */
  int64_t started;
  int64_t ended; /* when the last call did */
  bool soon;     /* whether this call came soon after it */
  bool spare;    /* whether there is a processor for each thread; if not, who looks keeps another from its work */
} Pool;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* of the caller that is helped */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the pool, except `next` and `helping` */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, rest = PTHREAD_COND_INITIALIZER;
static Pool pool;

/* A forked child has none of the threads, and whoever held a lock is not there to release it. */
static void forget(void) {
  turn = lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  wake = rest = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  pool = (Pool){0};
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget); }

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Processors that this thread may run on. */
static int64_t processors(void) {
#if defined(__linux__)
  cpu_set_t own;
  if (!sched_getaffinity(0, sizeof own, &own)) return CPU_COUNT(&own);
#endif
  return sysconf(_SC_NPROCESSORS_ONLN);
}

static void pause_a_little(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Looks at a number for so many nanoseconds at most, until it is 0, or until it is not. */
static void look_at(_Atomic int64_t *number, bool until_zero, int64_t most) {
  int64_t began = nanoseconds();
  for (int64_t k = 1; (atomic_load(number) == 0) != until_zero; k++) {
    if (k % LOOKS == 0 && nanoseconds() - began > most) return;
    pause_a_little();
  }
}

static void take_parts(const Parts *parts) {
  for (int64_t k; (k = atomic_fetch_add(&pool.next, 1)) < parts->count;) parts->work(parts->about, k);
}

static void *help(void *unused) {
  pthread_mutex_lock(&lock);
  for (;;) {
    if (pool.soon && !pool.places) {
      pthread_mutex_unlock(&lock);
      look_at(&pool.places, false, SOON);
      pthread_mutex_lock(&lock);
    }
    if (!pool.places) pthread_cond_wait(&wake, &lock);
    if (!pool.places) continue; /* woken when all was done: the next call may come soon */
    pool.places--;
    Parts parts = pool.parts;
    atomic_fetch_add(&pool.helping, 1);
    pthread_mutex_unlock(&lock);
    take_parts(&parts);
    pthread_mutex_lock(&lock);
    if (atomic_fetch_sub(&pool.helping, 1) == 1) pthread_cond_signal(&rest);
  }
  return unused;
}

/* Starts threads until there are so many, or the system gives no more. Signals are for the threads of the program. */
static void start(int64_t threads) {
  sigset_t all, before;
  pthread_attr_t detached;
  pthread_t thread;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  while (pool.started < threads && !pthread_create(&thread, &detached, help, NULL)) pool.started++;
  pthread_attr_destroy(&detached);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pool.spare = pool.started < processors();
}

/* The caller begins at once, and does not wait for a thread that wakes up after the last part is taken. */
void in_parts(const Parts *parts, int64_t threads) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int64_t helpers = least(least(threads, MOST_THREADS), parts->count) - 1;
  if (helpers < 1 || pthread_mutex_trylock(&turn)) { /* another caller is being helped */
    for (int64_t k = 0; k < parts->count; k++) parts->work(parts->about, k);
    return;
  }
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&lock);
  if (pool.started < helpers) start(helpers);
  pool.parts = *parts;
  pool.soon = pool.spare && nanoseconds() - pool.ended < SOON;
  pool.places = least(helpers, pool.started);
  atomic_store(&pool.next, 0);
  for (int64_t k = 0; k < pool.places; k++) pthread_cond_signal(&wake);
  pthread_mutex_unlock(&lock);
  take_parts(parts);
  pthread_mutex_lock(&lock);
  pool.places = 0;
  pthread_mutex_unlock(&lock);
  if (pool.spare) look_at(&pool.helping, true, PATIENCE);
  pthread_mutex_lock(&lock);
  while (atomic_load(&pool.helping)) pthread_cond_wait(&rest, &lock);
  pool.ended = nanoseconds();
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&turn);
}

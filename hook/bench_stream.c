/* bench_stream.c: what the hook adds to each call of a stream like a training's: a call every
 * GAP_NS, between them work that walks through CHILL bytes, as a framework does, so that the hook's
 * own memory is cold again. Iterations of CALLS calls are made in turn past the hook (by a pointer
 * into the NCCL) and through it, all in one run. Run with the hook preloaded:
 *   bench_stream ITERATIONS CALLS GAP_NS CHILL_BYTES [muted|WORD]
 * WORD: the ring's profile word, hexadecimal.
 * Prints a line for past and one for through: 50th, 99th, 99.9th percentile and mean of a call,
 * median of an iteration's sum, all in ns; then minor and major page faults of the measured part;
 * then brackets made in a second of it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "include/greyhound_ring.h"
#include "nccl_abi.h"

typedef ncclResult_t (*reduce_fn)(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
extern void *greyhound_control(uint32_t *layout) __attribute__((weak));

static reduce_fn ways[2] = {NULL, ncclAllReduce};
static long iterations, calls, gap_ns, chill_bytes;
static ncclComm_t comm;
static char *chill;
static double *call_ns[2], *sum_ns[2];

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void work_until(double when) {
  for (long i = 0; i < chill_bytes; i += 64) chill[i]++;
  while (now_ns() < when) continue;
}

/* The sum of the calls' times; each is kept in `each`. */
static double iteration(reduce_fn reduce, double *each) {
  double sum = 0, begin = now_ns();
  for (long i = 0; i < calls; i++) {
    work_until(begin + (double)(i * gap_ns));
    double before = now_ns();
    reduce(chill, chill, 1024, 7, 0, comm, NULL);
    each[i] = now_ns() - before;
    sum += each[i];
  }
  return sum;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void tell(int way) {
  long n = iterations * calls;
  double total = 0;
  for (long i = 0; i < iterations; i++) total += sum_ns[way][i];
  qsort(call_ns[way], (size_t)n, sizeof(double), ascending);
  qsort(sum_ns[way], (size_t)iterations, sizeof(double), ascending);
  printf("%.1f %.1f %.1f %.1f %.1f\n", call_ns[way][n / 2], call_ns[way][n * 99 / 100],
         call_ns[way][n * 999 / 1000], total / (double)n, sum_ns[way][iterations / 2]);
}

static double *filled(long n) {
  double *at = malloc((size_t)n * sizeof *at);
  if (!at) exit(1);
  for (long i = 0; i < n; i++) at[i] = 1; /* no page fault of it later */
  return at;
}

static void measure(const struct gh_timing_counts *counts) {
  struct rusage before, after;
  iteration(ways[0], call_ns[0]); /* warm-up */
  iteration(ways[1], call_ns[1]);
  getrusage(RUSAGE_SELF, &before);
  uint64_t made = counts ? counts->made : 0;
  double begin = now_ns();
  for (long i = 0; i < iterations; i++)
    for (int way = 0; way < 2; way++)
      sum_ns[way][i] = iteration(ways[way], call_ns[way] + i * calls);
  getrusage(RUSAGE_SELF, &after);
  double brackets_per_s = counts ? (double)(counts->made - made) * 1e9 / (now_ns() - begin) : 0;
  tell(0);
  tell(1);
  printf("%ld %ld\n", after.ru_minflt - before.ru_minflt, after.ru_majflt - before.ru_majflt);
  printf("%.1f\n", brackets_per_s);
}

int main(int argc, char **argv) {
  ncclUniqueId id;
  if (argc > 1) iterations = atol(argv[1]);
  if (argc > 2) calls = atol(argv[2]);
  if (argc > 3) gap_ns = atol(argv[3]);
  if (argc > 4) chill_bytes = atol(argv[4]);
  if (argc < 5 || iterations < 1 || calls < 1 || gap_ns < 0 || chill_bytes < 0) {
    fprintf(stderr, "usage: bench_stream ITERATIONS CALLS GAP_NS CHILL_BYTES [muted|WORD]\n");
    return 2;
  }
  chill = calloc(1, (size_t)chill_bytes + 64);
  for (int way = 0; way < 2; way++) {
    call_ns[way] = filled(iterations * calls);
    sum_ns[way] = filled(iterations);
  }
  void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  ways[0] = nccl ? (reduce_fn)dlsym(nccl, "ncclAllReduce") : NULL;
  if (!ways[0]) return 1;
  memset(&id, 1, sizeof id);
  if (!chill || ncclCommInitRank(&comm, 2, id, 0)) return 1;
  unsigned char *ring = greyhound_control ? greyhound_control(NULL) : NULL;
  if (ring && argc > 5 && !strcmp(argv[5], "muted"))
    *(volatile uint32_t *)(ring + GH_OFF_MODE) = GH_MODE_MUTED;
  else if (ring && argc > 5)
    *(volatile uint64_t *)(ring + GH_OFF_PROFILE) = strtoull(argv[5], NULL, 16);
  measure(ring ? (void *)(ring + GH_OFF_TIMINGS) : NULL);
  return 0;
}

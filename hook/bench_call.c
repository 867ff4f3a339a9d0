/* bench_call.c: nanoseconds a call of ncclAllReduce. Run it without and with the hook preloaded:
 * bench_call [CALLS] [THREADS] [WORD]. The best of many short rounds: other load on the machine
 * only ever adds, and a round is shorter than a time slice. WORD: the ring's profile word,
 * hexadecimal.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "include/greyhound_ring.h"
#include "nccl_abi.h"

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, int datatype,
                           int redop, ncclComm_t comm, cudaStream_t stream);

extern void *greyhound_control(uint32_t *layout) __attribute__((weak));

#define ROUNDS 200

static long calls = 20000; /* in a round */
static ncclComm_t comm;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *work(void *buffer) {
  for (long i = 0; i < calls; i++) ncclAllReduce(buffer, buffer, 1024, 7, 0, comm, NULL);
  return NULL;
}

static double round_ns(int threads) {
  pthread_t others[64];
  char buffer[64];
  double start = now_ns();
  for (int i = 1; i < threads; i++) pthread_create(&others[i], NULL, work, buffer);
  work(buffer);
  for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
  return (now_ns() - start) / (double)calls;
}

int main(int argc, char **argv) {
  ncclUniqueId id;
  int threads = argc > 2 ? atoi(argv[2]) : 1;
  if (argc > 1) calls = atol(argv[1]);
  if (calls < 1 || threads < 1 || threads > 64) {
    fprintf(stderr, "usage: bench_call [CALLS >= 1] [THREADS 1..64]\n");
    return 2;
  }
  memset(&id, 1, sizeof id);
  if (ncclCommInitRank(&comm, 2, id, 0)) return 1;
  unsigned char *ring = greyhound_control ? greyhound_control(NULL) : NULL;
  if (ring && argc > 3) *(volatile uint64_t *)(ring + GH_OFF_PROFILE) = strtoull(argv[3], NULL, 16);
  double best = round_ns(threads);
  for (int i = 1; i < ROUNDS; i++) {
    double once = round_ns(threads);
    if (once < best) best = once;
  }
  printf("%.1f\n", best);
  return 0;
}

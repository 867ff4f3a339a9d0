/* timed.c: ranks over the stand-in, each a process, that do what the words of argv[2...] say:
 *   pWORD  the ring's profile word, hexadecimal     mMODE  the ring's mode
 *   rBYTES all-reduce     sBYTES send from even ranks to the next one
 *   gBYTES two all-reduces in a group               xBYTES send and receive in a group
 *   yBYTES two all-reduces in a group, on two communicators and streams
 *   kMS@R  a kernel of so long on rank R            zMS@R  rank R's host sleeps
 *   oBYTES all-reduce between events of the program's own, whose distance in ns is printed
 *   w      wait for the stream                      d      a new communicator, the old destroyed
 *   cBYTES an all-reduce captured into a graph, while another stream goes on; launched twice
 *   tN     N small all-reduces in each of two threads, each on a communicator and stream of its own
 *   vN     device R + N from here on                e      leaves an error of CUDA's pending
 *   l      prints the pending error of CUDA         f      a child of fork calls, and fails
 *   u      ends profiling, waits, and calls on until all is told that was under way
 * N*WORD repeats. argv[1]: number of ranks.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../hook/include/greyhound_ring.h"
#include "nccl.h"
#include "standin.h"

#define MUST(call)                                                               \
  do {                                                                           \
    int code_ = (int)(call);                                                     \
    if (code_) fprintf(stderr, "rank %d: %s = %d\n", me, #call, code_), exit(3); \
  } while (0)
#define MOST_BYTES (16 << 20)

static int me, ranks, up[64][2];
static ncclComm_t world, second, alone;
static cudaStream_t stream, side;
static char *data, *more, *beside; /* the last for `side` */

extern void *greyhound_control(uint32_t *layout) __attribute__((weak));

/* Rank 0's to all, by pipes. */
static ncclUniqueId unique(void) {
  ncclUniqueId id;
  if (!me) MUST(ncclGetUniqueId(&id));
  for (int r = 1; !me && r < ranks; r++) MUST(write(up[r][1], &id, sizeof id) != sizeof id);
  if (me) MUST(read(up[me][0], &id, sizeof id) != sizeof id);
  return id;
}

static void reduce(size_t bytes, ncclComm_t comm, cudaStream_t on, char *at) {
  MUST(ncclAllReduce(at, at, bytes / 4, ncclFloat32, ncclSum, comm, on));
}
static void own(size_t bytes) {
  cudaEvent_t start, end;
  float ms;
  MUST(cudaEventCreate(&start) || cudaEventCreate(&end) || cudaEventRecord(start, stream));
  reduce(bytes, world, stream, data);
  MUST(cudaEventRecord(end, stream) || cudaEventSynchronize(end));
  MUST(cudaEventElapsedTime(&ms, start, end));
  printf("%d %.0f\n", me, (double)ms * 1e6);
}
static void exchange(size_t bytes, int both) {
  int peer = me ^ 1;
  if (both) MUST(ncclGroupStart());
  if (both || me % 2 == 0) MUST(ncclSend(data, bytes, ncclUint8, peer, world, stream));
  if (both || me % 2) MUST(ncclRecv(more, bytes, ncclUint8, peer, world, stream));
  if (both) MUST(ncclGroupEnd());
}
static void two(size_t bytes, int streams) {
  MUST(ncclGroupStart());
  reduce(bytes, world, stream, data);
  reduce(bytes, streams == 2 ? second : world, streams == 2 ? side : stream,
         streams == 2 ? beside : more);
  MUST(ncclGroupEnd());
}
static void capture(size_t bytes) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  reduce(bytes, second, side, beside);
  reduce(bytes, world, stream, data);
  MUST(cudaStreamEndCapture(stream, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphLaunch(exec, stream));
  MUST(cudaGraphLaunch(exec, stream));
}
static void *calls(void *n) {
  MUST(cudaSetDevice(me));
  for (long i = 0; i < (long)n; i++) reduce(64, second, side, beside);
  MUST(cudaStreamSynchronize(side));
  return NULL;
}
static void in_threads(long n) {
  pthread_t other;
  MUST(pthread_create(&other, NULL, calls, (void *)n));
  for (long i = 0; i < n; i++) reduce(64, world, stream, data);
  pthread_join(other, NULL);
}
static void in_child(void) {
  int status;
  pid_t child = fork();
  if (!child) _exit(!ncclAllReduce(data, data, 1, ncclUint8, ncclSum, world, stream));
  MUST(waitpid(child, &status, 0) != child || status);
}
static void renew(void) {
  MUST(ncclCommDestroy(world));
  MUST(ncclCommInitRank(&world, ranks, unique(), me));
}
static void tell_all(void) {
  unsigned char *ring = greyhound_control ? greyhound_control(NULL) : NULL;
  struct gh_timing_counts *counts = (void *)(ring + GH_OFF_TIMINGS);
  MUST(cudaStreamSynchronize(stream) || cudaStreamSynchronize(side));
  if (!ring) return;
  __atomic_store_n((uint64_t *)(ring + GH_OFF_PROFILE), 0, __ATOMIC_RELAXED);
  if (!counts->made) return;
  int more_calls = 50; /* after the relation of the clocks is known */
  for (int i = 0; i < 20000 && more_calls; i++) {
    reduce(4, alone, stream, data);
    if (__atomic_load_n(&counts->clock_error_ns, __ATOMIC_RELAXED)) more_calls--;
    usleep(more_calls == 50 ? 500 : 0);
  }
}
static void word(const char *text) {
  size_t n = strtoul(text + 1, NULL, 10);
  const char *at = strchr(text, '@');
  int mine = !at || atoi(at + 1) == me;
  unsigned char *ring = greyhound_control ? greyhound_control(NULL) : NULL;
  uint64_t value = strtoull(text + 1, NULL, 16);
  switch (*text) {
    case 'p':
      if (ring) __atomic_store_n((uint64_t *)(ring + GH_OFF_PROFILE), value, __ATOMIC_RELAXED);
      break;
    case 'm':
      if (ring) __atomic_store_n((uint32_t *)(ring + GH_OFF_MODE), (uint32_t)n, __ATOMIC_RELAXED);
      break;
    case 'r':
      return reduce(n, world, stream, data);
    case 'o':
      return own(n);
    case 's':
    case 'x':
      return exchange(n, *text == 'x');
    case 'g':
    case 'y':
      return two(n, *text == 'y' ? 2 : 1);
    case 'c':
      return capture(n);
    case 't':
      return in_threads((long)n);
    case 'f':
      return in_child();
    case 'd':
      return renew();
    case 'k':
      MUST(mine && standinKernel(stream, 0, (double)n / 1e3));
      break;
    case 'z':
      MUST(mine && usleep((useconds_t)n * 1000));
      break;
    case 'w':
      MUST(cudaStreamSynchronize(stream) || cudaStreamSynchronize(side));
      break;
    case 'u':
      return tell_all();
    case 'v':
      MUST(cudaSetDevice(me + (int)n));
      break;
    case 'e':
      MUST(cudaSetDevice(999) != cudaErrorInvalidDevice);
      break;
    case 'l':
      printf("%d\n", (int)cudaGetLastError());
      break;
    default:
      fprintf(stderr, "unknown word %s\n", text), exit(2);
  }
}

static int run(int argc, char **argv) {
  char number[16];
  snprintf(number, sizeof number, "%d", me);
  setenv("RANK", number, 1);
  MUST(cudaSetDevice(me));
  MUST(cudaStreamCreate(&stream));
  MUST(cudaStreamCreate(&side));
  data = calloc(1, MOST_BYTES);
  more = calloc(1, MOST_BYTES);
  beside = calloc(1, MOST_BYTES);
  MUST(ncclCommInitRank(&world, ranks, unique(), me));
  MUST(ncclCommInitRank(&second, ranks, unique(), me));
  ncclUniqueId id;
  MUST(ncclGetUniqueId(&id));
  MUST(ncclCommInitRank(&alone, 1, id, 0));
  for (int i = 2; i < argc; i++) {
    const char *star = strchr(argv[i], '*');
    long times = star ? atol(argv[i]) : 1;
    for (long n = 0; n < times; n++) word(star ? star + 1 : argv[i]);
  }
  MUST(cudaStreamSynchronize(stream));
  fflush(stdout);
  return 0;
}

int main(int argc, char **argv) {
  int failed = 0, status;
  ranks = argc > 1 ? atoi(argv[1]) : 0;
  if (ranks < 1 || ranks > 64) return 2;
  for (int r = 0; r < ranks; r++) MUST(pipe(up[r]));
  for (me = 0; me < ranks; me++)
    if (!fork()) _exit(run(argc, argv));
  while (wait(&status) > 0) failed |= status;
  return failed ? 1 : 0;
}

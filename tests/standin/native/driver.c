/* driver.c: four ranks as threads of one process, for the sanitizers: collectives, groups, events,
 * graphs, splits, abort under load, destruction. Exits 0 if every result was right. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl.h"
#include "standin.h"

#define RANKS 4
#define COUNT 20000
#define ROUNDS 15

#define CHECK(call)                                                              \
  do {                                                                           \
    int code_ = (int)(call);                                                     \
    if (code_ != 0) {                                                            \
      fprintf(stderr, "%s:%d: %s = %d (%s)\n", __FILE__, __LINE__, #call, code_, \
              ncclGetLastError(NULL));                                           \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)

static void expect(int ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "wrong result: %s\n", what);
  exit(1);
}

struct rank {
  pthread_t thread;
  int index;
  ncclUniqueId id;
};

static void fill(float *data, float value) {
  for (int i = 0; i < COUNT; i++) data[i] = value;
}

static void collectives(ncclComm_t comm, int me, cudaStream_t stream, ncclDataType_t dtype) {
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  char *data = calloc(COUNT * RANKS, 8), *out = calloc(COUNT * RANKS, 8);
  size_t n = COUNT / 4 + 3;
  for (int i = 0; i < 5; i++) {
    CHECK(ncclAllReduce(data, out, n, dtype, ops[i], comm, stream));
    CHECK(ncclReduceScatter(data, out, n, dtype, ops[i], comm, stream));
    CHECK(ncclReduce(data, out, n, dtype, ops[i], i % RANKS, comm, stream));
  }
  CHECK(ncclBroadcast(data, out, n, dtype, 1, comm, stream));
  CHECK(ncclBcast(data, n, dtype, 2, comm, stream));
  CHECK(ncclAllGather(data, out, n, dtype, comm, stream));
  CHECK(ncclAlltoAll(data, out, n, dtype, comm, stream));
  CHECK(ncclGather(data, out, n, dtype, 0, comm, stream));
  CHECK(ncclScatter(data, out, n, dtype, 3, comm, stream));
  CHECK(cudaStreamSynchronize(stream));
  (void)me;
  free(data);
  free(out);
}

static void sums(ncclComm_t comm, int me, cudaStream_t stream) {
  float *data = malloc(COUNT * sizeof *data);
  cudaEvent_t start, end;
  float milliseconds;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  for (int round = 0; round < ROUNDS; round++) {
    fill(data, (float)(me + 1));
    CHECK(cudaEventRecord(start, stream));
    CHECK(standinKernel(stream, standinNow(), 0.0005));
    CHECK(ncclAllReduce(data, data, COUNT, ncclFloat32, ncclSum, comm, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    expect(milliseconds > 0.4f, "elapsed time");
    expect(data[0] == 10.0f && data[COUNT - 1] == 10.0f, "all-reduce");
  }
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(end));
  free(data);
}

static void exchange(ncclComm_t comm, int me, cudaStream_t one, cudaStream_t two) {
  float *mine = malloc(COUNT * sizeof *mine), *got = malloc(COUNT * sizeof *got);
  int next = (me + 1) % RANKS, previous = (me + RANKS - 1) % RANKS;
  for (int round = 0; round < ROUNDS; round++) {
    fill(mine, (float)me);
    CHECK(ncclGroupStart());
    CHECK(ncclSend(mine, COUNT, ncclFloat32, next, comm, one));
    CHECK(ncclRecv(got, COUNT, ncclFloat32, previous, comm, two));
    CHECK(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(two));
    expect(got[0] == (float)previous && got[COUNT - 1] == (float)previous, "exchange");
    CHECK(cudaStreamSynchronize(one));
  }
  free(mine);
  free(got);
}

static void replay(ncclComm_t comm, cudaStream_t stream) {
  float data[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(ncclAllReduce(data, data, 8, ncclFloat32, ncclSum, comm, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  expect(data[7] == 64.0f, "graph");
}

static void splits(ncclComm_t comm, int me, cudaStream_t stream) {
  for (int round = 0; round < 5; round++) {
    ncclComm_t child;
    float value = 1;
    CHECK(ncclCommSplit(comm, me % 2, me, &child, NULL));
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, child, stream));
    CHECK(ncclCommDestroy(child));
    expect(value == 2.0f, "split");
  }
}

/* Everybody is in an operation that rank 0 never joins; it aborts, the others see the error. */
static void abort_under_load(ncclComm_t comm, int me, cudaStream_t stream) {
  float *data = calloc(COUNT, sizeof *data);
  struct timespec pause = {.tv_nsec = 20000000};
  ncclResult_t error = ncclSuccess;
  if (me == 0) {
    nanosleep(&pause, NULL);
    CHECK(ncclCommAbort(comm));
  } else {
    for (int i = 0; i < 3 && error == ncclSuccess; i++) {
      ncclResult_t code = ncclAllReduce(data, data, COUNT, ncclFloat32, ncclSum, comm, stream);
      expect(code == ncclSuccess || code == ncclRemoteError, "call on a broken communicator");
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(ncclCommGetAsyncError(comm, &error));
    expect(error == ncclRemoteError, "asynchronous error");
    CHECK(ncclCommAbort(comm));
  }
  free(data);
}

static void *run(void *argument) {
  struct rank *self = argument;
  ncclComm_t comm, second;
  cudaStream_t one, two;
  CHECK(cudaSetDevice(self->index));
  CHECK(cudaStreamCreate(&one));
  CHECK(cudaStreamCreate(&two));
  CHECK(ncclCommInitRank(&comm, RANKS, self->id, self->index));
  for (int dtype = ncclInt8; dtype <= ncclBfloat16; dtype++)
    collectives(comm, self->index, one, (ncclDataType_t)dtype);
  sums(comm, self->index, one);
  exchange(comm, self->index, one, two);
  replay(comm, one);
  splits(comm, self->index, two);
  CHECK(ncclCommSplit(comm, 0, 0, &second, NULL));
  abort_under_load(second, self->index, two);
  CHECK(cudaDeviceSynchronize());
  CHECK(ncclCommFinalize(comm));
  CHECK(ncclCommDestroy(comm));
  CHECK(cudaStreamDestroy(one));
  CHECK(cudaStreamDestroy(two));
  return NULL;
}

int main(void) {
  struct rank ranks[RANKS];
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  for (int i = 0; i < RANKS; i++) {
    ranks[i] = (struct rank){.index = i, .id = id};
    CHECK(pthread_create(&ranks[i].thread, NULL, run, &ranks[i]));
  }
  for (int i = 0; i < RANKS; i++) pthread_join(ranks[i].thread, NULL);
  puts("ok");
  return 0;
}

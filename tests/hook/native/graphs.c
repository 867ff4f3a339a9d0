/* graphs.c: captures NCCL calls into CUDA graphs and launches them. argv[1]: the scenario. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../hook/nccl_abi.h"

ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void *, size_t, int, int, ncclComm_t, cudaStream_t);
int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);
int cudaGraphInstantiate(void **, void *, unsigned long long);
int cudaGraphExecUpdate(void *, void *, void *);
int cudaGraphLaunch(void *, void *);
int cudaGraphExecDestroy(void *);
int cudaGraphDestroy(void *);
int fake_launches(void);

#define MUST(call) \
  if (call) exit(3)
static char buffer[64];
static void *const one = (void *)0x10, *const two = (void *)0x20;

static void *capture(ncclComm_t comm, int reduces, int sends) {
  void *graph;
  MUST(cudaStreamBeginCapture(one, 0));
  for (int i = 0; i < reduces; i++) MUST(ncclAllReduce(buffer, buffer, 10, 7, 0, comm, one));
  for (int i = 0; i < sends; i++) MUST(ncclSend(buffer, 10, 7, 2, comm, one));
  MUST(ncclAllReduce(buffer, buffer, 10, 7, 0, comm, two)); /* another stream: issued at once */
  MUST(cudaStreamEndCapture(one, &graph));
  return graph;
}

int main(int argc, char **argv) {
  ncclUniqueId id;
  ncclComm_t comm;
  void *exec;
  memset(&id, 1, sizeof id);
  MUST(ncclCommInitRank(&comm, 4, id, 0));
  if (argc > 1 && !strcmp(argv[1], "unknown")) {
    MUST(cudaGraphLaunch(buffer, one));
    return 0;
  }
  void *graph = capture(comm, 3, 2);
  MUST(cudaGraphInstantiate(&exec, graph, 5));
  for (int i = 0; i < 10; i++) MUST(cudaGraphLaunch(exec, one));
  void *other = capture(comm, 1, 0);
  MUST(cudaGraphExecUpdate(exec, other, NULL));
  MUST(cudaGraphLaunch(exec, one));
  MUST(cudaGraphDestroy(graph));
  MUST(cudaGraphExecDestroy(exec));
  printf("launches %d\n", fake_launches());
  return 0;
}

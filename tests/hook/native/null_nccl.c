/* null_nccl.c: an NCCL that does nothing, for timing the hook. */
#include "../../../hook/nccl_abi.h"

static int made;

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  (void)nranks, (void)id, (void)rank;
  *comm = &made;
  return 0;
}
ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, int datatype,
                            int redop, ncclComm_t comm, cudaStream_t stream) {
  (void)sendbuff, (void)recvbuff, (void)count, (void)datatype, (void)redop, (void)comm,
      (void)stream;
  return 0;
}
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int)
    __attribute__((weak, alias("pncclCommInitRank")));
ncclResult_t ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t)
    __attribute__((weak, alias("pncclAllReduce")));

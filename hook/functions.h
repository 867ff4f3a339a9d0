/* functions.h: the one table of what is intercepted, NCCL 2.18 to 2.32. */
#ifndef GREYHOUND_FUNCTIONS_H
#define GREYHOUND_FUNCTIONS_H

/* X(name, op, parameters, arguments, count, datatype, redop, peer or root)
 * Every one has parameters called `comm` and `stream`. */
#define GH_DATA_FUNCTIONS(X)                                                                       \
  X(AllReduce, GH_OP_ALL_REDUCE,                                                                   \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int redop, ncclComm_t comm, \
     cudaStream_t stream),                                                                         \
    (sendbuff, recvbuff, count, datatype, redop, comm, stream), count, datatype, redop, -1)        \
  X(AllReduceConfig, GH_OP_ALL_REDUCE,                                                             \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int redop, ncclComm_t comm, \
     cudaStream_t stream, const void *config),                                                     \
    (sendbuff, recvbuff, count, datatype, redop, comm, stream, config), count, datatype, redop,    \
    -1)                                                                                            \
  X(Broadcast, GH_OP_BROADCAST,                                                                    \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, ncclComm_t comm,  \
     cudaStream_t stream),                                                                         \
    (sendbuff, recvbuff, count, datatype, root, comm, stream), count, datatype, GH_NONE, root)     \
  X(BroadcastConfig, GH_OP_BROADCAST,                                                              \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, ncclComm_t comm,  \
     cudaStream_t stream, const void *config),                                                     \
    (sendbuff, recvbuff, count, datatype, root, comm, stream, config), count, datatype, GH_NONE,   \
    root)                                                                                          \
  X(Bcast, GH_OP_BROADCAST,                                                                        \
    (void *buff, size_t count, int datatype, int root, ncclComm_t comm, cudaStream_t stream),      \
    (buff, count, datatype, root, comm, stream), count, datatype, GH_NONE, root)                   \
  X(Reduce, GH_OP_REDUCE,                                                                          \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int redop, int root,        \
     ncclComm_t comm, cudaStream_t stream),                                                        \
    (sendbuff, recvbuff, count, datatype, redop, root, comm, stream), count, datatype, redop,      \
    root)                                                                                          \
  X(ReduceConfig, GH_OP_REDUCE,                                                                    \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int redop, int root,        \
     ncclComm_t comm, cudaStream_t stream, const void *config),                                    \
    (sendbuff, recvbuff, count, datatype, redop, root, comm, stream, config), count, datatype,     \
    redop, root)                                                                                   \
  X(AllGather, GH_OP_ALL_GATHER,                                                                   \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, ncclComm_t comm,            \
     cudaStream_t stream),                                                                         \
    (sendbuff, recvbuff, count, datatype, comm, stream), count, datatype, GH_NONE, -1)             \
  X(AllGatherConfig, GH_OP_ALL_GATHER,                                                             \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, ncclComm_t comm,            \
     cudaStream_t stream, const void *config),                                                     \
    (sendbuff, recvbuff, count, datatype, comm, stream, config), count, datatype, GH_NONE, -1)     \
  X(ReduceScatter, GH_OP_REDUCE_SCATTER,                                                           \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int redop, ncclComm_t comm, \
     cudaStream_t stream),                                                                         \
    (sendbuff, recvbuff, count, datatype, redop, comm, stream), count, datatype, redop, -1)        \
  X(ReduceScatterConfig, GH_OP_REDUCE_SCATTER,                                                     \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int redop, ncclComm_t comm, \
     cudaStream_t stream, const void *config),                                                     \
    (sendbuff, recvbuff, count, datatype, redop, comm, stream, config), count, datatype, redop,    \
    -1)                                                                                            \
  X(AlltoAll, GH_OP_ALL_TO_ALL,                                                                    \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, ncclComm_t comm,            \
     cudaStream_t stream),                                                                         \
    (sendbuff, recvbuff, count, datatype, comm, stream), count, datatype, GH_NONE, -1)             \
  X(AlltoAllConfig, GH_OP_ALL_TO_ALL,                                                              \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, ncclComm_t comm,            \
     cudaStream_t stream, const void *config),                                                     \
    (sendbuff, recvbuff, count, datatype, comm, stream, config), count, datatype, GH_NONE, -1)     \
  X(Gather, GH_OP_GATHER,                                                                          \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, ncclComm_t comm,  \
     cudaStream_t stream),                                                                         \
    (sendbuff, recvbuff, count, datatype, root, comm, stream), count, datatype, GH_NONE, root)     \
  X(GatherConfig, GH_OP_GATHER,                                                                    \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, ncclComm_t comm,  \
     cudaStream_t stream, const void *config),                                                     \
    (sendbuff, recvbuff, count, datatype, root, comm, stream, config), count, datatype, GH_NONE,   \
    root)                                                                                          \
  X(Scatter, GH_OP_SCATTER,                                                                        \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, ncclComm_t comm,  \
     cudaStream_t stream),                                                                         \
    (sendbuff, recvbuff, count, datatype, root, comm, stream), count, datatype, GH_NONE, root)     \
  X(ScatterConfig, GH_OP_SCATTER,                                                                  \
    (const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, ncclComm_t comm,  \
     cudaStream_t stream, const void *config),                                                     \
    (sendbuff, recvbuff, count, datatype, root, comm, stream, config), count, datatype, GH_NONE,   \
    root)                                                                                          \
  X(Send, GH_OP_SEND,                                                                              \
    (const void *sendbuff, size_t count, int datatype, int peer, ncclComm_t comm,                  \
     cudaStream_t stream),                                                                         \
    (sendbuff, count, datatype, peer, comm, stream), count, datatype, GH_NONE, peer)               \
  X(Recv, GH_OP_RECV,                                                                              \
    (void *recvbuff, size_t count, int datatype, int peer, ncclComm_t comm, cudaStream_t stream),  \
    (recvbuff, count, datatype, peer, comm, stream), count, datatype, GH_NONE, peer)               \
  X(PutSignal, GH_OP_PUT_SIGNAL,                                                                   \
    (const void *localbuff, size_t count, int datatype, int peer, ncclWindow_t window,             \
     size_t offset, int signal, int context, unsigned flags, ncclComm_t comm,                      \
     cudaStream_t stream),                                                                         \
    (localbuff, count, datatype, peer, window, offset, signal, context, flags, comm, stream),      \
    count, datatype, GH_NONE, peer)                                                                \
  X(Signal, GH_OP_SIGNAL,                                                                          \
    (int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream),     \
    (peer, signal, context, flags, comm, stream), 0, GH_NONE, GH_NONE, peer)                       \
  X(WaitSignal, GH_OP_WAIT_SIGNAL,                                                                 \
    (int count, void *descriptions, ncclComm_t comm, cudaStream_t stream),                         \
    (count, descriptions, comm, stream), 0, GH_NONE, GH_NONE, -1)

/* X(name, op, parameters, arguments, how the new communicator is identified)
 * Every one has `newcomm`, where NCCL puts the communicator. */
#define GH_BIRTH_FUNCTIONS(X)                                                                      \
  X(CommInitRank, GH_OP_COMM_INIT, (ncclComm_t * newcomm, int nranks, ncclUniqueId id, int rank),  \
    (newcomm, nranks, id, rank), gh_birth_init(&id, nranks, rank))                                 \
  X(CommInitRankConfig, GH_OP_COMM_INIT,                                                           \
    (ncclComm_t * newcomm, int nranks, ncclUniqueId id, int rank, void *config),                   \
    (newcomm, nranks, id, rank, config), gh_birth_init(&id, nranks, rank))                         \
  X(CommInitRankScalable, GH_OP_COMM_INIT,                                                         \
    (ncclComm_t * newcomm, int nranks, int rank, int nids, ncclUniqueId *ids, void *config),       \
    (newcomm, nranks, rank, nids, ids, config), gh_birth_init(ids, nranks, rank))                  \
  X(CommSplit, GH_OP_COMM_SPLIT,                                                                   \
    (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, void *config),                      \
    (comm, color, key, newcomm, config), gh_birth_split(comm, color))                              \
  X(CommShrink, GH_OP_COMM_SHRINK,                                                                 \
    (ncclComm_t comm, int *excluded, int nexcluded, ncclComm_t *newcomm, void *config, int flags), \
    (comm, excluded, nexcluded, newcomm, config, flags),                                           \
    gh_birth_shrink(comm, excluded, nexcluded))                                                    \
  X(CommGrow, GH_OP_COMM_GROW,                                                                     \
    (ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,           \
     void *config),                                                                                \
    (comm, nranks, id, rank, newcomm, config), gh_birth_grow(comm, nranks, id, rank))

/* X(name, op, parameters, arguments, 1 if the communicator's pointer is void afterwards) */
#define GH_COMM_FUNCTIONS(X)                                                         \
  X(CommFinalize, GH_OP_COMM_FINALIZE, (ncclComm_t comm), (comm), 0)                 \
  X(CommDestroy, GH_OP_COMM_DESTROY, (ncclComm_t comm), (comm), 1)                   \
  X(CommAbort, GH_OP_COMM_ABORT, (ncclComm_t comm), (comm), 1)                       \
  X(CommRevoke, GH_OP_COMM_REVOKE, (ncclComm_t comm, int flags), (comm, flags), 0)   \
  X(CommSuspend, GH_OP_COMM_SUSPEND, (ncclComm_t comm, int flags), (comm, flags), 0) \
  X(CommResume, GH_OP_COMM_RESUME, (ncclComm_t comm), (comm), 0)

/* Rows this short never come to rest under the formatter. */
/* clang-format off */

/* X(name): wrappers of their own, or called by the hook itself */
#define GH_OTHER_FUNCTIONS(X)                                               \
  X(CommInitAll) X(GroupStart) X(GroupEnd) X(GroupSimulateEnd)              \
  X(CommUserRank) X(CommCount) X(CommCuDevice) X(GetVersion)

/* X(name): the CUDA runtime's, interposed for graphs. */
#define GH_CUDA_FUNCTIONS(X)                                                \
  X(StreamBeginCapture) X(StreamBeginCapture_ptsz)                          \
  X(StreamBeginCaptureToGraph) X(StreamBeginCaptureToGraph_ptsz)            \
  X(StreamEndCapture) X(StreamEndCapture_ptsz)                              \
  X(GraphInstantiate) X(GraphInstantiateWithFlags)                          \
  X(GraphInstantiateWithParams) X(GraphInstantiateWithParams_ptsz)          \
  X(GraphExecUpdate) X(GraphLaunch) X(GraphLaunch_ptsz)                     \
  X(GraphExecDestroy) X(GraphDestroy)

/* X(name): the CUDA runtime's, called by the hook itself */
#define GH_CUDA_ASKED_FUNCTIONS(X)                                          \
  X(GetDevice) X(DeviceGetPCIBusId) X(StreamIsCapturing)                    \
  X(StreamGetCaptureInfo) X(StreamGetCaptureInfo_v2) X(StreamGetCaptureInfo_v3) \
  GH_CUDA_TIMING_FUNCTIONS(X)

/* X(name): those that timing.c needs, found when a communicator is made */
#define GH_CUDA_TIMING_FUNCTIONS(X)                                         \
  X(EventCreateWithFlags) X(EventRecord) X(EventQuery)                      \
  X(EventElapsedTime) X(EventElapsedTime_v2) X(StreamCreateWithFlags)       \
  X(ThreadExchangeStreamCaptureMode) X(PeekAtLastError) X(GetLastError)
/* clang-format on */

enum gh_fn {
#define GH_NAME_FN(name, ...) GH_FN_##name,
  GH_DATA_FUNCTIONS(GH_NAME_FN) GH_BIRTH_FUNCTIONS(GH_NAME_FN) GH_COMM_FUNCTIONS(GH_NAME_FN)
      GH_OTHER_FUNCTIONS(GH_NAME_FN)
#undef GH_NAME_FN
#define GH_NAME_FN(name) GH_FN_cuda##name,
          GH_CUDA_FUNCTIONS(GH_NAME_FN) GH_CUDA_ASKED_FUNCTIONS(GH_NAME_FN) GH_FN_COUNT
#undef GH_NAME_FN
};
/* The same function called as pncclX, by a tool that stands in front of the hook, say. */
#define GH_PROFILED(fn) ((enum gh_fn)((fn) + GH_FN_COUNT))
#define GH_ENTRY_COUNT (2 * GH_FN_COUNT)

#endif

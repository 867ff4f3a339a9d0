/* calls.c: the collectives and point-to-point calls: arguments are checked, then queued. */
#include "internal.h"

static bool reduces(enum gs_kind kind) {
  return kind == GS_ALL_REDUCE || kind == GS_REDUCE || kind == GS_REDUCE_SCATTER;
}

static bool has_peer(enum gs_kind kind) {
  return kind == GS_REDUCE || kind == GS_BROADCAST || kind >= GS_GATHER;
}

/* Which buffers this rank must give. */
static bool buffers_missing(const struct gs_task *task) {
  bool at_root = !has_peer(task->kind) || task->peer == task->comm->rank;
  bool sends = task->kind != GS_RECV &&
               (at_root || (task->kind != GS_BROADCAST && task->kind != GS_SCATTER));
  bool receives =
      task->kind != GS_SEND && (at_root || (task->kind != GS_REDUCE && task->kind != GS_GATHER));
  if (task->kind == GS_SEND) sends = true;
  if (task->kind == GS_RECV) receives = true;
  return task->count > 0 && ((sends && task->send == NULL) || (receives && task->recv == NULL));
}

static ncclResult_t check(const char *name, struct gs_task *task, ncclRedOp_t op) {
  ncclResult_t result = gs_comm_check(task->comm);
  if (result != ncclSuccess) return result;
  if (gs_dtype_bytes(task->dtype) == 0)
    return gs_error(ncclInvalidArgument, "%s: data type %d", name, (int)task->dtype);
  if (has_peer(task->kind) && (task->peer < 0 || task->peer >= task->comm->nranks))
    return gs_error(ncclInvalidArgument, "%s: rank %d in a communicator of %d", name, task->peer,
                    task->comm->nranks);
  if (buffers_missing(task)) return gs_error(ncclInvalidArgument, "%s: a buffer is NULL", name);
  if (!reduces(task->kind)) return ncclSuccess;
  if (!gs_dtype_reduces(task->dtype))
    return gs_error(ncclInvalidArgument, "%s: the stand-in doesn't reduce data type %d (fp8)", name,
                    (int)task->dtype);
  if (!gs_redop_resolve(op, &task->redop))
    return gs_error(ncclInvalidArgument, "%s: reduction operator %d", name, (int)op);
  return ncclSuccess;
}

static ncclResult_t submit(const char *name, struct gs_task task, ncclRedOp_t op) {
  ncclResult_t result = check(name, &task, op);
  return result == ncclSuccess ? gs_group_add(task) : gs_group_error(result);
}

#define CALL(name, kind_, send_, recv_, count_, peer_, op_) \
  submit("nccl" #name,                                      \
         (struct gs_task){.kind = kind_,                    \
                          .send = send_,                    \
                          .recv = recv_,                    \
                          .count = count_,                  \
                          .dtype = dtype,                   \
                          .peer = peer_,                    \
                          .comm = comm,                     \
                          .stream = stream},                \
         op_)

GS_API(ncclResult_t, AllReduce, const void *send, void *recv, size_t count, ncclDataType_t dtype,
       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return CALL(AllReduce, GS_ALL_REDUCE, send, recv, count, -1, op);
}

GS_API(ncclResult_t, Reduce, const void *send, void *recv, size_t count, ncclDataType_t dtype,
       ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return CALL(Reduce, GS_REDUCE, send, recv, count, root, op);
}

GS_API(ncclResult_t, Broadcast, const void *send, void *recv, size_t count, ncclDataType_t dtype,
       int root, ncclComm_t comm, cudaStream_t stream) {
  return CALL(Broadcast, GS_BROADCAST, send, recv, count, root, ncclSum);
}

/* Through the public function, as NCCL does. */
GS_API(ncclResult_t, Bcast, void *buffer, size_t count, ncclDataType_t dtype, int root,
       ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, dtype, root, comm, stream);
}

GS_API(ncclResult_t, ReduceScatter, const void *send, void *recv, size_t recv_count,
       ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return CALL(ReduceScatter, GS_REDUCE_SCATTER, send, recv, recv_count, -1, op);
}

GS_API(ncclResult_t, AllGather, const void *send, void *recv, size_t send_count,
       ncclDataType_t dtype, ncclComm_t comm, cudaStream_t stream) {
  return CALL(AllGather, GS_ALL_GATHER, send, recv, send_count, -1, ncclSum);
}

GS_API(ncclResult_t, AlltoAll, const void *send, void *recv, size_t count, ncclDataType_t dtype,
       ncclComm_t comm, cudaStream_t stream) {
  return CALL(AlltoAll, GS_ALL_TO_ALL, send, recv, count, -1, ncclSum);
}

GS_API(ncclResult_t, Gather, const void *send, void *recv, size_t count, ncclDataType_t dtype,
       int root, ncclComm_t comm, cudaStream_t stream) {
  return CALL(Gather, GS_GATHER, send, recv, count, root, ncclSum);
}

GS_API(ncclResult_t, Scatter, const void *send, void *recv, size_t count, ncclDataType_t dtype,
       int root, ncclComm_t comm, cudaStream_t stream) {
  return CALL(Scatter, GS_SCATTER, send, recv, count, root, ncclSum);
}

/* Send and Recv open a group through the public functions, as NCCL 2.18 to 2.21 do. */
GS_API(ncclResult_t, Send, const void *send, size_t count, ncclDataType_t dtype, int peer,
       ncclComm_t comm, cudaStream_t stream) {
  ncclGroupStart();
  ncclResult_t result = CALL(Send, GS_SEND, send, NULL, count, peer, ncclSum);
  ncclResult_t ended = ncclGroupEnd();
  return result != ncclSuccess ? result : ended;
}

GS_API(ncclResult_t, Recv, void *recv, size_t count, ncclDataType_t dtype, int peer,
       ncclComm_t comm, cudaStream_t stream) {
  ncclGroupStart();
  ncclResult_t result = CALL(Recv, GS_RECV, NULL, recv, count, peer, ncclSum);
  ncclResult_t ended = ncclGroupEnd();
  return result != ncclSuccess ? result : ended;
}

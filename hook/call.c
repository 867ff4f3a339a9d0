/* call.c: one intercepted call, from entry to exit. */
#include "hook.h"

__thread struct gh_thread gh_thread;

/* Bytes of an element by ncclDataType_t; unknown types count as one byte. */
static const uint8_t type_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

GH_HOT bool gh_failed(ncclResult_t result) {
  return result != GH_NCCL_SUCCESS && result != GH_NCCL_IN_PROGRESS;
}

static uint32_t stream_hash(cudaStream_t stream) {
  uint64_t x = (uintptr_t)stream * 0x9e3779b97f4a7c15u;
  return (uint32_t)(x >> 32);
}

static uint32_t kind_of(uint8_t op) {
  if (op == GH_OP_SEND) return GH_COUNT_SEND;
  if (op == GH_OP_RECV) return GH_COUNT_RECV;
  return op < GH_OP_SEND ? GH_COUNT_COLLECTIVE : 0;
}

GH_HOT static void start(struct gh_call *call, uint64_t comm) {
  struct gh_record *r = &call->record;
  gh_thread.depth++;
  if (!call->recorded) return;
  r->t_ns = gh_now_ns();
  r->comm = comm;
  r->thread = gh_thread_id();
  __atomic_store_n(&gh_ring->heartbeat_ns, r->t_ns, __ATOMIC_RELAXED);
  call->slot = gh_inflight_enter(r->op, comm, r->seq, r->t_ns);
}

/* Instead of a record: as many as a reader would find at top level (trace/records.py), so that
 * iterations can be counted through a muted window. */
GH_HOT void gh_call_muted(const struct gh_call *call) {
  if (call->recorded || (call->record.flags & GH_REC_CAPTURED)) return;
  __atomic_fetch_add(&gh_ring->muted_calls, 1, __ATOMIC_RELAXED);
}

/* Issued now, or kept for a graph: only what is issued is counted. */
GH_HOT static void count(struct gh_call *call, struct gh_member *m, uint32_t kind, int peer,
                         cudaStream_t stream) {
  uint64_t capture;
  if (GH_UNLIKELY(__atomic_load_n(&gh_captures, __ATOMIC_RELAXED)) &&
      gh_cuda_capturing(stream, &capture, gh_thread.caller)) {
    call->record.flags |= GH_REC_CAPTURED;
    gh_graph_captured(capture, m->hash, kind, peer, call->record.bytes);
  } else if (kind == GH_COUNT_COLLECTIVE) {
    call->count = __atomic_load_n(&m->collectives, __ATOMIC_ACQUIRE);
    if (GH_UNLIKELY(!call->count)) {
      call->count = gh_count_of(m->hash, kind, -1);
      __atomic_store_n(&m->collectives, call->count, __ATOMIC_RELEASE);
    }
  } else if (kind) {
    call->count = gh_count_of(m->hash, kind, peer);
  } else {
    gh_ring_flag(GH_FLAG_UNCOUNTED); /* one-sided */
  }
  gh_count_add(call->count, 1);
}

/* False: not to be looked at, forward alone. */
GH_HOT bool gh_call_data(struct gh_call *call, uint8_t op, ncclComm_t comm, size_t elements,
                         int dtype, int redop, int peer, cudaStream_t stream) {
  if (!gh_present()) return false;
  struct gh_member *m = gh_comm_find(comm);
  if (GH_UNLIKELY(!m)) return false;
  __builtin_prefetch(m->shared, 1);
  __builtin_prefetch(__atomic_load_n(&m->collectives, __ATOMIC_RELAXED), 1);
  if (GH_UNLIKELY(__atomic_load_n(&m->shared->state, __ATOMIC_RELAXED) == GH_COMM_PENDING))
    gh_comm_learn(m);
  uint64_t size = (unsigned)dtype < sizeof type_bytes ? type_bytes[dtype] : 1;
  call->recorded = !gh_muted();
  if (call->recorded) gh_ring_expect();
  call->count = NULL;
  call->timed = false;
  call->record = (struct gh_record){
      .bytes = elements * size,
      .seq = __atomic_fetch_add(&m->shared->next_seq, 1, __ATOMIC_RELAXED),
      .stream = stream_hash(stream),
      .group = gh_thread.group,
      .op = op,
      .dtype = (uint8_t)dtype,
      .redop = (unsigned)redop < GH_NONE ? (uint8_t)redop : GH_NONE,
      .flags = gh_thread.group_depth ? GH_REC_IN_GROUP : 0,
      .peer = peer,
  };
  count(call, m, kind_of(op), peer, stream);
  if (gh_thread.group_depth) gh_group_call(m->hash, call->record.bytes, call->count);
  gh_call_muted(call);
  start(call, m->hash);
  if (GH_UNLIKELY(call->recorded && gh_timing_wanted())) gh_timing_begin(call, stream);
  return true;
}

/* Everything that isn't data on a communicator. Only where gh_present(). */
GH_HOT void gh_call_other(struct gh_call *call, uint8_t op, uint64_t comm) {
  call->recorded = !gh_muted();
  call->count = NULL;
  call->timed = false;
  call->record = (struct gh_record){.group = gh_thread.group,
                                    .op = op,
                                    .dtype = GH_NONE,
                                    .redop = GH_NONE,
                                    .flags = gh_thread.group_depth ? GH_REC_IN_GROUP : 0,
                                    .peer = -1};
  start(call, comm);
}

GH_HOT void gh_call_end(struct gh_call *call, ncclResult_t result) {
  struct gh_record *r = &call->record;
  gh_thread.depth--;
  if (GH_UNLIKELY(gh_failed(result))) {
    r->flags |= GH_REC_ERROR;
    if (!gh_thread.group_depth) gh_count_add(call->count, -1); /* refused, so never issued */
  }
  if (!call->recorded) return;
  uint64_t spent = gh_now_ns() - r->t_ns;
  if (GH_UNLIKELY(call->timed)) spent -= gh_timing_end(call, result);
  gh_inflight_leave(call->slot);
  r->host_ns = spent < UINT32_MAX ? (uint32_t)spent : UINT32_MAX;
  if (result == GH_NCCL_IN_PROGRESS) r->flags |= GH_REC_NONBLOCKING;
  gh_ring_write(r);
}

/* group.c: ncclGroupStart/End as this thread sees them. Groups are NCCL's thread-local state, so
 * their depth is kept even before there is a ring: a communicator may be made inside one.
 */
#include "hook.h"

#define JOURNAL (sizeof gh_thread.journal / sizeof gh_thread.journal[0])

/* A call inside the group: what its end will launch. */
GH_HOT void gh_group_call(uint64_t comm, uint64_t bytes, struct gh_count *count) {
  struct gh_thread *t = &gh_thread;
  if (t->group_calls && t->group_comm != comm) t->group_mixed = true;
  t->group_comm = comm;
  t->group_calls++;
  t->group_bytes += bytes;
  if (!count) return;
  if (t->counted < JOURNAL)
    t->journal[t->counted++] = count;
  else
    t->group_overflow = true;
}

GH_HOT static void begin(void) {
  static uint32_t groups;
  struct gh_thread *t = &gh_thread;
  if (t->group_depth++) return;
  uint32_t number = __atomic_add_fetch(&groups, 1, __ATOMIC_RELAXED);
  t->group = number ? number : __atomic_add_fetch(&groups, 1, __ATOMIC_RELAXED);
  t->group_calls = t->counted = 0;
  t->group_mixed = t->group_overflow = false;
  t->group_bytes = 0;
}

/* Nothing was issued after all: take the counts back, where they are still known. */
static void take_back(void) {
  struct gh_thread *t = &gh_thread;
  for (uint32_t i = 0; i < t->counted; i++) gh_count_add(t->journal[i], -1);
  if (t->group_overflow) gh_ring_flag(GH_FLAG_UNCOUNTED);
}

typedef ncclResult_t (*start_fn)(void);

GH_HOT static ncclResult_t start(start_fn real) {
  if (!real) return GH_NCCL_INTERNAL_ERROR;
  if (gh_thread.depth) return real();
  gh_thread.depth++;
  ncclResult_t result = real();
  gh_thread.depth--;
  if (!gh_failed(result)) begin();
  return result;
}

#define DEFINE_START(symbol, fn)                                \
  GH_HOT GH_EXPORT ncclResult_t symbol(void) {                  \
    static GH_HOT_DATA struct gh_answer kept = {0, 0, NULL};    \
    return start((start_fn)gh_real_near(fn, GH_CALLER, &kept)); \
  }
DEFINE_START(ncclGroupStart, GH_FN_GroupStart)
DEFINE_START(pncclGroupStart, GH_PROFILED(GH_FN_GroupStart))

typedef ncclResult_t (*end_fn)(void *);

/* ncclGroupEnd has no argument; passing one to it is harmless in every ABI that NCCL runs on. */
GH_HOT static ncclResult_t end(end_fn real, void *info, uint8_t op) {
  struct gh_thread *t = &gh_thread;
  if (!real) return GH_NCCL_INTERNAL_ERROR;
  if (t->depth || !t->group_depth) return real(info);
  struct gh_call call;
  bool seen = t->group_depth == 1 && gh_present();
  if (seen) {
    gh_call_other(&call, op, t->group_calls && !t->group_mixed ? t->group_comm : 0);
    call.record.flags = 0;
    call.record.aux = t->group_calls;
    call.record.bytes = t->group_bytes;
    if (GH_UNLIKELY(t->timed_calls)) gh_timing_group(&call);
  } else {
    t->depth++;
  }
  ncclResult_t result = real(info);
  if (!seen) {
    t->depth--;
  } else {
    if (op == GH_OP_GROUP_SIMULATE) take_back();
    if (op == GH_OP_GROUP && gh_failed(result)) gh_ring_flag(GH_FLAG_UNCOUNTED);
    gh_comm_settle_pending(result);
    gh_call_end(&call, result);
  }
  if (!--t->group_depth) t->group = 0;
  return result;
}

#define DEFINE_END(symbol, fn)                                                 \
  GH_HOT GH_EXPORT ncclResult_t symbol(void) {                                 \
    static GH_HOT_DATA struct gh_answer kept = {0, 0, NULL};                   \
    return end((end_fn)gh_real_near(fn, GH_CALLER, &kept), NULL, GH_OP_GROUP); \
  }
DEFINE_END(ncclGroupEnd, GH_FN_GroupEnd)
DEFINE_END(pncclGroupEnd, GH_PROFILED(GH_FN_GroupEnd))

#define DEFINE_SIMULATE_END(symbol, fn)                                     \
  GH_EXPORT ncclResult_t symbol(void *info) {                               \
    return end((end_fn)gh_real(fn, GH_CALLER), info, GH_OP_GROUP_SIMULATE); \
  }
DEFINE_SIMULATE_END(ncclGroupSimulateEnd, GH_FN_GroupSimulateEnd)
DEFINE_SIMULATE_END(pncclGroupSimulateEnd, GH_PROFILED(GH_FN_GroupSimulateEnd))

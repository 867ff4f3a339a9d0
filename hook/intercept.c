/* intercept.c: the exported ncclX and pncclX of the table in functions.h. A tool in front of the
 * hook may forward to pncclX itself; where the hook's own call comes back that way, it is
 * forwarded. */
#include "hook.h"

#define REAL(place, fn, params)                               \
  typedef ncclResult_t(*real_fn) params;                      \
  static place struct gh_answer kept = {0, 0, NULL};          \
  real_fn real = (real_fn)gh_real_near(fn, GH_CALLER, &kept); \
  if (GH_UNLIKELY(!real)) return GH_NCCL_INTERNAL_ERROR;      \
  if (!gh_thread.depth) gh_thread.caller = GH_CALLER

#define DEFINE_DATA_AS(symbol, fn, op, params, arguments, count, dtype, redop, peer)        \
  GH_HOT GH_EXPORT ncclResult_t symbol params {                                             \
    REAL(GH_HOT_DATA, fn, params);                                                          \
    struct gh_call call;                                                                    \
    if (!gh_call_data(&call, op, comm, (size_t)(count), dtype, (int)(redop), peer, stream)) \
      return real arguments;                                                                \
    ncclResult_t result = real arguments;                                                   \
    gh_call_end(&call, result);                                                             \
    return result;                                                                          \
  }
#define DEFINE_DATA(name, ...)                          \
  DEFINE_DATA_AS(nccl##name, GH_FN_##name, __VA_ARGS__) \
  DEFINE_DATA_AS(pnccl##name, GH_PROFILED(GH_FN_##name), __VA_ARGS__)
GH_DATA_FUNCTIONS(DEFINE_DATA)

static void describe(struct gh_call *call, const struct gh_birth *birth) {
  call->record.comm = birth->hash ? birth->hash : birth->parent;
  call->record.peer = birth->rank;
  call->record.aux = (uint32_t)birth->size;
}

#define DEFINE_BIRTH_AS(symbol, fn, op, params, arguments, identify) \
  GH_EXPORT ncclResult_t symbol params {                             \
    REAL(, fn, params);                                              \
    if (!gh_session_open()) return real arguments;                   \
    struct gh_birth birth = identify;                                \
    struct gh_call call;                                             \
    gh_call_other(&call, op, birth.hash);                            \
    ncclResult_t result = real arguments;                            \
    gh_comm_born(&birth, op, gh_cuda_device(), newcomm, result);     \
    describe(&call, &birth);                                         \
    gh_call_end(&call, result);                                      \
    return result;                                                   \
  }
#define DEFINE_BIRTH(name, ...)                          \
  DEFINE_BIRTH_AS(nccl##name, GH_FN_##name, __VA_ARGS__) \
  DEFINE_BIRTH_AS(pnccl##name, GH_PROFILED(GH_FN_##name), __VA_ARGS__)
GH_BIRTH_FUNCTIONS(DEFINE_BIRTH)

typedef ncclResult_t (*init_all_fn)(ncclComm_t *, int, const int *);

static ncclResult_t init_all(init_all_fn real, ncclComm_t *comms, int ndev, const int *devices) {
  if (!gh_session_open()) return real(comms, ndev, devices);
  struct gh_birth all = gh_birth_all(ndev);
  struct gh_call call;
  gh_call_other(&call, GH_OP_COMM_INIT, all.hash);
  ncclResult_t result = real(comms, ndev, devices);
  for (int i = 0; comms && i < ndev; i++) {
    struct gh_birth one = all;
    one.rank = i;
    gh_comm_born(&one, GH_OP_COMM_INIT, devices ? devices[i] : i, &comms[i], result);
  }
  describe(&call, &all);
  gh_call_end(&call, result);
  return result;
}
#define DEFINE_INIT_ALL(symbol, fn)                                                \
  GH_EXPORT ncclResult_t symbol(ncclComm_t *comms, int ndev, const int *devices) { \
    REAL(, fn, (ncclComm_t *, int, const int *));                                  \
    return init_all(real, comms, ndev, devices);                                   \
  }
DEFINE_INIT_ALL(ncclCommInitAll, GH_FN_CommInitAll)
DEFINE_INIT_ALL(pncclCommInitAll, GH_PROFILED(GH_FN_CommInitAll))

static uint64_t hash_of(ncclComm_t comm) {
  struct gh_member *member = gh_comm_find(comm);
  return member ? member->hash : 0;
}

#define DEFINE_COMM_AS(symbol, fn, op, params, arguments, ends) \
  GH_EXPORT ncclResult_t symbol params {                        \
    REAL(, fn, params);                                         \
    if (!gh_present()) return real arguments;                   \
    struct gh_call call;                                        \
    gh_call_other(&call, op, hash_of(comm));                    \
    if (ends) gh_comm_drop(comm);                               \
    ncclResult_t result = real arguments;                       \
    gh_call_end(&call, result);                                 \
    return result;                                              \
  }
#define DEFINE_COMM(name, ...)                          \
  DEFINE_COMM_AS(nccl##name, GH_FN_##name, __VA_ARGS__) \
  DEFINE_COMM_AS(pnccl##name, GH_PROFILED(GH_FN_##name), __VA_ARGS__)
GH_COMM_FUNCTIONS(DEFINE_COMM)

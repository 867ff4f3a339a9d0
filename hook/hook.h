/* hook.h: what the hook's files share. Nothing here is exported. */
#ifndef GREYHOUND_HOOK_H
#define GREYHOUND_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "functions.h"
#include "include/greyhound_ring.h"
#include "nccl_abi.h"

#define GH_EXPORT __attribute__((visibility("default")))
#define GH_CALLER ((uintptr_t)__builtin_return_address(0))
/* On the way of every call. Together in few pages: after other work, what a call costs is mostly
 * looking up its pages and cache lines again. */
#define GH_HOT __attribute__((hot))
#define GH_HOT_DATA __attribute__((section("gh_hot")))
#define GH_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* env.c */
enum gh_env {
  GH_ENV_DIR,
  GH_ENV_NODE_INDEX,
  GH_ENV_NCCL_LIB,
  GH_ENV_RING_RECORDS,
  GH_ENV_RANK,
  GH_ENV_LOCAL_RANK,
  GH_ENV_OMPI_RANK,
  GH_ENV_SLURM_PROCID,
  GH_ENV_SLURM_LOCALID,
  GH_ENV_COUNT
};
const char *gh_env_text(enum gh_env which); /* NULL when unset or empty */
long gh_env_number(enum gh_env which, long otherwise);
const char *gh_env_name(enum gh_env which);
int32_t gh_env_world_rank(void);
int32_t gh_env_local_rank(void);

/* log.c */
void gh_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* In one buffer: for the one thread that opens. */
const char *gh_reason(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* directory.c */
int gh_directory_open(const char *path, const char **reason); /* -1: refused, and why */
void gh_directory_tidy(const char *path, const char *ring_name);

/* elf.c: the objects mapped into this process and their exported symbols */
struct gh_object {
  uintptr_t low, high; /* mapped range */
  uintptr_t base;
  const char *name; /* path as the loader knows it, "" for the executable */
  const void *dynamic;
};
bool gh_elf_containing(uintptr_t address, struct gh_object *out);
bool gh_elf_named(const char *prefix, struct gh_object *out); /* by file name */
/* The first that isn't the hook; version may be NULL, and the prefix of its file name: then it is
 * no tool preloaded in front of the hook, which would be called back. */
bool gh_elf_defining(const char *symbol, const char *prefix, const char *version,
                     struct gh_object *out);
void *gh_elf_symbol(const struct gh_object *object, const char *symbol);
/* The version of the symbols that the object was linked to in a library of such a file name. */
const char *gh_elf_wanted_version(const struct gh_object *object, const char *library);
/* Would the loader bind a symbol wanted in this version to the object? */
bool gh_elf_has_version(const struct gh_object *object, const char *version);
bool gh_elf_before_self(uintptr_t address);
const struct gh_object *gh_elf_self(void);

/* resolve.c */
void *gh_real(enum gh_fn fn, uintptr_t caller);
/* The answer to the first object that asked for a function, beside what else each call looks at. */
struct gh_answer {
  uintptr_t low, size; /* of the object */
  void *real;          /* stored last; then nothing changes */
};
void *gh_real_kept(enum gh_fn fn, uintptr_t caller, struct gh_answer *kept);
static inline void *gh_real_near(enum gh_fn fn, uintptr_t caller, struct gh_answer *kept) {
  void *real = __atomic_load_n(&kept->real, __ATOMIC_ACQUIRE);
  uintptr_t low = __atomic_load_n(&kept->low, __ATOMIC_RELAXED);
  uintptr_t size = __atomic_load_n(&kept->size, __ATOMIC_RELAXED);
  return GH_UNLIKELY(!real || caller - low >= size) ? gh_real_kept(fn, caller, kept) : real;
}
void *gh_resolve_optional(enum gh_fn fn, uintptr_t caller); /* NULL, nothing said */
void *gh_resolve_known(enum gh_fn fn, uintptr_t caller);    /* the same, if looked for before */
void gh_resolve_ahead(uintptr_t caller);
/* The first that there is of functions that stand for each other. */
void *gh_resolve_first(const enum gh_fn *fns, size_t n, uintptr_t caller);
void gh_resolve_lock(bool lock); /* around fork */

/* preload.c */
void gh_preload_remove_self(void);

/* cuda.c: everything NULL-safe where no CUDA runtime is in the process */
int gh_cuda_device(void);
void gh_cuda_bus_id(char *out, int bytes, int device);
bool gh_cuda_capturing(cudaStream_t stream, uint64_t *id, uintptr_t caller);
/* Known not to be captured. */
bool gh_cuda_never_captures(cudaStream_t stream, uintptr_t caller);

/* ring.c */
extern struct gh_header *gh_ring; /* NULL until the first communicator */
const char *gh_ring_create(const char *directory);
void gh_ring_leave(void); /* at the exit */
void gh_ring_publish(void);
void gh_ring_expect(void);
void gh_ring_write(const struct gh_record *record);
void gh_ring_flag(uint32_t flag);
struct gh_inflight *gh_inflight_enter(uint32_t op, uint64_t comm, uint32_t seq, uint64_t t_ns);
void gh_inflight_leave(struct gh_inflight *slot);

static inline void *gh_ring_at(size_t offset) { return (unsigned char *)gh_ring + offset; }

/* session.c: the life of the hook in this process */
enum gh_life { GH_INERT, GH_OPENING, GH_ACTIVE, GH_OFF };
extern int gh_life;
extern uint32_t gh_mode_seen;
bool gh_session_open(void); /* at a communicator's making; true: active */
void gh_session_mode(uint32_t mode);

/* per thread; group.c owns the group's part */
struct gh_thread {
  uint32_t depth; /* calls of ours under way: above 0 NCCL calls itself */
  uint32_t id;
  uintptr_t caller; /* of the latest wrapper */
  uint32_t inflight_hint;
  uint32_t group_depth;
  uint32_t group;
  uint32_t group_calls;
  bool group_mixed;
  bool group_overflow;
  uint64_t group_comm;
  uint64_t group_bytes;
  bool timed_chosen;
  uint32_t timed_calls; /* of the group, kept for timing.c */
  uint32_t timed_first, timed_last;
  cudaStream_t timed_stream;
  uint32_t pending; /* first pending member + 1 */
  uint32_t counted; /* entries in use of: */
  struct gh_count *journal[64];
};
extern __thread struct gh_thread gh_thread;
uint32_t gh_thread_id(void);

/* Is this a call to look at? Not from inside NCCL, not without a ring. */
static inline bool gh_present(void) {
  return !gh_thread.depth && __atomic_load_n(&gh_life, __ATOMIC_ACQUIRE) == GH_ACTIVE;
}
static inline bool gh_muted(void) {
  uint32_t mode = __atomic_load_n((uint32_t *)gh_ring_at(GH_OFF_MODE), __ATOMIC_RELAXED);
  if (GH_UNLIKELY(mode != __atomic_load_n(&gh_mode_seen, __ATOMIC_RELAXED))) gh_session_mode(mode);
  return mode == GH_MODE_MUTED;
}
static inline uint64_t gh_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* comm.c */
struct gh_member {
  ncclComm_t comm; /* NULL: free or not known yet */
  uint64_t hash;
  struct gh_comm *shared;       /* in the ring, or `own` when its table is full */
  struct gh_count *collectives; /* NULL until the first */
  ncclComm_t *pending_at;
  uint32_t next_pending;
  bool used;
  uint32_t grows;
  uintptr_t caller; /* who made it: tells which NCCL to ask about it */
  struct gh_comm own;
};
struct gh_birth {
  uint64_t hash; /* 0: this process gets none (NOCOLOR) */
  uint64_t parent, alias;
  int32_t rank, size, color;
};
struct gh_birth gh_birth_init(const ncclUniqueId *id, int nranks, int rank);
struct gh_birth gh_birth_split(ncclComm_t parent, int color);
struct gh_birth gh_birth_shrink(ncclComm_t parent, const int *excluded, int nexcluded);
struct gh_birth gh_birth_grow(ncclComm_t parent, int nranks, const ncclUniqueId *id, int rank);
struct gh_birth gh_birth_all(int nranks);
void gh_comm_born(struct gh_birth *birth, uint32_t op, int device, ncclComm_t *at,
                  ncclResult_t result);
struct gh_member *gh_comm_find(ncclComm_t comm); /* adopts one that it has never seen */
void gh_comm_learn(struct gh_member *member);    /* rank and size, where NCCL must be asked */
void gh_comm_drop(ncclComm_t comm);
void gh_comm_settle_pending(ncclResult_t result);

/* counters.c */
struct gh_count *gh_count_of(uint64_t comm, uint32_t kind, int32_t peer);
void gh_count_release(uint64_t comm);
static inline void gh_count_add(struct gh_count *slot, int64_t n) {
  if (slot) __atomic_fetch_add(&slot->count, (uint64_t)n, __ATOMIC_RELEASE);
}

/* graph.c */
extern uint32_t gh_captures; /* captures begun and not ended, in this process */
void gh_graph_captured(uint64_t id, uint64_t comm, uint32_t kind, int32_t peer, uint64_t bytes);

/* group.c */
void gh_group_call(uint64_t comm, uint64_t bytes, struct gh_count *count);
bool gh_failed(ncclResult_t result);

/* call.c: one call from entry to exit */
struct bracket;
struct gh_call {
  struct gh_record record;
  struct gh_inflight *slot;
  struct gh_count *count;
  bool recorded;           /* not muted when it began; it is what it began as to its end */
  bool timed;              /* timing.c has seen it; only then: */
  uint64_t own_ns;         /* it took so long over it */
  struct bracket *bracket; /* it put it between two events; or NULL */
};
bool gh_call_data(struct gh_call *call, uint8_t op, ncclComm_t comm, size_t count, int dtype,
                  int redop, int peer, cudaStream_t stream);
void gh_call_other(struct gh_call *call, uint8_t op, uint64_t comm);
void gh_call_muted(const struct gh_call *call);
void gh_call_end(struct gh_call *call, ncclResult_t result);

/* timing.c */
extern uint32_t gh_timing_busy;
void gh_timing_begin(struct gh_call *call, cudaStream_t stream);
void gh_timing_group(struct gh_call *call);
uint64_t gh_timing_end(struct gh_call *call, ncclResult_t result); /* own_ns */
static inline bool gh_timing_wanted(void) {
  uint64_t word = __atomic_load_n((uint64_t *)gh_ring_at(GH_OFF_PROFILE), __ATOMIC_RELAXED);
  return word | __atomic_load_n(&gh_timing_busy, __ATOMIC_RELAXED);
}

#endif

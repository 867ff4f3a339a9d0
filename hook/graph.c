/* graph.c: CUDA graphs. A captured call is issued at each launch of the graph, past NCCL's API; so
 * captures are followed into graphs and executable graphs, and a launch adds what was captured.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hook.h"

struct tally {
  uint64_t comm;
  uint32_t kind;
  int32_t peer;
  uint64_t count;
};

/* The calls of one capture, graph or executable graph, by (what, key). */
enum what { CAPTURE, GRAPH, EXEC };
struct set {
  struct set *next;
  enum what what;
  uint64_t key; /* capture id, or the handle */
  uint64_t bytes;
  uint32_t calls;
  uint32_t used, room;
  struct tally *tallies;
};

GH_HOT_DATA uint32_t gh_captures = 0;
static uint64_t begun; /* captures so far: names the only one there is where CUDA gives no id */
static struct set *buckets[256];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct set **place(enum what what, uint64_t key) {
  struct set **at = &buckets[(key * 0x9e3779b97f4a7c15u >> 56) & 255];
  while (*at && ((*at)->what != what || (*at)->key != key)) at = &(*at)->next;
  return at;
}

static void drop_locked(enum what what, uint64_t key) {
  struct set **at = place(what, key);
  struct set *gone = *at;
  if (!gone) return;
  *at = gone->next;
  free(gone->tallies);
  free(gone);
}

static struct set *make_locked(enum what what, uint64_t key) {
  struct set **at = place(what, key);
  if (!*at && (*at = calloc(1, sizeof **at))) {
    (*at)->what = what;
    (*at)->key = key;
  }
  return *at;
}

static bool add_locked(struct set *set, uint64_t comm, uint32_t kind, int32_t peer, uint64_t n) {
  for (uint32_t i = 0; i < set->used; i++) {
    struct tally *t = &set->tallies[i];
    if (t->comm != comm || t->kind != kind || t->peer != peer) continue;
    t->count += n;
    return true;
  }
  if (set->used == set->room) {
    uint32_t room = set->room ? 2 * set->room : 8;
    struct tally *more = realloc(set->tallies, room * sizeof *more);
    if (!more) return false;
    set->tallies = more;
    set->room = room;
  }
  set->tallies[set->used++] = (struct tally){comm, kind, peer, n};
  return true;
}

static uint64_t named(uint64_t id) {
  if (id || __atomic_load_n(&gh_captures, __ATOMIC_RELAXED) != 1) return id;
  return __atomic_load_n(&begun, __ATOMIC_RELAXED) | 1ull << 63;
}

/* A call issued into a capture. Kind 0 (one-sided) has no counter. */
void gh_graph_captured(uint64_t id, uint64_t comm, uint32_t kind, int32_t peer, uint64_t bytes) {
  if (!kind) gh_ring_flag(GH_FLAG_UNCOUNTED);
  id = named(id);
  pthread_mutex_lock(&lock);
  struct set *set = id ? make_locked(CAPTURE, id) : NULL;
  bool kept =
      set && (!kind || add_locked(set, comm, kind, kind == GH_COUNT_COLLECTIVE ? -1 : peer, 1));
  if (kept) {
    set->calls++;
    set->bytes += bytes;
  }
  pthread_mutex_unlock(&lock);
  if (!kept) gh_ring_flag(GH_FLAG_GRAPH_UNKNOWN);
}

/* `to` gets a copy of the calls of `from`; an unknown `from` leaves `to` unknown. */
static void copy(enum what from, uint64_t from_key, enum what to, uint64_t to_key) {
  pthread_mutex_lock(&lock);
  drop_locked(to, to_key);
  struct set *source = *place(from, from_key);
  struct set *target = source ? make_locked(to, to_key) : NULL;
  bool whole = target != NULL;
  for (uint32_t i = 0; whole && i < source->used; i++) {
    struct tally *t = &source->tallies[i];
    whole = add_locked(target, t->comm, t->kind, t->peer, t->count);
  }
  if (whole) {
    target->bytes = source->bytes;
    target->calls = source->calls;
  } else {
    drop_locked(to, to_key);
  }
  pthread_mutex_unlock(&lock);
}

static void drop(enum what what, uint64_t key) {
  pthread_mutex_lock(&lock);
  drop_locked(what, key);
  pthread_mutex_unlock(&lock);
}

#define REAL(name, params)                                      \
  typedef cudaError_t(*real_fn) params;                         \
  real_fn real = (real_fn)gh_real(GH_FN_cuda##name, GH_CALLER); \
  if (GH_UNLIKELY(!real)) return GH_CUDA_ERROR_UNKNOWN

/* Runtime functions are passed as many words as their longest version has: with integers and
 * pointers alone, what a shorter version doesn't take does no harm. */
static cudaError_t capture_begun(cudaError_t error) {
  if (error) return error;
  __atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&gh_captures, 1, __ATOMIC_RELAXED);
  return error;
}

#define DEFINE_BEGIN(name)                                                                 \
  GH_EXPORT cudaError_t cuda##name(void *a, void *b, void *c, void *d, void *e, void *f) { \
    REAL(name, (void *, void *, void *, void *, void *, void *));                          \
    return capture_begun(real(a, b, c, d, e, f));                                          \
  }
DEFINE_BEGIN(StreamBeginCapture)
DEFINE_BEGIN(StreamBeginCapture_ptsz)
DEFINE_BEGIN(StreamBeginCaptureToGraph)
DEFINE_BEGIN(StreamBeginCaptureToGraph_ptsz)

/* The id of the capture that is about to end on this stream, 0 if there is nothing to follow. */
static uint64_t capture_ending(cudaStream_t stream, uintptr_t caller) {
  uint64_t id = 0;
  return gh_present() && gh_cuda_capturing(stream, &id, caller) ? named(id) : 0;
}

static void capture_ended(uint64_t id, cudaGraph_t graph) {
  uint32_t open = __atomic_load_n(&gh_captures, __ATOMIC_RELAXED);
  while (open && !__atomic_compare_exchange_n(&gh_captures, &open, open - 1, false,
                                              __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    continue;
  if (!id) return;
  if (graph) {
    pthread_mutex_lock(&lock);
    make_locked(CAPTURE, id); /* a graph without our calls is known, too */
    pthread_mutex_unlock(&lock);
    copy(CAPTURE, id, GRAPH, (uintptr_t)graph);
  }
  drop(CAPTURE, id);
}

#define DEFINE_END(name)                                                      \
  GH_EXPORT cudaError_t cuda##name(cudaStream_t stream, cudaGraph_t *graph) { \
    REAL(name, (cudaStream_t, cudaGraph_t *));                                \
    uint64_t id = capture_ending(stream, GH_CALLER);                          \
    cudaError_t error = real(stream, graph);                                  \
    capture_ended(id, error || !graph ? NULL : *graph);                       \
    return error;                                                             \
  }
DEFINE_END(StreamEndCapture)
DEFINE_END(StreamEndCapture_ptsz)

#define DEFINE_INSTANTIATE(name)                                                                 \
  GH_EXPORT cudaError_t cuda##name(cudaGraphExec_t *exec, cudaGraph_t graph, void *a, void *b,   \
                                   void *c) {                                                    \
    REAL(name, (cudaGraphExec_t *, cudaGraph_t, void *, void *, void *));                        \
    cudaError_t error = real(exec, graph, a, b, c);                                              \
    if (!error && exec && gh_present()) copy(GRAPH, (uintptr_t)graph, EXEC, (uintptr_t) * exec); \
    return error;                                                                                \
  }
DEFINE_INSTANTIATE(GraphInstantiate)
DEFINE_INSTANTIATE(GraphInstantiateWithFlags)
DEFINE_INSTANTIATE(GraphInstantiateWithParams)
DEFINE_INSTANTIATE(GraphInstantiateWithParams_ptsz)

GH_EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, void *a,
                                          void *b) {
  REAL(GraphExecUpdate, (cudaGraphExec_t, cudaGraph_t, void *, void *));
  cudaError_t error = real(exec, graph, a, b);
  if (!error && gh_present()) copy(GRAPH, (uintptr_t)graph, EXEC, (uintptr_t)exec);
  return error;
}

/* Adds what the graph holds to the counters, before it is launched. */
static void count_launch(struct gh_call *call, cudaGraphExec_t exec) {
  pthread_mutex_lock(&lock);
  struct set *set = *place(EXEC, (uintptr_t)exec);
  for (uint32_t i = 0; set && i < set->used; i++) {
    struct tally *t = &set->tallies[i];
    gh_count_add(gh_count_of(t->comm, t->kind, t->peer), (int64_t)t->count);
  }
  if (set) {
    call->record.aux = set->calls;
    call->record.bytes = set->bytes;
    if (set->used) call->record.comm = set->tallies[0].comm;
    for (uint32_t i = 1; i < set->used; i++)
      if (set->tallies[i].comm != call->record.comm) call->record.comm = 0;
  } else {
    gh_ring_flag(GH_FLAG_GRAPH_UNKNOWN);
  }
  pthread_mutex_unlock(&lock);
}

#define DEFINE_LAUNCH(name)                                              \
  GH_EXPORT cudaError_t cuda##name(cudaGraphExec_t exec, void *stream) { \
    REAL(name, (cudaGraphExec_t, void *));                               \
    if (!gh_present()) return real(exec, stream);                        \
    struct gh_call call;                                                 \
    gh_call_other(&call, GH_OP_GRAPH_LAUNCH, 0);                         \
    gh_call_muted(&call);                                                \
    count_launch(&call, exec);                                           \
    cudaError_t error = real(exec, stream);                              \
    gh_call_end(&call, error ? GH_NCCL_INTERNAL_ERROR : 0);              \
    return error;                                                        \
  }
DEFINE_LAUNCH(GraphLaunch)
DEFINE_LAUNCH(GraphLaunch_ptsz)

#define DEFINE_DESTROY(name, what)                   \
  GH_EXPORT cudaError_t cuda##name(void *handle) {   \
    REAL(name, (void *));                            \
    if (gh_present()) drop(what, (uintptr_t)handle); \
    return real(handle);                             \
  }
DEFINE_DESTROY(GraphExecDestroy, EXEC)
DEFINE_DESTROY(GraphDestroy, GRAPH)

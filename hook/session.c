/* session.c: the life of the hook in one process. Inert until the first communicator is made; then
 * active with a ring, or off for good. A child of fork is off if its parent has a ring.
 */
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hook.h"

GH_HOT_DATA int gh_life = GH_INERT;
GH_HOT_DATA uint32_t gh_mode_seen = GH_MODE_OBSERVE;

GH_HOT uint32_t gh_thread_id(void) {
  if (GH_UNLIKELY(!gh_thread.id)) gh_thread.id = (uint32_t)syscall(SYS_gettid);
  return gh_thread.id;
}

static uint32_t nccl_version(void) {
  typedef ncclResult_t (*ask_fn)(int *);
  int version = 0;
  ask_fn ask = (ask_fn)gh_resolve_optional(GH_FN_GetVersion, gh_thread.caller);
  return ask && ask(&version) == GH_NCCL_SUCCESS ? (uint32_t)version : 0;
}

/* Only around the table of callers, under whose lock nothing foreign is called. The opening takes
 * no lock at all: what it asks may fork itself, as the CUDA driver does for nvidia-modprobe, or
 * wait for a thread that forks. */
static void before_fork(void) { gh_resolve_lock(true); }
static void in_parent(void) { gh_resolve_lock(false); }
static void in_child(void) {
  gh_resolve_lock(false);
  gh_thread.id = 0;
  if (__atomic_load_n(&gh_life, __ATOMIC_ACQUIRE) != GH_INERT)
    __atomic_store_n(&gh_life, GH_OFF, __ATOMIC_RELEASE);
}

static void follow_forks(void) {
  static bool done;
  if (!__atomic_exchange_n(&done, true, __ATOMIC_RELAXED))
    pthread_atfork(before_fork, in_parent, in_child);
}

/* By the one thread that claimed it; leaves a life other than GH_OPENING. */
static void open_claimed(const char *directory) {
  char bus_id[sizeof gh_ring->gpu_bus_id];
  gh_preload_remove_self();
  const char *failed = gh_ring_create(directory);
  if (failed) {
    gh_log("this process runs unmonitored: %s", failed);
    __atomic_store_n(&gh_life, GH_OFF, __ATOMIC_RELEASE);
    return;
  }
  uint32_t version = nccl_version();
  int device = gh_cuda_device();
  gh_cuda_bus_id(bus_id, sizeof bus_id, device);
  if (__atomic_load_n(&gh_life, __ATOMIC_ACQUIRE) != GH_OPENING) return; /* a child forked there */
  gh_ring->nccl_version = version;
  gh_ring->cuda_device = device;
  memcpy(gh_ring->gpu_bus_id, bus_id, sizeof bus_id);
  gh_ring->hook_state = GH_STATE_RUNNING;
  gh_ring_publish();
  __atomic_store_n(&gh_life, GH_ACTIVE, __ATOMIC_RELEASE);
}

/* The first to come opens, the others wait for it: they are making communicators, too. */
static void open_once(const char *directory) {
  static const struct timespec pause = {.tv_nsec = 200000};
  int inert = GH_INERT;
  if (__atomic_compare_exchange_n(&gh_life, &inert, GH_OPENING, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    open_claimed(directory);
  while (__atomic_load_n(&gh_life, __ATOMIC_ACQUIRE) == GH_OPENING) nanosleep(&pause, NULL);
}

bool gh_session_open(void) {
  if (gh_thread.depth) return false;
  int life = __atomic_load_n(&gh_life, __ATOMIC_ACQUIRE);
  if (life == GH_INERT || life == GH_OPENING) {
    const char *directory = gh_env_text(GH_ENV_DIR);
    if (!directory) return false;
    follow_forks();    /* the variable may be set only now */
    gh_thread.depth++; /* what is called from here is no call of the program */
    open_once(directory);
    gh_thread.depth--;
  }
  if (__atomic_load_n(&gh_life, __ATOMIC_ACQUIRE) != GH_ACTIVE) return false;
  gh_resolve_ahead(gh_thread.caller);
  return true;
}

/* The analyzer changed the mode. The counters go on while muted: a pause stays possible. */
void gh_session_mode(uint32_t mode) {
  uint32_t before = __atomic_load_n(&gh_ring->hook_state, __ATOMIC_RELAXED);
  uint32_t now = mode == GH_MODE_MUTED ? GH_STATE_MUTED : GH_STATE_RUNNING;
  while (before != GH_STATE_ENDED && /* said at the exit, where threads may still call */
         !__atomic_compare_exchange_n(&gh_ring->hook_state, &before, now, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
    continue;
  __atomic_store_n(&gh_mode_seen, mode, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void loaded(void) {
  if (gh_env_text(GH_ENV_DIR)) follow_forks();
}

__attribute__((destructor)) static void unloaded(void) {
  if (__atomic_load_n(&gh_life, __ATOMIC_ACQUIRE) != GH_ACTIVE) return;
  if (gh_ring->pid != (uint32_t)getpid())
    return; /* a child of clone(), past the handlers of fork */
  __atomic_store_n(&gh_ring->hook_state, GH_STATE_ENDED, __ATOMIC_RELEASE);
  gh_ring_leave();
}

/* For the plugin in the same process (ctypes.CDLL(None)): the mapped ring, NULL while there is
 * none; *layout is GH_LAYOUT. */
GH_EXPORT void *greyhound_control(uint32_t *layout) {
  if (layout) *layout = GH_LAYOUT;
  return __atomic_load_n(&gh_life, __ATOMIC_ACQUIRE) == GH_ACTIVE ? gh_ring : NULL;
}

/* comm.c: the communicators of this process, by their pointers. */
#include <pthread.h>
#include <string.h>

#include "hook.h"

#define MEMBERS 4096 /* live ones; the ring shows the first 512 */
#define NEAR 128
#define NEAR_TRIES 16
#define FAR (4 * MEMBERS)
#define TOMB ((ncclComm_t)1)

static struct gh_member members[MEMBERS];
static uint32_t members_high; /* entries ever used */
struct entry {
  ncclComm_t comm;
  struct gh_member *member;
};
/* Nearly always all are in the small table, in one page with all that calls look at; the rest in
 * the large one. */
GH_HOT_DATA static struct entry near_map[NEAR] __attribute__((aligned(GH_PAGE_BYTES))) = {{0}};
static struct entry far_map[FAR];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t hash_of(ncclComm_t comm) {
  return (uint32_t)(((uintptr_t)comm >> 4) * 0x9e3779b97f4a7c15u >> 40);
}

/* The `i`th place where the communicator may be; NULL when there are no more. */
static inline struct entry *place(uint32_t hash, uint32_t i) {
  if (i < NEAR_TRIES) return &near_map[(hash + i) % NEAR];
  return i < NEAR_TRIES + FAR ? &far_map[(hash + i) % FAR] : NULL;
}

/* From the first place where it may be: all places before the one it has are taken, or were. */
GH_HOT static struct entry *find(ncclComm_t comm) {
  uint32_t hash = hash_of(comm);
  struct entry *at;
  for (uint32_t i = 0; (at = place(hash, i)); i++) {
    ncclComm_t found = __atomic_load_n(&at->comm, __ATOMIC_ACQUIRE);
    if (found == comm) return at;
    if (!found) break;
  }
  return NULL;
}

/* Without the lock: the pointer is stored last, and the caller holds the communicator alive. */
GH_HOT static struct gh_member *lookup(ncclComm_t comm) {
  struct entry *at = find(comm);
  return at ? __atomic_load_n(&at->member, __ATOMIC_RELAXED) : NULL;
}

static void unmap(ncclComm_t comm) {
  struct entry *at;
  while ((at = find(comm))) __atomic_store_n(&at->comm, TOMB, __ATOMIC_RELEASE);
}

static void bind_locked(struct gh_member *member, ncclComm_t comm) {
  unmap(comm); /* a stale entry of the same pointer, freed past the hook */
  uint32_t hash = hash_of(comm), i = 0;
  struct entry *at = place(hash, 0);
  while (at && at->comm && at->comm != TOMB) at = place(hash, ++i);
  if (!at) return; /* never: there are more places than members */
  member->comm = comm;
  __atomic_store_n(&at->member, member, __ATOMIC_RELAXED);
  __atomic_store_n(&at->comm, comm, __ATOMIC_RELEASE);
}

/* A row of the ring's table: a fresh one, else one whose communicator is gone, else none. */
static struct gh_comm *shared_row(void) {
  struct gh_comm *rows = gh_ring_at(GH_OFF_COMMS);
  struct gh_comm *gone = NULL;
  for (uint32_t i = 0; i < GH_COMM_SLOTS; i++) {
    uint32_t state = __atomic_load_n(&rows[i].state, __ATOMIC_RELAXED);
    if (state == GH_COMM_FREE) return &rows[i];
    if (state == GH_COMM_GONE && !gone) gone = &rows[i];
  }
  return gone;
}

static struct gh_member *take_member(uint64_t hash) {
  struct gh_member *taken = NULL;
  for (uint32_t i = 0; i < MEMBERS; i++) {
    struct gh_member *m = &members[i];
    if (m->used && m->hash == hash) gh_ring_flag(GH_FLAG_UNCOUNTED); /* two ranks, one process */
    if (!m->used && !taken) taken = m;
    if (i >= members_high) {
      if (taken == m) members_high = i + 1;
      break;
    }
  }
  return taken;
}

static void fill_row(struct gh_comm *row, const struct gh_birth *birth, uint32_t op, int device) {
  __atomic_store_n(&row->state, GH_COMM_FREE, __ATOMIC_RELEASE);
  row->hash = birth->hash;
  row->parent = birth->parent;
  row->alias = birth->alias;
  row->rank = birth->rank;
  row->size = birth->size;
  row->device = device;
  row->made_by = op;
  row->children = 0;
  row->color = birth->color;
  __atomic_store_n(&row->next_seq, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&row->state, GH_COMM_PENDING, __ATOMIC_RELEASE);
}

static struct gh_member *new_member_locked(const struct gh_birth *birth, uint32_t op, int device) {
  struct gh_member *m = take_member(birth->hash);
  if (!m) {
    gh_ring_flag(GH_FLAG_COMMS_FULL | GH_FLAG_UNCOUNTED);
    return NULL;
  }
  memset(m, 0, sizeof *m);
  m->used = true;
  m->hash = birth->hash;
  m->caller = gh_thread.caller;
  m->shared = shared_row();
  if (!m->shared) {
    gh_ring_flag(GH_FLAG_COMMS_FULL);
    m->shared = &m->own;
  }
  fill_row(m->shared, birth, op, device);
  return m;
}

/* Rank and size known: live. */
static void settle(struct gh_member *m) {
  if (m->shared->rank >= 0 && m->shared->size > 0)
    __atomic_store_n(&m->shared->state, GH_COMM_LIVE, __ATOMIC_RELEASE);
}

void gh_comm_learn(struct gh_member *m) {
  typedef ncclResult_t (*ask_fn)(ncclComm_t, int *);
  int rank = -1, size = 0, device = -1;
  ask_fn ask_rank = (ask_fn)gh_resolve_optional(GH_FN_CommUserRank, m->caller);
  ask_fn ask_size = (ask_fn)gh_resolve_optional(GH_FN_CommCount, m->caller);
  ask_fn ask_device = (ask_fn)gh_resolve_optional(GH_FN_CommCuDevice, m->caller);
  if (!ask_rank || !ask_size) return;
  gh_thread.depth++;
  bool known = !ask_rank(m->comm, &rank) && !ask_size(m->comm, &size);
  if (known && m->shared->device < 0 && ask_device && !ask_device(m->comm, &device))
    m->shared->device = device;
  gh_thread.depth--;
  if (!known) return;
  __atomic_store_n(&m->shared->rank, rank, __ATOMIC_RELAXED);
  __atomic_store_n(&m->shared->size, size, __ATOMIC_RELAXED);
  settle(m);
}

static void forget_locked(struct gh_member *m) {
  bool shared_hash = false;
  __atomic_store_n(&m->shared->state, GH_COMM_GONE, __ATOMIC_RELEASE);
  m->used = false;
  for (uint32_t i = 0; i < members_high; i++)
    shared_hash |= members[i].used && members[i].hash == m->hash;
  if (!shared_hash) gh_count_release(m->hash);
}

/* A communicator made where the hook didn't see it: past LD_PRELOAD, or before the ring. */
static struct gh_member *adopt(ncclComm_t comm) {
  struct gh_birth birth = gh_birth_all(0);
  pthread_mutex_lock(&lock);
  struct gh_member *m = lookup(comm);
  if (!m && (m = new_member_locked(&birth, 0, -1))) bind_locked(m, comm);
  pthread_mutex_unlock(&lock);
  gh_ring_flag(GH_FLAG_UNCOUNTED);
  return m;
}

/* NULL only for a null pointer or when 4,096 communicators live. */
GH_HOT struct gh_member *gh_comm_find(ncclComm_t comm) {
  if (!comm) return NULL;
  struct gh_member *m = lookup(comm);
  if (GH_UNLIKELY(!m)) m = adopt(comm);
  return m;
}

void gh_comm_born(struct gh_birth *birth, uint32_t op, int device, ncclComm_t *at,
                  ncclResult_t result) {
  bool in_group = gh_thread.group_depth > 0;
  if (!birth->hash || gh_failed(result) || !at || (!in_group && !*at)) return;
  pthread_mutex_lock(&lock);
  struct gh_member *m = new_member_locked(birth, op, device);
  if (m && in_group) {
    m->pending_at = at;
    m->next_pending = gh_thread.pending;
    gh_thread.pending = (uint32_t)(m - members) + 1;
  } else if (m) {
    bind_locked(m, *at);
  }
  pthread_mutex_unlock(&lock);
  if (!m || in_group) return;
  settle(m);
  if (result == GH_NCCL_SUCCESS && m->shared->state == GH_COMM_PENDING) gh_comm_learn(m);
  birth->rank = m->shared->rank;
  birth->size = m->shared->size;
}

/* The group has ended: NCCL has now stored the pointers of the communicators made in it. */
void gh_comm_settle_pending(ncclResult_t result) {
  while (gh_thread.pending) {
    struct gh_member *m = &members[gh_thread.pending - 1];
    gh_thread.pending = m->next_pending;
    ncclComm_t comm = gh_failed(result) ? NULL : *m->pending_at;
    pthread_mutex_lock(&lock);
    if (comm)
      bind_locked(m, comm);
    else
      forget_locked(m);
    pthread_mutex_unlock(&lock);
    if (!comm) continue;
    settle(m);
    if (result == GH_NCCL_SUCCESS && m->shared->state == GH_COMM_PENDING) gh_comm_learn(m);
  }
}

/* Before NCCL frees it: the pointer may come back at once in another thread. */
void gh_comm_drop(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  struct gh_member *m = comm ? lookup(comm) : NULL;
  if (m) {
    unmap(comm);
    forget_locked(m);
  }
  pthread_mutex_unlock(&lock);
}

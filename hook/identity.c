/* identity.c: the hash that names a communicator, the same on all its members.
 *
 * init: of the unique id (scalable init: of the first one); split: of the parent, the parent's
 * number of splits so far (NOCOLOR counts: every member of the parent calls) and the colour;
 * shrink: of the parent, the sorted list of those left out, and how often this very shrink was made
 * before; grow: of the unique id. An existing member that isn't given the id of a grow can't know
 * that hash: it uses one of (parent, number of the grow, new size), which the member that has both
 * publishes as `alias`.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "hook.h"

#define SHRINKS 256

static uint64_t mix(uint64_t h, uint64_t word) {
  h ^= word;
  h *= 0xff51afd7ed558ccdu;
  h ^= h >> 32;
  h *= 0xc4ceb9fe1a85ec53u;
  return h ^ h >> 29;
}

/* 0 and 1 mark free slots. */
static uint64_t finish(uint64_t h) { return h > 1 ? h : h + 2; }

static uint64_t hash_id(uint64_t seed, const ncclUniqueId *id) {
  uint64_t h = seed;
  for (size_t i = 0; i < sizeof id->internal; i += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, id->internal + i, sizeof word);
    h = mix(h, word);
  }
  return finish(h);
}

static uint64_t parent_hash(ncclComm_t parent) {
  struct gh_member *member = parent ? gh_comm_find(parent) : NULL;
  return member ? member->hash : 0;
}

struct gh_birth gh_birth_init(const ncclUniqueId *id, int nranks, int rank) {
  return (struct gh_birth){
      .hash = id ? hash_id(GH_OP_COMM_INIT, id) : 0, .rank = rank, .size = nranks, .color = -1};
}

/* ncclCommInitAll: NCCL draws the id inside, all members are in this process. */
struct gh_birth gh_birth_all(int nranks) {
  static uint32_t made;
  uint64_t h = mix(mix(GH_OP_COMM_INIT, gh_ring->pid), gh_ring->pid_start);
  h = mix(mix(h, gh_ring->created_realtime_ns), __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED));
  return (struct gh_birth){.hash = finish(h), .rank = -1, .size = nranks, .color = -1};
}

struct gh_birth gh_birth_split(ncclComm_t parent, int color) {
  struct gh_member *member = gh_comm_find(parent);
  struct gh_birth birth = {.rank = -1, .color = color};
  if (!member) return birth;
  birth.parent = member->hash;
  uint32_t number = __atomic_fetch_add(&member->shared->children, 1, __ATOMIC_RELAXED);
  uint64_t h = mix(mix(mix(GH_OP_COMM_SPLIT, member->hash), number), (uint32_t)color);
  if (color != GH_NCCL_NOCOLOR) birth.hash = finish(h);
  return birth;
}

/* How often a shrink with this hash was made before. Not a counter of the parent: those left out
 * don't take part, so that members would count differently. */
static uint32_t shrinks_before(uint64_t hash) {
  static struct {
    uint64_t hash;
    uint32_t times;
  } seen[SHRINKS];
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  uint32_t before = 0;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < SHRINKS; i++) {
    if (seen[i].hash && seen[i].hash != hash) continue;
    seen[i].hash = hash;
    before = seen[i].times++;
    break;
  }
  pthread_mutex_unlock(&lock);
  return before;
}

/* The list in ascending order without a copy: each pass finds the next larger rank. */
struct gh_birth gh_birth_shrink(ncclComm_t parent, const int *excluded, int nexcluded) {
  uint64_t of = parent_hash(parent);
  uint64_t h = mix(mix(GH_OP_COMM_SHRINK, of), (uint32_t)nexcluded);
  int64_t last = INT64_MIN;
  for (int done = 0; excluded && done < nexcluded; done++) {
    int64_t next = INT64_MAX;
    for (int i = 0; i < nexcluded; i++)
      if (excluded[i] > last && excluded[i] < next) next = excluded[i];
    if (next == INT64_MAX) break;
    h = mix(h, (uint64_t)next);
    last = next;
  }
  return (struct gh_birth){
      .hash = finish(mix(h, shrinks_before(h))), .parent = of, .rank = -1, .color = -1};
}

struct gh_birth gh_birth_grow(ncclComm_t parent, int nranks, const ncclUniqueId *id, int rank) {
  struct gh_member *member = parent ? gh_comm_find(parent) : NULL;
  struct gh_birth birth = {.rank = rank, .size = nranks, .color = -1};
  if (member) {
    uint32_t number = __atomic_fetch_add(&member->grows, 1, __ATOMIC_RELAXED);
    birth.parent = member->hash;
    birth.alias = finish(mix(mix(mix(GH_OP_COMM_GROW, member->hash), number), (uint32_t)nranks));
  }
  birth.hash = id ? hash_id(GH_OP_COMM_GROW, id) : birth.alias;
  return birth;
}

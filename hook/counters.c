/* counters.c: how often this process has issued each (communicator, kind, peer), published before
 * the call is forwarded, so that a pause can look for a consistent cut.
 */
#include <pthread.h>

#include "hook.h"

#define GONE 1 /* freed with its communicator; the slot may be taken again */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t start_of(uint64_t comm, uint32_t kind, int32_t peer) {
  uint64_t x = comm ^ ((uint64_t)kind << 32 | (uint32_t)peer) * 0x9e3779b97f4a7c15u;
  return (uint32_t)((x ^ x >> 29) % GH_COUNT_SLOTS);
}

/* The slot with this key; else NULL, and in *free_slot one to take, if any is left. */
GH_HOT static struct gh_count *probe(uint64_t comm, uint32_t kind, int32_t peer,
                                     struct gh_count **free_slot) {
  struct gh_count *slots = gh_ring_at(GH_OFF_COUNTS);
  uint32_t start = start_of(comm, kind, peer);
  *free_slot = NULL;
  for (uint32_t i = 0; i < GH_COUNT_SLOTS; i++) {
    struct gh_count *slot = &slots[(start + i) % GH_COUNT_SLOTS];
    uint64_t owner = __atomic_load_n(&slot->comm, __ATOMIC_ACQUIRE);
    if (owner == comm && __atomic_load_n(&slot->kind, __ATOMIC_RELAXED) == kind &&
        __atomic_load_n(&slot->peer, __ATOMIC_RELAXED) == peer)
      return slot;
    if (owner <= GONE && !*free_slot) *free_slot = slot;
    if (!owner) break;
  }
  return NULL;
}

/* NULL when the table is full, which is said in the ring's flags. */
GH_HOT struct gh_count *gh_count_of(uint64_t comm, uint32_t kind, int32_t peer) {
  struct gh_count *free_slot;
  struct gh_count *slot = probe(comm, kind, peer, &free_slot);
  if (slot) return slot;
  pthread_mutex_lock(&lock);
  slot = probe(comm, kind, peer, &free_slot);
  if (!slot && free_slot) {
    slot = free_slot;
    __atomic_store_n(&slot->kind, kind, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->peer, peer, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->count, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->comm, comm, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  if (!slot) gh_ring_flag(GH_FLAG_COUNTS_FULL);
  return slot;
}

void gh_count_release(uint64_t comm) {
  struct gh_count *slots = gh_ring_at(GH_OFF_COUNTS);
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < GH_COUNT_SLOTS; i++)
    if (slots[i].comm == comm) __atomic_store_n(&slots[i].comm, GONE, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
}

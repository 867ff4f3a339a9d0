/* reader.c: copies committed records out of a ring, for greyhound/trace (numpy alone has no acquire
 * fence, which Arm needs). Never blocks and never writes to the ring.
 */
#include "include/greyhound_ring.h"

#define GH_EXPORT __attribute__((visibility("default")))

_Static_assert(sizeof(struct gh_record) % sizeof(uint64_t) == 0, "copied in words");

/* A copy that is whole: the commit word is the same before and after, as in a seqlock. */
static int copy_slot(const struct gh_record *slot, uint64_t commit, struct gh_record *out) {
  const uint64_t *from = (const uint64_t *)slot;
  uint64_t *to = (uint64_t *)out;
  to[0] = commit;
  for (size_t i = 1; i < sizeof *slot / sizeof *from; i++)
    to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&slot->commit, __ATOMIC_RELAXED) == commit;
}

/* Copies at most `max` records from index `from_index` on, in order, into `out`.
 *
 * Returns their number, or -1 for a ring that isn't one. `*next_index` is where the next call goes
 * on; `*lost` is the number of records skipped in this call: overwritten before they were read, or
 * given up by their writer. A record still being written ends the copy (the next call takes it),
 * unless half a ring has been written since: then it is counted as lost.
 */
GH_EXPORT int64_t gh_copy_records(const void *ring_base, uint64_t from_index, uint64_t max,
                                  struct gh_record *out, uint64_t *next_index, uint64_t *lost) {
  const struct gh_header *header = ring_base;
  *next_index = from_index;
  *lost = 0;
  if (!header || __atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) != GH_MAGIC) return -1;
  uint64_t capacity = header->capacity;
  if (header->layout != GH_LAYOUT || !capacity || (capacity & (capacity - 1))) return -1;
  const struct gh_record *slots =
      (const struct gh_record *)((const unsigned char *)ring_base + GH_OFF_RECORDS);
  uint64_t head = __atomic_load_n(&header->head, __ATOMIC_ACQUIRE);
  uint64_t at = from_index;
  uint64_t kept = 0;
  while (kept < max && at < head) {
    if (head - at > capacity) { /* overrun as a whole: go on at the oldest slot left */
      *lost += head - capacity - at;
      at = head - capacity;
    }
    const struct gh_record *slot = &slots[at & (capacity - 1)];
    uint64_t commit = __atomic_load_n(&slot->commit, __ATOMIC_ACQUIRE);
    if (commit == at + 1 && copy_slot(slot, commit, &out[kept])) {
      kept++;
    } else {
      head = __atomic_load_n(&header->head, __ATOMIC_ACQUIRE);
      if (commit < at + 1 && head - at <= capacity / 2) break; /* still being written */
      *lost += 1;
    }
    at++;
  }
  *next_index = at;
  return (int64_t)kept;
}

/* ring.c: the shared-memory file of this process: creation, record writer, in-flight slots. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hook.h"

#define MIN_RECORDS 1024
#define MAX_RECORDS 4194304
#define RESERVE_BYTES 262144u
#define RESERVE_TRIES 1000

GH_HOT_DATA struct gh_header *gh_ring = NULL;
GH_HOT_DATA static uint64_t mask = 0;
static char ring_name[64];
static char *made_in; /* the step directory */

static const char *because(const char *what, const char *path) {
  return gh_reason("%s %s: %s", what, path, strerror(errno));
}

static uint64_t wanted_records(void) {
  const char *text = gh_env_text(GH_ENV_RING_RECORDS);
  if (!text) return GH_DEFAULT_CAPACITY;
  long n = gh_env_number(GH_ENV_RING_RECORDS, 0);
  if (n >= MIN_RECORDS && n <= MAX_RECORDS && !(n & (n - 1))) return (uint64_t)n;
  gh_log("%s='%s' isn't a power of two from %d to %d; %d is used", gh_env_name(GH_ENV_RING_RECORDS),
         text, MIN_RECORDS, MAX_RECORDS, GH_DEFAULT_CAPACITY);
  return GH_DEFAULT_CAPACITY;
}

static size_t read_text(const char *path, char *out, size_t room) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, out, room - 1);
  if (fd >= 0) close(fd);
  size_t length = n > 0 ? (size_t)n : 0;
  out[length] = 0;
  return length;
}

/* Field 22 of /proc/self/stat: clock ticks after boot. Field 2, the name, may hold anything. */
static uint64_t start_time(void) {
  char text[1024];
  read_text("/proc/self/stat", text, sizeof text);
  const char *at = strrchr(text, ')');
  for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
  uint64_t ticks = 0;
  for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++)
    ticks = ticks * 10 + (uint64_t)(*at - '0');
  return ticks;
}

/* Takes the memory now: on a full /dev/shm a later write would be SIGBUS. The check of the limit
 * comes first, since growing a file beyond it is SIGXFSZ. Piece by piece: a signal takes back what
 * its call has done, and a timer of the program's may send one every millisecond. */
static const char *reserve(int fd, const char *name, uint64_t bytes) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
    return gh_reason("the file size limit (ulimit -f) is below the %llu bytes of %s",
                     (unsigned long long)bytes, name);
  /* At its full size from the start: a reader takes a shorter file for a damaged one. */
  if (ftruncate(fd, (off_t)bytes)) return because("no memory for", name);
  int tries = RESERVE_TRIES;
  for (uint64_t at = 0; at < bytes && tries;) {
    uint64_t piece = bytes - at < RESERVE_BYTES ? bytes - at : RESERVE_BYTES;
    errno = posix_fallocate(fd, (off_t)at, (off_t)piece);
    if (!errno)
      at += piece;
    else if (errno == EINTR)
      tries--;
    else
      return because("no memory for", name);
  }
  return tries ? NULL : because("no memory for", name);
}

static uint64_t realtime_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fill_header(struct gh_header *h, uint64_t records, uint64_t bytes, uint64_t start) {
  h->layout = GH_LAYOUT;
  h->record_bytes = GH_RECORD_BYTES;
  h->capacity = records;
  h->pid = (uint32_t)getpid();
  h->uid = (uint32_t)geteuid();
  h->pid_start = start;
  size_t n = read_text("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof h->boot_id);
  if (n && h->boot_id[n - 1] == '\n') h->boot_id[n - 1] = 0;
  h->world_rank = gh_env_world_rank();
  h->local_rank = gh_env_local_rank();
  h->slurm_procid = (int32_t)gh_env_number(GH_ENV_SLURM_PROCID, -1);
  h->node_index = (int32_t)gh_env_number(GH_ENV_NODE_INDEX, -1);
  h->created_ns = gh_now_ns();
  h->created_realtime_ns = realtime_ns();
  h->cuda_device = -1;
  h->file_bytes = bytes;
  h->hook_state = GH_STATE_STARTING;
  h->heartbeat_ns = h->created_ns;
  *(uint32_t *)((unsigned char *)h + GH_OFF_MODE) = GH_MODE_OBSERVE;
}

/* From here on readers take it for a ring. */
void gh_ring_publish(void) { __atomic_store_n(&gh_ring->magic, GH_MAGIC, __ATOMIC_RELEASE); }

/* Populated: a page is never first touched within a call. */
static const char *map_file(int fd, const char *name, uint64_t records, uint64_t start) {
  uint64_t bytes = GH_OFF_RECORDS + records * GH_RECORD_BYTES;
  const char *failed = reserve(fd, name, bytes);
  if (failed) return failed;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (at == MAP_FAILED) return because("can't map", name);
  fill_header(at, records, bytes, start);
  mask = records - 1;
  gh_ring = at;
  return NULL;
}

/* NULL, or why there is no ring. The name is new (O_EXCL), so nothing foreign is ever opened. */
static const char *create_in(int folder, uint64_t start) {
  int fd = openat(folder, ring_name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return because("can't create", ring_name);
  const char *reason = map_file(fd, ring_name, wanted_records(), start);
  int error = errno;
  if (reason) unlinkat(folder, ring_name, 0);
  close(fd);
  errno = error;
  return reason;
}

/* Again where another rank's exit took the directory away in between. */
const char *gh_ring_create(const char *directory) {
  const char *reason = NULL;
  uint64_t start = start_time();
  snprintf(ring_name, sizeof ring_name, "ring.%d.%llu", (int)getpid(), (unsigned long long)start);
  for (int tries = 0; tries < 3; tries++) {
    int folder = gh_directory_open(directory, &reason);
    if (folder < 0) return reason;
    reason = create_in(folder, start);
    int error = errno;
    close(folder);
    if (!reason || error != ENOENT) break;
  }
  if (!reason) made_in = strdup(directory);
  return reason;
}

void gh_ring_leave(void) {
  if (made_in) gh_directory_tidy(made_in, ring_name);
}

/* What the call will write, on its way here meanwhile; the place of its record is a guess. */
GH_HOT void gh_ring_expect(void) {
  struct gh_record *slots = gh_ring_at(GH_OFF_RECORDS);
  __builtin_prefetch(&gh_ring->inflight[gh_thread.inflight_hint], 1);
  __builtin_prefetch(&gh_ring->heartbeat_ns, 1);
  __builtin_prefetch(&slots[__atomic_load_n(&gh_ring->head, __ATOMIC_RELAXED) & mask], 1);
}

void gh_ring_flag(uint32_t flag) {
  __atomic_fetch_or(&gh_ring->hook_flags, flag, __ATOMIC_RELAXED);
}

/* Claims the slot of `index`; false when a writer a whole lap behind still holds it, or one a lap
 * ahead has been here: this record is then given up, so that a committed slot never changes. */
GH_HOT static bool claim(struct gh_record *slot, uint64_t index) {
  uint64_t old = __atomic_load_n(&slot->commit, __ATOMIC_RELAXED);
  if (old > index || (!old && index > mask)) return false;
  return __atomic_compare_exchange_n(&slot->commit, &old, 0, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}

GH_HOT void gh_ring_write(const struct gh_record *record) {
  struct gh_record *slots = gh_ring_at(GH_OFF_RECORDS);
  uint64_t index = __atomic_fetch_add(&gh_ring->head, 1, __ATOMIC_RELAXED);
  struct gh_record *slot = &slots[index & mask];
  if (!claim(slot, index)) return;
  __atomic_thread_fence(__ATOMIC_RELEASE);
  const uint64_t *from = (const uint64_t *)record;
  uint64_t *to = (uint64_t *)slot;
  for (size_t i = 1; i < sizeof *slot / sizeof *to; i++)
    __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
  __atomic_store_n(&slot->commit, index + 1, __ATOMIC_RELEASE);
}

/* NULL when all 16 are taken: the call is then only not visible while it runs. */
GH_HOT struct gh_inflight *gh_inflight_enter(uint32_t op, uint64_t comm, uint32_t seq,
                                             uint64_t t_ns) {
  uint32_t tid = gh_thread_id();
  for (uint32_t i = 0; i < GH_INFLIGHT_SLOTS; i++) {
    uint32_t at = (gh_thread.inflight_hint + i) % GH_INFLIGHT_SLOTS;
    struct gh_inflight *slot = &gh_ring->inflight[at];
    uint32_t none = 0;
    if (!__atomic_compare_exchange_n(&slot->tid, &none, tid, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
      continue;
    gh_thread.inflight_hint = at;
    __atomic_store_n(&slot->op, op, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->comm, comm, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->seq, seq, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->t_enter_ns, t_ns, __ATOMIC_RELEASE);
    return slot;
  }
  return NULL;
}

GH_HOT void gh_inflight_leave(struct gh_inflight *slot) {
  if (!slot) return;
  __atomic_store_n(&slot->t_enter_ns, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->tid, 0, __ATOMIC_RELEASE);
}

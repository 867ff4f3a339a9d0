/* storm.c: sixteen threads make, split, shrink and destroy communicators, more than the ring's
 * table shows, and call on their own and on shared ones, in groups and outside; meanwhile the mode
 * is flipped, and the process forks. Linked to the hook itself, so that a sanitizer sees it. Every
 * call's count is a number of its own, which the record carries as its bytes.
 * Prints: calls made, records of them, muted calls, records that no call explains.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../hook/include/greyhound_ring.h"
#include "../../../hook/nccl_abi.h"

ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, void *);
ncclResult_t ncclCommShrink(ncclComm_t, int *, int, ncclComm_t *, void *, int);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclBcast(void *, size_t, int, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void *, size_t, int, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void *, size_t, int, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
void *greyhound_control(uint32_t *);
int64_t gh_copy_records(const void *, uint64_t, uint64_t, struct gh_record *, uint64_t *,
                        uint64_t *);
long fake_calls(const char *);

#define THREADS 16
#define KEPT 40 /* communicators that a thread holds at once: 640 in all */
#define CHECK(call)                                  \
  do {                                               \
    if (call) printf("FAILED %s\n", #call), exit(3); \
  } while (0)

static ncclComm_t shared[2];
static int rounds = 200, running = THREADS, forks;
static long numbers; /* calls so far: each call's number */
static long all_reduces, bcasts, sends, groups, births, deaths, on_shared;
static char buffer[8];
static pthread_barrier_t all_kept;

static ncclUniqueId unique(long seed) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  memcpy(&id, &seed, sizeof seed);
  return id;
}
static size_t number(long *kind) {
  __atomic_add_fetch(kind, 1, __ATOMIC_RELAXED);
  return (size_t)__atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
}

static ncclComm_t make(int self, int i) {
  ncclComm_t made = NULL;
  int excluded[2] = {2, 1};
  __atomic_add_fetch(&births, 1, __ATOMIC_RELAXED);
  if (i % 3 == 0) CHECK(ncclCommInitRank(&made, 4, unique(self * 100000L + i + 10), 0));
  if (i % 3 == 1) CHECK(ncclCommSplit(shared[i % 2], self, 0, &made, NULL));
  if (i % 3 == 2) CHECK(ncclCommShrink(shared[i % 2], excluded, 2, &made, NULL, 0));
  return made;
}
static void destroy(ncclComm_t comm, int i) {
  __atomic_add_fetch(&deaths, 1, __ATOMIC_RELAXED);
  if (i % 2)
    CHECK(ncclCommDestroy(comm));
  else
    CHECK(ncclCommAbort(comm));
}
static void call_all(ncclComm_t own, ncclComm_t ours, int peer) {
  CHECK(ncclAllReduce(buffer, buffer, number(&all_reduces), 0, 0, ours, NULL));
  CHECK(ncclBcast(buffer, number(&bcasts), 0, 0, own, NULL));
  __atomic_add_fetch(&on_shared, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&groups, 1, __ATOMIC_RELAXED);
  CHECK(ncclGroupStart());
  CHECK(ncclSend(buffer, number(&sends), 0, peer, ours, NULL));
  CHECK(ncclGroupStart());
  CHECK(ncclRecv(buffer, number(&sends), 0, peer, own, NULL));
  CHECK(ncclGroupEnd());
  CHECK(ncclGroupEnd());
}

static void *caller(void *argument) {
  int self = (int)(long)argument;
  ncclComm_t kept[KEPT] = {0};
  for (int i = 0; i < rounds; i++) {
    ncclComm_t *own = &kept[i % KEPT];
    if (*own) destroy(*own, i);
    *own = make(self, i);
    call_all(kept[i / 2 % KEPT], shared[i % 2], i % 5);
    if (i == KEPT) pthread_barrier_wait(&all_kept);
  }
  for (int i = 0; i < KEPT; i++)
    if (kept[i]) destroy(kept[i], i);
  __atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void *flipper(void *ring) {
  uint32_t *mode = (uint32_t *)((char *)ring + GH_OFF_MODE);
  for (uint32_t i = 0; __atomic_load_n(&running, __ATOMIC_ACQUIRE); i++) {
    __atomic_store_n(mode, i % 2 ? GH_MODE_OBSERVE : GH_MODE_MUTED, __ATOMIC_RELAXED);
    usleep(1 + i * 37 % 300);
  }
  return NULL;
}

/* The children call on as if nothing had happened: unseen, and without waiting for anything. */
static void fork_on(void) {
  while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) {
    int status = 0;
    pid_t child = fork();
    if (!child) {
      ncclComm_t own;
      int failed = ncclCommInitRank(&own, 2, unique(1), 0);
      failed |= ncclAllReduce(buffer, buffer, 1, 0, 0, own, NULL) || ncclCommDestroy(own);
      _exit(failed || greyhound_control(NULL));
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status)
      printf("FAILED child %d: status %x\n", (int)child, (unsigned)status), exit(3);
    forks++;
    usleep(2000);
  }
}

/* How many records are of calls that were made, each once; *strange counts the others. */
static long verify(const void *ring, long *strange) {
  static struct gh_record out[4096];
  char *seen = calloc(1, (size_t)numbers + 1);
  uint64_t at = 0, lost = 0;
  long found = 0;
  int64_t n;
  while ((n = gh_copy_records(ring, at, 4096, out, &at, &lost)) > 0) {
    *strange += (long)lost;
    for (int64_t i = 0; i < n; i++) {
      if (out[i].op > GH_OP_WAIT_SIGNAL) continue;
      uint64_t bytes = out[i].bytes;
      if (!bytes || bytes > (uint64_t)numbers || seen[bytes]++)
        ++*strange;
      else
        found++;
    }
  }
  free(seen);
  return found;
}

/* Sums over the ring's table and counters for the two communicators that live throughout. */
static void check_shared(const char *ring) {
  const struct gh_comm *rows = (const void *)(ring + GH_OFF_COMMS);
  const struct gh_count *counts = (const void *)(ring + GH_OFF_COUNTS);
  uint64_t reduced = 0, sent = 0;
  for (int i = 0; i < GH_COUNT_SLOTS; i++)
    for (int j = 0; j < 2; j++)
      if (counts[i].comm == rows[j].hash && counts[i].kind == GH_COUNT_COLLECTIVE)
        reduced += counts[i].count;
      else if (counts[i].comm == rows[j].hash && counts[i].kind == GH_COUNT_SEND)
        sent += counts[i].count;
  if (rows[0].next_seq + rows[1].next_seq != 2 * on_shared || (long)reduced != all_reduces ||
      (long)sent != on_shared)
    printf("FAILED shared: %u + %u numbers, %ld + %ld calls\n", rows[0].next_seq, rows[1].next_seq,
           (long)reduced, (long)sent);
}

static void check_forwarded(const char *name, long made) {
  if (fake_calls(name) != made) printf("FAILED %s: %ld of %ld\n", name, fake_calls(name), made);
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS], flips;
  long strange = 0;
  if (argc > 1) rounds = atoi(argv[1]);
  if (rounds <= KEPT) return 2;
  pthread_barrier_init(&all_kept, NULL, THREADS);
  for (int i = 0; i < 2; i++) CHECK(ncclCommInitRank(&shared[i], 4, unique(i + 1), 0));
  const struct gh_header *ring = greyhound_control(NULL);
  if (!ring) return 3;
  pthread_create(&flips, NULL, flipper, (void *)ring);
  for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, caller, (void *)i);
  if (argc > 2) fork_on();
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  pthread_join(flips, NULL);
  check_forwarded("ncclAllReduce", all_reduces);
  check_forwarded("ncclBcast", bcasts);
  check_forwarded("ncclSend", sends / 2);
  check_forwarded("ncclRecv", sends / 2);
  check_forwarded("ncclGroupEnd", 2 * groups + sends); /* NCCL's own: one a send or receive */
  check_forwarded("ncclCommDestroy", deaths - fake_calls("ncclCommAbort"));
  long split = fake_calls("ncclCommSplit") + fake_calls("ncclCommShrink");
  check_forwarded("ncclCommInitRank", births + 2 - split);
  check_shared((const char *)ring);
  long found = verify(ring, &strange);
  printf("calls %ld records %ld muted %ld strange %ld flags %u forks %d\n", numbers, found,
         (long)ring->muted_calls, strange, ring->hook_flags, forks);
  return 0;
}

/* stress.c: eight writers and one reader on a small ring, in one process. Linked to the hook itself
 * (not preloaded), so that a sanitizer sees both sides. Every record read must be whole, in order,
 * and those read and those lost must add up.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../hook/include/greyhound_ring.h"
#include "../../../hook/nccl_abi.h"

ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclSend(const void *, size_t, int, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
void *greyhound_control(uint32_t *);
int64_t gh_copy_records(const void *, uint64_t, uint64_t, struct gh_record *, uint64_t *,
                        uint64_t *);

#define WRITERS 8
static ncclComm_t world;
static int rounds = 2000, writers_left = WRITERS;
static struct gh_record out[512];

static ncclUniqueId unique(int seed) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  memcpy(&id, &seed, sizeof seed);
  return id;
}

static void *writer(void *argument) {
  int self = (int)(long)argument;
  for (int i = 0; i < rounds; i++) {
    ncclComm_t own;
    int peer = (self * 31 + i) % 200;
    ncclSend(out, (size_t)peer, 0, peer, world, (void *)(long)self);
    if (i % 50) continue;
    ncclCommInitRank(&own, 2, unique(self * 1000000 + i + 1), 0);
    ncclAllReduce(out, out, 3, 0, 0, own, NULL);
    ncclCommDestroy(own);
  }
  __atomic_sub_fetch(&writers_left, 1, __ATOMIC_RELEASE);
  return NULL;
}

static int whole(const struct gh_record *r, uint64_t from, int64_t i) {
  if (r->commit <= from + (uint64_t)i) return 0;
  return r->op != GH_OP_SEND || (r->bytes == (uint64_t)r->peer && r->dtype == 0);
}

int main(int argc, char **argv) {
  if (argc > 1) rounds = atoi(argv[1]);
  pthread_t threads[WRITERS];
  uint64_t at = 0, read = 0, lost = 0, last = 0;
  if (ncclCommInitRank(&world, 2, unique(0x7fffffff), 0)) return 2;
  const struct gh_header *ring = greyhound_control(NULL);
  if (!ring) return 3;
  for (long i = 0; i < WRITERS; i++) pthread_create(&threads[i], NULL, writer, (void *)i);
  for (int done = 0; done < 2;) {
    uint64_t from = at, more;
    if (!__atomic_load_n(&writers_left, __ATOMIC_ACQUIRE)) done++;
    int64_t n;
    do {
      n = gh_copy_records(ring, at, 512, out, &at, &more);
      lost += more;
      for (int64_t i = 0; i < n; i++) {
        if (!whole(&out[i], from, i) || out[i].commit <= last) return printf("torn record\n"), 1;
        last = out[i].commit;
      }
      read += (uint64_t)n;
    } while (n == 512);
  }
  for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
  printf("read %llu lost %llu head %llu\n", (unsigned long long)read, (unsigned long long)lost,
         (unsigned long long)ring->head);
  return read + lost == at && at <= ring->head && read > 0 ? 0 : 4;
}

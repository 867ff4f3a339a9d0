/* fake_nccl.c: counts calls, moves no data. Built in several ways by the tests (see conftest.py).
 * Like NCCL: weak ncclX, strong pncclX; calls its own functions through the PLT; communicators made
 * in a group are stored at its end; pointers of destroyed communicators come back at once.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../hook/nccl_abi.h"

#define EXPORT __attribute__((visibility("default")))
#ifdef FAKE_PLAIN /* an NCCL without the profiling names */
#define API(name, params) EXPORT ncclResult_t nccl##name params
#else
#define API(name, params)                                                            \
  EXPORT ncclResult_t pnccl##name params;                                            \
  EXPORT ncclResult_t nccl##name params __attribute__((weak, alias("pnccl" #name))); \
  EXPORT ncclResult_t pnccl##name params
#endif
#define COUNT() fake_add(__func__)

struct comm {
  int rank, size, ready;
};
struct request {
  struct comm *comm;
  ncclComm_t *at;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char name[40];
  long calls;
} table[64];
static struct comm *spare;
static __thread int depth;
static __thread struct request requests[64];
static __thread int request_count;

static const char *bare(const char *name) { return *name == 'p' ? name + 1 : name; }

static void fake_add(const char *name) {
#ifndef FAKE_NOTHING
  name = bare(name);
  pthread_mutex_lock(&lock);
  int i = 0;
  while (table[i].name[0] && strcmp(table[i].name, name)) i++;
  strcpy(table[i].name, name);
  table[i].calls++;
  pthread_mutex_unlock(&lock);
#else
  (void)name;
#endif
}

/* A child of a process with threads may go on calling. */
static void hold(void) { pthread_mutex_lock(&lock); }
static void let_go(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void follow_forks(void) {
  pthread_atfork(hold, let_go, let_go);
}

EXPORT long fake_calls(const char *name) {
  for (int i = 0; table[i].name[0]; i++)
    if (!strcmp(table[i].name, name)) return table[i].calls;
  return 0;
}

static ncclResult_t error_wanted(const char *name) {
  static const char *failing;
  if (!failing) failing = getenv("FAKE_FAIL") ? getenv("FAKE_FAIL") : "";
  return strcmp(failing, bare(name)) ? 0 : 5;
}

static void hang_if_wanted(const char *name) {
  static const char *hanging;
  if (!hanging) hanging = getenv("FAKE_HANG") ? getenv("FAKE_HANG") : "";
  if (*hanging && !strcmp(hanging, bare(name))) pause();
}

static ncclResult_t deliver(ncclComm_t *at, int rank, int size) {
  pthread_mutex_lock(&lock);
  struct comm *comm = spare ? spare : malloc(sizeof *comm);
  spare = NULL;
  pthread_mutex_unlock(&lock);
  *comm = (struct comm){rank, size, !depth};
  if (depth) {
    *at = NULL;
    requests[request_count++] = (struct request){comm, at};
    return 0;
  }
  *at = comm;
  return getenv("FAKE_NONBLOCKING") ? GH_NCCL_IN_PROGRESS : 0;
}

API(GetVersion, (int *version)) {
  *version = 22907;
  return 0;
}
API(GetUniqueId, (ncclUniqueId * id)) {
  memset(id, 7, sizeof *id);
  return 0;
}
API(CommInitRank, (ncclComm_t * at, int size, ncclUniqueId id, int rank)) {
  (void)id;
  COUNT();
  return error_wanted(__func__) ? 5 : deliver(at, rank, size);
}
API(CommInitRankConfig, (ncclComm_t * at, int size, ncclUniqueId id, int rank, void *config)) {
  (void)id, (void)config;
  COUNT();
  return deliver(at, rank, size);
}
API(CommInitRankScalable,
    (ncclComm_t * at, int size, int rank, int nids, ncclUniqueId *ids, void *config)) {
  (void)nids, (void)ids, (void)config;
  COUNT();
  return deliver(at, rank, size);
}
API(CommInitAll, (ncclComm_t * at, int size, const int *devices)) {
  (void)devices;
  COUNT();
  for (int i = 0; i < size; i++) deliver(&at[i], i, size);
  return 0;
}
API(CommSplit, (ncclComm_t parent, int color, int key, ncclComm_t *at, void *config)) {
  (void)key, (void)config;
  COUNT();
  if (color == GH_NCCL_NOCOLOR) {
    *at = NULL;
    return 0;
  }
  struct comm *p = parent;
  return deliver(at, p->rank / 2, (p->size + 1) / 2);
}
API(CommShrink,
    (ncclComm_t parent, int *excluded, int n, ncclComm_t *at, void *config, int flags)) {
  (void)excluded, (void)config, (void)flags;
  COUNT();
  struct comm *p = parent;
  return deliver(at, p->rank, p->size - n);
}
API(CommGrow,
    (ncclComm_t parent, int size, const ncclUniqueId *id, int rank, ncclComm_t *at, void *config)) {
  (void)id, (void)config;
  COUNT();
  return deliver(at, parent ? ((struct comm *)parent)->rank : rank, size);
}
API(CommUserRank, (ncclComm_t comm, int *rank)) {
  if (!((struct comm *)comm)->ready) return 4;
  *rank = ((struct comm *)comm)->rank;
  return 0;
}
API(CommCount, (ncclComm_t comm, int *size)) {
  if (!((struct comm *)comm)->ready) return 4;
  *size = ((struct comm *)comm)->size;
  return 0;
}
API(CommCuDevice, (ncclComm_t comm, int *device)) {
  (void)comm;
  *device = 3;
  return 0;
}

#define COMM_CALL(name, params)    \
  API(name, params) {              \
    (void)comm;                    \
    COUNT();                       \
    return error_wanted(__func__); \
  }
COMM_CALL(CommFinalize, (ncclComm_t comm))
COMM_CALL(CommRevoke, (ncclComm_t comm, int flags __attribute__((unused))))
COMM_CALL(CommSuspend, (ncclComm_t comm, int flags __attribute__((unused))))
COMM_CALL(CommResume, (ncclComm_t comm))

static ncclResult_t release(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  if (!spare)
    spare = comm;
  else
    free(comm);
  pthread_mutex_unlock(&lock);
  return 0;
}
API(CommDestroy, (ncclComm_t comm)) {
  COUNT();
  return release(comm);
}
API(CommAbort, (ncclComm_t comm)) {
  COUNT();
  return release(comm);
}

API(GroupStart, (void)) {
  COUNT();
  depth++;
  return 0;
}
static ncclResult_t end_group(void) {
  if (--depth) return 0;
  for (int i = 0; i < request_count; i++) {
    requests[i].comm->ready = 1;
    *requests[i].at = requests[i].comm;
  }
  request_count = 0;
  return 0;
}
API(GroupEnd, (void)) {
  COUNT();
  hang_if_wanted(__func__);
  return end_group() ? 1 : error_wanted(__func__);
}
API(GroupSimulateEnd, (void *info)) {
  (void)info;
  COUNT();
  return end_group();
}

#ifdef FAKE_NOTHING
#define BODY() return 0
#else
#define BODY()              \
  COUNT();                  \
  hang_if_wanted(__func__); \
  return error_wanted(__func__)
#endif
#define U __attribute__((unused))
#define ROOTED(name) \
  API(name,          \
      (const void *s U, void *r U, size_t n U, int t U, int root U, ncclComm_t c U, void *st U))
#define UNROOTED(name) \
  API(name, (const void *s U, void *r U, size_t n U, int t U, ncclComm_t c U, void *st U))
#define REDUCING(name) \
  API(name, (const void *s U, void *r U, size_t n U, int t U, int op U, ncclComm_t c U, void *st U))

REDUCING(AllReduce) { BODY(); }
REDUCING(ReduceScatter) { BODY(); }
ROOTED(Broadcast) { BODY(); }
ROOTED(Gather) { BODY(); }
ROOTED(Scatter) { BODY(); }
UNROOTED(AllGather) { BODY(); }
UNROOTED(AlltoAll) { BODY(); }
API(Reduce, (const void *s U, void *r U, size_t n U, int t U, int op U, int root U, ncclComm_t c U,
             void *st U)) {
  BODY();
}
#define CONFIG const void *config U
API(AllReduceConfig, (const void *s U, void *r U, size_t n U, int t U, int op U, ncclComm_t c U,
                      void *st U, CONFIG)) {
  BODY();
}
API(ReduceScatterConfig, (const void *s U, void *r U, size_t n U, int t U, int op U, ncclComm_t c U,
                          void *st U, CONFIG)) {
  BODY();
}
API(BroadcastConfig, (const void *s U, void *r U, size_t n U, int t U, int root U, ncclComm_t c U,
                      void *st U, CONFIG)) {
  BODY();
}
API(GatherConfig, (const void *s U, void *r U, size_t n U, int t U, int root U, ncclComm_t c U,
                   void *st U, CONFIG)) {
  BODY();
}
API(ScatterConfig, (const void *s U, void *r U, size_t n U, int t U, int root U, ncclComm_t c U,
                    void *st U, CONFIG)) {
  BODY();
}
API(AllGatherConfig,
    (const void *s U, void *r U, size_t n U, int t U, ncclComm_t c U, void *st U, CONFIG)) {
  BODY();
}
API(AlltoAllConfig,
    (const void *s U, void *r U, size_t n U, int t U, ncclComm_t c U, void *st U, CONFIG)) {
  BODY();
}
API(ReduceConfig, (const void *s U, void *r U, size_t n U, int t U, int op U, int root U,
                   ncclComm_t c U, void *st U, CONFIG)) {
  /* the configuration must arrive whole: the argument is on the stack here */
  if (config && *(const int *)config != 4711) return 4;
  BODY();
}

/* Through the PLT, as NCCL does: a preloaded ncclBroadcast is entered again. */
extern ncclResult_t ncclBroadcast(const void *, void *, size_t, int, int, ncclComm_t, void *);
extern ncclResult_t ncclGroupStart(void);
extern ncclResult_t ncclGroupEnd(void);
API(Bcast, (void *b, size_t n, int t, int root, ncclComm_t c, void *st)) {
  COUNT();
  return ncclBroadcast(b, b, n, t, root, c, st);
}
static ncclResult_t grouped(void) {
  ncclGroupStart();
  return ncclGroupEnd();
}
API(Send, (const void *s U, size_t n U, int t U, int peer U, ncclComm_t c U, void *st U)) {
  COUNT();
  hang_if_wanted(__func__);
  return grouped();
}
API(Recv, (void *s U, size_t n U, int t U, int peer U, ncclComm_t c U, void *st U)) {
  COUNT();
  return grouped();
}
API(PutSignal, (const void *b U, size_t n U, int t U, int peer U, void *w U, size_t o U, int s U,
                int x U, unsigned f, ncclComm_t c U, void *st U)) {
  if (f != 6) return 4; /* an argument on the stack */
  BODY();
}
API(Signal, (int peer U, int s U, int x U, unsigned f U, ncclComm_t c U, void *st U)) { BODY(); }
API(WaitSignal, (int n U, void *d U, ncclComm_t c U, void *st U)) { BODY(); }

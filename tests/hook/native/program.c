/* program.c: makes the calls that the tests expect to find in the ring. One scenario per argv[1].
 * Linked to a fake NCCL as an executable, or as a library whose run() a host program calls.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../hook/functions.h"
#include "../../../hook/include/greyhound_ring.h"
#include "../../../hook/nccl_abi.h"

#define DECLARE(name, op, params, ...) ncclResult_t nccl##name params;
#define DECLARE_COMM(name, op, params, ...) ncclResult_t nccl##name params;
GH_DATA_FUNCTIONS(DECLARE)
GH_BIRTH_FUNCTIONS(DECLARE)
GH_COMM_FUNCTIONS(DECLARE_COMM)
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupSimulateEnd(void *);
long fake_calls(const char *) __attribute__((weak));

static char a[64], b[64];
#define STREAM ((cudaStream_t)0x5000)
#define CHECK(call)                         \
  do {                                      \
    ncclResult_t r_ = (call);               \
    if (r_) {                               \
      printf("FAILED %s: %d\n", #call, r_); \
      exit(3);                              \
    }                                       \
  } while (0)

static ncclUniqueId unique(int seed) {
  ncclUniqueId id;
  memset(&id, seed, sizeof id);
  return id;
}
static int env_number(const char *name, int otherwise) {
  return getenv(name) ? atoi(getenv(name)) : otherwise;
}
static ncclComm_t world(int seed) {
  ncclComm_t comm = NULL;
  CHECK(ncclCommInitRank(&comm, env_number("RANKS", 4), unique(seed), env_number("RANK", 0)));
  return comm;
}

static void every_operation(void) {
  ncclComm_t c = world(1);
  int config = 4711;
  CHECK(ncclAllReduce(a, b, 10, 7, 2, c, STREAM));
  CHECK(ncclAllReduceConfig(a, b, 11, 9, 0, c, STREAM, &config));
  CHECK(ncclBroadcast(a, b, 12, 0, 1, c, STREAM));
  CHECK(ncclBroadcastConfig(a, b, 13, 1, 2, c, STREAM, &config));
  CHECK(ncclBcast(a, 14, 8, 3, c, STREAM));
  CHECK(ncclReduce(a, b, 15, 6, 4, 1, c, STREAM));
  CHECK(ncclReduceConfig(a, b, 16, 4, 1, 2, c, STREAM, &config));
  CHECK(ncclAllGather(a, b, 17, 2, c, STREAM));
  CHECK(ncclAllGatherConfig(a, b, 18, 3, c, STREAM, &config));
  CHECK(ncclReduceScatter(a, b, 19, 5, 3, c, STREAM));
  CHECK(ncclReduceScatterConfig(a, b, 20, 10, 0, c, STREAM, &config));
  CHECK(ncclAlltoAll(a, b, 21, 11, c, STREAM));
  CHECK(ncclAlltoAllConfig(a, b, 22, 7, c, STREAM, &config));
  CHECK(ncclGather(a, b, 23, 7, 3, c, STREAM));
  CHECK(ncclGatherConfig(a, b, 24, 7, 2, c, STREAM, &config));
  CHECK(ncclScatter(a, b, 25, 7, 1, c, STREAM));
  CHECK(ncclScatterConfig(a, b, 26, 7, 0, c, STREAM, &config));
  CHECK(ncclSend(a, 27, 7, 2, c, STREAM));
  CHECK(ncclRecv(a, 28, 7, 3, c, STREAM));
  CHECK(ncclPutSignal(a, 29, 7, 1, NULL, 0, 0, 0, 6, c, STREAM));
  CHECK(ncclSignal(2, 0, 0, 6, c, STREAM));
  CHECK(ncclWaitSignal(1, NULL, c, STREAM));
  CHECK(ncclCommFinalize(c));
  CHECK(ncclCommRevoke(c, 0));
  CHECK(ncclCommSuspend(c, 1));
  CHECK(ncclCommResume(c));
  CHECK(ncclCommDestroy(c));
}

/* All constructors; RANK and SHUFFLE differ between the "ranks" that the test compares. */
static void identities(void) {
  ncclComm_t c = world(1), same, child[8], late, grown;
  ncclUniqueId ids[2] = {unique(5), unique(6)}, id = unique(9);
  int forth[2] = {1, 3}, back[2] = {3, 1}, *excluded = getenv("SHUFFLE") ? back : forth;
  CHECK(ncclCommInitRankConfig(&same, 4, unique(2), env_number("RANK", 0), NULL));
  CHECK(ncclCommInitRankScalable(&late, 4, env_number("RANK", 0), 2, ids, NULL));
  CHECK(ncclCommSplit(c, 0, 0, &child[0], NULL));
  CHECK(ncclCommSplit(c, env_number("COLOR", 0), 0, &child[1], NULL));
  CHECK(ncclCommSplit(c, 0, 0, &child[2], NULL));
  CHECK(ncclCommSplit(child[0], 0, 0, &child[3], NULL));
  CHECK(ncclCommShrink(c, excluded, 2, &child[4], NULL, 0));
  CHECK(ncclCommShrink(c, excluded, 2, &child[5], NULL, 0));
  CHECK(ncclCommGrow(c, 6, getenv("NO_ID") ? NULL : &id, -1, &grown, NULL));
  CHECK(ncclAllReduce(a, b, 1, 7, 0, grown, STREAM));
}

static void groups(void) {
  ncclComm_t c = world(1), made[3] = {0};
  CHECK(ncclGroupStart());
  CHECK(ncclCommInitRank(&made[0], 4, unique(2), 1));
  CHECK(ncclCommSplit(c, 5, 0, &made[1], NULL));
  CHECK(ncclCommSplit(c, -1, 0, &made[2], NULL));
  CHECK(ncclGroupEnd());
  CHECK(ncclAllReduce(a, b, 1, 7, 0, made[0], STREAM));
  CHECK(ncclAllReduce(a, b, 1, 7, 0, made[1], STREAM));
  CHECK(ncclGroupStart());
  CHECK(ncclSend(a, 8, 7, 1, c, STREAM));
  CHECK(ncclGroupStart());
  CHECK(ncclRecv(a, 8, 7, 1, c, STREAM));
  CHECK(ncclGroupEnd());
  CHECK(ncclGroupEnd());
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(a, b, 1, 7, 0, c, STREAM));
  CHECK(ncclAllReduce(a, b, 1, 7, 0, made[1], STREAM));
  CHECK(ncclGroupEnd());
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(a, b, 1, 7, 0, c, STREAM));
  CHECK(ncclGroupSimulateEnd(NULL));
}

/* The very first communicator of the process is made in a group, as torch does with several
 * devices. */
static void first_in_group(void) {
  ncclComm_t made[2];
  CHECK(ncclGroupStart());
  CHECK(ncclCommInitRank(&made[0], 2, unique(1), 0));
  CHECK(ncclCommInitRankConfig(&made[1], 2, unique(2), 1, NULL));
  CHECK(ncclGroupEnd());
  CHECK(ncclAllReduce(a, b, 1, 7, 0, made[1], STREAM));
}

static void reuse(void) {
  ncclComm_t first = world(1), second;
  CHECK(ncclAllReduce(a, b, 1, 7, 0, first, STREAM));
  CHECK(ncclCommDestroy(first));
  second = world(2);
  printf("same pointer: %d\n", first == second);
  CHECK(ncclAllReduce(a, b, 1, 7, 0, second, STREAM));
  CHECK(ncclCommAbort(second));
}

static void many(void) {
  int wanted = env_number("COMMS", 600);
  for (int i = 0; i < wanted; i++) {
    ncclUniqueId id = unique(1);
    ncclComm_t c;
    memcpy(&id, &i, sizeof i);
    CHECK(ncclCommInitRank(&c, 4, id, 0));
    CHECK(ncclAllReduce(a, b, 1, 7, 0, c, STREAM));
    if (getenv("DESTROY")) CHECK(ncclCommDestroy(c));
  }
}

static void *thread(void *comm) {
  for (int i = 0, n = env_number("CALLS", 2000); i < n; i++) {
    CHECK(ncclAllReduce(a, b, (size_t)i, 7, 0, comm, STREAM));
    CHECK(ncclGroupStart());
    CHECK(ncclSend(a, 1, 7, 1, comm, STREAM));
    CHECK(ncclRecv(a, 1, 7, i % 50, comm, STREAM));
    CHECK(ncclGroupEnd());
  }
  return NULL;
}
static void threads(void) {
  pthread_t t[8];
  ncclComm_t c[2] = {world(1), world(2)};
  for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, thread, c[i % 2]);
  for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}

/* The first calls of all threads at once: the lazy look-up of the real functions. */
static pthread_barrier_t together;
static void *first_call(void *seed) {
  pthread_barrier_wait(&together);
  ncclComm_t c = world((int)(long)seed);
  CHECK(ncclAllReduce(a, b, 1, 7, 0, c, STREAM));
  CHECK(ncclCommDestroy(c));
  return NULL;
}
static void race(void) {
  pthread_t t[8];
  pthread_barrier_init(&together, NULL, 8);
  for (long i = 0; i < 8; i++) pthread_create(&t[i], NULL, first_call, (void *)(i + 1));
  for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}

static void one_call(void) {
  ncclComm_t c = world(1);
  CHECK(ncclAllReduce(a, b, 10, 7, 0, c, STREAM));
}

static void call_in_group(void) {
  ncclComm_t c = world(1);
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(a, b, 10, 7, 0, c, STREAM));
  CHECK(ncclGroupEnd());
}

static void fork_after(void) {
  one_call();
  pid_t child = fork();
  if (!child) {
    one_call();
    printf("child alive\n");
    exit(0);
  }
  waitpid(child, NULL, 0);
}
static void fork_before(void) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    one_call();
    exit(0);
  }
  waitpid(child, NULL, 0);
}

/* A child that no handler of fork hears of; the parent leaves without a word. */
static void clone_after(void) {
  one_call();
  fflush(NULL);
  long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (!child) exit(0);
  waitpid((pid_t)child, NULL, 0);
  _exit(0);
}

static void no_news(int sig) { (void)sig; }

/* A profiler's timer, which interrupts whatever takes long in the kernel. */
static void under_a_timer(void) {
  const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  signal(SIGALRM, no_news);
  setitimer(ITIMER_REAL, &often, NULL);
  one_call();
  setitimer(ITIMER_REAL, &never, NULL);
}

/* Other threads may be in getenv while the hook leaves LD_PRELOAD: nothing may move. */
static void environment_stays(void) {
  static char *before[4096], *text;
  int n = 0, moved = 0;
  for (; environ[n] && n < 4095; n++) before[n] = environ[n];
  char **place = environ, *held = getenv("LD_PRELOAD");
  text = strdup(held);
  one_call();
  for (int i = 0; i <= n; i++)
    moved += environ[i] != before[i] && (!before[i] || strncmp(before[i], "LD_PRELOAD=", 11));
  printf("moved %d same place %d held text %s now '%s'\n", moved, environ == place,
         strcmp(held, text) ? "changed" : "same", getenv("LD_PRELOAD"));
}

static void show_environment(void) {
  one_call();
  const char *value = getenv("LD_PRELOAD");
  printf("LD_PRELOAD=%s\n", value ? value : "(unset)");
  fflush(stdout);
  if (system("bash -c 'echo \"child LD_PRELOAD=${LD_PRELOAD-(unset)}\"'")) exit(4);
}

/* Waits for a line on standard input between calls: the test acts meanwhile. */
static void stepwise(void) {
  char line[16];
  ncclComm_t c = world(1);
  printf("ready\n");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    CHECK(ncclAllReduce(a, b, 10, 7, 0, c, STREAM));
    printf("called\n");
    fflush(stdout);
  }
}

/* Page faults of this thread while it goes once round the ring, everything having been used before.
 */
static void faults(void) {
  struct rusage before, after;
  ncclComm_t c[3] = {world(1), world(2), world(3)};
  for (int i = 0, n = env_number("CALLS", 70000); i < n; i++) {
    if (i == 100) getrusage(RUSAGE_THREAD, &before);
    CHECK(ncclGroupStart());
    CHECK(ncclSend(a, 1, 7, i % 4, c[i % 3], STREAM));
    CHECK(ncclRecv(a, 1, 7, i % 4, c[i % 3], STREAM));
    CHECK(ncclGroupEnd());
    CHECK(ncclAllReduce(a, b, 1, 7, 0, c[i % 3], STREAM));
  }
  getrusage(RUSAGE_THREAD, &after);
  printf("%ld %ld\n", after.ru_minflt - before.ru_minflt, after.ru_majflt - before.ru_majflt);
}

static void errors(void) {
  ncclComm_t c = world(1);
  printf("result %d\n", ncclAllReduce(a, b, 10, 7, 0, c, STREAM));
  CHECK(ncclBroadcast(a, b, 10, 7, 0, c, STREAM));
}

static void unknown(void) { printf("result %d\n", ncclAllReduce(a, b, 10, 7, 0, a, STREAM)); }

static void all_devices(void) {
  ncclComm_t c[2];
  int devices[2] = {5, 6};
  CHECK(ncclCommInitAll(c, 2, devices));
  CHECK(ncclAllReduce(a, b, 1, 7, 0, c[1], STREAM));
}

static void control(void) {
  extern void *greyhound_control(uint32_t *) __attribute__((weak));
  uint32_t layout = 0;
  printf("before %d", greyhound_control(&layout) != NULL);
  one_call();
  const struct gh_header *h = greyhound_control(&layout);
  printf(" after %d layout %u pid %d\n", h != NULL, layout, h && h->pid == (uint32_t)getpid());
}

static const struct {
  const char *name;
  void (*run)(void);
} scenarios[] = {{"every_operation", every_operation},
                 {"identities", identities},
                 {"groups", groups},
                 {"first_in_group", first_in_group},
                 {"reuse", reuse},
                 {"many", many},
                 {"threads", threads},
                 {"race", race},
                 {"one_call", one_call},
                 {"call_in_group", call_in_group},
                 {"fork_after", fork_after},
                 {"fork_before", fork_before},
                 {"clone_after", clone_after},
                 {"under_a_timer", under_a_timer},
                 {"environment_stays", environment_stays},
                 {"show_environment", show_environment},
                 {"stepwise", stepwise},
                 {"faults", faults},
                 {"errors", errors},
                 {"unknown", unknown},
                 {"all_devices", all_devices},
                 {"control", control}};

__attribute__((visibility("default"))) int run(int argc, char **argv) {
  for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++)
    if (!strcmp(scenarios[i].name, argv[1])) {
      scenarios[i].run();
      if (argc > 2 && fake_calls) /* how often NCCL itself was called */
        for (int j = 2; j < argc; j++) printf("%s %ld\n", argv[j], fake_calls(argv[j]));
      fflush(stdout);
      return 0;
    }
  return 2;
}

#ifndef AS_LIBRARY
int main(int argc, char **argv) { return run(argc, argv); }
#endif

/* rendezvous.c: the unique id names a thread of the process that made it. The thread collects one
 * entry from every rank over loopback TCP and sends the whole table back to each. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

#define ID_MAGIC 0x44495344544e5347ull
#define HELLO_TIMEOUT_S 10

struct unique_id {
  uint64_t magic;
  uint32_t ip; /* always 127.0.0.1, kept for who reads it */
  uint16_t port;
  uint16_t unused;
  uint64_t nonce[2];
};

struct hello {
  uint64_t nonce[2];
  int32_t nranks;
  int32_t pid;
  struct gs_member member;
};

struct reply {
  int32_t result;
  int32_t offender; /* rank whose entry was refused */
};

struct desk {
  int listener;
  uint64_t nonce[2];
  int nranks, arrived;
  int *fds;
  int32_t *pids;
  struct gs_member *members;
};

uint64_t gs_id_hash(const ncclUniqueId *id) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < sizeof id->internal; i++)
    hash = (hash ^ (unsigned char)id->internal[i]) * 0x100000001b3ull;
  return hash;
}

static void refuse(int fd, int rank) {
  struct reply reply = {ncclInvalidArgument, rank};
  send(fd, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT);
  close(fd);
}

static bool reserve(struct desk *desk, int nranks) {
  if (desk->nranks != 0) return desk->nranks == nranks;
  if (nranks < 1 || nranks > GS_MAX_RANKS) return false;
  desk->fds = malloc((size_t)nranks * sizeof *desk->fds);
  desk->pids = malloc((size_t)nranks * sizeof *desk->pids);
  desk->members = calloc((size_t)nranks, sizeof *desk->members);
  if (desk->fds == NULL || desk->pids == NULL || desk->members == NULL) return false;
  for (int i = 0; i < nranks; i++) desk->fds[i] = -1;
  desk->nranks = nranks;
  return true;
}

static void receive_one(struct desk *desk, int fd) {
  struct timeval limit = {.tv_sec = HELLO_TIMEOUT_S};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  struct hello hello;
  if (recv(fd, &hello, sizeof hello, MSG_WAITALL) != (ssize_t)sizeof hello ||
      memcmp(hello.nonce, desk->nonce, sizeof hello.nonce) != 0) {
    close(fd);
    return;
  }
  int rank = hello.member.rank;
  if (!reserve(desk, hello.nranks) || rank < 0 || rank >= desk->nranks || desk->fds[rank] >= 0) {
    refuse(fd, rank);
    return;
  }
  desk->fds[rank] = fd;
  desk->pids[rank] = hello.pid;
  desk->members[rank] = hello.member;
  desk->arrived++;
}

static void answer(struct desk *desk, bool own_process) {
  struct reply reply = {ncclSuccess, -1};
  for (int i = 0; i < desk->nranks; i++) {
    if ((desk->pids[i] == getpid()) != own_process) continue;
    if (gs_send_all(desk->fds[i], &reply, sizeof reply, -1))
      gs_send_all(desk->fds[i], desk->members, (size_t)desk->nranks * sizeof *desk->members, -1);
    close(desk->fds[i]);
  }
}

/* Our own process comes last: it may be done and exit, and this thread with it. */
static void answer_all(struct desk *desk) {
  answer(desk, false);
  answer(desk, true);
}

static void *serve(void *argument) {
  struct desk *desk = argument;
  struct pollfd wait = {.fd = desk->listener, .events = POLLIN};
  while (desk->nranks == 0 || desk->arrived < desk->nranks) {
    if (poll(&wait, 1, -1) < 0 && errno != EINTR) break;
    int fd = accept4(desk->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) receive_one(desk, fd);
  }
  close(desk->listener);
  if (desk->nranks > 0) answer_all(desk);
  free(desk->fds);
  free(desk->pids);
  free(desk->members);
  free(desk);
  return NULL;
}

static bool start(struct desk *desk) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  bool ok = pthread_create(&thread, &attributes, serve, desk) == 0;
  pthread_attr_destroy(&attributes);
  return ok;
}

GS_API(ncclResult_t, GetUniqueId, ncclUniqueId *id) {
  if (id == NULL) return gs_error(ncclInvalidArgument, "ncclGetUniqueId: id is NULL");
  struct desk *desk = calloc(1, sizeof *desk);
  if (desk == NULL) return gs_error(ncclSystemError, "ncclGetUniqueId: out of memory");
  struct unique_id own = {.magic = ID_MAGIC, .ip = 0x7f000001};
  own.nonce[0] = desk->nonce[0] = gs_random();
  own.nonce[1] = desk->nonce[1] = gs_random();
  desk->listener = gs_listen_tcp(&own.port);
  if (desk->listener < 0 || !start(desk)) {
    gs_close(&desk->listener);
    free(desk);
    return gs_error(ncclSystemError, "ncclGetUniqueId: can't listen on 127.0.0.1: %s",
                    strerror(errno));
  }
  memset(id, 0, sizeof *id);
  memcpy(id->internal, &own, sizeof own);
  return ncclSuccess;
}

static ncclResult_t exchange(int fd, const struct hello *hello, struct gs_member *members,
                             int wake) {
  struct reply reply = {ncclSuccess, -1};
  size_t bytes = (size_t)hello->nranks * sizeof *members;
  if (!gs_send_all(fd, hello, sizeof *hello, wake) || !gs_recv_all(fd, &reply, sizeof reply, wake))
    return gs_error(ncclRemoteError, "the rendezvous ended before all %d ranks were there",
                    hello->nranks);
  if (reply.result != ncclSuccess)
    return gs_error(ncclInvalidArgument,
                    "rank %d of %d was refused: another rank has this number or another size",
                    hello->member.rank, hello->nranks);
  if (!gs_recv_all(fd, members, bytes, wake))
    return gs_error(ncclRemoteError, "the rendezvous ended before its answer was complete");
  return ncclSuccess;
}

ncclResult_t gs_rendezvous(const ncclUniqueId *id, int nranks, const struct gs_member *mine,
                           struct gs_member *members, int wake) {
  struct unique_id own;
  memcpy(&own, id->internal, sizeof own);
  if (own.magic != ID_MAGIC)
    return gs_error(ncclInvalidArgument, "the unique id wasn't made by this library");
  int fd = gs_connect_tcp(own.port);
  if (fd < 0)
    return gs_error(ncclRemoteError,
                    "nobody answers at 127.0.0.1:%d: the id was used already or its maker ended",
                    own.port);
  struct hello hello = {.nranks = nranks, .pid = getpid(), .member = *mine};
  memcpy(hello.nonce, own.nonce, sizeof hello.nonce);
  ncclResult_t result = exchange(fd, &hello, members, wake);
  close(fd);
  return result;
}

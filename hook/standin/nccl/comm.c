/* comm.c: communicators: their sockets, errors, end, and what a fork does to them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define COMM_MAGIC 0x6d6d6f43734747ull

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *registry;

ncclComm_t gs_comm_make(void) {
  ncclComm_t comm = calloc(1, sizeof *comm);
  if (comm == NULL) return NULL;
  comm->magic = COMM_MAGIC;
  comm->refs = 1;
  comm->fork_generation = gs_forks();
  comm->rank = comm->nranks = -1;
  comm->device = gs_current_device();
  gs_gpu_name(comm->device, comm->gpu); /* here, on the caller's thread: see page.c */
  comm->error = ncclInProgress;
  comm->listener = comm->control.listener = -1;
  comm->wake = gs_make_wake();
  comm->control.wake = gs_make_wake();
  pthread_mutex_init(&comm->issue_lock, NULL);
  pthread_mutex_init(&comm->lock, NULL);
  pthread_mutex_init(&comm->data_lock, NULL);
  pthread_mutex_init(&comm->control.lock, NULL);
  pthread_cond_init(&comm->turn, NULL);
  pthread_mutex_lock(&registry_lock);
  comm->next = registry;
  registry = comm;
  pthread_mutex_unlock(&registry_lock);
  return comm;
}

ncclResult_t gs_comm_open(ncclComm_t comm, struct gs_member *mine) {
  memset(mine, 0, sizeof *mine);
  memcpy(mine->gpu, comm->gpu, sizeof mine->gpu);
  mine->device = comm->device;
  mine->address = gs_random();
  pthread_mutex_lock(&comm->data_lock); /* an abort may come while it is being made */
  comm->listener = gs_listen_local(mine->address, GS_DATA);
  comm->control.listener = gs_listen_local(mine->address, GS_CONTROL);
  pthread_mutex_unlock(&comm->data_lock);
  if (comm->listener >= 0 && comm->control.listener >= 0 && comm->wake >= 0 &&
      comm->control.wake >= 0)
    return ncclSuccess;
  return gs_error(ncclSystemError, "can't open a communicator's sockets: %s (limit of open files?)",
                  strerror(errno));
}

static int *no_sockets(int n) {
  int *fds = malloc((size_t)n * sizeof *fds);
  for (int i = 0; fds != NULL && i < n; i++) fds[i] = -1;
  return fds;
}

ncclResult_t gs_comm_complete(ncclComm_t comm, int rank, int nranks, struct gs_member *members,
                              uint64_t hash) {
  pthread_mutex_lock(&comm->data_lock);
  comm->hash = hash;
  comm->out_fds = no_sockets(nranks);
  comm->in_fds = no_sockets(nranks);
  comm->control.fds = no_sockets(nranks);
  comm->page_gpu = calloc((size_t)nranks, sizeof *comm->page_gpu);
  bool ok = comm->out_fds && comm->in_fds && comm->control.fds && comm->page_gpu;
  for (int i = 0; ok && i < nranks; i++) comm->page_gpu[i] = gs_page_find(members[i].gpu);
  if (ok) {
    comm->rank = rank;
    comm->nranks = nranks;
    comm->members = members;
  }
  pthread_mutex_unlock(&comm->data_lock);
  if (!ok) return gs_error(ncclSystemError, "out of memory for a communicator of %d ranks", nranks);
  pthread_mutex_lock(&comm->lock);
  if (comm->error == ncclInProgress) comm->error = ncclSuccess;
  pthread_mutex_unlock(&comm->lock);
  return ncclSuccess;
}

static void close_all(int *fds, int n) {
  for (int i = 0; fds != NULL && i < n; i++) gs_close(&fds[i]);
}

/* Closing tells the peers. The caller holds data_lock. */
static void close_data(ncclComm_t comm) {
  gs_close(&comm->listener);
  close_all(comm->out_fds, comm->nranks);
  close_all(comm->in_fds, comm->nranks);
}

static void close_everything(ncclComm_t comm) {
  close_data(comm);
  gs_close(&comm->control.listener);
  close_all(comm->control.fds, comm->nranks);
  gs_close(&comm->wake);
  gs_close(&comm->control.wake);
}

void gs_comm_ref(ncclComm_t comm) { __atomic_add_fetch(&comm->refs, 1, __ATOMIC_ACQ_REL); }

static void unregister(ncclComm_t comm) {
  pthread_mutex_lock(&registry_lock);
  struct ncclComm **at = &registry;
  while (*at != NULL && *at != comm) at = &(*at)->next;
  if (*at != NULL) *at = comm->next;
  pthread_mutex_unlock(&registry_lock);
}

void gs_comm_unref(ncclComm_t comm) {
  if (__atomic_sub_fetch(&comm->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  unregister(comm);
  close_everything(comm);
  free(comm->out_fds);
  free(comm->in_fds);
  free(comm->control.fds);
  free(comm->page_gpu);
  free(comm->members);
  comm->magic = 0;
  free(comm);
}

void gs_comm_set_error(ncclComm_t comm, ncclResult_t error, const char *message) {
  pthread_mutex_lock(&comm->lock);
  if (!comm->stopped && (comm->error == ncclSuccess || comm->error == ncclInProgress)) {
    comm->error = error;
    strncpy(comm->message, message, sizeof comm->message - 1);
  }
  comm->stopped = true;
  pthread_mutex_unlock(&comm->lock);
}

/* An operation failed; its worker holds data_lock. The peers see the sockets close. */
void gs_comm_fail(ncclComm_t comm, ncclResult_t error, const char *message) {
  gs_comm_set_error(comm, error, message);
  close_data(comm);
}

/* No operation starts from now on, and the running one has returned. */
void gs_comm_stop(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock);
  comm->stopped = true;
  pthread_mutex_unlock(&comm->lock);
  gs_signal(comm->wake);
  pthread_mutex_lock(&comm->data_lock);
  close_data(comm);
  pthread_mutex_unlock(&comm->data_lock);
}

ncclResult_t gs_comm_error(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock);
  ncclResult_t error = comm->error;
  pthread_mutex_unlock(&comm->lock);
  return error;
}

static ncclResult_t check_handle(ncclComm_t comm) {
  if (comm == NULL) return gs_error(ncclInvalidArgument, "the communicator is NULL");
  if (comm->magic != COMM_MAGIC)
    return gs_error(ncclInvalidArgument, "%p is no communicator, or was destroyed", (void *)comm);
  if (comm->fork_generation != gs_forks())
    return gs_error(ncclInvalidUsage,
                    "the communicator was made before fork(): only the parent can use it");
  return ncclSuccess;
}

/* Usable for operations: an asynchronous error is returned here too. */
ncclResult_t gs_comm_check(ncclComm_t comm) {
  ncclResult_t result = check_handle(comm);
  if (result != ncclSuccess) return result;
  result = gs_comm_error(comm);
  if (result == ncclInProgress)
    return gs_error(ncclInvalidArgument,
                    "the communicator is still being made: end the group, or wait until "
                    "ncclCommGetAsyncError says ncclSuccess");
  return result;
}

/* Waits until every issued operation is over. */
static void drain(ncclComm_t comm) {
  pthread_mutex_lock(&comm->issue_lock);
  uint64_t last = comm->next_ticket;
  pthread_mutex_unlock(&comm->issue_lock);
  pthread_mutex_lock(&comm->lock);
  while (comm->serving < last && !comm->stopped) pthread_cond_wait(&comm->turn, &comm->lock);
  pthread_mutex_unlock(&comm->lock);
}

GS_API(ncclResult_t, CommFinalize, ncclComm_t comm) {
  ncclResult_t result = gs_comm_check(comm);
  if (result == ncclSuccess) drain(comm);
  return result == ncclSuccess ? gs_comm_error(comm) : result;
}

GS_API(ncclResult_t, CommDestroy, ncclComm_t comm) {
  if (comm == NULL) return ncclSuccess;
  ncclResult_t result = check_handle(comm);
  if (result != ncclSuccess) return result;
  if (gs_comm_error(comm) == ncclSuccess) drain(comm);
  gs_comm_stop(comm);
  gs_signal(comm->control.wake);
  gs_comm_unref(comm);
  return ncclSuccess;
}

GS_API(ncclResult_t, CommAbort, ncclComm_t comm) {
  if (comm == NULL) return ncclSuccess;
  ncclResult_t result = check_handle(comm);
  if (result != ncclSuccess) return result;
  gs_signal(comm->control.wake);
  gs_comm_stop(comm);
  gs_comm_unref(comm);
  return ncclSuccess;
}

GS_API(ncclResult_t, CommGetAsyncError, ncclComm_t comm, ncclResult_t *error) {
  ncclResult_t result = check_handle(comm);
  if (result != ncclSuccess) return result;
  if (error == NULL) return gs_error(ncclInvalidArgument, "ncclCommGetAsyncError: error is NULL");
  *error = gs_comm_error(comm);
  return ncclSuccess;
}

/* A value that exists once the communicator is complete. */
static ncclResult_t query(ncclComm_t comm, const int *value, int *out) {
  ncclResult_t result = check_handle(comm);
  if (result != ncclSuccess) return result;
  if (out == NULL) return gs_error(ncclInvalidArgument, "the result pointer is NULL");
  if (gs_comm_error(comm) == ncclInProgress) return gs_comm_check(comm);
  *out = *value;
  return ncclSuccess;
}

GS_API(ncclResult_t, CommCount, const ncclComm_t comm, int *count) {
  return query(comm, comm ? &comm->nranks : NULL, count);
}

GS_API(ncclResult_t, CommCuDevice, const ncclComm_t comm, int *device) {
  return query(comm, comm ? &comm->device : NULL, device);
}

GS_API(ncclResult_t, CommUserRank, const ncclComm_t comm, int *rank) {
  return query(comm, comm ? &comm->rank : NULL, rank);
}

/* A child holds no copy of its parent's sockets: the peers must see the parent's end. */
static void before_fork(void) { pthread_mutex_lock(&registry_lock); }
static void in_parent(void) { pthread_mutex_unlock(&registry_lock); }
static void in_child(void) {
  for (struct ncclComm *comm = registry; comm != NULL; comm = comm->next) close_everything(comm);
  registry = NULL;
  pthread_mutex_init(&registry_lock, NULL);
  gs_pace_after_fork();
}

__attribute__((constructor)) static void watch_forks(void) {
  pthread_atfork(before_fork, in_parent, in_child);
}

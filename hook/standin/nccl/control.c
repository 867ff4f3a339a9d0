/* control.c: small exchanges among a communicator's members outside its operations (for splits).
 * They meet at the lowest rank over sockets of their own, so enqueued operations don't matter. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "internal.h"

static bool accept_from(ncclComm_t comm, int rank) {
  struct gs_control *control = &comm->control;
  while (control->fds[rank] < 0) {
    int who, fd = gs_accept_local(control->listener, comm->hash, &who);
    if (fd >= 0) {
      if (who < 0 || who >= comm->nranks || control->fds[who] >= 0)
        gs_close(&fd);
      else
        control->fds[who] = fd;
      continue;
    }
    struct pollfd wait[2] = {{.fd = control->listener, .events = POLLIN},
                             {.fd = control->wake, .events = POLLIN}};
    if (poll(wait, 2, -1) < 0 && errno != EINTR) return false;
    if (wait[1].revents) return false;
  }
  return true;
}

static bool gather_as_root(ncclComm_t comm, const int *ranks, int count, size_t bytes, char *all) {
  struct gs_control *control = &comm->control;
  for (int i = 1; i < count; i++)
    if (!accept_from(comm, ranks[i]) ||
        !gs_recv_all(control->fds[ranks[i]], all + (size_t)i * bytes, bytes, control->wake))
      return false;
  for (int i = 1; i < count; i++)
    if (!gs_send_all(control->fds[ranks[i]], all, (size_t)count * bytes, control->wake))
      return false;
  return true;
}

static bool gather_as_leaf(ncclComm_t comm, int root, int count, const void *mine, size_t bytes,
                           char *all) {
  struct gs_control *control = &comm->control;
  if (control->fds[root] < 0)
    control->fds[root] =
        gs_connect_local(comm->members[root].address, GS_CONTROL, comm->hash, comm->rank);
  return control->fds[root] >= 0 && gs_send_all(control->fds[root], mine, bytes, control->wake) &&
         gs_recv_all(control->fds[root], all, (size_t)count * bytes, control->wake);
}

ncclResult_t gs_control_gather(ncclComm_t comm, const int *ranks, int count, const void *mine,
                               size_t bytes, void *all) {
  bool ok;
  pthread_mutex_lock(&comm->control.lock);
  if (comm->rank == ranks[0]) {
    memcpy(all, mine, bytes);
    ok = gather_as_root(comm, ranks, count, bytes, all);
  } else {
    ok = gather_as_leaf(comm, ranks[0], count, mine, bytes, all);
  }
  pthread_mutex_unlock(&comm->control.lock);
  return ok ? ncclSuccess
            : gs_error(ncclRemoteError, "a member left communicator %016llx during a split",
                       (unsigned long long)comm->hash);
}

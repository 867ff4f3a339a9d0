/* transport.c: runs a batch: all its messages at once, full duplex, one thread, no spinning. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lane.h"

struct batch_state {
  ncclComm_t comm;
  struct gs_plan *plan;
  struct gs_lane_out *out; /* by place in plan->peers */
  struct gs_lane_in *in;
  struct pollfd *polled;
};

static bool is_active(const struct batch_state *s, int i) {
  return s->out[i].head != NULL || s->in[i].head != NULL;
}

static void accept_waiting(ncclComm_t comm) {
  int rank, fd;
  while ((fd = gs_accept_local(comm->listener, comm->hash, &rank)) >= 0) {
    if (rank >= 0 && rank < comm->nranks && comm->in_fds[rank] < 0)
      comm->in_fds[rank] = fd;
    else
      gs_close(&fd);
  }
}

static ncclResult_t lost(ncclComm_t comm, int peer) {
  return gs_error(ncclRemoteError, "rank %d lost rank %d on communicator %016llx", comm->rank, peer,
                  (unsigned long long)comm->hash);
}

/* The socket towards a peer also tells that it is gone before it has connected to us. A refusal
 * is only fatal if nothing of it waits here: it may have sent everything and left. */
static ncclResult_t reach(struct batch_state *s, int i) {
  ncclComm_t comm = s->comm;
  int peer = s->plan->peers[i];
  if (comm->out_fds[peer] >= 0 || (s->out[i].head == NULL && comm->in_fds[peer] >= 0))
    return ncclSuccess;
  int fd = gs_connect_local(comm->members[peer].address, GS_DATA, comm->hash, comm->rank);
  if (fd < 0) accept_waiting(comm);
  if (fd < 0 && (s->out[i].head != NULL || comm->in_fds[peer] < 0)) return lost(comm, peer);
  comm->out_fds[peer] = fd;
  return ncclSuccess;
}

static bool set_up(struct batch_state *s, struct gs_plan *plan) {
  size_t n = (size_t)plan->peer_count;
  *s = (struct batch_state){.comm = plan->comm, .plan = plan};
  s->out = gs_plan_alloc(plan, n * sizeof *s->out);
  s->in = gs_plan_alloc(plan, n * sizeof *s->in);
  s->polled = gs_plan_alloc(plan, (2 * n + 2) * sizeof *s->polled);
  if (plan->failed) return false;
  uint64_t start_ns = standinNow();
  for (int i = 0; i < plan->peer_count; i++) {
    s->out[i].head = plan->out[plan->peers[i]];
    s->out[i].ready_ns = start_ns;
    s->in[i].head = plan->in[plan->peers[i]];
    size_t scratch = 0; /* as large as the largest message to reduce needs */
    for (struct gs_transfer *x = s->in[i].head; x != NULL; x = x->next)
      if (x->own != NULL && x->bytes > scratch) scratch = x->bytes;
    s->in[i].scratch_bytes = scratch < GS_SCRATCH_BYTES ? scratch : GS_SCRATCH_BYTES;
    s->in[i].scratch = gs_plan_buffer(plan, s->in[i].scratch_bytes);
  }
  return !plan->failed;
}

/* One pass over all lanes. */
static ncclResult_t pass(struct batch_state *s, struct gs_moment *moment, bool *moved) {
  *moved = false;
  moment->now_ns = standinNow();
  moment->wake_ns = 0;
  for (int i = 0; i < s->plan->peer_count; i++) {
    enum gs_step sent = gs_lane_send(s->comm, &s->out[i], moment);
    enum gs_step got = gs_lane_recv(s->comm, &s->in[i]);
    if (got == GS_MISMATCH) return ncclInvalidUsage; /* lane.c has said why */
    if (sent == GS_BROKEN || got == GS_BROKEN) return lost(s->comm, s->plan->peers[i]);
    *moved |= sent == GS_MOVED || got == GS_MOVED;
  }
  return ncclSuccess;
}

static void add(struct batch_state *s, nfds_t *count, int fd, short events) {
  s->polled[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

/* A socket that we only watch for its end is listed with no events. */
static nfds_t list_sockets(struct batch_state *s) {
  ncclComm_t comm = s->comm;
  nfds_t count = 0;
  bool missing = false;
  add(s, &count, comm->wake, POLLIN);
  add(s, &count, comm->listener, 0);
  for (int i = 0; i < s->plan->peer_count; i++) {
    int peer = s->plan->peers[i];
    bool unconnected = s->in[i].head != NULL && comm->in_fds[peer] < 0;
    missing |= unconnected;
    if (s->out[i].head != NULL || unconnected)
      add(s, &count, comm->out_fds[peer], s->out[i].blocked ? POLLOUT : 0);
    if (s->in[i].head != NULL && !unconnected) add(s, &count, comm->in_fds[peer], POLLIN);
  }
  if (missing) s->polled[1].events = POLLIN;
  return count;
}

static bool is_over(const struct batch_state *s, int fd) {
  for (nfds_t k = 0; k < 2 * (nfds_t)s->plan->peer_count + 2; k++)
    if (s->polled[k].fd == fd && (s->polled[k].revents & (POLLHUP | POLLERR))) return true;
  return false;
}

/* After poll: who has hung up while we still need it? */
static int find_lost(struct batch_state *s) {
  ncclComm_t comm = s->comm;
  for (int i = 0; i < s->plan->peer_count; i++) {
    int peer = s->plan->peers[i];
    if (!is_active(s, i) || !is_over(s, comm->out_fds[peer])) continue;
    if (comm->in_fds[peer] < 0) accept_waiting(comm); /* it may have connected, sent and left */
    if (s->out[i].head != NULL || comm->in_fds[peer] < 0) return peer;
  }
  return -1;
}

static ncclResult_t wait_for_sockets(struct batch_state *s, const struct gs_moment *moment) {
  nfds_t count = list_sockets(s);
  for (nfds_t k = count; k < 2 * (nfds_t)s->plan->peer_count + 2; k++)
    s->polled[k] = (struct pollfd){.fd = -1};
  struct timespec left, *limit = NULL;
  if (moment->wake_ns != 0) {
    uint64_t now_ns = standinNow();
    uint64_t wait_ns = moment->wake_ns > now_ns ? moment->wake_ns - now_ns : 0;
    left = (struct timespec){(time_t)(wait_ns / 1000000000u), (long)(wait_ns % 1000000000u)};
    limit = &left;
  }
  if (ppoll(s->polled, count, limit, NULL) < 0)
    return errno == EINTR ? ncclSuccess : gs_error(ncclSystemError, "poll: %s", strerror(errno));
  if (s->polled[0].revents != 0)
    return gs_error(ncclRemoteError, "communicator %016llx was stopped",
                    (unsigned long long)s->comm->hash);
  if (s->polled[1].revents != 0) accept_waiting(s->comm);
  int peer = find_lost(s);
  return peer < 0 ? ncclSuccess : lost(s->comm, peer);
}

static ncclResult_t reach_all(struct batch_state *s) {
  ncclResult_t result = ncclSuccess;
  accept_waiting(s->comm);
  for (int i = 0; i < s->plan->peer_count && result == ncclSuccess; i++) result = reach(s, i);
  return result;
}

static bool is_done(const struct batch_state *s) {
  for (int i = 0; i < s->plan->peer_count; i++)
    if (is_active(s, i)) return false;
  return true;
}

ncclResult_t gs_transport_run(struct gs_plan *plan) {
  struct batch_state state;
  struct gs_moment moment;
  bool moved;
  if (!set_up(&state, plan)) return gs_error(ncclSystemError, "out of memory");
  ncclResult_t result = reach_all(&state);
  while (result == ncclSuccess) {
    result = pass(&state, &moment, &moved);
    if (result != ncclSuccess || is_done(&state)) break;
    if (!moved) result = wait_for_sockets(&state, &moment);
  }
  return result;
}

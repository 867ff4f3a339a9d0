/* collectives.c: the messages that each call stands for. Rings run in rank order (r sends to
 * r + 1), as every rank's neighbours in NCCL's ring; a send that passes on what a receive brings
 * follows it byte by byte, so whole rings are pipelined. */
#include <string.h>

#include "internal.h"

struct ring {
  struct gs_plan *plan;
  const struct gs_task *task;
  int rank, n, next, previous;
  size_t element;
};

static struct ring ring_of(struct gs_plan *plan, const struct gs_task *task) {
  int rank = plan->comm->rank, n = plan->comm->nranks;
  return (struct ring){
      plan, task, rank, n, (rank + 1) % n, (rank + n - 1) % n, gs_dtype_bytes(task->dtype)};
}

static int wrap(int index, int n) { return ((index % n) + n) % n; }

static void copy(char *to, const char *from, size_t bytes) {
  if (to != from && bytes > 0) memmove(to, from, bytes);
}

/* The input of a reduction: the user's, or a multiplied copy of it. */
static const char *input_of(struct gs_plan *plan, const struct gs_task *task, size_t count) {
  if (!task->redop.premul) return task->send;
  char *scaled = gs_plan_buffer(plan, count * gs_dtype_bytes(task->dtype));
  if (scaled != NULL) gs_multiply(task->dtype, scaled, task->send, count, task->redop.scalar);
  return scaled;
}

static struct gs_transfer *recv_reduced(struct ring *ring, char *to, const char *own, size_t bytes,
                                        bool last) {
  struct gs_transfer *made = gs_plan_recv(ring->plan, ring->task, ring->previous, to, bytes);
  if (made != NULL) {
    made->own = own;
    made->last = last;
  }
  return made;
}

static size_t chunk_begin(const struct ring *ring, int chunk) {
  size_t count = ring->task->count, n = (size_t)ring->n, c = (size_t)chunk;
  return (count / n * c + (count % n) * c / n) * ring->element;
}

static size_t chunk_bytes(const struct ring *ring, int chunk) {
  return chunk_begin(ring, chunk + 1) - chunk_begin(ring, chunk);
}

/* Reduce-scatter round the ring, then all-gather: 2 (n - 1) / n of the data over each link. */
static void all_reduce(struct gs_plan *plan, const struct gs_task *task) {
  struct ring ring = ring_of(plan, task);
  const char *in = input_of(plan, task, task->count);
  if (plan->failed) return;
  char *out = task->recv;
  const struct gs_transfer *last = NULL;
  for (int k = 0; k < ring.n - 1; k++) {
    int sent = wrap(ring.rank - k, ring.n), got = wrap(ring.rank - k - 1, ring.n);
    size_t from = chunk_begin(&ring, sent), to = chunk_begin(&ring, got);
    gs_plan_send(plan, task, ring.next, (k == 0 ? in : out) + from, chunk_bytes(&ring, sent), last);
    last = recv_reduced(&ring, out + to, in + to, chunk_bytes(&ring, got), k == ring.n - 2);
  }
  for (int k = 0; k < ring.n - 1; k++) {
    int sent = wrap(ring.rank + 1 - k, ring.n), got = wrap(ring.rank - k, ring.n);
    gs_plan_send(plan, task, ring.next, out + chunk_begin(&ring, sent), chunk_bytes(&ring, sent),
                 last);
    last = gs_plan_recv(plan, task, ring.previous, out + chunk_begin(&ring, got),
                        chunk_bytes(&ring, got));
  }
}

static void reduce_scatter(struct gs_plan *plan, const struct gs_task *task) {
  struct ring ring = ring_of(plan, task);
  size_t block = task->count * ring.element;
  const char *in = input_of(plan, task, task->count * (size_t)ring.n);
  char *partial = gs_plan_buffer(plan, block * (size_t)(ring.n - 1));
  if (plan->failed) return;
  const char *from = in + block * (size_t)ring.previous;
  const struct gs_transfer *last = NULL;
  for (int k = 0; k < ring.n - 1; k++) {
    const char *own = in + block * (size_t)wrap(ring.rank - k - 2, ring.n);
    char *to = k == ring.n - 2 ? task->recv : partial + block * (size_t)k;
    gs_plan_send(plan, task, ring.next, from, block, last);
    last = recv_reduced(&ring, to, own, block, k == ring.n - 2);
    from = to;
  }
}

/* A chain that begins behind the root and ends there. */
static void reduce(struct gs_plan *plan, const struct gs_task *task) {
  struct ring ring = ring_of(plan, task);
  size_t bytes = task->count * ring.element;
  int place = wrap(ring.rank - task->peer - 1, ring.n);
  bool root = place == ring.n - 1;
  const char *in = input_of(plan, task, task->count);
  char *to = root || place == 0 ? task->recv : gs_plan_buffer(plan, bytes);
  if (plan->failed) return;
  const struct gs_transfer *got = NULL;
  if (place > 0) got = recv_reduced(&ring, to, in, bytes, root);
  if (!root) gs_plan_send(plan, task, ring.next, place == 0 ? in : to, bytes, got);
}

static void broadcast(struct gs_plan *plan, const struct gs_task *task) {
  struct ring ring = ring_of(plan, task);
  size_t bytes = task->count * ring.element;
  int place = wrap(ring.rank - task->peer, ring.n);
  const struct gs_transfer *got = NULL;
  if (place > 0)
    got = gs_plan_recv(plan, task, ring.previous, task->recv, bytes);
  else
    copy(task->recv, task->send, bytes);
  if (place < ring.n - 1) gs_plan_send(plan, task, ring.next, task->recv, bytes, got);
}

static void all_gather(struct gs_plan *plan, const struct gs_task *task) {
  struct ring ring = ring_of(plan, task);
  size_t block = task->count * ring.element;
  copy(task->recv + block * (size_t)ring.rank, task->send, block);
  const struct gs_transfer *last = NULL;
  for (int k = 0; k < ring.n - 1; k++) {
    size_t sent = (size_t)wrap(ring.rank - k, ring.n);
    size_t got = (size_t)wrap(ring.rank - k - 1, ring.n);
    gs_plan_send(plan, task, ring.next, task->recv + block * sent, block, last);
    last = gs_plan_recv(plan, task, ring.previous, task->recv + block * got, block);
  }
}

static void all_to_all(struct gs_plan *plan, const struct gs_task *task) {
  struct ring ring = ring_of(plan, task);
  size_t block = task->count * ring.element, own = block * (size_t)ring.rank;
  copy(task->recv + own, task->send + own, block);
  for (int k = 1; k < ring.n; k++) {
    int to = wrap(ring.rank + k, ring.n), from = wrap(ring.rank - k, ring.n);
    gs_plan_send(plan, task, to, task->send + block * (size_t)to, block, NULL);
    gs_plan_recv(plan, task, from, task->recv + block * (size_t)from, block);
  }
}

static void gather(struct gs_plan *plan, const struct gs_task *task) {
  struct ring ring = ring_of(plan, task);
  size_t block = task->count * ring.element;
  if (ring.rank != task->peer) {
    gs_plan_send(plan, task, task->peer, task->send, block, NULL);
    return;
  }
  copy(task->recv + block * (size_t)ring.rank, task->send, block);
  for (int k = 0; k < ring.n; k++)
    if (k != ring.rank) gs_plan_recv(plan, task, k, task->recv + block * (size_t)k, block);
}

static void scatter(struct gs_plan *plan, const struct gs_task *task) {
  struct ring ring = ring_of(plan, task);
  size_t block = task->count * ring.element;
  if (ring.rank != task->peer) {
    gs_plan_recv(plan, task, task->peer, task->recv, block);
    return;
  }
  copy(task->recv, task->send + block * (size_t)ring.rank, block);
  for (int k = 0; k < ring.n; k++)
    if (k != ring.rank) gs_plan_send(plan, task, k, task->send + block * (size_t)k, block, NULL);
}

/* Alone in the communicator every collective is a copy (all-to-all, gather and so on included). */
static void alone(struct gs_plan *plan, const struct gs_task *task) {
  size_t bytes = task->count * gs_dtype_bytes(task->dtype);
  bool reduces = task->kind <= GS_REDUCE_SCATTER && task->kind != GS_BROADCAST;
  const char *in = reduces ? input_of(plan, task, task->count) : task->send;
  if (!plan->failed) copy(task->recv, in, bytes);
}

void gs_plan_task(struct gs_plan *plan, const struct gs_task *task) {
  static void (*const planners[])(struct gs_plan *, const struct gs_task *) = {
      [GS_ALL_REDUCE] = all_reduce, [GS_REDUCE] = reduce,
      [GS_BROADCAST] = broadcast,   [GS_ALL_GATHER] = all_gather,
      [GS_ALL_TO_ALL] = all_to_all, [GS_REDUCE_SCATTER] = reduce_scatter,
      [GS_GATHER] = gather,         [GS_SCATTER] = scatter};
  size_t bytes = task->count * gs_dtype_bytes(task->dtype);
  if (task->kind == GS_SEND)
    gs_plan_send(plan, task, task->peer, task->send, bytes, NULL);
  else if (task->kind == GS_RECV)
    gs_plan_recv(plan, task, task->peer, task->recv, bytes);
  else if (plan->comm->nranks == 1)
    alone(plan, task);
  else
    planners[task->kind](plan, task);
}

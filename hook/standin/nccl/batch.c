/* batch.c: the calls of one group on one communicator, as one operation of a stream. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct batch_op {
  struct gs_op op;
  ncclComm_t comm;
  uint64_t ticket;
  size_t count;
  struct gs_task tasks[];
};

/* The order over all streams is that of the calls. */
static void await_turn(const struct batch_op *self) {
  ncclComm_t comm = self->comm;
  pthread_mutex_lock(&comm->lock);
  while (comm->serving != self->ticket) pthread_cond_wait(&comm->turn, &comm->lock);
  pthread_mutex_unlock(&comm->lock);
}

static void end_turn(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock);
  comm->serving++;
  pthread_cond_broadcast(&comm->turn);
  pthread_mutex_unlock(&comm->lock);
}

static bool is_stopped(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock);
  bool stopped = comm->stopped;
  pthread_mutex_unlock(&comm->lock);
  return stopped;
}

static ncclResult_t transfer(struct batch_op *self) {
  struct gs_plan plan;
  gs_plan_init(&plan, self->comm);
  for (size_t i = 0; i < self->count && !plan.failed; i++) gs_plan_task(&plan, &self->tasks[i]);
  ncclResult_t result = plan.failed ? gs_error(ncclSystemError, "out of memory for a batch")
                                    : gs_plan_match_self(&plan);
  if (result == ncclSuccess && plan.peer_count > 0) result = gs_transport_run(&plan);
  gs_plan_free(&plan);
  return result;
}

static void run_batch(struct gs_op *op, cudaStream_t stream) {
  struct batch_op *self = (struct batch_op *)op;
  await_turn(self);
  pthread_mutex_lock(&self->comm->data_lock);
  if (!is_stopped(self->comm)) {
    ncclResult_t result = transfer(self);
    if (result != ncclSuccess) gs_comm_fail(self->comm, result, gs_last_message());
  }
  pthread_mutex_unlock(&self->comm->data_lock);
  end_turn(self->comm);
  uint64_t now_ns = standinNow();
  if (stream->end_ns < now_ns) stream->end_ns = now_ns;
}

static void release_batch(struct gs_op *op) {
  gs_comm_unref(((struct batch_op *)op)->comm);
  free(op);
}

static struct gs_op *copy_batch(const struct gs_op *op) {
  const struct batch_op *self = (const struct batch_op *)op;
  size_t bytes = sizeof *self + self->count * sizeof self->tasks[0];
  struct batch_op *copy = malloc(bytes);
  if (copy == NULL) return NULL;
  memcpy(copy, self, bytes);
  gs_comm_ref(copy->comm);
  return &copy->op;
}

/* Ticket and place in the stream are taken together, or two threads could enqueue behind each
 * other in the wrong order and wait for ever. */
static cudaError_t issue_batch(struct gs_op *op, cudaStream_t stream) {
  struct batch_op *self = (struct batch_op *)op;
  ncclComm_t comm = self->comm;
  gs_comm_ref(comm); /* the worker may be done with op before we unlock */
  pthread_mutex_lock(&comm->issue_lock);
  self->ticket = comm->next_ticket++;
  cudaError_t error = gs_append(stream, op);
  if (error != cudaSuccess) comm->next_ticket--;
  pthread_mutex_unlock(&comm->issue_lock);
  gs_comm_unref(comm);
  return error;
}

static const struct gs_op_type batch_type = {
    .run = run_batch, .release = release_batch, .clone = copy_batch, .issue = issue_batch};

/* Collectives come first on every rank, so that their order against point-to-point calls of the
 * same group doesn't matter, as in NCCL. */
static size_t fill(struct gs_task *to, const struct gs_task *tasks, ncclComm_t comm) {
  size_t n = 0;
  for (int p2p = 0; p2p <= 1; p2p++)
    for (const struct gs_task *task = tasks; task != NULL; task = task->next)
      if (task->comm == comm && (task->kind >= GS_SEND) == p2p) to[n++] = *task;
  return n;
}

ncclResult_t gs_batch_launch(ncclComm_t comm, cudaStream_t stream, const struct gs_task *tasks) {
  size_t count = 0;
  for (const struct gs_task *task = tasks; task != NULL; task = task->next)
    count += task->comm == comm;
  struct batch_op *self = calloc(1, sizeof *self + count * sizeof self->tasks[0]);
  if (self == NULL) return gs_error(ncclSystemError, "out of memory for %zu calls", count);
  self->op.type = &batch_type;
  self->comm = comm;
  self->count = fill(self->tasks, tasks, comm);
  gs_comm_ref(comm);
  cudaError_t error = gs_enqueue(stream, &self->op);
  if (error == cudaSuccess) return ncclSuccess;
  return gs_error(ncclUnhandledCudaError, "can't enqueue: %s", cudaGetErrorString(error));
}

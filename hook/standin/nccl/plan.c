/* plan.c: the messages of one batch, queued by peer in the order of the calls. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void *gs_plan_buffer(struct gs_plan *plan, size_t bytes) {
  void **block = malloc(16 + bytes); /* 16 bytes of link keep the alignment */
  if (block == NULL) {
    plan->failed = true;
    return NULL;
  }
  *block = plan->memory;
  plan->memory = block;
  return (char *)block + 16;
}

void *gs_plan_alloc(struct gs_plan *plan, size_t bytes) {
  void *made = gs_plan_buffer(plan, bytes);
  return made == NULL ? NULL : memset(made, 0, bytes);
}

void gs_plan_init(struct gs_plan *plan, ncclComm_t comm) {
  memset(plan, 0, sizeof *plan);
  plan->comm = comm;
  size_t n = (size_t)comm->nranks;
  plan->out = gs_plan_alloc(plan, n * sizeof(void *));
  plan->out_tail = gs_plan_alloc(plan, n * sizeof(void *));
  plan->in = gs_plan_alloc(plan, n * sizeof(void *));
  plan->in_tail = gs_plan_alloc(plan, n * sizeof(void *));
  plan->peers = gs_plan_alloc(plan, n * sizeof(int));
}

void gs_plan_free(struct gs_plan *plan) {
  for (void **block = plan->memory; block != NULL;) {
    void **next = *block;
    free(block);
    block = next;
  }
  plan->memory = NULL;
}

static struct gs_transfer *append(struct gs_plan *plan, struct gs_transfer **head,
                                  struct gs_transfer **tail, const struct gs_task *task, int peer,
                                  size_t bytes) {
  struct gs_transfer *made = gs_plan_alloc(plan, sizeof *made);
  if (made == NULL) return NULL;
  if (plan->out[peer] == NULL && plan->in[peer] == NULL && peer != plan->comm->rank)
    plan->peers[plan->peer_count++] = peer;
  made->peer = peer;
  made->bytes = bytes;
  made->task = task;
  if (head[peer] == NULL)
    head[peer] = made;
  else
    tail[peer]->next = made;
  tail[peer] = made;
  return made;
}

struct gs_transfer *gs_plan_send(struct gs_plan *plan, const struct gs_task *task, int peer,
                                 const char *from, size_t bytes,
                                 const struct gs_transfer *follows) {
  if (bytes == 0 || plan->failed) return NULL;
  struct gs_transfer *made = append(plan, plan->out, plan->out_tail, task, peer, bytes);
  if (made == NULL) return NULL;
  made->from = from;
  made->follows = follows;
  return made;
}

struct gs_transfer *gs_plan_recv(struct gs_plan *plan, const struct gs_task *task, int peer,
                                 char *to, size_t bytes) {
  if (bytes == 0 || plan->failed) return NULL;
  struct gs_transfer *made = append(plan, plan->in, plan->in_tail, task, peer, bytes);
  if (made != NULL) made->to = to;
  return made;
}

ncclResult_t gs_plan_match_self(struct gs_plan *plan) {
  int rank = plan->comm->rank;
  struct gs_transfer *out = plan->out[rank], *in = plan->in[rank];
  for (; out != NULL && in != NULL; out = out->next, in = in->next) {
    if (out->bytes != in->bytes)
      return gs_error(ncclInvalidUsage, "rank %d sends %zu bytes to itself and receives %zu", rank,
                      out->bytes, in->bytes);
    memmove(in->to, out->from, in->bytes);
  }
  if (out != NULL || in != NULL)
    return gs_error(ncclInvalidUsage, "rank %d %s itself without the counterpart in the same group",
                    rank, out != NULL ? "sends to" : "receives from");
  return ncclSuccess;
}

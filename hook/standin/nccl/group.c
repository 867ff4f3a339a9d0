/* group.c: the thread's group. Calls wait in it until the outermost ncclGroupEnd. */
#include <stdlib.h>

#include "internal.h"

static __thread struct {
  int depth;
  ncclResult_t error; /* of the first call that failed */
  struct gs_task *head, *tail;
  struct gs_init_job *jobs;
} group;

bool gs_in_group(void) { return group.depth > 0; }

void gs_group_defer_init(struct gs_init_job *job) {
  job->next = group.jobs;
  group.jobs = job;
}

static void free_tasks(struct gs_task *tasks) {
  while (tasks != NULL) {
    struct gs_task *next = tasks->next;
    free(tasks);
    tasks = next;
  }
}

/* Streams of one communicator's calls that differ from `stream`: it waits for their earlier work
 * (before = true), or they wait for it. */
static cudaError_t tie_streams(const struct gs_task *tasks, ncclComm_t comm, cudaStream_t stream,
                               bool before) {
  cudaError_t error = cudaSuccess;
  for (const struct gs_task *task = tasks; task != NULL && error == cudaSuccess;
       task = task->next) {
    if (task->comm != comm || gs_stream(task->stream) == gs_stream(stream)) continue;
    cudaEvent_t event;
    error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess) break;
    error = cudaEventRecord(event, before ? task->stream : stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(before ? stream : task->stream, event, 0);
    cudaEventDestroy(event);
  }
  return error;
}

static ncclResult_t launch_one(const struct gs_task *tasks, ncclComm_t comm) {
  const struct gs_task *first = tasks;
  while (first->comm != comm) first = first->next;
  cudaError_t error = tie_streams(tasks, comm, first->stream, true);
  ncclResult_t result =
      error == cudaSuccess ? gs_batch_launch(comm, first->stream, tasks) : ncclUnhandledCudaError;
  if (result == ncclSuccess) error = tie_streams(tasks, comm, first->stream, false);
  if (error == cudaSuccess) return result;
  return gs_error(ncclUnhandledCudaError, "can't order the group's streams: %s",
                  cudaGetErrorString(error));
}

static bool is_before(ncclComm_t a, ncclComm_t b) {
  return a->hash != b->hash ? a->hash < b->hash : a->rank < b->rank;
}

/* Communicators are launched in the order of their hash, the same on all ranks: those that share
 * a stream run one after the other on it. One process may hold several ranks. */
static ncclResult_t launch_all(const struct gs_task *tasks) {
  for (ncclComm_t done = NULL;;) {
    ncclComm_t comm = NULL;
    for (const struct gs_task *task = tasks; task != NULL; task = task->next)
      if ((done == NULL || is_before(done, task->comm)) &&
          (comm == NULL || is_before(task->comm, comm)))
        comm = task->comm;
    if (comm == NULL) return ncclSuccess;
    ncclResult_t result = launch_one(tasks, comm);
    if (result != ncclSuccess) return result;
    done = comm;
  }
}

GS_API(ncclResult_t, GroupStart, void) {
  group.depth++;
  return ncclSuccess;
}

static void drop_jobs(struct gs_init_job *jobs) {
  while (jobs != NULL) {
    struct gs_init_job *next = jobs->next;
    gs_init_drop(jobs);
    jobs = next;
  }
}

/* `launch` false: forget the group's calls (simulation). */
static ncclResult_t end_group(bool launch) {
  if (group.depth == 0) return gs_error(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  struct gs_task *tasks = group.head;
  struct gs_init_job *jobs = group.jobs;
  ncclResult_t result = group.error;
  group.head = group.tail = NULL;
  group.jobs = NULL;
  group.error = ncclSuccess;
  if (result == ncclSuccess && launch) {
    result = gs_init_run_all(jobs);
    if (result == ncclSuccess || result == ncclInProgress) {
      ncclResult_t launched = launch_all(tasks);
      if (launched != ncclSuccess) result = launched;
    }
  } else {
    drop_jobs(jobs);
  }
  free_tasks(tasks);
  return result;
}

GS_API(ncclResult_t, GroupEnd, void) { return end_group(true); }

GS_API(ncclResult_t, GroupSimulateEnd, ncclSimInfo_t *info) {
  if (info != NULL) info->estimatedTime = 0;
  return end_group(false);
}

/* Outside a group a call is a group of its own. */
ncclResult_t gs_group_add(struct gs_task task) {
  if (group.depth == 0) {
    task.next = NULL;
    return launch_one(&task, task.comm);
  }
  struct gs_task *copy = malloc(sizeof *copy);
  if (copy == NULL) return gs_group_error(gs_error(ncclSystemError, "out of memory"));
  *copy = task;
  copy->next = NULL;
  if (group.head == NULL)
    group.head = copy;
  else
    group.tail->next = copy;
  group.tail = copy;
  return ncclSuccess;
}

ncclResult_t gs_group_error(ncclResult_t error) {
  if (group.depth > 0 && group.error == ncclSuccess) group.error = error;
  return error;
}

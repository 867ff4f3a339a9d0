/* graph.c: stream capture. A graph keeps the captured operations in the order of issue; a launch
 * replays copies of them on one stream, which is one of the orders that the capture allows. */
#include <stdlib.h>

#include "runtime.h"

struct CUgraphExec_st {
  struct CUgraph_st graph;
};

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static int capturing; /* number of captures in progress; 0 keeps the usual path free of the lock */

static struct CUgraph_st *in_progress; /* guarded by capture_lock */
static __thread enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static unsigned long long captures; /* begun so far; guarded by capture_lock */

struct CUgraph_st *gs_capture_of(cudaStream_t stream) {
  if (__atomic_load_n(&capturing, __ATOMIC_ACQUIRE) == 0) return NULL;
  pthread_mutex_lock(&capture_lock);
  struct CUgraph_st *graph = stream->capture;
  pthread_mutex_unlock(&capture_lock);
  return graph;
}

void gs_capture_after_fork(void) {
  pthread_mutex_init(&capture_lock, NULL);
  capturing = 0;
  in_progress = NULL;
}

static void append(struct CUgraph_st *graph, struct gs_op *op) {
  op->next = NULL;
  if (graph->head == NULL)
    graph->head = op;
  else
    graph->tail->next = op;
  graph->tail = op;
}

bool gs_capture(cudaStream_t stream, struct gs_op *op, cudaError_t *error) {
  if (__atomic_load_n(&capturing, __ATOMIC_ACQUIRE) == 0) return false;
  pthread_mutex_lock(&capture_lock);
  struct CUgraph_st *graph = stream->capture;
  bool can = op->type->clone != NULL;
  if (graph != NULL && can) append(graph, op);
  if (graph != NULL && !can) graph->error = cudaErrorStreamCaptureInvalidated;
  pthread_mutex_unlock(&capture_lock);
  *error = graph == NULL || can ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
  if (graph != NULL && !can) op->type->release(op);
  return graph != NULL;
}

/* A stream that waits for an event recorded in a capture becomes part of it. */
bool gs_join_capture(cudaStream_t stream, struct CUgraph_st *graph) {
  pthread_mutex_lock(&capture_lock);
  bool joins = capturing > 0 && (stream->capture == NULL || stream->capture == graph);
  if (joins) stream->capture = graph;
  pthread_mutex_unlock(&capture_lock);
  return joins;
}

static void free_ops(struct gs_op *op) {
  while (op != NULL) {
    struct gs_op *next = op->next;
    op->type->release(op);
    op = next;
  }
}

/* What CUDA calls potentially unsafe: forbidden during captures of global mode, which it spoils. */
bool gs_capture_allows_query(void) {
  if (__atomic_load_n(&capturing, __ATOMIC_ACQUIRE) == 0) return true;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return true;
  bool allowed = true;
  pthread_mutex_lock(&capture_lock);
  for (struct CUgraph_st *graph = in_progress; graph != NULL; graph = graph->next_capture)
    if (graph->mode == cudaStreamCaptureModeGlobal) {
      graph->error = cudaErrorStreamCaptureInvalidated;
      allowed = false;
    }
  pthread_mutex_unlock(&capture_lock);
  return allowed;
}

GS_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  if (mode == NULL) return gs_fail(cudaErrorInvalidValue);
  enum cudaStreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
  cudaStream_t stream = gs_stream(handle);
  if (stream == NULL || stream != handle) return gs_fail(cudaErrorStreamCaptureUnsupported);
  struct CUgraph_st *graph = calloc(1, sizeof *graph);
  if (graph == NULL) return gs_fail(cudaErrorMemoryAllocation);
  graph->origin = stream;
  graph->mode = mode;
  pthread_mutex_lock(&capture_lock);
  bool busy = stream->capture != NULL;
  if (!busy) {
    stream->capture = graph;
    graph->id = ++captures;
    graph->next_capture = in_progress;
    in_progress = graph;
    __atomic_add_fetch(&capturing, 1, __ATOMIC_ACQ_REL);
  }
  pthread_mutex_unlock(&capture_lock);
  if (busy) free(graph);
  return gs_fail(busy ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

GS_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  cudaStream_t stream = gs_stream(handle);
  struct CUgraph_st *made = stream == NULL ? NULL : gs_capture_of(stream);
  if (graph == NULL || made == NULL || made->origin != stream)
    return gs_fail(cudaErrorStreamCaptureUnmatched);
  pthread_mutex_lock(&capture_lock);
  gs_streams_leave_capture(made);
  struct CUgraph_st **at = &in_progress;
  while (*at != made) at = &(*at)->next_capture;
  *at = made->next_capture;
  __atomic_sub_fetch(&capturing, 1, __ATOMIC_ACQ_REL);
  pthread_mutex_unlock(&capture_lock);
  *graph = made;
  if (made->error == cudaSuccess) return cudaSuccess;
  cudaError_t error = made->error;
  *graph = NULL;
  cudaGraphDestroy(made);
  return gs_fail(error);
}

GS_EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t handle,
                                                  enum cudaStreamCaptureStatus *status,
                                                  unsigned long long *id, cudaGraph_t *graph,
                                                  const cudaGraphNode_t **dependencies,
                                                  size_t *count) {
  cudaStream_t stream = gs_stream(handle);
  if (status == NULL || stream == NULL) return gs_fail(cudaErrorInvalidValue);
  struct CUgraph_st *made = gs_capture_of(stream);
  *status = made == NULL                 ? cudaStreamCaptureStatusNone
            : made->error != cudaSuccess ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  if (id != NULL) *id = made == NULL ? 0 : made->id;
  if (graph != NULL) *graph = made;
  if (dependencies != NULL) *dependencies = NULL; /* a graph is a list here */
  if (count != NULL) *count = 0;
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                            enum cudaStreamCaptureStatus *status) {
  return cudaStreamGetCaptureInfo_v2(stream, status, NULL, NULL, NULL, NULL);
}

GS_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                           unsigned long long flags) {
  (void)flags;
  if (exec == NULL || graph == NULL) return gs_fail(cudaErrorInvalidValue);
  cudaGraphExec_t made = calloc(1, sizeof *made);
  if (made == NULL) return gs_fail(cudaErrorMemoryAllocation);
  for (const struct gs_op *op = graph->head; op != NULL; op = op->next) {
    struct gs_op *copy = op->type->clone(op);
    if (copy == NULL) {
      cudaGraphExecDestroy(made);
      return gs_fail(cudaErrorMemoryAllocation);
    }
    append(&made->graph, copy);
  }
  *exec = made;
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (exec == NULL) return gs_fail(cudaErrorInvalidValue);
  for (const struct gs_op *op = exec->graph.head; op != NULL; op = op->next) {
    struct gs_op *copy = op->type->clone(op);
    cudaError_t error = copy == NULL ? cudaErrorMemoryAllocation : gs_enqueue(stream, copy);
    if (error != cudaSuccess) return gs_fail(error);
  }
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph == NULL) return gs_fail(cudaErrorInvalidValue);
  free_ops(graph->head);
  free(graph);
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (exec == NULL) return gs_fail(cudaErrorInvalidValue);
  free_ops(exec->graph.head);
  free(exec);
  return cudaSuccess;
}

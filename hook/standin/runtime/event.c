/* event.c: an event counts its records; a record is done when the stream's worker reaches it. */
#include <stdlib.h>

#include "runtime.h"

struct event_op {
  struct gs_op op;
  cudaEvent_t event;
  uint64_t generation;
  uint64_t issued_ns;
};

static void unref(cudaEvent_t event) {
  if (__atomic_sub_fetch(&event->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  pthread_mutex_destroy(&event->lock);
  pthread_cond_destroy(&event->done);
  free(event);
}

static void release(struct gs_op *op) {
  unref(((struct event_op *)op)->event);
  free(op);
}

/* The event's time is the modelled end of the work before it, not the moment the worker woke. */
static void run_record(struct gs_op *op, cudaStream_t stream) {
  struct event_op *self = (struct event_op *)op;
  cudaEvent_t event = self->event;
  if (stream->end_ns < self->issued_ns) stream->end_ns = self->issued_ns;
  pthread_mutex_lock(&event->lock);
  if (self->generation > event->completed) {
    event->completed = self->generation;
    event->time_ns = stream->end_ns;
  }
  pthread_cond_broadcast(&event->done);
  pthread_mutex_unlock(&event->lock);
}

static uint64_t await(cudaEvent_t event, uint64_t generation) {
  pthread_mutex_lock(&event->lock);
  while (event->completed < generation) pthread_cond_wait(&event->done, &event->lock);
  uint64_t time_ns = event->time_ns;
  pthread_mutex_unlock(&event->lock);
  return time_ns;
}

static void run_wait(struct gs_op *op, cudaStream_t stream) {
  struct event_op *self = (struct event_op *)op;
  uint64_t time_ns = await(self->event, self->generation);
  if (stream->end_ns < time_ns) stream->end_ns = time_ns;
}

static const struct gs_op_type record_type = {.run = run_record, .release = release};
static const struct gs_op_type wait_type = {.run = run_wait, .release = release};

static struct gs_op *make_op(const struct gs_op_type *type, cudaEvent_t event,
                             uint64_t generation) {
  struct event_op *self = calloc(1, sizeof *self);
  if (self == NULL) return NULL;
  self->op.type = type;
  self->event = event;
  self->generation = generation;
  self->issued_ns = standinNow();
  __atomic_add_fetch(&event->refs, 1, __ATOMIC_ACQ_REL);
  return &self->op;
}

static cudaError_t check(cudaEvent_t event) {
  if (event == NULL) return cudaErrorInvalidResourceHandle;
  return event->fork_generation == gs_fork_generation ? cudaSuccess : cudaErrorInitializationError;
}

GS_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  if (event == NULL) return gs_fail(cudaErrorInvalidValue);
  cudaEvent_t made = calloc(1, sizeof *made);
  if (made == NULL) return gs_fail(cudaErrorMemoryAllocation);
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->done, NULL);
  made->refs = 1;
  made->flags = flags;
  made->fork_generation = gs_fork_generation;
  *event = made;
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

GS_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  cudaError_t error = check(event);
  if (error == cudaSuccess) unref(event);
  return gs_fail(error);
}

GS_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  cudaError_t error = check(event);
  if (error != cudaSuccess) return gs_fail(error);
  cudaStream_t stream = gs_stream(handle);
  if (stream == NULL) return gs_fail(cudaErrorMemoryAllocation);
  event->captured_in = gs_capture_of(stream);
  if (event->captured_in != NULL) return cudaSuccess; /* the graph keeps the order of issue */
  pthread_mutex_lock(&event->lock);
  uint64_t generation = ++event->recorded;
  pthread_mutex_unlock(&event->lock);
  struct gs_op *op = make_op(&record_type, event, generation);
  return gs_fail(op == NULL ? cudaErrorMemoryAllocation : gs_enqueue(stream, op));
}

GS_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event,
                                          unsigned int flags) {
  (void)flags;
  cudaError_t error = check(event);
  if (error != cudaSuccess) return gs_fail(error);
  cudaStream_t stream = gs_stream(handle);
  if (stream == NULL) return gs_fail(cudaErrorMemoryAllocation);
  if (event->captured_in != NULL && gs_join_capture(stream, event->captured_in)) return cudaSuccess;
  pthread_mutex_lock(&event->lock);
  uint64_t generation = event->recorded;
  bool done = event->completed >= generation;
  pthread_mutex_unlock(&event->lock);
  if (done && generation == 0) return cudaSuccess;
  struct gs_op *op = make_op(&wait_type, event, generation);
  return gs_fail(op == NULL ? cudaErrorMemoryAllocation : gs_enqueue(stream, op));
}

static bool is_done(cudaEvent_t event, uint64_t *time_ns) {
  pthread_mutex_lock(&event->lock);
  bool done = event->completed >= event->recorded;
  *time_ns = event->time_ns;
  pthread_mutex_unlock(&event->lock);
  return done;
}

GS_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  cudaError_t error = check(event);
  uint64_t time_ns;
  if (error != cudaSuccess) return gs_fail(error);
  if (!gs_capture_allows_query()) return gs_fail(cudaErrorStreamCaptureUnsupported);
  return gs_fail(is_done(event, &time_ns) ? cudaSuccess : cudaErrorNotReady);
}

GS_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  cudaError_t error = check(event);
  if (error != cudaSuccess) return gs_fail(error);
  pthread_mutex_lock(&event->lock);
  uint64_t generation = event->recorded;
  pthread_mutex_unlock(&event->lock);
  await(event, generation);
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start,
                                           cudaEvent_t end) {
  cudaError_t error = check(start) != cudaSuccess ? check(start) : check(end);
  if (error != cudaSuccess) return gs_fail(error);
  if (milliseconds == NULL) return gs_fail(cudaErrorInvalidValue);
  if (start->recorded == 0 || end->recorded == 0 ||
      ((start->flags | end->flags) & cudaEventDisableTiming))
    return gs_fail(cudaErrorInvalidResourceHandle);
  uint64_t from_ns, to_ns;
  bool done = is_done(start, &from_ns);
  if (!is_done(end, &to_ns) || !done) return cudaErrorNotReady;
  *milliseconds = (float)((double)((int64_t)(to_ns - from_ns)) / 1e6);
  return cudaSuccess;
}

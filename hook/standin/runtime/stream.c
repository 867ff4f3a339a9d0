/* stream.c: a stream is a FIFO worked off by a thread of its own, started with the first
 * operation, so that the host runs ahead as it does on a GPU. */
#include <stdlib.h>
#include <sys/prctl.h>

#include "runtime.h"

#define WORKER_STACK_BYTES (256 * 1024)

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *registry;
static struct CUstream_st *defaults[GS_MAX_DEVICES];

static void unref(cudaStream_t stream) {
  if (__atomic_sub_fetch(&stream->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  pthread_mutex_destroy(&stream->lock);
  pthread_cond_destroy(&stream->work);
  pthread_cond_destroy(&stream->progress);
  free(stream);
}

static cudaStream_t make_stream(int device) {
  cudaStream_t stream = calloc(1, sizeof *stream);
  if (stream == NULL) return NULL;
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->work, NULL);
  pthread_cond_init(&stream->progress, NULL);
  stream->refs = 1;
  stream->device = device;
  stream->gpu = gs_page_gpu(device);
  stream->fork_generation = gs_fork_generation;
  stream->next = registry;
  registry = stream;
  return stream;
}

cudaStream_t gs_stream(cudaStream_t handle) {
  if (handle != NULL && handle != cudaStreamLegacy && handle != cudaStreamPerThread) return handle;
  int device = gs_current_device();
  pthread_mutex_lock(&registry_lock);
  if (defaults[device] == NULL) defaults[device] = make_stream(device);
  cudaStream_t stream = defaults[device];
  pthread_mutex_unlock(&registry_lock);
  return stream;
}

/* In a fork child the workers are gone: the parent's streams are left behind unfreed. */
void gs_stream_forget_all(void) {
  pthread_mutex_init(&registry_lock, NULL);
  registry = NULL;
  for (int i = 0; i < GS_MAX_DEVICES; i++) defaults[i] = NULL;
}

static struct gs_op *next_op(cudaStream_t stream) {
  pthread_mutex_lock(&stream->lock);
  while (stream->head == NULL && !stream->closing) pthread_cond_wait(&stream->work, &stream->lock);
  struct gs_op *op = stream->head;
  if (op != NULL) stream->head = op->next;
  pthread_mutex_unlock(&stream->lock);
  return op;
}

static void finish_op(cudaStream_t stream) {
  pthread_mutex_lock(&stream->lock);
  stream->finished++;
  if (stream->waiters > 0) pthread_cond_broadcast(&stream->progress);
  pthread_mutex_unlock(&stream->lock);
}

static void *work(void *argument) {
  cudaStream_t stream = argument;
  prctl(PR_SET_TIMERSLACK, 1000ul); /* sleeps end within a microsecond or so */
  for (struct gs_op *op; (op = next_op(stream)) != NULL;) {
    op->type->run(op, stream);
    op->type->release(op);
    finish_op(stream);
  }
  unref(stream);
  return NULL;
}

static bool start_worker(cudaStream_t stream) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  __atomic_add_fetch(&stream->refs, 1, __ATOMIC_ACQ_REL);
  stream->started = pthread_create(&thread, &attributes, work, stream) == 0;
  if (!stream->started) __atomic_sub_fetch(&stream->refs, 1, __ATOMIC_ACQ_REL);
  pthread_attr_destroy(&attributes);
  return stream->started;
}

cudaError_t gs_append(cudaStream_t stream, struct gs_op *op) {
  pthread_mutex_lock(&stream->lock);
  bool ok = stream->started || start_worker(stream);
  if (ok) {
    op->next = NULL;
    if (stream->head == NULL)
      stream->head = op;
    else
      stream->tail->next = op;
    stream->tail = op;
    stream->issued++;
    pthread_cond_signal(&stream->work);
  }
  pthread_mutex_unlock(&stream->lock);
  return ok ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t gs_push(cudaStream_t stream, struct gs_op *op) {
  const struct gs_op_type *type = op->type;
  cudaError_t error = type->issue ? type->issue(op, stream) : gs_append(stream, op);
  if (error != cudaSuccess) type->release(op);
  return error;
}

cudaError_t gs_enqueue(cudaStream_t handle, struct gs_op *op) {
  cudaStream_t stream = gs_stream(handle);
  cudaError_t error = cudaSuccess;
  if (stream == NULL || stream->fork_generation != gs_fork_generation) {
    op->type->release(op);
    return stream == NULL ? cudaErrorMemoryAllocation : cudaErrorInitializationError;
  }
  if (gs_capture(stream, op, &error)) return error;
  return gs_push(stream, op);
}

GS_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  (void)flags; /* no stream waits for the default stream implicitly */
  if (stream == NULL) return gs_fail(cudaErrorInvalidValue);
  pthread_mutex_lock(&registry_lock);
  *stream = make_stream(gs_current_device());
  pthread_mutex_unlock(&registry_lock);
  return gs_fail(*stream != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

GS_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

GS_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags,
                                                   int priority) {
  (void)priority;
  return cudaStreamCreateWithFlags(stream, flags);
}

static bool is_default(cudaStream_t handle) {
  return handle == NULL || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

/* As in CUDA, work already enqueued still runs; the worker frees the stream after it. */
GS_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (is_default(stream)) return gs_fail(cudaErrorInvalidResourceHandle);
  if (stream->fork_generation != gs_fork_generation) return gs_fail(cudaErrorInitializationError);
  pthread_mutex_lock(&registry_lock);
  struct CUstream_st **at = &registry;
  while (*at != NULL && *at != stream) at = &(*at)->next;
  if (*at != NULL) *at = stream->next;
  pthread_mutex_unlock(&registry_lock);
  pthread_mutex_lock(&stream->lock);
  stream->closing = true;
  pthread_cond_signal(&stream->work);
  pthread_mutex_unlock(&stream->lock);
  unref(stream);
  return cudaSuccess;
}

static cudaStream_t usable(cudaStream_t handle, cudaError_t *error) {
  cudaStream_t stream = gs_stream(handle);
  *error = cudaSuccess;
  if (stream == NULL)
    *error = cudaErrorMemoryAllocation;
  else if (stream->fork_generation != gs_fork_generation)
    *error = cudaErrorInitializationError;
  else if (gs_capture_of(stream) != NULL)
    *error = cudaErrorStreamCaptureUnsupported;
  return stream;
}

GS_EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle) {
  cudaError_t error;
  cudaStream_t stream = usable(handle, &error);
  if (error != cudaSuccess) return gs_fail(error);
  pthread_mutex_lock(&stream->lock);
  bool idle = stream->finished == stream->issued;
  pthread_mutex_unlock(&stream->lock);
  return gs_fail(idle ? cudaSuccess : cudaErrorNotReady);
}

static void wait_idle(cudaStream_t stream) {
  pthread_mutex_lock(&stream->lock);
  uint64_t target = stream->issued;
  stream->waiters++;
  while (stream->finished < target) pthread_cond_wait(&stream->progress, &stream->lock);
  stream->waiters--;
  pthread_mutex_unlock(&stream->lock);
}

GS_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  cudaError_t error;
  cudaStream_t stream = usable(handle, &error);
  if (error != cudaSuccess) return gs_fail(error);
  wait_idle(stream);
  return cudaSuccess;
}

static cudaStream_t *snapshot(size_t *count) {
  pthread_mutex_lock(&registry_lock);
  size_t n = 0;
  for (cudaStream_t s = registry; s != NULL; s = s->next) n++;
  cudaStream_t *all = calloc(n + 1, sizeof *all);
  *count = 0;
  for (cudaStream_t s = registry; s != NULL && all != NULL; s = s->next) {
    __atomic_add_fetch(&s->refs, 1, __ATOMIC_ACQ_REL);
    all[(*count)++] = s;
  }
  pthread_mutex_unlock(&registry_lock);
  return all;
}

cudaError_t gs_stream_sync_all(void) {
  size_t count;
  cudaStream_t *all = snapshot(&count);
  if (all == NULL) return cudaErrorMemoryAllocation;
  for (size_t i = 0; i < count; i++) {
    if (all[i]->device == gs_current_device()) wait_idle(all[i]);
    unref(all[i]);
  }
  free(all);
  return cudaSuccess;
}

void gs_streams_leave_capture(const struct CUgraph_st *graph) {
  pthread_mutex_lock(&registry_lock);
  for (cudaStream_t s = registry; s != NULL; s = s->next)
    if (s->capture == graph) s->capture = NULL;
  pthread_mutex_unlock(&registry_lock);
}

/* runtime.h: what the files of libcudart.so.12 share, and what libnccl.so.2 uses of them. */
#ifndef GREYHOUND_STANDIN_RUNTIME_H
#define GREYHOUND_STANDIN_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_runtime_api.h"
#include "standin.h"

#define GS_EXPORT __attribute__((visibility("default")))
#ifndef GS_SHARED /* what libnccl.so.2 uses; there it is reached through nccl/runtime_link.c */
#define GS_SHARED GS_EXPORT
#endif
#define GS_MAX_DEVICES 64

struct gs_op;

/* What an operation can do; the structure that begins with a gs_op holds its data. */
struct gs_op_type {
  void (*run)(struct gs_op *op, cudaStream_t stream); /* on the stream's worker thread */
  void (*release)(struct gs_op *op);
  struct gs_op *(*clone)(const struct gs_op *op); /* for graphs; NULL: can't be captured */
  /* Optional: calls gs_append itself, under a lock that fixes an order over several streams. */
  cudaError_t (*issue)(struct gs_op *op, cudaStream_t stream);
};

struct gs_op {
  const struct gs_op_type *type;
  struct gs_op *next;
};

struct CUgraph_st {
  struct gs_op *head;
  struct gs_op *tail;
  cudaError_t error; /* first operation that couldn't be captured */
  cudaStream_t origin;
  unsigned long long id; /* of the capture */
  enum cudaStreamCaptureMode mode;
  struct CUgraph_st *next_capture; /* of those in progress; guarded by the capture lock */
};

struct CUstream_st {
  pthread_mutex_t lock;
  pthread_cond_t work;
  pthread_cond_t progress;
  struct gs_op *head;
  struct gs_op *tail;
  uint64_t issued;
  uint64_t finished;
  uint64_t end_ns; /* modelled end of the last operation; the worker's own */
  int waiters;
  int refs;
  int device;
  int gpu; /* index in the page */
  unsigned fork_generation;
  bool started;
  bool closing;
  struct CUgraph_st *capture; /* guarded by the capture lock of graph.c */
  struct CUstream_st *next;   /* registry */
};

struct CUevent_st {
  pthread_mutex_t lock;
  pthread_cond_t done;
  uint64_t recorded;
  uint64_t completed;
  uint64_t time_ns;
  unsigned flags;
  int refs;
  unsigned fork_generation;
  struct CUgraph_st *captured_in;
};

/* error.c: remembers the error for cudaGetLastError and returns it. */
cudaError_t gs_fail(cudaError_t error);

/* stream.c: takes ownership of op, also on error. */
GS_SHARED cudaError_t gs_enqueue(cudaStream_t stream, struct gs_op *op);
/* The stream behind a handle (0 and the special handles: the device's default stream). */
GS_SHARED cudaStream_t gs_stream(cudaStream_t handle);
/* The same for a resolved stream that isn't capturing. */
cudaError_t gs_push(cudaStream_t stream, struct gs_op *op);
/* Puts op at the stream's end; on error op stays the caller's. */
GS_SHARED cudaError_t gs_append(cudaStream_t stream, struct gs_op *op);
void gs_stream_forget_all(void);
cudaError_t gs_stream_sync_all(void);
void gs_streams_leave_capture(const struct CUgraph_st *graph); /* under the capture lock */

/* graph.c: appends op to the graph that the stream captures; false if it captures none. */
bool gs_capture(cudaStream_t stream, struct gs_op *op, cudaError_t *error);
struct CUgraph_st *gs_capture_of(cudaStream_t stream);
void gs_capture_after_fork(void);
bool gs_capture_allows_query(void); /* false: a capture of global mode, which is now spoilt */
bool gs_join_capture(cudaStream_t stream, struct CUgraph_st *graph);

/* device.c */
extern unsigned gs_fork_generation; /* grows in every fork child */
GS_SHARED unsigned gs_forks(void);  /* the same */
GS_SHARED int gs_current_device(void);
GS_SHARED int gs_physical_device(int device);

/* page.c: index of a GPU's name in the page, -1 if there is none. */
GS_SHARED int gs_page_find(const char *name);
GS_SHARED void gs_page_link(int from, int to, double *bytes_per_s, double *latency_s);
GS_SHARED void gs_gpu_name(int device, char *name); /* GHS_NAME_BYTES */
int gs_page_gpus_of_node(int *indices); /* physical indices of this node's GPUs; -1: no page */
double gs_page_speed(int gpu);
int gs_page_gpu(int device); /* index in the page */

/* clock.c */
GS_SHARED void gs_sleep_until(uint64_t at_ns);

#endif

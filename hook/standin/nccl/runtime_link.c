/* runtime_link.c: finds the stand-in's runtime in the file beside this library. Not by DT_NEEDED:
 * in a process with a CUDA build of torch a real libcudart.so.12 would be taken for it. (NVIDIA's
 * NCCL doesn't need libcudart.so either: it has its own copy inside.) */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* result, name, parameters, arguments */
#define VALUES(X)                                                                                  \
  X(cudaError_t, gs_enqueue, (cudaStream_t stream, struct gs_op * op), (stream, op))               \
  X(cudaError_t, gs_append, (cudaStream_t stream, struct gs_op * op), (stream, op))                \
  X(cudaStream_t, gs_stream, (cudaStream_t handle), (handle))                                      \
  X(unsigned, gs_forks, (void), ())                                                                \
  X(int, gs_current_device, (void), ())                                                            \
  X(int, gs_page_find, (const char *name), (name))                                                 \
  X(uint64_t, standinNow, (void), ())                                                              \
  X(cudaError_t, gs_cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags),               \
    (event, flags))                                                                                \
  X(cudaError_t, gs_cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream))    \
  X(cudaError_t, gs_cudaEventDestroy, (cudaEvent_t event), (event))                                \
  X(cudaError_t, gs_cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags), \
    (stream, event, flags))                                                                        \
  X(cudaError_t, gs_cudaGetDevice, (int *device), (device))                                        \
  X(cudaError_t, gs_cudaSetDevice, (int device), (device))                                         \
  X(cudaError_t, gs_cudaMalloc, (void **at, size_t bytes), (at, bytes))                            \
  X(cudaError_t, gs_cudaFree, (void *at), (at))                                                    \
  X(const char *, gs_cudaGetErrorString, (cudaError_t error), (error))
#define NOTHING(X)                                                                  \
  X(void, gs_gpu_name, (int device, char *name), (device, name))                    \
  X(void, gs_page_link, (int from, int to, double *bytes_per_s, double *latency_s), \
    (from, to, bytes_per_s, latency_s))

#define POINTER(result, name, parameters, arguments) result(*name) parameters;
static struct {
  VALUES(POINTER) NOTHING(POINTER)
} runtime;

#define FORWARD(result, name, parameters, arguments) \
  result name parameters { return runtime.name arguments; }
#define FORWARD_VOID(result, name, parameters, arguments) \
  result name parameters { runtime.name arguments; }
VALUES(FORWARD)
NOTHING(FORWARD_VOID)

static void fail(void) {
  fprintf(stderr, "greyhound stand-in: libnccl.so.2 needs its libcudart.so.12 beside it: %s\n",
          dlerror());
  _exit(127); /* as the loader does where a needed library is missing */
}

static void *open_beside(void) {
  static const char name[] = "libcudart.so.12";
  char path[4096];
  Dl_info self;
  if (dladdr((void *)open_beside, &self) == 0) fail();
  const char *slash = strrchr(self.dli_fname, '/');
  int folder = slash == NULL ? 0 : (int)(slash - self.dli_fname) + 1;
  snprintf(path, sizeof path, "%s%.*s%s", folder ? "" : "./", folder, self.dli_fname, name);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

#define RESOLVE(result, name, parameters, arguments) \
  *(void **)&runtime.name = dlsym(library, #name);   \
  if (runtime.name == NULL) fail();
/* Before any other constructor of this library. */
__attribute__((constructor(101))) static void link_runtime(void) {
  void *library = open_beside();
  if (library == NULL) fail();
  VALUES(RESOLVE)
  NOTHING(RESOLVE)
}

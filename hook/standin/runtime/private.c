/* private.c: names of our own for what libnccl.so.2 calls, so that it never reaches a real CUDA
 * runtime that a program has put into the global scope. */
#include "runtime.h"

GS_EXPORT cudaError_t gs_cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  return cudaEventCreateWithFlags(event, flags);
}

GS_EXPORT cudaError_t gs_cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, stream);
}

GS_EXPORT cudaError_t gs_cudaEventDestroy(cudaEvent_t event) { return cudaEventDestroy(event); }

GS_EXPORT cudaError_t gs_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                             unsigned int flags) {
  return cudaStreamWaitEvent(stream, event, flags);
}

GS_EXPORT cudaError_t gs_cudaGetDevice(int *device) { return cudaGetDevice(device); }
GS_EXPORT cudaError_t gs_cudaSetDevice(int device) { return cudaSetDevice(device); }
GS_EXPORT cudaError_t gs_cudaMalloc(void **at, size_t bytes) { return cudaMalloc(at, bytes); }
GS_EXPORT cudaError_t gs_cudaFree(void *at) { return cudaFree(at); }
GS_EXPORT const char *gs_cudaGetErrorString(cudaError_t error) { return cudaGetErrorString(error); }

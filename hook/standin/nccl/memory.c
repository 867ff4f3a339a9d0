/* memory.c: allocation and registration; host memory needs neither. */
#include "internal.h"

GS_API(ncclResult_t, MemAlloc, void **pointer, size_t bytes) {
  cudaError_t error = cudaMalloc(pointer, bytes);
  if (error == cudaSuccess) return ncclSuccess;
  return gs_error(ncclUnhandledCudaError, "ncclMemAlloc: %zu bytes: %s", bytes,
                  cudaGetErrorString(error));
}

GS_API(ncclResult_t, MemFree, void *pointer) {
  return cudaFree(pointer) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

GS_API(ncclResult_t, CommRegister, const ncclComm_t comm, void *buffer, size_t bytes,
       void **handle) {
  (void)bytes;
  ncclResult_t result = gs_comm_check(comm);
  if (result != ncclSuccess) return result;
  if (handle == NULL) return gs_error(ncclInvalidArgument, "ncclCommRegister: handle is NULL");
  *handle = buffer;
  return ncclSuccess;
}

GS_API(ncclResult_t, CommDeregister, const ncclComm_t comm, void *handle) {
  (void)handle;
  return gs_comm_check(comm);
}

GS_API(ncclResult_t, CommWindowRegister, ncclComm_t comm, void *buffer, size_t bytes,
       ncclWindow_t *window, int flags) {
  (void)flags;
  return pncclCommRegister(comm, buffer, bytes, (void **)window);
}

GS_API(ncclResult_t, CommWindowDeregister, ncclComm_t comm, ncclWindow_t window) {
  return pncclCommDeregister(comm, window);
}

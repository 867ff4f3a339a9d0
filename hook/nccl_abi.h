/* nccl_abi.h: what the hook needs of NCCL's and CUDA's binary interfaces, declared here so that
 * neither's headers are needed. Enumerations are passed as int; structures that NCCL owns
 * (ncclConfig_t, ncclCollConfig_t, ncclSimInfo_t) grow with its version and are never looked into.
 */
#ifndef GREYHOUND_NCCL_ABI_H
#define GREYHOUND_NCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int ncclResult_t;
typedef void *ncclComm_t;
typedef void *ncclWindow_t;
typedef void *cudaStream_t;
typedef void *cudaGraph_t;
typedef void *cudaGraphExec_t;
typedef int cudaError_t;
typedef struct {
  char internal[128];
} ncclUniqueId; /* passed by value */

#define GH_NCCL_SUCCESS 0
#define GH_NCCL_INTERNAL_ERROR 3
#define GH_NCCL_IN_PROGRESS 7
#define GH_NCCL_NOCOLOR (-1)
#define GH_CUDA_ERROR_UNKNOWN 999
#define GH_CUDA_CAPTURE_ACTIVE 1
#define GH_CUDA_CAPTURE_RELAXED 2 /* cudaStreamCaptureMode */
#define GH_CUDA_NOT_READY 600
#define GH_CUDA_STREAM_NON_BLOCKING 1

#endif

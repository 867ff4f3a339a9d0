/* private_names.h: nccl.h with the CUDA runtime under the names of runtime/private.c, all of which
 * are runtime_link.c's here. */
#ifndef GREYHOUND_STANDIN_PRIVATE_NAMES_H
#define GREYHOUND_STANDIN_PRIVATE_NAMES_H

#define GS_SHARED
#define cudaEventCreateWithFlags gs_cudaEventCreateWithFlags
#define cudaEventRecord gs_cudaEventRecord
#define cudaEventDestroy gs_cudaEventDestroy
#define cudaStreamWaitEvent gs_cudaStreamWaitEvent
#define cudaGetDevice gs_cudaGetDevice
#define cudaSetDevice gs_cudaSetDevice
#define cudaMalloc gs_cudaMalloc
#define cudaFree gs_cudaFree
#define cudaGetErrorString gs_cudaGetErrorString

#include "nccl.h" /* behind the names, which it declares */

#endif

/* standin.h: what the stand-in offers beyond the CUDA runtime and NCCL (exported by
 * libcudart.so.12).
 *
 * Modelled device time: a kernel's duration is told to the stand-in, not computed by it. The
 * stream's worker thread sleeps until the modelled end, so that later work on the stream, events
 * and communication wait as they would on a GPU.
 */
#ifndef GREYHOUND_STANDIN_H
#define GREYHOUND_STANDIN_H

#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues work_s seconds (at speed 1.0) of device time. Returns a cudaError_t.
 *
 * device start = max(launch_ns, end of the previous operation on the stream);
 * device end = start + work_s / speed of the stream's GPU, read when the operation starts.
 * launch_ns is CLOCK_MONOTONIC and may lie in the past: real arithmetic that the host did since
 * then counts as part of the kernel. 0 means now.
 */
int standinKernel(cudaStream_t stream, uint64_t launch_ns, double work_s);

/* Speed of the calling thread's current GPU (1.0 = healthy, 0.5 = half as fast). */
double standinGpuSpeed(void);

#define STANDIN_DTYPE_FP32 0 /* the codes are those of cudaDataType: CUDA_R_32F, _16F, _16BF */
#define STANDIN_DTYPE_FP16 2
#define STANDIN_DTYPE_BF16 14

/* Enqueues `repeats` products of two n x n matrices: modelled device time at a nominal rate
 * (fp32 60e12, fp16 and bf16 600e12 operations/s at speed 1.0) and one small real product.
 * Returns the enqueued device time in seconds at speed 1.0 (bracket it with events to measure),
 * or a negative cudaError_t. */
double standinGemm(cudaStream_t stream, int n, int dtype, int repeats);

/* CLOCK_MONOTONIC in nanoseconds: the clock of launch_ns and of event times. */
uint64_t standinNow(void);

#ifdef __cplusplus
}
#endif

#endif

/* kernel.c: modelled kernels, the GEMM and host functions. */
#include <stdlib.h>

#include "runtime.h"

#define NS_PER_S 1e9
#define FP32_OPS_PER_S 60e12
#define HALF_OPS_PER_S 600e12
#define REAL_GEMM_N 32 /* the real product that every standinGemm computes */

struct kernel_op {
  struct gs_op op;
  uint64_t launch_ns;
  double work_s;
  cudaHostFn_t function;
  void *data;
};

static void run_kernel(struct gs_op *op, cudaStream_t stream) {
  struct kernel_op *self = (struct kernel_op *)op;
  uint64_t start_ns = self->launch_ns > stream->end_ns ? self->launch_ns : stream->end_ns;
  double duration_s = self->work_s / gs_page_speed(stream->gpu);
  stream->end_ns = start_ns + (uint64_t)(duration_s * NS_PER_S);
  if (self->function != NULL) self->function(self->data);
  gs_sleep_until(stream->end_ns);
}

static void run_host_function(struct gs_op *op, cudaStream_t stream) {
  struct kernel_op *self = (struct kernel_op *)op;
  self->function(self->data);
  stream->end_ns = standinNow();
}

static void release(struct gs_op *op) { free(op); }

/* A replayed kernel is launched at the replay, not when it was captured. */
static struct gs_op *copy_kernel(const struct gs_op *op) {
  struct kernel_op *copy = malloc(sizeof *copy);
  if (copy == NULL) return NULL;
  *copy = *(const struct kernel_op *)op;
  copy->launch_ns = standinNow();
  return &copy->op;
}

static const struct gs_op_type kernel_type = {
    .run = run_kernel, .release = release, .clone = copy_kernel};
static const struct gs_op_type host_type = {
    .run = run_host_function, .release = release, .clone = copy_kernel};

static cudaError_t enqueue(cudaStream_t stream, struct kernel_op kernel) {
  struct kernel_op *self = malloc(sizeof *self);
  if (self == NULL) return gs_fail(cudaErrorMemoryAllocation);
  *self = kernel;
  return gs_fail(gs_enqueue(stream, &self->op));
}

static bool is_duration(double seconds) { return seconds >= 0 && seconds < 1e6; }

GS_EXPORT int standinKernel(cudaStream_t stream, uint64_t launch_ns, double work_s) {
  uint64_t now_ns = standinNow();
  if (!is_duration(work_s) || launch_ns > now_ns) return gs_fail(cudaErrorInvalidValue);
  return enqueue(stream, (struct kernel_op){.op.type = &kernel_type,
                                            .launch_ns = launch_ns ? launch_ns : now_ns,
                                            .work_s = work_s});
}

GS_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  if (function == NULL) return gs_fail(cudaErrorInvalidValue);
  return enqueue(stream,
                 (struct kernel_op){.op.type = &host_type, .function = function, .data = data});
}

static void multiply(void *unused) {
  (void)unused;
  float a[REAL_GEMM_N][REAL_GEMM_N], b[REAL_GEMM_N][REAL_GEMM_N];
  volatile float sum = 0;
  for (int i = 0; i < REAL_GEMM_N; i++)
    for (int j = 0; j < REAL_GEMM_N; j++) a[i][j] = b[j][i] = (float)(i + j);
  for (int i = 0; i < REAL_GEMM_N; i++)
    for (int j = 0; j < REAL_GEMM_N; j++) {
      float c = 0;
      for (int k = 0; k < REAL_GEMM_N; k++) c += a[i][k] * b[k][j];
      sum += c;
    }
}

GS_EXPORT double standinGemm(cudaStream_t stream, int n, int dtype, int repeats) {
  bool half = dtype == STANDIN_DTYPE_FP16 || dtype == STANDIN_DTYPE_BF16;
  if (n <= 0 || repeats <= 0 || (!half && dtype != STANDIN_DTYPE_FP32))
    return -(double)gs_fail(cudaErrorInvalidValue);
  double operations = 2.0 * n * n * n * repeats;
  double work_s = operations / (half ? HALF_OPS_PER_S : FP32_OPS_PER_S);
  if (!is_duration(work_s)) return -(double)gs_fail(cudaErrorInvalidValue);
  cudaError_t error = enqueue(stream, (struct kernel_op){.op.type = &kernel_type,
                                                         .launch_ns = standinNow(),
                                                         .work_s = work_s,
                                                         .function = multiply});
  return error == cudaSuccess ? work_s : -(double)error;
}

/* cuda.c: what the hook asks of CUDA, by symbols found in the process: of the caller's runtime,
 * where there are several. No library is ever loaded for it and no context created.
 */
#include <string.h>

#include "hook.h"

static void *driver_function(const char *name) {
  struct gh_object object;
  return gh_elf_named("libcuda.so", &object) ? gh_elf_symbol(&object, name) : NULL;
}

/* The calling thread's device, -1 unknown. */
int gh_cuda_device(void) {
  typedef int (*ask_fn)(int *);
  int device = -1;
  ask_fn ask = (ask_fn)gh_resolve_optional(GH_FN_cudaGetDevice, gh_thread.caller);
  if (!ask) ask = (ask_fn)driver_function("cuCtxGetDevice"); /* a runtime linked statically */
  return ask && ask(&device) == 0 ? device : -1;
}

/* "" where unknown. */
void gh_cuda_bus_id(char *out, int bytes, int device) {
  typedef int (*ask_fn)(char *, int, int);
  out[0] = 0;
  if (device < 0) return;
  ask_fn ask = (ask_fn)gh_resolve_optional(GH_FN_cudaDeviceGetPCIBusId, gh_thread.caller);
  if (!ask) ask = (ask_fn)driver_function("cuDeviceGetPCIBusId");
  if (!ask || ask(out, bytes, device) != 0) out[0] = 0;
}

/* cudaStreamGetCaptureInfo has had 3, 6 and 7 arguments. All begin (stream, status, id), the others
 * are optional outputs, so that seven with null pointers behind suit every one of them. */
typedef int (*capture_fn)(cudaStream_t, int *, unsigned long long *, void *, void *, void *,
                          void *);

/* CUDA's error, -1 where the runtime can't be asked. */
static int capture_status(cudaStream_t stream, uintptr_t caller, int *status,
                          unsigned long long *id) {
  static const enum gh_fn asking[] = {GH_FN_cudaStreamGetCaptureInfo_v3,
                                      GH_FN_cudaStreamGetCaptureInfo_v2,
                                      GH_FN_cudaStreamGetCaptureInfo};
  typedef int (*is_fn)(cudaStream_t, int *);
  capture_fn ask = (capture_fn)gh_resolve_first(asking, sizeof asking / sizeof *asking, caller);
  if (ask) return ask(stream, status, id, NULL, NULL, NULL, NULL);
  is_fn is = (is_fn)gh_resolve_optional(GH_FN_cudaStreamIsCapturing, caller);
  return is ? is(stream, status) : -1;
}

/* Is the stream being captured, and by which capture (0: the runtime can't tell)? */
bool gh_cuda_capturing(cudaStream_t stream, uint64_t *id, uintptr_t caller) {
  int status = 0;
  unsigned long long number = 0;
  if (capture_status(stream, caller, &status, &number)) return false;
  *id = number;
  return status == GH_CUDA_CAPTURE_ACTIVE;
}

bool gh_cuda_never_captures(cudaStream_t stream, uintptr_t caller) {
  int status = 0;
  unsigned long long number = 0;
  return !capture_status(stream, caller, &status, &number) && status == 0;
}

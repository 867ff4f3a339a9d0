/* cuda.c: what the hook asks of CUDA, by symbols found in the process. No library is ever loaded
 * for it and no context created.
 */
#include <string.h>

#include "hook.h"

/* The runtime's function, wherever the runtime is; NULL on a machine without. */
static void *runtime_function(const char *name) {
  struct gh_object object;
  void *found = gh_elf_named("libcudart.so", &object) ? gh_elf_symbol(&object, name) : NULL;
  if (!found && gh_elf_defining(name, &object)) found = gh_elf_symbol(&object, name);
  return found;
}

static void *driver_function(const char *name) {
  struct gh_object object;
  return gh_elf_named("libcuda.so", &object) ? gh_elf_symbol(&object, name) : NULL;
}

/* The calling thread's device, -1 unknown. */
int gh_cuda_device(void) {
  typedef int (*ask_fn)(int *);
  int device = -1;
  ask_fn ask = (ask_fn)runtime_function("cudaGetDevice");
  if (!ask) ask = (ask_fn)driver_function("cuCtxGetDevice"); /* a runtime linked statically */
  return ask && ask(&device) == 0 ? device : -1;
}

/* "" where unknown. */
void gh_cuda_bus_id(char *out, int bytes, int device) {
  typedef int (*ask_fn)(char *, int, int);
  out[0] = 0;
  if (device < 0) return;
  ask_fn ask = (ask_fn)runtime_function("cudaDeviceGetPCIBusId");
  if (!ask) ask = (ask_fn)driver_function("cuDeviceGetPCIBusId");
  if (!ask || ask(out, bytes, device) != 0) out[0] = 0;
}

/* cudaStreamGetCaptureInfo has had 3, 6 and 7 arguments. All begin (stream, status, id), the others
 * are optional outputs, so that seven with null pointers behind suit every one of them. */
typedef int (*capture_fn)(cudaStream_t, int *, unsigned long long *, void *, void *, void *,
                          void *);

static capture_fn capture_function(void) {
  static capture_fn found;
  static bool looked;
  if (__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) return found;
  static const char *const names[] = {"cudaStreamGetCaptureInfo_v3", "cudaStreamGetCaptureInfo_v2",
                                      "cudaStreamGetCaptureInfo"};
  for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
    __atomic_store_n(&found, (capture_fn)runtime_function(names[i]), __ATOMIC_RELAXED);
  __atomic_store_n(&looked, true, __ATOMIC_RELEASE);
  return found;
}

/* Is the stream being captured, and by which capture (0: the runtime can't tell)? */
bool gh_cuda_capturing(cudaStream_t stream, uint64_t *id) {
  typedef int (*is_fn)(cudaStream_t, int *);
  int status = 0;
  unsigned long long number = 0;
  capture_fn ask = capture_function();
  if (ask) {
    if (ask(stream, &status, &number, NULL, NULL, NULL, NULL) != 0) return false;
  } else {
    is_fn is = (is_fn)runtime_function("cudaStreamIsCapturing");
    if (!is || is(stream, &status) != 0) return false;
  }
  *id = number;
  return status == GH_CUDA_CAPTURE_ACTIVE;
}

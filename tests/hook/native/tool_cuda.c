/* tool_cuda.c: another preload tool, that sees cudaGraphLaunch and forwards by RTLD_NEXT. */
#include <dlfcn.h>
#include <stdio.h>

int cudaGraphLaunch(void *exec, void *stream) {
  int (*next)(void *, void *) = (int (*)(void *, void *))dlsym(RTLD_NEXT, "cudaGraphLaunch");
  puts("tool");
  fflush(stdout);
  return next ? next(exec, stream) : 9;
}

/* tool.c: another preload tool: sees ncclAllReduce and ncclBcast, forwards by RTLD_NEXT, tells at
 * exit how many it saw.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "../../../hook/nccl_abi.h"

static int seen;

ncclResult_t ncclAllReduce(const void *s, void *r, size_t n, int t, int op, ncclComm_t c,
                           void *st) {
  ncclResult_t (*next)(const void *, void *, size_t, int, int, ncclComm_t, void *) =
      (ncclResult_t(*)(const void *, void *, size_t, int, int, ncclComm_t, void *))dlsym(
          RTLD_NEXT, "ncclAllReduce");
  seen++;
  return next(s, r, n, t, op, c, st);
}

ncclResult_t ncclBcast(void *b, size_t n, int t, int root, ncclComm_t c, void *st) {
  ncclResult_t (*next)(void *, size_t, int, int, ncclComm_t, void *) =
      (ncclResult_t(*)(void *, size_t, int, int, ncclComm_t, void *))dlsym(RTLD_NEXT, "ncclBcast");
  seen++;
  return next(b, n, t, root, c, st);
}

__attribute__((destructor)) static void tell(void) {
  if (seen) printf("tool saw %d\n", seen);
}

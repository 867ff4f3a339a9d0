/* tool.c: another preload tool: sees ncclAllReduce and ncclBcast and tells at exit how many it saw.
 * It forwards by RTLD_NEXT or, with -DTO_PROFILED, to pncclX; with -DBOTH it stands in front of
 * pncclX, too.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "../../../hook/nccl_abi.h"

#ifndef NAME
#define NAME "tool"
#endif

static int seen;

typedef ncclResult_t (*reduce_fn)(const void *, void *, size_t, int, int, ncclComm_t, void *);
typedef ncclResult_t (*bcast_fn)(void *, size_t, int, int, ncclComm_t, void *);
#ifdef TO_PROFILED
ncclResult_t pncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, void *);
ncclResult_t pncclBcast(void *, size_t, int, int, ncclComm_t, void *);
#define NEXT(type, name) p##name
#else
#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, #name))
#endif

ncclResult_t ncclAllReduce(const void *s, void *r, size_t n, int t, int op, ncclComm_t c,
                           void *st) {
  seen++;
  return NEXT(reduce_fn, ncclAllReduce)(s, r, n, t, op, c, st);
}

ncclResult_t ncclBcast(void *b, size_t n, int t, int root, ncclComm_t c, void *st) {
  seen++;
  return NEXT(bcast_fn, ncclBcast)(b, n, t, root, c, st);
}

#ifdef BOTH
ncclResult_t pncclAllReduce(const void *s, void *r, size_t n, int t, int op, ncclComm_t c,
                            void *st) {
  seen++;
  return NEXT(reduce_fn, pncclAllReduce)(s, r, n, t, op, c, st);
}
#endif

__attribute__((destructor)) static void tell(void) {
  if (seen) printf("%s saw %d\n", NAME, seen);
}

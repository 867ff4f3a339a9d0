/* redop.c: reduction operators, the user's premultiplied sums included. */
#include "internal.h"

#define MAX_USER_OPS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  bool used;
  double scalar;
} user_ops[MAX_USER_OPS];

bool gs_redop_resolve(ncclRedOp_t op, struct gs_redop *resolved) {
  *resolved = (struct gs_redop){.op = op};
  if ((unsigned)op < ncclNumOps) return true;
  unsigned index = (unsigned)op - ncclNumOps;
  if (index >= MAX_USER_OPS) return false;
  pthread_mutex_lock(&lock);
  bool used = user_ops[index].used;
  *resolved = (struct gs_redop){ncclSum, true, user_ops[index].scalar};
  pthread_mutex_unlock(&lock);
  return used;
}

GS_API(ncclResult_t, RedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar, ncclDataType_t dtype,
       ncclScalarResidence_t residence, ncclComm_t comm) {
  (void)residence; /* device memory is host memory; the scalar is read now */
  ncclResult_t result = gs_comm_check(comm);
  if (result != ncclSuccess) return result;
  if (op == NULL || scalar == NULL || !gs_dtype_reduces(dtype))
    return gs_error(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: data type %d", (int)dtype);
  int index = 0;
  pthread_mutex_lock(&lock);
  while (index < MAX_USER_OPS && user_ops[index].used) index++;
  if (index < MAX_USER_OPS) {
    user_ops[index].used = true;
    user_ops[index].scalar = gs_read_scalar(dtype, scalar);
    *op = (ncclRedOp_t)(ncclNumOps + index);
  }
  pthread_mutex_unlock(&lock);
  return index < MAX_USER_OPS
             ? ncclSuccess
             : gs_error(ncclInvalidUsage, "more than %d reduction operators", MAX_USER_OPS);
}

GS_API(ncclResult_t, RedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  ncclResult_t result = gs_comm_check(comm);
  if (result != ncclSuccess) return result;
  unsigned index = (unsigned)op - ncclNumOps;
  if ((unsigned)op < ncclNumOps || index >= MAX_USER_OPS)
    return gs_error(ncclInvalidArgument, "ncclRedOpDestroy: operator %d", (int)op);
  pthread_mutex_lock(&lock);
  bool used = user_ops[index].used;
  user_ops[index].used = false;
  pthread_mutex_unlock(&lock);
  return used ? ncclSuccess
              : gs_error(ncclInvalidArgument, "ncclRedOpDestroy: operator %d", (int)op);
}

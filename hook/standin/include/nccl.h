/* nccl.h: the part of NCCL's public interface that the stand-in has (as of NCCL 2.28.3).
 *
 * Names, values and argument lists follow NVIDIA's "NCCL API" reference, so that a program built
 * against this header also runs with the real library, and the other way round. Every ncclX is a
 * weak symbol; pncclX is the strong one at the same address.
 */
#ifndef GREYHOUND_STANDIN_NCCL_H
#define GREYHOUND_STANDIN_NCCL_H

#include <limits.h>
#include <stddef.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 3
#define NCCL_VERSION_CODE 22803
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* Grew over the versions; `size` says how much of it the caller knows. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char *netName;
  int splitShare;
  int trafficClass;
  const char *commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
} ncclConfig_t;

#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_CONFIG_INITIALIZER                                                                \
  {sizeof(ncclConfig_t),  NCCL_CONFIG_MAGIC,     NCCL_VERSION_CODE,     NCCL_CONFIG_UNDEF_INT, \
   NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, \
   NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, \
   NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT}

typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
} ncclSimInfo_t;

#define GHS_NCCL_DECLARE(name, ...)     \
  ncclResult_t nccl##name(__VA_ARGS__); \
  ncclResult_t pnccl##name(__VA_ARGS__);

/* library */
GHS_NCCL_DECLARE(GetVersion, int *version)
GHS_NCCL_DECLARE(GetUniqueId, ncclUniqueId *id)
GHS_NCCL_DECLARE(MemAlloc, void **pointer, size_t bytes)
GHS_NCCL_DECLARE(MemFree, void *pointer)
const char *ncclGetErrorString(ncclResult_t result);
const char *pncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
const char *pncclGetLastError(ncclComm_t comm);
void ncclResetDebugInit(void);
void pncclResetDebugInit(void);

/* communicators */
GHS_NCCL_DECLARE(CommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
GHS_NCCL_DECLARE(CommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                 ncclConfig_t *config)
GHS_NCCL_DECLARE(CommInitRankScalable, ncclComm_t *comm, int nranks, int rank, int id_count,
                 ncclUniqueId *ids, ncclConfig_t *config)
GHS_NCCL_DECLARE(CommInitAll, ncclComm_t *comms, int count, const int *devices)
GHS_NCCL_DECLARE(CommSplit, ncclComm_t comm, int color, int key, ncclComm_t *child,
                 ncclConfig_t *config)
GHS_NCCL_DECLARE(CommShrink, ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *child,
                 ncclConfig_t *config, int flags)
GHS_NCCL_DECLARE(CommFinalize, ncclComm_t comm)
GHS_NCCL_DECLARE(CommDestroy, ncclComm_t comm)
GHS_NCCL_DECLARE(CommAbort, ncclComm_t comm)
GHS_NCCL_DECLARE(CommGetAsyncError, ncclComm_t comm, ncclResult_t *error)
GHS_NCCL_DECLARE(CommCount, const ncclComm_t comm, int *count)
GHS_NCCL_DECLARE(CommCuDevice, const ncclComm_t comm, int *device)
GHS_NCCL_DECLARE(CommUserRank, const ncclComm_t comm, int *rank)
GHS_NCCL_DECLARE(CommRegister, const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
GHS_NCCL_DECLARE(CommDeregister, const ncclComm_t comm, void *handle)
GHS_NCCL_DECLARE(CommWindowRegister, ncclComm_t comm, void *buffer, size_t bytes,
                 ncclWindow_t *window, int flags)
GHS_NCCL_DECLARE(CommWindowDeregister, ncclComm_t comm, ncclWindow_t window)

/* reduction operators */
GHS_NCCL_DECLARE(RedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar, ncclDataType_t dtype,
                 ncclScalarResidence_t residence, ncclComm_t comm)
GHS_NCCL_DECLARE(RedOpDestroy, ncclRedOp_t op, ncclComm_t comm)

/* collectives and point to point; counts are elements */
GHS_NCCL_DECLARE(AllReduce, const void *send, void *recv, size_t count, ncclDataType_t dtype,
                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(Reduce, const void *send, void *recv, size_t count, ncclDataType_t dtype,
                 ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(Broadcast, const void *send, void *recv, size_t count, ncclDataType_t dtype,
                 int root, ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(Bcast, void *buffer, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                 cudaStream_t stream)
GHS_NCCL_DECLARE(ReduceScatter, const void *send, void *recv, size_t recv_count,
                 ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(AllGather, const void *send, void *recv, size_t send_count, ncclDataType_t dtype,
                 ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(AlltoAll, const void *send, void *recv, size_t count, ncclDataType_t dtype,
                 ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(Gather, const void *send, void *recv, size_t count, ncclDataType_t dtype, int root,
                 ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(Scatter, const void *send, void *recv, size_t count, ncclDataType_t dtype,
                 int root, ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(Send, const void *send, size_t count, ncclDataType_t dtype, int peer,
                 ncclComm_t comm, cudaStream_t stream)
GHS_NCCL_DECLARE(Recv, void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                 cudaStream_t stream)

/* groups */
GHS_NCCL_DECLARE(GroupStart, void)
GHS_NCCL_DECLARE(GroupEnd, void)
GHS_NCCL_DECLARE(GroupSimulateEnd, ncclSimInfo_t *info)

#ifdef __cplusplus
}
#endif

#endif

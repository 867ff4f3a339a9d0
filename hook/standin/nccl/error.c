/* error.c: the text of the thread's last error, and the result codes' names. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

static __thread char message[256];

ncclResult_t gs_error(ncclResult_t result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return result;
}

const char *gs_last_message(void) { return message; }

GS_API(const char *, GetErrorString, ncclResult_t result) {
  static const char *const texts[ncclNumResults] = {
      "no error",
      "unhandled cuda error",
      "unhandled system error",
      "internal error",
      "invalid argument",
      "invalid usage",
      "remote process exited or there was a network error",
      "NCCL operation in progress"};
  unsigned index = (unsigned)result;
  return index < ncclNumResults ? texts[index] : "unknown result code";
}

GS_API(const char *, GetLastError, ncclComm_t comm) {
  if (comm == NULL) return message;
  pthread_mutex_lock(&comm->lock);
  bool failed = comm->message[0] != '\0';
  pthread_mutex_unlock(&comm->lock);
  return failed ? comm->message : message;
}

GS_API(void, ResetDebugInit, void) {}

GS_API(ncclResult_t, GetVersion, int *version) {
  if (version == NULL) return gs_error(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

/* clock.c: the modelled time is CLOCK_MONOTONIC. */
#include <errno.h>
#include <time.h>

#include "runtime.h"

#define NS_PER_S 1000000000ull

GS_EXPORT uint64_t standinNow(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void gs_sleep_until(uint64_t at_ns) {
  struct timespec at = {.tv_sec = (time_t)(at_ns / NS_PER_S), .tv_nsec = (long)(at_ns % NS_PER_S)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
}

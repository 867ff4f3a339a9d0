/* timing.h: what the files of timing share. */
#ifndef GREYHOUND_TIMING_H
#define GREYHOUND_TIMING_H

#include "hook.h"

typedef void *gh_event_t;

/* timing_cuda.c: the functions of the runtime of the first caller. Each returns CUDA's error. */
struct gh_events {
  int (*create)(gh_event_t *, unsigned);
  int (*record)(gh_event_t, cudaStream_t);
  int (*query)(gh_event_t);
  int (*elapsed)(float *, gh_event_t, gh_event_t);
  int (*make_stream)(cudaStream_t *, unsigned);
  int (*exchange_mode)(int *);
  int (*peek)(void);
  int (*last)(void);
};
extern struct gh_events gh_events;
bool gh_events_suit(void); /* this caller's runtime and device are those of the first */
/* False: an error of the program's is pending. From here to leave ours are no harm, and no capture
 * of another thread's forbids or is spoilt by what is asked. */
bool gh_events_enter(int *mode);
void gh_events_leave(int mode);
static inline uint64_t gh_events_ns(float ms) { return ms > 0 ? (uint64_t)((double)ms * 1e6) : 0; }

/* timing_clock.c: what the GPU's time is on CLOCK_MONOTONIC. Under the lock of timing.c. */
bool gh_clock_keep(uint64_t now_ns); /* false: CUDA failed */
bool gh_clock_look(void);            /* the same */
bool gh_clock_unseen(void);          /* look() may still learn something */
bool gh_clock_known(void);
uint8_t gh_clock_take(void); /* the base that an event is measured from, until it is released */
void gh_clock_release(uint8_t base);
int gh_clock_time_of(uint8_t base, gh_event_t event, uint64_t *ns); /* CUDA's error */
void gh_clock_forget(void);

#endif

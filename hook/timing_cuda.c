/* timing_cuda.c: the CUDA functions that timing needs, and how they are called without a trace in
 * what the program sees. */
#include "timing.h"

struct gh_events gh_events;
static int device = -1;

static void *find(enum gh_fn fn) { return gh_resolve_known(fn, gh_thread.caller); }

static void find_functions(void) {
  struct gh_events e = {
      .create = (int (*)(gh_event_t *, unsigned))find(GH_FN_cudaEventCreateWithFlags),
      .query = (int (*)(gh_event_t))find(GH_FN_cudaEventQuery),
      .elapsed = (int (*)(float *, gh_event_t, gh_event_t))find(GH_FN_cudaEventElapsedTime),
      .make_stream = (int (*)(cudaStream_t *, unsigned))find(GH_FN_cudaStreamCreateWithFlags),
      .exchange_mode = (int (*)(int *))find(GH_FN_cudaThreadExchangeStreamCaptureMode),
      .peek = (int (*)(void))find(GH_FN_cudaPeekAtLastError),
      .last = (int (*)(void))find(GH_FN_cudaGetLastError),
  };
  if (!e.elapsed)
    e.elapsed = (int (*)(float *, gh_event_t, gh_event_t))find(GH_FN_cudaEventElapsedTime_v2);
  if (e.create && e.query && e.elapsed && e.make_stream && e.exchange_mode && e.peek && e.last)
    e.record = (int (*)(gh_event_t, cudaStream_t))find(GH_FN_cudaEventRecord);
  if (e.record) gh_events = e;
}

bool gh_events_suit(void) {
  gh_resolve_ahead(gh_thread.caller);
  if (!gh_events.record) find_functions();
  if (!gh_events.record || find(GH_FN_cudaEventRecord) != (void *)gh_events.record) return false;
  int now = gh_cuda_device();
  if (now < 0) return false;
  if (device < 0) device = now;
  return device == now;
}

bool gh_events_enter(int *mode) {
  *mode = GH_CUDA_CAPTURE_RELAXED;
  return gh_events.peek() == 0 && gh_events.exchange_mode(mode) == 0;
}

void gh_events_leave(int mode) {
  gh_events.exchange_mode(&mode);
  if (gh_events.peek()) gh_events.last();
}

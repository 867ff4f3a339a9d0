/* timing_clock.c: relates the GPU's time to CLOCK_MONOTONIC, by an event on a stream that is always
 * idle: the GPU comes to it as soon as it is recorded, or at the latest when it is seen done. */
#include "timing.h"

/* A base's age: the clocks drift apart by some 10 us in this time, and times from it are floats. */
#define BASE_NS 1000000000u
#define CLOSE_NS 50000u /* an error that is small enough; else another try after */
#define RETRY_NS 20000000u

static struct base {
  gh_event_t event;
  uint64_t begun_ns, host_ns; /* recording began, was over */
  uint64_t error_ns;          /* host_ns isn't its time on the GPU by more than this */
  bool seen;
  uint32_t users;
} bases[2];
static uint32_t current; /* for new users */
static cudaStream_t idle_stream;

static bool look(struct base *b) {
  if (!b->event || b->seen) return true;
  int error = gh_events.query(b->event);
  if (error) return error == GH_CUDA_NOT_READY;
  b->seen = true;
  b->error_ns = gh_now_ns() - b->begun_ns;
  bool old = b->host_ns - bases[current].host_ns > BASE_NS;
  if (old || b->error_ns < bases[current].error_ns) current = (uint32_t)(b - bases);
  struct gh_timing_counts *counts = gh_ring_at(GH_OFF_TIMINGS);
  __atomic_store_n(&counts->clock_error_ns, bases[current].error_ns, __ATOMIC_RELAXED);
  return true;
}

static bool record(struct base *b) {
  bool ok = idle_stream || !gh_events.make_stream(&idle_stream, GH_CUDA_STREAM_NON_BLOCKING);
  ok = ok && (b->event || !gh_events.create(&b->event, 0));
  b->begun_ns = gh_now_ns();
  ok = ok && !gh_events.record(b->event, idle_stream);
  b->host_ns = gh_now_ns();
  b->error_ns = UINT64_MAX;
  b->seen = false;
  return ok;
}

/* None yet, or profiling had stopped for long: what was then says nothing about now. */
static bool is_stale(uint64_t now_ns) {
  const struct base *b = &bases[current];
  return !b->event || (now_ns > b->host_ns && now_ns - b->host_ns > 2ull * BASE_NS);
}

/* A base at once where there is none; another one when it is old, or was seen too late to be
 * trusted. */
bool gh_clock_keep(uint64_t now_ns) {
  if (is_stale(now_ns)) {
    if (bases[current].users) current = 1 - current;
    return bases[current].users || record(&bases[current]);
  }
  if (!look(&bases[0]) || !look(&bases[1])) return false;
  struct base *now = &bases[current], *other = &bases[1 - current];
  uint64_t age_ns = now_ns > now->host_ns ? now_ns - now->host_ns : 0;
  bool due = age_ns > BASE_NS || (now->error_ns > CLOSE_NS && age_ns > RETRY_NS);
  if (!due || other->users || (other->event && !other->seen)) return true;
  return record(other);
}

bool gh_clock_look(void) { return look(&bases[current]); }

bool gh_clock_unseen(void) { return bases[current].event && !bases[current].seen; }

bool gh_clock_known(void) { return bases[current].event && !is_stale(gh_now_ns()); }

uint8_t gh_clock_take(void) {
  bases[current].users++;
  return (uint8_t)current;
}

void gh_clock_release(uint8_t base) { bases[base].users--; }

int gh_clock_time_of(uint8_t base, gh_event_t event, uint64_t *ns) {
  float ms;
  int error = gh_events.elapsed(&ms, bases[base].event, event);
  if (!error)
    *ns = ms < 0 ? bases[base].host_ns - gh_events_ns(-ms) : bases[base].host_ns + gh_events_ns(ms);
  return error;
}

void gh_clock_forget(void) {
  for (int i = 0; i < 2; i++) bases[i].event = NULL;
  idle_stream = NULL;
}

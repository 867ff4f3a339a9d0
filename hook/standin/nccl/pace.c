/* pace.c: modelled links. A link carries one piece after the other at its rate; the latency delays
 * the arrival and doesn't occupy it. Times are modelled, so late wake-ups don't add up. */
#include "internal.h"

#define NS_PER_S 1e9
#define PIECE_S 0.002
#define MIN_PIECE_BYTES 4096
#define MAX_PIECE_BYTES (128 * 1024)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t free_at_ns[GHS_MAX_GPUS][GHS_MAX_GPUS];

struct gs_pace gs_pace_of(ncclComm_t comm, int peer) {
  double bytes_per_s, latency_s;
  gs_page_link(comm->page_gpu[comm->rank], comm->page_gpu[peer], &bytes_per_s, &latency_s);
  return (struct gs_pace){bytes_per_s, (uint64_t)(latency_s * NS_PER_S)};
}

size_t gs_pace_piece(struct gs_pace pace, size_t available) {
  if (pace.bytes_per_s <= 0) return available;
  double piece = pace.bytes_per_s * PIECE_S;
  size_t limit = piece < MIN_PIECE_BYTES   ? MIN_PIECE_BYTES
                 : piece > MAX_PIECE_BYTES ? MAX_PIECE_BYTES
                                           : (size_t)piece;
  return available < limit ? available : limit;
}

uint64_t gs_pace_reserve(struct gs_pace pace, int from_gpu, int to_gpu, size_t bytes,
                         uint64_t ready_ns) {
  if (pace.bytes_per_s <= 0) return ready_ns;
  pthread_mutex_lock(&lock);
  uint64_t *free_at = &free_at_ns[from_gpu][to_gpu];
  uint64_t start_ns = ready_ns > *free_at ? ready_ns : *free_at;
  *free_at = start_ns + (uint64_t)((double)bytes / pace.bytes_per_s * NS_PER_S);
  uint64_t end_ns = *free_at;
  pthread_mutex_unlock(&lock);
  return end_ns;
}

void gs_pace_after_fork(void) { pthread_mutex_init(&lock, NULL); }

/* lane.c: moves bytes of one direction as far as they go without waiting. The sender keeps a piece
 * until its modelled arrival; the next one may then be due at once, since times are modelled. */
#include "lane.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MIN_FOLLOW_BYTES (32 * 1024) /* smaller bits of a message aren't passed on singly */
#define MAX_FRAME_BYTES (1u << 30)

static size_t available(const struct gs_transfer *x) {
  size_t left = x->bytes - x->done;
  if (x->follows == NULL) return left < MAX_FRAME_BYTES ? left : MAX_FRAME_BYTES;
  size_t here = x->follows->done - x->done;
  return here == left || here >= MIN_FOLLOW_BYTES ? here : 0;
}

static bool open_frame(ncclComm_t comm, struct gs_lane_out *lane) {
  struct gs_transfer *x = lane->head;
  size_t bytes = available(x);
  if (bytes == 0) return false;
  struct gs_pace pace = gs_pace_of(comm, x->peer);
  uint64_t ready_ns = lane->ready_ns;
  if (x->follows != NULL && x->follows->ready_ns > ready_ns) ready_ns = x->follows->ready_ns;
  bytes = gs_pace_piece(pace, bytes);
  lane->latency_ns = pace.latency_ns;
  lane->due_ns = 0;
  if (pace.bytes_per_s > 0 || pace.latency_ns > 0)
    lane->due_ns = pace.latency_ns + gs_pace_reserve(pace, comm->page_gpu[comm->rank],
                                                     comm->page_gpu[x->peer], bytes, ready_ns);
  lane->frame = (struct gs_frame){lane->due_ns, (uint32_t)bytes, (uint32_t)x->bytes};
  lane->frame_done = lane->piece_done = 0;
  lane->open = true;
  return true;
}

static enum gs_step push(int fd, struct gs_lane_out *lane, struct gs_moment *moment) {
  struct gs_transfer *x = lane->head;
  struct iovec parts[2] = {
      {(char *)&lane->frame + lane->frame_done, sizeof lane->frame - lane->frame_done},
      {(char *)(uintptr_t)x->from + x->done, lane->frame.bytes - lane->piece_done}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && errno == EINTR) return GS_MOVED;
  if (n < 0 && errno == EAGAIN) {
    lane->blocked = true;
    return GS_IDLE;
  }
  if (n < 0) return GS_BROKEN;
  if (lane->blocked) lane->ready_ns = moment->now_ns - lane->latency_ns;
  lane->blocked = false;
  size_t head = parts[0].iov_len < (size_t)n ? parts[0].iov_len : (size_t)n;
  lane->frame_done += head;
  lane->piece_done += (size_t)n - head;
  x->done += (size_t)n - head;
  if (lane->piece_done == lane->frame.bytes) lane->open = false;
  if (x->done == x->bytes) lane->head = x->next;
  return GS_MOVED;
}

enum gs_step gs_lane_send(ncclComm_t comm, struct gs_lane_out *lane, struct gs_moment *moment) {
  if (lane->head == NULL) return GS_IDLE;
  if (!lane->open && !open_frame(comm, lane)) return GS_IDLE;
  if (lane->due_ns > moment->now_ns) {
    if (moment->wake_ns == 0 || lane->due_ns < moment->wake_ns) moment->wake_ns = lane->due_ns;
    return GS_IDLE;
  }
  return push(comm->out_fds[lane->head->peer], lane, moment);
}

static enum gs_step read_some(int fd, void *to, size_t bytes, size_t *got) {
  ssize_t n = recv(fd, to, bytes, MSG_DONTWAIT);
  *got = n > 0 ? (size_t)n : 0;
  if (n > 0 || (n < 0 && errno == EINTR)) return GS_MOVED;
  return n < 0 && errno == EAGAIN ? GS_IDLE : GS_BROKEN;
}

static enum gs_step read_frame(ncclComm_t comm, struct gs_lane_in *lane) {
  size_t got;
  enum gs_step step =
      read_some(comm->in_fds[lane->head->peer], (char *)&lane->frame + lane->frame_done,
                sizeof lane->frame - lane->frame_done, &got);
  lane->frame_done += got;
  lane->piece_done = 0;
  if (lane->frame_done < sizeof lane->frame) return step;
  struct gs_transfer *x = lane->head;
  if (lane->frame.total == (uint32_t)x->bytes && lane->frame.bytes > 0) return step;
  gs_error(ncclInvalidUsage,
           "rank %d receives %zu bytes where rank %d sends %u: the calls don't match", comm->rank,
           x->bytes, x->peer, lane->frame.total);
  return GS_MISMATCH;
}

/* to = op(own, incoming) for the elements that are complete; keeps the rest. */
static void reduce_arrived(ncclComm_t comm, struct gs_lane_in *lane) {
  struct gs_transfer *x = lane->head;
  const struct gs_task *task = x->task;
  size_t element = gs_dtype_bytes(task->dtype), n = lane->filled / element, bytes = n * element;
  gs_reduce(task->dtype, task->redop.op, x->to + x->done, x->own + x->done, lane->scratch, n);
  if (x->last && task->redop.op == ncclAvg)
    gs_divide(task->dtype, x->to + x->done, n, comm->nranks);
  lane->filled -= bytes;
  memmove(lane->scratch, lane->scratch + bytes, lane->filled);
  x->done += bytes;
}

static enum gs_step read_piece(ncclComm_t comm, struct gs_lane_in *lane) {
  struct gs_transfer *x = lane->head;
  size_t left = lane->frame.bytes - lane->piece_done, got;
  bool reduces = x->own != NULL;
  if (reduces && left > lane->scratch_bytes - lane->filled)
    left = lane->scratch_bytes - lane->filled;
  char *to = reduces ? lane->scratch + lane->filled : x->to + x->done;
  enum gs_step step = read_some(comm->in_fds[x->peer], to, left, &got);
  if (got == 0) return step;
  lane->piece_done += got;
  if (reduces) {
    lane->filled += got;
    reduce_arrived(comm, lane);
  } else {
    x->done += got;
  }
  x->ready_ns = lane->frame.arrives_ns != 0 ? lane->frame.arrives_ns : standinNow();
  if (lane->piece_done == lane->frame.bytes) lane->frame_done = 0;
  if (x->done == x->bytes) lane->head = x->next;
  return step;
}

enum gs_step gs_lane_recv(ncclComm_t comm, struct gs_lane_in *lane) {
  if (lane->head == NULL || comm->in_fds[lane->head->peer] < 0) return GS_IDLE;
  if (lane->frame_done < sizeof lane->frame) {
    enum gs_step step = read_frame(comm, lane);
    if (step > GS_MOVED || lane->frame_done < sizeof lane->frame) return step;
  }
  return read_piece(comm, lane);
}

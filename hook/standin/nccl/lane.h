/* lane.h: one direction to or from one peer during a batch. */
#ifndef GREYHOUND_STANDIN_LANE_H
#define GREYHOUND_STANDIN_LANE_H

#include "internal.h"

#define GS_SCRATCH_BYTES (128 * 1024)

/* Precedes every piece of a message; a piece never spans two messages. */
struct gs_frame {
  uint64_t arrives_ns; /* modelled; 0: when it is read */
  uint32_t bytes;      /* of this piece */
  uint32_t total;      /* of the message, low 32 bits: finds mismatched calls */
};

struct gs_lane_out {
  struct gs_transfer *head;
  struct gs_frame frame;
  size_t frame_done, piece_done;
  uint64_t due_ns;   /* modelled arrival of the frame; 0: at once */
  uint64_t ready_ns; /* no byte left before: start of the batch, or the receiver wasn't there */
  uint64_t latency_ns;
  bool open;    /* `frame` is valid and not sent completely */
  bool blocked; /* the socket is full */
};

struct gs_lane_in {
  struct gs_transfer *head;
  struct gs_frame frame;
  size_t frame_done, piece_done;
  size_t filled; /* bytes of an element begun, in scratch */
  char *scratch;
  size_t scratch_bytes;
};

enum gs_step { GS_IDLE, GS_MOVED, GS_BROKEN, GS_MISMATCH };

struct gs_moment {
  uint64_t now_ns;
  uint64_t wake_ns; /* earliest time that a lane waits for; 0: none */
};

enum gs_step gs_lane_send(ncclComm_t comm, struct gs_lane_out *lane, struct gs_moment *moment);
enum gs_step gs_lane_recv(ncclComm_t comm, struct gs_lane_in *lane);

#endif

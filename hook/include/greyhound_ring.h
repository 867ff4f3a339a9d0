/* greyhound_ring.h: the one definition of the per-process ring file.
 *
 * Shared by the hook (writer), the reader helper and Python, which parses the
 * plain `#define GH_NAME NUMBER` lines below (greyhound/trace/layout.py).
 * Keep every such line a single integer literal. Little endian, 4 KiB pages.
 */
#ifndef GREYHOUND_RING_H
#define GREYHOUND_RING_H

#include <stddef.h>
#include <stdint.h>

#define GH_MAGIC 0x3130474e49524847 /* "GHRING01" */
#define GH_LAYOUT 2
#define GH_PAGE_BYTES 4096
#define GH_RECORD_BYTES 64
#define GH_DEFAULT_CAPACITY 65536 /* records; a power of two */

/* page 0: identity, head, state, in-flight calls, and all else that each call looks at */
#define GH_OFF_HEAD 192
#define GH_OFF_STATE 256
#define GH_OFF_MODE 320    /* a control word, see page 1 */
#define GH_OFF_PROFILE 328 /* another, u64 */
#define GH_OFF_INFLIGHT 1024
#define GH_INFLIGHT_SLOTS 16
#define GH_INFLIGHT_BYTES 64
/* page 1: control words, written by the analyzer, one cache line each */
#define GH_OFF_FREEZE_EPOCH 4160
#define GH_OFF_FREEZE_PHASE 4224
#define GH_OFF_FREEZE_DEADLINE 4288
#define GH_OFF_MASTER_HEARTBEAT 4352
/* page 2: the hook's acknowledgements */
#define GH_OFF_ACK 8192
#define GH_OFF_TIMINGS 10240 /* struct gh_timing_counts */
/* pages 3-6 and 7-10: mailboxes */
#define GH_OFF_PLAN 12288
#define GH_OFF_REPORT 28672
#define GH_MAILBOX_BYTES 16384
#define GH_MAILBOX_HEADER_BYTES 64
/* page 11 on: tables, then record slots */
#define GH_OFF_COMMS 45056
#define GH_COMM_SLOTS 512
#define GH_COMM_BYTES 64
#define GH_OFF_COUNTS 77824
#define GH_COUNT_SLOTS 8192
#define GH_COUNT_BYTES 32
#define GH_OFF_TARGETS 339968
#define GH_OFF_RECORDS 602112

/* control word `mode`; muted: calls are counted, and neither timed nor recorded */
#define GH_MODE_MUTED 0
#define GH_MODE_OBSERVE 1
#define GH_MODE_ON 2

/* Control word `profile`: bits 0-31 brackets a second, 32-47 one_in, 48-63 epoch; 0: off. Which
 * calls are put between two events (GH_OP_TIMING): all of them, or of each communicator those with
 * (seq / 16) % one_in == 0, so that all its members time the same; a group if one of its calls is
 * chosen. A burst is a quarter of a second's, 16 at least. Another epoch than before forgets what
 * is under way, 0 doesn't. */

/* hook_state */
#define GH_STATE_STARTING 0
#define GH_STATE_RUNNING 1
#define GH_STATE_MUTED 2
#define GH_STATE_ENDED 3

/* hook_flags */
#define GH_FLAG_UNCOUNTED 1     /* one-sided or otherwise uncounted traffic seen: no freeze */
#define GH_FLAG_COMMS_FULL 2    /* communicator table full */
#define GH_FLAG_COUNTS_FULL 4   /* counter table full: no freeze */
#define GH_FLAG_GRAPH_UNKNOWN 8 /* a graph was launched whose captured calls are unknown */

/* operations */
#define GH_OP_ALL_REDUCE 1
#define GH_OP_BROADCAST 2
#define GH_OP_REDUCE 3
#define GH_OP_ALL_GATHER 4
#define GH_OP_REDUCE_SCATTER 5
#define GH_OP_ALL_TO_ALL 6
#define GH_OP_GATHER 7
#define GH_OP_SCATTER 8
#define GH_OP_SEND 9
#define GH_OP_RECV 10
#define GH_OP_PUT_SIGNAL 11
#define GH_OP_SIGNAL 12
#define GH_OP_WAIT_SIGNAL 13
#define GH_OP_GROUP 16 /* one record an outermost group; aux = number of calls in it */
#define GH_OP_GROUP_SIMULATE 17
#define GH_OP_COMM_INIT 32
#define GH_OP_COMM_SPLIT 33
#define GH_OP_COMM_SHRINK 34
#define GH_OP_COMM_GROW 35
#define GH_OP_COMM_FINALIZE 36
#define GH_OP_COMM_DESTROY 37
#define GH_OP_COMM_ABORT 38
#define GH_OP_COMM_REVOKE 39
#define GH_OP_COMM_SUSPEND 40
#define GH_OP_COMM_RESUME 41
#define GH_OP_GRAPH_LAUNCH 64
#define GH_OP_TIMING 128 /* op | 0x80: struct gh_timing, of an earlier record */

/* record flags */
#define GH_REC_IN_GROUP 1
#define GH_REC_CAPTURED 2
#define GH_REC_BY_HOOK 4
#define GH_REC_ERROR 8
#define GH_REC_NONBLOCKING 16

/* counter kinds */
#define GH_COUNT_COLLECTIVE 1
#define GH_COUNT_SEND 2
#define GH_COUNT_RECV 3

/* fields that an operation doesn't have */
#define GH_NONE 255 /* dtype, redop */

/* communicator states */
#define GH_COMM_FREE 0
#define GH_COMM_PENDING 1 /* made inside a group or nonblocking: rank and size not known yet */
#define GH_COMM_LIVE 2
#define GH_COMM_GONE 3

struct gh_inflight {
  uint32_t tid; /* 0: free; t_enter_ns is 0 while the other fields are being filled */
  uint32_t op;
  uint64_t comm;
  uint32_t seq;
  uint32_t pad;
  uint64_t t_enter_ns; /* CLOCK_MONOTONIC */
  uint64_t reserved[4];
};

struct gh_header {
  uint64_t magic; /* stored last, with release: a ring without it is not ready */
  uint32_t layout;
  uint32_t record_bytes;
  uint64_t capacity; /* records */
  uint32_t pid;
  uint32_t uid;
  uint64_t pid_start; /* field 22 of /proc/PID/stat, clock ticks */
  char boot_id[40];
  int32_t world_rank; /* -1: unknown */
  int32_t local_rank;
  int32_t slurm_procid;
  int32_t node_index; /* in the step */
  char gpu_bus_id[32];
  uint64_t created_ns;          /* CLOCK_MONOTONIC */
  uint64_t created_realtime_ns; /* CLOCK_REALTIME at the same moment */
  uint32_t nccl_version;        /* ncclGetVersion, 0 unknown */
  int32_t cuda_device;
  uint64_t file_bytes;
  uint8_t pad0[GH_OFF_HEAD - 160];
  uint64_t head; /* number of records begun so far */
  uint8_t pad1[GH_OFF_STATE - GH_OFF_HEAD - 8];
  uint32_t hook_state;
  uint32_t hook_flags;
  uint64_t heartbeat_ns; /* time of the last call seen unmuted */
  uint64_t muted_calls;  /* calls that would be a reader's top level, had they been recorded */
  uint8_t pad2[GH_OFF_INFLIGHT - GH_OFF_STATE - 24];
  struct gh_inflight inflight[GH_INFLIGHT_SLOTS];
};

struct gh_record {
  uint64_t commit;  /* index + 1, stored last with release; 0 while being written */
  uint64_t t_ns;    /* CLOCK_MONOTONIC at entry (group: at the outermost end) */
  uint64_t comm;    /* communicator hash; group: 0 if its calls are on several */
  uint64_t bytes;   /* the call's count x size of its type; group: sum over its calls */
  uint32_t seq;     /* number of this data call on this communicator, from 0 */
  uint32_t host_ns; /* time inside the call, saturating */
  uint32_t stream;  /* hash */
  uint32_t group;   /* number of the group call, 0 outside one */
  uint8_t op;
  uint8_t dtype;
  uint8_t redop;
  uint8_t flags;
  int32_t peer; /* peer or root, -1; communicator made: our rank in it, -1 unknown */
  uint32_t thread;
  uint32_t aux; /* group, graph launch: calls in it; communicator made: its size */
};

/* The record with op | 0x80 of a call that was timed on the GPU, named by comm and seq; it comes
 * some calls after the call's own. A group's calls have one each, with the times of the whole
 * group. */
struct gh_timing {
  uint64_t commit;
  uint64_t start_ns; /* CLOCK_MONOTONIC: its stream had come to the call */
  uint64_t comm;
  uint64_t bytes;
  uint32_t seq;
  uint32_t duration_ns; /* lower 32 bits */
  uint32_t stream;
  uint32_t group;
  uint8_t op;
  uint8_t dtype;
  uint8_t duration_high; /* bits 32-39; from 18 minutes on all 40 are set */
  uint8_t flags;
  int32_t peer;
  uint64_t entry_ns; /* t_ns of the call's own record */
};

/* What profiling has done since the start; calls that it left out, by reason. */
struct gh_timing_counts {
  uint64_t made;    /* brackets; one a group */
  uint64_t written; /* timing records */
  uint64_t over_budget;
  uint64_t contended;      /* another thread held the lock */
  uint64_t no_room;        /* all brackets under way */
  uint64_t unsuited;       /* captured, nonblocking, several streams, another device or runtime */
  uint64_t failed;         /* errors of CUDA; profiling stops until another epoch */
  uint64_t clock_error_ns; /* start_ns isn't wrong by more */
};

struct gh_comm {
  uint64_t hash;
  uint64_t parent;
  int32_t rank;
  int32_t size;
  int32_t device;
  uint32_t state;
  uint32_t made_by;  /* GH_OP_COMM_* */
  uint32_t children; /* splits so far, NOCOLOR included */
  int32_t color;
  uint32_t next_seq;
  uint64_t alias; /* grown with a unique id: the hash that members without the id know it by */
  uint64_t reserved;
};

struct gh_count {
  uint64_t comm; /* 0: free, 1: freed with its communicator */
  uint32_t kind;
  int32_t peer; /* -1 for collectives */
  uint64_t count;
  uint64_t reserved;
};

struct gh_mailbox_header {
  uint64_t seq; /* odd while being written */
  uint32_t version;
  uint32_t crc32;
  uint32_t length; /* bytes of JSON */
  uint32_t pad[11];
};

_Static_assert(sizeof(struct gh_record) == GH_RECORD_BYTES, "record");
_Static_assert(sizeof(struct gh_timing) == GH_RECORD_BYTES, "timing");
_Static_assert(offsetof(struct gh_timing, op) == offsetof(struct gh_record, op), "timing op");
_Static_assert(sizeof(struct gh_inflight) == GH_INFLIGHT_BYTES, "inflight");
_Static_assert(sizeof(struct gh_comm) == GH_COMM_BYTES, "comm");
_Static_assert(sizeof(struct gh_count) == GH_COUNT_BYTES, "count");
_Static_assert(sizeof(struct gh_mailbox_header) == GH_MAILBOX_HEADER_BYTES, "mailbox");
_Static_assert(offsetof(struct gh_header, head) == GH_OFF_HEAD, "head");
_Static_assert(offsetof(struct gh_header, hook_state) == GH_OFF_STATE, "state");
_Static_assert(offsetof(struct gh_header, inflight) == GH_OFF_INFLIGHT, "inflight");
_Static_assert(GH_OFF_COUNTS == GH_OFF_COMMS + GH_COMM_SLOTS * GH_COMM_BYTES, "counts");
_Static_assert(GH_OFF_TARGETS == GH_OFF_COUNTS + GH_COUNT_SLOTS * GH_COUNT_BYTES, "targets");
_Static_assert(GH_OFF_RECORDS == GH_OFF_TARGETS + GH_COUNT_SLOTS * GH_COUNT_BYTES, "records");
_Static_assert(GH_OFF_RECORDS % GH_PAGE_BYTES == 0, "page");

#endif

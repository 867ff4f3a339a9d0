/* internal.h: what the files of libnccl.so.2 share. */
#ifndef GREYHOUND_STANDIN_NCCL_INTERNAL_H
#define GREYHOUND_STANDIN_NCCL_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "private_names.h"
#include "runtime.h"
#include "standin_page.h"

/* Defines pncclX (strong) and ncclX (weak, same address), as NCCL does. */
#define GS_API(result, name, ...)                                                       \
  GS_EXPORT result nccl##name(__VA_ARGS__) __attribute__((weak, alias("pnccl" #name))); \
  GS_EXPORT result pnccl##name(__VA_ARGS__)

#define GS_NONCE_BYTES 16
#define GS_MAX_RANKS 4096

/* What every member knows of every other one. */
struct gs_member {
  char gpu[GHS_NAME_BYTES]; /* its name in the page */
  uint64_t address;         /* of its two listening sockets, see socket.c */
  int32_t rank;
  int32_t device;
  int32_t color; /* in a split */
  int32_t key;
};

struct gs_control {
  pthread_mutex_t lock;
  int listener;
  int wake; /* eventfd, readable once the communicator is aborted */
  int *fds; /* by rank */
  uint32_t round;
};

struct ncclComm {
  uint64_t magic;
  int refs;
  unsigned fork_generation;
  int rank, nranks, device;
  char gpu[GHS_NAME_BYTES]; /* its name in the page */
  uint64_t hash;            /* the same on all members */
  uint32_t children;
  struct gs_member *members; /* by rank */
  int *page_gpu;             /* by rank: index in the page or -1 */

  /* The order of its operations over all streams. */
  pthread_mutex_t issue_lock;
  uint64_t next_ticket; /* guarded by issue_lock */
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t turn;
  uint64_t serving;
  ncclResult_t error; /* asynchronous; ncclInProgress while it is being made */
  char message[256];
  bool stopped; /* no further operation starts */

  /* Data sockets: used by the operation whose turn it is, closed under data_lock. */
  pthread_mutex_t data_lock;
  int listener;
  int wake; /* eventfd, readable once the communicator is stopped */
  int *out_fds, *in_fds;
  struct gs_control control;
  struct ncclComm *next; /* registry, for fork */
};

enum gs_kind {
  GS_ALL_REDUCE,
  GS_REDUCE,
  GS_BROADCAST,
  GS_REDUCE_SCATTER,
  GS_ALL_GATHER,
  GS_ALL_TO_ALL,
  GS_GATHER,
  GS_SCATTER,
  GS_SEND,
  GS_RECV
};

/* How to reduce: a plain operator, avg, or sum of inputs multiplied by a scalar. */
struct gs_redop {
  ncclRedOp_t op;
  bool premul;
  double scalar;
};

/* One call of the user. `count` is that of the NCCL function. */
struct gs_task {
  enum gs_kind kind;
  const char *send;
  char *recv;
  size_t count;
  ncclDataType_t dtype;
  struct gs_redop redop;
  int peer; /* or root */
  ncclComm_t comm;
  cudaStream_t stream;
  struct gs_task *next;
};

/* One message of a batch to or from one peer. */
struct gs_transfer {
  struct gs_transfer *next; /* in the peer's queue */
  int peer;
  size_t bytes, done;
  const char *from;                  /* send */
  const struct gs_transfer *follows; /* send: no further than this receive has come */
  uint64_t ready_ns;                 /* when the last of `done` arrived, modelled */
  char *to;                          /* receive */
  const char *own;                   /* receive: to = op(own, incoming) */
  const struct gs_task *task;
  bool last; /* receive: the reduction is complete here (avg is applied) */
};

/* All messages of one batch, and memory that lives as long as it. */
struct gs_plan {
  struct ncclComm *comm;
  struct gs_transfer **out, **out_tail, **in, **in_tail; /* queues by peer */
  int *peers;                                            /* those with a queue */
  int peer_count;
  void *memory;
  bool failed; /* out of memory */
};

/* error.c */
ncclResult_t gs_error(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *gs_last_message(void);

/* dtype.c */
size_t gs_dtype_bytes(ncclDataType_t dtype);
bool gs_dtype_reduces(ncclDataType_t dtype);

/* reduce.c: dst = op(a, b) on n elements; dst may be a or b. */
void gs_reduce(ncclDataType_t dtype, ncclRedOp_t op, void *dst, const void *a, const void *b,
               size_t n);
void gs_divide(ncclDataType_t dtype, void *data, size_t n, int divisor);
void gs_multiply(ncclDataType_t dtype, void *dst, const void *src, size_t n, double scalar);
double gs_read_scalar(ncclDataType_t dtype, const void *scalar);

/* redop.c */
bool gs_redop_resolve(ncclRedOp_t op, struct gs_redop *resolved);

/* socket.c */
int gs_listen_tcp(uint16_t *port);
int gs_connect_tcp(uint16_t port);
enum gs_channel { GS_DATA, GS_CONTROL };
int gs_listen_local(uint64_t address, enum gs_channel channel);
int gs_connect_local(uint64_t address, enum gs_channel channel, uint64_t nonce, int my_rank);
/* Next waiting connection, -1 if there is none; *rank is who it says it is. */
int gs_accept_local(int listener, uint64_t nonce, int *rank);
uint64_t gs_random(void);
int gs_make_wake(void);
void gs_signal(int wake);
void gs_close(int *fd);
/* Whole buffers on nonblocking sockets; false on error, end of file, or when `wake` is readable. */
bool gs_send_all(int fd, const void *data, size_t bytes, int wake);
bool gs_recv_all(int fd, void *data, size_t bytes, int wake);

/* rendezvous.c: fills members[0..nranks) of a new communicator. */
ncclResult_t gs_rendezvous(const ncclUniqueId *id, int nranks, const struct gs_member *mine,
                           struct gs_member *members, int wake);
uint64_t gs_id_hash(const ncclUniqueId *id);

/* control.c: all-gather of `bytes` bytes among `count` members named by rank (ascending). */
ncclResult_t gs_control_gather(ncclComm_t comm, const int *ranks, int count, const void *mine,
                               size_t bytes, void *all);

/* comm.c */
ncclResult_t gs_comm_check(ncclComm_t comm);
ncclComm_t gs_comm_make(void);
/* Opens the listening sockets and fills in all but rank, color and key. */
ncclResult_t gs_comm_open(ncclComm_t comm, struct gs_member *mine);
/* The members are known; takes ownership of `members` on success. */
ncclResult_t gs_comm_complete(ncclComm_t comm, int rank, int nranks, struct gs_member *members,
                              uint64_t hash);
void gs_comm_ref(ncclComm_t comm);
void gs_comm_unref(ncclComm_t comm);
void gs_comm_fail(ncclComm_t comm, ncclResult_t error, const char *message);
ncclResult_t gs_comm_error(ncclComm_t comm);
void gs_comm_set_error(ncclComm_t comm, ncclResult_t error, const char *message);
void gs_comm_stop(ncclComm_t comm);

/* init.c: jobs that make communicators, also deferred to the end of a group. */
struct gs_init_job {
  ncclComm_t comm;    /* the one being made */
  ncclComm_t *target; /* where the user wants it */
  ncclUniqueId id;
  ncclComm_t parent; /* split, shrink */
  int color, key;
  int *excluded; /* shrink, sorted */
  int excluded_count;
  uint32_t child; /* number of this split on the parent */
  int device;
  bool shrink, blocking;
  ncclResult_t result;
  pthread_t thread;
  struct gs_init_job *next;
};
ncclResult_t gs_init_submit(struct gs_init_job *job);
ncclResult_t gs_init_run_all(struct gs_init_job *jobs); /* at the end of a group */
void gs_init_drop(struct gs_init_job *job);             /* without running it */

/* group.c */
bool gs_in_group(void);
void gs_group_defer_init(struct gs_init_job *job);
ncclResult_t gs_group_add(struct gs_task task);
ncclResult_t gs_group_error(ncclResult_t error); /* the group's end returns it too */

/* batch.c */
ncclResult_t gs_batch_launch(ncclComm_t comm, cudaStream_t stream, const struct gs_task *tasks);

/* plan.c, collectives.c */
void gs_plan_init(struct gs_plan *plan, ncclComm_t comm);
ncclResult_t gs_plan_match_self(struct gs_plan *plan);
void gs_plan_free(struct gs_plan *plan);
void *gs_plan_alloc(struct gs_plan *plan, size_t bytes);  /* zeroed */
void *gs_plan_buffer(struct gs_plan *plan, size_t bytes); /* not zeroed */
struct gs_transfer *gs_plan_send(struct gs_plan *plan, const struct gs_task *task, int peer,
                                 const char *from, size_t bytes, const struct gs_transfer *follows);
struct gs_transfer *gs_plan_recv(struct gs_plan *plan, const struct gs_task *task, int peer,
                                 char *to, size_t bytes);
void gs_plan_task(struct gs_plan *plan, const struct gs_task *task);

/* transport.c: moves everything of the plan; on failure sets the communicator's error. */
ncclResult_t gs_transport_run(struct gs_plan *plan);

/* pace.c: when the next `bytes` of a message may leave, and when they arrive; 0: at once. */
struct gs_pace {
  double bytes_per_s;
  uint64_t latency_ns;
};
struct gs_pace gs_pace_of(ncclComm_t comm, int peer);
size_t gs_pace_piece(struct gs_pace pace, size_t available);
uint64_t gs_pace_reserve(struct gs_pace pace, int from_gpu, int to_gpu, size_t bytes,
                         uint64_t ready_ns);
void gs_pace_after_fork(void);

#endif

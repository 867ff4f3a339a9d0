/* init.c: the ways to make a communicator. Each is a job: run at once, at the end of a group (all
 * jobs of it side by side), or in the background if the communicator is nonblocking. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static uint64_t mix(uint64_t hash, uint64_t value) {
  for (int i = 0; i < 8; i++) hash = (hash ^ ((value >> (8 * i)) & 0xff)) * 0x100000001b3ull;
  return hash;
}

static ncclResult_t run_rank(struct gs_init_job *job, int rank, int nranks) {
  struct gs_member mine, *members = calloc((size_t)nranks, sizeof *members);
  if (members == NULL) return gs_error(ncclSystemError, "out of memory for %d ranks", nranks);
  ncclResult_t result = gs_comm_open(job->comm, &mine);
  mine.rank = rank;
  if (result == ncclSuccess)
    result = gs_rendezvous(&job->id, nranks, &mine, members, job->comm->control.wake);
  if (result == ncclSuccess)
    result = gs_comm_complete(job->comm, rank, nranks, members, gs_id_hash(&job->id));
  if (result != ncclSuccess) free(members);
  return result;
}

static int by_key(const void *a, const void *b) {
  const struct gs_member *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Keeps the members of my colour in their new order; returns how many. */
static int select_members(struct gs_member *all, int count, int color) {
  int kept = 0;
  for (int i = 0; i < count; i++)
    if (all[i].color == color) all[kept++] = all[i];
  qsort(all, (size_t)kept, sizeof *all, by_key);
  return kept;
}

static bool is_excluded(const struct gs_init_job *job, int rank) {
  for (int i = 0; i < job->excluded_count; i++)
    if (job->excluded[i] == rank) return true;
  return false;
}

static int participants(const struct gs_init_job *job, int *ranks) {
  int count = 0;
  for (int i = 0; i < job->parent->nranks; i++)
    if (!is_excluded(job, i)) ranks[count++] = i;
  return count;
}

static ncclResult_t finish_split(struct gs_init_job *job, struct gs_member *all, int count) {
  uint64_t hash = mix(mix(mix(job->parent->hash, job->child), (uint64_t)(uint32_t)job->color),
                      (uint64_t)job->shrink);
  int size = select_members(all, count, job->color), rank = 0;
  while (all[rank].rank != job->parent->rank) rank++;
  return gs_comm_complete(job->comm, rank, size, all, hash);
}

static ncclResult_t run_split(struct gs_init_job *job) {
  size_t n = (size_t)job->parent->nranks;
  struct gs_member mine = {0}, *all = calloc(n, sizeof *all);
  int *ranks = calloc(n, sizeof *ranks);
  ncclResult_t result = all && ranks ? ncclSuccess : gs_error(ncclSystemError, "out of memory");
  if (result == ncclSuccess && job->comm != NULL) result = gs_comm_open(job->comm, &mine);
  if (result == ncclSuccess) {
    mine.rank = job->parent->rank;
    mine.color = job->color;
    mine.key = job->key;
    int count = participants(job, ranks);
    result = gs_control_gather(job->parent, ranks, count, &mine, sizeof mine, all);
    if (result == ncclSuccess && job->comm != NULL) result = finish_split(job, all, count);
  }
  free(ranks);
  if (result != ncclSuccess || job->comm == NULL) free(all);
  return result;
}

static void finish(struct gs_init_job *job) {
  if (job->result != ncclSuccess && job->comm != NULL) {
    gs_comm_set_error(job->comm, job->result, gs_last_message());
    if (job->blocking) gs_comm_unref(job->comm);
  } else if (job->blocking) {
    *job->target = job->comm;
  }
  if (!job->blocking && job->comm != NULL) gs_comm_unref(job->comm);
  if (job->parent != NULL) gs_comm_unref(job->parent);
}

static void free_job(struct gs_init_job *job) {
  free(job->excluded);
  free(job);
}

void gs_init_drop(struct gs_init_job *job) {
  if (job->comm != NULL) gs_comm_unref(job->comm);
  if (job->parent != NULL) gs_comm_unref(job->parent);
  free_job(job);
}

static void run(struct gs_init_job *job) {
  job->result = job->parent != NULL ? run_split(job) : run_rank(job, job->key, job->color);
  finish(job);
}

static void *run_joined(void *job) {
  run(job);
  return NULL;
}

static void *run_detached(void *job) {
  run(job);
  free_job(job);
  return NULL;
}

/* The user holds a nonblocking communicator from the start; the job has a reference of its own. */
static ncclResult_t start_detached(struct gs_init_job *job) {
  if (job->comm != NULL) gs_comm_ref(job->comm);
  *job->target = job->comm;
  if (pthread_create(&job->thread, NULL, run_detached, job) != 0)
    return gs_error(ncclSystemError, "can't start a thread to make a communicator");
  pthread_detach(job->thread);
  return ncclInProgress;
}

ncclResult_t gs_init_run_all(struct gs_init_job *jobs) {
  ncclResult_t result = ncclSuccess;
  struct gs_init_job *joined = NULL;
  for (struct gs_init_job *job = jobs, *next; job != NULL; job = next) {
    next = job->next;
    if (!job->blocking) {
      ncclResult_t started = start_detached(job);
      if (result == ncclSuccess) result = started;
    } else if (pthread_create(&job->thread, NULL, run_joined, job) == 0) {
      job->next = joined;
      joined = job;
    } else {
      result = gs_error(ncclSystemError, "can't start a thread to make a communicator");
    }
  }
  while (joined != NULL) {
    struct gs_init_job *job = joined;
    joined = job->next;
    pthread_join(job->thread, NULL);
    if (job->result != ncclSuccess)
      result = gs_error(job->result, "a communicator of the group couldn't be made");
    free_job(job);
  }
  return result;
}

ncclResult_t gs_init_submit(struct gs_init_job *job) {
  *job->target = NULL;
  if (job->parent != NULL) gs_comm_ref(job->parent);
  if (gs_in_group()) {
    gs_group_defer_init(job);
    return ncclSuccess;
  }
  if (!job->blocking) return start_detached(job);
  run(job);
  ncclResult_t result = job->result;
  free_job(job);
  return result;
}

static bool is_blocking(const ncclConfig_t *config) {
  return config == NULL || config->size < offsetof(ncclConfig_t, cgaClusterSize) ||
         config->blocking != 0;
}

static struct gs_init_job *make_job(ncclComm_t *target, const ncclConfig_t *config,
                                    bool with_comm) {
  struct gs_init_job *job = calloc(1, sizeof *job);
  if (job == NULL) return NULL;
  job->target = target;
  job->blocking = is_blocking(config);
  job->comm = with_comm ? gs_comm_make() : NULL;
  if (!with_comm || job->comm != NULL) return job;
  free(job);
  return NULL;
}

static ncclResult_t check_config(const ncclConfig_t *config) {
  if (config == NULL || config->magic == NCCL_CONFIG_MAGIC) return ncclSuccess;
  return gs_error(ncclInvalidArgument, "the config wasn't set to NCCL_CONFIG_INITIALIZER");
}

static ncclResult_t init_rank(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *config) {
  if (comm == NULL) return gs_error(ncclInvalidArgument, "ncclCommInitRank: comm is NULL");
  if (nranks < 1 || nranks > GS_MAX_RANKS || rank < 0 || rank >= nranks)
    return gs_error(ncclInvalidArgument, "ncclCommInitRank: rank %d of %d ranks", rank, nranks);
  ncclResult_t result = check_config(config);
  if (result != ncclSuccess) return result;
  struct gs_init_job *job = make_job(comm, config, true);
  if (job == NULL) return gs_error(ncclSystemError, "out of memory");
  job->id = *id;
  job->key = rank;
  job->color = nranks;
  return gs_init_submit(job);
}

GS_API(ncclResult_t, CommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  return init_rank(comm, nranks, &id, rank, NULL);
}

GS_API(ncclResult_t, CommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
       ncclConfig_t *config) {
  return init_rank(comm, nranks, &id, rank, config);
}

/* The first id serves all ranks. */
GS_API(ncclResult_t, CommInitRankScalable, ncclComm_t *comm, int nranks, int rank, int id_count,
       ncclUniqueId *ids, ncclConfig_t *config) {
  if (ids == NULL || id_count < 1)
    return gs_error(ncclInvalidArgument, "ncclCommInitRankScalable: no unique id");
  return init_rank(comm, nranks, ids, rank, config);
}

/* As in NCCL, built from the public calls. */
GS_API(ncclResult_t, CommInitAll, ncclComm_t *comms, int count, const int *devices) {
  ncclUniqueId id;
  int before;
  if (comms == NULL || count < 1)
    return gs_error(ncclInvalidArgument, "ncclCommInitAll: %d communicators", count);
  ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) return result;
  cudaGetDevice(&before);
  ncclGroupStart();
  for (int i = 0; i < count && result == ncclSuccess; i++)
    result = cudaSetDevice(devices == NULL ? i : devices[i]) == cudaSuccess
                 ? ncclCommInitRank(&comms[i], count, id, i)
                 : gs_error(ncclUnhandledCudaError, "ncclCommInitAll: no device %d", i);
  ncclResult_t ended = ncclGroupEnd();
  cudaSetDevice(before);
  return result != ncclSuccess ? result : ended;
}

GS_API(ncclResult_t, CommSplit, ncclComm_t comm, int color, int key, ncclComm_t *child,
       ncclConfig_t *config) {
  ncclResult_t result = gs_comm_check(comm);
  if (result == ncclSuccess) result = check_config(config);
  if (result != ncclSuccess) return result;
  if (child == NULL || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
    return gs_error(ncclInvalidArgument,
                    "ncclCommSplit: color %d (0 or more, or NCCL_SPLIT_NOCOLOR)", color);
  struct gs_init_job *job = make_job(child, config, color != NCCL_SPLIT_NOCOLOR);
  if (job == NULL) return gs_error(ncclSystemError, "out of memory");
  job->parent = comm;
  job->color = color;
  job->key = key;
  job->child = comm->children++;
  return gs_init_submit(job);
}

GS_API(ncclResult_t, CommShrink, ncclComm_t comm, int *excluded, int excluded_count,
       ncclComm_t *child, ncclConfig_t *config, int flags) {
  ncclResult_t result = flags & NCCL_SHRINK_ABORT ? ncclSuccess : gs_comm_check(comm);
  if (result == ncclSuccess) result = check_config(config);
  if (result != ncclSuccess) return result;
  if (comm == NULL || child == NULL || excluded == NULL || excluded_count < 1)
    return gs_error(ncclInvalidArgument, "ncclCommShrink: %d excluded ranks", excluded_count);
  if (flags & NCCL_SHRINK_ABORT) gs_comm_stop(comm);
  struct gs_init_job *job = make_job(child, config, true);
  if (job == NULL) return gs_error(ncclSystemError, "out of memory");
  job->excluded = malloc((size_t)excluded_count * sizeof *excluded);
  if (job->excluded == NULL) return gs_error(ncclSystemError, "out of memory");
  memcpy(job->excluded, excluded, (size_t)excluded_count * sizeof *excluded);
  job->excluded_count = excluded_count;
  job->parent = comm;
  job->shrink = true;
  job->child = comm->children++;
  if (!is_excluded(job, comm->rank)) return gs_init_submit(job);
  gs_comm_unref(job->comm);
  free_job(job);
  return gs_error(ncclInvalidArgument, "ncclCommShrink: rank %d is excluded itself", comm->rank);
}

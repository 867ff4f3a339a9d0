/* env.c: the one table of environment variables that the hook reads. */
#include <stdlib.h>

#include "hook.h"

static const char *const names[GH_ENV_COUNT] = {
    [GH_ENV_DIR] = "GREYHOUND_DIR",                   /* step directory; unset: inert */
    [GH_ENV_NODE_INDEX] = "GREYHOUND_NODE_INDEX",     /* node's index in the step */
    [GH_ENV_NCCL_LIB] = "GREYHOUND_NCCL_LIB",         /* the NCCL to forward to */
    [GH_ENV_RING_RECORDS] = "GREYHOUND_RING_RECORDS", /* record slots */
    [GH_ENV_RANK] = "RANK",                           /* torchrun */
    [GH_ENV_LOCAL_RANK] = "LOCAL_RANK",               /* torchrun */
    [GH_ENV_OMPI_RANK] = "OMPI_COMM_WORLD_RANK",      /* mpirun */
    [GH_ENV_SLURM_PROCID] = "SLURM_PROCID",           /* srun */
    [GH_ENV_SLURM_LOCALID] = "SLURM_LOCALID",         /* srun */
};

const char *gh_env_name(enum gh_env which) { return names[which]; }

const char *gh_env_text(enum gh_env which) {
  const char *text = getenv(names[which]);
  return text && *text ? text : NULL;
}

/* Digits alone; strtol would bring a symbol newer than GLIBC_2.17 where glibc is new. */
long gh_env_number(enum gh_env which, long otherwise) {
  const char *text = gh_env_text(which);
  if (!text) return otherwise;
  long value = 0;
  for (; *text; text++) {
    if (*text < '0' || *text > '9' || value > 100000000) return otherwise;
    value = value * 10 + (*text - '0');
  }
  return value;
}

/* RANK; else the launcher's own number. mpirun's before Slurm's: mpirun inside a batch script hands
 * the script's one SLURM_PROCID to all its ranks. */
int32_t gh_env_world_rank(void) {
  long rank = gh_env_number(GH_ENV_RANK, -1);
  if (rank < 0) rank = gh_env_number(GH_ENV_OMPI_RANK, -1);
  if (rank < 0) rank = gh_env_number(GH_ENV_SLURM_PROCID, -1);
  return (int32_t)rank;
}

int32_t gh_env_local_rank(void) {
  long rank = gh_env_number(GH_ENV_LOCAL_RANK, -1);
  return (int32_t)(rank >= 0 ? rank : gh_env_number(GH_ENV_SLURM_LOCALID, -1));
}

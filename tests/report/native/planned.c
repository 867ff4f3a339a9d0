/* planned.c: a training whose iterations take what they are told, one rank a task of a step.
 *
 *   planned FOLDER ITERATIONS MILLISECONDS [FROM TO PERCENT]
 *
 * The ranks meet in FOLDER; rank 0 leaves there the end of each iteration (ns since the epoch).
 * Iterations FROM to TO - 1 take PERCENT of the usual time. A run that is repeated (requeued) meets
 * in a file of its own. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                            \
  do {                                                         \
    int code_ = (int)(call);                                   \
    if (code_ != 0) {                                          \
      fprintf(stderr, "planned: %s: code %d\n", #call, code_); \
      exit(7);                                                 \
    }                                                          \
  } while (0)

static const size_t COUNTS[] = {32, 64, 96, 2};

static void path_of(char *path, const char *folder, const char *name) {
  const char *restart = getenv("SLURM_RESTART_COUNT"), *task = getenv("SLURM_ARRAY_TASK_ID");
  snprintf(path, 4096, "%s/%s.%s.%s", folder, name, task ? task : "0", restart ? restart : "0");
}

static ncclUniqueId meet(const char *folder, int rank) {
  char path[4096], draft[4104];
  ncclUniqueId id;
  FILE *file;
  path_of(path, folder, "id");
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&id));
    snprintf(draft, sizeof(draft), "%s.new", path);
    file = fopen(draft, "w");
    if (!file || fwrite(&id, sizeof(id), 1, file) != 1 || fclose(file) || rename(draft, path))
      exit(8);
    return id;
  }
  while (!(file = fopen(path, "r"))) usleep(2000);
  if (fread(&id, sizeof(id), 1, file) != 1) exit(8);
  fclose(file);
  return id;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  int rank = atoi(getenv("SLURM_PROCID")), size = atoi(getenv("SLURM_NTASKS"));
  long iterations = atol(argv[2]), usual_us = atol(argv[3]) * 1000;
  long from = argc > 6 ? atol(argv[4]) : -1, to = argc > 6 ? atol(argv[5]) : -1;
  long percent = argc > 6 ? atol(argv[6]) : 100;
  float values[96] = {0};
  char path[4096];
  ncclComm_t comm;
  cudaStream_t stream;

  CHECK(cudaSetDevice(0));
  CHECK(cudaStreamCreate(&stream));
  CHECK(ncclCommInitRank(&comm, size, meet(argv[1], rank), rank));
  path_of(path, argv[1], "ends");
  FILE *ends = rank == 0 ? fopen(path, "w") : NULL;
  if (rank == 0 && !ends) return 8;
  for (long i = 0; i < iterations; i++) {
    struct timespec now;
    for (size_t call = 0; call < sizeof(COUNTS) / sizeof(COUNTS[0]); call++) {
      CHECK(ncclAllReduce(values, values, COUNTS[call], ncclFloat32, ncclSum, comm, stream));
      CHECK(cudaStreamSynchronize(stream));
    }
    usleep((useconds_t)(i >= from && i < to ? usual_us * percent / 100 : usual_us));
    clock_gettime(CLOCK_REALTIME, &now);
    if (ends) {
      fprintf(ends, "%lld\n", (long long)now.tv_sec * 1000000000LL + now.tv_nsec);
      fflush(ends);
    }
  }
  if (ends) fclose(ends);
  CHECK(ncclCommDestroy(comm));
  return 0;
}

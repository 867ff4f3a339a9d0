/* train.c: a small data-parallel training (three layers of linear regression) over NCCL, one rank a
 * task of a step.
 *
 *   train FOLDER ITERATIONS MILLISECONDS [MIB]
 *
 * The ranks meet in FOLDER (the id of the communicator), leave their pid there, and rank 0 its
 * losses, every bit. They stop after ITERATIONS, or together once FOLDER/enough exists. With MIB
 * each takes that much memory after iteration 50. Like a training that saves its state, it goes on
 * after TERM once FOLDER/stubborn exists. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAYERS 3
#define WIDEST 96
#define BATCH 8

#define CHECK(call)                                          \
  do {                                                       \
    int code_ = (int)(call);                                 \
    if (code_ != 0) {                                        \
      fprintf(stderr, "train: %s: code %d\n", #call, code_); \
      exit(7);                                               \
    }                                                        \
  } while (0)

static const int WIDTH[LAYERS] = {32, 64, WIDEST};

static const char *in_folder(const char *folder, const char *name, int number) {
  static char path[4096];
  snprintf(path, sizeof(path), number < 0 ? "%s/%s" : "%s/%s.%d", folder, name, number);
  return path;
}

static void leave(const char *path, const void *content, size_t size) {
  char draft[4200];
  snprintf(draft, sizeof(draft), "%s.new", path);
  FILE *file = fopen(draft, "w");
  if (!file || fwrite(content, 1, size, file) != size || fclose(file) || rename(draft, path))
    exit(8);
}

static ncclUniqueId meet(const char *folder, int rank) {
  ncclUniqueId id;
  FILE *file;
  const char *path = in_folder(folder, "id", -1);
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&id));
    leave(path, &id, sizeof(id));
    return id;
  }
  while (!(file = fopen(path, "r"))) usleep(2000);
  if (fread(&id, sizeof(id), 1, file) != 1) exit(8);
  fclose(file);
  return id;
}

static float noise(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / (float)(1 << 23) - 1.0f;
}

/* Gradient of one layer on this rank's own batch; the layer's loss. */
static float backward(const float *weights, float *gradient, int width, unsigned seed) {
  float loss = 0;
  memset(gradient, 0, sizeof(float) * (size_t)width);
  for (int row = 0; row < BATCH; row++) {
    float x[WIDEST], error = 0;
    for (int i = 0; i < width; i++) {
      x[i] = noise(&seed);
      error += (weights[i] - (float)(i % 7)) * x[i];
    }
    loss += error * error;
    for (int i = 0; i < width; i++) gradient[i] += error * x[i] / (float)width;
  }
  return loss;
}

static void take_memory(long mib) {
  for (long i = 0; i < mib; i++) {
    char *page = malloc(1 << 20);
    if (!page) exit(9);
    memset(page, 1, 1 << 20);
    usleep(500);
  }
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  const char *folder = argv[1];
  int rank = atoi(getenv("SLURM_PROCID")), size = atoi(getenv("SLURM_NTASKS"));
  useconds_t step_us = (useconds_t)atoi(argv[3]) * 1000u;
  float weights[LAYERS][WIDEST] = {{0}}, gradient[WIDEST], shared[2];
  ncclComm_t comm;
  cudaStream_t stream;
  char pid[16];

  if (access(in_folder(folder, "stubborn", -1), F_OK) == 0) signal(SIGTERM, SIG_IGN);
  leave(in_folder(folder, "pid", rank), pid,
        (size_t)snprintf(pid, sizeof(pid), "%d", (int)getpid()));
  while (access(in_folder(folder, "hold", -1), F_OK) == 0) usleep(5000);
  ncclUniqueId id = meet(folder, rank);
  CHECK(cudaSetDevice(0));
  CHECK(cudaStreamCreate(&stream));
  CHECK(ncclCommInitRank(&comm, size, id, rank));
  FILE *losses = rank == 0 ? fopen(in_folder(folder, "losses", -1), "w") : NULL;
  for (int step = 0; step < atoi(argv[2]); step++) {
    shared[0] = 0;
    shared[1] = rank == 0 && access(in_folder(folder, "enough", -1), F_OK) == 0;
    for (int layer = 0; layer < LAYERS; layer++) {
      unsigned seed = (unsigned)(step * 1000 + layer * 100 + rank);
      shared[0] += backward(weights[layer], gradient, WIDTH[layer], seed);
      CHECK(ncclAllReduce(gradient, gradient, (size_t)WIDTH[layer], ncclFloat32, ncclSum, comm,
                          stream));
      CHECK(cudaStreamSynchronize(stream));
      for (int i = 0; i < WIDTH[layer]; i++) weights[layer][i] -= 0.01f * gradient[i];
    }
    CHECK(ncclAllReduce(shared, shared, 2, ncclFloat32, ncclSum, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (losses) fprintf(losses, "%d %a\n", step, (double)shared[0]);
    if (shared[1] > 0) break;
    if (argc > 4 && step == 50) take_memory(atol(argv[4]));
    usleep(step_us);
  }
  if (losses) fclose(losses);
  CHECK(ncclCommDestroy(comm));
  return 0;
}

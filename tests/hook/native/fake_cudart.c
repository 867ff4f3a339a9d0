/* fake_cudart.c: capture and graph functions of the CUDA runtime; one capture at a time. Symbols
 * carry a version, as the real library's do.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *capturing;
static unsigned long long captures;
static char graphs[16], execs[16];
static int graph_count, exec_count;
static int launches;

/* As the driver's first use may: runs a helper program. */
static void *run_helper(void *child_returns) {
  pid_t child = fork();
  if (!child) {
    if (child_returns) return NULL;
    execl("/bin/true", "true", (char *)NULL);
    _exit(1);
  }
  waitpid(child, NULL, 0);
  return NULL;
}
static void fork_if_wanted(void) {
  static int done;
  const char *who = getenv("FAKE_FORK");
  pthread_t thread;
  if (!who || done++) return;
  if (!strcmp(who, "caller")) run_helper(NULL);
  if (!strcmp(who, "child-returns")) run_helper(&done);
  if (!strcmp(who, "thread") && !pthread_create(&thread, NULL, run_helper, NULL))
    pthread_join(thread, NULL);
}
int cudaGetDevice(int *device) {
  fork_if_wanted();
  *device = 1;
  return 0;
}
int cudaDeviceGetPCIBusId(char *out, int bytes, int device) {
  return snprintf(out, (size_t)bytes, "0000:%02X:00.0", 0x3b + device) < 0;
}
int cudaStreamBeginCapture(void *stream, int mode) {
  (void)mode;
  capturing = stream;
  captures++;
  return 0;
}
#ifdef WITHOUT_CAPTURE_ID
int cudaStreamIsCapturing(void *stream, int *status) {
  *status = capturing && capturing == stream;
  return 0;
}
#else
int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                void *dependencies, void *count) {
  (void)dependencies, (void)count;
  *status = capturing && capturing == stream;
  if (id) *id = captures;
  if (graph) *graph = NULL;
  return 0;
}
#endif
int cudaStreamEndCapture(void *stream, void **graph) {
  (void)stream;
  capturing = NULL;
  *graph = &graphs[graph_count++];
  return 0;
}
int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags) {
  (void)graph;
  *exec = &execs[exec_count++];
  return flags == 5 ? 0 : 1;
}
int cudaGraphExecUpdate(void *exec, void *graph, void *info) {
  (void)exec, (void)graph, (void)info;
  return 0;
}
int cudaGraphLaunch(void *exec, void *stream) {
  (void)exec, (void)stream;
  launches++;
  return 0;
}
int cudaGraphExecDestroy(void *exec) { return !exec; }
int cudaGraphDestroy(void *graph) { return !graph; }
int fake_launches(void) { return launches; }
int fake_graphs(void) { return graph_count; }

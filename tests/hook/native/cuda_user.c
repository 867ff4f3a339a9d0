/* cuda_user.c: a library that is linked to a CUDA runtime: run() captures and launches a graph and
 * tells how many of its calls its own runtime saw.
 */
#include <stdio.h>

int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);
int cudaGraphInstantiate(void **, void *, unsigned long long);
int cudaGraphLaunch(void *, void *);
int fake_launches(void);
int fake_graphs(void);

int run(int argc, char **argv) {
  void *graph, *exec, *stream = (void *)0x10;
  (void)argc, (void)argv;
  if (cudaStreamBeginCapture(stream, 0) || cudaStreamEndCapture(stream, &graph)) return 3;
  if (cudaGraphInstantiate(&exec, graph, 5) || cudaGraphLaunch(exec, stream)) return 4;
  printf("%d %d\n", fake_graphs(), fake_launches());
  return fflush(stdout);
}

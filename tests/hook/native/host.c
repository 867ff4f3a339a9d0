/* host.c: loads LIBRARY (argv[1]) RTLD_LOCAL, as Python loads torch, and calls its run(). */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 5;
  int (*run)(int, char **) = (int (*)(int, char **))dlsym(library, "run");
  return run ? run(argc - 1, argv + 1) : 6;
}

/* page.c: read-only view of the shared page of speeds and links (standin_page.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"
#include "standin_page.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const volatile struct ghs_page *page; /* NULL: all speeds 1, no link limited */

static const void *map_page(const char *path, const char **why) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    *why = strerror(errno);
    return NULL;
  }
  struct stat status;
  void *at = MAP_FAILED;
  if (fstat(fd, &status) == 0 && status.st_size >= GHS_FILE_BYTES)
    at = mmap(NULL, GHS_FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) {
    *why = "shorter than the page's 73728 bytes";
    return NULL;
  }
  const struct ghs_page *candidate = at;
  if (candidate->magic == GHS_MAGIC && candidate->version == GHS_VERSION) return at;
  munmap(at, GHS_FILE_BYTES);
  *why = "wrong magic or version";
  return NULL;
}

static void open_page(void) {
  const char *path = getenv("GREYHOUND_STANDIN_PAGE");
  if (path == NULL || *path == '\0') return;
  const char *why = "";
  page = map_page(path, &why);
  if (page == NULL)
    fprintf(stderr,
            "greyhound stand-in: GREYHOUND_STANDIN_PAGE=%s: %s; "
            "every GPU has speed 1 and no link is limited\n",
            path, why);
}

static const volatile struct ghs_page *get_page(void) {
  pthread_once(&once, open_page);
  return page;
}

static int gpu_count(const volatile struct ghs_page *p) {
  return p->gpu_count < GHS_MAX_GPUS ? (int)p->gpu_count : GHS_MAX_GPUS;
}

int gs_page_find(const char *name) {
  const volatile struct ghs_page *p = get_page();
  if (p == NULL) return -1;
  for (int i = 0; i < gpu_count(p); i++)
    if (strncmp((const char *)p->gpus[i].name, name, GHS_NAME_BYTES) == 0) return i;
  return -1;
}

double gs_page_speed(int gpu) {
  const volatile struct ghs_page *p = get_page();
  double speed = p == NULL || gpu < 0 ? 1.0 : p->gpus[gpu].speed;
  return speed > 0 ? speed : 1.0;
}

void gs_page_link(int from, int to, double *bytes_per_s, double *latency_s) {
  const volatile struct ghs_page *p = get_page();
  *bytes_per_s = *latency_s = 0;
  if (p == NULL || from < 0 || to < 0) return;
  double rate = p->links[from][to].bytes_per_s, latency = p->links[from][to].latency_s;
  if (rate > 0) *bytes_per_s = rate;
  if (latency > 0) *latency_s = latency;
}

/* Looked up once, on a host thread: the environment may change under a worker's feet. */
static pthread_once_t node_once = PTHREAD_ONCE_INIT;
static char node[GHS_NAME_BYTES - 8];

static void find_node(void) {
  const char *name = getenv("GREYHOUND_STANDIN_NODE");
  if (name == NULL || *name == '\0') name = getenv("SLURMD_NODENAME");
  snprintf(node, sizeof node, "%s", name == NULL || *name == '\0' ? "localhost" : name);
}

static const char *node_name(void) {
  pthread_once(&node_once, find_node);
  return node;
}

void gs_gpu_name(int device, char *name) {
  snprintf(name, GHS_NAME_BYTES, "%s:%d", node_name(), gs_physical_device(device) & 0xffff);
}

int gs_page_gpus_of_node(int *indices) {
  const volatile struct ghs_page *p = get_page();
  if (p == NULL) return -1;
  int found = 0;
  size_t length = strlen(node_name());
  for (int i = 0; i < gpu_count(p); i++) {
    const char *name = (const char *)p->gpus[i].name;
    if (strncmp(name, node_name(), length) == 0 && name[length] == ':')
      indices[found++] = atoi(name + length + 1);
  }
  return found;
}

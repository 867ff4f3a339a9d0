/* device.c: devices as CUDA_VISIBLE_DEVICES shows them, and what a fork does to them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"
#include "standin_page.h"

#define DEFAULT_DEVICES 8 /* without a page and without CUDA_VISIBLE_DEVICES */

unsigned gs_fork_generation = 1;
static __thread int current_device;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int physical[GS_MAX_DEVICES];
static int device_count;

static bool exists(int index, const int *all, int count) {
  if (count < 0) return index >= 0 && index < GS_MAX_DEVICES;
  for (int i = 0; i < count; i++)
    if (all[i] == index) return true;
  return false;
}

/* Like CUDA, ends at the first entry that names no GPU. */
static void parse_visible(const char *text, const int *all, int count) {
  while (device_count < GS_MAX_DEVICES) {
    char *end;
    long index = strtol(text, &end, 10);
    if (end == text || !exists((int)index, all, count)) return;
    physical[device_count++] = (int)index;
    while (*end == ' ') end++;
    if (*end != ',') return;
    text = end + 1;
  }
}

static void find_devices(void) {
  int all[GHS_MAX_GPUS];
  int count = gs_page_gpus_of_node(all);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible != NULL) {
    parse_visible(visible, all, count);
    return;
  }
  device_count = count < 0 ? DEFAULT_DEVICES : count;
  for (int i = 0; i < device_count; i++) physical[i] = count < 0 ? i : all[i];
}

static int get_device_count(void) {
  pthread_once(&once, find_devices);
  return device_count;
}

static void in_child(void) {
  gs_fork_generation++;
  gs_stream_forget_all();
  gs_capture_after_fork();
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

unsigned gs_forks(void) { return gs_fork_generation; }

int gs_current_device(void) { return current_device; }

int gs_physical_device(int device) {
  return device >= 0 && device < get_device_count() ? physical[device] : device;
}

int gs_page_gpu(int device) {
  char name[GHS_NAME_BYTES];
  gs_gpu_name(device, name);
  return gs_page_find(name);
}

GS_EXPORT double standinGpuSpeed(void) { return gs_page_speed(gs_page_gpu(current_device)); }

GS_EXPORT cudaError_t cudaGetDeviceCount(int *count) {
  if (count == NULL) return gs_fail(cudaErrorInvalidValue);
  *count = get_device_count();
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaGetDevice(int *device) {
  if (device == NULL) return gs_fail(cudaErrorInvalidValue);
  *device = current_device;
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= get_device_count()) return gs_fail(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaDeviceGetPCIBusId(char *bus_id, int len, int device) {
  if (bus_id == NULL || len < 13) return gs_fail(cudaErrorInvalidValue);
  if (device < 0 || device >= get_device_count()) return gs_fail(cudaErrorInvalidDevice);
  snprintf(bus_id, (size_t)len, "0000:%02X:00.0", (unsigned)(physical[device] + 1) & 0xff);
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaDeviceSynchronize(void) { return gs_fail(gs_stream_sync_all()); }

GS_EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
  if (version == NULL) return gs_fail(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

GS_EXPORT cudaError_t cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }

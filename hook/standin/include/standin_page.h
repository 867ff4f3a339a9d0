/* standin_page.h: the shared page that tells the stand-in how fast each GPU and link is.
 *
 * The sandbox or `greyhound launch --standin` makes the file (named by GREYHOUND_STANDIN_PAGE);
 * `greyhound inject` changes it while jobs run; the stand-in maps it read-only and reads the
 * values anew for every operation. Python parses the plain `#define GHS_NAME NUMBER` lines:
 * keep every such line a single integer literal. Little endian.
 */
#ifndef GREYHOUND_STANDIN_PAGE_H
#define GREYHOUND_STANDIN_PAGE_H

#include <stddef.h>
#include <stdint.h>

#define GHS_MAGIC 0x3130454741504847 /* "GHPAGE01" */
#define GHS_VERSION 1
#define GHS_MAX_GPUS 64
#define GHS_NAME_BYTES 48 /* "NODE:INDEX", NUL-terminated; INDEX is the physical index */

/* header */
#define GHS_OFF_MAGIC 0       /* u64, stored last by the maker */
#define GHS_OFF_VERSION 8     /* u32 */
#define GHS_OFF_GPU_COUNT 12  /* u32 */
#define GHS_OFF_GENERATION 16 /* u64, add one after every change */
#define GHS_OFF_STORAGE_S 24  /* double: checkpoints take so much longer */
#define GHS_OFF_GPUS 4096
#define GHS_GPU_BYTES 64
#define GHS_GPU_OFF_NAME 0
#define GHS_GPU_OFF_SPEED 48   /* double, 1.0 = healthy; <= 0 counts as 1.0 */
#define GHS_GPU_OFF_INPUT_S 56 /* double: data comes so much later; trainings read both */
/* link of GPU i to GPU j at GHS_OFF_LINKS + (i * GHS_MAX_GPUS + j) * GHS_LINK_BYTES */
#define GHS_OFF_LINKS 8192
#define GHS_LINK_BYTES 16
#define GHS_LINK_OFF_BYTES_PER_S 0 /* double, 0 = unlimited */
#define GHS_LINK_OFF_LATENCY_S 8   /* double, added once per message */
#define GHS_FILE_BYTES 73728

struct ghs_gpu {
  char name[GHS_NAME_BYTES];
  double speed;
  double input_s;
};

struct ghs_link {
  double bytes_per_s;
  double latency_s;
};

struct ghs_page {
  uint64_t magic;
  uint32_t version;
  uint32_t gpu_count;
  uint64_t generation;
  double storage_s;
  uint8_t pad0[GHS_OFF_GPUS - 32];
  struct ghs_gpu gpus[GHS_MAX_GPUS];
  struct ghs_link links[GHS_MAX_GPUS][GHS_MAX_GPUS];
};

#ifndef __cplusplus
_Static_assert(sizeof(struct ghs_gpu) == GHS_GPU_BYTES, "gpu");
_Static_assert(sizeof(struct ghs_link) == GHS_LINK_BYTES, "link");
_Static_assert(offsetof(struct ghs_gpu, speed) == GHS_GPU_OFF_SPEED, "speed");
_Static_assert(offsetof(struct ghs_gpu, input_s) == GHS_GPU_OFF_INPUT_S, "input");
_Static_assert(offsetof(struct ghs_page, storage_s) == GHS_OFF_STORAGE_S, "storage");
_Static_assert(offsetof(struct ghs_page, gpus) == GHS_OFF_GPUS, "gpus");
_Static_assert(offsetof(struct ghs_page, links) == GHS_OFF_LINKS, "links");
_Static_assert(sizeof(struct ghs_page) == GHS_FILE_BYTES, "page");
#endif

#endif

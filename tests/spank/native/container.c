/* A container plugin as pyxis is one, in the little that matters to others: in task_init the task
 * gets mounts of its own and, where the step's environment says so, another root and variables.
 *
 *   CONTAINER=/dev/shm   a tmpfs of its own there        CONTAINER=ROOT   the same, in ROOT
 *   CONTAINER_PRELOAD=X  LD_PRELOAD as the image has it
 */
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

SPANK_PLUGIN(container, 1)

static int enter(const char *root) {
  char shm[4096], proc[4096];
  snprintf(shm, sizeof(shm), "%s/dev/shm", root);
  snprintf(proc, sizeof(proc), "%s/proc", root);
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return -1;
  if (mount("tmpfs", shm, "tmpfs", 0, NULL)) return -1;
  if (!root[0]) return 0;
  if (mount("proc", proc, "proc", 0, NULL)) return -1;
  return chroot(root) || chdir("/") ? -1 : 0;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv) {
  char root[2048], preload[2048];
  (void)argc, (void)argv;
  if (spank_getenv(spank, "CONTAINER", root, sizeof(root)) != ESPANK_SUCCESS) return 0;
  if (strcmp(root, "/dev/shm") == 0) root[0] = '\0';
  if (enter(root)) slurm_spank_log("container: no way into \"%s\": %m", root);
  if (spank_getenv(spank, "CONTAINER_PRELOAD", preload, sizeof(preload)) == ESPANK_SUCCESS)
    spank_setenv(spank, "LD_PRELOAD", preload, 1);
  return 0;
}

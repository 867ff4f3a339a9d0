/* A task's root, where another plugin (pyxis and the like) has given it one of its own before
 * us: whether our hook can be loaded there. No Slurm types. */
#ifndef GREYHOUND_ROOT_H
#define GREYHOUND_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Which root and mounts a process has. */
struct gh_root {
  dev_t device, namespace_device;
  ino_t inode, namespace_inode;
};

struct gh_root gh_root_here(void);
bool gh_root_is_same(const struct gh_root *a, const struct gh_root *b);

/* Whether the root that we are in has HOOK and its own loader takes it, with the rights that we
 * have, in about 1 s. 0, or -1 with the reason and its mend in WHY. */
int gh_root_check(const char *hook, char *why, size_t size);

#endif

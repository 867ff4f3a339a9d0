/* Rings of tasks that have a root or a /dev/shm of their own (a container): they are not in
 * the step directory that we made. The same rule as greyhound/control/rings.py. */
#ifndef GREYHOUND_RINGS_H
#define GREYHOUND_RINGS_H

#include <stdbool.h>

/* Whether PATH, an absolute one, holds a ring as the process PID sees it; PROC is an open
 * /proc. Only real directories of the effective user count: a link in a container is never
 * followed, as it might lead out of its root. */
bool gh_process_has_ring(int proc, const char *pid, const char *path);

/* Whether the open directory FD holds a ring. Takes over FD. */
bool gh_folder_has_ring(int fd);

#endif

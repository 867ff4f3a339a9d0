/* The step directory (docs/interfaces.md 1): made, read and removed safely in the
 * world-writable /dev/shm. No Slurm types: the waiter uses it too. */
#ifndef GREYHOUND_STEPDIR_H
#define GREYHOUND_STEPDIR_H

#include <stddef.h>
#include <sys/types.h>

#define GH_NOTE_NAME "unmonitored" /* one line: why this node is not monitored */
#define GH_LOG_NAME "node.log"     /* stdout and stderr of the node process */

/* Makes PATH anew as UID (the caller's effective uid), 0700, and returns a locked
 * descriptor of it; its lock says that the step lives. A directory that a dead step
 * of the same user left behind is replaced. Anything else that is in the way gives
 * -1 with *WHY set. */
int gh_stepdir_make(const char *path, uid_t uid, const char **why);

/* Opens PATH if it is a real directory of UID; else -1. */
int gh_stepdir_open(const char *path, uid_t uid);

/* Empties and removes PATH, a directory of the effective user. 0 when it is gone. */
int gh_stepdir_remove(const char *path);

/* Removes step directories of the effective user in FOLDER that nobody has locked, nor changed
 * for a minute: their steps were killed with all that would have tidied up. */
void gh_stepdir_sweep(const char *folder);

/* The last non-empty line of FILE in PATH, printable characters only, into LINE.
 * Safe for root: nothing but a regular file of UID is read. 0 where there is one. */
int gh_stepdir_last_line(const char *path, uid_t uid, const char *file, char *line, size_t size);

#endif

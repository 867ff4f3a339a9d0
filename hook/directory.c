/* directory.c: the step directory, in which the ring is made. The plugin makes it; in a container
 * with a /dev/shm of its own it isn't there, and the hook makes one for a reader to find through
 * /proc/PID/root. Whatever the way, a directory that isn't this user's alone is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hook.h"

#define OPENED_ALONE (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* By number: fstat() itself is GLIBC_2.33 where glibc is new. */
static bool examine(int fd, struct stat *st) { return !syscall(SYS_fstat, fd, st); }

/* The folder part of a path; "." where it has none. */
static bool parent_of(const char *path, char *out, size_t room) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  while (length && path[length - 1] != '/') length--;
  while (length > 1 && path[length - 1] == '/') length--;
  if (!length) return room > 1 && strcpy(out, ".");
  if (length >= room) return false;
  memcpy(out, path, length);
  out[length] = 0;
  return true;
}

/* Only where nobody else can put something in its place: sticky, or writable for this user alone.
 */
static const char *may_hold(const char *parent) {
  struct stat st;
  int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool known = fd >= 0 && examine(fd, &st);
  int error = errno;
  if (fd >= 0) close(fd);
  if (!known) return strerror(error);
  if (st.st_mode & S_ISVTX || (st.st_uid == geteuid() && !(st.st_mode & 022))) return NULL;
  return "that is neither sticky nor this user's alone";
}

static const char *make(const char *path) {
  char parent[PATH_MAX];
  if (!parent_of(path, parent, sizeof parent)) return gh_reason("too long a path: %s", path);
  const char *refused = may_hold(parent);
  if (!refused && mkdir(path, 0700) && errno != EEXIST) refused = strerror(errno);
  if (!refused) return NULL; /* made, if only by another rank */
  return gh_reason("no step directory %s here, and none can be made in %s: %s", path, parent,
                   refused);
}

static const char *not_opened(const char *path) {
  if (errno == ELOOP || errno == ENOTDIR)
    return gh_reason("not a directory of its own: %s: %s", path, strerror(errno));
  return gh_reason("can't open %s: %s", path, strerror(errno));
}

int gh_directory_open(const char *path, const char **reason) {
  struct stat st;
  int fd = open(path, OPENED_ALONE);
  if (fd < 0 && errno == ENOENT) {
    if ((*reason = make(path))) return -1;
    fd = open(path, OPENED_ALONE);
  }
  if (fd < 0) {
    *reason = not_opened(path);
    return -1;
  }
  /* the set-group-ID bit may come from the parent, and gives nobody anything */
  if (!examine(fd, &st)) {
    *reason = gh_reason("can't examine %s: %s", path, strerror(errno));
  } else if (st.st_uid != geteuid() || (st.st_mode & 05777) != 0700) {
    *reason = gh_reason("%s must belong to uid %u with mode 0700; it is uid %u, mode %04o", path,
                        (unsigned)geteuid(), (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
  } else {
    return fd;
  }
  close(fd);
  return -1;
}

/* At the exit: whoever keeps the directory has it locked (the plugin's waiter, a launch) and
 * removes it. One that nobody keeps, as in a container, is left as it was found. */
void gh_directory_tidy(const char *path, const char *ring_name) {
  struct stat st;
  int fd = open(path, OPENED_ALONE);
  if (fd < 0) return;
  bool own = examine(fd, &st) && st.st_uid == geteuid();
  if (own && !flock(fd, LOCK_SH | LOCK_NB) && !unlinkat(fd, ring_name, 0)) rmdir(path);
  close(fd);
}

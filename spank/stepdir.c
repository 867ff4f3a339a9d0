#include "stepdir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEEPEST 4 /* our own tree is two levels deep */
#define TAIL_BYTES 4096
#define OLD_S 60

#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

int gh_stepdir_open(const char *path, uid_t uid) {
  struct stat st;
  int fd = open(path, OPEN_FOLDER);
  if (fd < 0) return -1;
  if (fstat(fd, &st) == 0 && st.st_uid == uid) return fd;
  close(fd);
  return -1;
}

/* Unlinks everything below FD without following links. Takes over FD. */
static void empty(int fd, int depth) {
  DIR *folder = fdopendir(fd);
  if (!folder) {
    close(fd);
    return;
  }
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (unlinkat(fd, entry->d_name, 0) == 0 || depth >= DEEPEST) continue;
    int below = openat(fd, entry->d_name, OPEN_FOLDER);
    if (below >= 0) empty(below, depth + 1);
    unlinkat(fd, entry->d_name, AT_REMOVEDIR);
  }
  closedir(folder);
}

int gh_stepdir_remove(const char *path) {
  int fd = gh_stepdir_open(path, geteuid());
  if (fd < 0) return errno == ENOENT ? 0 : -1;
  empty(fd, 0);
  return rmdir(path);
}

static int lock_new(const char *path, uid_t uid, const char **why) {
  int fd = gh_stepdir_open(path, uid);
  if (fd < 0 || fchmod(fd, 0700) || flock(fd, LOCK_EX | LOCK_NB)) {
    *why = "the new step directory cannot be locked";
    if (fd >= 0) close(fd);
    return -1;
  }
  return fd;
}

static int clear_old(const char *path, uid_t uid, const char **why) {
  int fd = gh_stepdir_open(path, uid);
  if (fd < 0) {
    *why = "it exists and is not a directory of this user";
    return -1;
  }
  if (flock(fd, LOCK_EX | LOCK_NB)) {
    *why = "it belongs to another step that is still running";
    close(fd);
    return -1;
  }
  int rc = gh_stepdir_remove(path);
  close(fd);
  if (rc) *why = "what a dead step left there cannot be removed";
  return rc;
}

int gh_stepdir_make(const char *path, uid_t uid, const char **why) {
  if (mkdir(path, 0700) == 0) return lock_new(path, uid, why);
  if (errno == EEXIST) {
    if (clear_old(path, uid, why)) return -1;
    if (mkdir(path, 0700) == 0) return lock_new(path, uid, why);
  }
  *why = strerror(errno);
  return -1;
}

static void sweep_one(int folder, const char *name) {
  struct stat st;
  int fd = openat(folder, name, OPEN_FOLDER);
  if (fd < 0) return;
  bool is_old = fstat(fd, &st) == 0 && st.st_uid == geteuid() && time(NULL) - st.st_mtime > OLD_S;
  if (!is_old || flock(fd, LOCK_EX | LOCK_NB)) {
    close(fd);
    return;
  }
  empty(fd, 0);
  unlinkat(folder, name, AT_REMOVEDIR);
}

void gh_stepdir_sweep(const char *path) {
  char prefix[32];
  DIR *folder = opendir(path);
  if (!folder) return;
  int length = snprintf(prefix, sizeof(prefix), "greyhound-%u-", (unsigned)geteuid());
  for (struct dirent *entry; (entry = readdir(folder));) {
    const char *rest = entry->d_name + length;
    /* A Slurm job's begins with a number; launches look after their own. */
    if (strncmp(entry->d_name, prefix, (size_t)length) == 0 && isdigit((unsigned char)*rest))
      sweep_one(dirfd(folder), entry->d_name);
  }
  closedir(folder);
}

static int open_file(const char *path, uid_t uid, const char *file, struct stat *st) {
  int folder = gh_stepdir_open(path, uid);
  if (folder < 0) return -1;
  int fd = openat(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  close(folder);
  if (fd < 0) return -1;
  if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == uid) return fd;
  close(fd);
  return -1;
}

int gh_stepdir_last_line(const char *path, uid_t uid, const char *file, char *line, size_t size) {
  char tail[TAIL_BYTES];
  struct stat st;
  int fd = open_file(path, uid, file, &st);
  if (fd < 0) return -1;
  off_t from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
  ssize_t got = pread(fd, tail, sizeof(tail), from);
  close(fd);
  while (got > 0 && isspace((unsigned char)tail[got - 1])) got--;
  if (got <= 0) return -1;
  ssize_t start = got;
  while (start > 0 && tail[start - 1] != '\n') start--;
  size_t used = 0;
  for (; start < got && used + 1 < size; start++)
    line[used++] = isprint((unsigned char)tail[start]) ? tail[start] : '?';
  line[used] = '\0';
  return 0;
}

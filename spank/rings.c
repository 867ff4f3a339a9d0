#include "rings.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

/* The folder PATH below ROOT, name by name. Takes over ROOT. */
static int descend(int root, const char *path) {
  char name[NAME_MAX + 1];
  int at = root;
  for (path += strspn(path, "/"); at >= 0 && *path; path += strspn(path, "/")) {
    size_t length = strcspn(path, "/");
    int below = -1;
    if (length < sizeof(name)) {
      memcpy(name, path, length);
      name[length] = '\0';
      below = openat(at, name, OPEN_FOLDER | O_NOFOLLOW);
    }
    close(at);
    at = below;
    path += length;
  }
  return at;
}

bool gh_folder_has_ring(int fd) {
  bool found = false;
  DIR *folder = fd < 0 ? NULL : fdopendir(fd);
  if (!folder) {
    if (fd >= 0) close(fd);
    return false;
  }
  for (struct dirent *entry; !found && (entry = readdir(folder));)
    found = strncmp(entry->d_name, "ring.", 5) == 0;
  closedir(folder);
  return found;
}

bool gh_process_has_ring(int proc, const char *pid, const char *path) {
  char root[NAME_MAX + 8];
  struct stat st;
  if (snprintf(root, sizeof(root), "%s/root", pid) >= (int)sizeof(root)) return false;
  int fd = descend(openat(proc, root, OPEN_FOLDER), path);
  if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid()) return gh_folder_has_ring(fd);
  if (fd >= 0) close(fd);
  return false;
}

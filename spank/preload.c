#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE "/bin/true"
#define PROBE_LIMIT_MS 2000
#define SEPARATORS " :"

static bool is_hook(const char *entry, size_t length) {
  size_t name = strlen(GH_HOOK_NAME);
  if (length < name || strncmp(entry + length - name, GH_HOOK_NAME, name) != 0) return false;
  return length == name || entry[length - name - 1] == '/';
}

bool gh_preload_has_hook(const char *old) {
  for (const char *p = old + strspn(old, SEPARATORS); *p; p += strspn(p, SEPARATORS)) {
    size_t length = strcspn(p, SEPARATORS);
    if (is_hook(p, length)) return true;
    p += length;
  }
  return false;
}

char *gh_preload_join(const char *hook, const char *old) {
  char *out = malloc((hook ? strlen(hook) : 0) + strlen(old) + 2);
  if (!out) return NULL;
  size_t used = 0;
  if (hook) {
    memcpy(out, hook, strlen(hook));
    used = strlen(hook);
  }
  for (const char *p = old + strspn(old, SEPARATORS); *p; p += strspn(p, SEPARATORS)) {
    size_t length = strcspn(p, SEPARATORS);
    if (!is_hook(p, length)) {
      if (used) out[used++] = ':';
      memcpy(out + used, p, length);
      used += length;
    }
    p += length;
  }
  out[used] = '\0';
  return out;
}

/* Opened with the effective uid, the user's: what the loader will be able to do. */
static int readable(const char *hook, char *why, size_t size) {
  int fd = open(hook, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    close(fd);
    return 0;
  }
  snprintf(why, size, "hook %s: %s", hook, strerror(errno));
  return -1;
}

int gh_preload_check(const char *hook, const struct gh_identity *who, char *why, size_t size) {
  char said[512], assignment[PATH_MAX + 16];
  if (hook[strcspn(hook, SEPARATORS)]) {
    snprintf(why, size, "hook %s: the loader takes no path with a blank or a colon", hook);
    return -1;
  }
  if (readable(hook, why, size)) return -1;
  if ((size_t)snprintf(assignment, sizeof(assignment), "LD_PRELOAD=%s", hook) >=
      sizeof(assignment)) {
    snprintf(why, size, "the hook's path is too long");
    return -1;
  }
  char *argv[] = {PROBE, NULL};
  char *env[] = {assignment, "LC_ALL=C", NULL};
  struct gh_child probe = {PROBE, argv, env, *who, -1, -1};
  int status = gh_spawn_collect(&probe, PROBE_LIMIT_MS, said, sizeof(said));
  if (status == 0 && said[0] == '\0') return 0;
  said[strcspn(said, "\n")] = '\0';
  if (status < 0)
    snprintf(why, size, "hook %s: trying it on %s took more than 2 s", hook, PROBE);
  else
    snprintf(why, size, "hook %s: this node's loader refuses it (%s ended with %d): %s", hook,
             PROBE, status, said);
  return -1;
}

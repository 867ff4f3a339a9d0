#include "preload.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void explain(const char *hook, const char *const *programs, int status, char *said,
                    char *why, size_t size) {
  struct gh_no_program missing;
  memcpy(&missing, said, sizeof(missing));
  said[strcspn(said, "\n")] = '\0';
  if (status == GH_EXIT_NO_PROGRAM)
    snprintf(why, size, "%s: %s", programs[missing.index], strerror(missing.error));
  else if (strstr(said, "cannot be preloaded (cannot open"))
    snprintf(why, size, "hook %s is missing or can't be read there", hook);
  else if (status < 0)
    snprintf(why, size, "looking at %s took more than 2 s", hook);
  else
    snprintf(why, size, "hook %s: this node's loader refuses it (%s ended with %d): %s", hook,
             PROBE, status, said);
}

int gh_preload_check(const char *hook, const char *const *programs, const struct gh_identity *who,
                     char *why, size_t size) {
  char said[512] = "", assignment[PATH_MAX + 16];
  if (hook[strcspn(hook, SEPARATORS)]) {
    snprintf(why, size, "hook %s: the loader takes no path with a blank or a colon", hook);
    return -1;
  }
  if ((size_t)snprintf(assignment, sizeof(assignment), "LD_PRELOAD=%s", hook) >=
      sizeof(assignment)) {
    snprintf(why, size, "the hook's path is too long");
    return -1;
  }
  char *argv[] = {PROBE, NULL};
  char *env[] = {assignment, "LC_ALL=C", NULL};
  struct gh_child probe = {PROBE, argv, env, *who, -1, -1, programs};
  int status = gh_spawn_collect(&probe, PROBE_LIMIT_MS, said, sizeof(said));
  if (status == 0 && said[0] == '\0') return 0;
  explain(hook, programs, status, said, why, size);
  return -1;
}

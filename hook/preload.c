/* preload.c: takes the hook out of LD_PRELOAD, so that the rank's helpers don't carry it. */
#include <stdlib.h>
#include <string.h>

#include "hook.h"

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* The entry may be spelt otherwise than the loader does ($LIB, a relative path): names decide. */
static bool is_own(const char *entry, size_t length, const char *own) {
  size_t n = strlen(own);
  return length >= n && !memcmp(entry + length - n, own, n) &&
         (length == n || entry[length - n - 1] == '/');
}

/* Shortens the variable where it stands: setenv could move it under a thread in getenv. Other
 * entries, their order and their separators (colon or blank) stay. */
void gh_preload_remove_self(void) {
  char *value = getenv("LD_PRELOAD");
  const char *own = file_name(gh_elf_self()->name);
  if (!value || !*own) return;
  char *entry = value;
  while (*entry) {
    size_t length = strcspn(entry, " :");
    if (!is_own(entry, length, own)) {
      entry += length + (entry[length] != 0);
      continue;
    }
    char *rest = entry + length + (entry[length] != 0); /* with the separator behind it, */
    memmove(entry, rest, strlen(rest) + 1);
    if (!*entry && entry > value) entry[-1] = 0; /* or, at the end, before it */
    if (!*value) break;
    entry = entry > value && !entry[-1] ? entry - 1 : entry;
  }
  if (!*value) unsetenv("LD_PRELOAD");
}

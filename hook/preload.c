/* preload.c: takes the hook out of LD_PRELOAD, so that the rank's helpers don't carry it. */
#include <string.h>
#include <unistd.h>

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

/* Takes the hook's entries out of the list. Others, their order and their separators (colon or
 * blank) stay. */
static void shorten(char *list, const char *own) {
  char *entry = list;
  while (*entry) {
    size_t length = strcspn(entry, " :");
    if (!is_own(entry, length, own)) {
      entry += length + (entry[length] != 0);
      continue;
    }
    char *rest = entry + length + (entry[length] != 0); /* with the separator behind it, */
    memmove(entry, rest, strlen(rest) + 1);
    if (!*entry && entry > list) entry[-1] = 0; /* or, at the end, before it */
    if (!*list) break;
    entry = entry > list && !entry[-1] ? entry - 1 : entry;
  }
}

/* Puts a shorter copy in the variable's place, by one store. Other threads may be in getenv or in
 * execve: setenv and unsetenv could move the variables under them, and the old text stays for those
 * who hold it. So an empty variable is left where nothing remains; loaders ignore it. */
void gh_preload_remove_self(void) {
  static const char variable[] = "LD_PRELOAD=";
  const char *own = file_name(gh_elf_self()->name);
  char **at = environ;
  while (at && *at && strncmp(*at, variable, sizeof variable - 1)) at++;
  char *copy = at && *at && *own ? strdup(*at) : NULL;
  if (!copy) return;
  shorten(copy + sizeof variable - 1, own);
  __atomic_store_n(at, copy, __ATOMIC_RELEASE);
}

/* The tasks' LD_PRELOAD: our hook first, then what was there. No Slurm types. */
#ifndef GREYHOUND_PRELOAD_H
#define GREYHOUND_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "spawn.h"

#define GH_HOOK_NAME "libgreyhound_hook.so"

/* OLD without entries of our hook, whatever their folder; HOOK (may be NULL) in front.
 * The loader's separators are blanks and colons; we write colons. Returns a string to
 * free, or NULL without memory. */
char *gh_preload_join(const char *hook, const char *old);

/* True if OLD names our hook. */
bool gh_preload_has_hook(const char *old);

/* Whether the user can run PROGRAMS (NULL-terminated) here and this node's own loader takes
 * HOOK, tried on /bin/true, all in one child of at most 2 s. 0, or -1 with the reason in WHY. */
int gh_preload_check(const char *hook, const char *const *programs, const struct gh_identity *who,
                     char *why, size_t size);

#endif

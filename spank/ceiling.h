/* What the site allows at most (docs/interfaces.md 3); whatever a user asks for can only be less.
 */
#ifndef GREYHOUND_CEILING_H
#define GREYHOUND_CEILING_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"

#define GH_ALLOW_BYTES 2048

enum gh_allow { GH_ALLOW_PARTITION, GH_ALLOW_ACCOUNT, GH_ALLOW_COUNT };

struct gh_ceiling {
  enum gh_mode max_mode;
  bool freeze_never;
  bool s4_never;
  bool restricted[GH_ALLOW_COUNT];            /* allow= names some of this kind */
  char names[GH_ALLOW_COUNT][GH_ALLOW_BYTES]; /* "+a+b+" */
  bool allow_unreadable;                      /* allow= isn't understood: nobody is */
};

/* No ceiling at all. */
void gh_ceiling_none(struct gh_ceiling *ceiling);

/* Takes one plugstack argument. 1: it is none of ours. 0: taken. -1: bad, with WHY
 * (GH_MESSAGE_BYTES) set; the ceiling is then at its lowest, as a slip of the pen must not lift it.
 */
int gh_ceiling_take(struct gh_ceiling *ceiling, const char *argument, char *why);

/* Lowers SPEC to the ceiling. SAID (GH_MESSAGE_BYTES) tells what was lowered, "" where nothing was.
 */
void gh_ceiling_lower(const struct gh_ceiling *ceiling, struct gh_spec *spec, char *said);

/* Whether anything depends on a job's partition or account. */
bool gh_ceiling_asks(const struct gh_ceiling *ceiling);

/* Whether a job of this partition and account may be watched; else WHY (GH_MESSAGE_BYTES). */
bool gh_ceiling_admits(const struct gh_ceiling *ceiling, const char *partition, const char *account,
                       char *why);

#endif

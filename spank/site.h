/* What the site says in plugstack.conf (docs/interfaces.md 3). */
#ifndef GREYHOUND_SITE_H
#define GREYHOUND_SITE_H

#include <limits.h>

#include "ceiling.h"
#include "options.h"

struct gh_site {
  char python[PATH_MAX]; /* "" where neither python= nor prefix= was given */
  char native[PATH_MAX]; /* folder of the hook and the waiter */
  char record_dir[PATH_MAX];
  char redis_server[PATH_MAX];
  char mute_file[PATH_MAX]; /* the kill switch */
  struct gh_spec fallback;  /* default=MODE[,...]; off where absent */
  struct gh_ceiling ceiling;
};

/* Called once for every argument that is ignored, with a full sentence. */
typedef void (*gh_warn_f)(const char *sentence);

/* Reads the arguments after the plugin's path. OWN_FOLDER, the folder of the plugin
 * itself, is where the hook and the waiter are unless native= or prefix= says else.
 * More specific arguments (python=, native=) win over prefix=, in any order. */
void gh_site_parse(int argc, char **argv, const char *own_folder, struct gh_site *site,
                   gh_warn_f warn);

#endif

/* sbatch and salloc: the option is carried to the job's sruns by Slurm itself; here only a
 * bad GREYHOUND is said early, and nothing of an enclosing step is passed on. */
#include <stdlib.h>

#include "plugin.h"

void gh_allocator_check(void) {
  struct gh_spec ignored;
  unsetenv(GH_ENV_TOKEN);
  unsetenv(GH_ENV_SPEC);
  if (!gh_plugin.is_given) gh_environment_spec(&ignored);
}

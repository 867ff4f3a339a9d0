/* Processes of a step that use NCCL, looked for where no ring appeared: their calls pass
 * the hook by. The same rule as greyhound/control/intercept.py. */
#ifndef GREYHOUND_BYPASS_H
#define GREYHOUND_BYPASS_H

#include <stdbool.h>

/* Whether a process of this user whose GREYHOUND_DIR is STEP_DIR has NCCL at work: its
 * library mapped, and threads that NCCL named. */
bool gh_step_uses_nccl(const char *step_dir);

#endif

/* Processes of a step, looked for where no ring appeared in its directory: those with a ring
 * in a root of their own, and those that use NCCL without one, whose calls pass the hook by.
 * The same rules as greyhound/control/rings.py and intercept.py. */
#ifndef GREYHOUND_BYPASS_H
#define GREYHOUND_BYPASS_H

#define GH_FOUND_RING 1u /* in STEP_DIR as a process of the step sees it */
#define GH_FOUND_NCCL 2u /* a process has NCCL at work: mapped, and threads that NCCL named */

/* One look at this user's processes whose GREYHOUND_DIR is STEP_DIR: GH_FOUND_* or 0. */
unsigned gh_step_look(const char *step_dir);

#endif

/* How our own processes are told to end (greyhound/control/child.py says the same). */
#ifndef GREYHOUND_STOP_H
#define GREYHOUND_STOP_H

#include <signal.h>

/* Not TERM: that is sent to a whole step by a user, or by a job script before its end, and a
 * training may save its state for minutes then. Nobody else uses this one. */
#define GH_STOP_SIGNAL (SIGRTMIN + 5)

#endif

/* The site's kill switch: a file; while it exists nothing is watched. */
#ifndef GREYHOUND_MUTE_H
#define GREYHOUND_MUTE_H

#include <stdbool.h>

#define GH_MUTE_FILE "/etc/greyhound/mute"
#define GH_MUTE_BYTES 256

/* Whether PATH exists; TEXT is then its first line, printable characters only. A file system that
 * doesn't answer within a quarter of a second counts as having none: the analyzers look again. */
bool gh_mute_read(const char *path, char text[GH_MUTE_BYTES]);

#endif

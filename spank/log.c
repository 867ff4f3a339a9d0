#include <stdarg.h>
#include <stdio.h>

#include "plugin.h"

#define LINE_BYTES 2048

void gh_say(const char *format, ...) {
  char line[LINE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof(line), format, args);
  va_end(args);
  slurm_spank_log("greyhound: %s", line);
}

void gh_unmonitored(const char *format, ...) {
  char line[LINE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof(line), format, args);
  va_end(args);
  slurm_spank_log("greyhound: unmonitored: %s", line);
}

void gh_warn(const char *sentence) { slurm_spank_log("greyhound: %s", sentence); }

void gh_quiet(const char *sentence) { slurm_info("greyhound: %s", sentence); }

/* log.c: the one way to say something: a single line on the process's standard error. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hook.h"

const char *gh_reason(const char *format, ...) {
  static char reason[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  return reason;
}

static const char prefix[] = "greyhound: ";

/* One write, so that lines of several ranks don't mix; errno is the program's. */
void gh_log(const char *format, ...) {
  char line[512];
  size_t used = sizeof prefix - 1;
  memcpy(line, prefix, used);
  va_list arguments;
  va_start(arguments, format);
  int wanted = vsnprintf(line + used, sizeof line - used - 1, format, arguments);
  va_end(arguments);
  if (wanted < 0) return;
  size_t room = sizeof line - used - 2;
  used += (size_t)wanted < room ? (size_t)wanted : room;
  line[used++] = '\n';
  if (write(STDERR_FILENO, line, used) < 0) return; /* nobody left to tell */
}

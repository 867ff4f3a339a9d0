/* srun: decide whether the step is watched, and tell its nodes through its environment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "plugin.h"

bool gh_environment_spec(struct gh_spec *spec) {
  static bool said;
  char why[GH_MESSAGE_BYTES];
  const char *text = getenv(GH_ENV_USER);
  if (!text || !text[0]) return false;
  if (gh_spec_parse(text, spec, why) == 0) return true;
  if (!said) gh_say("ignoring the environment's GREYHOUND=%s", why);
  said = true;
  return false;
}

/* Command line (inherited from sbatch or salloc included), environment, site. */
static void effective_spec(struct gh_spec *spec) {
  if (gh_plugin.is_given)
    *spec = gh_plugin.given;
  else if (!gh_environment_spec(spec))
    *spec = gh_plugin.site.fallback;
}

static int draw_token(char hex[GH_TOKEN_HEX + 1]) {
  static const char DIGITS[] = "0123456789abcdef";
  unsigned char bytes[GH_TOKEN_BYTES];
  if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) return -1;
  for (size_t i = 0; i < sizeof(bytes); i++) {
    hex[2 * i] = DIGITS[bytes[i] >> 4];
    hex[2 * i + 1] = DIGITS[bytes[i] & 15];
  }
  hex[GH_TOKEN_HEX] = '\0';
  return 0;
}

void gh_local_decide(void) {
  struct gh_spec spec;
  char token[GH_TOKEN_HEX + 1];
  /* An srun inside a watched step must never reuse what the outer one drew. */
  unsetenv(GH_ENV_TOKEN);
  unsetenv(GH_ENV_SPEC);
  effective_spec(&spec);
  if (spec.mode == GH_OPT_OFF) return;
  if (draw_token(token)) {
    gh_unmonitored("no random numbers for the job token: %s", strerror(errno));
    return;
  }
  if (setenv(GH_ENV_TOKEN, token, 1) || setenv(GH_ENV_SPEC, spec.text, 1)) {
    unsetenv(GH_ENV_TOKEN);
    gh_unmonitored("the step's environment cannot be extended: %s", strerror(errno));
  }
}

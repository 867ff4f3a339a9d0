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

/* Every component has a node 0 of its own, so there would be several masters. */
static bool is_heterogeneous(void) {
  static bool said;
  if (!getenv("SLURM_HET_SIZE")) return false;
  if (!said) gh_unmonitored("heterogeneous jobs are not supported");
  said = true;
  return true;
}

/* The decision that the nodes get where the step is not watched; nothing to do if it cannot
 * be set: the nodes then say so themselves. */
static void send_off(void) {
  unsetenv(GH_ENV_TOKEN);
  setenv(GH_ENV_SPEC, "off", 1);
}

void gh_local_decide(void) {
  struct gh_spec spec;
  char token[GH_TOKEN_HEX + 1];
  /* Slurm gives the option to one instance alone, first or not. */
  if (!gh_claim(GH_ENV_CLAIM) && !gh_plugin.is_given) return;
  /* Before all else: an srun inside a watched step must never reuse what the outer one drew. */
  send_off();
  effective_spec(&spec);
  if (spec.mode == GH_OPT_OFF || is_heterogeneous()) return;
  if (draw_token(token)) {
    gh_unmonitored("no random numbers for the job token: %s", strerror(errno));
    return;
  }
  if (setenv(GH_ENV_TOKEN, token, 1) || setenv(GH_ENV_SPEC, spec.text, 1)) {
    gh_unmonitored("the step's environment cannot be extended: %s", strerror(errno));
    send_off();
  }
}

/* srun: decide whether the step is watched, and tell its nodes through its environment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "facts.h"
#include "mute.h"
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

/* The user asked for what was decided; of the site's own default nothing is said. */
static bool asked;

/* Command line (inherited from sbatch or salloc included), environment, site. */
static void effective_spec(struct gh_spec *spec) {
  asked = true;
  if (gh_plugin.is_given) {
    *spec = gh_plugin.given;
  } else if (!gh_environment_spec(spec)) {
    *spec = gh_plugin.site.fallback;
    asked = false;
  }
}

static void lower(struct gh_spec *spec) {
  char said[GH_MESSAGE_BYTES];
  gh_ceiling_lower(&gh_plugin.site.ceiling, spec, said);
  if (!asked || !said[0]) return;
  if (spec->mode == GH_OPT_OFF)
    gh_unmonitored("%s", said);
  else
    gh_say("%s", said);
}

static bool is_muted(void) {
  char text[GH_MUTE_BYTES];
  if (!gh_mute_read(gh_plugin.site.mute_file, text)) return false;
  if (asked)
    gh_unmonitored("muted by the site (%s%s%s)", gh_plugin.site.mute_file, text[0] ? ": " : "",
                   text);
  return true;
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

/* Each component of a step has a node 0 of its own, so there would be several masters. */
static void refuse_components(void) {
  static bool said;
  if (!said) gh_unmonitored("heterogeneous steps are not supported");
  said = true;
}

static bool in_het_job(void) { return getenv("SLURM_HET_SIZE") != NULL; }

/* Slurm calls us once a component, for each time that we are listed. A step in one component of
 * a heterogeneous job is like any other. */
static bool is_heterogeneous(int calls) {
  if (calls <= gh_plugin.listings) return false;
  refuse_components();
  return true;
}

/* The decision that the nodes get where the step is not watched; nothing to do if it cannot
 * be set: the nodes then say so themselves. */
static void send_off(void) {
  unsetenv(GH_ENV_TOKEN);
  setenv(GH_ENV_SPEC, "off", 1);
}

static bool came_from_het_job;

void gh_local_decide(void) {
  struct gh_spec spec;
  char token[GH_TOKEN_HEX + 1], text[GH_TEXT_BYTES];
  static bool first;
  static int calls;
  came_from_het_job = in_het_job();
  /* Slurm gives the option to one instance alone, first or not. */
  first = calls++ == 0 ? gh_claim(GH_ENV_CLAIM) : first;
  if (!first && !gh_plugin.is_given) return;
  /* Before all else: an srun inside a watched step must never reuse what the outer one drew. */
  send_off();
  effective_spec(&spec);
  lower(&spec);
  if (spec.mode == GH_OPT_OFF || is_muted() || is_heterogeneous(calls)) return;
  if (gh_spec_print(&spec, text)) {
    gh_unmonitored("the option's text is too long");
    return;
  }
  if (draw_token(token)) {
    gh_unmonitored("no random numbers for the job token: %s", strerror(errno));
    return;
  }
  if (setenv(GH_ENV_TOKEN, token, 1) || setenv(GH_ENV_SPEC, text, 1)) {
    gh_unmonitored("the step's environment cannot be extended: %s", strerror(errno));
    send_off();
  }
}

/* The allocation is there by now, so slurmctld can be asked what the job really runs in; whatever
 * its owner says in the environment counts for nothing. */
void gh_local_admit(spank_t spank) {
  const struct gh_ceiling *ceiling = &gh_plugin.site.ceiling;
  const char *decision = getenv(GH_ENV_SPEC), *trouble = "Slurm did not tell srun its job's id";
  struct gh_job_facts facts = {"", ""};
  char why[GH_MESSAGE_BYTES];
  uint32_t job = 0;
  if (!decision || strcmp(decision, "off") == 0) return;
  /* srun made the allocation for all its components. Late: some have the decision already. */
  if (in_het_job() && !came_from_het_job) {
    send_off();
    refuse_components();
    return;
  }
  if (!gh_ceiling_asks(ceiling)) return;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
      gh_job_facts(job, &facts, &trouble)) {
    send_off();
    gh_unmonitored("the job's partition and account aren't known: %s", trouble);
  } else if (!gh_ceiling_admits(ceiling, facts.partition, facts.account, why)) {
    send_off();
    if (asked) gh_unmonitored("%s", why);
  }
}

/* The facts of this step on this node, and what is made from them. */
#ifndef GREYHOUND_STEP_H
#define GREYHOUND_STEP_H

#include <limits.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>

#include "options.h"
#include "site.h"
#include "spawn.h"

#define GH_STEPDIR_BYTES 128

struct gh_step {
  uint32_t job, step, restart;
  uint32_t node_index, node_count, tasks_here;
  struct gh_identity who;
  char directory[GH_STEPDIR_BYTES];
  char hook[PATH_MAX];
  char waiter[PATH_MAX];
};

/* A NULL-terminated list of strings that frees as a whole. */
struct gh_list {
  char **items;
  size_t count;
  bool failed; /* no memory for one of them */
};

/* False for the batch script, the extern and the interactive step: no tasks to watch. */
bool gh_step_has_tasks(spank_t spank);

/* 0, or -1 where Slurm did not say (*WHAT names it). */
int gh_step_facts(spank_t spank, const struct gh_site *site, struct gh_step *step,
                  const char **what);

/* A variable of the step's environment, to free; NULL where unset. */
char *gh_step_getenv(spank_t spank, const char *name);

/* The waiter's command line and the scrubbed environment (docs/interfaces.md 4). */
void gh_step_command(spank_t spank, const struct gh_step *step, const struct gh_site *site,
                     const struct gh_spec *spec, struct gh_list *argv);
void gh_step_environment(spank_t spank, const struct gh_step *step, const char *token,
                         struct gh_list *env);
void gh_list_free(struct gh_list *list);

#endif

/* What the files of the plugin share: one file a context, and the state of this process. */
#ifndef GREYHOUND_PLUGIN_H
#define GREYHOUND_PLUGIN_H

#include <slurm/spank.h>
#include <stdbool.h>

#include "options.h"
#include "site.h"

/* srun tells the nodes what it decided: the token and the option's text. Names that begin
 * with SLURM pass every --export. Neither stays in a task's environment. */
#define GH_ENV_TOKEN "SLURM_GREYHOUND_TOKEN"
#define GH_ENV_SPEC "SLURM_GREYHOUND_SPEC"
#define GH_ENV_USER "GREYHOUND"
/* Where Slurm keeps the option of sbatch and salloc for the sruns inside. */
#define GH_ENV_INHERITED "SLURM_SPANK__SLURM_SPANK_OPTION_greyhound_greyhound"

/* The process in which a first instance of the plugin is at work. */
#define GH_ENV_CLAIM "SLURM_GREYHOUND_PROCESS"

#define GH_TOKEN_BYTES 32
#define GH_TOKEN_HEX (2 * GH_TOKEN_BYTES)

struct gh_plugin {
  struct gh_site site;
  struct gh_spec given; /* --greyhound, inherited from sbatch or salloc included */
  bool is_given;
  int listings; /* how often plugstack.conf names this file */
};

extern struct gh_plugin gh_plugin;

/* log.c. Each prints one line "greyhound: ...". */
void gh_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gh_unmonitored(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gh_warn(const char *sentence);  /* to the user */
void gh_quiet(const char *sentence); /* to the daemon's log alone */

/* claim.c. False where another instance in this process was first: plugstack.conf may load
 * the plugin twice, even from two copies, which share no variable but the environment. */
bool gh_claim(const char *variable);

/* local.c: srun. allocator.c: sbatch, salloc. */
void gh_local_decide(void);
void gh_local_admit(spank_t spank); /* allow=: once the job's id is known */
void gh_allocator_check(void);
/* The environment's GREYHOUND; false where unset or bad (said once). */
bool gh_environment_spec(struct gh_spec *spec);

/* remote.c: slurmstepd. */
void gh_remote_user_init(spank_t spank);
void gh_remote_task_init(spank_t spank);
void gh_remote_task_exit(spank_t spank);
void gh_remote_exit(void);

#endif

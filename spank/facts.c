#include "facts.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Slurm up to 25.x asks by number, 26.05 by step (from its header alone: not tried). */
typedef int (*by_number_f)(job_info_msg_t **, uint32_t, uint16_t);
typedef int (*by_step_f)(job_info_msg_t **, slurm_step_id_t *, uint16_t);
typedef void (*free_f)(job_info_msg_t *);

#define ASKS_BY_NUMBER _Generic(&slurm_load_job, by_number_f: true, default: false)

static int load(void *symbol, uint32_t job, job_info_msg_t **answer) {
  slurm_step_id_t step;
  if (ASKS_BY_NUMBER) {
    by_number_f ask;
    memcpy(&ask, &symbol, sizeof(ask));
    return ask(answer, job, SHOW_DETAIL);
  }
  by_step_f ask;
  memcpy(&ask, &symbol, sizeof(ask));
  memset(&step, 0xff, sizeof(step)); /* NO_VAL or more in each field */
  step.job_id = job;
  step.step_het_comp = NO_VAL;
  step.step_id = NO_VAL;
  return ask(answer, &step, SHOW_DETAIL);
}

static void copy(char out[GH_FACT_BYTES], const char *text) {
  snprintf(out, GH_FACT_BYTES, "%s", text ? text : "");
}

static bool take(const job_info_msg_t *answer, uint32_t job, struct gh_job_facts *facts) {
  for (uint32_t i = 0; i < answer->record_count; i++) {
    if (answer->job_array[i].job_id != job) continue; /* others of the same array */
    copy(facts->partition, answer->job_array[i].partition);
    copy(facts->account, answer->job_array[i].account);
    return true;
  }
  return false;
}

/* Looked up rather than linked: a symbol that is missing must not keep the plugin from loading. */
int gh_job_facts(uint32_t job, struct gh_job_facts *facts, const char **why) {
  void *ask = dlsym(RTLD_DEFAULT, "slurm_load_job");
  void *symbol = dlsym(RTLD_DEFAULT, "slurm_free_job_info_msg");
  job_info_msg_t *answer = NULL;
  free_f release;
  *why = "this Slurm has no slurm_load_job";
  if (!ask || !symbol) return -1;
  memcpy(&release, &symbol, sizeof(release));
  *why = "slurmctld does not answer";
  if (load(ask, job, &answer) || !answer) return -1;
  bool found = take(answer, job, facts);
  release(answer);
  *why = "slurmctld does not know it";
  return found ? 0 : -1;
}

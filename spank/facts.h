/* What slurmctld knows of a job: no user can set that in an environment. */
#ifndef GREYHOUND_FACTS_H
#define GREYHOUND_FACTS_H

#include <stdint.h>

#define GH_FACT_BYTES 256

struct gh_job_facts {
  char partition[GH_FACT_BYTES];
  char account[GH_FACT_BYTES];
};

/* Asks slurmctld; 0, or -1 with *WHY set. */
int gh_job_facts(uint32_t job, struct gh_job_facts *facts, const char **why);

#endif

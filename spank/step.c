#include "step.h"

#include <pwd.h>
#include <slurm/slurm_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin.h"
#include "preload.h"

#define FIRST_SPECIAL_STEP 0xfffffff0u /* batch ...fb, extern ...fc, interactive ...fa */
#define MOST_ENV_BYTES (4 << 20)
#define PLAIN_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

bool gh_step_has_tasks(spank_t spank) {
  uint32_t step = 0;
  return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step < FIRST_SPECIAL_STEP;
}

static void paths(const struct gh_site *site, struct gh_step *step) {
  snprintf(step->directory, sizeof(step->directory), "/dev/shm/greyhound-%u-%u.%u.%u.n%u",
           (unsigned)step->who.uid, step->job, step->step, step->restart, step->node_index);
  /* A native= as long as PATH_MAX is cut here, and then found missing. */
  snprintf(step->hook, sizeof(step->hook), "%.*s/%s", PATH_MAX - 64, site->native, GH_HOOK_NAME);
  snprintf(step->waiter, sizeof(step->waiter), "%.*s/greyhound_waiter", PATH_MAX - 64,
           site->native);
}

/* Slurm tells the restart count of a job in the batch step alone (seen on 22.05; 0 in the
 * others), but srun passes on the batch step's variable. */
static uint32_t restart_count(spank_t spank, uint32_t told) {
  char *text = gh_step_getenv(spank, "SLURM_RESTART_COUNT");
  char *end = text;
  unsigned long count = text ? strtoul(text, &end, 10) : 0;
  bool valid = text && end != text && *end == '\0' && count <= UINT32_MAX;
  free(text);
  return valid && count > told ? (uint32_t)count : told;
}

int gh_step_facts(spank_t spank, const struct gh_site *site, struct gh_step *step,
                  const char **what) {
  gid_t *groups = NULL;
  memset(step, 0, sizeof(*step));
  const struct {
    spank_item_t item;
    void *out;
    const char *name;
  } wanted[] = {
      {S_JOB_ID, &step->job, "the job id"},
      {S_JOB_STEPID, &step->step, "the step id"},
      {S_SLURM_RESTART_COUNT, &step->restart, "the restart count"},
      {S_JOB_NODEID, &step->node_index, "the node's index"},
      {S_JOB_NNODES, &step->node_count, "the number of nodes"},
      {S_JOB_LOCAL_TASK_COUNT, &step->tasks_here, "the number of tasks"},
      {S_JOB_UID, &step->who.uid, "the user id"},
      {S_JOB_GID, &step->who.gid, "the group id"},
  };
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
    *what = wanted[i].name;
    if (spank_get_item(spank, wanted[i].item, wanted[i].out) != ESPANK_SUCCESS) return -1;
  }
  *what = "the supplementary groups";
  if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &step->who.group_count) !=
      ESPANK_SUCCESS)
    return -1;
  step->who.groups = groups;
  step->restart = restart_count(spank, step->restart);
  paths(site, step);
  return 0;
}

char *gh_step_getenv(spank_t spank, const char *name) {
  for (int size = 4096; size <= MOST_ENV_BYTES; size *= 4) {
    char *value = malloc((size_t)size);
    if (!value) return NULL;
    spank_err_t rc = spank_getenv(spank, name, value, size);
    if (rc == ESPANK_SUCCESS) return value;
    free(value);
    if (rc != ESPANK_NOSPACE) return NULL;
  }
  return NULL;
}

static void add(struct gh_list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct gh_list *list, const char *format, ...) {
  va_list args;
  char *text = NULL;
  char **grown = realloc(list->items, (list->count + 2) * sizeof(char *));
  if (grown) list->items = grown;
  va_start(args, format);
  if (!grown || vasprintf(&text, format, args) < 0) list->failed = true;
  va_end(args);
  if (list->failed) return;
  list->items[list->count++] = text;
  list->items[list->count] = NULL;
}

void gh_list_free(struct gh_list *list) {
  for (size_t i = 0; i < list->count; i++) free(list->items[i]);
  free(list->items);
  memset(list, 0, sizeof(*list));
}

static void add_pair(struct gh_list *list, const char *name, const char *value) {
  add(list, "%s", name);
  add(list, "%s", value);
}

static void add_options(struct gh_list *argv, const struct gh_site *site,
                        const struct gh_spec *spec) {
  for (size_t key = 0; key < GH_KEY_COUNT; key++) {
    if (!spec->value[key][0] || key == GH_KEY_RECORD_DIR) continue;
    add(argv, "--option");
    add(argv, "%s=%s", gh_key_name((enum gh_key)key), spec->value[key]);
  }
  if (site->ceiling.max_mode != GH_OPT_ON) {
    add(argv, "--option");
    add(argv, "max_mode=%s", gh_mode_name(site->ceiling.max_mode));
  }
  add(argv, "--option");
  add(argv, "mute_file=%s", site->mute_file);
  const char *record_dir = spec->value[GH_KEY_RECORD_DIR];
  if (!record_dir[0]) record_dir = site->record_dir;
  if (record_dir[0]) add_pair(argv, "--record-dir", record_dir);
  if (site->redis_server[0]) add_pair(argv, "--redis-server", site->redis_server);
}

void gh_step_command(spank_t spank, const struct gh_step *step, const struct gh_site *site,
                     const struct gh_spec *spec, struct gh_list *argv) {
  static const char *const PYTHON_ARGS[] = {"-I", "-m", "greyhound.control.node"};
  const struct {
    const char *name;
    uint32_t value;
  } numbers[] = {{"--node-index", step->node_index},
                 {"--node-count", step->node_count},
                 {"--job", step->job},
                 {"--step", step->step},
                 {"--restart", step->restart},
                 {"--tasks", step->tasks_here}};
  char *nodes = gh_step_getenv(spank, "SLURM_STEP_NODELIST");
  if (!nodes) nodes = gh_step_getenv(spank, "SLURM_JOB_NODELIST");
  add(argv, "%s", step->waiter);
  add(argv, "%s", step->directory);
  add(argv, "--");
  add(argv, "%s", site->python);
  for (size_t i = 0; i < sizeof(PYTHON_ARGS) / sizeof(PYTHON_ARGS[0]); i++)
    add(argv, "%s", PYTHON_ARGS[i]);
  add_pair(argv, "--step-dir", step->directory);
  add_pair(argv, "--node-list", nodes ? nodes : "");
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    add(argv, "%s", numbers[i].name);
    add(argv, "%u", numbers[i].value);
  }
  add_pair(argv, "--mode", gh_mode_name(spec->mode));
  add_options(argv, site, spec);
  free(nodes);
}

/* From the step's environment, else from the daemon's own. */
static void add_variable(struct gh_list *env, spank_t spank, const char *name,
                         const char *fallback) {
  char *value = gh_step_getenv(spank, name);
  const char *chosen = value ? value : fallback;
  if (chosen && chosen[0]) add(env, "%s=%s", name, chosen);
  free(value);
}

void gh_step_environment(spank_t spank, const struct gh_step *step, const char *token,
                         struct gh_list *env) {
  char buffer[4096];
  struct passwd record, *found = NULL;
  /* The directory of users, not HOME of the step: --export=NONE drops it, and users
   * point it elsewhere, while records belong into one known place. */
  if (getpwuid_r(step->who.uid, &record, buffer, sizeof(buffer), &found)) found = NULL;
  /* The daemon's PATH: the user's may put other programs before Slurm's commands. */
  const char *path = getenv("PATH");
  add(env, "PATH=%s", path && path[0] ? path : PLAIN_PATH);
  if (found) {
    add(env, "HOME=%s", record.pw_dir);
    add(env, "USER=%s", record.pw_name);
  } else {
    add_variable(env, spank, "HOME", "/");
    add_variable(env, spank, "USER", NULL);
  }
  add_variable(env, spank, "LANG", "C.UTF-8");
  add_variable(env, spank, "SLURM_CONF", getenv("SLURM_CONF"));
  add(env, "GREYHOUND_TOKEN=%s", token);
}

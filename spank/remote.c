/* slurmstepd: prepare the tasks' environment, start the waiter, end it with the step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mute.h"
#include "plugin.h"
#include "preload.h"
#include "root.h"
#include "spawn.h"
#include "step.h"
#include "stepdir.h"

#define STOP_MS 2000         /* the node process says goodbye within this */
#define BACKSTOP_STOP_MS 300 /* at slurm_spank_exit it was killed already */
#define REMOVE_MS 1000
#define WHY_BYTES 1536
#ifndef SPEAKING_NODES   /* a test shortens it */
#define SPEAKING_NODES 4 /* where a whole site is broken, thousands would say the same */
#endif

static struct {
  struct gh_step step;
  struct gh_root root; /* where we started the waiter */
  pid_t waiter;        /* 0: this step is not watched here, or its end came */
  bool was_watched;
  uint32_t tasks_left;
  pid_t last_exit;
  bool signalled; /* a task was ended by a signal: so may our process have been */
} state;

/* ---- the tasks' environment ---- */

/* Takes our entry out of LD_PRELOAD; those of others stay. */
static void drop_hook(spank_t spank) {
  char *preload = gh_step_getenv(spank, "LD_PRELOAD");
  if (preload && gh_preload_has_hook(preload)) {
    char *rest = gh_preload_join(NULL, preload);
    if (rest && rest[0])
      spank_setenv(spank, "LD_PRELOAD", rest, 1);
    else
      spank_unsetenv(spank, "LD_PRELOAD");
    free(rest);
  }
  free(preload);
}

/* What an enclosing watched step left in the environment belongs to that step alone. */
static void clean_environment(spank_t spank) {
  static const char *const OURS[] = {GH_ENV_TOKEN,           GH_ENV_SPEC,
                                     GH_ENV_CLAIM,           "GREYHOUND_DIR",
                                     "GREYHOUND_NODE_INDEX", "GREYHOUND_TOKEN"};
  for (size_t i = 0; i < sizeof(OURS) / sizeof(OURS[0]); i++) spank_unsetenv(spank, OURS[i]);
  drop_hook(spank);
}

static int set_environment(spank_t spank, const struct gh_step *step) {
  char index[16];
  char *old = gh_step_getenv(spank, "LD_PRELOAD");
  char *preload = gh_preload_join(step->hook, old ? old : "");
  snprintf(index, sizeof(index), "%u", step->node_index);
  int rc = !preload || spank_setenv(spank, "GREYHOUND_DIR", step->directory, 1) ||
           spank_setenv(spank, "GREYHOUND_NODE_INDEX", index, 1) ||
           spank_setenv(spank, "LD_PRELOAD", preload, 1);
  free(preload);
  free(old);
  return rc ? -1 : 0;
}

/* ---- what must be there ---- */

static int check_parts(const struct gh_step *step, char why[WHY_BYTES]) {
  const char *const programs[] = {gh_plugin.site.python, step->waiter, NULL};
  if (!gh_plugin.site.python[0]) {
    snprintf(why, WHY_BYTES, "no python: give prefix=DIR or python=PATH in plugstack.conf");
    return -1;
  }
  return gh_preload_check(step->hook, programs, &step->who, why, WHY_BYTES);
}

static int check_step(spank_t spank, char why[WHY_BYTES]) {
  const char *what = "";
  if (gh_step_facts(spank, &gh_plugin.site, &state.step, &what) == 0) return 0;
  snprintf(why, WHY_BYTES, "Slurm did not tell %s", what);
  return -1;
}

/* ---- start ---- */

static pid_t start_waiter(spank_t spank, const struct gh_spec *spec, const char *token,
                          int directory_fd) {
  struct gh_list argv = {0}, env = {0};
  pid_t pid = -1;
  gh_step_command(spank, &state.step, &gh_plugin.site, spec, &argv);
  gh_step_environment(spank, &state.step, token, &env);
  if (!argv.failed && !env.failed) {
    struct gh_child child = {state.step.waiter, argv.items, env.items, state.step.who,
                             directory_fd,      -1,         NULL};
    pid = gh_spawn(&child);
  }
  gh_list_free(&argv);
  gh_list_free(&env);
  return pid;
}

static int start(spank_t spank, const struct gh_spec *spec, const char *token,
                 char why[WHY_BYTES]) {
  const char *reason = "";
  if (check_step(spank, why) || check_parts(&state.step, why)) return -1;
  int fd = gh_stepdir_make(state.step.directory, state.step.who.uid, &reason);
  if (fd < 0) {
    snprintf(why, WHY_BYTES, "step directory %s: %s", state.step.directory, reason);
    return -1;
  }
  pid_t pid = start_waiter(spank, spec, token, fd);
  /* It stays open here as well: while this process lives, so does the step for others. */
  if (pid > 0 && set_environment(spank, &state.step) == 0) {
    state.root = gh_root_here();
    state.waiter = pid;
    state.was_watched = true;
    state.tasks_left = state.step.tasks_here;
    return 0;
  }
  snprintf(why, WHY_BYTES, "the waiter could not be started: %m");
  if (pid > 0) gh_spawn_stop(pid, STOP_MS);
  clean_environment(spank);
  gh_stepdir_remove(state.step.directory);
  close(fd);
  return -1;
}

static bool is_token(const char *text) {
  return strlen(text) == GH_TOKEN_HEX && text[strspn(text, "0123456789abcdef")] == '\0';
}

/* Whether the user asked for a watched step, where srun passed on nothing. */
static bool was_asked_for(spank_t spank) {
  static const char *const WISHES[] = {GH_ENV_INHERITED, GH_ENV_USER};
  struct gh_spec spec = {.mode = GH_OPT_OFF};
  char complaint[GH_MESSAGE_BYTES];
  if (gh_plugin.is_given) return gh_plugin.given.mode != GH_OPT_OFF;
  for (size_t i = 0; i < sizeof(WISHES) / sizeof(WISHES[0]); i++) {
    char *text = gh_step_getenv(spank, WISHES[i]);
    bool valid = text && gh_spec_parse(text, &spec, complaint) == 0;
    free(text);
    if (valid) return spec.mode != GH_OPT_OFF;
  }
  return false;
}

/* srun alone decides, so that all nodes do the same. False where the step is not to be
 * watched, with a reason in WHY if that was not the user's wish. */
static bool read_decision(spank_t spank, struct gh_spec *spec, char token[GH_TOKEN_HEX + 1],
                          char why[WHY_BYTES]) {
  char complaint[GH_MESSAGE_BYTES];
  char *text = gh_step_getenv(spank, GH_ENV_SPEC);
  bool has_token = spank_getenv(spank, GH_ENV_TOKEN, token, GH_TOKEN_HEX + 1) == ESPANK_SUCCESS;
  if (!text) {
    gh_spec_off(spec);
    if (was_asked_for(spank))
      snprintf(why, WHY_BYTES, "srun sent no decision: the plugin on its host is missing or old");
  } else if (gh_spec_parse(text, spec, complaint)) {
    gh_spec_off(spec);
    snprintf(why, WHY_BYTES, "srun's decision is not understood here: %s", complaint);
  } else if (spec->mode != GH_OPT_OFF && (!has_token || !is_token(token))) {
    gh_spec_off(spec);
    snprintf(why, WHY_BYTES, "srun sent no valid job token in %s", GH_ENV_TOKEN);
  }
  free(text);
  return spec->mode != GH_OPT_OFF;
}

/* This node's own plugstack.conf again, whatever srun was made to decide; and its kill switch. */
static bool site_allows(struct gh_spec *spec, char why[WHY_BYTES]) {
  const struct gh_site *site = &gh_plugin.site;
  char said[GH_MESSAGE_BYTES], text[GH_MUTE_BYTES];
  gh_ceiling_lower(&site->ceiling, spec, said);
  if (spec->mode == GH_OPT_OFF) snprintf(why, WHY_BYTES, "%s", said);
  if (spec->mode != GH_OPT_OFF && said[0]) gh_say("node %u: %s", state.step.node_index, said);
  if (spec->mode == GH_OPT_OFF || !gh_mute_read(site->mute_file, text))
    return spec->mode != GH_OPT_OFF;
  snprintf(why, WHY_BYTES, "muted by the site (%.900s%s%s)", site->mute_file, text[0] ? ": " : "",
           text);
  return false;
}

/* One line a node, as another node may well be watched: it says which. The user hears the first
 * few; the others write it into their daemon's log, and the master notes who is missing. */
static void tell_as(const char *why, const char *extent) {
  char line[WHY_BYTES + 128];
  if (state.step.node_index < SPEAKING_NODES) {
    gh_unmonitored("node %u: %s%s", state.step.node_index, why, extent);
    return;
  }
  snprintf(line, sizeof(line), "unmonitored: node %u: %.1500s%s", state.step.node_index, why,
           extent);
  gh_quiet(line);
}

/* The first node has the master, without which no node is watched. */
static void tell(const char *why) {
  bool all = state.step.node_index == 0 && state.step.node_count > 1;
  tell_as(why, all ? " (so the whole step is unmonitored)" : "");
}

void gh_remote_user_init(spank_t spank) {
  struct gh_spec spec;
  char token[GH_TOKEN_HEX + 1] = "", why[WHY_BYTES] = "";
  bool wanted = false;
  if (!gh_claim(GH_ENV_CLAIM)) return;
  if (gh_step_has_tasks(spank)) {
    spank_get_item(spank, S_JOB_NODEID, &state.step.node_index);
    spank_get_item(spank, S_JOB_NNODES, &state.step.node_count);
    wanted = read_decision(spank, &spec, token, why) && site_allows(&spec, why);
  }
  clean_environment(spank);
  if (wanted) start(spank, &spec, token, why);
  if (why[0]) tell(why);
  explicit_bzero(token, sizeof(token));
}

/* ---- in each task, as the user ---- */

/* A task in the node's own root pays for two stat calls. One in another root keeps the hook only
 * where that root's own loader takes it: a preload that can't be loaded disturbs every command,
 * and where the libc is another, it ends them. */
void gh_remote_task_init(spank_t spank) {
  static bool done; /* listed twice, we come here twice */
  const struct gh_root here = gh_root_here();
  char why[WHY_BYTES], line[WHY_BYTES + 128];
  int task = 0;
  if (done || state.waiter <= 0 || gh_root_is_same(&here, &state.root)) return;
  done = true;
  if (gh_root_check(state.step.hook, why, sizeof(why)) == 0) {
    /* The container may have brought variables of its own. */
    set_environment(spank, &state.step);
    return;
  }
  drop_hook(spank);
  if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task != 0) return;
  snprintf(line, sizeof(line), "the tasks have a root of their own (a container): %.1400s", why);
  tell_as(line, "");
}

/* ---- end ---- */

/* What is left is removed as the user: root never walks through a user's directory. */
static void remove_directory(void) {
  struct stat st;
  if (lstat(state.step.directory, &st)) return;
  char *argv[] = {state.step.waiter, "--remove", state.step.directory, NULL};
  char *env[] = {NULL};
  char said[64];
  struct gh_child remover = {state.step.waiter, argv, env, state.step.who, -1, -1, NULL};
  if (gh_spawn_collect(&remover, REMOVE_MS, said, sizeof(said)) != 0)
    gh_say("could not remove %s", state.step.directory);
}

/* What a node process left behind. A step directory that it tidied up tells nothing. */
struct words {
  char note[512], last[512];
};

static void read_words(const struct gh_step *step, struct words *words) {
  gh_stepdir_last_line(step->directory, step->who.uid, GH_NOTE_NAME, words->note,
                       sizeof(words->note));
  gh_stepdir_last_line(step->directory, step->who.uid, GH_LOG_NAME, words->last,
                       sizeof(words->last));
}

static void tell_end(enum gh_end end, const struct words *words) {
  char why[WHY_BYTES];
  bool ended_early = end == GH_END_EARLY || end == GH_END_FAILED;
  if (words->note[0]) {
    tell(words->note);
  } else if (ended_early && !state.signalled) {
    snprintf(why, sizeof(why), "the node process ended before the tasks%s%s",
             words->last[0] ? ": " : "", words->last);
    tell(why);
  } else if (end == GH_END_KILLED) {
    gh_say("node %u: the node process did not end in %d ms and was killed", state.step.node_index,
           STOP_MS);
  }
}

static void finish(int stop_ms) {
  struct words words = {"", ""};
  const struct gh_step *step = &state.step;
  struct stat st;
  if (state.waiter <= 0) return;
  /* One that ended by itself, well and tidied up, was told to: by its master, or with the step.
   * slurmstepd often takes the exit status, so the node process tidies up only if all is well. */
  bool tidied_up = lstat(step->directory, &st) != 0;
  /* Before it ends, as it may tidy up; after, as it may fail at the end. */
  read_words(step, &words);
  enum gh_end end = gh_spawn_stop(state.waiter, stop_ms);
  read_words(step, &words);
  state.waiter = 0;
  if (!(tidied_up && end == GH_END_EARLY)) tell_end(end, &words);
  remove_directory();
}

void gh_remote_task_exit(spank_t spank) {
  int status = 0;
  pid_t pid = 0;
  if (state.waiter <= 0) return;
  /* Loaded twice, we hear of every exit twice, in a row. */
  if (spank_get_item(spank, S_TASK_PID, &pid) == ESPANK_SUCCESS && pid == state.last_exit) return;
  state.last_exit = pid;
  if (spank_get_item(spank, S_TASK_EXIT_STATUS, &status) == ESPANK_SUCCESS && WIFSIGNALED(status))
    state.signalled = true;
  if (state.tasks_left > 0 && --state.tasks_left == 0) finish(STOP_MS);
}

void gh_remote_exit(void) {
  state.signalled = true; /* whoever comes this way was killed with its step */
  finish(BACKSTOP_STOP_MS);
  /* Where the whole step was killed, so may the remover have been; by now nobody kills. */
  if (state.was_watched) remove_directory();
}

/* Every symbol that Slurm calls. Each does nothing but choose the context's file, and
 * returns 0: monitoring is never a reason to refuse a step or to drain a node. Only the
 * option callback may refuse, and only a bad command line. */
#include <dlfcn.h>
#include <limits.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"

SPANK_PLUGIN(greyhound, 1)

struct gh_plugin gh_plugin;

static int take_option(int val, const char *text, int remote) {
  char why[GH_MESSAGE_BYTES];
  struct gh_spec spec;
  (void)val;
  if (gh_spec_parse(text ? text : "", &spec, why) == 0) {
    /* Called for the inherited value first, then for the command line's: the last wins. */
    gh_plugin.given = spec;
    gh_plugin.is_given = true;
    return 0;
  }
  if (remote) return 0; /* srun checked it; what it decided comes with the token */
  slurm_error("greyhound: --greyhound=%s", why);
  return -1;
}

static struct spank_option option = {
    .name = "greyhound",
    .arginfo = "on|observe|off[,key=value...]",
    .usage =
        "watch the job for slow GPUs and links (keys: threshold, warmup, "
        "record_dir, freeze, s4)",
    .has_arg = 1,
    .val = 0,
    .cb = take_option,
};

static void own_folder(char out[PATH_MAX]) {
  Dl_info info;
  out[0] = '\0';
  if (!dladdr(&option, &info) || !info.dli_fname) return;
  snprintf(out, PATH_MAX, "%s", info.dli_fname);
  char *slash = strrchr(out, '/');
  *(slash ? slash : out) = '\0';
}

int slurm_spank_init(spank_t spank, int argc, char **argv) {
  static bool done; /* where plugstack.conf names us twice */
  char folder[PATH_MAX];
  spank_context_t context = spank_context();
  if (context == S_CTX_SLURMD) return 0;
  gh_plugin.listings++;
  if (!done) {
    own_folder(folder);
    gh_site_parse(argc, argv, folder, &gh_plugin.site,
                  context == S_CTX_REMOTE ? gh_quiet : gh_warn);
  }
  done = true;
  if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
    gh_warn("the option --greyhound could not be registered");
  return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv) {
  (void)spank, (void)argc, (void)argv;
  if (spank_context() == S_CTX_LOCAL) gh_local_decide();
  if (spank_context() == S_CTX_ALLOCATOR) gh_allocator_check();
  return 0;
}

int slurm_spank_local_user_init(spank_t spank, int argc, char **argv) {
  (void)argc, (void)argv;
  if (spank_context() == S_CTX_LOCAL) gh_local_admit(spank);
  return 0;
}

int slurm_spank_user_init(spank_t spank, int argc, char **argv) {
  (void)argc, (void)argv;
  if (spank_context() == S_CTX_REMOTE) gh_remote_user_init(spank);
  return 0;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv) {
  (void)argc, (void)argv;
  if (spank_context() == S_CTX_REMOTE) gh_remote_task_init(spank);
  return 0;
}

int slurm_spank_task_exit(spank_t spank, int argc, char **argv) {
  (void)argc, (void)argv;
  if (spank_context() == S_CTX_REMOTE) gh_remote_task_exit(spank);
  return 0;
}

int slurm_spank_exit(spank_t spank, int argc, char **argv) {
  (void)spank, (void)argc, (void)argv;
  if (spank_context() == S_CTX_REMOTE) gh_remote_exit();
  return 0;
}

/* stub.c: stands in place of the plugin after an uninstall. It knows --greyhound, so that scripts
 * which carry the option still run, and does nothing but say that the site has switched it off.
 */
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
#include <string.h>

SPANK_PLUGIN(greyhound, 1)

static int take_option(int val, const char *text, int remote) {
  (void)val;
  static int said;
  if (!remote && !said++ && text && strncmp(text, "off", 3) != 0)
    slurm_info("greyhound: disabled by the site; the job runs unmonitored");
  return 0;
}

static struct spank_option option = {
    .name = "greyhound",
    .arginfo = "on|observe|off[,key=value...]",
    .usage = "disabled by the site: accepted and ignored",
    .has_arg = 1,
    .val = 0,
    .cb = take_option,
};

int slurm_spank_init(spank_t spank, int argc, char **argv) {
  (void)argc;
  (void)argv;
  if (spank_context() != S_CTX_SLURMD) spank_option_register(spank, &option);
  return 0;
}

#include "site.h"

#include <stdio.h>
#include <string.h>

#include "mute.h"

static void warn_ignored(gh_warn_f warn, const char *argument, const char *why) {
  char sentence[GH_MESSAGE_BYTES + 512];
  snprintf(sentence, sizeof(sentence), "plugstack.conf: ignoring \"%.200s\": %s", argument, why);
  warn(sentence);
}

/* A ceiling that can't be read isn't ignored. */
static void warn_mended(gh_warn_f warn, const char *argument, const char *why) {
  char sentence[GH_MESSAGE_BYTES + 512];
  snprintf(sentence, sizeof(sentence), "plugstack.conf: \"%.200s\" isn't understood: %s", argument,
           why);
  warn(sentence);
}

/* Copies an absolute path; -1 where it is none or too long. */
static int take_path(char out[PATH_MAX], const char *value, const char *below) {
  if (value[0] != '/') return -1;
  int length = snprintf(out, PATH_MAX, "%s%s", value, below);
  if (length < PATH_MAX) return 0;
  out[0] = '\0';
  return -1;
}

static int take_prefix(struct gh_site *site, const char *value) {
  if (take_path(site->python, value, "/bin/python")) return -1;
  return take_path(site->native, value, "/lib/greyhound");
}

/* False where ARGUMENT names no place. */
static bool take_place(struct gh_site *site, const char *argument, gh_warn_f warn) {
  static const char *const NAMES[] = {
      "python=", "native=", "record_dir=", "redis_server=", "mute_file="};
  char *const targets[] = {site->python, site->native, site->record_dir, site->redis_server,
                           site->mute_file};
  for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
    if (strncmp(argument, NAMES[i], strlen(NAMES[i])) != 0) continue;
    if (take_path(targets[i], argument + strlen(NAMES[i]), ""))
      warn_ignored(warn, argument, "not an absolute path");
    return true;
  }
  return false;
}

static void take_argument(struct gh_site *site, const char *argument, gh_warn_f warn) {
  char why[GH_MESSAGE_BYTES];
  if (strncmp(argument, "prefix=", 7) == 0 || take_place(site, argument, warn)) return;
  if (strncmp(argument, "default=", 8) == 0) {
    struct gh_spec spec;
    if (gh_spec_parse(argument + 8, &spec, why))
      warn_ignored(warn, argument, why);
    else
      site->fallback = spec;
    return;
  }
  int taken = gh_ceiling_take(&site->ceiling, argument, why);
  if (taken < 0) warn_mended(warn, argument, why);
  if (taken > 0)
    warn_ignored(warn, argument,
                 "unknown argument (allowed: prefix=, python=, native=, default=, record_dir=, "
                 "redis_server=, mute_file=, max_mode=, freeze=, s4=, allow=)");
}

void gh_site_parse(int argc, char **argv, const char *own_folder, struct gh_site *site,
                   gh_warn_f warn) {
  memset(site, 0, sizeof(*site));
  gh_spec_off(&site->fallback);
  gh_ceiling_none(&site->ceiling);
  take_path(site->mute_file, GH_MUTE_FILE, "");
  take_path(site->native, own_folder, "");
  for (int i = 0; i < argc; i++)
    if (strncmp(argv[i], "prefix=", 7) == 0 && take_prefix(site, argv[i] + 7))
      warn_ignored(warn, argv[i], "not an absolute path");
  for (int i = 0; i < argc; i++) take_argument(site, argv[i], warn);
}

/* Runs the Slurm-free parts of the plugin from a command line, under the sanitizers.
 *
 *   unit_main spec TEXT | site OWN_FOLDER ARG... | preload HOOK|- OLD | check HOOK PROGRAM
 *   unit_main stepdir PATH | hold PATH | line PATH FILE | end SCRIPT
 *   unit_main lower TEXT ARG... | admits PARTITION ACCOUNT ARG... | mute FILE
 *   unit_main ask TEXT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ceiling.h"
#include "mute.h"
#include "options.h"
#include "preload.h"
#include "site.h"
#include "spawn.h"
#include "stepdir.h"

static void print_spec(const struct gh_spec *spec) {
  printf("mode=%s\n", gh_mode_name(spec->mode));
  for (int key = 0; key < GH_KEY_COUNT; key++)
    if (spec->value[key][0]) printf("%s=%s\n", gh_key_name((enum gh_key)key), spec->value[key]);
}

static int run_spec(const char *text) {
  struct gh_spec spec;
  char why[GH_MESSAGE_BYTES];
  if (gh_spec_parse(text, &spec, why)) {
    printf("refused %s\n", why);
    return 1;
  }
  print_spec(&spec);
  return 0;
}

static void warn(const char *sentence) { printf("warning %s\n", sentence); }

static int run_site(int argc, char **argv) {
  struct gh_site site;
  gh_site_parse(argc - 1, argv + 1, argv[0], &site, warn);
  printf("python=%s\nnative=%s\nrecord_dir=%s\nredis_server=%s\n", site.python, site.native,
         site.record_dir, site.redis_server);
  printf("mute_file=%s\n", site.mute_file);
  print_spec(&site.fallback);
  return 0;
}

static int run_lower(int argc, char **argv) {
  struct gh_site site;
  struct gh_spec spec;
  char said[GH_MESSAGE_BYTES], text[GH_TEXT_BYTES];
  gh_site_parse(argc - 1, argv + 1, "/own", &site, warn);
  if (gh_spec_parse(argv[0], &spec, said)) return 1;
  gh_ceiling_lower(&site.ceiling, &spec, said);
  if (gh_spec_print(&spec, text)) return 1;
  printf("%s\n%s\n", text, said);
  return 0;
}

static int run_admits(int argc, char **argv) {
  struct gh_site site;
  char why[GH_MESSAGE_BYTES] = "";
  gh_site_parse(argc - 2, argv + 2, "/own", &site, warn);
  bool admitted = gh_ceiling_admits(&site.ceiling, argv[0], argv[1], why);
  printf("%s\n", admitted ? "admitted" : why);
  return admitted ? 0 : 1;
}

static int run_mute(const char *file) {
  char text[GH_MUTE_BYTES];
  bool muted = gh_mute_read(file, text);
  printf("%s\n", muted ? text : "not muted");
  return muted ? 0 : 1;
}

/* Says what it was told, and hangs where that is "hang". */
static void say(int fd, const char *text) {
  if (strcmp(text, "hang") == 0) pause();
  if (write(fd, text, strlen(text)) < 0) _exit(1);
}

static int run_ask(const char *text) {
  char answer[8];
  int rc = gh_spawn_ask(say, text, 250, answer, sizeof(answer));
  printf("%d %s\n", rc, answer);
  return waitpid(-1, NULL, WNOHANG) < 0 ? 0 : 1; /* no child is left */
}

static int run_preload(const char *hook, const char *old) {
  char *joined = gh_preload_join(strcmp(hook, "-") ? hook : NULL, old);
  printf("%s\n", joined);
  free(joined);
  return 0;
}

static int run_check(const char *hook, const char *program) {
  const struct gh_identity who = {getuid(), getgid(), NULL, 0};
  const char *const programs[] = {"/bin/true", program, NULL};
  char why[1024];
  int rc = gh_preload_check(hook, programs, &who, why, sizeof(why));
  printf("%s\n", rc ? why : "accepted");
  return rc ? 1 : 0;
}

static int run_stepdir(const char *path, int hold) {
  const char *why = "";
  int fd = gh_stepdir_make(path, geteuid(), &why);
  printf("%s\n", fd < 0 ? why : "made");
  fflush(stdout);
  if (fd >= 0 && hold) getchar();
  if (fd >= 0) close(fd);
  return fd < 0 ? 1 : 0;
}

static int run_line(const char *path, const char *file) {
  char line[64] = "";
  int rc = gh_stepdir_last_line(path, geteuid(), file, line, sizeof(line));
  printf("%s\n", line);
  return rc ? 1 : 0;
}

/* Waits for SCRIPT to end by itself before it asks. */
static int run_end(char *script) {
  static const char *const NAMES[] = {"clean", "early", "failed", "killed"};
  char *argv[] = {"sh", "-c", script, NULL}, *env[] = {NULL};
  gid_t group = getgid();
  const struct gh_child child = {.path = "/bin/sh",
                                 .argv = argv,
                                 .env = env,
                                 .who = {getuid(), group, &group, 1},
                                 .kept_fd = -1,
                                 .error_fd = -1,
                                 .programs = NULL};
  siginfo_t info;
  pid_t pid = gh_spawn(&child);
  if (pid < 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT)) return 1;
  printf("%s\n", NAMES[gh_spawn_stop(pid, 100)]);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "spec")) return run_spec(argv[2]);
  if (argc >= 3 && !strcmp(argv[1], "site")) return run_site(argc - 2, argv + 2);
  if (argc == 4 && !strcmp(argv[1], "preload")) return run_preload(argv[2], argv[3]);
  if (argc == 4 && !strcmp(argv[1], "check")) return run_check(argv[2], argv[3]);
  if (argc == 3 && !strcmp(argv[1], "stepdir")) return run_stepdir(argv[2], 0);
  if (argc == 3 && !strcmp(argv[1], "hold")) return run_stepdir(argv[2], 1);
  if (argc == 4 && !strcmp(argv[1], "line")) return run_line(argv[2], argv[3]);
  if (argc == 3 && !strcmp(argv[1], "end")) return run_end(argv[2]);
  if (argc >= 3 && !strcmp(argv[1], "lower")) return run_lower(argc - 2, argv + 2);
  if (argc >= 4 && !strcmp(argv[1], "admits")) return run_admits(argc - 2, argv + 2);
  if (argc == 3 && !strcmp(argv[1], "mute")) return run_mute(argv[2]);
  if (argc == 3 && !strcmp(argv[1], "ask")) return run_ask(argv[2]);
  return 2;
}

#include "root.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spawn.h"

#define TRIAL_MS 700
#define SAID_BYTES 16384

/* The loader's place is fixed by the architecture, and so is the hook's. */
#if defined(__x86_64__)
#define LOADER "/lib64/ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define LOADER "/lib/ld-linux-aarch64.so.1"
#elif defined(__powerpc64__)
#define LOADER "/lib64/ld64.so.2"
#else
#define LOADER "/lib/ld.so.1"
#endif

struct gh_root gh_root_here(void) {
  struct gh_root root = {0};
  struct stat st;
  if (stat("/", &st) == 0) root.device = st.st_dev, root.inode = st.st_ino;
  if (stat("/proc/self/ns/mnt", &st) == 0)
    root.namespace_device = st.st_dev, root.namespace_inode = st.st_ino;
  return root;
}

bool gh_root_is_same(const struct gh_root *a, const struct gh_root *b) {
  return a->device == b->device && a->inode == b->inode &&
         a->namespace_device == b->namespace_device && a->namespace_inode == b->namespace_inode;
}

/* Runs a program of this root as we are, with LD_PRELOAD and the loader's own report. */
static int try_program(char *const *argv, char *const *env, char *said) {
  struct gh_child child = {argv[0], argv, env, {GH_UNCHANGED, GH_UNCHANGED, NULL, 0}, -1, -1, NULL};
  return gh_spawn_collect(&child, TRIAL_MS, said, SAID_BYTES);
}

/* Lines of LD_DEBUG begin with blanks, a process id and a colon. */
static bool is_report(const char *line) {
  line += strspn(line, " ");
  size_t digits = strspn(line, "0123456789");
  return digits && line[digits] == ':';
}

/* The first line that isn't the loader's report, "" where there is none. */
static const char *complaint(char *said) {
  for (char *line = said; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (!*line || is_report(line)) continue;
    line[strcspn(line, "\n")] = '\0';
    return line;
  }
  return "";
}

enum verdict { TAKEN, REFUSED, UNKNOWN };

/* A static program tells nothing: the loader that the training will have is asked. */
static enum verdict ask_loader(const char *hook, char *said, char *why, size_t size) {
  char *argv[] = {LOADER, "--verify", (char *)hook, NULL}, *env[] = {"LC_ALL=C", NULL};
  if (access(LOADER, X_OK)) {
    snprintf(why, size, "it has no %s, so another libc or architecture", LOADER);
    return REFUSED;
  }
  int status = try_program(argv, env, said);
  /* 2: a library, which has no loader of its own written in it. */
  if (status == 0 || status == 2) return TAKEN;
  snprintf(why, size, "its loader refuses the hook (%s --verify ended with %d): %.200s", LOADER,
           status, complaint(said));
  return REFUSED;
}

/* The hook is loaded where the loader says that it called its constructors. */
static enum verdict ask_program(const char *program, const char *hook, char *said, char *why,
                                size_t size) {
  char preload[PATH_MAX + 16], called[PATH_MAX + 32];
  char *argv[] = {(char *)program, NULL};
  char *env[] = {preload, "LD_DEBUG=files", "LC_ALL=C", NULL};
  snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", hook);
  snprintf(called, sizeof(called), "calling init: %s", hook);
  int status = try_program(argv, env, said);
  if (status == 0 && strstr(said, called)) return TAKEN;
  const char *words = complaint(said);
  if (status == 0 && !words[0]) return UNKNOWN;
  if (status < 0)
    snprintf(why, size, "trying the hook on its %s took too long", program);
  else
    snprintf(why, size, "its loader refuses the hook (%s ended with %d): %.200s", program, status,
             words);
  return REFUSED;
}

static enum verdict ask(const char *hook, char *why, size_t size) {
  static const char *const PROGRAMS[] = {"/bin/true", "/usr/bin/true"};
  char said[SAID_BYTES];
  for (size_t i = 0; i < sizeof(PROGRAMS) / sizeof(PROGRAMS[0]); i++) {
    if (access(PROGRAMS[i], X_OK)) continue;
    enum verdict verdict = ask_program(PROGRAMS[i], hook, said, why, size);
    if (verdict != UNKNOWN) return verdict;
    break;
  }
  return ask_loader(hook, said, why, size);
}

int gh_root_check(const char *hook, char *why, size_t size) {
  int folder = (int)(strrchr(hook, '/') - hook);
  if (access(hook, R_OK) == 0) return ask(hook, why, size) == TAKEN ? 0 : -1;
  snprintf(why, size,
           "%s is not there (%s): mount its folder, with pyxis --container-mounts=%.*s:%.*s:ro, "
           "with apptainer --bind %.*s",
           hook, strerror(errno), folder, hook, folder, hook, folder, hook);
  return -1;
}

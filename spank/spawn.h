/* Starting and ending children of slurmstepd as the job's user. No Slurm types. */
#ifndef GREYHOUND_SPAWN_H
#define GREYHOUND_SPAWN_H

#include <stddef.h>
#include <sys/types.h>

struct gh_identity {
  uid_t uid;
  gid_t gid;
  const gid_t *groups;
  int group_count;
};

/* As gh_identity.uid: the child stays who we are, as in a task, or in a user namespace. */
#define GH_UNCHANGED (~(uid_t)0)

struct gh_child {
  const char *path; /* program; argv and env are prepared before the fork */
  char *const *argv;
  char *const *env;
  struct gh_identity who;
  int kept_fd;  /* becomes descriptor 3 of the child; -1: none */
  int error_fd; /* becomes its stderr; -1: /dev/null */
  /* Programs that the user must be able to run, NULL-terminated, or NULL. Looked at in the
   * child: a file system that hangs must not hold the step. */
  const char *const *programs;
};

/* The child's exit status, and all that it wrote to stderr, where one of PROGRAMS fails. */
#define GH_EXIT_NO_PROGRAM 125
struct gh_no_program {
  int index; /* in PROGRAMS */
  int error; /* errno */
};

enum gh_end { GH_END_CLEAN, GH_END_EARLY, GH_END_FAILED, GH_END_KILLED };

/* Forks and runs CHILD with the identity asked for; the child exits 126 rather than
 * run with more rights than that. Returns its pid, or -1 with errno. */
pid_t gh_spawn(const struct gh_child *child);

/* Ends PID, a child of ours: GH_STOP_SIGNAL, at most GRACE_MS milliseconds, KILL. Reaps it.
 * GH_END_EARLY: it had ended before we asked, with status 0 as far as can be told;
 * GH_END_FAILED: with another status, or by a signal. */
enum gh_end gh_spawn_stop(pid_t pid, int grace_ms);

/* Runs CHILD at most LIMIT_MS milliseconds and collects its stderr in OUT. Returns its
 * exit status, 128 + signal, or -1 where it could not be run or took too long. */
int gh_spawn_collect(struct gh_child *child, int limit_ms, char *out, size_t size);

/* Lets ANSWER write about TEXT into a pipe, in a child of its own with our identity, and collects
 * that in OUT for at most LIMIT_MS milliseconds. ANSWER makes async-signal-safe calls only.
 * Returns 0, or as gh_spawn_collect. */
int gh_spawn_ask(void (*answer)(int fd, const char *text), const char *text, int limit_ms,
                 char *out, size_t size);

#endif

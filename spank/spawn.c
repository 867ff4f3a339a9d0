#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stop.h"

#define KILL_MS 500
#define REFUSED 126
#define FIRST_CLOSED_FD 4
#define MOST_FDS 65536

/* ---- in the child, after the fork: async-signal-safe calls only ---- */

static void reset_signals(void) {
  struct sigaction plain;
  sigset_t none;
  memset(&plain, 0, sizeof(plain));
  plain.sa_handler = SIG_DFL;
  for (int sig = 1; sig < NSIG; sig++) sigaction(sig, &plain, NULL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The raw system calls: glibc's wrappers talk to all threads, and here is one only. */
static bool become(const struct gh_identity *who) {
  uid_t r, e, s;
  gid_t rg, eg, sg;
  if (who->uid == GH_UNCHANGED) return true;
  if (getuid() == 0) {
    if (syscall(SYS_setresuid, -1, 0, -1)) return false;
    if (syscall(SYS_setgroups, (size_t)who->group_count, who->groups)) return false;
    if (syscall(SYS_setresgid, who->gid, who->gid, who->gid)) return false;
    if (syscall(SYS_setresuid, who->uid, who->uid, who->uid)) return false;
  }
  if (getresuid(&r, &e, &s) || getresgid(&rg, &eg, &sg)) return false;
  if (r != who->uid || e != who->uid || s != who->uid) return false;
  return rg == who->gid && eg == who->gid && sg == who->gid;
}

static void arrange_fds(const struct gh_child *child) {
  int null_fd = open("/dev/null", O_RDWR);
  int error_fd = child->error_fd >= 0 ? child->error_fd : null_fd;
  /* Out of the way of 0..3 first, lest one dup2 overwrites the next one's source. */
  int kept = child->kept_fd >= 0 ? fcntl(child->kept_fd, F_DUPFD, 64) : -1;
  error_fd = fcntl(error_fd, F_DUPFD, 64);
  dup2(null_fd, 0);
  dup2(null_fd, 1);
  dup2(error_fd, 2);
  if (kept >= 0)
    dup2(kept, 3);
  else
    close(3);
#ifdef SYS_close_range
  if (syscall(SYS_close_range, FIRST_CLOSED_FD, ~0U, 0) == 0) return;
#endif
  for (int fd = FIRST_CLOSED_FD; fd < MOST_FDS; fd++) close(fd);
}

static void check_programs(const char *const *programs) {
  struct gh_no_program missing = {0, 0};
  for (; programs && programs[missing.index]; missing.index++) {
    if (access(programs[missing.index], X_OK) == 0) continue;
    missing.error = errno;
    if (write(STDERR_FILENO, &missing, sizeof(missing)) < 0) _exit(REFUSED);
    _exit(GH_EXIT_NO_PROGRAM);
  }
}

static void run_child(const struct gh_child *child, pid_t parent) {
  const struct rlimit no_core = {0, 0};
  reset_signals();
  arrange_fds(child);
  if (!become(&child->who)) _exit(REFUSED);
  /* After the change of identity, which clears it. */
  prctl(PR_SET_PDEATHSIG, GH_STOP_SIGNAL);
  setpgid(0, 0); /* so that all that it starts can be named at once */
  if (getppid() != parent) _exit(REFUSED);
  setrlimit(RLIMIT_CORE, &no_core);
  umask(027);
  if (chdir("/")) _exit(REFUSED);
  check_programs(child->programs);
  execve(child->path, child->argv, child->env);
  _exit(127);
}

/* ---- in slurmstepd ---- */

pid_t gh_spawn(const struct gh_child *child) {
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid == 0) run_child(child, parent);
  return pid;
}

static long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000L + t.tv_nsec / 1000000L;
}

/* True once PID is no child of ours any more. slurmstepd's own wait may have reaped it:
 * ECHILD then, and its number may belong to somebody else. */
static bool gone(pid_t pid, int *status) {
  pid_t got = waitpid(pid, status, WNOHANG);
  return got == pid || (got < 0 && errno == ECHILD);
}

static bool gone_within(pid_t pid, int limit_ms, int *status) {
  long end = now_ms() + limit_ms;
  struct timespec nap = {0, 500000};
  while (!gone(pid, status)) {
    if (now_ms() >= end) return false;
    nanosleep(&nap, NULL);
    if (nap.tv_nsec < 8000000) nap.tv_nsec *= 2;
  }
  return true;
}

enum gh_end gh_spawn_stop(pid_t pid, int grace_ms) {
  int status = 0;
  if (gone(pid, &status)) return status ? GH_END_FAILED : GH_END_EARLY;
  /* The step's end waits for them: the niceness that was for the training's sake ends here. */
  setpriority(PRIO_PGRP, (id_t)pid, getpriority(PRIO_PROCESS, 0));
  kill(pid, GH_STOP_SIGNAL);
  if (gone_within(pid, grace_ms, &status)) return GH_END_CLEAN;
  kill(pid, SIGKILL);
  gone_within(pid, KILL_MS, &status);
  return GH_END_KILLED;
}

/* Reads bytes until end of file; false where the limit came first. */
static bool drain(int fd, long end_ms, char *out, size_t size) {
  size_t used = 0;
  char rest[256];
  for (;;) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    long left = end_ms - now_ms();
    if (left <= 0 || poll(&p, 1, (int)left) == 0) return false;
    bool full = used + 1 >= size;
    ssize_t got = read(fd, full ? rest : out + used, full ? sizeof(rest) : size - 1 - used);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    if (!full) used += (size_t)got;
    out[used] = '\0';
  }
}

/* What PID, a child of ours or -1, writes into the pipe; its exit status. Closes READ_FD. */
static int collect(pid_t pid, int read_fd, int limit_ms, char *out, size_t size) {
  int status = 0;
  long end = now_ms() + limit_ms;
  bool ended = pid > 0 && drain(read_fd, end, out, size);
  close(read_fd);
  if (pid < 0) return -1;
  if (!ended || !gone_within(pid, limit_ms, &status)) {
    kill(pid, SIGKILL);
    gone_within(pid, KILL_MS, &status);
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int gh_spawn_collect(struct gh_child *child, int limit_ms, char *out, size_t size) {
  int fds[2];
  out[0] = '\0';
  if (pipe2(fds, O_CLOEXEC)) return -1;
  child->error_fd = fds[1];
  pid_t pid = gh_spawn(child);
  close(fds[1]);
  child->error_fd = -1;
  return collect(pid, fds[0], limit_ms, out, size);
}

int gh_spawn_ask(void (*answer)(int fd, const char *text), const char *text, int limit_ms,
                 char *out, size_t size) {
  int fds[2];
  out[0] = '\0';
  if (pipe2(fds, O_CLOEXEC)) return -1;
  const struct gh_child child = {.kept_fd = -1, .error_fd = fds[1]};
  pid_t pid = fork();
  if (pid == 0) {
    reset_signals();
    arrange_fds(&child); /* one that hangs must not hold our descriptors */
    answer(STDERR_FILENO, text);
    _exit(0);
  }
  close(fds[1]);
  return collect(pid, fds[0], limit_ms, out, size);
}

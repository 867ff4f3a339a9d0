/* greyhound_waiter: waits in a job step until a training process opens a ring, or uses NCCL
 * for a while without one, then becomes the node process (docs/interfaces.md 4). Steps that
 * make no communicator pay for this small program and for nothing else.
 *
 *   greyhound_waiter STEPDIR -- PROGRAM ARGUMENT...
 *   greyhound_waiter --remove STEPDIR
 *
 * GH_STOP_SIGNAL before the first ring: STEPDIR is removed, exit 0. If PROGRAM cannot be
 * run, one line goes into STEPDIR/unmonitored and the waiter stays until told to stop. Every
 * signal that may be sent to a whole step, TERM included, is ignored, and so it is in PROGRAM.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "bypass.h"
#include "rings.h"
#include "stepdir.h"
#include "stop.h"

#define RESCAN_MS 5000    /* beside inotify, in case an event was lost */
#define SCAN_ALONE_MS 250 /* where the kernel gives us no inotify */
#ifndef BYPASS_SCAN_MS    /* tests shorten these two */
#define BYPASS_SCAN_MS 15000
#define BYPASS_PATIENCE_MS 30000
#endif
#define NICE_LEVEL 10
#define SHARED_MEMORY "/dev/shm"
#define NOBODY_MISSES_US "1000" /* oom_score_adj: out of memory, end us before the job */

extern char **environ;

struct waiter {
  const char *step_dir;
  char **command;
  int stop_fd;
  int inotify_fd;
  bool given_up;
  long next_scan_ms;      /* for calls that pass the hook by */
  long bypassed_since_ms; /* 0: no such process at the last scan */
};

static int usage(void) {
  fputs("usage: greyhound_waiter STEPDIR -- PROGRAM ARGUMENT... | --remove STEPDIR\n", stderr);
  return 2;
}

static void ignore_step_signals(void) {
  static const int IGNORED[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM,
                                SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGXCPU, SIGWINCH};
  for (size_t i = 0; i < sizeof(IGNORED) / sizeof(IGNORED[0]); i++) signal(IGNORED[i], SIG_IGN);
}

static void step_aside(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    ssize_t written = write(fd, NOBODY_MISSES_US, strlen(NOBODY_MISSES_US));
    (void)written; /* not offered everywhere, and no reason to stop */
    close(fd);
  }
  setpriority(PRIO_PROCESS, 0, NICE_LEVEL);
}

static bool ring_exists(const char *step_dir) {
  return gh_folder_has_ring(gh_stepdir_open(step_dir, geteuid()));
}

static int open_in(const char *step_dir, const char *name, int flags) {
  int folder = gh_stepdir_open(step_dir, geteuid());
  if (folder < 0) return -1;
  int fd = openat(folder, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
  close(folder);
  return fd;
}

static void write_note(const struct waiter *w, int error) {
  int fd = open_in(w->step_dir, GH_NOTE_NAME, O_EXCL);
  if (fd < 0) return;
  dprintf(fd, "cannot run %s: %s\n", w->command[0], strerror(error));
  close(fd);
}

/* Returns only where the program cannot be run. */
static void become_node_process(struct waiter *w) {
  sigset_t stop;
  int log_fd = open_in(w->step_dir, GH_LOG_NAME, O_APPEND);
  sigemptyset(&stop);
  sigaddset(&stop, GH_STOP_SIGNAL);
  if (access(w->command[0], X_OK) == 0) {
    if (log_fd >= 0) {
      dup2(log_fd, STDOUT_FILENO);
      dup2(log_fd, STDERR_FILENO);
    }
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    execve(w->command[0], w->command, environ);
  }
  int error = errno;
  sigprocmask(SIG_BLOCK, &stop, NULL);
  if (log_fd >= 0) close(log_fd);
  write_note(w, error);
  w->given_up = true;
}

static int watch(const char *step_dir) {
  int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) return -1;
  if (inotify_add_watch(fd, step_dir, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) >= 0) return fd;
  close(fd);
  return -1;
}

static void forget_events(int fd) {
  char events[4096];
  while (fd >= 0 && read(fd, events, sizeof(events)) > 0) continue;
}

static long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000L + t.tv_nsec / 1000000L;
}

/* Whether there is a ring in a root of a task's own, or the step has used NCCL without a ring
 * for so long that its calls cannot pass the hook. The node process then says so. */
static bool works_elsewhere(struct waiter *w) {
  long now = now_ms();
  if (now < w->next_scan_ms) return false;
  w->next_scan_ms = now + BYPASS_SCAN_MS;
  unsigned found = gh_step_look(w->step_dir);
  if (found & GH_FOUND_RING) return true;
  if (!(found & GH_FOUND_NCCL))
    w->bypassed_since_ms = 0;
  else if (!w->bypassed_since_ms)
    w->bypassed_since_ms = now;
  return w->bypassed_since_ms && now - w->bypassed_since_ms >= BYPASS_PATIENCE_MS;
}

static int poll_limit_ms(const struct waiter *w) {
  int limit = w->inotify_fd >= 0 ? RESCAN_MS : SCAN_ALONE_MS;
  if (w->given_up) return -1;
  return BYPASS_SCAN_MS < limit ? BYPASS_SCAN_MS : limit;
}

static int wait_for_stop(struct waiter *w) {
  w->next_scan_ms = now_ms() + BYPASS_SCAN_MS;
  for (;;) {
    struct pollfd fds[2] = {{.fd = w->stop_fd, .events = POLLIN},
                            {.fd = w->given_up ? -1 : w->inotify_fd, .events = POLLIN}};
    if (!w->given_up && (ring_exists(w->step_dir) || works_elsewhere(w))) {
      become_node_process(w);
      continue;
    }
    if (poll(fds, 2, poll_limit_ms(w)) < 0 && errno != EINTR) return 1;
    if (fds[0].revents) return 0;
    forget_events(w->inotify_fd);
  }
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--remove") == 0) return gh_stepdir_remove(argv[2]) ? 1 : 0;
  if (argc < 4 || strcmp(argv[2], "--") != 0) return usage();
  struct waiter w = {.step_dir = argv[1], .command = argv + 3};
  sigset_t stop;
  ignore_step_signals();
  sigemptyset(&stop);
  sigaddset(&stop, GH_STOP_SIGNAL);
  sigprocmask(SIG_BLOCK, &stop, NULL);
  w.stop_fd = signalfd(-1, &stop, SFD_CLOEXEC);
  if (w.stop_fd < 0) return 1;
  step_aside();
  gh_stepdir_sweep(SHARED_MEMORY);
  w.inotify_fd = watch(w.step_dir);
  int rc = wait_for_stop(&w);
  gh_stepdir_remove(w.step_dir);
  return rc;
}

#include "mute.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS 250000000L

/* Asked by one thread, answered by another, which may hang; the later of the two frees it. */
struct question {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool answered, abandoned;
  bool exists;
  char path[PATH_MAX];
  char text[GH_MUTE_BYTES];
};

static void discard(struct question *q) {
  pthread_cond_destroy(&q->changed);
  pthread_mutex_destroy(&q->lock);
  free(q);
}

static void first_line(const char *path, char text[GH_MUTE_BYTES]) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  ssize_t got = fd < 0 ? 0 : read(fd, text, GH_MUTE_BYTES - 1);
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = '\0';
  text[strcspn(text, "\r\n")] = '\0';
  for (char *p = text; *p; p++)
    if (!isprint((unsigned char)*p)) *p = '?';
}

static void *answer(void *data) {
  struct question *q = data;
  struct stat st;
  char text[GH_MUTE_BYTES] = "";
  bool exists = stat(q->path, &st) == 0;
  if (exists) first_line(q->path, text);
  pthread_mutex_lock(&q->lock);
  q->exists = exists;
  memcpy(q->text, text, sizeof(text));
  q->answered = true;
  bool abandoned = q->abandoned;
  pthread_cond_signal(&q->changed);
  pthread_mutex_unlock(&q->lock);
  if (abandoned) discard(q);
  return NULL;
}

/* The thread takes no signal that is meant for the process. */
static int ask(struct question *q) {
  sigset_t all, old;
  pthread_t thread;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&thread, NULL, answer, q);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!failed) pthread_detach(thread);
  return failed;
}

static bool await(struct question *q, char text[GH_MUTE_BYTES]) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += PATIENCE_NS;
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  pthread_mutex_lock(&q->lock);
  int late = 0;
  while (!q->answered && !late) late = pthread_cond_timedwait(&q->changed, &q->lock, &until);
  bool exists = q->answered && q->exists, answered = q->answered;
  if (exists) memcpy(text, q->text, GH_MUTE_BYTES);
  q->abandoned = !answered;
  pthread_mutex_unlock(&q->lock);
  if (answered) discard(q);
  return exists;
}

bool gh_mute_read(const char *path, char text[GH_MUTE_BYTES]) {
  text[0] = '\0';
  struct question *q = calloc(1, sizeof(*q));
  if (!q) return false;
  pthread_mutex_init(&q->lock, NULL);
  pthread_cond_init(&q->changed, NULL);
  snprintf(q->path, sizeof(q->path), "%s", path);
  if (ask(q) == 0) return await(q, text);
  discard(q);
  return false;
}

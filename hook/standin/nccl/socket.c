/* socket.c: loopback TCP for the rendezvous, abstract Unix sockets between members. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

#define BACKLOG 4096
#define HELLO_TIMEOUT_MS 2000

struct hello {
  uint64_t nonce;
  int32_t rank;
  uint32_t unused;
};

static struct sockaddr_in loopback(uint16_t port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int gs_listen_tcp(uint16_t *port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
      listen(fd, BACKLOG) == 0 && getsockname(fd, (struct sockaddr *)&address, &length) == 0) {
    *port = ntohs(address.sin_port);
    return fd;
  }
  gs_close(&fd);
  return -1;
}

int gs_connect_tcp(uint16_t port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = loopback(port);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) gs_close(&fd);
  return fd;
}

/* An abstract name: bound to no file, gone with the process. */
static socklen_t local_name(struct sockaddr_un *name, uint64_t address, enum gs_channel channel) {
  memset(name, 0, sizeof *name);
  name->sun_family = AF_UNIX;
  int length =
      snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "greyhound-standin-%016llx-%c",
               (unsigned long long)address, channel == GS_DATA ? 'd' : 'c');
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int gs_listen_local(uint64_t address, enum gs_channel channel) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_un name;
  socklen_t length = local_name(&name, address, channel);
  if (fd >= 0 && (bind(fd, (struct sockaddr *)&name, length) != 0 || listen(fd, BACKLOG) != 0))
    gs_close(&fd);
  return fd;
}

int gs_connect_local(uint64_t address, enum gs_channel channel, uint64_t nonce, int my_rank) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_un name;
  socklen_t length = local_name(&name, address, channel);
  struct hello hello = {.nonce = nonce, .rank = my_rank};
  if (fd >= 0 && (connect(fd, (struct sockaddr *)&name, length) != 0 ||
                  send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello))
    gs_close(&fd);
  return fd;
}

static bool same_user(int fd) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

/* The hello follows the connection at once; the wait is for a peer caught in between. */
static bool read_hello(int fd, struct hello *hello) {
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  return poll(&wait, 1, HELLO_TIMEOUT_MS) == 1 &&
         recv(fd, hello, sizeof *hello, 0) == (ssize_t)sizeof *hello;
}

int gs_accept_local(int listener, uint64_t nonce, int *rank) {
  for (;;) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return -1;
    struct hello hello;
    if (same_user(fd) && read_hello(fd, &hello) && hello.nonce == nonce) {
      *rank = hello.rank;
      return fd;
    }
    close(fd);
  }
}

uint64_t gs_random(void) {
  uint64_t value = 0;
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) continue;
  return value;
}

int gs_make_wake(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

void gs_signal(int wake) {
  uint64_t one = 1;
  while (wake >= 0 && write(wake, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void gs_close(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static bool wait_for(int fd, short events, int wake) {
  struct pollfd wait[2] = {{.fd = fd, .events = events}, {.fd = wake, .events = POLLIN}};
  while (poll(wait, 2, -1) < 0)
    if (errno != EINTR) return false;
  return wait[1].revents == 0;
}

bool gs_send_all(int fd, const void *data, size_t bytes, int wake) {
  const char *at = data;
  while (bytes > 0) {
    ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= (size_t)n;
    } else if (n < 0 && errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, wake)) return false;
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool gs_recv_all(int fd, void *data, size_t bytes, int wake) {
  char *at = data;
  while (bytes > 0) {
    ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= (size_t)n;
    } else if (n < 0 && errno == EAGAIN) {
      if (!wait_for(fd, POLLIN, wake)) return false;
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

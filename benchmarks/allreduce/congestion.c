// Preloaded into the peers: every TCP socket gets the congestion control that the environment
// variable HEDDLE_CONGESTION names, as ours set it themselves, so that all run with the same one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol) {
  static int (*next)(int, int, int);
  if (next == NULL) {
    next = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
  }
  const int fd = next(domain, type, protocol);
  const char* name = getenv("HEDDLE_CONGESTION");
  if (fd >= 0 && name != NULL && (domain == AF_INET || domain == AF_INET6) &&
      (type & 0xF) == SOCK_STREAM) {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
  }
  return fd;
}

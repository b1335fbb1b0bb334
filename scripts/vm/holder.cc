// A guest of scripts/rdma-vm and all of its processes, held together: nothing of it outlives this
// process, and this process does not outlive the one that started it.
//
//   holder COMMAND…
//
// User-Mode Linux makes each process of the guest one of the machine. They are meant to end with
// their kernel, but one that was just being made when its kernel is killed stays behind, stopped
// for good. Here whoever loses its parent becomes a child of the holder, who kills until it has no
// child left. Without privileges or namespaces.
//
// SIGTERM (sent also when the parent ends) kills everything, SIGTSTP stops the command's first
// process, SIGCONT lets it go on. The exit code is the command's, or 128 + the signal that ended
// it.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <memory>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

// The kernel's list of the children at this moment; null where there is none.
std::unique_ptr<FILE, int (*)(FILE*)> ListChildren() {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/task/%d/children", static_cast<int>(getpid()));
  return {std::fopen(path, "re"), std::fclose};
}

void KillChildren() {
  const auto list = ListChildren();
  for (int child = 0; list && std::fscanf(list.get(), "%d", &child) == 1;) {
    kill(child, SIGKILL);
  }
}

// The children of those who die become ours: kill and collect until nobody is left.
void KillAll() {
  while (true) {
    KillChildren();
    int status = 0;
    pid_t ended = waitpid(-1, &status, __WALL | WNOHANG);
    if (ended < 0 && errno == ECHILD) {
      return;
    }
    if (ended <= 0) {
      const timespec moment = {.tv_sec = 0, .tv_nsec = 2'000'000};
      nanosleep(&moment, nullptr);
    }
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: holder COMMAND…\n");
    return 2;
  }
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGTSTP, SIGCONT, SIGCHLD}) {
    sigaddset(&signals, number);
  }
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t parent = getppid();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) {
    std::perror("holder: prctl");
    return 125;
  }
  if (getppid() != parent) {
    return 125;
  }
  if (!ListChildren()) {
    std::fprintf(stderr, "holder: this kernel does not list children (CONFIG_PROC_CHILDREN)\n");
    return 125;
  }
  const pid_t holder = getpid();
  const pid_t command = fork();
  if (command == 0) {
    // Should the holder be killed itself, the first process goes with it.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != holder) {
      _exit(125);
    }
    sigprocmask(SIG_SETMASK, &before, nullptr);
    execvp(words[1], words + 1);
    std::fprintf(stderr, "holder: %s: %s\n", words[1], std::strerror(errno));
    _exit(127);
  }
  if (command < 0) {
    std::perror("holder: fork");
    return 125;
  }
  for (int code = -1;;) {
    int number = 0;
    sigwait(&signals, &number);
    if (number == SIGTSTP || number == SIGCONT) {
      kill(command, number == SIGTSTP ? SIGSTOP : SIGCONT);
    }
    int status = 0;
    for (pid_t ended = 0;
         number == SIGCHLD && (ended = waitpid(-1, &status, __WALL | WNOHANG)) > 0;) {
      if (ended == command) {
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
    }
    if (number == SIGTERM || code >= 0) {
      KillAll();
      return code >= 0 ? code : 128 + SIGTERM;
    }
  }
}

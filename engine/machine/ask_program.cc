#include "engine/machine/ask_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system/unique_fd.h"

namespace heddle::machine {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;
// How long a program may take to end after its output, or after it was killed.
constexpr Duration kLongestEnd = std::chrono::seconds(1);

// Waits until `fd` has something to read; false: not by the deadline.
bool WaitUntilReadable(int fd, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now()).count();
    pollfd polled = {.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (ready > 0 || Now() >= deadline) {
      return ready > 0;
    }
  }
}

// What is to happen in the new process before it runs the program.
class SpawnActions {
 public:
  explicit SpawnActions(int output) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
  }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

Result<pid_t> Start(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) {
    words.push_back(const_cast<char*>(argument.c_str()));  // posix_spawn does not change them.
  }
  words.push_back(nullptr);
  const SpawnActions actions(output);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, words.front(), actions.get(), nullptr, words.data(), environ);
  return error == 0 ? Result<pid_t>(pid) : ErrnoError(error, "start " + arguments.front());
}

// Reads until the program closes its output, which is true, or until the deadline.
Result<bool> ReadAll(int fd, Deadline deadline, std::string& output) {
  std::array<char, 4096> buffer = {};
  while (WaitUntilReadable(fd, deadline)) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got == 0) {
      return true;
    }
    if (got < 0 && errno != EINTR) {
      return ErrnoError(errno, "read a program's output");
    }
    output.append(buffer.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (output.size() > kMostBytes) {
      return ResourceExhaustedError("a program wrote more than {} bytes", kMostBytes);
    }
  }
  return false;
}

// Reaps the program, which has closed its output or is killed; empty: it does not end.
std::string EndOf(pid_t pid) {
  // By number: glibc 2.36 declares pidfd_open without extern "C".
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process.valid() && !WaitUntilReadable(process.get(), After(kLongestEnd))) {
    ::kill(pid, SIGKILL);
    WaitUntilReadable(process.get(), After(kLongestEnd));
  }
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) != pid) {
    return "";
  }
  return WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                             : fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace

Result<ProgramAnswer> AskProgram(const std::vector<std::string>& arguments, Duration bound) {
  const Deadline deadline = After(bound);
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return ErrnoError(errno, "pipe");
  }
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  HEDDLE_ASSIGN_OR_RETURN(const pid_t pid, Start(arguments, writer.get()));
  writer.Reset();
  ProgramAnswer answer;
  const Result<bool> whole = ReadAll(reader.get(), deadline, answer.output);
  answer.timed_out = whole.ok() && !*whole;
  if (!whole.ok() || !*whole) {
    ::kill(pid, SIGKILL);
  }
  const std::string end = EndOf(pid);
  HEDDLE_RETURN_IF_ERROR(whole.status());
  answer.end = answer.timed_out ? "" : end;
  return answer;
}

}  // namespace heddle::machine

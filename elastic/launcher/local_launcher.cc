#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/system/unique_fd.h"
#include "base/thread.h"
#include "elastic/launcher/launcher.h"

extern char** environ;

namespace heddle::elastic {
namespace {

constexpr Duration kLongestWait = std::chrono::seconds(1);

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));  // execve does not change them.
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : std::to_string(signal);
}

struct Child {
  std::string name;
  UniqueFd pidfd;
};

// All forks are made by the reaper's thread: a parent-death signal comes when the *thread* that
// forked ends, and this one lives as long as the launcher.
class LocalLauncher : public Launcher {
 public:
  explicit LocalLauncher(LocalLauncherOptions options) : options_(std::move(options)) {}

  Status Open() {
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_.valid()) {
      return ErrnoError(errno, "eventfd");
    }
    thread_ = Thread("launcher", [this] { Run(); });
    return Status::Ok();
  }

  ~LocalLauncher() override {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
    }
    Wake();
    thread_.Join();
  }

  Result<int64_t> Launch(const LaunchSpec& spec) override {
    const auto request = std::make_shared<Request>();
    request->spec = spec;
    const Deadline deadline = After(options_.launch_timeout);
    const MutexLock lock(mutex_);
    if (stopped_) {
      return FailedPreconditionError("the launcher has ended");
    }
    requests_.push_back(request);
    Wake();
    while (!request->result && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    if (!request->result) {
      request->given_up = true;
      std::erase(requests_, request);
      return DeadlineExceededError("start {}: not done in {:.0f} s", spec.argv.front(),
                                   Seconds(options_.launch_timeout));
    }
    return *request->result;
  }

  Status Signal(int64_t pid, int signal) override {
    const MutexLock lock(mutex_);
    if (children_.count(pid) == 0) {
      return NotFoundError("process {} has ended", pid);
    }
    // Not reaped yet, because children_ holds it: the id cannot belong to another process.
    if (::kill(-static_cast<pid_t>(pid), signal) != 0 && errno != ESRCH) {
      return ErrnoError(errno, fmt::format("kill {}", pid));
    }
    return Status::Ok();
  }

  Status WaitAll(Deadline deadline) override {
    const MutexLock lock(mutex_);
    while (!children_.empty() && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    if (children_.empty()) {
      return Status::Ok();
    }
    std::string names;
    for (const auto& [pid, child] : children_) {
      names += (names.empty() ? "" : ", ") + child.name;
    }
    return DeadlineExceededError("still running: {}", names);
  }

 private:
  struct Request {
    LaunchSpec spec;
    std::optional<Result<int64_t>> result;
    bool given_up = false;
  };

  void Wake() const {
    const uint64_t one = 1;
    if (::write(wake_.get(), &one, sizeof(one)) < 0) {
      return;  // The counter is full: the thread is awake anyway.
    }
  }

  void Run() {
    while (true) {
      std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
      {
        const MutexLock lock(mutex_);
        if (stopped_) {
          break;
        }
        for (const auto& [pid, child] : children_) {
          polled.push_back({child.pidfd.get(), POLLIN, 0});
        }
      }
      ::poll(polled.data(), polled.size(),
             static_cast<int>(
                 std::chrono::duration_cast<std::chrono::milliseconds>(kLongestWait).count()));
      uint64_t count = 0;
      if (::read(wake_.get(), &count, sizeof(count)) < 0) {
        count = 0;
      }
      StartRequested();
      ReapEnded();
    }
    KillAll();
  }

  void StartRequested() {
    while (const std::shared_ptr<Request> request = TakeRequest()) {
      Result<int64_t> result = Fork(request->spec);
      const MutexLock lock(mutex_);
      if (result.ok() && request->given_up) {
        ::kill(-static_cast<pid_t>(*result), SIGKILL);
        ::waitpid(static_cast<pid_t>(*result), nullptr, 0);
        continue;
      }
      if (result.ok()) {
        Child child;
        child.name = request->spec.name;
        // By number: glibc 2.36 declares pidfd_open without extern "C".
        child.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, *result, 0)));
        children_[*result] = std::move(child);
      }
      request->result = std::move(result);
      changed_.NotifyAll();
    }
  }

  std::shared_ptr<Request> TakeRequest() {
    const MutexLock lock(mutex_);
    if (requests_.empty()) {
      return nullptr;
    }
    std::shared_ptr<Request> request = std::move(requests_.front());
    requests_.pop_front();
    return request;
  }

  Result<int64_t> Fork(const LaunchSpec& spec) const {
    std::vector<std::string> environment;
    const auto replaced = [&](std::string_view entry) {
      return std::any_of(spec.environment.begin(), spec.environment.end(), [&](const auto& other) {
        return entry.substr(0, entry.find('=')) == other.first;
      });
    };
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!replaced(*entry)) {
        environment.emplace_back(*entry);
      }
    }
    for (const auto& [name, value] : spec.environment) {
      environment.push_back(name + "=" + value);
    }
    const std::vector<char*> argv = Pointers(spec.argv);
    const std::vector<char*> envp = Pointers(environment);
    const UniqueFd log(
        ::open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.valid()) {
      return ErrnoError(errno, "open " + spec.log_path);
    }
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      return ErrnoError(errno, "pipe");
    }
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
      return ErrnoError(errno, "fork");
    }
    if (pid == 0) {
      Exec(argv, envp, log.get(), null.get(), writer.get(), parent);
    }
    ::setpgid(pid, pid);  // Both processes call it, as either may run first.
    writer.Reset();
    int error = 0;
    ssize_t got = 0;
    do {
      got = ::read(reader.get(), &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
    if (got == static_cast<ssize_t>(sizeof(error))) {
      ::waitpid(pid, nullptr, 0);
      return ErrnoError(error, "start " + spec.argv.front());
    }
    return int64_t{pid};
  }

  // In the child of a process with threads: only async-signal-safe calls until execve.
  [[noreturn]] void Exec(const std::vector<char*>& argv,
                         const std::vector<char*>& envp,
                         int log,
                         int null,
                         int failure,
                         pid_t parent) const {
    ::setpgid(0, 0);
    if (options_.die_with_parent) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) {
        ::_exit(127);
      }
    }
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);  // NOLINT(concurrency-mt-unsafe): one thread
    ::dup2(null, STDIN_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC);
    ::execve(argv.front(), argv.data(), envp.data());
    const int error = errno;
    if (::write(failure, &error, sizeof(error)) < 0) {
      ::_exit(126);
    }
    ::_exit(127);
  }

  void ReapEnded() {
    std::vector<int64_t> pids;
    {
      const MutexLock lock(mutex_);
      for (const auto& [pid, child] : children_) {
        pids.push_back(pid);
      }
    }
    for (const int64_t pid : pids) {
      Reap(pid, WNOHANG);
    }
  }

  void Reap(int64_t pid, int options) {
    ExitReport report;
    {
      const MutexLock lock(mutex_);
      int status = 0;
      const pid_t ended = ::waitpid(static_cast<pid_t>(pid), &status, options);
      if (ended == 0 || (ended < 0 && errno != ECHILD)) {
        return;
      }
      report.name = children_.at(pid).name;
      report.pid = pid;
      if (ended > 0 && WIFSIGNALED(status)) {
        report.signal = WTERMSIG(status);
        report.reason = "killed by " + SignalName(report.signal);
      } else {
        report.code = ended > 0 ? WEXITSTATUS(status) : -1;
        report.reason = fmt::format("exit code {}", report.code);
      }
      children_.erase(pid);
      changed_.NotifyAll();
    }
    if (options_.on_exit) {
      options_.on_exit(report);
    }
  }

  void KillAll() {
    std::vector<int64_t> pids;
    {
      const MutexLock lock(mutex_);
      for (const auto& [pid, child] : children_) {
        ::kill(-static_cast<pid_t>(pid), SIGKILL);
        pids.push_back(pid);
      }
      for (const auto& request : requests_) {
        request->result = Result<int64_t>(CancelledError("the launcher ends"));
      }
      requests_.clear();
      changed_.NotifyAll();
    }
    for (const int64_t pid : pids) {
      Reap(pid, 0);
    }
  }

  const LocalLauncherOptions options_;
  UniqueFd wake_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Request>> requests_ HEDDLE_GUARDED_BY(mutex_);
  std::map<int64_t, Child> children_ HEDDLE_GUARDED_BY(mutex_);
  bool stopped_ HEDDLE_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace

Result<std::unique_ptr<Launcher>> MakeLocalLauncher(LocalLauncherOptions options) {
  auto launcher = std::make_unique<LocalLauncher>(std::move(options));
  HEDDLE_RETURN_IF_ERROR(launcher->Open());
  return std::unique_ptr<Launcher>(std::move(launcher));
}

}  // namespace heddle::elastic

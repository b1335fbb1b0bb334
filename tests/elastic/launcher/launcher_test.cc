#include "elastic/launcher/launcher.h"

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/system/file.h"

namespace heddle::elastic {
namespace {

constexpr Duration kPatience = std::chrono::minutes(2);

class LauncherTest : public testing::Test {
 protected:
  LauncherTest() {
    LocalLauncherOptions options;
    options.on_exit = [this](const ExitReport& report) {
      const MutexLock lock(mutex_);
      reports_.push_back(report);
      changed_.NotifyAll();
    };
    launcher_ = *MakeLocalLauncher(std::move(options));
  }
  LaunchSpec Shell(const std::string& script) const {
    LaunchSpec spec;
    spec.name = "w";
    spec.argv = {"/bin/sh", "-c", script};
    spec.log_path = folder_.path() + "/w.log";
    return spec;
  }
  std::optional<ExitReport> WaitReport() {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(mutex_);
    while (reports_.empty() && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    return reports_.empty() ? std::nullopt : std::optional<ExitReport>(reports_.front());
  }

  const TemporaryFolder folder_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<ExitReport> reports_ HEDDLE_GUARDED_BY(mutex_);
  std::unique_ptr<Launcher> launcher_;
};

TEST_F(LauncherTest, ReportsTheExitCodeAndKeepsTheOutput) {
  LaunchSpec spec = Shell("echo out $GREETING; echo err >&2; exit 3");
  ASSERT_EQ(::setenv("GREETING", "not this one", 1), 0);
  spec.environment = {{"GREETING", "hello"}};
  const auto pid = launcher_->Launch(spec);
  ASSERT_TRUE(pid.ok()) << pid.status().ToString();
  const auto report = WaitReport();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->name, "w");
  EXPECT_EQ(report->pid, *pid);
  EXPECT_EQ(report->code, 3);
  EXPECT_EQ(report->reason, "exit code 3");
  EXPECT_EQ(*ReadFile(spec.log_path, 1000), "out hello\nerr\n");
  EXPECT_TRUE(launcher_->WaitAll(Now()).ok());
  EXPECT_EQ(launcher_->Signal(*pid, SIGTERM).code(), StatusCode::kNotFound);
}

TEST_F(LauncherTest, ReportsTheSignal) {
  const auto pid = launcher_->Launch(Shell("sleep 100"));
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(launcher_->WaitAll(Now()).code(), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(launcher_->Signal(*pid, SIGKILL).ok());
  const auto report = WaitReport();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->signal, SIGKILL);
  EXPECT_EQ(report->reason, "killed by SIGKILL");
}

TEST_F(LauncherTest, EachProcessLeadsItsOwnGroup) {
  const auto pid = launcher_->Launch(Shell("sleep 100"));
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(::getpgid(static_cast<pid_t>(*pid)), *pid);
}

TEST_F(LauncherTest, AMissingProgramIsAnError) {
  LaunchSpec spec = Shell("");
  spec.argv = {"/no/such/program"};
  const auto pid = launcher_->Launch(spec);
  ASSERT_FALSE(pid.ok());
  EXPECT_EQ(pid.status().code(), StatusCode::kNotFound) << pid.status().ToString();
}

// The log of the first one is a pipe that nobody reads yet, which holds the launching thread.
TEST_F(LauncherTest, AStartThatIsGivenUpLeavesNoProcess) {
  const std::string pipe = folder_.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto launcher =
      *MakeLocalLauncher({.on_exit = {}, .launch_timeout = std::chrono::milliseconds(50)});
  LaunchSpec held = Shell("echo started; sleep 10");
  held.log_path = pipe;
  EXPECT_EQ(launcher->Launch(held).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(launcher->Launch(Shell("echo started")).status().code(), StatusCode::kDeadlineExceeded);
  std::ifstream reader(pipe);  // Lets the launching thread go on.
  std::string line;
  while (std::getline(reader, line)) {
  }  // The pipe ends when no process has it open.
  EXPECT_TRUE(launcher->WaitAll(Now()).ok());
  EXPECT_FALSE(FileExists(folder_.path() + "/w.log"));
}

TEST_F(LauncherTest, TheDestructorKillsWhatRuns) {
  const auto pid = launcher_->Launch(Shell("sleep 100"));
  ASSERT_TRUE(pid.ok());
  launcher_.reset();
  EXPECT_EQ(::kill(static_cast<pid_t>(*pid), 0), -1);
}

// A parent that dies without a word takes its workers along.
TEST_F(LauncherTest, WorkersDieWithTheirParent) {
  const std::string pid_file = folder_.path() + "/pid";
  launcher_.reset();
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto launcher = MakeLocalLauncher({});
    const auto pid = (*launcher)->Launch(Shell("sleep 100"));
    WriteFileAtomically(pid_file, std::to_string(pid.ok() ? *pid : 0))
        .IgnoreError("the test sees it");
    ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  const auto text = ReadFile(pid_file, 100);
  ASSERT_TRUE(text.ok());
  const pid_t worker = std::stoi(*text);
  ASSERT_GT(worker, 0);
  // It is a zombie of init's or gone, soon.
  const Deadline deadline = After(kPatience);
  bool gone = false;
  while (!gone && Now() < deadline) {
    std::ifstream stat("/proc/" + std::to_string(worker) + "/stat");
    std::string id;
    std::string name;
    std::string state;
    gone = !(stat >> id >> name >> state) || state == "Z" || state == "X";
  }
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace heddle::elastic

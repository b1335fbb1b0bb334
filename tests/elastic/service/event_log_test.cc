// The log of a run: after a crash, on a full disk, and when the disk has room again.
#include "elastic/service/folders/event_log.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/system/file.h"

namespace heddle::elastic {
namespace {

using testing::EndsWith;
using testing::StartsWith;

constexpr double kTime = 1.7e9;

LogEvent Step(int64_t step) {
  return {"step", {{"step", step}}};
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Lines of these steps and no others, whole.
void ExpectSteps(const std::string& path, int64_t last) {
  const std::vector<std::string> lines = Lines(path);
  ASSERT_EQ(static_cast<int64_t>(lines.size()), last);
  for (int64_t step = 1; step <= last; ++step) {
    EXPECT_THAT(lines[static_cast<size_t>(step - 1)],
                EndsWith("\"event\": \"step\", \"step\": " + std::to_string(step) + "}"));
  }
}

std::unique_ptr<EventLog> Open(const std::string& path) {
  auto log = EventLog::Open(path);
  EXPECT_TRUE(log.ok()) << log.status().ToString();
  return std::move(*log);
}

// By a process of its own, as it were.
void AppendAnew(const std::string& path, int64_t step) {
  Open(path)->Append(Step(step), kTime);
}

/// A limit on the size of this process's files stands for a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t size) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    Allow(size);
  }
  ~FullDisk() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  void Allow(rlim_t size) const {
    const rlimit full = {size, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  }

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

TEST(EventLogTest, GoesOnAfterACrashWithoutTheHalfLineThatItLeft) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/events.jsonl";
  AppendAnew(path, 1);
  // Shorter and longer than what is looked at in one piece, and with the block's edge at the
  // line's.
  int64_t step = 2;
  for (const size_t size : {1U, 11U, 4095U, 4096U, 4097U, 20000U}) {
    std::ofstream(path, std::ios::app) << std::string(size, '{');
    AppendAnew(path, step++);
  }
  ExpectSteps(path, 7);
  EXPECT_THAT(Lines(path).at(6), StartsWith("{\"time\": "));
}

TEST(EventLogTest, ACrashInTheFirstLineLeavesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/events.jsonl";
  for (const size_t size : {5U, 4096U, 9000U}) {
    std::ofstream(path, std::ios::trunc) << std::string(size, '{');
    AppendAnew(path, 1);
    ExpectSteps(path, 1);
  }
}

TEST(EventLogTest, WhatWasAppendedIsSynced) {
  const TemporaryFolder folder;
  const auto log = Open(folder.path() + "/events.jsonl");
  log->Append(Step(1), kTime);
  EXPECT_TRUE(log->Sync().ok());
}

TEST(EventLogTest, WhatDoesNotFitWaitsAndComesInItsOrder) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/events.jsonl";
  const auto log = Open(path);
  log->Append(Step(1), kTime);
  const auto line = std::filesystem::file_size(path);
  {
    FullDisk disk(line + 10);
    log->Append(Step(2), kTime);
    log->Append(Step(3), kTime);
    ExpectSteps(path, 1);
    EXPECT_EQ(log->Sync().code(), StatusCode::kUnavailable) << "nobody may count on what waits";
    // Room for one of the two that wait, and half of the other.
    disk.Allow(2 * line + line / 2);
    log->Append(Step(4), kTime);
    ExpectSteps(path, 2);
  }
  EXPECT_TRUE(log->Sync().ok()) << "it writes what waits";
  ExpectSteps(path, 4);
  log->Append(Step(5), kTime);
  ExpectSteps(path, 5);
}

TEST(EventLogTest, AfterTooManyNothingIsTakenUntilThereIsRoom) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/events.jsonl";
  const auto log = Open(path);
  const LogEvent large = {"note", {{"text", std::string(EventLog::kMaxWaiting / 2, 'x')}}};
  {
    const FullDisk disk(0);
    log->Append(Step(1), kTime);
    log->Append(large, kTime);
    log->Append(large, kTime);    // One too many,
    log->Append(Step(2), kTime);  // and no smaller one hides the gap.
  }
  EXPECT_TRUE(log->Sync().ok());
  EXPECT_EQ(Lines(path).size(), 2U);
  log->Append(Step(3), kTime);
  EXPECT_EQ(Lines(path).size(), 3U);
}

TEST(EventLogTest, ALinkIsNotFollowed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/events.jsonl";
  std::filesystem::create_symlink(folder.path() + "/elsewhere", path);
  EXPECT_FALSE(EventLog::Open(path).ok());
  EXPECT_FALSE(FileExists(folder.path() + "/elsewhere"));
}

TEST(EventLogTest, WhatWaitsIsWrittenAtTheEnd) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/events.jsonl";
  auto log = Open(path);
  log->Append(Step(1), kTime);
  {
    const FullDisk disk(std::filesystem::file_size(path));
    log->Append(Step(2), kTime);
  }
  ExpectSteps(path, 1);
  log.reset();
  ExpectSteps(path, 2);
}

}  // namespace
}  // namespace heddle::elastic

#include "elastic/service/run_folder.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/system/file.h"

namespace heddle::elastic {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

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

void Append(const std::string& path, int64_t step) {
  auto run = RunFolder::Open(path);
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  const Status appended = (*run)->Append(Step(step));
  ASSERT_TRUE(appended.ok()) << appended.ToString();
}

TEST(RunFolderTest, GoesOnAfterACrashWithoutTheHalfLineThatItLeft) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/run";
  const std::string events = path + "/events.jsonl";
  Append(path, 1);
  // Shorter and longer than what is looked at in one piece, and with the block's edge at the
  // line's.
  int64_t step = 2;
  for (const size_t size : {1U, 11U, 4095U, 4096U, 4097U, 20000U}) {
    std::ofstream(events, std::ios::app) << std::string(size, '{');
    Append(path, step++);
  }
  const std::vector<std::string> lines = Lines(events);
  ASSERT_EQ(lines.size(), 7U);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], StartsWith("{\"time\": "));
    EXPECT_THAT(lines[i], EndsWith("\"step\": " + std::to_string(i + 1) + "}"));
  }
}

TEST(RunFolderTest, WhatWasAppendedIsSynced) {
  const TemporaryFolder folder;
  auto run = RunFolder::Open(folder.path() + "/run");
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_TRUE((*run)->Append(Step(1)).ok());
  EXPECT_TRUE((*run)->Sync().ok());
}

TEST(RunFolderTest, ACrashInTheFirstLineLeavesNothing) {
  const TemporaryFolder folder;
  const std::string events = folder.path() + "/events.jsonl";
  for (const size_t size : {5U, 4096U, 9000U}) {
    std::ofstream(events, std::ios::trunc) << std::string(size, '{');
    Append(folder.path(), 1);
    EXPECT_EQ(Lines(events).size(), 1U);
    EXPECT_THAT(Lines(events).at(0), EndsWith("\"event\": \"step\", \"step\": 1}"));
  }
}

/// A limit on the size of files stands for the full disk.
TEST(RunFolderTest, AnEventThatDoesNotFitLeavesNothing) {
  const TemporaryFolder folder;
  Append(folder.path(), 1);
  auto run = RunFolder::Open(folder.path());
  ASSERT_TRUE(run.ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const auto size = std::filesystem::file_size(folder.path() + "/events.jsonl");
  const rlimit full = {size + 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const Status written = (*run)->Append(Step(2));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(written.ok());
  EXPECT_EQ(std::filesystem::file_size(folder.path() + "/events.jsonl"), size);
  ASSERT_TRUE((*run)->Append(Step(3)).ok());
  const std::vector<std::string> lines = Lines(folder.path() + "/events.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[1], EndsWith("\"step\": 3}"));
}

TEST(RunFolderTest, JobFileNamesCoordinatorMetricsAndWorkers) {
  const TemporaryFolder folder;
  auto run = RunFolder::Open(folder.path());
  ASSERT_TRUE(run.ok());
  (*run)->SetAddresses("127.0.0.1:1", "127.0.0.1:2");
  ASSERT_TRUE((*run)->WriteJobFile({{"a", 11, "", ""}, {"b", 12, "", ""}}).ok());
  EXPECT_EQ(*ReadFile(folder.path() + "/job.json", 1000),
            "{\"coordinator\": \"127.0.0.1:1\", \"metrics\": \"127.0.0.1:2\", \"workers\": "
            "[{\"name\": \"a\", \"pid\": 11}, {\"name\": \"b\", \"pid\": 12}]}\n");
  ASSERT_TRUE((*run)->WriteJobFile({}).ok());
  EXPECT_THAT(*ReadFile(folder.path() + "/job.json", 1000), HasSubstr("\"workers\": []"));
}

// ---- Whose it is ----

class FolderClaimTest : public testing::Test {
 protected:
  static Status Take(const std::string& path,
                     const std::string& hash,
                     std::unique_ptr<FolderClaim>* claim = nullptr,
                     bool known = false) {
    auto taken = FolderClaim::Take(path, hash, "name: a\n", known);
    if (taken.ok() && claim != nullptr) {
      *claim = *std::move(taken);
    }
    return taken.status();
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/run";
};

TEST_F(FolderClaimTest, OneLivingCoordinatorAtATime) {
  std::unique_ptr<FolderClaim> first;
  ASSERT_TRUE(Take(path_, "abc", &first).ok());
  const Status second = Take(path_, "abc");
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr("another coordinator works in it"));
  first.reset();  // As when its process dies.
  EXPECT_TRUE(Take(path_, "abc").ok());
}

TEST_F(FolderClaimTest, OneJobForEver) {
  ASSERT_TRUE(Take(path_, "abc").ok());
  EXPECT_EQ(*ReadFile(path_ + "/job.hash", 100), "abc\n");
  EXPECT_EQ(*ReadFile(path_ + "/job.yaml", 100), "name: a\n");
  const Status other = Take(path_, "xyz");
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("belongs to another job"));
  EXPECT_EQ(Take(path_, "xyz", nullptr, true).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*ReadFile(path_ + "/job.hash", 100), "abc\n");
}

TEST_F(FolderClaimTest, ARunThatNobodyClaimedIsOnlyItsCoordinators) {
  Append(path_, 1);
  EXPECT_EQ(Take(path_, "abc").code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(FileExists(path_ + "/job.hash"));
  EXPECT_FALSE(FileExists(path_ + "/coordinator.lock"));
  EXPECT_TRUE(Take(path_, "abc", nullptr, true).ok());
  EXPECT_TRUE(Take(path_, "abc").ok());
  EXPECT_EQ(Lines(path_ + "/events.jsonl").size(), 1U);
}

TEST_F(FolderClaimTest, AJobThatIsNotTakenLeavesTheFolderAsItWas) {
  std::unique_ptr<FolderClaim> claim;
  ASSERT_TRUE(Take(path_, "abc", &claim).ok());
  Append(path_, 1);
  claim->Undo();
  EXPECT_FALSE(FileExists(path_));
  ASSERT_TRUE(Take(path_, "abc").ok());
  Append(path_, 1);
  ASSERT_TRUE(Take(path_, "abc", &claim).ok());
  claim->Undo();  // It was the job's before.
  EXPECT_TRUE(Take(path_, "abc").ok());
  EXPECT_EQ(Lines(path_ + "/events.jsonl").size(), 1U);
}

}  // namespace
}  // namespace heddle::elastic

// What is written to a run's folder by another thread: in order, all of it, with its own moment.
#include "elastic/service/folders/folder_writer.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/system/file.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

constexpr int kEvents = 500;

// The numbers of the steps in events.jsonl, as they stand there.
std::vector<int64_t> StepsOf(const std::string& path) {
  const std::string text = *ReadFile(path + "/events.jsonl", 1 << 20);
  const std::string key = "\"step\": ";
  std::vector<int64_t> steps;
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    if (std::isdigit(text[at + key.size()]) != 0) {
      steps.push_back(std::stoll(text.substr(at + key.size())));
    }
  }
  return steps;
}

class FolderWriterTest : public testing::Test {
 protected:
  static void AppendAll(FolderWriter& writer, const std::shared_ptr<RunFolder>& run) {
    for (int64_t step = 1; step <= kEvents; ++step) {
      writer.Append(run, {"step", {{"step", step}}});
    }
  }
  void ExpectAll() const {
    const std::vector<int64_t> steps = StepsOf(folder_.path());
    EXPECT_EQ(steps.size(), static_cast<size_t>(kEvents));
    EXPECT_TRUE(std::ranges::is_sorted(steps));
  }

  const TemporaryFolder folder_;
};

TEST_F(FolderWriterTest, WhatWasAskedForIsThereWhenItIsFinished) {
  const std::shared_ptr<RunFolder> run = *RunFolder::Open(folder_.path());
  FolderWriter writer;
  const double begun = WallClockSeconds();
  AppendAll(writer, run);
  writer.Replace(run, "job.json", [] {
    return JobFileJson({.coordinator = "127.0.0.1:1", .metrics = "127.0.0.1:2"}, {});
  });
  writer.Finish();
  ExpectAll();
  EXPECT_THAT(*ReadFile(folder_.path() + "/job.json", 1000), HasSubstr("127.0.0.1:1"));
  const std::string text = *ReadFile(folder_.path() + "/events.jsonl", 1 << 20);
  EXPECT_NEAR(std::stod(text.substr(text.find(' '))), begun, 60);
  EXPECT_TRUE(writer.Sync(*run).ok());
}

TEST_F(FolderWriterTest, ItsEndLosesNothing) {
  {
    FolderWriter writer;
    AppendAll(writer, *RunFolder::Open(folder_.path()));
  }
  ExpectAll();
}

}  // namespace
}  // namespace heddle::elastic

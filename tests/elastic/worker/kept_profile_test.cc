#include "elastic/worker/measure/kept_profile.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread.h"
#include "tests/support/graph/random_graph.h"

namespace heddle::elastic {
namespace {

class KeptProfileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    for (const program::ProfiledWork::Part& part : work_.parts) {
      measured_.seconds[part.signature] = 0.25;
    }
    measured_.flops_per_second = 1e9;
    measured_.bytes_per_second = 1e9;
  }

  // As a process that has just begun.
  Result<KeptProfile> Ask(const ProfileKey& key) {
    KeptFiles files(folder_);
    return GetProfile(files, key, Measure());
  }

  std::function<Result<program::WorkerProfile>()> Measure() {
    return [this]() -> Result<program::WorkerProfile> {
      ++measurements_;
      return measured_;
    };
  }

  std::string OnlyFile() const {
    return std::filesystem::directory_iterator(folder_)->path().string();
  }

  const program::ProfiledWork work_ = *program::WorkOf(testing::RandomGraph(1, DType::kF32));
  const ProfileKey key_{.work = &work_, .emulated = true, .threads = 1};
  const std::string folder_ = ::testing::TempDir() + "kept_profile_test";
  program::WorkerProfile measured_;
  std::atomic<int> measurements_ = 0;
};

TEST_F(KeptProfileTest, IsMeasuredOnce) {
  const auto first = Ask(key_);
  const auto second = Ask(key_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(measurements_, 1);
  EXPECT_EQ(program::ProfileToJson(first->profile), program::ProfileToJson(second->profile));
  EXPECT_LE(std::abs(first->measured_at - second->measured_at), 2) << "the file's time is coarse";
}

TEST_F(KeptProfileTest, EmulatedOrNotAndAnyNumberOfThreadsHasItsOwn) {
  ASSERT_TRUE(Ask(key_).ok());
  ASSERT_TRUE(Ask({.work = &work_, .emulated = false, .threads = 1}).ok());
  ASSERT_TRUE(Ask({.work = &work_, .emulated = true, .threads = 2}).ok());
  EXPECT_EQ(measurements_, 3);
}

TEST_F(KeptProfileTest, AnotherArithmeticHasItsOwn) {
  ProfileKey key = key_;
  for (const char* const core : {"SkylakeX", "Haswell", "Haswell"}) {
    key.arithmetic = {{"processor", "EPYC"}, {"blas", core}};
    ASSERT_TRUE(Ask(key).ok());
  }
  EXPECT_EQ(measurements_, 2);
}

TEST_F(KeptProfileTest, WhatCannotBeReadIsMeasuredAnew) {
  ASSERT_TRUE(Ask(key_).ok());
  std::ofstream(OnlyFile()) << "{\"seconds\": ";
  ASSERT_TRUE(Ask(key_).ok());
  EXPECT_EQ(measurements_, 2);
  ASSERT_TRUE(Ask(key_).ok());
  EXPECT_EQ(measurements_, 2);
}

TEST_F(KeptProfileTest, WhenItWasMeasuredIsKept) {
  ASSERT_TRUE(Ask(key_).ok());
  const auto now = std::chrono::system_clock::now();
  std::filesystem::last_write_time(
      OnlyFile(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(3));
  const auto kept = Ask(key_);
  ASSERT_TRUE(kept.ok());
  const double age =
      std::chrono::duration<double>(now.time_since_epoch()).count() - kept->measured_at;
  EXPECT_NEAR(age, 3 * 3600, 60);
  EXPECT_EQ(measurements_, 1);
}

TEST_F(KeptProfileTest, WhatIsOldIsMeasuredAnew) {
  ASSERT_TRUE(Ask(key_).ok());
  std::filesystem::last_write_time(
      OnlyFile(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  ASSERT_TRUE(Ask(key_).ok());
  EXPECT_EQ(measurements_, 2);
}

TEST_F(KeptProfileTest, AFolderThatCannotBeMadeCostsNoMore) {
  std::ofstream(folder_) << "a file";
  ASSERT_TRUE(Ask(key_).ok());
  ASSERT_TRUE(Ask(key_).ok());
  EXPECT_EQ(measurements_, 2);
}

TEST_F(KeptProfileTest, ProcessesThatBeginTogetherMeasureOnce) {
  std::latch all_ask(4);
  std::vector<std::unique_ptr<Thread>> processes;
  std::vector<std::string> seen(4);
  for (std::string& profile : seen) {
    processes.push_back(std::make_unique<Thread>("process", [this, &profile, &all_ask] {
      all_ask.arrive_and_wait();
      const auto kept = Ask(key_);
      profile = kept.ok() ? program::ProfileToJson(kept->profile) : kept.status().ToString();
    }));
  }
  for (const auto& process : processes) {
    process->Join();
  }
  EXPECT_EQ(measurements_, 1);
  EXPECT_EQ(seen, std::vector<std::string>(4, program::ProfileToJson(measured_)));
}

TEST_F(KeptProfileTest, WithoutAFolderItIsKnownToTheProcess) {
  KeptFiles files("");
  EXPECT_TRUE(GetProfile(files, key_, Measure()).ok());
  EXPECT_TRUE(GetProfile(files, key_, Measure()).ok());
  EXPECT_EQ(measurements_, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace heddle::elastic

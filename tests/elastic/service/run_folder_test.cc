#include "elastic/service/folders/run_folder.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/file.h"

namespace heddle::elastic {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// What a coordinator does that opens the run and ends again.
void Append(const std::string& path) {
  auto run = RunFolder::Open(path);
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  (*run)->events().Append({"step", {{"step", 1}}}, 1.7e9);
}

int64_t LinesOf(const std::string& path) {
  const std::string text = *ReadFile(path, 1 << 20);
  return std::count(text.begin(), text.end(), '\n');
}

TEST(RunFolderTest, JobFileNamesCoordinatorMetricsAndWorkers) {
  const TemporaryFolder folder;
  auto run = RunFolder::Open(folder.path());
  ASSERT_TRUE(run.ok());
  const RunAddresses addresses = {.coordinator = "127.0.0.1:1", .metrics = "127.0.0.1:2"};
  EXPECT_EQ(JobFileJson(addresses, {{"a", 11, "", ""}, {"b", 12, "", ""}}),
            "{\"coordinator\": \"127.0.0.1:1\", \"metrics\": \"127.0.0.1:2\", \"workers\": "
            "[{\"name\": \"a\", \"pid\": 11}, {\"name\": \"b\", \"pid\": 12}]}\n");
  ASSERT_TRUE((*run)->Replace("job.json", JobFileJson(addresses, {})).ok());
  EXPECT_THAT(*ReadFile(folder.path() + "/job.json", 1000), HasSubstr("\"workers\": []"));
}

// A process that was thought to be gone writes on into what nobody reads.
TEST(RunFolderTest, ALogThatIsAnewHasNoOtherWriter) {
  const TemporaryFolder folder;
  auto before = RunFolder::Open(folder.path());
  (*before)->events().Append({"step", {{"step", 1}}}, 1.7e9);
  auto run = RunFolder::Open(folder.path(), RunFolder::Log::kAnew);
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  (*before)->events().Append({"step", {{"step", 2}}}, 1.7e9);
  (*run)->events().Append({"step", {{"step", 3}}}, 1.7e9);
  EXPECT_EQ(LinesOf(folder.path() + "/events.jsonl"), 2);
  const std::string text = *ReadFile(folder.path() + "/events.jsonl", 1 << 20);
  EXPECT_THAT(text, HasSubstr("\"step\": 1}"));
  EXPECT_THAT(text, EndsWith("\"step\": 3}\n"));
  EXPECT_TRUE(RunFolder::Open(folder.path() + "/new", RunFolder::Log::kAnew).ok());
}

// ---- Whose it is ----

class FolderClaimTest : public testing::Test {
 protected:
  static Status Take(const std::string& path,
                     const std::string& hash,
                     std::unique_ptr<FolderClaim>* claim = nullptr,
                     bool known = false) {
    auto taken = FolderClaim::Take(
        {.folder = path, .job_hash = hash, .job_text = "name: a\n", .known = known});
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
  Append(path_);
  EXPECT_EQ(Take(path_, "abc").code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(FileExists(path_ + "/job.hash"));
  EXPECT_FALSE(FileExists(path_ + "/coordinator.lock"));
  EXPECT_TRUE(Take(path_, "abc", nullptr, true).ok());
  EXPECT_TRUE(Take(path_, "abc").ok());
  EXPECT_EQ(LinesOf(path_ + "/events.jsonl"), 1);
}

TEST_F(FolderClaimTest, AJobThatIsNotTakenLeavesTheFolderAsItWas) {
  std::unique_ptr<FolderClaim> claim;
  ASSERT_TRUE(Take(path_, "abc", &claim).ok());
  Append(path_);
  claim->Undo();
  EXPECT_FALSE(FileExists(path_));
  ASSERT_TRUE(Take(path_, "abc").ok());
  Append(path_);
  ASSERT_TRUE(Take(path_, "abc", &claim).ok());
  claim->Undo();  // It was the job's before.
  EXPECT_TRUE(Take(path_, "abc").ok());
  EXPECT_EQ(LinesOf(path_ + "/events.jsonl"), 1);
}

TEST_F(FolderClaimTest, ALaterTermOfTheSameStoreTakesItFromALivingOne) {
  const auto take = [&](const StoreTerm& term) {
    return FolderClaim::Take(
        {.folder = path_, .job_hash = "abc", .job_text = "name: a\n", .term = term});
  };
  const auto first = take({.store = "etcd 1/x", .number = 9});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  for (const StoreTerm& other :
       {StoreTerm{}, StoreTerm{.store = "etcd 1/x", .number = 9},
        StoreTerm{.store = "etcd 1/x", .number = 8}, StoreTerm{.store = "etcd 1/xy", .number = 10},
        StoreTerm{.store = "etcd 2/x", .number = 10}}) {
    EXPECT_EQ(take(other).status().code(), StatusCode::kFailedPrecondition)
        << other.store << " " << other.number;
  }
  const auto second = take({.store = "etcd 1/x", .number = 10});
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(take({.store = "etcd 1/x", .number = 9}).status().code(),
            StatusCode::kFailedPrecondition);
  const auto third = take({.store = "etcd 1/x", .number = 11});
  EXPECT_TRUE(third.ok()) << third.status().ToString();
}

TEST_F(FolderClaimTest, ATermDoesNotOutliveItsLock) {
  ASSERT_TRUE(FolderClaim::Take({.folder = path_,
                                 .job_hash = "abc",
                                 .job_text = "",
                                 .term = {.store = "etcd 1/x", .number = 9}})
                  .ok());
  std::unique_ptr<FolderClaim> alone;
  ASSERT_TRUE(Take(path_, "abc", &alone).ok());
  EXPECT_EQ(FolderClaim::Take({.folder = path_,
                               .job_hash = "abc",
                               .job_text = "",
                               .term = {.store = "etcd 1/x", .number = 10}})
                .status()
                .code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace heddle::elastic

// Where submitted jobs may write, and every way out of there.
#include "elastic/service/folders/output_roots.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/file.h"
#include "elastic/service/folders/run_folder.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class OutputRootsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = OutputRoots::Make({root_ + "/", "s3://lab/runs/", other_});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    roots_ = *made;
  }
  Status Check(const std::string& output, const std::string& store = "") const {
    job::JobConfig job;
    job.hash = "mine";
    job.checkpoint.store = store;
    return roots_.Check(job, output).status();
  }
  void ExpectRefused(const std::string& output, const std::string& store = "") const {
    const Status status = Check(output, store);
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << output << " " << store;
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path() + "/runs";
  const std::string other_ = folder_.path() + "/more";
  OutputRoots roots_;
};

TEST_F(OutputRootsTest, BelowARootJobsWrite) {
  EXPECT_TRUE(Check(root_ + "/a").ok());
  EXPECT_TRUE(Check(root_ + "/team/a").ok());
  EXPECT_TRUE(Check(other_ + "/a/").ok());
  EXPECT_TRUE(Check(root_ + "/b/../a").ok()) << "it stays below";
  EXPECT_TRUE(Check(root_ + "/a", root_ + "/a/checkpoints").ok());
  EXPECT_TRUE(Check(root_ + "/a", other_ + "/checkpoints-of-a").ok());
  EXPECT_TRUE(Check(root_ + "/a", "s3://lab/runs/a").ok());
  EXPECT_EQ(roots_.FirstFolder(), std::filesystem::canonical(root_).string());
  EXPECT_TRUE(std::filesystem::is_empty(root_)) << "looking writes nothing";
}

TEST_F(OutputRootsTest, ElsewhereTheyDoNot) {
  for (const std::string& output :
       {std::string("/"), std::string("/etc/heddle"), root_, root_ + "/", root_ + "/.",
        root_ + "x/a", folder_.path() + "/a", root_ + "/../a", root_ + "/a/../../b",
        std::string("runs/a"), std::string("../a"), std::string()}) {
    ExpectRefused(output);
    if (!output.empty()) {
      ExpectRefused(root_ + "/a", output);
    }
  }
  EXPECT_THAT(Check("/etc/heddle").message(), HasSubstr("output folder /etc/heddle is not below"));
  EXPECT_THAT(Check("/etc/heddle").message(), HasSubstr("--output-root"));
}

TEST_F(OutputRootsTest, LinksAreFollowed) {
  std::filesystem::create_directory_symlink("/etc", root_ + "/out");
  ExpectRefused(root_ + "/out/a");
  ExpectRefused(root_ + "/a", root_ + "/out/a");
  std::filesystem::create_directory_symlink(other_, root_ + "/in");
  EXPECT_TRUE(Check(root_ + "/in/a").ok()) << "from one root into the other";
  EXPECT_EQ(*roots_.Check({}, root_ + "/in/a"), std::filesystem::canonical(other_).string() + "/a");
  // Inside the run's own folder, too.
  std::filesystem::create_directories(root_ + "/b");
  std::filesystem::create_directory_symlink("/etc", root_ + "/b/checkpoints");
  ExpectRefused(root_ + "/b");
}

TEST_F(OutputRootsTest, NotInAnotherJobsFolder) {
  ASSERT_TRUE(
      FolderClaim::Take({.folder = root_ + "/theirs", .job_hash = "theirs", .job_text = "job"})
          .ok());
  ASSERT_TRUE(
      FolderClaim::Take({.folder = root_ + "/own", .job_hash = "mine", .job_text = "job"}).ok());
  ExpectRefused(root_ + "/theirs/a");
  ExpectRefused(root_ + "/theirs/checkpoints/a");
  ExpectRefused(root_ + "/a", root_ + "/theirs/checkpoints");
  ExpectRefused(root_ + "/a", root_ + "/theirs");
  EXPECT_THAT(Check(root_ + "/theirs/a").message(), HasSubstr("in the folder of another job"));
  EXPECT_TRUE(Check(root_ + "/own", root_ + "/own/checkpoints").ok());
  EXPECT_TRUE(Check(root_ + "/theirs").ok()) << "FolderClaim's to refuse";
}

TEST_F(OutputRootsTest, ForeignBuckets) {
  for (const char* store : {"s3://lab", "s3://lab/", "s3://lab/runs", "s3://lab/runs/",
                            "s3://lab/runsx/a", "s3://lab/runs/../other", "s3://lab/runs/./a",
                            "s3://lab/runs//a", "s3://foreign/runs/a", "s3://lab/runs/%2e%2e/a",
                            "s3://", "http://lab/runs/a", "s3://lab/runs/a?x", "S3://lab/runs/a"}) {
    ExpectRefused(root_ + "/a", store);
  }
}

TEST_F(OutputRootsTest, RootsThatAreNone) {
  EXPECT_EQ(OutputRoots::Make({"s3://"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OutputRoots::Make({"s3://lab/../a"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(OutputRoots::Make({"/proc/none/root"}).ok());
  const auto none = OutputRoots::Make({"s3://lab"});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->FirstFolder(), "");
}

}  // namespace
}  // namespace heddle::elastic

/// \file
/// What goes from an object store when a checkpoint is removed, a save abandoned, a job begun anew.
#include <gmock/gmock.h>

#include "checkpoint/read/reader.h"
#include "tests/checkpoint/storage/s3_storage_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using testing::ObjectStore;
using ::testing::UnorderedElementsAre;

TEST_F(S3StorageTest, ARemovedCheckpointIsGoneWholeAndFirstItsManifest) {
  ASSERT_TRUE(SaveStep(10, 1, 2).ok());
  ASSERT_TRUE(SaveStep(20, 1).ok());
  Set("step-00000010/x/deeper");
  Store().TakeRequests();
  ASSERT_TRUE(Open()->Remove(10).ok());
  std::vector<std::string> deleted;
  for (const std::string& line : Store().TakeRequests()) {
    if (line.starts_with("DELETE")) {
      deleted.push_back(line.substr(line.rfind('/') + 1));
    }
  }
  EXPECT_THAT(deleted, ElementsAre("MANIFEST.json", "w0.g1.h5", "w1.g1.h5", "deeper"));
  EXPECT_THAT(Keys(), ElementsAre("jobs/a/.generation", "jobs/a/step-00000020/MANIFEST.json",
                                  "jobs/a/step-00000020/w0.g1.h5"));
  Store().SetInterference([](const auto& request, auto& response) {
    if (request.method != "DELETE") {
      return false;
    }
    ObjectStore::Answer(response, 403, "AccessDenied");
    return true;
  });
  EXPECT_EQ(Open()->Remove(20).code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(Open()->Abandon(20, 1).code(), StatusCode::kOk) << "it is committed: nothing to do";
  Set("step-00000030/w0.g1.h5");
  EXPECT_EQ(Open()->Abandon(30, 1).code(), StatusCode::kUnauthenticated);
}

TEST_F(S3StorageTest, AbandoningTakesOneGenerationsFiles) {
  for (const char* const name : {"w0.g1.h5", "w1.g1.h5", "w0.g2.h5", "w0.g12.h5", ".g1.h5",
                                 "w0.gx.h5", "w0.g.h5", "w0.g1.txt", "w0.g-1.h5", "w0.h5"}) {
    Set(fmt::format("step-00000010/{}", name));
  }
  Set("step-00000020/w0.g1.h5");
  ASSERT_TRUE(Open()->Abandon(10, 1).ok());
  EXPECT_THAT(Keys(), UnorderedElementsAre(
                          "jobs/a/step-00000010/w0.g2.h5", "jobs/a/step-00000010/w0.g12.h5",
                          "jobs/a/step-00000010/w0.gx.h5", "jobs/a/step-00000010/w0.g.h5",
                          "jobs/a/step-00000010/w0.g1.txt", "jobs/a/step-00000010/w0.g-1.h5",
                          "jobs/a/step-00000010/w0.h5", "jobs/a/step-00000020/w0.g1.h5"));
}

TEST_F(S3StorageTest, AbandoningACommittedSaveDoesNothing) {
  ASSERT_TRUE(SaveStep(10, 2).ok());
  Set("step-00000010/w9.g1.h5");
  const size_t before = Keys().size();
  ASSERT_TRUE(Open()->Abandon(10, 2).ok());
  EXPECT_EQ(Keys().size(), before);
  ASSERT_TRUE(Open()->Abandon(10, 1).ok());
  EXPECT_EQ(Keys().size(), before - 1);
}

TEST_F(S3StorageTest, CleaningTakesWhatNoManifestNames) {
  ASSERT_TRUE(SaveStep(10, 2).ok());
  Set("step-00000010/dead.g1.h5");
  Set("step-00000020/dead.g1.h5");
  Set("step-00000020/live.g3.h5");
  Set("step-00000020/deeper/dead.g1.h5");
  Set("step-00000030/odd.h5");
  Set("step-x/dead.g1.h5");
  Set("other/dead.g1.h5");
  Store().AddUpload("u1", Path("step-00000020/dead.g1.h5"));
  Store().AddUpload("u3", Path("step-00000020/live.g3.h5"));
  EXPECT_EQ(*Open()->CleanOrphans(3), 3);
  EXPECT_EQ(Store().uploads(), 1U);
  const auto kept = Keys();
  EXPECT_THAT(kept, UnorderedElementsAre(
                        "jobs/a/.generation", "jobs/a/step-00000010/MANIFEST.json",
                        "jobs/a/step-00000010/w0.g2.h5", "jobs/a/step-00000020/live.g3.h5",
                        "jobs/a/step-00000020/deeper/dead.g1.h5", "jobs/a/step-00000030/odd.h5",
                        "jobs/a/step-x/dead.g1.h5", "jobs/a/other/dead.g1.h5"));
  EXPECT_EQ(*Open()->CleanOrphans(std::nullopt), 3) << "with no live generation all of them";
  EXPECT_EQ(Store().uploads(), 0U);
  EXPECT_TRUE(Reader::Open(root_ + "/step-00000010").ok());
}

TEST_F(S3StorageTest, CleaningLeavesACheckpointWhoseManifestIsDamaged) {
  ASSERT_TRUE(SaveStep(10, 1).ok());
  Set("step-00000010/MANIFEST.json", "{}");
  EXPECT_EQ(*Open()->CleanOrphans(std::nullopt), 0);
  EXPECT_EQ(Keys().size(), 3U);
}

}  // namespace
}  // namespace heddle::checkpoint

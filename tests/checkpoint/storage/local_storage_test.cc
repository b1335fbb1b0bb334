/// \file
/// A folder of checkpoints as a place: what changes in it, what stays when a change is refused, and
/// what of a folder is not ours.
#include <filesystem>

#include <gmock/gmock.h>

#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/storage/storage.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class LocalStorageTest : public ::testing::Test {
 protected:
  Status SaveStep(int64_t step, int64_t generation = 1) {
    const State state = StateOf(1);
    Random random(5);
    return Save({.root = root_, .step = step, .generation = generation}, state,
                RandomPieces(state, 1, 1, random), metrics_)
        .status();
  }
  std::unique_ptr<Storage> Open() const { return *OpenStorage(root_); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  void Make(const std::string& name) const {
    std::filesystem::create_directories(root_ + "/" + name);
    ASSERT_TRUE(WriteFileAtomically(root_ + "/" + name + "/file", "x").ok());
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path() + "/checkpoints";
  metrics::Registry metrics_;
};

TEST_F(LocalStorageTest, AManifestIsChangedOrStaysAsItWas) {
  ASSERT_TRUE(SaveStep(10).ok());
  const std::string path = root_ + "/step-00000010";
  const auto storage = Open();
  ASSERT_TRUE(storage
                  ->ChangeManifest(10,
                                   [](Manifest& manifest) {
                                     manifest.job.extra = "mine";
                                     return Status::Ok();
                                   })
                  .ok());
  EXPECT_EQ(LoadManifest(path)->job.extra, "mine");
  const Status refused = storage->ChangeManifest(10, [](Manifest& manifest) {
    manifest.job.extra = "refused";
    return InvalidArgumentError("not this one");
  });
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), path + ": not this one");
  EXPECT_EQ(LoadManifest(path)->job.extra, "mine");
  const Status none = storage->ChangeManifest(11, [](Manifest&) { return Status::Ok(); });
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_EQ(none.message(), root_ + "/step-00000011: no such checkpoint");
  ASSERT_TRUE(WriteFileAtomically(path + "/MANIFEST.json", "{}").ok());
  EXPECT_EQ(storage->ChangeManifest(10, [](Manifest&) { return Status::Ok(); }).code(),
            StatusCode::kDataLoss);
}

TEST_F(LocalStorageTest, AGenerationIsKnownFromTheFirstToTheNewest) {
  const auto known = [&] { return *ReadFile(root_ + "/.generation", 99); };
  const auto storage = Open();
  ASSERT_TRUE(storage->Fence(0).ok()) << "it makes the folder";
  EXPECT_EQ(known(), "0\n");
  ASSERT_TRUE(storage->Fence(7).ok());
  EXPECT_EQ(known(), "7\n");
  ASSERT_TRUE(storage->Fence(7).ok());
  const Status old = storage->Fence(6);
  EXPECT_EQ(old.code(), StatusCode::kAborted);
  EXPECT_EQ(old.message(), "generation 6 is over: 7 is known in " + root_);
  EXPECT_EQ(known(), "7\n");
  for (const std::string text : {"", "many", "\n"}) {
    ASSERT_TRUE(WriteFileAtomically(root_ + "/.generation", text).ok());
    EXPECT_EQ(storage->Fence(9).code(), StatusCode::kDataLoss);
    EXPECT_EQ(storage->Fence(9).message(), root_ + "/.generation: not a number");
  }
}

TEST_F(LocalStorageTest, StepsAreTheFoldersThatAreNamedForOne) {
  EXPECT_THAT(*Open()->Steps(), ElementsAre()) << "no folder yet";
  for (const char* const name : {"step-00000020", "step-00000003", ".tmp-step-00000040.g1",
                                 ".trash-step-00000050.0", "step-9", "other"}) {
    Make(name);
  }
  EXPECT_THAT(*Open()->Steps(), ElementsAre(3, 20));
  ASSERT_TRUE(WriteFileAtomically(folder_.path() + "/file", "x").ok());
  EXPECT_THAT((*OpenStorage(folder_.path() + "/file"))->Steps().status().message(),
              HasSubstr("list " + folder_.path() + "/file"));
}

TEST_F(LocalStorageTest, CleaningTakesWhatIsDeadAndCountsIt) {
  for (const char* const name :
       {".tmp-step-00000040.g1", ".tmp-step-00000040.g2", ".tmp-step-00000040.g3",
        ".trash-step-00000050.0", ".step-00000000.tmp", "step-00000020", "other", ".hidden"}) {
    Make(name);
  }
  EXPECT_EQ(*Open()->CleanOrphans(2), 3);
  EXPECT_THAT(Names(), UnorderedElementsAre(".tmp-step-00000040.g2", ".tmp-step-00000040.g3",
                                            "step-00000020", "other", ".hidden"));
  EXPECT_EQ(*Open()->CleanOrphans(std::nullopt), 2);
  EXPECT_THAT(Names(), UnorderedElementsAre("step-00000020", "other", ".hidden"));
  EXPECT_EQ(*Open()->CleanOrphans(std::nullopt), 0);
}

TEST_F(LocalStorageTest, RemovingAndAbandoningTakeOneFolder) {
  ASSERT_TRUE(SaveStep(10).ok());
  ASSERT_TRUE(SaveStep(20).ok());
  Make(".tmp-step-00000030.g1");
  Make(".tmp-step-00000030.g2");
  Make(".trash-step-00000010.0");  // Another one is still on its way out.
  const auto storage = Open();
  ASSERT_TRUE(storage->Remove(10).ok());
  ASSERT_TRUE(storage->Abandon(30, 1).ok());
  ASSERT_TRUE(storage->Abandon(30, 1).ok()) << "nothing there is fine";
  EXPECT_THAT(Names(), UnorderedElementsAre(".generation", ".lock", "step-00000020",
                                            ".tmp-step-00000030.g2", ".trash-step-00000010.0"));
  const Status none = storage->Remove(10);
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("rename " + root_ + "/step-00000010"));
}

TEST_F(LocalStorageTest, ACommitTakesWhatWasReportedAndClearsTheRest) {
  const State state = StateOf(1);
  Random random(5);
  auto parts =
      WriteParts({.root = root_, .step = 10}, state, RandomPieces(state, 1, 1, random), metrics_);
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  const std::string folder = root_ + "/.tmp-step-00000010.g1";
  ASSERT_TRUE(WriteFileAtomically(folder + "/w9.g1.h5", "of a dead writer").ok());
  std::filesystem::create_directories(folder + "/below");
  CommitRequest request{.root = root_,
                        .step = 10,
                        .generation = 1,
                        .job = TestJob(),
                        .expected = state.tensors,
                        .parts = *parts};
  const int64_t bytes = request.parts[0].file.bytes;
  ++request.parts[0].file.bytes;
  const Status shorter = Commit(request, metrics_).status();
  EXPECT_EQ(shorter.code(), StatusCode::kDataLoss);
  EXPECT_THAT(shorter.message(), HasSubstr(fmt::format("{}/w0.g1.h5: {} bytes, {} reported", folder,
                                                       bytes, bytes + 1)));
  request.parts = *parts;
  const auto committed = Commit(request, metrics_);
  ASSERT_TRUE(committed.ok()) << committed.status().ToString();
  std::vector<std::string> names;
  int64_t stored = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root_ + "/step-00000010")) {
    names.push_back(entry.path().filename().string());
    stored += static_cast<int64_t>(entry.file_size());
  }
  EXPECT_THAT(names, UnorderedElementsAre("MANIFEST.json", "tensors.h5", "w0.g1.h5"));
  EXPECT_EQ(committed->bytes, stored);
  EXPECT_EQ(committed->raw_bytes, 2 * 200 * 100 * 4);
  EXPECT_EQ(metrics_.GetGauge("heddle_checkpoint_bytes", "", {{"scope", "checkpoint"}}).Value(),
            static_cast<double>(stored));
  EXPECT_EQ(metrics_.GetCounter("heddle_checkpoint_failures_total", "", {{"scope", "checkpoint"}})
                .Value(),
            1);
}

}  // namespace
}  // namespace heddle::checkpoint

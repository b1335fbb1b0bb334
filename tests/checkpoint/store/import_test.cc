/// \file
/// A checkpoint of another run as the first of a job's folder: what comes, what stays, and what is
/// no checkpoint for it.
#include "checkpoint/store/import.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/storage/storage.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

class ImportTest : public ::testing::Test {
 protected:
  ImportTest() : state_(StateOf(1)), root_(folder_.path() + "/job") {
    Random random(1);
    const SaveSetup setup{.root = folder_.path() + "/other", .step = 30, .generation = 4};
    const auto saved = Save(setup, state_, RandomPieces(state_, 1, 2, random), metrics_);
    EXPECT_TRUE(saved.ok()) << saved.status().ToString();
    source_ = saved->path;
  }

  std::string Refusal() const {
    const auto imported = Import(source_, root_, state_.tensors);
    EXPECT_EQ(imported.status().message(),
              CheckImport(source_, root_, state_.tensors).status().message());
    EXPECT_FALSE(FileExists(root_ + "/" + StepFolderName(30)));
    return imported.ok() ? "accepted" : imported.status().message();
  }

  const TemporaryFolder folder_;
  metrics::Registry metrics_;
  State state_;
  std::string root_;
  std::string source_;
};

TEST_F(ImportTest, ItAppearsUnderItsStepAndSharesItsFiles) {
  const auto checked = CheckImport(source_, root_, state_.tensors);
  ASSERT_TRUE(checked.ok()) << checked.status().ToString();
  EXPECT_EQ(*checked, 30);
  EXPECT_FALSE(FileExists(root_)) << "a check writes nothing";
  const auto step = Import(source_, root_, state_.tensors);
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  EXPECT_EQ(*step, 30);
  const std::string path = root_ + "/" + StepFolderName(30);
  const auto manifest = LoadManifest(source_);
  ASSERT_TRUE(manifest.ok());
  for (const FileRecord& file : manifest->files) {
    EXPECT_EQ(std::filesystem::hard_link_count(path + "/" + file.name), 2U) << file.name;
  }
  const auto reader = Reader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  Random random(2);
  ExpectReads(**reader, state_, RandomPieces(state_, 1, 3, random), 1);
  // Only the checkpoint is there, and the other run's stays.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_), {}), 1);
  EXPECT_TRUE(Reader::Open(source_).ok());
}

TEST_F(ImportTest, WhatAKilledImportLeftIsNoHindrance) {
  const std::string left = root_ + "/" + TemporaryFolderName(30, kImportGeneration);
  std::filesystem::create_directories(left);
  ASSERT_TRUE(WriteFileAtomically(left + "/w0.g4.h5", "half").ok());
  ASSERT_TRUE(Import(source_, root_, state_.tensors).ok());
  EXPECT_FALSE(FileExists(left));
  EXPECT_TRUE(Reader::Open(root_ + "/" + StepFolderName(30)).ok());
}

TEST_F(ImportTest, AJobGoesOnFromItsOwnNewestCheckpoint) {
  Random random(3);
  for (const int64_t step : {10, 20}) {
    const State own = StateOf(step);
    ASSERT_TRUE(
        Save({.root = root_, .step = step}, own, RandomPieces(own, 1, 1, random), metrics_).ok());
  }
  const auto step = Import(source_, root_, state_.tensors);
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  EXPECT_EQ(*step, 20);
  EXPECT_FALSE(FileExists(root_ + "/" + StepFolderName(30)));
  const auto checked = CheckImport("/nowhere", root_, {});
  ASSERT_TRUE(checked.ok()) << "it will not be read";
  EXPECT_EQ(*checked, 20);
}

TEST_F(ImportTest, AnotherModelIsNamed) {
  std::vector<TensorInfo>& expected = state_.tensors;
  const std::vector<TensorInfo> good = expected;
  expected.push_back({"v", "master", DType::kF32, {3}});
  EXPECT_EQ(Refusal(),
            "checkpoint " + source_ + ": it has no tensor 'v' (master): it is of another model");
  expected = {good[0]};
  EXPECT_EQ(Refusal(), "checkpoint " + source_ +
                           ": it has a tensor 'w' (exp_avg) that the job has not: it is of another "
                           "model");
  expected = good;
  expected[0].shape = {100, 200};
  EXPECT_EQ(Refusal(), "checkpoint " + source_ +
                           ": its tensor 'w' (master) is fp32 [200, 100], the job's is fp32 "
                           "[100, 200]: it is of another model");
  expected = {good[1], good[0]};  // The order does not matter.
  EXPECT_TRUE(CheckImport(source_, root_, expected).ok());
}

TEST_F(ImportTest, DamageAndWhatIsNoCheckpointAreNamed) {
  const auto manifest = LoadManifest(source_);
  ASSERT_TRUE(manifest.ok());
  const std::string file = source_ + "/" + manifest->files[0].name;
  auto bytes = ReadFile(file, 1 << 30);
  ASSERT_TRUE(bytes.ok());
  (*bytes)[bytes->size() / 2] = static_cast<char>((*bytes)[bytes->size() / 2] ^ 1);
  ASSERT_TRUE(WriteFileAtomically(file, *bytes).ok());
  EXPECT_THAT(Refusal(), HasSubstr(manifest->files[0].name));
  EXPECT_EQ(CheckImport(source_, root_, state_.tensors).status().code(), StatusCode::kDataLoss);
  source_ = folder_.path() + "/nothing";
  EXPECT_THAT(Refusal(), HasSubstr("checkpoint " + source_));
}

TEST_F(ImportTest, AFolderThatCannotBeWrittenIsNamed) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() + "/file", "x").ok());
  const auto imported = Import(source_, folder_.path() + "/file/job", state_.tensors);
  EXPECT_FALSE(imported.ok());
  root_ = folder_.path() + "/job";
  std::filesystem::create_directories(root_ + "/" + StepFolderName(30) + "x");
  std::filesystem::create_directories(root_ + "/" + TemporaryFolderName(30, kImportGeneration));
  EXPECT_TRUE(Import(source_, root_, state_.tensors).ok()) << "what is not ours does not matter";
}

TEST_F(ImportTest, ToAnotherFileSystemItIsCopied) {
  struct Removed {
    std::string path;
    ~Removed() { std::filesystem::remove_all(path); }
  };
  // The tests' folders lie in memory, the build folder does not.
  const Removed other{std::filesystem::current_path().string() + "/import_test_root"};
  std::filesystem::remove_all(other.path);
  const auto step = Import(source_, other.path, state_.tensors);
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  const auto reader = Reader::Open(other.path + "/" + StepFolderName(30));
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  Random random(4);
  ExpectReads(**reader, state_, RandomPieces(state_, 1, 3, random), 1);
}

}  // namespace
}  // namespace heddle::checkpoint

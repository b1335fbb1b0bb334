/// \file
/// Goal: what commits, what does not, what is cleaned and what is kept.
#include "checkpoint/store/store.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "checkpoint/format/extra.h"
#include "checkpoint/read/inspect.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    Random random(7);
    AddTensor(state_, {"w", "master", DType::kF32, {8, 6}}, random);
    AddTensor(state_, {"b", "master", DType::kF32, {6}}, random);
    pieces_ = {{.tensor = 0, .box = {{0, 0}, {4, 6}}, .worker = 0},
               {.tensor = 0, .box = {{4, 0}, {4, 6}}, .worker = 1},
               {.tensor = 1, .box = {{0}, {6}}, .worker = 1}};
  }

  Result<CommitInfo> SaveStep(int64_t step, int64_t generation) {
    return Save({.root = root_, .step = step, .generation = generation, .workers = 2}, state_,
                pieces_, metrics_);
  }

  CommitRequest Request(int64_t step, int64_t generation) {
    auto parts = WriteParts({.root = root_, .step = step, .generation = generation, .workers = 2},
                            state_, pieces_, metrics_);
    EXPECT_TRUE(parts.ok()) << parts.status().ToString();
    return {.root = root_,
            .step = step,
            .generation = generation,
            .job = TestJob(),
            .expected = state_.tensors,
            .parts = parts.ok() ? *parts : std::vector<FilePart>{}};
  }

  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    const auto entries = List(root_);
    for (const Entry& entry : entries.ok() ? *entries : std::vector<Entry>{}) {
      steps.push_back(entry.step);
    }
    return steps;
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path() + "/checkpoints";
  metrics::Registry metrics_;
  State state_;
  std::vector<Piece> pieces_;
};

TEST_F(StoreTest, AFolderHoldsOneVisibleEntryACheckpoint) {
  ASSERT_TRUE(SaveStep(40, 1).ok());
  ASSERT_TRUE(SaveStep(5, 1).ok());
  std::vector<std::string> visible;
  for (const auto& entry : std::filesystem::directory_iterator(root_)) {
    if (entry.path().filename().string().front() != '.') {
      visible.push_back(entry.path().filename().string());
    }
  }
  std::sort(visible.begin(), visible.end());
  EXPECT_THAT(visible, ElementsAre("step-00000005", "step-00000040"));
  EXPECT_THAT(Steps(), ElementsAre(5, 40));
}

TEST_F(StoreTest, AStaleGenerationCannotCommit) {
  const CommitRequest stale = Request(20, 3);
  ASSERT_TRUE(Fence(root_, 4).ok());
  EXPECT_EQ(Commit(stale, metrics_).status().code(), StatusCode::kAborted);
  EXPECT_THAT(Steps(), ElementsAre());
  EXPECT_EQ(Fence(root_, 3).code(), StatusCode::kAborted);
  ASSERT_TRUE(SaveStep(20, 4).ok());
  ASSERT_TRUE(SaveStep(40, 6).ok()) << "a commit is itself a fence";
  EXPECT_EQ(Commit(Request(60, 5), metrics_).status().code(), StatusCode::kAborted);
  EXPECT_THAT(Steps(), ElementsAre(20, 40));
  EXPECT_EQ(metrics_.GetCounter("heddle_checkpoint_failures_total", "", {{"scope", "checkpoint"}})
                .Value(),
            2);
}

TEST_F(StoreTest, TheHighestGenerationIsThatOfAnythingThere) {
  EXPECT_EQ(*HighestGeneration(root_), -1);
  ASSERT_TRUE(SaveStep(10, 3).ok());
  ASSERT_TRUE(Fence(root_, 5).ok());
  EXPECT_EQ(*HighestGeneration(root_), 5);
  // A save that nobody will complete.
  ASSERT_EQ(Request(20, 8).parts.size(), 2U);
  EXPECT_EQ(*HighestGeneration(root_), 8);
  ASSERT_TRUE(CleanOrphans(root_).ok());
  EXPECT_EQ(*HighestGeneration(root_), 5);
  std::filesystem::remove(root_ + "/.generation");
  EXPECT_EQ(*HighestGeneration(root_), 3);
}

TEST_F(StoreTest, OnlyTheWholeStateCommits) {
  const CommitRequest good = Request(20, 1);
  const auto expect_refused = [&](CommitRequest request, const std::string& word) {
    const auto info = Commit(request, metrics_);
    EXPECT_EQ(info.status().code(), StatusCode::kInvalidArgument) << word;
    EXPECT_THAT(info.status().message(), HasSubstr(word));
    EXPECT_THAT(Steps(), ElementsAre());
  };
  CommitRequest request = good;
  request.parts.pop_back();
  expect_refused(request, "in no box");
  request = good;
  request.parts.push_back(good.parts[0]);
  expect_refused(request, "not acceptable");  // One file twice.
  request = good;
  request.parts[1].boxes.push_back(good.parts[1].boxes[0]);
  expect_refused(request, "overlap");
  request = good;
  request.expected.push_back({"c", "master", DType::kF32, {1}});
  expect_refused(request, "'c'");
  request = good;
  request.expected.pop_back();
  expect_refused(request, "not part of the state");
  request = good;
  request.expected[0].shape = {8, 7};
  expect_refused(request, "not part of the state");
  request = good;
  request.parts[0].generation = 2;
  expect_refused(request, "generation 2");
  request = good;
  request.parts[0].step = 21;
  expect_refused(request, "step 21");
  request = good;
  request.step = 100'000'000;
  for (FilePart& part : request.parts) {
    part.step = request.step;
  }
  expect_refused(request, "commit of step 100000000");
  request = good;
  request.parts[1].boxes[0].tensor.dtype = DType::kI32;
  expect_refused(request, "not part of the state");
  request = good;
  request.parts[0].file.name = "../w0.h5";
  expect_refused(request, "../w0.h5");
  request.parts[0].file.name = "tensors.h5";
  expect_refused(request, "belongs to the index");
  EXPECT_TRUE(Commit(good, metrics_).ok());
}

TEST_F(StoreTest, AFileThatIsNotWhatWasReportedDoesNotCommit) {
  const CommitRequest request = Request(20, 1);
  const std::string file =
      root_ + "/" + TemporaryFolderName(20, 1) + "/" + request.parts[0].file.name;
  std::filesystem::resize_file(file, 100);
  EXPECT_EQ(Commit(request, metrics_).status().code(), StatusCode::kDataLoss);
  std::filesystem::remove(file);
  EXPECT_EQ(Commit(request, metrics_).status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Steps(), ElementsAre());
}

TEST_F(StoreTest, ASecondSaveOfAStepReplacesTheFirst) {
  ASSERT_TRUE(SaveStep(20, 1).ok());
  std::fill(state_.bytes[0].begin(), state_.bytes[0].end(), std::byte{1});
  const auto saved = SaveStep(20, 2);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  const auto reader = Reader::Open(saved->path);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->manifest().generation, 2);
  Bytes out(state_.bytes[0].size());
  ASSERT_TRUE((*reader)->Read({"w", "master"}, WholeBox({8, 6}), out).ok());
  EXPECT_EQ(out, state_.bytes[0]);
  const auto orphans = CleanOrphans(root_);
  ASSERT_TRUE(orphans.ok());
  EXPECT_EQ(*orphans, 0) << "nothing is left of the first";
}

TEST_F(StoreTest, OrphansGoAndLiveSavesStay) {
  ASSERT_TRUE(SaveStep(20, 2).ok());
  const CommitRequest live = Request(40, 3);
  const CommitRequest dead = Request(40, 2);
  std::filesystem::create_directories(root_ + "/.trash-step-00000001.0/x");
  auto removed = CleanOrphans(root_, 3);
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, 2);
  EXPECT_TRUE(Commit(live, metrics_).ok());
  const CommitRequest again = Request(60, 3);
  EXPECT_TRUE(Abandon(root_, 60, 3).ok());
  EXPECT_TRUE(Abandon(root_, 60, 3).ok()) << "nothing there is fine";
  EXPECT_EQ(Commit(again, metrics_).status().code(), StatusCode::kDataLoss);
  removed = CleanOrphans(root_);
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, 0);
  EXPECT_THAT(Steps(), ElementsAre(20, 40));
  EXPECT_TRUE(CleanOrphans(folder_.path() + "/none").ok());
}

TEST_F(StoreTest, PruneKeepsTheNewestTheProtectedAndTheSound) {
  for (const int64_t step : {10, 20, 30, 40, 50}) {
    ASSERT_TRUE(SaveStep(step, 1).ok());
  }
  for (const char* step : {"step-00000040", "step-00000050"}) {
    ASSERT_TRUE(WriteFileAtomically(root_ + "/" + step + "/" + kManifestName, "{}").ok());
  }
  auto removed = Prune(root_, {.keep_last = 2, .protected_steps = {10}, .sound_step = -1});
  ASSERT_TRUE(removed.ok()) << removed.status().ToString();
  EXPECT_THAT(*removed, ElementsAre(20));
  EXPECT_THAT(Steps(), ElementsAre(10, 30, 40, 50)) << "30 is the newest sound one";
  removed = Prune(root_, {.keep_last = 1, .protected_steps = {}, .sound_step = 50});
  ASSERT_TRUE(removed.ok());
  EXPECT_THAT(Steps(), ElementsAre(50));
  EXPECT_EQ(Prune(root_, {.keep_last = 0, .protected_steps = {}, .sound_step = -1}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(StoreTest, PruneKeepsTheBestOnceItsLossIsNoted) {
  for (const int64_t step : {10, 20, 30, 40}) {
    ASSERT_TRUE(SaveStep(step, 1).ok());
  }
  EXPECT_EQ(NoteValidationLoss(root_, 50, 1).code(), StatusCode::kNotFound);
  const auto before = LoadManifest(root_ + "/step-00000020");
  ASSERT_TRUE(before.ok());
  ASSERT_TRUE(NoteValidationLoss(root_, 10, 3.5).ok());
  ASSERT_TRUE(NoteValidationLoss(root_, 20, 2.5).ok());
  auto after = LoadManifest(root_ + "/step-00000020");
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_EQ(ValidationLoss(after->job), 2.5);
  after->job.extra = before->job.extra;
  EXPECT_EQ(EncodeManifest(*after), EncodeManifest(*before)) << "nothing else has changed";
  const RetentionOptions rules{.keep_last = 1, .keep_best = true};
  const auto chosen = ChoosePruned(root_, rules);
  ASSERT_TRUE(chosen.ok());
  EXPECT_THAT(*chosen, ElementsAre(10, 30));
  EXPECT_THAT(Steps(), ElementsAre(10, 20, 30, 40)) << "choosing removes nothing";
  ASSERT_TRUE(Prune(root_, rules).ok());
  EXPECT_THAT(Steps(), ElementsAre(20, 40));
  EXPECT_EQ(FindNewestSound(root_, [](const std::string&) {})->step, 40);
}

TEST_F(StoreTest, OneLongNameDoesNotPadTheOthers) {
  Manifest manifest;
  const auto add = [&](const std::string& name) {
    manifest.tensors.push_back(
        {.info = {name, "master", DType::kF32, {2}}, .digest = {}, .boxes = {}});
  };
  for (int i = 0; i < 1000; ++i) {
    add(fmt::format("t{}", i));
  }
  const std::string name(4000, 'x');
  add(name);
  const std::string text = InspectText(manifest);
  EXPECT_THAT(text, HasSubstr(name));
  EXPECT_LT(text.size(), 200'000U);
}

TEST_F(StoreTest, AFileThatNobodyReportedIsNoPartOfTheCheckpoint) {
  const CommitRequest request = Request(20, 1);
  const std::string folder = root_ + "/" + TemporaryFolderName(20, 1);
  ASSERT_TRUE(WriteFileAtomically(folder + "/dead.g1.h5", "a writer that died").ok());
  const auto saved = Commit(request, metrics_);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_FALSE(FileExists(saved->path + "/dead.g1.h5"));
  // One that somebody puts there later is never looked at.
  ASSERT_TRUE(WriteFileAtomically(saved->path + "/later.h5", "not HDF5").ok());
  const auto damage = Verify(saved->path);
  ASSERT_TRUE(damage.ok()) << damage.status().ToString();
  EXPECT_TRUE(damage->empty());
}

TEST_F(StoreTest, AReaderKeepsWhatRetentionRemoves) {
  const auto saved = SaveStep(10, 1);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  const auto reader = Reader::Open(saved->path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  ASSERT_TRUE(SaveStep(20, 1).ok());
  ASSERT_TRUE(Prune(root_, {.keep_last = 1, .protected_steps = {}, .sound_step = 20}).ok());
  EXPECT_THAT(Steps(), ElementsAre(20));
  EXPECT_FALSE(FileExists(saved->path));
  Bytes out(state_.bytes[0].size());
  const Status status = (*reader)->Read({"w", "master"}, WholeBox({8, 6}), out);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(out, state_.bytes[0]);
}

TEST_F(StoreTest, AFolderThatIsNamedForAnotherStepIsRefused) {
  ASSERT_TRUE(SaveStep(10, 1).ok());
  const auto saved = SaveStep(20, 1);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  const std::string renamed = root_ + "/" + StepFolderName(30);
  std::filesystem::rename(saved->path, renamed);
  EXPECT_EQ(Reader::Open(renamed).status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Reader::Open(renamed).status().message(), HasSubstr("it is of step 20"));
  std::string skipped;
  const auto sound =
      FindNewestSound(root_, [&skipped](const std::string& line) { skipped += line; });
  ASSERT_TRUE(sound.ok()) << sound.status().ToString();
  EXPECT_EQ(sound->step, 10) << "going on from step 30 with the state of step 20 would be wrong";
  EXPECT_THAT(skipped, HasSubstr(renamed));
  // Under a name that says nothing it is what it is.
  std::filesystem::rename(renamed, folder_.path() + "/mine");
  EXPECT_TRUE(Reader::Open(folder_.path() + "/mine").ok());
}

TEST_F(StoreTest, MetricsAndInspectTellWhatWasSaved) {
  const auto saved = SaveStep(20, 1);
  ASSERT_TRUE(saved.ok());
  const metrics::Labels scope = {{"scope", "checkpoint"}};
  EXPECT_EQ(metrics_.GetGauge("heddle_checkpoint_bytes", "", scope).Value(),
            static_cast<double>(saved->bytes));
  EXPECT_GT(metrics_.GetGauge("heddle_checkpoint_last_success_timestamp_seconds", "").Value(), 1e9);
  EXPECT_EQ(
      metrics_.GetHistogram("heddle_checkpoint_stall_seconds", "", {}).Read().cumulative.back(),
      2U);
  const auto manifest = LoadManifest(saved->path);
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(saved->raw_bytes, (8 * 6 + 6) * 4);
  uintmax_t stored = 0;
  for (const auto& entry : std::filesystem::directory_iterator(saved->path)) {
    stored += entry.file_size();
  }
  EXPECT_EQ(static_cast<uintmax_t>(saved->bytes), stored);
  const std::string text = InspectText(*manifest);
  EXPECT_THAT(text, HasSubstr("step              20\n"));
  EXPECT_THAT(text, HasSubstr("w0.g1.h5"));
  ASSERT_EQ(manifest->files.size(), 3U);
  EXPECT_EQ(manifest->files.back().name, "tensors.h5");
  const std::string json = InspectJson(*manifest);
  EXPECT_THAT(json, HasSubstr(R"({"format":"heddle-checkpoint","version":3,"step":20,)"));
  EXPECT_THAT(json,
              HasSubstr(R"("name":"w","role":"master","dtype":"fp32","shape":[8,6],"bytes":192,)"));
  EXPECT_THAT(json, HasSubstr(R"("plan":{"pipelines":[]})"));
}

TEST_F(StoreTest, WhatAKilledProcessLeftGoes) {
  ASSERT_TRUE(SaveStep(20, 1).ok());
  ASSERT_TRUE(std::filesystem::create_directories(root_ + "/.step-00000000.tmp/output"));
  ASSERT_TRUE(std::filesystem::create_directories(root_ + "/.trash-step-00000010.0"));
  ASSERT_TRUE(std::filesystem::create_directories(root_ + "/mine"));
  const auto removed = CleanOrphans(root_);
  ASSERT_TRUE(removed.ok()) << removed.status().ToString();
  EXPECT_EQ(*removed, 2);
  EXPECT_FALSE(FileExists(root_ + "/.step-00000000.tmp"));
  EXPECT_TRUE(FileExists(root_ + "/mine")) << "what is not ours stays";
  EXPECT_THAT(Steps(), ElementsAre(20));
}

TEST_F(StoreTest, AGenerationThatIsNoNumberStopsEverybody) {
  ASSERT_TRUE(SaveStep(20, 1).ok());
  const CommitRequest next = Request(40, 2);
  for (const char* text : {"", "x\n", "-\n"}) {
    ASSERT_TRUE(WriteFileAtomically(root_ + "/.generation", text).ok());
    EXPECT_EQ(Fence(root_, 9).code(), StatusCode::kDataLoss) << text;
    EXPECT_EQ(Commit(next, metrics_).status().code(), StatusCode::kDataLoss) << text;
  }
  EXPECT_THAT(Steps(), ElementsAre(20));
}

TEST_F(StoreTest, ReadsOfWhatIsNotThereAreRefused) {
  const auto saved = SaveStep(20, 1);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  const auto reader = Reader::Open(saved->path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  Bytes out(8 * 6 * 4);
  const auto code = [&](const TensorKey& key, const Box& box, size_t bytes) {
    return (*reader)->Read(key, box, std::span(out).first(bytes)).code();
  };
  EXPECT_EQ(code({"w", "master"}, WholeBox({8, 6}), 192), StatusCode::kOk);
  EXPECT_EQ(code({"w", "master"}, WholeBox({8, 6}), 191), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"w", "master"}, WholeBox({7, 6}), 192), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"w", "master"}, {{1, 0}, {8, 6}}, 192), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"w", "exp_avg"}, WholeBox({8, 6}), 192), StatusCode::kNotFound);
  EXPECT_EQ(code({"w", "master"}, {{8, 6}, {0, 0}}, 0), StatusCode::kOk);
}

TEST_F(StoreTest, VerifyCountsEveryByteThatItReads) {
  const auto saved = SaveStep(20, 1);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  int64_t done = 0;
  int64_t all = 0;
  const auto damage = Verify(saved->path, [&](int64_t now, int64_t of) {
    EXPECT_GE(now, done);
    done = now;
    all = of;
  });
  ASSERT_TRUE(damage.ok()) << damage.status().ToString();
  EXPECT_GT(all, saved->raw_bytes);
  EXPECT_EQ(done, all);
}

}  // namespace
}  // namespace heddle::checkpoint

/// \file
/// What a manifest is built from: bounds of step and generation, names of datasets, and writers'
/// reports that do not belong together.
#include <functional>

#include <gmock/gmock.h>

#include "checkpoint/files/tensor_index.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/store/store.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

CommitRequest Empty(int64_t step, int64_t generation) {
  return {.root = "",
          .step = step,
          .generation = generation,
          .job = TestJob(),
          .expected = {},
          .parts = {}};
}

TEST(BuildManifestTest, StepsAndGenerationsMayReachTheirBounds) {
  EXPECT_TRUE(BuildManifest(Empty(0, 0)).ok());
  EXPECT_TRUE(BuildManifest(Empty(99'999'999, 1)).ok());
  for (const auto& [step, generation] :
       std::vector<std::pair<int64_t, int64_t>>{{-1, 1}, {100'000'000, 1}, {1, -1}}) {
    const Status status = BuildManifest(Empty(step, generation)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              fmt::format("commit of step {} in generation {}", step, generation));
  }
}

TEST(BuildManifestTest, AReportOfAnotherSaveIsNamed) {
  const auto refusal = [](const std::function<void(CommitRequest&)>& change) {
    CommitRequest request = Empty(4, 2);
    request.expected = {{"w", "master", DType::kF32, {0}}};
    FilePart part;
    part.step = 4;
    part.generation = 2;
    part.file = {"w0.g2.h5", 10, std::string(32, 'a')};
    part.boxes.push_back({.tensor = request.expected[0], .record = {}});
    part.boxes[0].record.box = {{0}, {0}};
    request.parts = {part};
    change(request);
    const auto manifest = BuildManifest(request);
    EXPECT_TRUE(manifest.ok() || manifest.status().code() == StatusCode::kInvalidArgument);
    return std::string(manifest.status().message());
  };
  EXPECT_EQ(refusal([](CommitRequest&) {}), "");
  EXPECT_EQ(refusal([](CommitRequest& r) { r.parts[0].step = 5; }),
            "file w0.g2.h5 is of step 5 in generation 2, not of step 4 in generation 2");
  EXPECT_EQ(refusal([](CommitRequest& r) { r.parts[0].generation = 3; }),
            "file w0.g2.h5 is of step 4 in generation 3, not of step 4 in generation 2");
  EXPECT_EQ(refusal([](CommitRequest& r) { r.parts[0].file.name = kTensorIndexName; }),
            "file tensors.h5: this name belongs to the index of all tensors");
  EXPECT_EQ(refusal([](CommitRequest& r) { r.expected.push_back(r.expected[0]); }),
            "tensor 'w' (master) is expected twice");
  EXPECT_EQ(refusal([](CommitRequest& r) {
              r.parts[0].boxes[0].tensor.shape = {0, 1};
            }),
            "file w0.g2.h5: tensor 'w' (master) of fp32 [0, 1] is not part of the state");
  EXPECT_EQ(refusal([](CommitRequest& r) { r.parts[0].boxes[0].tensor.name = "v"; }),
            "file w0.g2.h5: tensor 'v' (master) of fp32 [0] is not part of the state");
  EXPECT_EQ(refusal([](CommitRequest& r) { r.parts[0].file.hash.clear(); }),
            "step 4: file 'w0.g2.h5': its name, size or hash is not acceptable");
}

TEST(BuildManifestTest, ADatasetIsNamedForItsRoleItsTensorAndItsPlace) {
  const TemporaryFolder folder;
  metrics::Registry metrics;
  State state;
  Random random(1);
  AddTensor(state, {"b", "master", DType::kF32, {6}}, random);
  AddTensor(state, {"w", "master", DType::kF32, {8, 6}}, random);
  const std::vector<Piece> pieces = {{.tensor = 0, .box = {{0}, {6}}},
                                     {.tensor = 1, .box = {{0, 0}, {4, 6}}},
                                     {.tensor = 1, .box = {{4, 0}, {4, 6}}}};
  const auto saved = Save({.root = folder.path(), .step = 40}, state, pieces, metrics);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  const auto manifest = LoadManifest(saved->path);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  EXPECT_EQ(manifest->Find({"b", "master"})->boxes[0].dataset, "/master/b");
  EXPECT_EQ(manifest->Find({"w", "master"})->boxes[0].dataset, "/master/w@0,0");
  EXPECT_EQ(manifest->Find({"w", "master"})->boxes[1].dataset, "/master/w@4,0");
}

}  // namespace
}  // namespace heddle::checkpoint

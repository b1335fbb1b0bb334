/// \file
/// Goal: a checkpoint rewritten for other writers is the same state in other files. Method: random
/// states, saved by writers with random boxes, resharded over and over; elements against the state
/// itself, the manifest field by field, the borders against the sums of bytes.
#include "checkpoint/convert/reshard.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <gmock/gmock.h>

#include "checkpoint/read/reader.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "engine/graph/models/model.h"
#include "engine/program/state.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStep = 40;
constexpr int64_t kGeneration = 3;

ChooseFiles Writers(int64_t workers) {
  return [workers](const Manifest& manifest) { return Result(FilesOfWriters(manifest, workers)); };
}

int64_t BytesOf(const Manifest& manifest, const FilePlan& file) {
  int64_t bytes = 0;
  for (const PlacedBox& placed : file.boxes) {
    bytes += ElementCount(placed.box.extent) * SizeOf(manifest.tensors[placed.tensor].info.dtype);
  }
  return bytes;
}

class ReshardTest : public ::testing::Test {
 protected:
  void SaveRandom(Random& random) {
    constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF64, DType::kU8};
    state_ = {};
    for (int i = 0; i < 6; ++i) {
      Shape shape;
      for (size_t d = random.Below(4); d > 0; --d) {
        shape.push_back(static_cast<int64_t>(random.Below(30)));
      }
      const DType dtype = kTypes[random.Below(4)];
      for (const char* role : {"master", "exp_avg"}) {
        AddTensor(state_, {fmt::format("t{}", i), role, dtype, shape}, random);
      }
    }
    SaveState(RandomPieces(state_, 3, 5, random));
  }
  void SaveState(const std::vector<Piece>& pieces) {
    const SaveSetup setup{
        .root = root_, .step = kStep, .generation = kGeneration, .workers = 3, .chunk_bytes = 512};
    const auto saved = Save(setup, state_, pieces, metrics_);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    source_ = saved->path;
  }

  /// The checkpoint at `path` is sound, and the state in every element and field.
  void ExpectSame(const std::string& path) {
    const auto damages = Verify(path);
    ASSERT_TRUE(damages.ok()) << damages.status().ToString();
    EXPECT_TRUE(damages->empty()) << ToString(damages->front());
    const auto before = LoadManifest(source_);
    const auto reader = Reader::Open(path);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    const Manifest& after = (*reader)->manifest();
    EXPECT_EQ(after.step, kStep);
    EXPECT_EQ(after.generation, kGeneration);
    EXPECT_EQ(after.created, before->created);
    EXPECT_EQ(after.job, before->job);
    ASSERT_EQ(after.tensors.size(), state_.tensors.size());
    for (size_t t = 0; t < after.tensors.size(); ++t) {
      EXPECT_EQ(after.tensors[t].digest, before->tensors[t].digest);
    }
    for (size_t t = 0; t < state_.tensors.size(); ++t) {
      Bytes out(state_.bytes[t].size());
      const TensorInfo& info = state_.tensors[t];
      ASSERT_TRUE((*reader)->Read(info.key(), WholeBox(info.shape), out).ok()) << info.name;
      EXPECT_TRUE(out == state_.bytes[t]) << info.name;
    }
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path() + "/checkpoints";
  metrics::Registry metrics_;
  State state_;
  std::string source_;
};

TEST_F(ReshardTest, RandomStatesTravelThroughManyWriters) {
  const uint64_t seed = TestSeed();
  for (uint64_t round = 0; round < 15; ++round) {
    SCOPED_TRACE(round);
    Random random(seed + round);
    SaveRandom(random);
    std::string from = source_;
    for (int hop = 0; hop < 3; ++hop) {
      const int64_t workers = random.Between(1, 9);
      const std::string to = fmt::format("{}/{}-{}", folder_.path(), round, hop);
      const auto summary = Reshard(from, to, Writers(workers), {.overwrite = false, .threads = 2});
      ASSERT_TRUE(summary.ok()) << summary.status().ToString();
      ExpectSame(to);
      from = to;
    }
    std::filesystem::remove_all(source_);
  }
}

TEST_F(ReshardTest, SharesDifferByLessThanARow) {
  Random random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    Manifest manifest;
    manifest.generation = 5;
    int64_t widest = 0;
    for (uint64_t n = random.Below(8); n > 0; --n) {
      Shape shape;
      for (size_t d = random.Below(4); d > 0; --d) {
        shape.push_back(static_cast<int64_t>(random.Below(50)));
      }
      TensorInfo info{fmt::format("t{}", n), "master", DType::kF32, shape};
      if (const int64_t bytes = ElementCount(shape) * 4; bytes > 0) {
        widest = std::max(widest, shape.empty() ? bytes : bytes / shape[0]);
      }
      manifest.tensors.push_back({.info = std::move(info), .digest = {}, .boxes = {}});
    }
    const int64_t workers = random.Between(1, 12);
    const auto files = FilesOfWriters(manifest, workers);
    ASSERT_LE(static_cast<int64_t>(files.size()), workers);
    std::vector<int64_t> shares(static_cast<size_t>(workers), 0);
    std::vector<std::vector<const Box*>> boxes(manifest.tensors.size());
    for (const FilePlan& file : files) {
      ASSERT_FALSE(file.boxes.empty());
      int worker = -1;
      ASSERT_EQ(std::sscanf(file.name.c_str(), "worker-%d.g5.h5", &worker), 1) << file.name;
      shares[static_cast<size_t>(worker)] = BytesOf(manifest, file);
      for (const PlacedBox& placed : file.boxes) {
        boxes[placed.tensor].push_back(&placed.box);
      }
    }
    for (size_t t = 0; t < boxes.size(); ++t) {
      EXPECT_TRUE(CheckCoverage(manifest.tensors[t].info.shape, boxes[t]).ok());
    }
    const double fair = static_cast<double>(manifest.RawBytes()) / static_cast<double>(workers);
    for (const int64_t share : shares) {
      EXPECT_LE(std::abs(static_cast<double>(share) - fair), static_cast<double>(widest) + 1)
          << round;
    }
  }
}

TEST_F(ReshardTest, AStripeOfEachTensorsRowsIsCutOnlyAtBorders) {
  Manifest manifest;
  manifest.tensors = {{.info = {"a", "exp_avg", DType::kF32, {100, 2}}, .digest = {}, .boxes = {}},
                      {.info = {"a", "master", DType::kF32, {100, 2}}, .digest = {}, .boxes = {}}};
  const auto files = FilesOfWriters(manifest, 4);
  ASSERT_EQ(files.size(), 4U);
  EXPECT_EQ(files[0].boxes, (std::vector<PlacedBox>{{0, {{0, 0}, {50, 2}}}}));
  EXPECT_EQ(files[1].boxes, (std::vector<PlacedBox>{{0, {{50, 0}, {50, 2}}}}));
  EXPECT_EQ(files[3].boxes, (std::vector<PlacedBox>{{1, {{50, 0}, {50, 2}}}}));
}

TEST_F(ReshardTest, APlansWorkersGetWhatTheyWrite) {
  graph::ModelConfig model;
  model.vocab_size = 64;
  model.hidden_size = 16;
  model.intermediate_size = 24;
  model.num_hidden_layers = 2;
  model.num_attention_heads = model.num_key_value_heads = 2;
  model.max_position_embeddings = 32;
  const auto graph = graph::BuildTrainingGraph(model, {.sequence_length = 8});
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  Manifest manifest;
  manifest.job.model = graph::ModelConfigJson(model);
  for (const char* role : {"exp_avg", "exp_avg_sq", "master"}) {
    for (const graph::Parameter& parameter : graph->parameters) {
      manifest.tensors.push_back({.info = {parameter.name, role, DType::kF32, parameter.shape},
                                  .digest = {},
                                  .boxes = {}});
    }
  }
  const auto segments = static_cast<int>(graph->segments.size());
  program::Plan plan = program::SingleWorkerPlan("front/1", segments, 4);
  plan.workers.push_back("back");
  plan.workers.push_back("idle");
  plan.pipelines[0].stages = {{.group = {0}, .first_segment = 0, .last_segment = 2},
                              {.group = {1}, .first_segment = 2, .last_segment = segments}};
  plan.predicted_peak_bytes = {};
  const auto files = FilesOfPlan(manifest, plan);
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  ASSERT_EQ(files->size(), 2U) << "an idle worker writes nothing";
  EXPECT_EQ((*files)[0].name, "front%2F1.g0.h5");
  const auto layout = program::OwnedLayout(*graph, plan);
  int64_t bytes = 0;
  for (size_t worker = 0; worker < 2; ++worker) {
    ASSERT_EQ((*files)[worker].boxes.size(), layout[worker].size());
    for (size_t i = 0; i < layout[worker].size(); ++i) {
      const PlacedBox& placed = (*files)[worker].boxes[i];
      const program::StateBox& box = layout[worker][i];
      EXPECT_EQ(manifest.tensors[placed.tensor].info.name, graph->parameter(box.parameter).name);
      EXPECT_EQ(manifest.tensors[placed.tensor].info.role, program::StateRoleName(box.role));
      EXPECT_EQ(placed.box, box.box);
    }
    bytes += BytesOf(manifest, (*files)[worker]);
  }
  EXPECT_EQ(bytes, manifest.RawBytes());

  manifest.tensors.push_back(
      {.info = {"stranger", "master", DType::kF32, {2}}, .digest = {}, .boxes = {}});
  EXPECT_THAT(FilesOfPlan(manifest, plan).status().message(), HasSubstr("'stranger'"));
  manifest.tensors.pop_back();
  program::Plan grouped = plan;
  grouped.determinism = program::Determinism::kRelaxed;
  grouped.pipelines[0].stages[1].group = {1, 2};
  grouped.pipelines[0].stages[1].layout = 0;
  grouped.layouts = {{.cuts = {{.units = {1, 1}}}, .tensors = {}}};
  grouped.layouts[0].tensors["layers.0.mlp.up.weight"] = {.placement = graph::Placement::Shard(0)};
  const auto divided = FilesOfPlan(manifest, grouped);
  ASSERT_TRUE(divided.ok()) << divided.status().ToString();
  bytes = 0;
  for (const FilePlan& file : *divided) {
    bytes += BytesOf(manifest, file);
  }
  EXPECT_EQ(bytes, manifest.RawBytes());
  plan.pipelines[0].stages.pop_back();
  EXPECT_EQ(FilesOfPlan(manifest, plan).status().code(), StatusCode::kInvalidArgument);
  manifest.job.model.clear();
  EXPECT_THAT(FilesOfPlan(manifest, plan).status().message(), HasSubstr("which model"));
}

TEST_F(ReshardTest, WhatIsThereStaysAndDamageIsNamed) {
  Random random(3);
  AddTensor(state_, {"w", "master", DType::kF32, {60, 40}}, random);
  SaveState(RandomPieces(state_, 3, 4, random));
  const std::string target = folder_.path() + "/target";
  ASSERT_TRUE(Reshard(source_, target, Writers(2), {}).ok());
  EXPECT_EQ(Reshard(source_, target, Writers(3), {}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(LoadManifest(target)->files.size(), 3U) << "two, and the index";
  ASSERT_TRUE(Reshard(source_, target, Writers(3), {.overwrite = true}).ok());
  EXPECT_EQ(LoadManifest(target)->files.size(), 4U);
  ExpectSame(target);
  EXPECT_EQ(Reshard(folder_.path(), target + "2", Writers(1), {}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Reshard(source_, target, Writers(3), {}).status().message(),
            target + " exists; --overwrite replaces it");

  // One chunk of the source is damaged: nothing appears, the tensor is named.
  const auto manifest = LoadManifest(source_);
  const BoxRecord& box = manifest->tensors[0].boxes[0];
  const std::string path = source_ + "/" + manifest->files[static_cast<size_t>(box.file)].name;
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  std::fseek(file, box.chunks[0].address + box.chunks[0].bytes / 2, SEEK_SET);
  const int byte = std::fgetc(file);
  std::fseek(file, -1, SEEK_CUR);
  std::fputc(byte ^ 1, file);
  std::fclose(file);
  const auto damaged = Reshard(source_, target + "2", Writers(2), {});
  EXPECT_EQ(damaged.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(damaged.status().message(), HasSubstr("'w'"));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name == "checkpoints" || name == "target") << name;
  }
}

}  // namespace
}  // namespace heddle::checkpoint

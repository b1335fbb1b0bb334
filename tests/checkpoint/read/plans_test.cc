/// \file
/// Goal: a checkpoint that one plan wrote is the same state under every other plan. Method: random
/// pairs of plans of small Llama and GPT-2 graphs, with one writer for each worker of the first and
/// one reader for each worker of the second, as the trainer has them; plans of single workers, then
/// plans with groups, some of which divide the optimizer; then splits that no plan would make. The
/// reference is the state in memory, taken apart element by element (support.h).
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "checkpoint/read/reader.h"
#include "checkpoint/storage/manifest_file.h"
#include "engine/graph/models/model.h"
#include "engine/program/state.h"
#include "tests/checkpoint/support.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/program/group_plans.h"

namespace heddle::checkpoint {
namespace {

constexpr const char* kPairsVariable = "HEDDLE_CHECKPOINT_PAIRS";
constexpr size_t kMaxWorkers = 8;

graph::Graph RandomModel(Random& random) {
  graph::ModelConfig config;
  config.family = random.Below(2) == 0 ? graph::ModelFamily::kLlama : graph::ModelFamily::kGpt2;
  config.num_attention_heads = random.Between(1, 2) * 2;
  config.num_key_value_heads = config.family == graph::ModelFamily::kGpt2
                                   ? config.num_attention_heads
                                   : config.num_attention_heads / 2;
  config.hidden_size = config.num_attention_heads * random.Between(1, 3) * 2;
  config.intermediate_size = random.Between(5, 40);
  config.num_hidden_layers = random.Between(1, 4);
  config.vocab_size = random.Between(17, 60);
  config.max_position_embeddings = 16;
  config.tie_word_embeddings = random.Below(2) == 0;
  // Masters and moments are fp64 in an fp64 graph, otherwise fp32.
  const DType compute = random.Below(4) == 0 ? DType::kF64 : DType::kF32;
  auto graph = graph::BuildTrainingGraph(config, {.sequence_length = 8, .compute = compute});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *std::move(graph);
}

program::Plan RandomPlan(const graph::Graph& graph, Random& random) {
  for (;;) {
    program::Plan plan =
        testing::RandomPlan(random.Next(), static_cast<int>(graph.segments.size()));
    if (plan.workers.size() <= kMaxWorkers) {
      return plan;
    }
  }
}

/// Of groups; sometimes of single workers. Some divide the optimizer.
program::Plan RandomShardedPlan(const graph::Graph& graph, Random& random) {
  program::Plan plan = random.Below(5) == 0
                           ? RandomPlan(graph, random)
                           : testing::RandomGroupPrograms(graph, random.Next()).plan;
  plan.divides_optimizer = random.Below(2) == 0;
  return plan;
}

constexpr std::array kRoles = {program::StateRole::kMaster, program::StateRole::kExpAvg,
                               program::StateRole::kExpAvgSq};

/// Every parameter's master and moments, in the order of `kRoles`.
State WholeState(const graph::Graph& graph, Random& random) {
  State state;
  for (const graph::Parameter& parameter : graph.parameters) {
    for (const program::StateRole role : kRoles) {
      AddTensor(state,
                {parameter.name, std::string(program::StateRoleName(role)), graph.master_dtype(),
                 parameter.shape},
                random);
    }
  }
  return state;
}

std::vector<Piece> PiecesOf(const program::StateLayout& layout) {
  std::vector<Piece> pieces;
  for (size_t worker = 0; worker < layout.size(); ++worker) {
    for (const program::StateBox& box : layout[worker]) {
      const auto role = static_cast<size_t>(box.role);
      pieces.push_back({.tensor = static_cast<size_t>(box.parameter) * kRoles.size() + role,
                        .box = box.box,
                        .worker = worker});
    }
  }
  return pieces;
}

/// Reads the pieces of one worker into memory of its own and compares them bit by bit.
void ExpectRead(const std::string& path,
                const State& state,
                const std::vector<Piece>& pieces,
                size_t worker,
                int threads) {
  const auto reader = Reader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  std::vector<Piece> mine;
  std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(mine),
               [&](const Piece& piece) { return piece.worker == worker; });
  SCOPED_TRACE(fmt::format("worker {}", worker));
  ExpectReads(**reader, state, mine, threads);
}

SaveSetup RandomSetup(const std::string& root, int pair, size_t workers, Random& random) {
  return {.root = root,
          .step = pair,
          .generation = pair,
          .workers = workers,
          .chunk_bytes = int64_t{64} << random.Below(9),
          .staging_limit_bytes = random.Below(4) == 0 ? 0 : int64_t{1} << 40,
          .codec_threads = 1 + static_cast<int>(random.Below(2))};
}

/// Keeps one checkpoint: hundreds of them would fill the folder.
void Forget(const std::string& root, int64_t step) {
  ASSERT_TRUE(Prune(root, {.keep_last = 1, .protected_steps = {}, .sound_step = step}).ok());
}

/// A checkpoint that `before` wrote, read by all workers of `after`, and whole.
void ExpectSavedAndRead(const SaveSetup& setup,
                        const graph::Graph& graph,
                        const program::Plan& before,
                        const program::Plan& after,
                        Random& random) {
  metrics::Registry metrics;
  const State state = WholeState(graph, random);
  const auto owned = PiecesOf(program::OwnedLayout(graph, before));
  const auto parts = WriteParts(setup, state, owned, metrics);
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  JobState job = TestJob();
  job.plan = program::PlanToJson(before);
  job.samples_consumed = static_cast<int64_t>(random.Below(uint64_t{1} << 62));
  const auto saved = Commit({.root = setup.root,
                             .step = setup.step,
                             .generation = setup.generation,
                             .job = job,
                             .expected = state.tensors,
                             .parts = *parts},
                            metrics);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();

  const auto manifest = LoadManifest(saved->path);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  EXPECT_EQ(manifest->step, setup.step);
  EXPECT_EQ(manifest->job, job);
  const auto held = PiecesOf(program::LayoutOf(graph, after));
  for (size_t worker = 0; worker < after.workers.size(); ++worker) {
    ExpectRead(saved->path, state, held, worker, 1 + static_cast<int>(random.Below(3)));
  }
  // A plan's layout that forgot a tensor would compare nothing: all of them, whole.
  std::vector<Piece> whole;
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    whole.push_back({.tensor = t, .box = WholeBox(state.tensors[t].shape)});
  }
  ExpectRead(saved->path, state, whole, 0, 2);
  Forget(setup.root, setup.step);
}

TEST(PlansTest, WhatOnePlanWroteAnyOtherReads) {
  Random random(TestSeed());
  const TemporaryFolder folder;
  const int pairs = Rounds(kPairsVariable, 10, 30, 200);
  int idle = 0;
  for (int pair = 0; pair < pairs && !HasFailure(); ++pair) {
    SCOPED_TRACE(pair);
    const graph::Graph graph = RandomModel(random);
    const program::Plan before = RandomPlan(graph, random);
    const program::Plan after = RandomPlan(graph, random);
    idle += before.IdleWorkers().empty() ? 0 : 1;
    ExpectSavedAndRead(RandomSetup(folder.path(), pair, before.workers.size(), random), graph,
                       before, after, random);
  }
  EXPECT_GT(idle, 0) << "no plan had an idle worker";
}

TEST(PlansTest, WhatGroupsWroteAnyOtherPlanReads) {
  Random random(TestSeed());
  const TemporaryFolder folder;
  const int pairs = Rounds(kPairsVariable, 10, 30, 200);
  int groups = 0;
  int divided = 0;
  for (int pair = 0; pair < pairs && !HasFailure(); ++pair) {
    SCOPED_TRACE(pair);
    graph::Graph graph = RandomModel(random);
    graph.optimizer.slices = random.Between(2, 70);
    const program::Plan before = RandomShardedPlan(graph, random);
    const program::Plan after = RandomShardedPlan(graph, random);
    groups += before.layouts.empty() ? 0 : 1;
    divided += before.divides_optimizer != after.divides_optimizer ? 1 : 0;
    ExpectSavedAndRead(RandomSetup(folder.path(), pair, before.workers.size(), random), graph,
                       before, after, random);
  }
  EXPECT_GT(groups, 0);
  EXPECT_GT(divided, 0) << "no pair changes from whole to divided optimizers, or back";
}

/// Cuts every dimension at random places, some of them equal: a grid with boxes without elements.
std::vector<Box> GridSplit(const Shape& shape, Random& random) {
  std::vector<Box> boxes = {WholeBox(shape)};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> cuts = {0, shape[d]};
    for (uint64_t cut = random.Below(3); cut > 0; --cut) {
      cuts.push_back(random.Between(0, shape[d]));
    }
    std::sort(cuts.begin(), cuts.end());
    std::vector<Box> next;
    for (const Box& box : boxes) {
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        next.push_back(box);
        next.back().offset[d] = cuts[i];
        next.back().extent[d] = cuts[i + 1] - cuts[i];
      }
    }
    boxes = std::move(next);
  }
  return boxes;
}

std::vector<Piece> OddPieces(const State& state, size_t workers, Random& random) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    const Shape& shape = state.tensors[t].shape;
    const auto boxes =
        random.Below(2) == 0 ? GridSplit(shape, random) : RandomSplit(WholeBox(shape), 9, random);
    for (const Box& box : boxes) {
      pieces.push_back({.tensor = t, .box = box, .worker = random.Below(workers)});
    }
  }
  return pieces;
}

/// A scalar, one element, none, and random shapes of up to five dimensions.
State OddState(Random& random) {
  State state;
  constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF64};
  std::vector<Shape> shapes = {{}, {1}, {0}, {3, 0, 2}};
  for (size_t rank = 1; rank <= 5; ++rank) {
    Shape shape;
    for (size_t d = 0; d < rank; ++d) {
      shape.push_back(random.Between(rank == 1 ? 100 : 0,
                                     rank == 1 ? 3000 : 33 - 6 * static_cast<int64_t>(rank)));
    }
    shapes.push_back(shape);
  }
  for (size_t t = 0; t < shapes.size(); ++t) {
    AddTensor(state, {fmt::format("t{}", t), "master", kTypes[random.Below(3)], shapes[t]}, random);
    if (t % 2 == 0) {  // Any bits: NaNs with payloads, denormals, infinities.
      for (std::byte& byte : state.bytes.back()) {
        byte = static_cast<std::byte>(random.Below(256));
      }
    }
  }
  return state;
}

TEST(PlansTest, SplitsThatNoPlanMakes) {
  Random random(TestSeed());
  metrics::Registry metrics;
  const TemporaryFolder folder;
  const int pairs = Rounds(kPairsVariable, 10, 30, 200);
  for (int pair = 0; pair < pairs; ++pair) {
    SCOPED_TRACE(pair);
    const State state = OddState(random);
    const size_t writers = 1 + random.Below(kMaxWorkers);
    const size_t readers = 1 + random.Below(kMaxWorkers);
    const SaveSetup setup = RandomSetup(folder.path(), pair, writers, random);
    const auto saved = Save(setup, state, OddPieces(state, writers, random), metrics);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    const auto wanted = OddPieces(state, readers, random);
    for (size_t worker = 0; worker < readers; ++worker) {
      ExpectRead(saved->path, state, wanted, worker, 1 + static_cast<int>(random.Below(3)));
    }
    Forget(setup.root, setup.step);
    if (HasFatalFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint

// What a plan's processes are expected to take: each part that a job or a plan adds is in it once.
#include "elastic/planning/process_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/cost/segment_sizes.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "tests/engine_program/example_programs.h"

namespace heddle::elastic {
namespace {

using program::Plan;
using testing::ChainGraph;
using ::testing::IsEmpty;
using testing::PipelineOfCuts;
using testing::PlanOf;

constexpr int64_t kProcess = 10'000;
constexpr int64_t kScratch = 700;

class ProcessMemoryTest : public ::testing::Test {
 protected:
  ProcessMemoryTest() {
    plan_ = PlanOf(2, {PipelineOfCuts({0, 4}, 0, 0, 2), PipelineOfCuts({0, 4}, 1, 2, 2)});
    plan_.determinism = program::Determinism::kRelaxed;
    job_.checkpoint.last = false;
    // In another order than the plan's.
    for (int rank : {1, 0}) {
      program::WorkerProfile profile;
      profile.worker = plan_.workers[static_cast<size_t>(rank)];
      profile.process_bytes = kProcess * (1 + rank);
      profile.scratch_bytes = kScratch * rank;
      cluster_.workers.push_back(profile);
    }
    Join("tcp");
    for (const graph::Parameter& parameter : graph_.parameters) {
      state_ += 3 * ElementCount(parameter.shape) * SizeOf(graph_.master_dtype());
    }
  }

  void Join(const std::string& transport) {
    cluster_.links = comm::LinkTable(2);
    for (const int from : {0, 1}) {
      cluster_.links.At(from, 1 - from).transport = transport;
    }
  }
  std::vector<int64_t> Predicted() {
    Result<std::vector<program::Program>> programs = program::LowerAll(graph_, plan_);
    EXPECT_TRUE(programs.ok()) << programs.status().ToString();
    programs_ = std::move(*programs);
    return ProcessBytes(job_, graph_, plan_, programs_, cluster_);
  }
  /// What both take more than at first.
  int64_t More() {
    const std::vector<int64_t> bytes = Predicted();
    const int64_t sum = bytes[0] + bytes[1];
    first_ = first_ == 0 ? sum : first_;
    return sum - first_;
  }

  const graph::Graph graph_ = ChainGraph(4, /*tied=*/true);
  Plan plan_;
  std::vector<program::Program> programs_;
  job::JobConfig job_;
  planner::ClusterProfile cluster_;
  int64_t state_ = 0;  ///< Bytes that a checkpoint has.
  int64_t first_ = 0;
};

TEST_F(ProcessMemoryTest, EachWorkersOwnProcessKernelsStateAndValuesCount) {
  const std::vector<int64_t> bytes = Predicted();
  ASSERT_EQ(bytes.size(), 2U);
  EXPECT_EQ(bytes[1] - bytes[0], kProcess + kScratch) << "the workers' Programs are alike";
  EXPECT_GT(bytes[0], kProcess + program::StateBytes(graph_, programs_[0]) +
                          program::PeakSlotBytes(programs_[0]));
}

TEST_F(ProcessMemoryTest, ASaveCopiesTheStateOnce) {
  More();
  job_.checkpoint.every = 10;
  EXPECT_EQ(More(), state_);
  job_.checkpoint.background = false;
  EXPECT_EQ(More(), 0);
  job_.checkpoint = {.last = true};
  EXPECT_EQ(More(), state_);
}

TEST_F(ProcessMemoryTest, TwoSnapshotsAreHeldAndOthersCopiesOfThem) {
  More();
  job_.checkpoint.replicas = {.every = 5, .copies = 0, .compress = false};
  EXPECT_EQ(More(), 2 * state_);
  job_.checkpoint.replicas.compress = true;
  EXPECT_EQ(More(), 3 * state_);
  job_.checkpoint.replicas.copies = 1;
  EXPECT_GE(More(), 5 * state_);
}

TEST_F(ProcessMemoryTest, WorkersOfOneHostMapASegment) {
  More();
  Join("shm");
  EXPECT_EQ(More(), 2 * comm::SegmentBytes(2)) << "the sums are too small for slabs";
}

TEST_F(ProcessMemoryTest, NothingIsPredictedFromWhatWasNotMeasured) {
  cluster_.workers[0].process_bytes = 0;
  EXPECT_THAT(Predicted(), IsEmpty());
}

/// A Program that makes `sums` of `bytes` bytes each, one after the other, and frees those with an
/// even number before the next.
program::Program Sums(int sums, int64_t bytes) {
  program::Program program;
  program.determinism = program::Determinism::kRelaxed;
  for (int i = 0; i < sums; ++i) {
    program.slots.push_back({.type = {.dtype = DType::kU8, .shape = {bytes}}});
    program.instructions.push_back({.code = program::Code::kReduce, .outputs = {i}});
    if (i % 2 == 0) {
      program.instructions.push_back({.code = program::Code::kFree, .inputs = {i}});
    }
  }
  return program;
}

TEST(HostValuesTest, SlabsAreTakenInPiecesThatServeAgain) {
  constexpr int64_t kPiece = int64_t{5} << 20;
  // The second takes the first's piece, the fourth the third's.
  const program::HostValues four = HostValuesOf(Sums(4, kPiece - 1));
  EXPECT_EQ(four.pieces, 2 * kPiece);
  EXPECT_EQ(four.slabs, program::kSharedSlabBytes);
  EXPECT_EQ(four.own, 0);
  // Three pieces to a slab.
  EXPECT_EQ(HostValuesOf(Sums(7, kPiece)).slabs, 2 * program::kSharedSlabBytes);
  constexpr int64_t kLarge = int64_t{28} << 20;
  EXPECT_EQ(HostValuesOf(Sums(1, kLarge)).slabs, kLarge) << "one that is larger than a slab";
  const program::HostValues small = HostValuesOf(Sums(4, program::kLeastSharedBytes - 1));
  EXPECT_EQ(small.slabs + small.pieces, 0);
  EXPECT_EQ(small.own, 2 * (program::kLeastSharedBytes - 1));
  program::Program exact = Sums(4, kPiece);
  exact.determinism = program::Determinism::kExact;
  EXPECT_EQ(HostValuesOf(exact).slabs, 0) << "exact sums are not shared";
}

}  // namespace
}  // namespace heddle::elastic

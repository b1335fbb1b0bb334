// Programs of a small chain, followed by hand.
#include "engine/program/lowering/lower.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/verify/verify.h"
#include "tests/engine_program/graphs.h"

namespace heddle::program {
namespace {

using testing::ChainGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PipelineOfCuts;
using testing::PlanOf;

std::vector<Program> MustLower(const graph::Graph& graph, const Plan& plan) {
  Result<std::vector<Program>> programs = LowerAll(graph, plan);
  EXPECT_TRUE(programs.ok()) << programs.status().ToString();
  const Status status = Verify(graph, plan, *programs);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return *std::move(programs);
}

// "F0 F1 B0 …": what each microbatch's runs are, in order.
std::string Schedule(const graph::Graph& graph, const Program& program) {
  std::string text;
  std::string last;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.code != Code::kRun) {
      continue;
    }
    const bool forward = graph.node(instruction.node).phase == graph::Phase::kForward;
    const std::string item = fmt::format("{}{}", forward ? 'F' : 'B', instruction.microbatch);
    if (item != last) {
      text += (text.empty() ? "" : " ") + item;
      last = item;
    }
  }
  return text;
}

// Codes of one kind with slots left out: "send 1 layers…".
std::vector<std::string> Messages(const graph::Graph& graph, const Program& program) {
  std::vector<std::string> messages;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.code == Code::kSend || instruction.code == Code::kRecv) {
      const bool send = instruction.code == Code::kSend;
      const SlotId slot = send ? instruction.inputs[0] : instruction.outputs[0];
      const Slot& value = program.slots[static_cast<size_t>(slot)];
      messages.push_back(fmt::format("{} {} {} m{}", send ? "to" : "from", instruction.peer,
                                     graph.tensor(value.tensor).name, value.microbatch));
    }
  }
  return messages;
}

std::vector<const Instruction*> Of(const Program& program, Code code) {
  std::vector<const Instruction*> found;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.code == code) {
      found.push_back(&instruction);
    }
  }
  return found;
}

std::vector<graph::ParameterId> ParametersOf(const Program& program, Code code) {
  std::vector<graph::ParameterId> parameters;
  for (const Instruction* const instruction : Of(program, code)) {
    parameters.push_back(instruction->parameter);
  }
  return parameters;
}

TEST(LowerTest, OneForwardOneBackwardOverTwoStages) {
  const graph::Graph graph = ChainGraph(4);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 4)});
  const std::vector<Program> programs = MustLower(graph, plan);
  EXPECT_EQ(Schedule(graph, programs[0]), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(Schedule(graph, programs[1]), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(LowerTest, OneForwardOneBackwardOverFourStages) {
  const graph::Graph graph = ChainGraph(4);
  const Plan plan = PlanOf(4, {PipelineOfCuts({0, 1, 2, 3, 4}, 0, 0, 6)});
  const std::vector<Program> programs = MustLower(graph, plan);
  EXPECT_EQ(Schedule(graph, programs[0]), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(Schedule(graph, programs[1]), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  EXPECT_EQ(Schedule(graph, programs[2]), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  EXPECT_EQ(Schedule(graph, programs[3]), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(LowerTest, WarmUpIsBoundedByTheMicrobatches) {
  const graph::Graph graph = ChainGraph(4);
  const Plan plan = PlanOf(4, {PipelineOfCuts({0, 1, 2, 3, 4}, 0, 0, 2)});
  const std::vector<Program> programs = MustLower(graph, plan);
  EXPECT_EQ(Schedule(graph, programs[0]), "F0 F1 B0 B1");
  EXPECT_EQ(Schedule(graph, programs[2]), "F0 F1 B0 B1");
  EXPECT_EQ(Schedule(graph, programs[3]), "F0 B0 F1 B1");
}

// The whole program of one worker and one microbatch, checked by hand.
TEST(LowerTest, SingleWorkerProgramInFull) {
  const graph::Graph graph = ChainGraph(2);
  const Plan plan = SingleWorkerPlan("alone", 2, 1);
  const std::vector<Program> programs = MustLower(graph, plan);
  EXPECT_EQ(ToString(programs[0], graph),
            R"(generation 0 rank 0 of 1, exact
parameters 0 1
peers
%0 tokens int32[1, 2] m0
%1 embedding fp32[1, 2, 4] m0
%2 logits fp32[1, 2, 8] m0
%3 targets int32[1, 2] m0
%4 loss fp64[] m0
%5 loss.1 fp32[1, 2] m0
%6 logits.grad fp32[1, 2, 8] m0
%7 embedding.grad fp32[1, 2, 4] m0
%8 head.weight.grad.0 fp32[8, 4] m0
%9 embedding.weight.grad.0 fp32[8, 4] m0
   0 load m0 -> %0
   1 run n0 embedding m0 %0, p -> %1
   2 run n1 linear m0 %1, p -> %2
   3 load m0 -> %3
   4 run n2 cross_entropy{scale=0.5} m0 %2, %3 -> %4, %5
   5 run n3 cross_entropy_gradient{scale=0.5} m0 %2, %3, %5 -> %6
   6 free %2
   7 free %3
   8 free %5
   9 run n4 linear_input_gradient m0 %6, p -> %7
  10 run n5 linear_weight_gradient m0 %6, %1 -> %8
  11 free %1
  12 free %6
  13 run n6 embedding_weight_gradient{vocabulary=8} m0 %7, %0 -> %9
  14 free %0
  15 free %7
  16 vote
  17 free %4
  18 update p0 embedding.weight %9
  19 free %9
  20 update p1 head.weight %8
  21 free %8
vote at 16: norms p0=%9 p1=%8; losses m0=%4
)");
}

TEST(LowerTest, EachCrossingTensorIsOneMessage) {
  const graph::Graph graph = ChainGraph(4);
  const Plan plan = PlanOf(3, {PipelineOfCuts({0, 2, 4}, 1, 0, 2)});
  const std::vector<Program> programs = MustLower(graph, plan);
  EXPECT_THAT(Messages(graph, programs[1]),
              ElementsAre("to 2 linear1 m0", "to 2 linear1 m1", "from 2 linear1.grad m0",
                          "from 2 linear1.grad m1"));
  EXPECT_THAT(Messages(graph, programs[2]),
              ElementsAre("from 1 linear1 m0", "to 1 linear1.grad m0", "from 1 linear1 m1",
                          "to 1 linear1.grad m1"));
  EXPECT_THAT(programs[1].peers, ElementsAre(2));
  EXPECT_THAT(programs[2].peers, ElementsAre(1));
}

TEST(LowerTest, IdleWorkerOnlyVotes) {
  const graph::Graph graph = ChainGraph(4);
  const Plan plan = PlanOf(3, {PipelineOfCuts({0, 2, 4}, 1, 0, 2)});
  const Program idle = MustLower(graph, plan)[0];
  ASSERT_EQ(idle.instructions.size(), 1U);
  EXPECT_EQ(idle.instructions[0].code, Code::kVote);
  EXPECT_THAT(idle.parameters, IsEmpty());
  EXPECT_THAT(idle.peers, IsEmpty());
}

// A sole holder of three microbatches: leaves 0 and 1 make a node, then leaf 2 joins it.
TEST(LowerTest, SoleHolderFoldsInTreeOrder) {
  const graph::Graph graph = ChainGraph(2);
  const Program program = MustLower(graph, SingleWorkerPlan("alone", 2, 5))[0];
  std::vector<std::pair<int, int>> folds;
  for (const Instruction* const fold : Of(program, Code::kFold)) {
    const Slot& left = program.slots[static_cast<size_t>(fold->inputs[0])];
    const Slot& right = program.slots[static_cast<size_t>(fold->inputs[1])];
    EXPECT_EQ(left.tensor, right.tensor);
    if (graph.tensor(left.tensor).parameter == 1) {
      folds.emplace_back(left.microbatch, right.microbatch);
    }
  }
  using P = std::pair<int, int>;
  EXPECT_THAT(folds, ElementsAre(P(0, 1), P(2, 3), P(0, 2), P(0, 4)));
  EXPECT_THAT(Of(program, Code::kReduce), IsEmpty());
}

TEST(LowerTest, PipelinesOfUnlikeDepthReduceAlignedPartialSums) {
  const graph::Graph graph = ChainGraph(4);
  // Microbatches 0 … 2 on two stages, 3 … 4 on one worker; P = 8.
  const Plan plan =
      PlanOf(3, {PipelineOfCuts({0, 3, 4}, 0, 0, 3), PipelineOfCuts({0, 4}, 2, 3, 2)});
  const std::vector<Program> programs = MustLower(graph, plan);
  // Parameters: 0 embedding, 1 linear1, 2 linear2, 3 head. Descending segment.
  EXPECT_THAT(ParametersOf(programs[0], Code::kReduce), ElementsAre(2, 1, 0));
  EXPECT_THAT(ParametersOf(programs[1], Code::kReduce), ElementsAre(3));
  EXPECT_THAT(ParametersOf(programs[2], Code::kReduce), ElementsAre(3, 2, 1, 0));
  const Instruction& reduce = *Of(programs[0], Code::kReduce)[0];
  EXPECT_THAT(reduce.group, ElementsAre(0, 2));
  EXPECT_THAT(reduce.contributions, ElementsAre(ElementsAre(TreeNode{1, 0}, TreeNode{0, 2}),
                                                ElementsAre(TreeNode{0, 3}, TreeNode{0, 4})));
  EXPECT_EQ(reduce.inputs.size(), 2U);
  EXPECT_THAT(ParametersOf(programs[2], Code::kUpdate), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(programs[0].peers, ElementsAre(1, 2));
  // Owners are the lowest holders.
  EXPECT_EQ(programs[0].vote.norms.size(), 3U);
  EXPECT_EQ(programs[1].vote.norms.size(), 1U);
  EXPECT_EQ(programs[2].vote.norms.size(), 0U);
  EXPECT_EQ(programs[0].vote.losses.size(), 0U);
  EXPECT_EQ(programs[1].vote.losses.size(), 3U);
  EXPECT_EQ(programs[2].vote.losses.size(), 2U);
}

TEST(LowerTest, ReductionsStartWhileBackwardGoesOn) {
  const graph::Graph graph = ChainGraph(6);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 6}, 0, 0, 2), PipelineOfCuts({0, 6}, 1, 2, 2)});
  const Program program = MustLower(graph, plan)[0];
  size_t first_reduce = 0;
  size_t runs_after = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Code code = program.instructions[i].code;
    if (code == Code::kReduce && first_reduce == 0) {
      first_reduce = i;
    }
    runs_after += code == Code::kRun && first_reduce > 0 ? 1 : 0;
  }
  // After the head's weight gradient: two nodes of each of four linear layers, one of the
  // embedding.
  EXPECT_EQ(runs_after, 9U);
}

TEST(LowerTest, TiedWeightIsReducedOverBothEndsInOrderOfUses) {
  const graph::Graph graph = ChainGraph(4, /*tied=*/true);
  const Plan plan = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 3)});
  const std::vector<Program> programs = MustLower(graph, plan);
  // Parameter 0 is the tied one; linear1 and linear2 have a sole holder each.
  EXPECT_THAT(ParametersOf(programs[0], Code::kReduce), ElementsAre(0));
  EXPECT_THAT(ParametersOf(programs[1], Code::kReduce), ElementsAre(0));
  const Instruction& reduce = *Of(programs[0], Code::kReduce)[0];
  EXPECT_THAT(reduce.group, ElementsAre(0, 1));
  // Use 0 (embedding) has leaves 0 … 2, use 1 (head) leaves 4 … 6: P = 4.
  EXPECT_THAT(reduce.contributions, ElementsAre(ElementsAre(TreeNode{1, 0}, TreeNode{0, 2}),
                                                ElementsAre(TreeNode{1, 2}, TreeNode{0, 6})));
  EXPECT_THAT(ParametersOf(programs[0], Code::kUpdate), ElementsAre(0, 1));
  EXPECT_THAT(ParametersOf(programs[1], Code::kUpdate), ElementsAre(0, 2));
}

TEST(LowerTest, RelaxedSendsOnePartialSum) {
  const graph::Graph graph = ChainGraph(4, /*tied=*/true);
  Plan plan = PlanOf(2, {PipelineOfCuts({0, 4}, 0, 0, 3), PipelineOfCuts({0, 4}, 1, 3, 2)});
  plan.determinism = Determinism::kRelaxed;
  const std::vector<Program> programs = MustLower(graph, plan);
  for (const Instruction* const reduce : Of(programs[0], Code::kReduce)) {
    EXPECT_EQ(reduce->inputs.size(), 1U);
    EXPECT_THAT(reduce->contributions, IsEmpty());
  }
  // Four parameters' worth of contributions minus one each: 3 * 2 tied, 3 linear1, 3 linear2.
  EXPECT_EQ(Of(programs[0], Code::kFold).size(), 5U + 2U + 2U);
}

TEST(LowerTest, AStageThatIsAheadSendsEarlier) {
  const graph::Graph graph = ChainGraph(3);
  Plan plan = PlanOf(2, {PipelineOfCuts({0, 1, 3}, 0, 0, 5)});
  const auto order = [&](int ahead) {
    plan.pipelines[0].stages[0].ahead = ahead;
    std::string messages;
    const Program program = MustLower(graph, plan)[0];
    for (const Instruction& instruction : program.instructions) {
      if (instruction.code == Code::kSend || instruction.code == Code::kRecv) {
        messages += fmt::format("{}{} ", instruction.code == Code::kSend ? 'F' : 'B',
                                instruction.microbatch);
      }
    }
    return messages;
  };
  EXPECT_EQ(order(0), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4 ");
  EXPECT_EQ(order(1), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 ");
  EXPECT_EQ(order(9), "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4 ");
}

TEST(LowerTest, RecomputeKeepsOnlyWhatEntersASegment) {
  const graph::Graph graph = ChainGraph(3);
  Plan plan = SingleWorkerPlan("alone", 3, 1);
  plan.pipelines[0].stages[0].recompute = true;
  const Program program = MustLower(graph, plan)[0];
  std::vector<std::string> runs;
  for (const Instruction* const run : Of(program, Code::kRun)) {
    runs.emplace_back(graph.node(run->node).op->name());
  }
  // Only the head's inside is needed again: logits and the loss's second output.
  EXPECT_THAT(runs, ElementsAre("embedding", "linear", "linear", "cross_entropy", "linear",
                                "cross_entropy", "cross_entropy_gradient", "linear_input_gradient",
                                "linear_weight_gradient", "linear_input_gradient",
                                "linear_weight_gradient", "embedding_weight_gradient"));
}

TEST(LowerTest, ForwardGraphOnlyReportsLosses) {
  graph::Graph graph = ChainGraph(3);
  std::vector<graph::Node> forward;
  for (const graph::Node& node : graph.nodes) {
    if (node.phase == graph::Phase::kForward) {
      forward.push_back(node);
    }
  }
  graph.nodes = std::move(forward);
  for (graph::Parameter& parameter : graph.parameters) {
    parameter.gradients.clear();
  }
  const Program program = MustLower(graph, SingleWorkerPlan("alone", 3, 2))[0];
  EXPECT_THAT(Of(program, Code::kUpdate), IsEmpty());
  EXPECT_EQ(program.vote.losses.size(), 2U);
  EXPECT_THAT(program.vote.norms, IsEmpty());
}

TEST(LowerTest, RefusesARankOutsideThePlan) {
  const graph::Graph graph = ChainGraph(3);
  const Plan plan = SingleWorkerPlan("alone", 3, 2);
  EXPECT_EQ(Lower(graph, plan, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Lower(graph, plan, -1).status().code(), StatusCode::kInvalidArgument);
}

TEST(LowerTest, RefusesAPlanOfAnotherGraph) {
  EXPECT_EQ(Lower(ChainGraph(3), SingleWorkerPlan("alone", 4, 2), 0).status().code(),
            StatusCode::kInvalidArgument);
}

// An operator whose sharding rules are replaced.
class ChangedRules : public graph::Operator {
 public:
  ChangedRules(const graph::Operator* base, std::vector<graph::ShardingRule> rules)
      : base_(base),
        rules_(std::move(rules)) {}
  std::string_view name() const override { return base_->name(); }
  Result<std::vector<graph::TensorType>> Infer(std::span<const graph::TensorType> inputs,
                                               const graph::Attributes& attributes) const override {
    return base_->Infer(inputs, attributes);
  }
  graph::Cost CostOf(std::span<const graph::TensorType> inputs,
                     std::span<const graph::TensorType> outputs,
                     const graph::Attributes& attributes) const override {
    return base_->CostOf(inputs, outputs, attributes);
  }
  std::vector<graph::ShardingRule> ShardingRules(
      std::span<const graph::TensorType> /*inputs*/,
      std::span<const graph::TensorType> /*outputs*/,
      const graph::Attributes& /*attributes*/) const override {
    return rules_;
  }

 private:
  const graph::Operator* base_;
  std::vector<graph::ShardingRule> rules_;
};

std::string RefusalWith(std::string_view op, std::vector<graph::ShardingRule> rules) {
  graph::Graph graph = ChainGraph(3);
  const ChangedRules changed(graph::FindOperator(op), std::move(rules));
  for (graph::Node& node : graph.nodes) {
    if (node.op->name() == op) {
      node.op = &changed;
    }
  }
  const Status status = Lower(graph, SingleWorkerPlan("alone", 3, 2), 0).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return status.message();
}

TEST(LowerTest, WhatIsSummedFollowsFromTheShardingRules) {
  using graph::Placement;
  const Placement shard = Placement::Shard(0);
  EXPECT_THAT(RefusalWith("linear_weight_gradient", {{{shard, shard}, {Placement::Shard(0)}}}),
              HasSubstr("linear1.weight.grad.0 lies shard(0) over microbatches, expected partial"));
  EXPECT_THAT(RefusalWith("linear_weight_gradient", {{{shard, shard}, {Placement::Replicate()}}}),
              HasSubstr("lies replicate over microbatches"));
  EXPECT_THAT(RefusalWith("cross_entropy", {{{shard, shard}, {shard, shard}}}),
              HasSubstr("the loss lies shard(0) over microbatches, expected partial"));
  EXPECT_THAT(RefusalWith("linear", {{{shard, Placement::Replicate()}, {Placement::Partial()}}}),
              HasSubstr("no sharding rule for inputs (partial, replicate)"));
  EXPECT_THAT(RefusalWith("embedding", {}),
              HasSubstr("no sharding rule for inputs (shard(0), replicate)"));
  EXPECT_THAT(RefusalWith("embedding", {{{shard, Placement::Replicate()}, {}}}),
              HasSubstr("places 0 outputs of 1"));
}

}  // namespace
}  // namespace heddle::program

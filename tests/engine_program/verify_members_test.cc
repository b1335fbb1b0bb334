// What one member of a group does that is not its part: it goes red, for the right reason.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"
#include "tests/engine_program/example_programs.h"
#include "tests/support/graph/groups.h"
#include "tests/support/program/group_plans.h"

namespace heddle::program {
namespace {

using testing::At;
using testing::Find;
using testing::GroupPlan;
using ::testing::HasSubstr;
using testing::Insert;
using testing::Programs;

class VerifyMembersTest : public ::testing::Test {
 protected:
  /// Stages whose members have these shares.
  void Lower(const std::vector<int>& units,
             const std::vector<testing::StageCut>& stages,
             int64_t kv_heads = 4,
             int microbatches = 1) {
    const graph::ModelConfig config =
        testing::SmallModel(graph::ModelFamily::kLlama, kv_heads, /*tied=*/false);
    graph_ = testing::SmallTrainingGraph(config);
    plan_ = GroupPlan(
        {testing::LayoutOf(graph_, config, {.units = units, .within_groups = kv_heads < 4})},
        {stages}, microbatches);
    Result<Programs> programs = LowerAll(graph_, plan_);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    programs_ = *std::move(programs);
    ASSERT_EQ(Refusal(), "");
  }
  std::string Refusal() const { return std::string(Verify(graph_, plan_, programs_).message()); }

  graph::Graph graph_;
  Plan plan_;
  Programs programs_;
};

TEST_F(VerifyMembersTest, AMemberRunsNoNodeOfWhichItHasNoShare) {
  Lower({8, 0}, {{6, 0}});
  const auto query = std::ranges::find(graph_.tensors, std::string("layers.0.attention.query"),
                                       &graph::Tensor::name);
  ASSERT_NE(query, graph_.tensors.end());
  const auto run =
      std::ranges::find(programs_[0].instructions, query->producer, &Instruction::node);
  ASSERT_NE(run, programs_[0].instructions.end());
  Insert(programs_[1], 0, *run);
  EXPECT_THAT(Refusal(), HasSubstr(fmt::format("worker w1, instruction 0: runs node {}, of which "
                                               "it has no share",
                                               query->producer)));
}

// The second stage sends back what it makes for the third.
TEST_F(VerifyMembersTest, AMemberReceivesNothingThatDoesNotComeToItsGroup) {
  Lower({4, 4}, {{2, 0}, {4, 0}, {6, 0}});
  Instruction& send = At(programs_[2], Code::kSend);
  ASSERT_EQ(send.peer, 4);
  send.peer = 0;
  const size_t sent = Find(programs_[0], Code::kSend);
  Insert(programs_[0], sent + 1,
         {.code = Code::kRecv,
          .microbatch = 0,
          .outputs = programs_[0].instructions[sent].inputs,
          .peer = 2,
          .tag = send.tag});
  EXPECT_THAT(Refusal(), HasSubstr("which does not come to its group"));
}

// Of five positions, the first two of four members have one each.
TEST_F(VerifyMembersTest, AMemberReceivesNoOthersPart) {
  Lower({2, 2, 2, 2}, {{3, 0}, {6, 0}});
  for (const auto& [sender, receiver] : {std::pair(0, 5), std::pair(1, 4)}) {
    At(programs_[static_cast<size_t>(sender)], Code::kSend).peer = receiver;
    At(programs_[static_cast<size_t>(receiver)], Code::kRecv).peer = sender;
    for (const auto& [rank, peer] : {std::pair(sender, receiver), std::pair(receiver, sender)}) {
      std::vector<int>& peers = programs_[static_cast<size_t>(rank)].peers;
      peers.insert(std::ranges::lower_bound(peers, peer), peer);
    }
  }
  EXPECT_THAT(Refusal(), HasSubstr("receives another part of"));
}

TEST_F(VerifyMembersTest, WhatIsReceivedOrReducedGoesToASlotOfItsOwn) {
  Lower({4, 4}, {{3, 0}, {6, 0}});
  const Programs right = programs_;
  At(programs_[2], Code::kRecv).outputs = {1 << 20};
  EXPECT_THAT(Refusal(), HasSubstr("writes slot 1048576, which does not exist"));
  programs_ = right;
  Instruction& reduce = At(programs_[0], Code::kReduce);
  reduce.outputs = {reduce.inputs.front()};
  EXPECT_THAT(Refusal(), HasSubstr(fmt::format("writes slot {} twice", reduce.outputs.front())));
  programs_ = right;
  At(programs_[0], Code::kReduce).piece = 1000;
  EXPECT_THAT(Refusal(), HasSubstr("reduces piece 1000 of"));
}

// Heads 3 and 4 of eight read both key/value heads, which are pieces of one parameter.
TEST_F(VerifyMembersTest, APieceIsUpdatedByItsOwnGradient) {
  Lower({3, 2, 3}, {{6, 0}}, /*kv_heads=*/2);
  Instruction* first = nullptr;
  for (Instruction& one : programs_[1].instructions) {
    if (one.code != Code::kUpdate) {
      continue;
    }
    if (first != nullptr && first->parameter == one.parameter) {
      std::swap(first->inputs, one.inputs);
      break;
    }
    first = &one;
  }
  EXPECT_THAT(Refusal(), HasSubstr("the gradient of piece 1 of layers."));
}

TEST_F(VerifyMembersTest, AMemberAddsAllThatItComputes) {
  Lower({4, 4}, {{6, 0}}, /*kv_heads=*/4, /*microbatches=*/2);
  Program& program = programs_[0];
  const SlotId sum = At(program, Code::kReduce).inputs.front();
  const auto fold = std::ranges::find_if(program.instructions, [&](const Instruction& one) {
    return one.code == Code::kFold && one.inputs.front() == sum;
  });
  ASSERT_NE(fold, program.instructions.end());
  program.instructions.erase(fold);
  --program.vote_index;
  EXPECT_THAT(Refusal(), HasSubstr("contributes other microbatches or uses of parameter"));
}

// Both members compute the gradient of a norm, and the first one counts it.
TEST_F(VerifyMembersTest, ACopyOfAGradientIsNotApplied) {
  Lower({4, 4}, {{6, 0}});
  Program& program = programs_[1];
  std::vector<Instruction>& list = program.instructions;
  const auto reduce = std::ranges::find_if(
      list, [](const Instruction& one) { return one.code == Code::kReduce && one.inputs.empty(); });
  ASSERT_NE(reduce, list.end());
  const SlotId sum = reduce->outputs.front();
  const graph::TensorId gradient = program.slots[static_cast<size_t>(sum)].tensor;
  const auto free = std::ranges::find_if(list, [&](const Instruction& one) {
    return one.code == Code::kFree &&
           program.slots[static_cast<size_t>(one.inputs.front())].tensor == gradient;
  });
  ASSERT_LT(free - list.begin(), static_cast<std::ptrdiff_t>(program.vote_index));
  const SlotId copy = free->inputs.front();
  std::rotate(free, free + 1, list.end());
  --program.vote_index;
  for (Instruction& one : list) {
    if (one.code == Code::kUpdate && one.inputs.front() == sum) {
      one.inputs = {copy};
    }
  }
  EXPECT_THAT(Refusal(), HasSubstr("applies a copy of the gradient of"));
}

}  // namespace
}  // namespace heddle::program

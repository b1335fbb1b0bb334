// Planted faults in what the members of a group run together: each goes red, for the right reason.
#include "engine/program/verify/verify_stage_graph.h"

#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/operator.h"
#include "engine/program/stage_graph.h"
#include "tests/engine_program/group_examples.h"

namespace heddle::program {
namespace {

using graph::ExchangeForm;
using testing::GroupExample;
using testing::GroupExampleOf;
using testing::GroupModel;
using ::testing::HasSubstr;

/// A fault in what the members run together.
struct StageFault {
  const char* name;
  const char* message;
  GroupModel model;
  std::function<void(StageGraph&)> plant;
};

class StageFaultTest : public ::testing::TestWithParam<StageFault> {};

TEST_P(StageFaultTest, IsFound) {
  const GroupExample example = GroupExampleOf(GetParam().model);
  const Stage& stage = example.plan.pipelines[0].stages[0];
  Result<StageGraph> group = BuildStageGraph(example.graph, example.plan, stage);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  ASSERT_EQ(VerifyStageGraph(example.graph, stage, *group).message(), "");
  GetParam().plant(*group);
  const Status status = VerifyStageGraph(example.graph, stage, *group);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

// What crosses to the next stage travels in as many parts as the smaller group has members.
TEST(StageGraphKeyTest, NamesTheSizesOfThePipelinesGroups) {
  const auto pipeline_of = [](int first, std::vector<int> second_group) {
    return Pipeline{.stages = {{.group = {first, first + 1}, .last_segment = 2, .layout = 0},
                               {.group = std::move(second_group),
                                .first_segment = 2,
                                .last_segment = 4,
                                .layout = 0}},
                    .microbatches = 1};
  };
  const Plan plan{.pipelines = {pipeline_of(0, {2, 3}), pipeline_of(4, {6})}};
  EXPECT_NE(StageGraphKey(plan, plan.pipelines[0].stages[0]),
            StageGraphKey(plan, plan.pipelines[1].stages[0]));
}

/// Has every node that reads `from` read `to`.
void ReplaceInputs(StageGraph& group, graph::TensorId from, graph::TensorId to) {
  for (graph::Node& node : group.sharded.graph.nodes) {
    std::ranges::replace(node.inputs, from, to);
  }
}

/// The first exchange of this form that the stage graph orders.
graph::Exchange& FirstOf(StageGraph& group, ExchangeForm form) {
  return *std::ranges::find(group.sharded.exchanges, form, &graph::Exchange::form);
}

/// Has all readers of a sum read its addends, which are said to be whole.
void DeclareWhole(StageGraph& group) {
  const graph::Exchange sum = FirstOf(group, ExchangeForm::kSum);
  ReplaceInputs(group, sum.to, sum.from);
  group.sharded.shardings[static_cast<size_t>(sum.from)] = {};
  std::erase_if(group.sharded.order, [&](const graph::Step& step) {
    return step.exchange >= 0 &&
           group.sharded.exchanges[static_cast<size_t>(step.exchange)].from == sum.from;
  });
}

/// Has the first member do all of the work of a node that every member did.
void LeaveToOne(StageGraph& group) {
  for (const graph::Step& step : group.sharded.order) {
    if (step.node >= 0) {
      graph::Division& division = group.sharded.divisions[static_cast<size_t>(step.node)];
      if (division.shares.empty()) {
        division.shares = {{0, 1}, {}};
        return;
      }
    }
  }
}

/// Has both members of an embedding that is cut by rows add a row's vector.
void AddTwice(StageGraph& group) {
  for (size_t i = 0; i < group.sharded.graph.nodes.size(); ++i) {
    const graph::Node& node = group.sharded.graph.nodes[i];
    if (node.op->name() == "embedding") {
      graph::Division& division = group.sharded.divisions[i];
      division.shares[1].begin -= 1;
      group.sharded.shardings[static_cast<size_t>(node.inputs[1])].held = division.shares;
    }
  }
}

/// Lets the first reader of what an exchange of this form makes read its source instead.
void ReadSource(StageGraph& group, ExchangeForm form, size_t number = 0) {
  std::vector<graph::Exchange> found;
  std::ranges::copy_if(group.sharded.exchanges, std::back_inserter(found),
                       [&](const graph::Exchange& e) { return e.form == form; });
  ReplaceInputs(group, found.at(number).to, found.at(number).from);
}

INSTANTIATE_TEST_SUITE_P(
    Groups,
    StageFaultTest,
    ::testing::Values(
        StageFault{"PartialReadAsWhole", "its rule does not read and write what members have",
                   GroupModel::kTensorParallel,
                   [](StageGraph& g) { ReadSource(g, ExchangeForm::kSum); }},
        StageFault{"CutReadAsWhole", "its rule does not read and write what members have",
                   GroupModel::kSequence,
                   [](StageGraph& g) { ReadSource(g, ExchangeForm::kGather); }},
        StageFault{"KeyGradientUnsummed", "its rule does not read and write what members have",
                   GroupModel::kSharedKeys,
                   [](StageGraph& g) {
                     size_t scatters = 0;
                     for (const graph::Exchange& e : g.sharded.exchanges) {
                       scatters += e.form == ExchangeForm::kScatter ? 1 : 0;
                     }
                     // Those of the first layer, which the stage holds, come last.
                     ReadSource(g, ExchangeForm::kScatter, scatters - 1);
                   }},
        StageFault{"BiasInTwoPartials", "linear has no such rule", GroupModel::kBias,
                   [](StageGraph& g) {
                     for (size_t i = 0; i < g.sharded.graph.nodes.size(); ++i) {
                       graph::Node& node = g.sharded.graph.nodes[i];
                       if (node.op->name() != "add_bias") {
                         continue;
                       }
                       for (graph::Node& linear : g.sharded.graph.nodes) {
                         if (linear.op->name() == "linear" && linear.inputs.size() == 2 &&
                             linear.segment == node.segment) {
                           linear.inputs.push_back(node.inputs[1]);
                           return;
                         }
                       }
                     }
                   }},
        StageFault{"WrongFirst", "has no such rule", GroupModel::kSharedKeys,
                   [](StageGraph& g) {
                     for (graph::ShardingRule& rule : g.sharded.rules) {
                       if (!rule.first.empty()) {
                         rule.first.clear();
                         return;
                       }
                     }
                   }},
        StageFault{"UnitTwice", "its rule does not read and write what members have",
                   GroupModel::kTensorParallel,
                   [](StageGraph& g) {
                     for (graph::Division& division : g.sharded.divisions) {
                       if (!division.shares.empty()) {
                         division.shares[0].end += 1;
                       }
                     }
                   }},
        StageFault{"CopyCountedTwice", "2 of members' parts of", GroupModel::kTensorParallel,
                   [](StageGraph& g) {
                     for (auto& [tensor, list] : g.contributions) {
                       if (g.sharded.shardings[static_cast<size_t>(tensor)].kind ==
                           graph::Placement::Kind::kReplicate) {
                         list.front().members = {0, 1};
                         return;
                       }
                     }
                   }},
        StageFault{"AddendsUncounted", "1 of members' parts of", GroupModel::kSequence,
                   [](StageGraph& g) {
                     for (auto& [tensor, list] : g.contributions) {
                       if (g.sharded.shardings[static_cast<size_t>(tensor)].partial()) {
                         list.front().members = {0};
                         return;
                       }
                     }
                   }},
        StageFault{"GradientUncounted", "is not counted once", GroupModel::kTensorParallel,
                   [](StageGraph& g) { g.contributions.erase(g.contributions.begin()); }},
        StageFault{"PartialBoundary", "leaves the group, or comes to it, but is partial",
                   GroupModel::kTensorParallel,
                   [](StageGraph& g) {
                     auto& [id, part] = *g.sharded.edges.begin();
                     for (size_t i = 0; i < g.sharded.shardings.size(); ++i) {
                       const auto other = static_cast<graph::TensorId>(i);
                       if (g.sharded.shardings[i].partial() &&
                           g.sharded.graph.tensor(other).type == g.sharded.graph.tensor(id).type) {
                         part = other;
                         return;
                       }
                     }
                   }},
        StageFault{"EdgeTwice", "is cut and not in parts", GroupModel::kTensorParallel,
                   [](StageGraph& g) {
                     graph::TensorId& part = g.sharded.edges.begin()->second;
                     graph::Sharding twice = g.sharded.shardings[static_cast<size_t>(part)];
                     twice.held[1].begin = twice.held[0].begin;
                     g.sharded.graph.tensors.push_back(g.sharded.graph.tensor(part));
                     g.sharded.shardings.push_back(std::move(twice));
                     part = static_cast<graph::TensorId>(g.sharded.shardings.size()) - 1;
                   }},
        StageFault{"PartialDeclaredWhole", "its rule does not read and write what members have",
                   GroupModel::kTensorParallel, DeclareWhole},
        StageFault{"WholeWithoutAShare", "a member without a share has the whole of it",
                   GroupModel::kTensorParallel, LeaveToOne},
        StageFault{"RowAddedTwice", "a unit is twice in its sum, or missing",
                   GroupModel::kVocabulary, AddTwice},
        StageFault{"ExchangeOfOtherExtents", "its extents are not those that members have",
                   GroupModel::kSequence,
                   [](StageGraph& g) { FirstOf(g, ExchangeForm::kGather).sent[1].begin += 1; }},
        StageFault{"ExchangeOfNoTensor", "names no tensor", GroupModel::kTensorParallel,
                   [](StageGraph& g) { FirstOf(g, ExchangeForm::kSum).from = -1; }},
        StageFault{"ExchangeToNoTensor", "names no tensor", GroupModel::kTensorParallel,
                   [](StageGraph& g) { FirstOf(g, ExchangeForm::kSum).to = 1 << 20; }},
        StageFault{"ExchangeOfTwoTypes", "they are of two types", GroupModel::kTensorParallel,
                   [](StageGraph& g) {
                     const graph::TensorId made = FirstOf(g, ExchangeForm::kSum).to;
                     g.sharded.graph.tensors[static_cast<size_t>(made)].type.dtype = DType::kF32;
                   }},
        StageFault{"LossPartial", "the loss is partial", GroupModel::kTensorParallel,
                   [](StageGraph& g) {
                     g.loss = std::ranges::find(g.sharded.exchanges, ExchangeForm::kSum,
                                                &graph::Exchange::form)
                                  ->from;
                   }}),
    [](const ::testing::TestParamInfo<StageFault>& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace heddle::program

// Which elements of parameters and state the workers of plans with groups have, against a count of
// elements one by one; what a worker holds is taken from its local graph.
#include "engine/program/pieces.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "engine/graph/sharding/complete.h"
#include "engine/graph/sharding/localise.h"
#include "engine/program/stages.h"
#include "engine/program/state.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"

namespace heddle::program {
namespace {

using graph::ParameterId;
using testing::RandomGraph;
using testing::RandomGroupPlan;

/// Numbers of a box's elements in their parameter, row by row.
std::set<int64_t> ElementsOf(const Box& box, const Shape& shape) {
  std::set<int64_t> elements;
  for (int64_t e = 0; e < ElementCount(box.extent); ++e) {
    int64_t rest = e;
    int64_t stride = 1;
    int64_t element = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      element += (box.offset[d] + rest % box.extent[d]) * stride;
      rest /= box.extent[d];
      stride *= shape[d];
    }
    elements.insert(element);
  }
  return elements;
}

using Elements = std::map<ParameterId, std::set<int64_t>>;

/// By rank: the elements of parameters that the nodes of its stage read.
std::vector<Elements> ElementsByRank(const graph::Graph& graph, const Plan& plan) {
  std::vector<Elements> held(plan.workers.size());
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      const graph::Layout layout =
          stage.layout < 0 ? graph::Layout{} : plan.layouts[static_cast<size_t>(stage.layout)];
      const auto sharded = graph::Complete(graph, layout);
      EXPECT_TRUE(sharded.ok()) << sharded.status().ToString();
      for (size_t position = 0; position < stage.group.size(); ++position) {
        const graph::LocalGraph local = graph::Localise(*sharded, static_cast<int>(position));
        for (const graph::Node& node : graph.nodes) {
          if (node.segment < stage.first_segment || node.segment >= stage.last_segment) {
            continue;
          }
          for (const graph::TensorId input : node.inputs) {
            const graph::Tensor& tensor = graph.tensor(input);
            const auto& box = local.boxes[static_cast<size_t>(input)];
            if (tensor.kind == graph::TensorKind::kParameter && box.has_value()) {
              held[static_cast<size_t>(stage.group[position])][tensor.parameter] =
                  ElementsOf(*box, tensor.type.shape);
            }
          }
        }
      }
    }
  }
  return held;
}

TEST(PiecesTest, PiecesTileParametersAndNameTheirHolders) {
  for (const uint64_t seed : testing::TestSeeds(40)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, DType::kF32);
    const Plan plan = RandomGroupPlan(seed, graph);
    const std::vector<Elements> held = ElementsByRank(graph, plan);
    const std::vector<std::vector<int>> segments = ParameterSegments(graph);
    const std::vector<std::vector<int>> holders = ParameterHolders(graph, plan);
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      const auto id = static_cast<ParameterId>(p);
      const Shape& shape = graph.parameter(id).shape;
      std::set<int64_t> seen;
      for (const HeldPiece& piece : PiecesOf(graph, plan, id, segments[p])) {
        for (const int64_t element : ElementsOf(piece.box, shape)) {
          EXPECT_TRUE(seen.insert(element).second);
          std::vector<int> having;
          for (size_t rank = 0; rank < held.size(); ++rank) {
            const auto found = held[rank].find(id);
            if (found != held[rank].end() && found->second.contains(element)) {
              having.push_back(static_cast<int>(rank));
            }
          }
          ASSERT_EQ(piece.holders, having);
        }
      }
      EXPECT_EQ(std::ssize(seen), ElementCount(shape));
      for (int rank = 0; rank < static_cast<int>(held.size()); ++rank) {
        EXPECT_EQ(std::ranges::count(holders[p], rank),
                  held[static_cast<size_t>(rank)].contains(id) ? 1 : 0);
      }
    }
  }
}

TEST(PiecesTest, EveryElementOfTheStateIsWrittenOnceByAHolder) {
  for (const uint64_t seed : testing::TestSeeds(40)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, DType::kF32);
    const Plan plan = RandomGroupPlan(seed, graph);
    const std::vector<Elements> held = ElementsByRank(graph, plan);
    std::map<std::pair<ParameterId, StateRole>, std::set<int64_t>> written;
    const StateLayout owned = OwnedLayout(graph, plan);
    for (size_t rank = 0; rank < owned.size(); ++rank) {
      for (const StateBox& box : owned[rank]) {
        for (const int64_t element : ElementsOf(box.box, graph.parameter(box.parameter).shape)) {
          EXPECT_TRUE(held[rank].at(box.parameter).contains(element));
          EXPECT_TRUE((written[{box.parameter, box.role}].insert(element).second));
        }
      }
    }
    EXPECT_EQ(written.size(), graph.parameters.size() * kStateRoles.size());
    for (const auto& [key, elements] : written) {
      EXPECT_EQ(std::ssize(elements), ElementCount(graph.parameter(key.first).shape));
    }
  }
}

// From the groups of one plan to those of another: all that a worker lacks is sent to it once, by
// one who has it, and nothing else.
TEST(PiecesTest, StateMovesBetweenPlansByWhatTheirBoxesDiffer) {
  for (const uint64_t seed : testing::TestSeeds(40)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, DType::kF32);
    const Plan before = RandomGroupPlan(seed, graph);
    const Plan after = RandomGroupPlan(seed + 1000, graph);
    const std::vector<Elements> had = ElementsByRank(graph, before);
    const std::vector<Elements> wants = ElementsByRank(graph, after);
    std::map<std::string, const Elements*> has;
    std::vector<HeldState> held;
    const StateLayout layout = LayoutOf(graph, before);
    for (size_t rank = 0; rank < layout.size(); ++rank) {
      has[before.workers[rank]] = &had[rank];
      held.push_back({.worker = before.workers[rank], .boxes = layout[rank]});
    }
    std::map<std::string, std::map<std::pair<ParameterId, StateRole>, std::set<int64_t>>> came;
    for (const Transfer& move : PlanTransfers(graph, held, after)) {
      ASSERT_NE(move.source, "");
      for (const int64_t element : ElementsOf(move.box, graph.parameter(move.parameter).shape)) {
        EXPECT_TRUE(has.at(move.source)->at(move.parameter).contains(element));
        EXPECT_TRUE((came[move.target][{move.parameter, move.role}].insert(element).second));
      }
    }
    for (size_t rank = 0; rank < wants.size(); ++rank) {
      const std::string& worker = after.workers[rank];
      for (const auto& [parameter, elements] : wants[rank]) {
        std::set<int64_t> lacks = elements;
        if (has.contains(worker) && has.at(worker)->contains(parameter)) {
          for (const int64_t element : has.at(worker)->at(parameter)) {
            lacks.erase(element);
          }
        }
        for (const StateRole role : kStateRoles) {
          EXPECT_EQ((came[worker][{parameter, role}]), lacks);
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::program

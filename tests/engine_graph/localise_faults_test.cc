// Faults that are planted into exchanges and local graphs are found: the members refuse to go on, or
// hold other values than one device.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "tests/support/graph/groups.h"
#include "tests/support/seed.h"

namespace heddle::graph {
namespace {

using heddle::testing::Group;
using heddle::testing::GroupCase;
using heddle::testing::GroupCases;
using heddle::testing::GroupOf;
using heddle::testing::LayoutOf;
using heddle::testing::SmallTrainingGraph;
using heddle::testing::TestSeed;
using heddle::testing::Violation;

/// A group in which nearly everything is cut: covers, vocabulary, sequence or biases.
struct Subject {
  Graph graph;
  Group group;
};

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  for (GroupCase& one : GroupCases()) {
    if (one.name == "cover unevenly" || one.name == "sequence unevenly" ||
        one.name == "gpt2 tied" || one.name == "gpt2 sequence" || one.name == "one key") {
      one.config.num_hidden_layers = 1;
      Graph graph = SmallTrainingGraph(one.config);
      Group group = GroupOf(graph, LayoutOf(graph, one.config, one.parallel));
      subjects.push_back({.graph = std::move(graph), .group = std::move(group)});
    }
  }
  return subjects;
}

/// Whether the fault shows on one of some inputs: tokens of other rows do not show a wrong first row.
bool Found(const Graph& graph, const Group& group) {
  constexpr uint64_t kInputs = 8;
  for (uint64_t i = 0; i < kInputs; ++i) {
    if (!Violation(graph, group, TestSeed() + i).empty()) {
      return true;
    }
  }
  return false;
}

using ExchangeFault = std::function<bool(Group& group, size_t exchange)>;

/// Expects that the fault is found wherever it can be planted, which it says by true.
void ExpectFound(const std::string& what, const ExchangeFault& fault) {
  int planted = 0;
  for (const Subject& subject : Subjects()) {
    for (size_t i = 0; i < subject.group.sharded.exchanges.size(); ++i) {
      Group group = subject.group;
      if (fault(group, i)) {
        ++planted;
        const Exchange& exchange = subject.group.sharded.exchanges[i];
        EXPECT_TRUE(Found(subject.graph, group))
            << what << ": " << subject.group.sharded.graph.tensor(exchange.to).name;
      }
    }
  }
  EXPECT_GT(planted, 0) << what;
}

auto StepOf(LocalGraph& local, size_t exchange) {
  return std::ranges::find(local.order, static_cast<int>(exchange), &Step::exchange);
}

/// The exchange in every member's list becomes what `change` makes of it.
bool Change(Group& group, size_t exchange, const std::function<void(Exchange&)>& change) {
  for (LocalGraph& local : group.members) {
    change(local.exchanges[exchange]);
  }
  return true;
}

Range& FirstOf(std::vector<Range>& ranges) {
  return *std::ranges::find(ranges, false, &Range::empty);
}

TEST(LocaliseFaultsTest, ExchangesThatAreMissingOrRepeatedAreFound) {
  ExpectFound("dropped", [](Group& group, size_t i) {
    for (LocalGraph& local : group.members) {
      local.order.erase(StepOf(local, i));
    }
    return true;
  });
  ExpectFound("dropped by one", [](Group& group, size_t i) {
    group.members[1].order.erase(StepOf(group.members[1], i));
    return true;
  });
  ExpectFound("doubled", [](Group& group, size_t i) {
    for (LocalGraph& local : group.members) {
      const auto step = StepOf(local, i);
      local.order.insert(step, *step);
    }
    return true;
  });
}

TEST(LocaliseFaultsTest, ExchangesOfAnotherFormOrPlaceAreFound) {
  ExpectFound("the largest for the sum", [](Group& group, size_t i) {
    return group.sharded.exchanges[i].form == ExchangeForm::kSum &&
           Change(group, i, [](Exchange& e) { e.form = ExchangeForm::kMax; });
  });
  ExpectFound("the sum for the largest", [](Group& group, size_t i) {
    return group.sharded.exchanges[i].form == ExchangeForm::kMax &&
           Change(group, i, [](Exchange& e) { e.form = ExchangeForm::kSum; });
  });
  ExpectFound("addends for their sum", [](Group& group, size_t i) {
    return group.sharded.exchanges[i].form == ExchangeForm::kScatter &&
           Change(group, i, [](Exchange& e) { e.form = ExchangeForm::kSlice; });
  });
  ExpectFound("a sum for addends", [](Group& group, size_t i) {
    return group.sharded.exchanges[i].form == ExchangeForm::kFill &&
           Change(group, i, [](Exchange& e) { e.form = ExchangeForm::kSum; });
  });
  ExpectFound("another dimension", [](Group& group, size_t i) {
    return Change(group, i, [](Exchange& e) { e.dim = e.dim == 1 ? 0 : 1; });
  });
  ExpectFound("one row more is sent", [](Group& group, size_t i) {
    return Change(group, i, [](Exchange& e) { ++FirstOf(e.sent).end; });
  });
  ExpectFound("one row less is received", [](Group& group, size_t i) {
    return Change(group, i, [](Exchange& e) { --FirstOf(e.received).end; });
  });
  ExpectFound("another member has no part", [](Group& group, size_t i) {
    return Change(group, i, [](Exchange& e) { FirstOf(e.sent) = {}; });
  });
}

/// Plants a fault into each node of each member in turn; see ExpectFound.
void ExpectFoundInNodes(const std::string& what,
                        const std::function<bool(LocalGraph& local, Node& node)>& fault) {
  int planted = 0;
  for (const Subject& subject : Subjects()) {
    for (size_t m = 0; m < subject.group.members.size(); ++m) {
      for (const Step& step : subject.group.members[m].order) {
        if (step.node < 0) {
          continue;
        }
        Group group = subject.group;
        LocalGraph& local = group.members[m];
        Node& node = local.graph.nodes[static_cast<size_t>(step.node)];
        if (fault(local, node)) {
          ++planted;
          EXPECT_TRUE(Found(subject.graph, group))
              << what << ": member " << m << ", " << local.graph.tensor(node.outputs[0]).name;
        }
      }
    }
  }
  EXPECT_GT(planted, 0) << what;
}

/// A share of one key/value head need not know where its query heads stand in the group.
bool Matters(const Node& node, const std::string& name) {
  return node.attributes.FindInt(name).has_value() &&
         (name != "first_head" || node.attributes.Int("kv_heads") > 1);
}

TEST(LocaliseFaultsTest, AWrongFirstElementIsFound) {
  for (const std::string name : {"first_row", "first_head", "first_position"}) {
    ExpectFoundInNodes(name + " 0", [&](LocalGraph& /*local*/, Node& node) {
      const bool later = Matters(node, name) && node.attributes.Int(name) > 0;
      node.attributes.Set(name, int64_t{0});
      return later;
    });
    ExpectFoundInNodes(name + " one more", [&](LocalGraph& /*local*/, Node& node) {
      const bool matters = Matters(node, name);
      node.attributes.Set(name, node.attributes.FindInt(name).value_or(0) + 1);
      return matters;
    });
  }
}

// Added by a member before the sum, it is in the sum twice.
TEST(LocaliseFaultsTest, ABiasInAPartialProductIsFound) {
  ExpectFoundInNodes("bias", [](LocalGraph& local, Node& node) {
    const std::string& name = local.graph.tensor(node.outputs[0]).name;
    if (!name.ends_with(".linear")) {
      return false;
    }
    const std::string bias = name.substr(0, name.size() - 6) + "bias";
    for (const Parameter& parameter : local.graph.parameters) {
      if (parameter.name == bias) {
        node.inputs.push_back(parameter.compute);
      }
    }
    return node.inputs.size() == 3;
  });
}

// What is whole at every member is no addend.
TEST(LocaliseFaultsTest, ACopyThatCountsTwiceIsFound) {
  int planted = 0;
  for (const Subject& subject : Subjects()) {
    for (const Parameter& parameter : subject.graph.parameters) {
      Group group = subject.group;
      Sharding& gradient =
          group.sharded.shardings[static_cast<size_t>(parameter.gradients.front())];
      if (gradient.kind == Placement::Kind::kReplicate) {
        gradient.kind = Placement::Kind::kPartial;
        ++planted;
        EXPECT_TRUE(Found(subject.graph, group)) << parameter.name;
      }
    }
  }
  EXPECT_GT(planted, 0);
  // A key/value head that two members read: both would compute its gradient.
  ExpectFound("a copy of a sum", [](Group& group, size_t i) {
    return group.sharded.exchanges[i].form == ExchangeForm::kScatter &&
           Change(group, i, [](Exchange& e) { e.received = e.sent; });
  });
}

}  // namespace
}  // namespace heddle::graph

// Random graphs under random plans. The seed of a failure is printed and replays it.
#include <algorithm>
#include <bit>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/random.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "engine/program/state.h"
#include "engine/program/verify/verify.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::program {
namespace {

using testing::RandomGraph;
using testing::RandomPlan;
using testing::TestSeeds;

/// Pairs of a graph and a plan.
const int kPairs = testing::Scaled(40, 80, 320);

struct Pair {
  graph::Graph graph;
  Plan plan;
};

Pair RandomPair(uint64_t seed) {
  Pair pair{.graph = RandomGraph(seed, seed % 2 == 0 ? DType::kF32 : DType::kBF16), .plan = {}};
  pair.plan = RandomPlan(seed, static_cast<int>(pair.graph.segments.size()));
  return pair;
}

TEST(LowerPropertyTest, EveryPlanOfEveryGraphVerifies) {
  for (const uint64_t seed : TestSeeds(kPairs)) {
    HEDDLE_TRACE_SEED(seed);
    Pair pair = RandomPair(seed);
    for (const Determinism determinism : {Determinism::kExact, Determinism::kRelaxed}) {
      pair.plan.determinism = determinism;
      const Result<std::vector<Program>> programs = LowerAll(pair.graph, pair.plan);
      ASSERT_TRUE(programs.ok()) << programs.status().ToString();
      const Status status = Verify(pair.graph, pair.plan, *programs);
      ASSERT_TRUE(status.ok()) << status.ToString() << "\n" << Describe(pair.plan, pair.graph);
    }
  }
}

TEST(LowerPropertyTest, LowerEqualsLowerAll) {
  for (const uint64_t seed : TestSeeds(20)) {
    HEDDLE_TRACE_SEED(seed);
    const Pair pair = RandomPair(seed);
    const Result<std::vector<Program>> programs = LowerAll(pair.graph, pair.plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    for (size_t rank = 0; rank < programs->size(); ++rank) {
      const Result<Program> program = Lower(pair.graph, pair.plan, static_cast<int>(rank));
      ASSERT_TRUE(program.ok()) << program.status().ToString();
      EXPECT_EQ(ToString(*program, pair.graph), ToString((*programs)[rank], pair.graph));
    }
  }
}

// What plans of single workers are lowered to does not change: workers of one job compare hashes, and
// the bits of a step follow from the Program.
TEST(LowerPropertyTest, ProgramsOfSingleWorkersAreThoseThatTheyWere) {
  uint64_t hash = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Pair pair = RandomPair(seed);
    pair.plan.determinism = seed % 4 < 2 ? Determinism::kExact : Determinism::kRelaxed;
    const Result<std::vector<Program>> programs = LowerAll(pair.graph, pair.plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    for (const Program& program : *programs) {
      hash = Hash64(ToString(program, pair.graph), hash ^ ProgramHash(program, pair.graph));
    }
  }
  EXPECT_EQ(hash, uint64_t{12941793939357623375U});
}

// The additions of a gradient as text, "((0+1)+2)" by leaf number, from running the programs; and
// from the definition of the reduction tree.
class Additions {
 public:
  Additions(const Pair& pair, const std::vector<Program>& programs) : pair_(pair) {
    for (const Program& program : programs) {
      Run(program);
    }
  }

  /// What `rank` applies to `parameter`.
  std::string Applied(int rank, graph::ParameterId parameter) const {
    const std::string& text = updates_.at({rank, parameter});
    return text == "reduced" ? Reduced(parameter) : text;
  }
  bool Applies(int rank, graph::ParameterId parameter) const {
    return updates_.count({rank, parameter}) > 0;
  }

  static std::string Definition(int64_t first, int64_t last, int64_t stride, int64_t microbatches) {
    if (last - first == 1) {
      return first % stride < microbatches ? std::to_string(first) : "";
    }
    const int64_t middle = first + (last - first) / 2;
    const std::string left = Definition(first, middle, stride, microbatches);
    const std::string right = Definition(middle, last, stride, microbatches);
    return left.empty() || right.empty() ? left + right : "(" + left + "+" + right + ")";
  }

 private:
  void Run(const Program& program) {
    const auto stride =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(pair_.plan.microbatches())));
    std::map<SlotId, std::string> values;
    for (const Instruction& instruction : program.instructions) {
      if (instruction.code == Code::kRun) {
        for (const SlotId slot : instruction.outputs) {
          const graph::Tensor& tensor =
              pair_.graph.tensor(program.slots[static_cast<size_t>(slot)].tensor);
          if (tensor.kind == graph::TensorKind::kWeightGradient) {
            values[slot] = std::to_string(tensor.use * stride + instruction.microbatch);
          }
        }
      } else if (instruction.code == Code::kFold) {
        std::string& left = values.at(instruction.inputs[0]);
        left = "(" + left + "+" + values.at(instruction.inputs[1]) + ")";
      } else if (instruction.code == Code::kReduce) {
        values[instruction.outputs[0]] = "reduced";
        const size_t own = static_cast<size_t>(
            std::find(instruction.group.begin(), instruction.group.end(), program.rank) -
            instruction.group.begin());
        for (size_t i = 0; i < instruction.inputs.size(); ++i) {
          const TreeNode node = instruction.contributions.at(own).at(i);
          reduced_[instruction.parameter][node.first()] = {node, values.at(instruction.inputs[i])};
        }
      } else if (instruction.code == Code::kUpdate) {
        updates_[{program.rank, instruction.parameter}] = values.at(instruction.inputs[0]);
      }
    }
  }

  std::string Reduced(graph::ParameterId parameter) const {
    std::vector<TreeNode> nodes;
    std::vector<std::string> texts;
    for (const auto& [first, entry] : reduced_.at(parameter)) {
      nodes.push_back(entry.first);
      texts.push_back(entry.second);
    }
    for (const Fold& fold : FoldOrder(nodes)) {
      std::string& left = texts[static_cast<size_t>(fold.left)];
      left = "(" + left + "+" + texts[static_cast<size_t>(fold.right)] + ")";
    }
    return texts.front();
  }

  const Pair& pair_;
  std::map<graph::ParameterId, std::map<int64_t, std::pair<TreeNode, std::string>>> reduced_;
  std::map<std::pair<int, graph::ParameterId>, std::string> updates_;
};

TEST(LowerPropertyTest, ExactAdditionsDoNotDependOnThePlan) {
  for (const uint64_t seed : TestSeeds(kPairs)) {
    HEDDLE_TRACE_SEED(seed);
    const Pair pair = RandomPair(seed);
    const Result<std::vector<Program>> programs = LowerAll(pair.graph, pair.plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    const Additions additions(pair, *programs);
    const int64_t microbatches = pair.plan.microbatches();
    const auto stride = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(microbatches)));
    for (size_t p = 0; p < pair.graph.parameters.size(); ++p) {
      const auto id = static_cast<graph::ParameterId>(p);
      const auto uses = static_cast<int64_t>(pair.graph.parameter(id).gradients.size());
      const auto leaves = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(uses * stride)));
      const std::string expected = Additions::Definition(0, leaves, stride, microbatches);
      for (const Program& program : *programs) {
        if (additions.Applies(program.rank, id)) {
          ASSERT_EQ(additions.Applied(program.rank, id), expected)
              << pair.graph.parameter(id).name << "\n"
              << Describe(pair.plan, pair.graph);
        }
      }
    }
  }
}

// Replays the definition: at every instruction, all slots written and not freed yet; what a
// reduction reads until the vote.
TEST(MemoryPropertyTest, PeakIsTheLargestLiveSum) {
  for (const uint64_t seed : TestSeeds(60)) {
    HEDDLE_TRACE_SEED(seed);
    const Pair pair = RandomPair(seed);
    const Result<std::vector<Program>> programs = LowerAll(pair.graph, pair.plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    for (const Program& program : *programs) {
      struct Life {
        size_t first = 0;
        size_t last = 0;
      };
      std::vector<Life> lives(program.slots.size());
      std::vector<bool> reduced(program.slots.size(), false);
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        for (const SlotId slot : instruction.outputs) {
          lives[static_cast<size_t>(slot)].first = i;
        }
        for (const SlotId slot : instruction.inputs) {
          if (slot >= 0) {
            const auto index = static_cast<size_t>(slot);
            reduced[index] = reduced[index] || instruction.code == Code::kReduce;
            lives[index].last = reduced[index] ? program.vote_index - 1 : i - 1;
          }
        }
      }
      int64_t expected = 0;
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        int64_t live = 0;
        for (size_t slot = 0; slot < lives.size(); ++slot) {
          if (lives[slot].first <= i && i <= lives[slot].last) {
            live += program.slots[slot].type.bytes();
          }
        }
        expected = std::max(expected, live);
      }
      EXPECT_EQ(PeakSlotBytes(program), expected) << "rank " << program.rank;
    }
  }
}

// Cuts some of a worker's boxes in two and drops some pieces, as a checkpoint of another layout
// would leave.
std::vector<StateBox> Damage(const std::vector<StateBox>& boxes, Random& random) {
  std::vector<StateBox> out;
  for (const StateBox& whole : boxes) {
    const size_t dim = random.Below(whole.box.extent.size());
    if (random.Below(3) == 0 && whole.box.extent[dim] > 1) {
      const int64_t cut = random.Between(1, whole.box.extent[dim] - 1);
      StateBox low = whole;
      StateBox high = whole;
      low.box.extent[dim] = cut;
      high.box.offset[dim] += cut;
      high.box.extent[dim] -= cut;
      out.push_back(low);
      if (random.Below(2) == 0) {
        out.push_back(high);
      }
    } else if (random.Below(5) != 0) {
      out.push_back(whole);
    }
  }
  return out;
}

int64_t Elements(const Box& box) {
  return ElementCount(box.extent);
}

TEST(ReshardPropertyTest, TransfersCoverExactlyWhatIsMissing) {
  for (const uint64_t seed : TestSeeds(kPairs)) {
    HEDDLE_TRACE_SEED(seed);
    const Pair pair = RandomPair(seed);
    const Plan next = RandomPlan(seed + 1, static_cast<int>(pair.graph.segments.size()));
    Random random(seed);
    std::vector<HeldState> held;
    const StateLayout layout = LayoutOf(pair.graph, pair.plan);
    for (size_t rank = 0; rank < layout.size(); ++rank) {
      if (random.Below(3) != 0) {
        held.push_back({.worker = pair.plan.workers[rank], .boxes = Damage(layout[rank], random)});
      }
    }
    const std::vector<Transfer> transfers = PlanTransfers(pair.graph, held, next);
    const auto held_by = [&](std::string_view worker) {
      const auto found = std::find_if(
          held.begin(), held.end(), [&](const HeldState& state) { return state.worker == worker; });
      return found == held.end() ? std::vector<StateBox>() : found->boxes;
    };
    const StateLayout wanted = LayoutOf(pair.graph, next);
    int64_t moved = 0;
    for (size_t rank = 0; rank < wanted.size(); ++rank) {
      const std::string& worker = next.workers[rank];
      for (const StateBox& need : wanted[rank]) {
        // Own boxes and transfers are disjoint and fill the box.
        std::vector<Box> parts;
        for (const StateBox& own : held_by(worker)) {
          if (own.parameter == need.parameter && own.role == need.role) {
            parts.push_back(own.box);
          }
        }
        for (const Transfer& transfer : transfers) {
          if (transfer.target == worker && transfer.parameter == need.parameter &&
              transfer.role == need.role) {
            parts.push_back(transfer.box);
            moved += Elements(transfer.box);
          }
        }
        int64_t covered = 0;
        for (size_t i = 0; i < parts.size(); ++i) {
          EXPECT_TRUE(Contains(need.box, parts[i]));
          covered += Elements(parts[i]);
          for (size_t j = 0; j < i; ++j) {
            EXPECT_FALSE(Intersect(parts[i], parts[j]).has_value());
          }
        }
        EXPECT_EQ(covered, Elements(need.box));
      }
    }
    EXPECT_EQ(TransferBytes(pair.graph, transfers), moved * SizeOf(pair.graph.master_dtype()));
    for (const Transfer& transfer : transfers) {
      // The source holds all of it, or nobody holds any of it.
      bool source_holds = false;
      bool anyone_holds = false;
      for (const HeldState& state : held) {
        for (const StateBox& box : state.boxes) {
          if (box.parameter == transfer.parameter && box.role == transfer.role) {
            anyone_holds = anyone_holds || Intersect(box.box, transfer.box).has_value();
            source_holds = source_holds ||
                           (state.worker == transfer.source && Contains(box.box, transfer.box));
          }
        }
      }
      EXPECT_EQ(source_holds, !transfer.source.empty());
      EXPECT_EQ(anyone_holds, !transfer.source.empty());
      EXPECT_NE(transfer.source, transfer.target);
    }
  }
}

}  // namespace
}  // namespace heddle::program

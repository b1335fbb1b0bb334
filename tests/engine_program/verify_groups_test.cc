// Planted faults in Programs of groups: each goes red in the static check, for the right reason.
#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"
#include "tests/engine_program/example_programs.h"
#include "tests/engine_program/group_examples.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/seed.h"

namespace heddle::program {
namespace {

using graph::ExchangeForm;
using testing::At;
using testing::Find;
using testing::GroupExample;
using testing::GroupExampleOf;
using testing::GroupModel;
using ::testing::HasSubstr;
using testing::Insert;
using testing::Programs;
using testing::Remove;

/// The first exchange of this form.
graph::Exchange& ExchangeOf(std::vector<graph::Exchange>& exchanges, ExchangeForm form) {
  const auto found = std::ranges::find(exchanges, form, &graph::Exchange::form);
  HEDDLE_CHECK(found != exchanges.end(), "no {}", FormName(form));
  return *found;
}

/// Changes an exchange alike for both members of the first stage.
void ChangeExchange(Programs& programs, const std::function<void(graph::Exchange&)>& change) {
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    change(programs[rank].exchanges.front());
  }
}

/// Makes a member exchange a parameter once more, when the others have ended.
void MakeAgain(Programs& programs) {
  Program& program = programs[1];
  for (const Instruction& one : program.instructions) {
    if (one.code == Code::kExchange && one.inputs == std::vector<SlotId>{-1}) {
      Instruction again = one;
      again.tag = ExchangeTag(program.exchanges[static_cast<size_t>(one.exchange)].to,
                              one.microbatch, /*again=*/true);
      again.outputs = {static_cast<SlotId>(program.slots.size())};
      const Slot slot = program.slots[static_cast<size_t>(one.outputs[0])];
      program.slots.push_back(slot);
      Insert(program, program.vote_index, again);
      return;
    }
  }
}

struct Fault {
  const char* name;
  const char* message;
  std::function<void(Programs&)> plant;
  GroupModel model = GroupModel::kTensorParallel;
};

class GroupFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(GroupFaultTest, IsFound) {
  const GroupExample example = GroupExampleOf(GetParam().model);
  Result<Programs> programs = LowerAll(example.graph, example.plan);
  ASSERT_TRUE(programs.ok()) << programs.status().ToString();
  ASSERT_EQ(Verify(example.graph, example.plan, *programs).message(), "");
  GetParam().plant(*programs);
  const Status status = Verify(example.graph, example.plan, *programs);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Exchanges,
    GroupFaultTest,
    ::testing::Values(
        Fault{"DroppedByOne", "awaits slot",
              [](Programs& p) { Remove(p[0], Find(p[0], Code::kExchange)); }},
        Fault{"DroppedByAll", "before it is written",
              [](Programs& p) {
                for (const size_t rank : {size_t{0}, size_t{1}}) {
                  Remove(p[rank], Find(p[rank], Code::kExchange));
                  Remove(p[rank], Find(p[rank], Code::kAwait));
                }
              }},
        Fault{"Doubled", "once too often",
              [](Programs& p) {
                const size_t exchange = Find(p[0], Code::kExchange);
                Insert(p[0], exchange, p[0].instructions[exchange]);
              }},
        Fault{"OfAnotherForm", "this form does not make the one of the other",
              [](Programs& p) {
                ChangeExchange(p, [](graph::Exchange& e) { e.form = ExchangeForm::kGather; });
              }},
        Fault{"OfAnotherGroup", "with others than its group",
              [](Programs& p) { std::ranges::reverse(At(p[0], Code::kExchange).group); }},
        Fault{"AlongAnotherDimension", "along dimension 1, expected 0",
              [](Programs& p) { ChangeExchange(p, [](graph::Exchange& e) { e.dim = 1; }); }},
        Fault{"OneMembersExchange", "other exchanges than the first member",
              [](Programs& p) { p[1].exchanges.front().dim = 1; }},
        Fault{"ExtentOffByOne", "its extents are not those that members have",
              [](Programs& p) {
                ChangeExchange(p, [](graph::Exchange& e) { e.received[1].end -= 1; });
              }},
        Fault{"CutOffByOne", "its extents are not those that members have",
              [](Programs& p) {
                for (const size_t rank : {size_t{0}, size_t{1}}) {
                  graph::Exchange& e = ExchangeOf(p[rank].exchanges, ExchangeForm::kScatter);
                  e.received[0].end += 1;
                  e.received[1].begin += 1;
                }
              },
              GroupModel::kSequence},
        Fault{"WholeValueSummed", "(whole) to",
              [](Programs& p) { ChangeExchange(p, [](graph::Exchange& e) { e.from = e.to; }); }},
        Fault{"ReducedInsteadOfSummed", "(partial) to",
              [](Programs& p) {
                ChangeExchange(p, [](graph::Exchange& e) { e.form = ExchangeForm::kMax; });
              }},
        Fault{"Swapped", "where other members of its group issue",
              [](Programs& p) {
                const size_t first = Find(p[1], Code::kExchange);
                const size_t second = Find(p[1], Code::kExchange, first + 1);
                std::swap(p[1].instructions[first], p[1].instructions[second]);
              }},
        Fault{"UnderAnotherTag", "which is another one's",
              [](Programs& p) { At(p[0], Code::kExchange).tag ^= uint64_t{1} << 60; }},
        Fault{"OfAnotherMicrobatch", "belongs to another pipeline",
              [](Programs& p) { At(p[0], Code::kExchange).microbatch = 1; }},
        Fault{"Unknown", "exchange 1000 does not exist",
              [](Programs& p) { At(p[0], Code::kExchange).exchange = 1000; }},
        Fault{"IntoAWrittenSlot", "writes slot",
              [](Programs& p) {
                Instruction& exchange = At(p[0], Code::kExchange);
                exchange.outputs = exchange.inputs;
              }},
        Fault{"OfAParameterInASlot", "does not exchange parameter embedding.position.weight",
              [](Programs& p) {
                for (Instruction& one : p[0].instructions) {
                  if (one.code == Code::kExchange && one.inputs == std::vector<SlotId>{-1}) {
                    one.inputs = At(p[0], Code::kRun).outputs;
                    return;
                  }
                }
              },
              GroupModel::kGatheredPositions},
        Fault{"NeverMade", "exchanges, expected",
              [](Programs& p) {
                for (const size_t rank : {size_t{0}, size_t{1}}) {
                  p[rank].exchanges.push_back(p[rank].exchanges.front());
                }
              }},
        Fault{"MadeAgainByOne", "unlike numbers of exchanges", MakeAgain,
              GroupModel::kGatheredPositions},
        Fault{"WaitedForByBoth", "waits for ever for an exchange",
              [](Programs& p) {
                const size_t receive = Find(p[1], Code::kRecv);
                const Instruction instruction = p[1].instructions[receive];
                Remove(p[1], receive);
                Insert(p[1], Find(p[1], Code::kExchange), instruction);
              }},
        Fault{"AwaitedWithAnother", "has 2 inputs and 0 outputs, expected 1 and 0",
              [](Programs& p) {
                std::vector<SlotId>& inputs = At(p[0], Code::kAwait).inputs;
                inputs.push_back(inputs.front());
              }},
        Fault{"WithoutItsPart", "has 0 inputs and 1 outputs, expected 1 and 1",
              [](Programs& p) { At(p[0], Code::kExchange).inputs.clear(); }}),
    [](const ::testing::TestParamInfo<Fault>& parameter) { return parameter.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Values,
    GroupFaultTest,
    ::testing::Values(Fault{"AwaitMissing", "before its exchange is awaited",
                            [](Programs& p) { Remove(p[0], Find(p[0], Code::kAwait)); }},
                      Fault{"AwaitOfNoSlot", "awaits slot -1, which is not in flight",
                            [](Programs& p) { At(p[0], Code::kAwait).inputs = {-1}; }},
                      Fault{"AwaitTooEarly", "which is not in flight",
                            [](Programs& p) {
                              const size_t await = Find(p[0], Code::kAwait);
                              const Instruction instruction = p[0].instructions[await];
                              Remove(p[0], await);
                              Insert(p[0], Find(p[0], Code::kExchange), instruction);
                            }},
                      Fault{"FreedInFlight", "free: reads slot",
                            [](Programs& p) {
                              const size_t exchange = Find(p[0], Code::kExchange);
                              Insert(p[0], exchange + 1,
                                     {.code = Code::kFree,
                                      .inputs = p[0].instructions[exchange].outputs});
                            }},
                      Fault{"PartialReadAsWhole", "does not hold",
                            [](Programs& p) {
                              const size_t exchange = Find(p[0], Code::kExchange);
                              const SlotId partial = p[0].instructions[exchange].inputs[0];
                              const SlotId whole = p[0].instructions[exchange].outputs[0];
                              std::vector<Instruction>& list = p[0].instructions;
                              // The partial value lives as long as the whole one.
                              std::erase_if(list, [&](const Instruction& one) {
                                return one.code == Code::kFree && one.inputs[0] == partial;
                              });
                              p[0].vote_index -= 1;
                              for (Instruction& one : list) {
                                if (one.code == Code::kRun) {
                                  std::ranges::replace(one.inputs, whole, partial);
                                }
                              }
                            }},
                      Fault{"PartialSent", "which does not leave its group",
                            [](Programs& p) {
                              const size_t send = Find(p[0], Code::kSend);
                              size_t exchange = 0;
                              for (size_t i = 0; i < send; ++i) {
                                exchange =
                                    p[0].instructions[i].code == Code::kExchange ? i : exchange;
                              }
                              const SlotId partial = p[0].instructions[exchange].inputs[0];
                              p[0].instructions[send].inputs[0] = partial;
                              for (size_t i = exchange; i < send; ++i) {
                                const Instruction one = p[0].instructions[i];
                                if (one.code == Code::kFree && one.inputs[0] == partial) {
                                  Remove(p[0], i);
                                  Insert(p[0], send, one);
                                  break;
                                }
                              }
                            }},
                      Fault{"RunTwice", "once too often",
                            [](Programs& p) {
                              const size_t run = Find(p[0], Code::kRun);
                              Insert(p[0], run + 1, p[0].instructions[run]);
                            }}),
    [](const ::testing::TestParamInfo<Fault>& parameter) { return parameter.param.name; });

/// The last reduction, to which this member contributes nothing.
size_t EmptyReduction(const Program& program) {
  for (size_t i = program.instructions.size(); i > 0; --i) {
    const Instruction& instruction = program.instructions[i - 1];
    if (instruction.code == Code::kReduce && instruction.inputs.empty()) {
      return i - 1;
    }
  }
  HEDDLE_CHECK(false, "all reductions have inputs");
  return 0;
}

/// Makes a member contribute a gradient that it has computed and freed before.
void ContributeCopy(Program& program) {
  const size_t reduce = EmptyReduction(program);
  const SlotId output = program.instructions[reduce].outputs[0];
  const graph::TensorId gradient = program.slots[static_cast<size_t>(output)].tensor;
  for (size_t i = 0; i < reduce; ++i) {
    const Instruction free = program.instructions[i];
    if (free.code == Code::kFree &&
        program.slots[static_cast<size_t>(free.inputs[0])].tensor == gradient) {
      program.instructions[reduce].inputs = free.inputs;
      Insert(program, reduce + 1, free);
      Remove(program, i);
      return;
    }
  }
  HEDDLE_CHECK(false, "it computes no copy before the reduction");
}

INSTANTIATE_TEST_SUITE_P(
    Gradients,
    GroupFaultTest,
    ::testing::Values(
        Fault{"CopyContributedTwice", "contributes a copy to parameter",
              [](Programs& p) { ContributeCopy(p[3]); }},
        Fault{"CopyAdded", "adds a copy that another member counts",
              [](Programs& p) {
                const Program& program = p[3];
                const SlotId output = program.instructions[EmptyReduction(program)].outputs[0];
                const graph::TensorId gradient = program.slots[static_cast<size_t>(output)].tensor;
                for (size_t i = 0; i < program.instructions.size(); ++i) {
                  const Instruction& free = program.instructions[i];
                  if (free.code == Code::kFree &&
                      program.slots[static_cast<size_t>(free.inputs[0])].tensor == gradient) {
                    const SlotId slot = free.inputs[0];
                    Insert(p[3], i, {.code = Code::kFold, .inputs = {slot, slot}});
                    return;
                  }
                }
              }},
        Fault{"CopyNotComputed", "does not run its share of node",
              [](Programs& p) {
                const SlotId output = p[3].instructions[EmptyReduction(p[3])].outputs[0];
                const graph::TensorId gradient = p[3].slots[static_cast<size_t>(output)].tensor;
                for (size_t i = p[3].instructions.size(); i > 0; --i) {
                  const Instruction& one = p[3].instructions[i - 1];
                  const std::vector<SlotId>& slots =
                      one.code == Code::kFree ? one.inputs : one.outputs;
                  if ((one.code == Code::kFree || one.code == Code::kRun) &&
                      slots.front() != output &&
                      p[3].slots[static_cast<size_t>(slots.front())].tensor == gradient) {
                    Remove(p[3], i - 1);
                  }
                }
              }},
        Fault{"AddendsMissing", "contributes 0 values, expected 1",
              [](Programs& p) { At(p[1], Code::kReduce).inputs.clear(); }, GroupModel::kSequence},
        Fault{"ReducedByOthers", "takes no part in the reduction",
              [](Programs& p) {
                std::vector<SlotId> sums;
                for (size_t i = 0; i < p[3].instructions.size();) {
                  const Instruction& one = p[3].instructions[i];
                  if (one.code == Code::kReduce) {
                    sums.push_back(one.outputs[0]);
                  }
                  const bool reads = (one.code == Code::kUpdate || one.code == Code::kFree) &&
                                     std::ranges::count(sums, one.inputs[0]) > 0;
                  one.code == Code::kReduce || reads ? Remove(p[3], i) : void(++i);
                }
              }},
        Fault{"BoxThatIsNotHeld", "which it does not hold",
              [](Programs& p) {
                // Of a parameter of which the other member has piece 1.
                for (Instruction& one : p[0].instructions) {
                  const Piece other{
                      .parameter = one.parameter, .index = 1, .box = p[1].pieces.front().box};
                  if (one.code == Code::kUpdate &&
                      std::ranges::any_of(p[1].pieces, [&](const Piece& piece) {
                        return piece.parameter == other.parameter && piece.index == other.index;
                      })) {
                    one.piece = 1;
                    return;
                  }
                }
              }},
        Fault{"OtherPieces", "other pieces of parameters",
              [](Programs& p) { p[0].pieces.back().box.extent[0] -= 1; }},
        Fault{"NormReportedTwice", "without owning it",
              [](Programs& p) {
                const Instruction& reduce = At(p[1], Code::kReduce);
                p[1].vote.norms.push_back(
                    {.parameter = reduce.parameter, .gradient = reduce.outputs[0]});
              }},
        Fault{"NormMissing", "nobody reports the norm",
              [](Programs& p) { p[1].vote.norms.pop_back(); }},
        Fault{"LossReportedTwice", "is reported twice",
              [](Programs& p) {
                // The loss of the second member, kept until the vote.
                for (size_t i = p[3].vote_index; i > 0; --i) {
                  const Instruction free = p[3].instructions[i - 1];
                  if (free.code == Code::kFree &&
                      p[3].slots[static_cast<size_t>(free.inputs[0])].type.dtype == DType::kF64 &&
                      p[3].slots[static_cast<size_t>(free.inputs[0])].type.shape.empty()) {
                    Remove(p[3], i - 1);
                    Insert(p[3], p[3].vote_index + 1, free);
                    p[3].vote.losses.push_back({.microbatch = 0, .slot = free.inputs[0]});
                    return;
                  }
                }
              }}),
    [](const ::testing::TestParamInfo<Fault>& parameter) { return parameter.param.name; });

// No instruction of any program is superfluous, and no operand arbitrary.
TEST(VerifyGroupsTest, EveryDroppedInstructionAndChangedInputIsFound) {
  for (const uint64_t seed : testing::TestSeeds(40)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = testing::RandomGraph(seed, DType::kF64);
    const auto [plan, programs] = testing::RandomGroupPrograms(graph, seed);
    Random random(seed);
    for (int i = 0; i < 8; ++i) {
      Programs broken = programs;
      Program& program = broken[random.Below(broken.size())];
      const size_t index = random.Below(program.instructions.size());
      Instruction& instruction = program.instructions[index];
      SCOPED_TRACE(fmt::format("rank {} instruction {}", program.rank, index));
      if (i % 2 == 0) {
        Remove(program, index);
      } else if (!instruction.inputs.empty()) {
        const auto other = static_cast<SlotId>(random.Below(program.slots.size()));
        if (instruction.inputs.front() == other) {
          continue;
        }
        instruction.inputs.front() = other;
      } else {
        continue;
      }
      EXPECT_FALSE(Verify(graph, plan, broken).ok());
    }
  }
}

}  // namespace
}  // namespace heddle::program

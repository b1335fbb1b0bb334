// What the verifier and the lowering refuse: one planted fault for each thing that they check, with
// the whole message, so that no check stands in for another.
#include <functional>

#include <gtest/gtest.h>

#include "engine/graph/operator.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"
#include "tests/engine_program/example_programs.h"

namespace heddle::program {
namespace {

using testing::At;
using testing::ChainGraph;
using testing::ExamplePlan;
using testing::Find;
using testing::Insert;
using testing::PipelineOfCuts;
using testing::PlanOf;
using testing::Programs;

std::string MessageOf(const graph::Graph& graph,
                      const Plan& plan,
                      const std::function<void(Programs&)>& plant) {
  Result<Programs> programs = LowerAll(graph, plan);
  EXPECT_TRUE(programs.ok()) << programs.status().ToString();
  EXPECT_TRUE(Verify(graph, plan, *programs).ok());
  plant(*programs);
  const Status status = Verify(graph, plan, *programs);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  return status.message();
}

struct Fault {
  std::string message;  ///< '#' stands for a number.
  std::function<void(Programs&)> plant;
};

std::string WithoutNumbers(const std::string& text) {
  std::string plain;
  for (const char letter : text) {
    const bool digit = letter >= '0' && letter <= '9';
    if (!digit || plain.empty() || plain.back() != '#') {
      plain += digit ? '#' : letter;
    }
  }
  return plain;
}

void ExpectFound(const std::vector<Fault>& faults) {
  const graph::Graph graph = ChainGraph(4, /*tied=*/true);
  for (size_t i = 0; i < faults.size(); ++i) {
    EXPECT_EQ(WithoutNumbers(MessageOf(graph, ExamplePlan(), faults[i].plant)),
              WithoutNumbers(faults[i].message))
        << i;
  }
}

TEST(RefusalsTest, HeadersVotesAndPeers) {
  ExpectFound({
      {"worker w0: the program is of another rank, generation or plan",
       [](Programs& p) { ++p[0].workers; }},
      {"worker w1: the program is of another rank, generation or plan",
       [](Programs& p) { p[1].determinism = Determinism::kRelaxed; }},
      {"worker w0: the program lists other parameters than the worker holds",
       [](Programs& p) { p[0].parameters.pop_back(); }},
      {"worker w3: instruction 1 is not the vote", [](Programs& p) { p[3].vote_index = 1; }},
      {"worker w3: instruction 7 is not the vote", [](Programs& p) { p[3].vote_index = 7; }},
      {"worker w3: instruction 1 is on the wrong side of the vote",
       [](Programs& p) { p[3].instructions.push_back({.code = Code::kVote}); }},
      {"worker w3: instruction 1 is on the wrong side of the vote",
       [](Programs& p) { p[3].instructions.push_back({.code = Code::kLoad, .outputs = {0}}); }},
      {"worker w3: instruction 0 is on the wrong side of the vote",
       [](Programs& p) { Insert(p[3], 0, {.code = Code::kUpdate, .inputs = {0}}); }},
      {"worker w0: the program's peers are not those that its instructions name",
       [](Programs& p) { p[0].peers.push_back(3); }},
      {"worker w3: worker 9 does not exist",
       [](Programs& p) {
         p[3].peers = {9};
         Insert(p[3], 0, {.code = Code::kSend, .inputs = {0}, .peer = 9});
       }},
      {"worker w3: worker 0 does not list it as a peer",
       [](Programs& p) {
         p[3].peers = {0};
         Insert(p[3], 0, {.code = Code::kSend, .inputs = {0}, .peer = 0});
       }},
  });
}

TEST(RefusalsTest, OperandsOfInstructions) {
  ExpectFound({
      {"worker w2, instruction 0: has 1 inputs and 1 outputs, expected 0 and 1",
       [](Programs& p) { At(p[2], Code::kLoad).inputs = {0}; }},
      {"worker w2, instruction 0: has 0 inputs and 2 outputs, expected 0 and 1",
       [](Programs& p) { At(p[2], Code::kLoad).outputs.push_back(1); }},
      {"worker w2, instruction 0: writes slot -1, which does not exist",
       [](Programs& p) { At(p[2], Code::kLoad).outputs = {-1}; }},
      {"worker w2, instruction 0: writes slot 99, which does not exist",
       [](Programs& p) {
         At(p[2], Code::kLoad).outputs = {static_cast<SlotId>(p[2].slots.size())};
       }},
      {"worker w2, instruction 0: loads slot 1, which is neither tokens nor targets",
       [](Programs& p) { At(p[2], Code::kLoad).outputs = {1}; }},
      {"worker w2, instruction 0: loads slot 0, which is neither tokens nor targets",
       [](Programs& p) { p[2].slots[0].tensor = -1; }},
      {"worker w2, instruction 0: microbatch 2 belongs to another pipeline",
       [](Programs& p) { At(p[2], Code::kLoad).microbatch = 2; }},
      {"worker w2, instruction 0: microbatch 5 belongs to another pipeline",
       [](Programs& p) { At(p[2], Code::kLoad).microbatch = 5; }},
      {"worker w3, instruction 0: microbatch 0 belongs to another pipeline",
       [](Programs& p) {
         Insert(p[3], 0, {.code = Code::kLoad, .microbatch = 0, .outputs = {0}});
       }},
      {"worker w2, instruction 1: node -1 does not exist",
       [](Programs& p) { At(p[2], Code::kRun).node = -1; }},
      {"worker w0, instruction 1: node 3 belongs to another stage",
       [](Programs& p) {
         // The head's linear layer, on the first stage: inputs and outputs are as many.
         At(p[0], Code::kRun).node = 3;
       }},
      {"worker w2, instruction 1: reads slot -1, which does not exist",
       [](Programs& p) { At(p[2], Code::kRun).inputs[0] = -1; }},
      {"worker w2, instruction 1: reads slot 99, which does not exist",
       [](Programs& p) {
         At(p[2], Code::kRun).inputs[0] = static_cast<SlotId>(p[2].slots.size());
       }},
      {"worker w2, instruction 9: slot 1 is not a gradient",
       [](Programs& p) {
         const size_t run = Find(p[2], Code::kRun);
         const SlotId out = p[2].instructions[run].outputs[0];
         Insert(p[2], run + 1, {.code = Code::kFold, .inputs = {out, out}});
       }},
      {"worker w0, instruction 9: has 1 inputs and 0 outputs, expected 2 and 0",
       [](Programs& p) { At(p[0], Code::kFold).inputs.pop_back(); }},
      {"worker w2, instruction 9: has 2 inputs and 0 outputs, expected 1 and 0",
       [](Programs& p) { At(p[2], Code::kFree).inputs.push_back(0); }},
      {"worker w2, instruction 9: has 0 inputs and 0 outputs, expected 1 and 0",
       [](Programs& p) { At(p[2], Code::kUpdate).inputs.clear(); }},
  });
}

TEST(RefusalsTest, Messages) {
  ExpectFound({
      {"worker w0, instruction 3: has 2 inputs and 0 outputs, expected 1 and 0",
       [](Programs& p) { At(p[0], Code::kSend).inputs.push_back(0); }},
      {"worker w1, instruction 0: has 1 inputs and 1 outputs, expected 0 and 1",
       [](Programs& p) { At(p[1], Code::kRecv).inputs = {0}; }},
      {"worker w0, instruction 3: worker 0 is not among the program's peers",
       [](Programs& p) { At(p[0], Code::kSend).peer = 0; }},
      {"worker w1, instruction 0: worker -1 is not among the program's peers",
       [](Programs& p) { At(p[1], Code::kRecv).peer = -1; }},
      {"worker w1, instruction 9: receives tag 0x100 of worker 0 twice",
       [](Programs& p) {
         const size_t receive = Find(p[1], Code::kRecv);
         Insert(p[1], receive, p[1].instructions[receive]);
       }},
      {"worker w1, instruction 0: tag 0x100 of worker 0 is not a tensor of microbatch 1",
       [](Programs& p) { At(p[1], Code::kRecv).microbatch = 1; }},
      {"worker w0: worker w1 never receives tag 0x1234",
       [](Programs& p) {
         Instruction more = At(p[0], Code::kSend);
         more.tag = 0x1234;
         Insert(p[0], Find(p[0], Code::kSend), more);
       }},
  });
}

TEST(RefusalsTest, Reductions) {
  ExpectFound({
      {"worker w0, instruction 9: parameter 3 does not exist",
       [](Programs& p) { At(p[0], Code::kReduce).parameter = 3; }},
      {"worker w0, instruction 9: parameter -1 does not exist",
       [](Programs& p) { At(p[0], Code::kReduce).parameter = -1; }},
      {"worker w0, instruction 9: reduces linear1.weight into 2 outputs",
       [](Programs& p) { At(p[0], Code::kReduce).outputs.push_back(0); }},
      {"worker w1, instruction 9: reduces linear1.weight, which it does not hold",
       [](Programs& p) {
         Instruction other = At(p[0], Code::kReduce);
         ASSERT_EQ(other.parameter, 1);
         // Between the two of its own, where all agree on the order.
         Insert(p[1], Find(p[1], Code::kReduce, Find(p[1], Code::kReduce) + 1), other);
       }},
      {"worker w0, instruction 9: reduces parameter 1 twice",
       [](Programs& p) {
         const size_t reduce = Find(p[0], Code::kReduce);
         Insert(p[0], reduce, p[0].instructions[reduce]);
       }},
      {"worker w0, instruction 9: lists contributions of 1 workers, expected 2",
       [](Programs& p) {
         for (Program& program : p) {
           for (Instruction& instruction : program.instructions) {
             if (instruction.code == Code::kReduce && instruction.parameter == 1) {
               instruction.contributions.pop_back();
             }
           }
         }
       }},
      {"worker w0, instruction 9: contribution 1 is not what the plan says",
       [](Programs& p) {
         for (Program& program : p) {
           for (Instruction& instruction : program.instructions) {
             if (instruction.code == Code::kReduce && instruction.parameter == 1) {
               instruction.contributions[0][1] = {.level = 0, .index = 3};
             }
           }
         }
       }},
  });
}

TEST(RefusalsTest, UpdatesAndReports) {
  ExpectFound({
      {"worker w0, vote: the norm of parameter 0 is reported twice",
       [](Programs& p) { p[0].vote.norms.push_back(p[0].vote.norms[0]); }},
      {"worker w2, vote: reports the norm of parameter 1 without owning it",
       [](Programs& p) {
         for (const Instruction& instruction : p[2].instructions) {
           if (instruction.code == Code::kUpdate && instruction.parameter == 1) {
             p[2].vote.norms.push_back({.parameter = 1, .gradient = instruction.inputs[0]});
           }
         }
       }},
      {"worker w1, vote: the loss of microbatch 0 is reported twice",
       [](Programs& p) { p[1].vote.losses.push_back(p[1].vote.losses[0]); }},
      {"worker w1, vote: microbatch 3 belongs to another pipeline",
       [](Programs& p) { p[1].vote.losses[0].microbatch = 3; }},
      {"nobody reports the loss of microbatch 0",
       [](Programs& p) { p[1].vote.losses.erase(p[1].vote.losses.begin()); }},
      {"nobody reports the norm of linear1.weight",
       [](Programs& p) {
         std::erase_if(p[0].vote.norms, [](const auto& norm) { return norm.parameter == 1; });
       }},
      {"worker w2: never updates linear2.weight",
       [](Programs& p) {
         std::erase_if(p[2].instructions, [](const Instruction& instruction) {
           return instruction.code == Code::kUpdate && instruction.parameter == 2;
         });
       }},
  });
}

TEST(RefusalsTest, SumsThatLackAContribution) {
  const graph::Graph graph = ChainGraph(3);
  const auto drop_fold = [](Programs& p) {
    // The addition of the last microbatch, and not what frees it.
    size_t last = 0;
    for (size_t i = 0; i < p[0].instructions.size(); ++i) {
      last = p[0].instructions[i].code == Code::kFold ? i : last;
    }
    p[0].instructions.erase(p[0].instructions.begin() + static_cast<std::ptrdiff_t>(last));
    --p[0].vote_index;
  };
  EXPECT_EQ(MessageOf(graph, SingleWorkerPlan("alone", 3, 3), drop_fold),
            "worker alone, vote: the gradient of embedding.weight has 2 contributions of 3");
  Plan relaxed = PlanOf(2, {PipelineOfCuts({0, 3}, 0, 0, 3), PipelineOfCuts({0, 3}, 1, 3, 2)});
  relaxed.determinism = Determinism::kRelaxed;
  EXPECT_EQ(MessageOf(graph, relaxed, drop_fold),
            "the reduction of embedding.weight has 4 contributions of 5");
}

TEST(RefusalsTest, PlansAndNumbersOfPrograms) {
  const graph::Graph graph = ChainGraph(4, /*tied=*/true);
  const Result<Programs> programs = LowerAll(graph, ExamplePlan());
  ASSERT_TRUE(programs.ok());
  Plan broken = ExamplePlan();
  broken.pipelines[0].microbatches = 2;
  EXPECT_EQ(Verify(graph, broken, *programs).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(LowerAll(graph, broken).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Verify(graph, ExamplePlan(), {}).message(), "0 programs for 4 workers");
  EXPECT_EQ(Lower(graph, ExamplePlan(), 4).status().message(), "rank 4 is not in 0..3");
  EXPECT_EQ(Lower(graph, ExamplePlan(), -1).status().message(), "rank -1 is not in 0..3");
}

TEST(RefusalsTest, RelaxedSumsNeedAGradientFromEveryHolder) {
  graph::Graph graph = ChainGraph(4, /*tied=*/true);
  const Plan exact = PlanOf(2, {PipelineOfCuts({0, 2, 4}, 0, 0, 3)});
  Plan relaxed = exact;
  relaxed.determinism = Determinism::kRelaxed;
  EXPECT_TRUE(LowerAll(graph, relaxed).ok());
  // The head reads the tied weight and gives no gradient of it.
  graph::Parameter& tied = graph.parameters[0];
  graph.tensors[static_cast<size_t>(tied.gradients.back())].kind = graph::TensorKind::kGradient;
  tied.gradients.pop_back();
  EXPECT_EQ(LowerAll(graph, relaxed).status().message(),
            "plan: worker w1 holds parameter embedding.weight without a gradient of it, which "
            "relaxed determinism cannot reduce");
  EXPECT_TRUE(LowerAll(graph, exact).ok());
}

TEST(RefusalsTest, Graphs) {
  const graph::Graph good = ChainGraph(3);
  const auto message = [&](const std::function<void(graph::Graph&)>& change) {
    graph::Graph graph = good;
    change(graph);
    const Status status = LowerAll(graph, SingleWorkerPlan("alone", 3, 1)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto weight = [](graph::Graph& g) -> graph::Tensor& {
    return g.tensors[static_cast<size_t>(g.parameters[1].gradients[0])];
  };
  EXPECT_EQ(message([](auto& g) { g.nodes[2].op = nullptr; }), "graph: node 2 has no operator");
  EXPECT_EQ(message([](auto& g) { g.nodes[1].segment = 3; }),
            "graph: node 1 (linear -> linear1): segment 3 does not exist");
  EXPECT_EQ(message([](auto& g) { g.nodes[1].segment = -1; }),
            "graph: node 1 (linear -> linear1): segment -1 does not exist");
  EXPECT_EQ(message([](auto& g) { g.nodes[1].inputs[0] = g.nodes[1].outputs[0]; }),
            "graph: node 1 (linear -> linear1) reads linear1 before it exists");
  EXPECT_EQ(message([](auto& g) { g.nodes.back().inputs[0] = g.parameters[2].gradients[0]; }),
            "graph: node 9 (embedding_weight_gradient -> embedding.weight.grad.0) reads the weight "
            "gradient head.weight.grad.0, which is summed in place");
  EXPECT_EQ(
      message([](auto& g) { g.tensors[static_cast<size_t>(g.nodes[1].outputs[0])].producer = 0; }),
      "graph: node 1 (linear -> linear1): linear1 names another producer");
  for (const std::function<void(graph::Tensor&)>& change :
       std::vector<std::function<void(graph::Tensor&)>>{[](auto& t) { t.use = 1; },
                                                        [](auto& t) { t.parameter = 0; }}) {
    EXPECT_EQ(message([&](auto& g) { change(weight(g)); }),
              "graph: linear1.weight.grad.0 is not use 0 of parameter linear1.weight");
  }
  EXPECT_EQ(
      message([&](auto& g) { weight(g).type.dtype = DType::kBF16; }),
      "graph: the weight gradient linear1.weight.grad.0 is bf16 [4, 4], expected fp32 [4, 4]");
  EXPECT_EQ(
      message([&](auto& g) {
        weight(g).type.shape = {4, 2};
      }),
      "graph: the weight gradient linear1.weight.grad.0 is fp32 [4, 2], expected fp32 [4, 4]");
  EXPECT_EQ(message([](auto& g) { g.loss = -1; }), "graph: no node computes a loss");
  EXPECT_EQ(message([](auto& g) { g.loss = g.tokens; }), "graph: no node computes a loss");
}

}  // namespace
}  // namespace heddle::program

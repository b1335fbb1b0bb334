/// \file
/// The state of the reference interpreter (program_interpreter.h), and what it does in which phase of
/// a step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/program/program.h"
#include "tests/support/program/training_step.h"

namespace heddle::testing {

struct InterpretedValue {
  DenseTensor tensor;
  bool in_flight = false;
};

/// An exchange of one microbatch, as far as members have come to it.
struct InterpretedExchange {
  const program::Instruction* first = nullptr;
  const graph::Exchange* exchange = nullptr;
  std::map<size_t, std::optional<DenseTensor>> arrived;  ///< By position.
};

struct InterpretedReduction {
  std::vector<int> group;
  std::map<int, std::vector<DenseTensor>> arrived;  ///< By rank.
};

/// A gather of a piece of a parameter's compute copy, as far as members have come to it.
struct InterpretedGather {
  std::vector<int> group;
  std::map<int, DenseTensor> arrived;  ///< The rows that each keeps, by rank.
};

struct InterpretedWorker {
  const program::Program* program = nullptr;
  const graph::Graph* graph = nullptr;
  size_t next = 0;
  std::map<program::SlotId, InterpretedValue> slots;
  /// By output in flight: the exchange, and the worker's position.
  std::map<program::SlotId, std::pair<InterpretedExchange*, size_t>> calls;
  std::map<graph::ParameterId, DenseParameter> parameters;
  std::vector<std::pair<uint64_t, int>> exchanges;  ///< Tags, in the order of issue.
  std::set<graph::ParameterId> gathered;            ///< Those whose gathers have ended.
};

/// `box` of a tensor as a box of the part `held` of it.
Box Within(const Box& held, Box box);

class Interpreter {
 public:
  Interpreter(const graph::Graph& graph,
              const std::vector<graph::Graph>& graphs,
              const std::vector<program::Program>& programs,
              const DenseStep& step);

  DenseOutcome Run() &&;

 private:
  void Refuse(std::string why) {
    if (outcome_.refused.empty()) {
      outcome_.refused = std::move(why);
    }
  }
  void Refuse(const InterpretedWorker& worker, std::string_view why) {
    Refuse(fmt::format("rank {} instruction {}: {}", worker.program->rank, worker.next, why));
  }
  bool Advance(InterpretedWorker& worker);
  bool Execute(InterpretedWorker& worker, const program::Instruction& instruction);
  void Load(InterpretedWorker& worker, const program::Instruction& instruction);
  void RunNode(InterpretedWorker& worker, const program::Instruction& instruction);
  void Issue(InterpretedWorker& worker, const program::Instruction& instruction);
  bool Await(InterpretedWorker& worker, program::SlotId slot);
  void Gather(InterpretedWorker& worker, const program::Instruction& instruction);
  bool AwaitGathers(InterpretedWorker& worker, graph::ParameterId parameter);
  void Fold(InterpretedWorker& worker, const program::Instruction& instruction);
  void Reduce(InterpretedWorker& worker, const program::Instruction& instruction);
  void Free(InterpretedWorker& worker, program::SlotId slot);
  const DenseTensor* Read(InterpretedWorker& worker, program::SlotId slot, graph::TensorId tensor);
  void Put(InterpretedWorker& worker,
           program::SlotId slot,
           DenseTensor tensor,
           bool in_flight = false);
  void CheckOrders();
  void CompleteReductions();
  void Vote();
  void Update(InterpretedWorker& worker);
  void Collect();

  const graph::Graph& graph_;
  const DenseStep& step_;
  std::vector<InterpretedWorker> workers_;
  std::map<std::tuple<int, int, uint64_t>, DenseTensor> messages_;
  std::map<std::pair<std::vector<int>, uint64_t>, InterpretedExchange> calls_;
  std::map<uint64_t, InterpretedReduction> reductions_;
  std::map<std::pair<graph::ParameterId, int>, InterpretedGather> gathers_;
  DenseOutcome outcome_;
};

}  // namespace heddle::testing

#include "tests/support/program/program_interpreter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/check.h"
#include "engine/program/stage_graph.h"
#include "engine/program/stages.h"
#include "tests/support/graph/exchange_values.h"
#include "tests/support/program/interpreter.h"

namespace heddle::testing {

using graph::ParameterId;
using program::Code;
using program::Instruction;
using program::Program;
using program::SlotId;
using Worker = InterpretedWorker;
using Value = InterpretedValue;

Box Within(const Box& held, Box box) {
  for (size_t d = 0; d < box.offset.size(); ++d) {
    box.offset[d] -= held.offset[d];
  }
  return box;
}

namespace {

/// Nobody may use what another worker keeps: it is no number.
void Spoil(const program::Piece& piece, const Box& held, DenseTensor& tensor) {
  DenseTensor spoiled(piece.box.extent);
  std::ranges::fill(spoiled.values, std::nan(""));
  const DenseTensor kept = TakeBox(tensor, Within(held, *piece.kept));
  std::vector<bool> none(tensor.values.size(), false);
  PutBox(spoiled, Within(held, piece.box), tensor, none);
  none.assign(none.size(), false);
  PutBox(kept, Within(held, *piece.kept), tensor, none);
}

}  // namespace

Interpreter::Interpreter(const graph::Graph& graph,
                         const std::vector<graph::Graph>& graphs,
                         const std::vector<Program>& programs,
                         const DenseStep& step)
    : graph_(graph),
      step_(step),
      workers_(programs.size()) {
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    workers_[rank].program = &programs[rank];
    workers_[rank].graph = &graphs[rank];
    for (const ParameterId id : programs[rank].parameters) {
      const Box box = HeldBox(programs[rank], graph, id);
      const DenseParameter& whole = step.parameters[static_cast<size_t>(id)];
      workers_[rank].parameters[id] = {.master = TakeBox(whole.master, box),
                                       .exp_avg = TakeBox(whole.exp_avg, box),
                                       .exp_avg_sq = TakeBox(whole.exp_avg_sq, box)};
    }
    for (const program::Piece& piece : programs[rank].pieces) {
      if (piece.kept) {
        const Box held = HeldBox(programs[rank], graph, piece.parameter);
        DenseParameter& parameter = workers_[rank].parameters.at(piece.parameter);
        Spoil(piece, held, parameter.master);
        Spoil(piece, held, parameter.exp_avg);
        Spoil(piece, held, parameter.exp_avg_sq);
      }
    }
  }
}

/// All members of a group issue the same exchanges in the same order.
void Interpreter::CheckOrders() {
  std::map<std::vector<int>, const Worker*> first;
  for (const Worker& worker : workers_) {
    for (const Instruction& instruction : worker.program->instructions) {
      if (instruction.code != Code::kExchange) {
        continue;
      }
      const Worker& other = *first.emplace(instruction.group, &worker).first->second;
      if (other.exchanges != worker.exchanges) {
        Refuse(worker, "issues exchanges in another order");
      }
      break;
    }
  }
}

namespace {

/// What a member of a reduction gets of the sum.
DenseTensor ShareOf(const Instruction& instruction, int rank, const DenseTensor& sum) {
  if (instruction.rows.empty()) {
    return sum;
  }
  Box box = WholeBox(sum.shape);
  for (size_t i = 0; i < instruction.group.size(); ++i) {
    box.extent[0] = instruction.rows[i];
    if (instruction.group[i] == rank) {
      break;
    }
    box.offset[0] += instruction.rows[i];
  }
  return TakeBox(sum, box);
}

}  // namespace

void Interpreter::CompleteReductions() {
  for (auto& [tag, reduction] : reductions_) {
    if (reduction.arrived.size() != reduction.group.size()) {
      return Refuse(fmt::format("a member takes no part in reduction {:#x}", tag));
    }
    std::optional<DenseTensor> sum;
    for (const auto& [rank, inputs] : reduction.arrived) {
      for (const DenseTensor& input : inputs) {
        if (!sum) {
          sum = DenseTensor(input.shape);
        }
        for (size_t e = 0; e < input.values.size(); ++e) {
          sum->values[e] += input.values[e];
        }
      }
    }
    if (!sum) {
      return Refuse(fmt::format("nobody contributes to reduction {:#x}", tag));
    }
    for (const int rank : reduction.group) {
      Worker& worker = workers_[static_cast<size_t>(rank)];
      for (const Instruction& instruction : worker.program->instructions) {
        if (instruction.code == Code::kReduce && instruction.tag == tag &&
            !instruction.outputs.empty()) {
          Value& value = worker.slots[instruction.outputs[0]];
          DenseTensor share = ShareOf(instruction, rank, *sum);
          if (value.tensor.shape != share.shape) {
            return Refuse(worker, "gets a sum of another shape");
          }
          value = {.tensor = std::move(share), .in_flight = false};
        }
      }
    }
  }
}

void Interpreter::Vote() {
  std::set<int> losses;
  std::set<std::tuple<ParameterId, int, int>> norms;
  std::vector<int64_t> elements(graph_.parameters.size(), 0);
  for (Worker& worker : workers_) {
    for (const auto& loss : worker.program->vote.losses) {
      const DenseTensor* const value = Read(worker, loss.slot, -1);
      if (!losses.insert(loss.microbatch).second || value == nullptr) {
        return Refuse(worker, "reports a loss twice, or one that is not there");
      }
      outcome_.loss += (*value)[0];
    }
    for (const auto& norm : worker.program->vote.norms) {
      const DenseTensor* const value = Read(worker, norm.gradient, -1);
      const int rank = worker.program->rank;
      if (!norms.emplace(norm.parameter, norm.piece, rank).second || value == nullptr) {
        return Refuse(worker, "reports a norm twice, or one that is not there");
      }
      elements[static_cast<size_t>(norm.parameter)] += ElementCount(value->shape);
      for (const double one : value->values) {
        outcome_.norm += one * one;
      }
    }
  }
  outcome_.norm = std::sqrt(outcome_.norm);
  for (size_t p = 0; p < elements.size(); ++p) {
    const bool differentiated = !graph_.parameters[p].gradients.empty();
    if (elements[p] != (differentiated ? ElementCount(graph_.parameters[p].shape) : 0)) {
      Refuse(fmt::format("the norms of {} are of {} elements", graph_.parameters[p].name,
                         elements[p]));
    }
  }
  if (losses.size() != step_.tokens.size()) {
    Refuse("a loss is missing");
  }
}

/// A piece of what the worker holds at a time.
void Interpreter::Update(Worker& worker) {
  std::set<std::pair<ParameterId, int>> left;
  const Program& program = *worker.program;
  for (const program::Piece& piece : program.pieces) {
    if (ElementCount(KeptBox(piece).extent) > 0) {
      left.emplace(piece.parameter, piece.index);
    }
  }
  for (size_t i = 0; i < program.parameters.size() && program.pieces.empty(); ++i) {
    left.emplace(program.parameters[i], 0);
  }
  for (worker.next = program.vote_index + 1; worker.next < program.instructions.size();
       ++worker.next) {
    const Instruction& instruction = program.instructions[worker.next];
    if (instruction.code == Code::kFree) {
      Free(worker, instruction.inputs[0]);
      continue;
    }
    const DenseTensor* const gradient = Read(worker, instruction.inputs[0], -1);
    if (gradient == nullptr || left.erase({instruction.parameter, instruction.piece}) == 0) {
      return Refuse(worker, "updates what it does not hold, or twice");
    }
    Box box = HeldBox(program, graph_, instruction.parameter);
    const Box held = box;
    for (const program::Piece& piece : program.pieces) {
      if (piece.parameter == instruction.parameter && piece.index == instruction.piece) {
        box = KeptBox(piece);
      }
    }
    box = Within(held, std::move(box));
    DenseParameter& parameter = worker.parameters.at(instruction.parameter);
    DenseParameter part{.master = TakeBox(parameter.master, box),
                        .exp_avg = TakeBox(parameter.exp_avg, box),
                        .exp_avg_sq = TakeBox(parameter.exp_avg_sq, box)};
    if (gradient->shape != box.extent) {
      return Refuse(worker, "updates with a gradient of another shape");
    }
    ApplyAdamW(graph_, instruction.parameter, step_, outcome_.norm, *gradient, part);
    std::vector<bool> none(parameter.master.values.size(), false);
    PutBox(part.master, box, parameter.master, none);
    PutBox(part.exp_avg, box, parameter.exp_avg, none);
    PutBox(part.exp_avg_sq, box, parameter.exp_avg_sq, none);
  }
  std::erase_if(left,
                [&](const auto& key) { return graph_.parameter(key.first).gradients.empty(); });
  if (!left.empty() || !worker.slots.empty()) {
    Refuse(worker, left.empty() ? "ends with a value that is not freed" : "misses an update");
  }
}

/// What all workers hold, put together.
void Interpreter::Collect() {
  for (size_t p = 0; p < graph_.parameters.size(); ++p) {
    const auto id = static_cast<ParameterId>(p);
    const Shape& shape = graph_.parameters[p].shape;
    DenseParameter whole{.master = DenseTensor(shape),
                         .exp_avg = DenseTensor(shape),
                         .exp_avg_sq = DenseTensor(shape)};
    const auto count = static_cast<size_t>(ElementCount(shape));
    std::vector<bool> has[3] = {std::vector<bool>(count), std::vector<bool>(count),
                                std::vector<bool>(count)};
    bool same = true;
    for (const Worker& worker : workers_) {
      const auto held = worker.parameters.find(id);
      if (held == worker.parameters.end()) {
        continue;
      }
      const Box box = HeldBox(*worker.program, graph_, id);
      const auto put = [&](const Box& kept) {
        const Box part = Within(box, kept);
        const DenseParameter& parameter = held->second;
        same = PutBox(TakeBox(parameter.master, part), kept, whole.master, has[0]) && same;
        same = PutBox(TakeBox(parameter.exp_avg, part), kept, whole.exp_avg, has[1]) && same;
        same = PutBox(TakeBox(parameter.exp_avg_sq, part), kept, whole.exp_avg_sq, has[2]) && same;
      };
      for (const program::Piece& piece : worker.program->pieces) {
        if (piece.parameter == id) {
          put(KeptBox(piece));
        }
      }
      if (worker.program->pieces.empty()) {
        put(box);
      }
    }
    if (!same || std::ranges::count(has[0], false) > 0) {
      Refuse(fmt::format("holders of {} differ, or an element is nobody's",
                         graph_.parameters[p].name));
    }
    outcome_.parameters.push_back(std::move(whole));
  }
}

DenseOutcome Interpreter::Run() && {
  for (bool moved = true; moved;) {
    moved = false;
    for (Worker& worker : workers_) {
      moved = Advance(worker) || moved;
    }
  }
  for (const Worker& worker : workers_) {
    if (worker.next < worker.program->vote_index) {
      Refuse(worker, "waits for ever");
    }
  }
  const std::vector<std::function<void()>> rest = {
      [&] { CheckOrders(); }, [&] { CompleteReductions(); }, [&] { Vote(); },
      [&] { std::ranges::for_each(workers_, [&](Worker& worker) { Update(worker); }); },
      [&] { Collect(); }};
  for (const auto& phase : rest) {
    if (outcome_.refused.empty()) {
      phase();
    }
  }
  return std::move(outcome_);
}

std::vector<graph::Graph> MemberGraphs(const graph::Graph& graph, const program::Plan& plan) {
  std::map<std::vector<int>, graph::ShardedGraph> stages;
  std::vector<graph::Graph> graphs;
  for (size_t rank = 0; rank < plan.workers.size(); ++rank) {
    const program::Position position = program::PositionOf(plan, static_cast<int>(rank));
    const program::Stage* const stage =
        position.pipeline < 0 ? nullptr
                              : &plan.pipelines[static_cast<size_t>(position.pipeline)]
                                     .stages[static_cast<size_t>(position.stage)];
    if (stage == nullptr || stage->layout < 0) {
      graphs.push_back(graph);
      continue;
    }
    const std::vector<int> key = program::StageGraphKey(plan, *stage);
    if (!stages.contains(key)) {
      auto built = program::BuildStageGraph(graph, plan, *stage);
      HEDDLE_CHECK(built.ok(), "{}", built.status().ToString());
      stages.emplace(key, std::move(built->sharded));
    }
    graphs.push_back(graph::Localise(stages.at(key), position.member).graph);
  }
  return graphs;
}

DenseOutcome RunPrograms(const graph::Graph& graph,
                         const std::vector<graph::Graph>& graphs,
                         const std::vector<Program>& programs,
                         const DenseStep& step) {
  return Interpreter(graph, graphs, programs, step).Run();
}

}  // namespace heddle::testing

#include "tests/engine_runtime/reference.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/check.h"
#include "engine/graph/operator.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel.h"
#include "engine/runtime/parameter_state.h"
#include "engine/runtime/parameter_tensors.h"

namespace heddle::runtime {
namespace {

using program::Code;
using program::Instruction;

at::Tensor LoadInput(const graph::Graph& graph,
                     graph::TensorId id,
                     int64_t first_sample,
                     const SampleReader& read) {
  const graph::TensorType& type = graph.tensor(id).type;
  const auto batch = static_cast<size_t>(type.shape[0]);
  const auto length = static_cast<size_t>(type.shape[1]);
  at::Tensor value = HostTensor(type);
  auto* out = value.data_ptr<int32_t>();
  std::vector<int32_t> tokens(length);
  std::vector<int32_t> targets(length);
  for (size_t b = 0; b < batch; ++b) {
    read(first_sample + static_cast<int64_t>(b), tokens, targets)
        .IgnoreError("tests' readers do not fail");
    const std::vector<int32_t>& row = id == graph.tokens ? tokens : targets;
    std::copy(row.begin(), row.end(), out + b * length);
  }
  return value;
}

void Update(const graph::Graph& graph,
            ParameterState& state,
            graph::ParameterId id,
            const at::Tensor& gradient,
            int64_t step,
            double norm,
            double learning_rate) {
  const graph::AdamW& adamw = graph.optimizer;
  const bool clipped = adamw.max_gradient_norm > 0 && norm > adamw.max_gradient_norm;
  auto& held = state.held(id).kept.front();
  AdamWUpdate(held.master, held.exp_avg, held.exp_avg_sq, gradient, held.compute,
              {.learning_rate = learning_rate,
               .clip_factor = clipped ? adamw.max_gradient_norm / (norm + 1e-6) : 1,
               .step = step,
               .beta1 = adamw.beta1,
               .beta2 = adamw.beta2,
               .epsilon = adamw.epsilon,
               .weight_decay = graph.parameter(id).decay ? adamw.weight_decay : 0});
}

std::vector<double> Doubles(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous().view({-1});
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

std::vector<graph::ParameterId> AllParameters(const graph::Graph& graph) {
  std::vector<graph::ParameterId> all(graph.parameters.size());
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<graph::ParameterId>(i);
  }
  return all;
}

int64_t BatchOf(const graph::Graph& graph) {
  return graph.tensor(graph.tokens).type.shape[0];
}

// One worker's interpreter: runs until it needs a message that is not there.
class Worker {
 public:
  Worker(const graph::Graph& graph,
         const program::Program& program,
         const ReferenceOptions& options)
      : graph_(graph),
        program_(program),
        options_(options),
        state_(graph, device_) {
    HEDDLE_CHECK(state_.Hold(program.parameters).ok(), "no memory");
    HEDDLE_CHECK(state_.Initialize(options.seed).ok(), "no memory");
  }

  // Mailbox key: source, target, tag.
  using Mail = std::map<std::tuple<int, int, uint64_t>, std::deque<at::Tensor>>;
  // Contributions of a reduction: by (parameter), each with its tree node.
  struct Contribution {
    TreeNode node;
    at::Tensor value;
  };
  using Reductions = std::map<graph::ParameterId, std::vector<Contribution>>;

  void BeginStep(int64_t step) {
    step_ = step;
    next_ = 0;
    values_.clear();
  }
  bool AtVote() const { return next_ >= program_.vote_index; }

  // Runs as far as it can before the vote; whether it did anything.
  Result<bool> Advance(Mail& mail, Reductions& reductions) {
    bool moved = false;
    for (; !AtVote(); ++next_, moved = true) {
      HEDDLE_ASSIGN_OR_RETURN(const bool done,
                              Execute(program_.instructions[next_], mail, reductions));
      if (!done) {
        break;
      }
    }
    return moved;
  }

  Result<at::Tensor> Value(program::SlotId slot) const {
    const auto found = values_.find(slot);
    if (found == values_.end()) {
      return InternalError("worker {} instruction {}: slot {} is not live", program_.rank, next_,
                           slot);
    }
    return found->second;
  }
  void Put(program::SlotId slot, at::Tensor value) { values_[slot] = std::move(value); }

  Status Finish(double norm) {
    for (size_t i = program_.vote_index + 1; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (instruction.code == Code::kUpdate) {
        HEDDLE_ASSIGN_OR_RETURN(const at::Tensor gradient, Value(instruction.inputs[0]));
        Update(graph_, state_, instruction.parameter, gradient, step_, norm,
               options_.learning_rate);
      }
    }
    return Status::Ok();
  }

  const program::Program& program() const { return program_; }
  ParameterState& state() { return state_; }

 private:
  Result<bool> Execute(const Instruction& instruction, Mail& mail, Reductions& reductions) {
    switch (instruction.code) {
      case Code::kLoad: {
        const program::SlotId slot = instruction.outputs[0];
        Put(slot, LoadInput(graph_, program_.slots[static_cast<size_t>(slot)].tensor,
                            FirstSample(instruction), options_.read_sample));
        return true;
      }
      case Code::kRun:
        return Run(instruction);
      case Code::kSend: {
        HEDDLE_ASSIGN_OR_RETURN(const at::Tensor value, Value(instruction.inputs[0]));
        mail[{program_.rank, instruction.peer, instruction.tag}].push_back(value.clone());
        return true;
      }
      case Code::kRecv: {
        auto& box = mail[{instruction.peer, program_.rank, instruction.tag}];
        if (box.empty()) {
          return false;
        }
        Put(instruction.outputs[0], box.front());
        box.pop_front();
        return true;
      }
      case Code::kFold: {
        HEDDLE_ASSIGN_OR_RETURN(const at::Tensor left, Value(instruction.inputs[0]));
        HEDDLE_ASSIGN_OR_RETURN(const at::Tensor right, Value(instruction.inputs[1]));
        Put(instruction.inputs[0], left + right);
        return true;
      }
      case Code::kReduce:
        return Contribute(instruction, reductions);
      case Code::kFree:
        if (values_.erase(instruction.inputs[0]) == 0) {
          return InternalError("worker {} instruction {}: slot {} is freed twice", program_.rank,
                               next_, instruction.inputs[0]);
        }
        return true;
      case Code::kExchange:
      case Code::kGather:
      case Code::kAwait:
        return InternalError(
            "worker {} instruction {}: tests/support/program runs exchanges and gathers",
            program_.rank, next_);
      case Code::kVote:
      case Code::kUpdate:
        break;
    }
    return InternalError("worker {} instruction {} does not belong before the vote", program_.rank,
                         next_);
  }

  Result<bool> Run(const Instruction& instruction) {
    const graph::Node& node = graph_.node(instruction.node);
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const graph::Tensor& tensor = graph_.tensor(node.inputs[i]);
      if (tensor.kind == graph::TensorKind::kParameter) {
        if (!state_.Holds(tensor.parameter)) {
          return InternalError("worker {} reads parameter {} and does not hold it", program_.rank,
                               tensor.parameter);
        }
        inputs.push_back(state_.held(tensor.parameter).compute);
      } else {
        HEDDLE_ASSIGN_OR_RETURN(at::Tensor value, Value(instruction.inputs[i]));
        inputs.push_back(std::move(value));
      }
    }
    const KernelContext context{
        .seed = options_.seed, .step = step_, .first_sample = FirstSample(instruction)};
    std::vector<at::Tensor> outputs = FindKernel(node.op->name())(node, inputs, context);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (instruction.outputs[i] >= 0) {
        Put(instruction.outputs[i], std::move(outputs[i]));
      }
    }
    return true;
  }

  Result<bool> Contribute(const Instruction& instruction, Reductions& reductions) {
    const auto position = static_cast<size_t>(std::ranges::find(instruction.group, program_.rank) -
                                              instruction.group.begin());
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      HEDDLE_ASSIGN_OR_RETURN(const at::Tensor value, Value(instruction.inputs[i]));
      const TreeNode node = program_.determinism == program::Determinism::kExact
                                ? instruction.contributions[position][i]
                                : TreeNode{.level = 0, .index = static_cast<int64_t>(position)};
      reductions[instruction.parameter].push_back({.node = node, .value = value.clone()});
    }
    return true;
  }

  int64_t FirstSample(const Instruction& instruction) const {
    return ((step_ - 1) * options_.microbatches + instruction.microbatch) * BatchOf(graph_);
  }

  const graph::Graph& graph_;
  const program::Program& program_;
  const ReferenceOptions& options_;
  CpuDevice device_;
  ParameterState state_;
  std::map<program::SlotId, at::Tensor> values_;
  size_t next_ = 0;
  int64_t step_ = 0;
};

// Adds all contributions in tree order and hands the sum to every worker that asked.
Status CompleteReductions(std::vector<std::unique_ptr<Worker>>& workers,
                          Worker::Reductions& reductions) {
  std::map<graph::ParameterId, at::Tensor> sums;
  for (auto& [parameter, contributions] : reductions) {
    std::ranges::sort(contributions, {},
                      [](const Worker::Contribution& c) { return c.node.first(); });
    std::vector<TreeNode> nodes;
    for (const auto& contribution : contributions) {
      nodes.push_back(contribution.node);
    }
    for (const Fold& fold : FoldOrder(nodes)) {
      contributions[static_cast<size_t>(fold.left)].value +=
          contributions[static_cast<size_t>(fold.right)].value;
    }
    sums[parameter] = contributions[0].value;
  }
  for (auto& worker : workers) {
    for (const Instruction& instruction : worker->program().instructions) {
      if (instruction.code == Code::kReduce) {
        worker->Put(instruction.outputs[0], sums.at(instruction.parameter));
      }
    }
  }
  return Status::Ok();
}

Result<ReferenceStep> CompleteVote(std::vector<std::unique_ptr<Worker>>& workers,
                                   const graph::Graph& graph,
                                   int64_t microbatches) {
  std::map<int, double> losses;
  std::map<graph::ParameterId, double> norms;
  for (auto& worker : workers) {
    for (const auto& loss : worker->program().vote.losses) {
      HEDDLE_ASSIGN_OR_RETURN(const at::Tensor value, worker->Value(loss.slot));
      losses.emplace(loss.microbatch, value.item<double>());
    }
    for (const auto& norm : worker->program().vote.norms) {
      HEDDLE_ASSIGN_OR_RETURN(const at::Tensor value, worker->Value(norm.gradient));
      norms.emplace(norm.parameter, value.to(at::kDouble).square().sum().item<double>());
    }
  }
  if (losses.size() != static_cast<size_t>(microbatches) ||
      norms.size() != graph.parameters.size()) {
    return InternalError("the vote has {} losses and {} norms", losses.size(), norms.size());
  }
  ReferenceStep out;
  for (const auto& [microbatch, loss] : losses) {
    out.loss += loss;
  }
  for (const auto& [parameter, norm] : norms) {
    out.gradient_norm += norm;
  }
  out.gradient_norm = std::sqrt(out.gradient_norm);
  return out;
}

Result<std::map<std::string, std::vector<double>>> CollectMasters(
    const graph::Graph& graph, std::vector<std::unique_ptr<Worker>>& workers) {
  std::map<std::string, std::vector<double>> masters;
  for (auto& worker : workers) {
    for (const graph::ParameterId id : worker->state().parameters()) {
      std::vector<double> values = Doubles(worker->state().held(id).kept.front().master);
      const auto [entry, inserted] = masters.emplace(graph.parameter(id).name, values);
      if (!inserted && entry->second != values) {
        return InternalError("holders of {} differ", graph.parameter(id).name);
      }
    }
  }
  return masters;
}

}  // namespace

Result<ReferenceResult> RunSingleDevice(const graph::Graph& graph,
                                        const ReferenceOptions& options) {
  const c10::InferenceMode inference;
  CpuDevice device;
  ParameterState state(graph, device);
  HEDDLE_RETURN_IF_ERROR(state.Hold(AllParameters(graph)));
  HEDDLE_RETURN_IF_ERROR(state.Initialize(options.seed));
  ReferenceResult result;
  for (int64_t step = 1; step <= options.steps; ++step) {
    ReferenceStep figures;
    std::vector<at::Tensor> sums(graph.parameters.size());
    for (int64_t m = 0; m < options.microbatches; ++m) {
      const int64_t first = ((step - 1) * options.microbatches + m) * BatchOf(graph);
      std::vector<at::Tensor> values(graph.tensors.size());
      for (const graph::TensorId input : {graph.tokens, graph.targets}) {
        values[static_cast<size_t>(input)] = LoadInput(graph, input, first, options.read_sample);
      }
      for (const graph::ParameterId id : AllParameters(graph)) {
        values[static_cast<size_t>(graph.parameter(id).compute)] = state.held(id).compute;
      }
      for (const graph::Node& node : graph.nodes) {
        std::vector<at::Tensor> inputs;
        for (const graph::TensorId input : node.inputs) {
          inputs.push_back(values[static_cast<size_t>(input)]);
        }
        const auto outputs = FindKernel(node.op->name())(
            node, inputs, {.seed = options.seed, .step = step, .first_sample = first});
        for (size_t i = 0; i < outputs.size(); ++i) {
          values[static_cast<size_t>(node.outputs[i])] = outputs[i];
        }
      }
      figures.loss += values[static_cast<size_t>(graph.loss)].item<double>();
      for (const graph::ParameterId id : AllParameters(graph)) {
        at::Tensor& sum = sums[static_cast<size_t>(id)];
        for (const graph::TensorId gradient : graph.parameter(id).gradients) {
          const at::Tensor& value = values[static_cast<size_t>(gradient)];
          sum = sum.defined() ? sum + value : value.clone();
        }
      }
    }
    for (const at::Tensor& sum : sums) {
      figures.gradient_norm += sum.to(at::kDouble).square().sum().item<double>();
    }
    figures.gradient_norm = std::sqrt(figures.gradient_norm);
    for (const graph::ParameterId id : AllParameters(graph)) {
      Update(graph, state, id, sums[static_cast<size_t>(id)], step, figures.gradient_norm,
             options.learning_rate);
    }
    result.steps.push_back(figures);
  }
  for (const graph::ParameterId id : AllParameters(graph)) {
    result.masters[graph.parameter(id).name] = Doubles(state.held(id).kept.front().master);
  }
  return result;
}

Result<ReferenceResult> RunPrograms(const graph::Graph& graph,
                                    const std::vector<program::Program>& programs,
                                    const ReferenceOptions& options) {
  const c10::InferenceMode inference;
  std::vector<std::unique_ptr<Worker>> workers;
  for (const program::Program& program : programs) {
    workers.push_back(std::make_unique<Worker>(graph, program, options));
  }
  ReferenceResult result;
  for (int64_t step = 1; step <= options.steps; ++step) {
    Worker::Mail mail;
    Worker::Reductions reductions;
    for (auto& worker : workers) {
      worker->BeginStep(step);
    }
    bool moved = true;
    while (moved) {
      moved = false;
      for (auto& worker : workers) {
        HEDDLE_ASSIGN_OR_RETURN(const bool advanced, worker->Advance(mail, reductions));
        moved = moved || advanced;
      }
    }
    for (auto& worker : workers) {
      if (!worker->AtVote()) {
        return InternalError("deadlock: worker {} waits for a message that nobody sends",
                             worker->program().rank);
      }
    }
    HEDDLE_RETURN_IF_ERROR(CompleteReductions(workers, reductions));
    HEDDLE_ASSIGN_OR_RETURN(const ReferenceStep figures,
                            CompleteVote(workers, graph, options.microbatches));
    for (auto& worker : workers) {
      HEDDLE_RETURN_IF_ERROR(worker->Finish(figures.gradient_norm));
    }
    result.steps.push_back(figures);
  }
  HEDDLE_ASSIGN_OR_RETURN(result.masters, CollectMasters(graph, workers));
  return result;
}

double LargestDifference(const ReferenceResult& a, const ReferenceResult& b, double floor) {
  auto difference = [floor](double x, double y) { return std::abs(x - y) / (std::abs(y) + floor); };
  double largest =
      a.steps.size() == b.steps.size() && a.masters.size() == b.masters.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i) {
    largest = std::max({largest, difference(a.steps[i].loss, b.steps[i].loss),
                        difference(a.steps[i].gradient_norm, b.steps[i].gradient_norm)});
  }
  for (const auto& [name, values] : a.masters) {
    const auto found = b.masters.find(name);
    if (found == b.masters.end() || found->second.size() != values.size()) {
      return INFINITY;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, difference(values[i], found->second[i]));
    }
  }
  return largest;
}

}  // namespace heddle::runtime

// One worker's step without the executor: a model's graph run node by node, then AdamW; time by
// operator and tokens/s, beside the matrix library's rate at the model's own shapes (the limit).
// Usage:
//   kernels_bench [llama|gpt2] [fp32|bf16] [threads] [steps]
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <time.h>

#include "base/random.h"
#include "engine/graph/models/model.h"
#include "engine/graph/operator.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel.h"
#include "engine/runtime/kernels/simd/simd.h"

namespace heddle::runtime {
namespace {

constexpr int64_t kBatch = 8;
constexpr int64_t kLength = 256;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of processor time of all threads: on a machine that is shared, what the work itself
/// costs.
double ProcessorNow() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct OperatorTime {
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
};

/// A parameter's state.
struct Held {
  at::Tensor master, first, second, compute, gradient;
};

class Step {
 public:
  Step(const graph::Graph& graph, uint64_t seed) : graph_(graph), values_(graph.tensors.size()) {
    Random random(seed);
    for (const graph::Parameter& parameter : graph.parameters) {
      Held held;
      held.master = at::empty(parameter.shape, at::TensorOptions(at::kFloat));
      for (int64_t i = 0; i < held.master.numel(); ++i) {
        held.master.data_ptr<float>()[i] = static_cast<float>((random.Uniform() - 0.5) * 0.06);
      }
      held.first = at::zeros_like(held.master);
      held.second = at::zeros_like(held.master);
      held.compute = held.master.to(ToScalarType(graph.tensor(parameter.compute).type.dtype));
      held_.push_back(held);
      values_[static_cast<size_t>(parameter.compute)] = held_.back().compute;
    }
    at::Tensor tokens = at::empty({kBatch, kLength}, at::TensorOptions(at::kInt));
    for (int64_t i = 0; i < tokens.numel(); ++i) {
      tokens.data_ptr<int32_t>()[i] = static_cast<int32_t>(random.Below(256));
    }
    values_[static_cast<size_t>(graph.tokens)] = tokens;
    values_[static_cast<size_t>(graph.targets)] = tokens;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const graph::TensorId input : graph.nodes[n].inputs) {
        last_use_[input] = n;
      }
    }
  }

  /// One step; adds to `times` by operator. Returns the loss.
  double Run(int64_t step, std::map<std::string, OperatorTime>& times) {
    double before = ProcessorNow();
    const auto charge = [&](const std::string& name) -> OperatorTime& {
      const double now = ProcessorNow();
      OperatorTime& time = times[name];
      time.seconds += now - before;
      before = now;
      return time;
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      RunNode(n);
      const graph::Node& node = graph_.nodes[n];
      OperatorTime& time = charge(std::string(node.op->name()));
      const graph::Cost cost = CostOf(node);
      time.flops += cost.flops;
      time.bytes += cost.bytes;
    }
    const double loss = values_[static_cast<size_t>(graph_.loss)].item<double>();
    for (size_t p = 0; p < held_.size(); ++p) {
      at::Tensor gradient;
      for (const graph::TensorId id : graph_.parameters[p].gradients) {
        at::Tensor& value = values_[static_cast<size_t>(id)];
        if (gradient.defined()) {
          FoldInto(gradient, value);
        } else {
          gradient = value;
        }
        value.reset();
      }
      held_[p].gradient = gradient;
    }
    double squares = 0;
    for (const Held& held : held_) {
      squares += SumOfSquares(held.gradient);
    }
    charge("(norm)");
    const double norm = std::sqrt(squares);
    for (Held& held : held_) {
      AdamWUpdate(held.master, held.first, held.second, held.gradient, held.compute,
                  {.learning_rate = 1e-3,
                   .clip_factor = norm > 1 ? 1 / norm : 1,
                   .step = step,
                   .weight_decay = 0.1});
    }
    charge("(adamw)");
    return loss;
  }

 private:
  void RunNode(size_t n) {
    const graph::Node& node = graph_.nodes[n];
    std::vector<at::Tensor> inputs;
    for (const graph::TensorId input : node.inputs) {
      inputs.push_back(values_[static_cast<size_t>(input)]);
    }
    const std::vector<at::Tensor> outputs = FindKernel(node.op->name())(node, inputs, {});
    for (size_t i = 0; i < outputs.size(); ++i) {
      values_[static_cast<size_t>(node.outputs[i])] = outputs[i];
    }
    for (const graph::TensorId input : node.inputs) {
      const graph::TensorKind kind = graph_.tensor(input).kind;
      if (last_use_[input] == n &&
          (kind == graph::TensorKind::kActivation || kind == graph::TensorKind::kGradient)) {
        values_[static_cast<size_t>(input)].reset();
      }
    }
  }

  graph::Cost CostOf(const graph::Node& node) const {
    std::vector<graph::TensorType> inputs;
    std::vector<graph::TensorType> outputs;
    for (const graph::TensorId id : node.inputs) {
      inputs.push_back(graph_.tensor(id).type);
    }
    for (const graph::TensorId id : node.outputs) {
      outputs.push_back(graph_.tensor(id).type);
    }
    return node.op->CostOf(inputs, outputs, node.attributes);
  }

  const graph::Graph& graph_;
  std::vector<at::Tensor> values_;
  std::vector<Held> held_;
  std::map<graph::TensorId, size_t> last_use_;
};

/// Rate of the library alone at [rows, k] x [k, n], in Gflop/s: the best of some.
double ProductRate(int64_t rows, int64_t k, int64_t n, at::ScalarType type) {
  const at::Tensor a = at::rand({rows, k}).to(type);
  const at::Tensor b = at::rand({n, k}).to(type);
  double best = 1e9;
  for (int i = 0; i < 12; ++i) {
    const double before = ProcessorNow();
    const at::Tensor c = at::mm(a, b.t());
    best = std::min(best, ProcessorNow() - before);
  }
  return 2e-9 * static_cast<double>(rows * k * n) / best;
}

int Main(int argc, char** argv) {
  const auto argument = [&](int i, const char* fallback) {
    return std::string(argc > i ? argv[i] : fallback);
  };
  const bool llama = argument(1, "llama") == "llama";
  const bool bf16 = argument(2, "fp32") == "bf16";
  const int threads = std::stoi(argument(3, "1"));
  const int steps = std::stoi(argument(4, "7"));
  KeepFreedMemory();
  WarnAboutBlas();
  SetThreads(threads);
  const c10::InferenceMode inference;

  graph::ModelConfig config;
  config.family = llama ? graph::ModelFamily::kLlama : graph::ModelFamily::kGpt2;
  config.intermediate_size = llama ? 688 : 1024;
  config.tie_word_embeddings = !llama;
  graph::TrainingGraphOptions options;
  options.microbatch_size = kBatch;
  options.sequence_length = kLength;
  options.compute = bf16 ? DType::kBF16 : DType::kF32;
  options.loss_scale = 1.0 / static_cast<double>(kBatch * kLength);
  const auto graph = graph::BuildTrainingGraph(config, options);
  if (!graph.ok()) {
    fmt::print(stderr, "{}\n", graph.status().ToString());
    return 1;
  }
  Step step(*graph, 1);
  std::map<std::string, OperatorTime> times;
  std::vector<double> seconds;
  std::vector<double> processor;
  double loss = step.Run(1, times);
  times.clear();
  for (int i = 0; i < steps; ++i) {
    const double before = Now();
    const double processor_before = ProcessorNow();
    loss = step.Run(i + 2, times);
    seconds.push_back(Now() - before);
    processor.push_back(ProcessorNow() - processor_before);
  }
  std::sort(seconds.begin(), seconds.end());
  std::sort(processor.begin(), processor.end());
  fmt::print("{} {} threads {} set {} blas {}\n", argument(1, "llama"), bf16 ? "bf16" : "fp32",
             threads, simd::ActiveSet(), BlasName(LoadedBlas().kind));
  fmt::print("{:28} {:>9} {:>7} {:>9} {:>7}\n", "operator", "cpu ms", "share", "Gflop/s", "GB/s");
  std::vector<std::pair<double, std::string>> order;
  double total = 0;
  for (const auto& entry : times) {
    order.emplace_back(-entry.second.seconds, entry.first);
    total += entry.second.seconds;
  }
  std::sort(order.begin(), order.end());
  for (const auto& entry : order) {
    const OperatorTime& time = times[entry.second];
    fmt::print("{:28} {:9.3f} {:6.1f}% {:9.1f} {:7.1f}\n", entry.second, 1e3 * time.seconds / steps,
               100 * time.seconds / total, 1e-9 * time.flops / time.seconds,
               1e-9 * time.bytes / time.seconds);
  }
  const at::ScalarType type = bf16 ? at::kBFloat16 : at::kFloat;
  const int64_t rows = kBatch * kLength;
  fmt::print("limit: products {:.0f} (K=256, N=256), {:.0f} (256, {}) Gflop/s\n",
             ProductRate(rows, 256, 256, type),
             ProductRate(rows, 256, config.intermediate_size, type), config.intermediate_size);
  const double median = seconds[seconds.size() / 2];
  fmt::print(
      "loss {:.6f}, wall median {:.1f} ms, processor median {:.1f} ms, best {:.1f} ms, {:.0f} "
      "tokens/s\n",
      loss, 1e3 * median, 1e3 * processor[processor.size() / 2], 1e3 * processor[0],
      static_cast<double>(rows) / median);
  return 0;
}

}  // namespace
}  // namespace heddle::runtime

int main(int argc, char** argv) {
  return heddle::runtime::Main(argc, argv);
}

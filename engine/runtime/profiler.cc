#include "engine/runtime/profiler.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/clock.h"
#include "engine/graph/operator.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/device/device_clock.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel.h"

namespace heddle::runtime {
namespace {

constexpr int kFewestRuns = 3;
constexpr int kMaxRuns = 100;
constexpr Duration kEnough = std::chrono::milliseconds(40);  // Of one node's runs, on average.
constexpr Duration kBudget = std::chrono::seconds(5);        // Nothing is repeated after it.

// The device as it is measured, until when, and who hears of it.
struct Bench {
  DeviceClock clock;
  Deadline deadline;
  Progress& progress;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Runs every piece of work once to warm up, then all of them in turn until they have run often
/// enough: one that is repeated on its own would find its operands in the nearest cache, which in
/// a step it does not. Returns the median duration of each on the device.
std::vector<double> MedianSeconds(Bench& bench, const std::vector<std::function<void()>>& pieces) {
  for (const auto& work : pieces) {
    work();
  }
  std::vector<std::vector<double>> seconds(pieces.size());
  const Duration enough = kEnough * static_cast<int>(pieces.size());
  Duration spent{};
  bench.clock.WaitFor(Now());
  for (int run = 0;
       run < kFewestRuns || (run < kMaxRuns && spent < enough && Now() < bench.deadline); ++run) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      bench.clock.Begin();
      pieces[i]();
      const Duration duration = bench.clock.End();
      bench.progress.Note();
      spent += duration;
      seconds[i].push_back(Seconds(duration));
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& samples : seconds) {
    medians.push_back(Median(std::move(samples)));
  }
  return medians;
}

// Values that every operator accepts: small positive token ids (also valid positions), and normal
// numbers.
at::Tensor SampleInput(const graph::TensorType& type) {
  if (type.dtype == DType::kI32 || type.dtype == DType::kI64) {
    return at::randint(0, 2, type.shape, at::TensorOptions().dtype(ToScalarType(type.dtype)));
  }
  return at::randn(type.shape).mul_(0.5).to(ToScalarType(type.dtype));
}

// Rates of folding, updating and copying at a size beyond the caches of one core.
void MeasureByteRates(Bench& bench, program::WorkerProfile& profile) {
  const std::vector<int64_t> shape = {1 << 20};
  const double bytes = static_cast<double>(shape[0]) * 4;
  at::Tensor a = at::randn(shape);
  at::Tensor b = at::randn(shape);
  at::Tensor first = at::zeros(shape);
  at::Tensor second = at::zeros(shape);
  const AdamWStep step{.learning_rate = 1e-6,
                       .clip_factor = 1,
                       .step = 1,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .epsilon = 1e-8,
                       .weight_decay = 0.1};
  const std::vector<double> seconds =
      MedianSeconds(bench, {[&] { FoldInto(a, b); }, [&] { a.copy_(b); },
                            [&] { AdamWUpdate(a, first, second, b, a, step); }});
  profile.seconds["fold"] = seconds[0] / bytes;
  profile.seconds["copy"] = seconds[1] / bytes;
  profile.seconds["update"] = seconds[2] / bytes;
  profile.bytes_per_second = 1 / profile.seconds["copy"];
}

// A node of each signature, with inputs of its own; what it put out last is kept, so that each
// writes to memory of its own.
struct Sample {
  std::string signature;
  Kernel kernel = nullptr;
  const graph::Node* node = nullptr;
  double flops = 0;
  std::vector<at::Tensor> inputs = {};
  std::vector<at::Tensor> outputs = {};
};

Result<std::vector<Sample>> DistinctNodes(const graph::Graph& graph) {
  std::vector<Sample> samples;
  std::set<std::string> known;
  for (const graph::Node& node : graph.nodes) {
    Sample sample{.signature = graph::NodeSignature(graph, node),
                  .kernel = FindKernel(node.op->name()),
                  .node = &node};
    if (!known.insert(sample.signature).second) {
      continue;
    }
    if (sample.kernel == nullptr) {
      return InternalError("operator {} has no kernel", node.op->name());
    }
    std::vector<graph::TensorType> input_types;
    std::vector<graph::TensorType> output_types;
    for (const graph::TensorId input : node.inputs) {
      input_types.push_back(graph.tensor(input).type);
      sample.inputs.push_back(SampleInput(input_types.back()));
    }
    for (const graph::TensorId output : node.outputs) {
      output_types.push_back(graph.tensor(output).type);
    }
    sample.flops = node.op->CostOf(input_types, output_types, node.attributes).flops;
    samples.push_back(std::move(sample));
  }
  return samples;
}

Status MeasureNodes(const graph::Graph& graph, Bench& bench, program::WorkerProfile& profile) {
  HEDDLE_ASSIGN_OR_RETURN(std::vector<Sample> samples, DistinctNodes(graph));
  std::vector<std::function<void()>> pieces;
  for (Sample& sample : samples) {
    pieces.emplace_back([&sample] {
      sample.outputs =
          sample.kernel(*sample.node, sample.inputs, {.seed = 1, .step = 1, .first_sample = 0});
    });
  }
  const std::vector<double> seconds = MedianSeconds(bench, pieces);
  for (size_t i = 0; i < samples.size(); ++i) {
    profile.seconds[samples[i].signature] = seconds[i];
    profile.flops_per_second = std::max(profile.flops_per_second, samples[i].flops / seconds[i]);
  }
  return Status::Ok();
}

}  // namespace

Result<program::WorkerProfile> MeasureProfile(const graph::Graph& graph,
                                              double speed,
                                              Progress& progress) {
  const c10::InferenceMode inference;
  Bench bench{.clock = DeviceClock(speed), .deadline = After(kBudget), .progress = progress};
  program::WorkerProfile profile;
  try {
    HEDDLE_RETURN_IF_ERROR(MeasureNodes(graph, bench, profile));
    MeasureByteRates(bench, profile);
    at::Tensor one = at::zeros({1});
    profile.instruction_seconds = MedianSeconds(bench, {[&] { one.add_(1); }}).front();
  } catch (const std::exception& error) {  // libtorch's.
    return InternalError("profiling: {}", error.what());
  }
  return profile;
}

}  // namespace heddle::runtime

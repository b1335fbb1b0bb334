#include "engine/runtime/profiler.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "engine/graph/operator.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/device.h"
#include "engine/runtime/kernel.h"
#include "engine/runtime/tensor.h"

namespace heddle::runtime {
namespace {

constexpr int kFewestRuns = 3;
constexpr int kMostRuns = 15;
constexpr Duration kEnough = std::chrono::milliseconds(40);  // Of one node's runs together.

// Median duration of `work` on the device, after one warm-up.
double MedianSeconds(DeviceClock& clock, Deadline deadline, const std::function<void()>& work) {
  work();
  std::vector<double> seconds;
  Duration spent{};
  clock.WaitFor(Now());
  while (static_cast<int>(seconds.size()) < kFewestRuns ||
         (static_cast<int>(seconds.size()) < kMostRuns && spent < kEnough && Now() < deadline)) {
    clock.Begin();
    work();
    const Duration duration = clock.End();
    spent += duration;
    seconds.push_back(Seconds(duration));
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
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
void MeasureByteRates(DeviceClock& clock, Deadline deadline, program::WorkerProfile& profile) {
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
  profile.seconds["fold"] = MedianSeconds(clock, deadline, [&] { FoldInto(a, b); }) / bytes;
  profile.seconds["copy"] = MedianSeconds(clock, deadline, [&] { a.copy_(b); }) / bytes;
  profile.seconds["update"] =
      MedianSeconds(clock, deadline, [&] { AdamWUpdate(a, first, second, b, a, step); }) / bytes;
  profile.bytes_per_second = 1 / profile.seconds["copy"];
}

}  // namespace

Result<program::WorkerProfile> MeasureProfile(const graph::Graph& graph,
                                              DeviceClock& clock,
                                              const ProfilerOptions& options) {
  const c10::InferenceMode inference;
  const Deadline deadline = After(options.budget);
  program::WorkerProfile profile;
  profile.worker = options.worker;
  profile.memory_bytes = options.memory_bytes;
  try {
    for (const graph::Node& node : graph.nodes) {
      const std::string signature = graph::NodeSignature(graph, node);
      if (profile.seconds.contains(signature)) {
        continue;
      }
      std::vector<at::Tensor> inputs;
      std::vector<graph::TensorType> input_types;
      std::vector<graph::TensorType> output_types;
      for (const graph::TensorId input : node.inputs) {
        input_types.push_back(graph.tensor(input).type);
        inputs.push_back(SampleInput(input_types.back()));
      }
      for (const graph::TensorId output : node.outputs) {
        output_types.push_back(graph.tensor(output).type);
      }
      const Kernel kernel = FindKernel(node.op->name());
      if (kernel == nullptr) {
        return InternalError("operator {} has no kernel", node.op->name());
      }
      const double seconds = MedianSeconds(clock, deadline, [&] {
        kernel(node, inputs, {.seed = 1, .step = 1, .first_sample = 0});
      });
      profile.seconds[signature] = seconds;
      const graph::Cost cost = node.op->CostOf(input_types, output_types, node.attributes);
      profile.flops_per_second = std::max(profile.flops_per_second, cost.flops / seconds);
    }
    MeasureByteRates(clock, deadline, profile);
    at::Tensor one = at::zeros({1});
    profile.instruction_seconds = MedianSeconds(clock, deadline, [&] { one.add_(1); });
  } catch (const std::exception& error) {  // libtorch's.
    return InternalError("profiling: {}", error.what());
  }
  clock.TakeBusy();
  return profile;
}

}  // namespace heddle::runtime

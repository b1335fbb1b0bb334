#include "engine/runtime/profiler.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/clock.h"
#include "base/system/process_memory.h"
#include "engine/graph/operator.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/device/host_memory.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel.h"

namespace heddle::runtime {
namespace {

constexpr int kFewestRuns = 3;
constexpr int kMaxRuns = 100;
constexpr Duration kEnough = std::chrono::milliseconds(40);  // Of one node's runs, on average.
constexpr Duration kBudget = std::chrono::seconds(5);        // Nothing is repeated after it.

// The device, who hears of its runs, and until when they are repeated, which begins with the first
// one that counts.
struct Bench {
  Device& device;
  Progress& progress;
  std::optional<Deadline> deadline = {};
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

using Pieces = std::vector<std::function<void()>>;

/// Runs all pieces for the first time. A card loads code and makes plans then, and may wait for all
/// that it was given before: it must not be held back, as Device::Measure does.
Status WarmUp(Bench& bench, const Pieces& pieces) {
  for (const auto& work : pieces) {
    bench.device.Prepare(work);
    bench.progress.Note();
  }
  return bench.device.Drain(After(kLongestWait));
}

/// Runs every piece of work once to warm up, then all of them in turn until they have run often
/// enough: one that is repeated on its own would find its operands in the nearest cache, which in
/// a step it does not. Returns the median duration of each on the device.
Result<std::vector<double>> MedianSeconds(Bench& bench, const Pieces& pieces) {
  HEDDLE_RETURN_IF_ERROR(WarmUp(bench, pieces));
  if (!bench.deadline.has_value()) {
    bench.deadline = After(kBudget);
  }
  Pieces noted;
  for (const auto& work : pieces) {
    noted.emplace_back([&progress = bench.progress, work] {
      work();
      progress.Note();
    });
  }
  std::vector<std::vector<double>> seconds(pieces.size());
  const Duration enough = kEnough * static_cast<int>(pieces.size());
  Duration spent{};
  for (int run = 0;
       run < kFewestRuns || (run < kMaxRuns && spent < enough && Now() < *bench.deadline); ++run) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Duration> durations, bench.device.Measure(noted));
    for (size_t i = 0; i < pieces.size(); ++i) {
      spent += durations[i];
      seconds[i].push_back(Seconds(durations[i]));
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& samples : seconds) {
    medians.push_back(Median(std::move(samples)));
  }
  return medians;
}

bool IsTokens(const graph::TensorType& type) {
  return type.dtype == DType::kI32 || type.dtype == DType::kI64;
}

// The number of token ids that the node knows: a table has a row for each, and logits a column. The
// time of some kernels depends on how many tokens are alike.
int64_t VocabularyOf(const graph::Graph& graph, const graph::Node& node) {
  if (const auto given = node.attributes.FindInt("vocabulary")) {
    return *given;
  }
  for (const graph::TensorId input : node.inputs) {
    const graph::TensorType& type = graph.tensor(input).type;
    if (!IsTokens(type)) {
      return node.op->name() == "embedding" ? type.shape.front() : type.shape.back();
    }
  }
  return 1;
}

// Values that every operator accepts: token ids below `vocabulary`, and normal numbers. They take no
// time of an emulated device: workers of one machine that measure together would drift apart.
at::Tensor SampleInput(Device& device, const graph::TensorType& type, int64_t vocabulary = 1) {
  at::Tensor value = device.Empty(type);
  device.Prepare([value, vocabulary]() mutable {
    if (at::isFloatingType(value.scalar_type())) {
      value.normal_(0, 0.5);
    } else {
      value.random_(0, vocabulary);
    }
  });
  return value;
}

// Of each operand of the rates by byte: beyond the caches of one core, or of a card, but for all
// four no more than an eighth of a card's memory.
int64_t RateElements(const Device& device) {
  constexpr int64_t kOnHost = 1 << 20;
  constexpr int64_t kOnCard = 1 << 25;
  if (device.is_host()) {
    return kOnHost;
  }
  const int64_t memory = device.memory_cap();
  return memory == 0 ? kOnCard : std::clamp<int64_t>(memory / 128, 1, kOnCard);
}

// Rates of folding, updating and copying.
Status MeasureByteRates(Bench& bench, program::WorkerProfile& profile) {
  const graph::TensorType type{.dtype = DType::kF32, .shape = {RateElements(bench.device)}};
  std::vector<at::Tensor> values;
  for (int i = 0; i < 4; ++i) {
    values.push_back(SampleInput(bench.device, type));
  }
  const AdamWStep step{.learning_rate = 1e-6,
                       .clip_factor = 1,
                       .step = 1,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .epsilon = 1e-8,
                       .weight_decay = 0.1};
  const auto update = [values, step]() mutable {
    AdamWUpdate(values[0], values[2], values[3], values[1], values[0], step);
  };
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<double> seconds,
      MedianSeconds(bench, {[values]() mutable { FoldInto(values[0], values[1]); },
                            [values] { values[0].copy_(values[1]); }, update}));
  const auto bytes = static_cast<double>(type.bytes());
  profile.seconds["fold"] = seconds[0] / bytes;
  profile.seconds["copy"] = seconds[1] / bytes;
  profile.seconds["update"] = seconds[2] / bytes;
  profile.bytes_per_second = 1 / profile.seconds["copy"];
  return Status::Ok();
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

  void Run() { outputs = kernel(*node, inputs, {.seed = 1, .step = 1, .first_sample = 0}); }
};

using Samples = std::vector<std::shared_ptr<Sample>>;

/// The most token ids that a node of the graph knows: the shares of a vocabulary are given tokens of
/// all of it.
int64_t LargestVocabulary(const graph::Graph& graph) {
  int64_t most = 1;
  for (const graph::Node& node : graph.nodes) {
    for (const graph::TensorId input : node.inputs) {
      if (IsTokens(graph.tensor(input).type)) {
        most = std::max(most, VocabularyOf(graph, node));
      }
    }
  }
  return most;
}

Result<Samples> SamplesOf(const program::ProfiledWork& work, Device& device) {
  Samples samples;
  const int64_t all_tokens = LargestVocabulary(work.graphs.front());
  for (const program::ProfiledWork::Part& part : work.parts) {
    const graph::Graph& graph = work.GraphOf(part);
    const graph::Node& node = work.NodeOf(part);
    auto sample =
        std::make_shared<Sample>(Sample{.signature = part.signature,
                                        .kernel = FindKernel(node.op->name(), device.type()),
                                        .node = &node});
    if (sample->kernel == nullptr) {
      return InternalError("operator {} has no kernel", node.op->name());
    }
    const int64_t vocabulary =
        node.attributes.FindInt("first_row").has_value() ? all_tokens : VocabularyOf(graph, node);
    std::vector<graph::TensorType> input_types;
    std::vector<graph::TensorType> output_types;
    for (const graph::TensorId input : node.inputs) {
      input_types.push_back(graph.tensor(input).type);
      sample->inputs.push_back(SampleInput(device, input_types.back(), vocabulary));
    }
    for (const graph::TensorId output : node.outputs) {
      output_types.push_back(graph.tensor(output).type);
    }
    sample->flops = node.op->CostOf(input_types, output_types, node.attributes).flops;
    samples.push_back(std::move(sample));
  }
  return samples;
}

/// Returns the most bytes that a kernel takes beside its operands and results while it runs, and
/// those that libraries keep from their first call on.
Result<int64_t> ScratchBytes(const Samples& samples, Bench& bench) {
  int64_t most = 0;
  int64_t kept = 0;
  Device& device = bench.device;
  for (const auto& sample : samples) {
    const int64_t before = device.memory_in_use();
    device.ForgetPeak();
    HEDDLE_RETURN_IF_ERROR(WarmUp(bench, {[sample] { sample->Run(); }}));
    int64_t results = 0;
    for (const at::Tensor& output : sample->outputs) {
      results += static_cast<int64_t>(output.nbytes());
    }
    const int64_t after = device.memory_in_use();
    most = std::max(most, device.memory_peak() - after);
    kept += std::max<int64_t>(0, after - before - results);
  }
  return most + kept;
}

Status MeasureNodes(const program::ProfiledWork& work,
                    Bench& bench,
                    program::WorkerProfile& profile) {
  HEDDLE_ASSIGN_OR_RETURN(const Samples samples, SamplesOf(work, bench.device));
  HEDDLE_ASSIGN_OR_RETURN(profile.scratch_bytes, ScratchBytes(samples, bench));
  Pieces pieces;
  for (const auto& sample : samples) {
    pieces.emplace_back([sample] { sample->Run(); });
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<double> seconds, MedianSeconds(bench, pieces));
  for (size_t i = 0; i < samples.size(); ++i) {
    profile.seconds[samples[i]->signature] = seconds[i];
    profile.flops_per_second = std::max(profile.flops_per_second, samples[i]->flops / seconds[i]);
  }
  return Status::Ok();
}

Result<program::WorkerProfile> Measure(const program::ProfiledWork& work, Bench& bench) {
  program::WorkerProfile profile;
  HEDDLE_RETURN_IF_ERROR(MeasureNodes(work, bench, profile));
  HEDDLE_RETURN_IF_ERROR(MeasureByteRates(bench, profile));
  const at::Tensor one = SampleInput(bench.device, {.dtype = DType::kF32, .shape = {1}});
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<double> instruction,
                          MedianSeconds(bench, {[one] { one.add_(1); }}));
  profile.instruction_seconds = instruction.front();
  return profile;
}

}  // namespace

Result<program::WorkerProfile> MeasureProfile(const program::ProfiledWork& work,
                                              Device& device,
                                              Progress& progress) {
  const c10::InferenceMode inference;
  Bench bench{.device = device, .progress = progress};
  Result<program::WorkerProfile> profile = InternalError("nothing was measured");
  try {
    profile = Measure(work, bench);
    if (profile.ok()) {
      ForgetResidentPeak();  // Of what was measured, too.
      profile->process_bytes = std::max<int64_t>(0, ResidentBytes() - HostTensorBytes());
    }
  } catch (const std::exception& error) {  // libtorch's.
    profile = InternalError("profiling: {}", error.what());
  }
  return profile;
}

}  // namespace heddle::runtime

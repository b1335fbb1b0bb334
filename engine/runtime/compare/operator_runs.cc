#include "engine/runtime/compare/operator_runs.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <numbers>
#include <set>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"
#include "engine/graph/operator.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel.h"
#include "engine/runtime/kernel_registry.h"

namespace heddle::runtime {
namespace {

constexpr int64_t kSampled = 512;
constexpr double kDeviation = 0.5;  ///< Of normal operands: no exponential function overflows.
constexpr Duration kPatience = std::chrono::minutes(10);  ///< For one node, however large.
constexpr KernelContext kContext = {.seed = 1, .step = 1, .first_sample = 0};

/// Makes kernels take their plain form while it lives.
class PlainAten {
 public:
  PlainAten() { PreferPlainAten(true); }
  ~PlainAten() { PreferPlainAten(before_); }
  PlainAten(const PlainAten&) = delete;
  PlainAten& operator=(const PlainAten&) = delete;

 private:
  const bool before_ = PrefersPlainAten();
};

bool IsInteger(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kI64;
}

/// Operand number `number` of a node in fp64: the same values on every machine.
at::Tensor Draw(const graph::TensorType& type,
                const std::string& signature,
                size_t number,
                int64_t vocabulary) {
  Random random(StreamKey(number, signature));
  at::Tensor values = at::empty(type.shape, at::TensorOptions(at::kDouble));
  double* const data = values.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = IsInteger(type.dtype)
                  ? static_cast<double>(random.Below(static_cast<uint64_t>(vocabulary)))
                  // Box and Muller 1958; 1 − u is never 0.
                  : kDeviation * std::sqrt(-2 * std::log(1 - random.Uniform())) *
                        std::cos(2 * std::numbers::pi * random.Uniform());
  }
  return values;
}

/// The coarsest floating-point type of the node: the one with the fewest bytes.
DType CoarsestType(const graph::Graph& graph, const graph::Node& node) {
  DType coarsest = DType::kF64;
  for (const auto& tensors : {node.inputs, node.outputs}) {
    for (const graph::TensorId id : tensors) {
      const DType dtype = graph.tensor(id).type.dtype;
      coarsest = !IsInteger(dtype) && SizeOf(dtype) < SizeOf(coarsest) ? dtype : coarsest;
    }
  }
  return coarsest;
}

std::vector<graph::TensorType> TypesOf(const graph::Graph& graph,
                                       const std::vector<graph::TensorId>& ids) {
  std::vector<graph::TensorType> types;
  for (const graph::TensorId id : ids) {
    types.push_back(graph.tensor(id).type);
  }
  return types;
}

/// Compares one output with fp64's and fills in the figures.
void Compare(const at::Tensor& output, const at::Tensor& exact_output, OperatorRun& run) {
  if (run.elements == 0) {
    return;
  }
  const at::Tensor value = output.to(at::kDouble).reshape({-1});
  const at::Tensor exact = exact_output.to(at::kDouble).reshape({-1});
  const at::Tensor bad = at::isfinite(exact).logical_and(at::isfinite(value).logical_not());
  run.not_finite = bad.sum().item<int64_t>();
  const double square = exact.square().sum().item<double>();
  const double size = std::sqrt(square / static_cast<double>(run.elements));
  const at::Tensor difference = at::where(bad, at::zeros_like(exact), value - exact);
  // A whole output of zeros has no size: its error is absolute.
  const at::Tensor error = difference.abs() / (exact.abs() + (size > 0 ? size : 1.0));
  run.mean_error = std::sqrt(error.square().mean().item<double>());
  run.largest_error = error.max().item<double>();
  run.slope = square > 0 ? difference.dot(exact).item<double>() / square : 0;
  Random places(StreamKey(0, run.signature));
  for (int64_t i = 0; i < std::min(kSampled, run.elements); ++i) {
    const auto place =
        run.elements <= kSampled
            ? i
            : static_cast<int64_t>(places.Below(static_cast<uint64_t>(run.elements)));
    run.values.push_back(value[place].item<double>());
    run.exact.push_back(exact[place].item<double>());
  }
}

/// The node's outputs in the host's memory, computed on the device.
Result<std::vector<at::Tensor>> RunOn(Device& device,
                                      Kernel kernel,
                                      const graph::Graph& graph,
                                      const graph::Node& node,
                                      const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> uploaded;
  for (const at::Tensor& input : inputs) {
    Copied copied = device.Upload(input);
    device.Await(copied.mark);
    uploaded.push_back(std::move(copied.tensor));
  }
  Device::OutputTypes types;
  for (const graph::TensorId output : node.outputs) {
    types.push_back(&graph.tensor(output).type);
  }
  const Device::Outputs computed =
      device.Compute([kernel, &node, uploaded] { return kernel(node, uploaded, kContext); }, types);
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& output : computed) {
    outputs.push_back(device.Download(output).tensor);
  }
  HEDDLE_RETURN_IF_ERROR(device.Drain(After(kPatience)));
  return outputs;
}

/// The outputs of node `number` of `exact`, in libtorch's plain operations on the host.
Result<std::vector<at::Tensor>> RunExactly(const graph::Graph& exact,
                                           size_t number,
                                           const std::vector<at::Tensor>& inputs) {
  const graph::Node& node = exact.nodes[number];
  const Kernel kernel = FindKernel(node.op->name());
  if (kernel == nullptr) {
    return InternalError("operator {} has no kernel", node.op->name());
  }
  std::vector<at::Tensor> exact_inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    exact_inputs.push_back(inputs[i].to(ToScalarType(exact.tensor(node.inputs[i]).type.dtype)));
  }
  const PlainAten plain;
  return kernel(node, exact_inputs, kContext);
}

Status RunNode(const graph::Graph& graph,
               const graph::Graph* exact,
               size_t number,
               int64_t vocabulary,
               Device& device,
               std::vector<OperatorRun>& runs) {
  const graph::Node& node = graph.nodes[number];
  const Kernel kernel = FindKernel(node.op->name(), device.type());
  if (kernel == nullptr) {
    return InternalError("operator {} has no kernel", node.op->name());
  }
  OperatorRun run{.signature = graph::NodeSignature(graph, node),
                  .op = std::string(node.op->name()),
                  .dtype = CoarsestType(graph, node)};
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const graph::TensorType& type = graph.tensor(node.inputs[i]).type;
    inputs.push_back(Draw(type, run.signature, i, vocabulary).to(ToScalarType(type.dtype)));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<at::Tensor> outputs,
                          RunOn(device, kernel, graph, node, inputs));
  std::vector<at::Tensor> exact_outputs;
  if (exact != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(exact_outputs, RunExactly(*exact, number, inputs));
  }
  const double flops =
      node.op->CostOf(TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attributes)
          .flops;
  for (size_t i = 0; i < outputs.size(); ++i) {
    run.output = static_cast<int>(i);
    run.type = graph.tensor(node.outputs[i]).type.dtype;
    const at::Tensor output = outputs[i].contiguous();
    run.bits = Hash128Hex(BytesOf(output));
    run.elements = output.numel();
    run.values.clear();
    run.exact.clear();
    if (exact != nullptr) {
      Compare(output, exact_outputs[i], run);
    }
    run.terms = flops / 2 / static_cast<double>(std::max<int64_t>(run.elements, 1));
    runs.push_back(run);
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<OperatorRun>> RunOperators(const graph::Graph& graph,
                                              const graph::Graph* exact,
                                              int64_t vocabulary,
                                              Device& device) {
  const c10::InferenceMode inference;
  std::vector<OperatorRun> runs;
  std::set<std::string> known;
  try {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (known.insert(graph::NodeSignature(graph, graph.nodes[i])).second) {
        HEDDLE_RETURN_IF_ERROR(RunNode(graph, exact, i, vocabulary, device, runs));
      }
    }
  } catch (const std::exception& error) {  // libtorch's.
    return InternalError("running the operators: {}", error.what());
  }
  return runs;
}

}  // namespace heddle::runtime

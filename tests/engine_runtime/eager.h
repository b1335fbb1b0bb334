/// \file
/// Runs one operator at once, forward and backward: its kernel, and its gradient rule with the
/// kernels of the nodes that the rule adds. Every output is compared with the type that the
/// operator infers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "engine/graph/gradient.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel.h"

namespace heddle::runtime::testing {

inline graph::TensorType TypeOf(const at::Tensor& tensor) {
  auto dtype = FromScalarType(tensor.scalar_type());
  HEDDLE_CHECK(dtype.ok(), "{}", dtype.status().ToString());
  return {*dtype, Shape(tensor.sizes().begin(), tensor.sizes().end())};
}

/// Runs the kernel of `op`; the outputs must be what the operator infers.
inline std::vector<at::Tensor> RunKernel(const std::string& op,
                                         const graph::Attributes& attributes,
                                         const std::vector<at::Tensor>& inputs,
                                         const KernelContext& context = {}) {
  graph::Node node;
  node.op = graph::FindOperator(op);
  node.attributes = attributes;
  const Kernel kernel = FindKernel(op);
  HEDDLE_CHECK(node.op != nullptr && kernel != nullptr, "no operator or no kernel '{}'", op);
  std::vector<graph::TensorType> types;
  for (const at::Tensor& input : inputs) {
    HEDDLE_CHECK(input.is_contiguous(), "{}: an input is not contiguous", op);
    types.push_back(TypeOf(input));
  }
  const auto inferred = node.op->Infer(types, attributes);
  HEDDLE_CHECK(inferred.ok(), "{}", inferred.status().ToString());
  std::vector<at::Tensor> outputs = kernel(node, inputs, context);
  HEDDLE_CHECK(outputs.size() == (*inferred).size(), "{}: {} outputs", op, outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(TypeOf(outputs[i]) == (*inferred)[i])
        << op << " output " << i << ": " << DTypeName(TypeOf(outputs[i]).dtype)
        << ToString(TypeOf(outputs[i]).shape) << ", inferred " << DTypeName((*inferred)[i].dtype)
        << ToString((*inferred)[i].shape);
    EXPECT_TRUE(outputs[i].is_contiguous()) << op << " output " << i;
  }
  return outputs;
}

/// One forward node and the values of its gradient rule. Tensor ids index `values_`.
class EagerNode final : public graph::GradientBuilder {
 public:
  EagerNode(const std::string& op,
            const graph::Attributes& attributes,
            const std::vector<at::Tensor>& inputs,
            const KernelContext& context = {})
      : context_(context) {
    node_.op = graph::FindOperator(op);
    node_.attributes = attributes;
    node_.inputs = Keep(inputs);
    node_.outputs = Keep(RunKernel(op, attributes, inputs, context));
  }

  std::vector<at::Tensor> Outputs() const { return Values(node_.outputs); }

  /// Gradients by input for the gradient of output 0 (undefined for a loss); undefined for inputs
  /// that get none.
  std::vector<at::Tensor> Backward(const at::Tensor& output_gradient) {
    if (output_gradient.defined()) {
      output_gradient_ = Keep({output_gradient})[0];
    }
    gradients_.assign(node_.inputs.size(), at::Tensor());
    const Status status = node_.op->Gradient(*this);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return gradients_;
  }

  const graph::Node& node() const override { return node_; }
  const graph::TensorType& type(graph::TensorId tensor) const override {
    return types_[static_cast<size_t>(tensor)];
  }
  std::optional<graph::TensorId> OutputGradient(int i) const override {
    return i == 0 ? output_gradient_ : std::nullopt;
  }
  bool Wanted(int i) const override { return type(input(i)).dtype != DType::kI32; }
  Result<std::vector<graph::TensorId>> Apply(std::string_view op,
                                             std::vector<graph::TensorId> inputs,
                                             graph::Attributes attributes,
                                             graph::Phase /*phase*/) override {
    return Keep(RunKernel(std::string(op), attributes, Values(inputs), context_));
  }
  Status Contribute(int i, graph::TensorId gradient) override {
    at::Tensor& sum = gradients_[static_cast<size_t>(i)];
    const at::Tensor& value = values_[static_cast<size_t>(gradient)];
    sum = sum.defined() ? sum + value : value;
    return Status::Ok();
  }

 private:
  std::vector<graph::TensorId> Keep(const std::vector<at::Tensor>& tensors) {
    std::vector<graph::TensorId> ids;
    for (const at::Tensor& tensor : tensors) {
      ids.push_back(static_cast<graph::TensorId>(values_.size()));
      values_.push_back(tensor);
      types_.push_back(TypeOf(tensor));
    }
    return ids;
  }
  std::vector<at::Tensor> Values(const std::vector<graph::TensorId>& ids) const {
    std::vector<at::Tensor> tensors;
    for (const graph::TensorId id : ids) {
      tensors.push_back(values_[static_cast<size_t>(id)]);
    }
    return tensors;
  }

  KernelContext context_;
  graph::Node node_;
  std::vector<at::Tensor> values_;
  std::vector<graph::TensorType> types_;
  std::vector<at::Tensor> gradients_;
  std::optional<graph::TensorId> output_gradient_;
};

}  // namespace heddle::runtime::testing

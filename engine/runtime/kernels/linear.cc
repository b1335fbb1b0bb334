#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// x [..., K], weight [N, K] (, bias [N]) -> y [..., N] = x weight^T + bias. The product is rounded to the
// compute type; a bias of the wide type is added to it and the sum is rounded again.
Tensors Linear(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor& x = inputs[0];
  const at::Tensor& weight = inputs[1];
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = weight.size(0);
  const at::Tensor rows = Rows(x);
  if (inputs.size() < 3) {
    return {at::mm(rows, weight.t()).view(shape)};
  }
  if (inputs[2].scalar_type() == x.scalar_type()) {
    return {at::addmm(inputs[2], rows, weight.t()).view(shape)};
  }
  return {at::mm(rows, weight.t()).add_(inputs[2]).view(shape)};
}

HEDDLE_REGISTER_KERNEL(linear, Linear);

}  // namespace
}  // namespace heddle::runtime

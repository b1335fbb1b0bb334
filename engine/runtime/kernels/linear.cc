#include "engine/runtime/kernels/bias.h"
#include "engine/runtime/kernels/product.h"

namespace heddle::runtime {
namespace {

// x [..., K], weight [N, K] (, bias [N]) -> y [..., N] = x weight^T + bias. The product is rounded
// to the compute type; a bias of the wide type is added to it and the sum is rounded again.
Tensors Linear(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor& x = inputs[0];
  const at::Tensor& weight = inputs[1];
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = weight.size(0);
  const at::Tensor rows = Rows(x);
  if (inputs.size() < 3) {
    return {Product(rows, weight.t()).view(shape)};
  }
  if (inputs[2].scalar_type() == x.scalar_type()) {
    return {at::addmm(inputs[2], rows, weight.t()).view(shape)};
  }
  const at::Tensor y = Product(rows, weight.t());
  AddBiasTo(y, inputs[2]);
  return {y.view(shape)};
}

HEDDLE_REGISTER_KERNEL(linear, Linear);

}  // namespace
}  // namespace heddle::runtime

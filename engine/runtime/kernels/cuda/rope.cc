#include "engine/runtime/kernels/cuda/operands.h"
#include "engine/runtime/kernels/rope_tables.h"

namespace heddle::runtime::cuda {
namespace {

// x [B, T, H*d] -> y of its shape.
Tensors Forward(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 1)) {
    return Plain("rope", node, in, context);
  }
  const at::Tensor& x = in[0];
  const int64_t head_dim = node.attributes.Int("head_dim");
  const auto& [cosines, sines] =
      RopeTables(x, First(node, "first_position"), head_dim, node.attributes.Float("theta"));
  const RopeShape shape{.type = TypeOf(x),
                        .rows = x.size(0) * x.size(1),
                        .length = x.size(1),
                        .heads = x.size(2) / head_dim,
                        .half = head_dim / 2};
  at::Tensor y = at::empty_like(x);
  Rope(shape, x.data_ptr(), DataOf<float>(cosines), DataOf<float>(sines), y.data_ptr(),
       node.attributes.Int("inverse") != 0, CurrentStream());
  CheckLaunch();
  return {y};
}

HEDDLE_REGISTER_CUDA_KERNEL(rope, Forward);

}  // namespace
}  // namespace heddle::runtime::cuda

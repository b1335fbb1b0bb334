// A build without cuDNN's frontend: no shape is taken.
#include "engine/runtime/kernels/cuda/cudnn_attention.h"

namespace heddle::runtime::cuda {

std::optional<Tensors> CudnnAttention(const AttentionShape& /*shape*/, Inputs /*in*/) {
  return std::nullopt;
}

std::optional<Tensors> CudnnAttentionGradient(const AttentionShape& /*shape*/, Inputs /*in*/) {
  return std::nullopt;
}

}  // namespace heddle::runtime::cuda

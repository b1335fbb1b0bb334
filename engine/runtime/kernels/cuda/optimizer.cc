#include "engine/runtime/kernels/cuda/operands.h"
#include "engine/runtime/optimizer_kernels.h"

namespace heddle::runtime::cuda {
namespace {

bool Update(const at::Tensor& master,
            const at::Tensor& exp_avg,
            const at::Tensor& exp_avg_sq,
            const at::Tensor& gradient,
            const at::Tensor& copy,
            const simd::AdamWFactors& factors) {
  // Views of a part may begin anywhere. Another form would give other bits than other holders have.
  const auto fits = [](const at::Tensor& tensor, at::ScalarType type) {
    return tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type;
  };
  if (!fits(master, at::kFloat) || !fits(exp_avg, at::kFloat) || !fits(exp_avg_sq, at::kFloat) ||
      !fits(gradient, at::kFloat) || (!fits(copy, at::kFloat) && !fits(copy, at::kBFloat16))) {
    return false;
  }
  const AdamWNumbers numbers{.clip = static_cast<float>(factors.clip),
                             .decay = static_cast<float>(factors.decay),
                             .beta1 = static_cast<float>(factors.beta1),
                             .rest1 = static_cast<float>(1.0 - factors.beta1),
                             .beta2 = static_cast<float>(factors.beta2),
                             .rest2 = static_cast<float>(1.0 - factors.beta2),
                             .rate = static_cast<float>(factors.rate),
                             .root = static_cast<float>(factors.root),
                             .epsilon = static_cast<float>(factors.epsilon)};
  const bool is_master = copy.data_ptr() == master.data_ptr();
  AdamW(DataOf<float>(master), DataOf<float>(exp_avg), DataOf<float>(exp_avg_sq),
        DataOf<float>(gradient), TypeOf(copy), is_master ? nullptr : copy.data_ptr(),
        master.numel(), numbers, CurrentStream());
  CheckLaunch();
  return true;
}

bool Squares(const at::Tensor& tensor, const at::Tensor& sums) {
  if (!tensor.is_contiguous()) {
    return false;
  }
  if (tensor.scalar_type() == at::kFloat) {
    SumSquares(DataOf<float>(tensor), tensor.numel(), DataOf<double>(sums), CurrentStream());
  } else if (tensor.scalar_type() == at::kDouble) {
    SumSquares(DataOf<double>(tensor), tensor.numel(), DataOf<double>(sums), CurrentStream());
  } else {
    return false;
  }
  CheckLaunch();
  return true;
}

const OptimizerRegistration registration(at::kCUDA, {.update = &Update, .squares = &Squares});

}  // namespace
}  // namespace heddle::runtime::cuda

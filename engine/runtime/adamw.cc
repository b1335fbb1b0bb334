#include "engine/runtime/adamw.h"

#include <cmath>

#include <ATen/ATen.h>

#include "base/check.h"

namespace heddle::runtime {

void AdamWUpdate(at::Tensor& master,
                 at::Tensor& exp_avg,
                 at::Tensor& exp_avg_sq,
                 const at::Tensor& gradient,
                 at::Tensor& compute_copy,
                 const AdamWStep& step) {
  HEDDLE_CHECK(step.step >= 1, "AdamW step {} is below 1", step.step);
  const double correction1 = 1.0 - std::pow(step.beta1, static_cast<double>(step.step));
  const double correction2 = 1.0 - std::pow(step.beta2, static_cast<double>(step.step));
  const at::Tensor scaled = gradient * step.clip_factor;
  master.mul_(1.0 - step.learning_rate * step.weight_decay);
  exp_avg.mul_(step.beta1).add_(scaled, 1.0 - step.beta1);
  exp_avg_sq.mul_(step.beta2).addcmul_(scaled, scaled, 1.0 - step.beta2);
  const at::Tensor denominator = exp_avg_sq.sqrt().div_(std::sqrt(correction2)).add_(step.epsilon);
  master.addcdiv_(exp_avg, denominator, -step.learning_rate / correction1);
  if (!compute_copy.is_same(master)) {
    compute_copy.copy_(master);
  }
}

double SumOfSquares(const at::Tensor& tensor) {
  constexpr int64_t kBlock = 4096;
  const at::Tensor flat = tensor.reshape({-1});
  double total = 0;
  for (int64_t begin = 0; begin < flat.numel(); begin += kBlock) {
    const at::Tensor block =
        flat.narrow(0, begin, std::min(kBlock, flat.numel() - begin)).to(at::kDouble);
    total += at::dot(block, block).item<double>();
  }
  return total;
}

void FoldInto(at::Tensor& left, const at::Tensor& right) {
  left.add_(right);
}

}  // namespace heddle::runtime

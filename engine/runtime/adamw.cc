#include "engine/runtime/adamw.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/check.h"
#include "engine/runtime/kernel_registry.h"
#include "engine/runtime/kernels/simd/simd.h"
#include "engine/runtime/optimizer_kernels.h"

namespace heddle::runtime {
namespace {

constexpr int64_t kBlock = 4096;  ///< Of a sum of squares, and where threads are cut.
static_assert(SquareBlocks(kBlock) == 1 && SquareBlocks(kBlock + 1) == 2);
constexpr int64_t kGrainBlocks = 8;

bool UsesLoops(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !PrefersPlainAten() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
}

/// Filled by static initialisers only, so it needs no lock.
std::map<at::DeviceType, OptimizerKernels>& OwnForms() {
  static std::map<at::DeviceType, OptimizerKernels> forms;
  return forms;
}

/// The own forms of a tensor's device; empty ones where it has none.
OptimizerKernels FormsFor(const at::Tensor& tensor) {
  const auto found = OwnForms().find(tensor.device().type());
  return found == OwnForms().end() || PrefersPlainAten() ? OptimizerKernels() : found->second;
}

template <typename M>
M* Data(const at::Tensor& tensor) {
  return static_cast<M*>(tensor.data_ptr());
}

/// Calls body(first element, count) for ranges of whole blocks on libtorch's threads.
template <typename Body>
void ParallelBlocks(int64_t elements, const Body& body) {
  at::parallel_for(0, (elements + kBlock - 1) / kBlock, kGrainBlocks,
                   [&](int64_t begin, int64_t end) {
                     body(begin * kBlock, std::min(end * kBlock, elements) - begin * kBlock);
                   });
}

/// Calls body with a value of the master type.
template <typename Body>
void WithMaster(const at::Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kFloat) {
    body(float{});
  } else {
    body(double{});
  }
}

void AdamWInLoops(at::Tensor& master,
                  at::Tensor& exp_avg,
                  at::Tensor& exp_avg_sq,
                  const at::Tensor& gradient,
                  at::Tensor& copy,
                  const simd::AdamWFactors& factors) {
  const bool narrow = copy.scalar_type() == at::kBFloat16;
  const bool same = !narrow && copy.data_ptr() != master.data_ptr();
  WithMaster(master, [&](auto element) {
    using M = decltype(element);
    ParallelBlocks(master.numel(), [&](int64_t first, int64_t count) {
      simd::Optimizers<M>().adamw(Data<M>(master) + first, Data<M>(exp_avg) + first,
                                  Data<M>(exp_avg_sq) + first, Data<M>(gradient) + first,
                                  narrow ? Data<simd::Bf16>(copy) + first : nullptr,
                                  same ? Data<M>(copy) + first : nullptr, count, factors);
    });
  });
}

}  // namespace

OptimizerRegistration::OptimizerRegistration(at::DeviceType device,
                                             const OptimizerKernels& kernels) {
  const bool inserted = OwnForms().emplace(device, kernels).second;
  HEDDLE_CHECK(inserted, "an optimizer is registered twice for {}", c10::DeviceTypeName(device));
}

void AdamWUpdate(at::Tensor& master,
                 at::Tensor& exp_avg,
                 at::Tensor& exp_avg_sq,
                 const at::Tensor& gradient,
                 at::Tensor& compute_copy,
                 const AdamWStep& step) {
  HEDDLE_CHECK(step.step >= 1, "AdamW step {} is below 1", step.step);
  const double correction1 = 1.0 - std::pow(step.beta1, static_cast<double>(step.step));
  const double correction2 = 1.0 - std::pow(step.beta2, static_cast<double>(step.step));
  const simd::AdamWFactors factors{.clip = step.clip_factor,
                                   .decay = 1.0 - step.learning_rate * step.weight_decay,
                                   .beta1 = step.beta1,
                                   .beta2 = step.beta2,
                                   .rate = step.learning_rate / correction1,
                                   .root = 1.0 / std::sqrt(correction2),
                                   .epsilon = step.epsilon};
  const bool known_copy =
      compute_copy.is_contiguous() &&
      (compute_copy.scalar_type() == master.scalar_type() ||
       (compute_copy.scalar_type() == at::kBFloat16 && master.scalar_type() == at::kFloat));
  if (UsesLoops(master) && known_copy) {
    AdamWInLoops(master, exp_avg, exp_avg_sq, gradient, compute_copy, factors);
    return;
  }
  const OptimizerKernels own = FormsFor(master);
  if (own.update != nullptr &&
      own.update(master, exp_avg, exp_avg_sq, gradient, compute_copy, factors)) {
    return;
  }
  const at::Tensor scaled = gradient * factors.clip;
  exp_avg.mul_(factors.beta1).add_(scaled, 1.0 - factors.beta1);
  exp_avg_sq.mul_(factors.beta2).addcmul_(scaled, scaled, 1.0 - factors.beta2);
  const at::Tensor denominator = exp_avg_sq.sqrt().mul_(factors.root).add_(factors.epsilon);
  master.mul_(factors.decay).addcdiv_(exp_avg, denominator, -factors.rate);
  if (compute_copy.data_ptr() != master.data_ptr()) {
    compute_copy.copy_(master);
  }
}

void SumSquaresOfBlocks(const at::Tensor& tensor, at::Tensor& sums) {
  const int64_t blocks = SquareBlocks(tensor.numel());
  HEDDLE_CHECK(sums.numel() == blocks, "{} sums for {} blocks", sums.numel(), blocks);
  if (UsesLoops(tensor)) {
    double* const out = Data<double>(sums);
    WithMaster(tensor, [&](auto element) {
      using M = decltype(element);
      at::parallel_for(0, blocks, kGrainBlocks, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          out[b] = simd::Optimizers<M>().sum_of_squares(
              Data<M>(tensor) + b * kBlock, std::min(kBlock, tensor.numel() - b * kBlock));
        }
      });
    });
    return;
  }
  const OptimizerKernels own = FormsFor(tensor);
  if (own.squares != nullptr && own.squares(tensor, sums)) {
    return;
  }
  const at::Tensor squares = tensor.reshape({-1}).to(at::kDouble).square();
  const int64_t whole = squares.numel() / kBlock;
  sums.narrow(0, 0, whole)
      .copy_(squares.narrow(0, 0, whole * kBlock).view({whole, kBlock}).sum({1}));
  if (whole < blocks) {
    sums.narrow(0, whole, 1)
        .copy_(squares.narrow(0, whole * kBlock, squares.numel() - whole * kBlock).sum({0}, true));
  }
}

double SumOfSquares(const at::Tensor& tensor) {
  at::Tensor sums = at::empty({SquareBlocks(tensor.numel())}, at::TensorOptions(at::kDouble));
  SumSquaresOfBlocks(tensor, sums);
  const double* const values = Data<double>(sums);
  return std::accumulate(values, values + sums.numel(), 0.0);
}

void FoldInto(at::Tensor& left, const at::Tensor& right) {
  if (!UsesLoops(left) || left.scalar_type() != right.scalar_type() || !right.is_contiguous()) {
    left.add_(right);
    return;
  }
  WithMaster(left, [&](auto element) {
    using M = decltype(element);
    ParallelBlocks(left.numel(), [&](int64_t first, int64_t count) {
      simd::Optimizers<M>().fold(Data<M>(left) + first, Data<M>(right) + first, count);
    });
  });
}

}  // namespace heddle::runtime

#include "engine/runtime/vote_stats.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "engine/runtime/adamw.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime {
namespace {

/// Fills `figures`: the sums of all blocks of each gradient, then the losses.
void Collect(const std::vector<at::Tensor>& gradients,
             const std::vector<at::Tensor>& losses,
             const at::Tensor& figures) {
  int64_t at = 0;
  for (const at::Tensor& gradient : gradients) {
    at::Tensor sums = figures.narrow(0, at, SquareBlocks(gradient.numel()));
    SumSquaresOfBlocks(gradient, sums);
    at += sums.numel();
  }
  for (const at::Tensor& loss : losses) {
    figures.narrow(0, at++, 1).copy_(loss.reshape({1}));
  }
}

}  // namespace

Result<VoteStats> ReadVoteStats(Device& device,
                                const std::vector<at::Tensor>& gradients,
                                const std::vector<at::Tensor>& losses) {
  auto count = static_cast<int64_t>(losses.size());
  for (const at::Tensor& gradient : gradients) {
    count += SquareBlocks(gradient.numel());
  }
  const at::Tensor figures = device.Empty({.dtype = DType::kF64, .shape = {count}});
  device.Prepare([=] { Collect(gradients, losses, figures); });
  const Copied read = device.Download(figures);
  HEDDLE_RETURN_IF_ERROR(read.mark.Wait(After(kLongestWait)));
  const auto* values = static_cast<const double*>(read.tensor.data_ptr());
  VoteStats out;
  for (const at::Tensor& gradient : gradients) {
    const double* const end = values + SquareBlocks(gradient.numel());
    out.sums_of_squares.push_back(std::accumulate(values, end, 0.0));
    values = end;
  }
  out.losses.assign(values, values + losses.size());
  return out;
}

}  // namespace heddle::runtime

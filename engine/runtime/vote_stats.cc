#include "engine/runtime/vote_stats.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "engine/program/slices.h"
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

void AddNormSlices(const graph::Graph& graph,
                   const program::Program& program,
                   const program::VoteShare::Norm& norm,
                   const at::Tensor& gradient,
                   std::vector<NormSlice>& slices) {
  const program::Piece* const listed = program::FindPiece(program, norm.parameter, norm.piece);
  const Box whole = WholeBox(graph.parameter(norm.parameter).shape);
  const Box& piece = listed != nullptr ? listed->box : whole;
  const int64_t count = program::SlicesOf(graph, piece);
  if (count == 1) {
    slices.push_back({.parameter = norm.parameter, .leaf = norm.piece, .gradient = gradient});
    return;
  }
  const Box& kept = listed != nullptr ? program::KeptBox(*listed) : whole;
  const int64_t first = kept.offset[0] - piece.offset[0];
  const int64_t last = first + kept.extent[0];
  for (int64_t slice = 0; slice < count; ++slice) {
    const int64_t begin = program::SliceEdge(piece.extent[0], count, slice);
    const int64_t end = program::SliceEdge(piece.extent[0], count, slice + 1);
    if (begin < end && first <= begin && end <= last) {
      slices.push_back({.parameter = norm.parameter,
                        .leaf = norm.piece * count + slice,
                        .gradient = gradient.narrow(0, begin - first, end - begin)});
    }
  }
}

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

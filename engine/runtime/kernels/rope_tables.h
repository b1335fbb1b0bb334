/// \file
/// The angles of rotations, for the kernels of all devices.
#pragma once

#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {

/// Cosines and sines of t * theta^(-2i/d) for T positions t from `first` on, [T, d/2], in the wide
/// type on x's device.
inline std::pair<at::Tensor, at::Tensor> MakeRopeTables(const at::Tensor& x,
                                                        int64_t first,
                                                        int64_t head_dim,
                                                        double theta) {
  const at::TensorOptions options(at::kDouble);
  const at::Tensor exponent =
      at::arange(head_dim / 2, options) * (-2.0 / static_cast<double>(head_dim));
  const at::Tensor angles =
      at::outer(at::arange(first, first + x.size(1), options), at::exp(exponent * std::log(theta)));
  const auto wide = x.options().dtype(WideType(x));
  return {at::cos(angles).to(wide), at::sin(angles).to(wide)};
}

/// The tables of this thread, kept: making them costs as much as the rotation itself. A thread sees
/// few different lengths, heads and devices.
inline const std::pair<at::Tensor, at::Tensor>& RopeTables(const at::Tensor& x,
                                                           int64_t first,
                                                           int64_t head_dim,
                                                           double theta) {
  using Key = std::tuple<int64_t, int64_t, int64_t, double, at::ScalarType, int, int>;
  thread_local std::map<Key, std::pair<at::Tensor, at::Tensor>> tables;
  const Key key{first,
                x.size(1),
                head_dim,
                theta,
                WideType(x),
                static_cast<int>(x.device().type()),
                static_cast<int>(x.device().index())};
  auto found = tables.find(key);
  if (found == tables.end()) {
    found = tables.emplace(key, MakeRopeTables(x, first, head_dim, theta)).first;
  }
  return found->second;
}

}  // namespace heddle::runtime

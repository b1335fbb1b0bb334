/// \file
/// What decides which elements dropout drops, for the kernels of all devices.
#pragma once

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "base/random.h"
#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {

/// The key of the random numbers of a node's execution: of the seed, the site in the model, and the
/// step.
inline uint64_t DropoutKey(const graph::Node& node, const KernelContext& context) {
  return StreamKey(context.seed,
                   fmt::format("dropout.{}.{}", node.attributes.Int("site"), context.step));
}

/// An element is dropped when its 32-bit word is below this.
inline uint64_t DropoutThreshold(double p) {
  return static_cast<uint64_t>(std::ldexp(p, 32));
}

}  // namespace heddle::runtime

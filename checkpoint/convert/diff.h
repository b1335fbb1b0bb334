/// \file
/// How two models differ, whatever their formats.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/progress.h"

namespace heddle::checkpoint {

struct TensorDifference {
  std::string name;
  std::string role;    ///< Of native checkpoints, when both are; else empty.
  std::string what;    ///< "only in A", "shape [2] and [3]", …; empty: the elements differ.
  bool equal = true;   ///< In shape, element type and every bit.
  double max_abs = 0;  ///< Of a[i] - b[i]; infinite where only one of them is NaN or infinite.
  double mean_abs = 0;
};

struct ModelDifference {
  /// No tensor differs: names, shapes, element types and every bit are the same.
  bool equal = true;
  /// Every tensor of either, sorted by name, those that are equal too (with zeros).
  std::vector<TensorDifference> tensors;
};

/// Compares the models at `a` and `b` tile by tile. Two native checkpoints are compared whole, with
/// their moments; else the weights are, under Hugging Face's names. Elements of unlike types are
/// compared by value and count as different. `progress` counts the elements' bytes of both. Errors:
/// as OpenModel and ViewAs, kDataLoss for damage.
Result<ModelDifference> Diff(const std::string& a,
                             const std::string& b,
                             const Progress& progress = {});

}  // namespace heddle::checkpoint

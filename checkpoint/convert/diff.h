/// \file
/// Compares two models, whatever their formats.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/progress.h"

namespace heddle::checkpoint {

struct TensorDifference {
  std::string name;
  std::string role;    ///< The role if both models are native checkpoints; else empty.
  std::string what;    ///< Difference as text, "only in A", "shape [2] and [3]"; empty: elements.
  bool equal = true;   ///< Shape, element type and every bit are equal.
  double max_abs = 0;  ///< Maximum of |a[i] - b[i]|; infinite if only one is NaN or infinite.
  double mean_abs = 0;
};

struct ModelDifference {
  /// Whether names, shapes, element types and every bit of all tensors are equal.
  bool equal = true;
  /// Every tensor of either model, sorted by name, including equal ones (with zeros).
  std::vector<TensorDifference> tensors;
};

/// Compares the models at `a` and `b` tile by tile. If both are native checkpoints, all tensors are
/// compared, including moments; else only the weights are, under Hugging Face's names. Elements of
/// different types are compared by value and count as different. `progress` counts the elements'
/// bytes of both models. Errors: those of OpenModel and ViewAs, kDataLoss for damage.
Result<ModelDifference> Diff(const std::string& a,
                             const std::string& b,
                             const Progress& progress = {});

}  // namespace heddle::checkpoint

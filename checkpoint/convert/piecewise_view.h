/// \file
/// Tensors that are put together from parts of a file's tensors, read through box by box.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// A part of a tensor of the view and where it lies in the file.
struct Piece {
  size_t input = 0;
  Box input_box;   ///< In the file's tensor.
  Box output_box;  ///< In the view's tensor.
  bool transpose = false;
};

struct ViewedTensor {
  FileTensor tensor;
  std::vector<Piece> pieces;  ///< They cover the tensor exactly once.
};

/// A source of the viewed tensors; format, config and step are those of `source`, which it keeps.
std::unique_ptr<TensorSource> MakePiecewiseView(std::unique_ptr<TensorSource> source,
                                                std::vector<ViewedTensor> viewed);

}  // namespace heddle::checkpoint

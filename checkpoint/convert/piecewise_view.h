/// \file
/// Views of tensors that are composed of parts of a file's tensors and read box by box.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// A part of a tensor of the view and its place in the file.
struct Piece {
  size_t input = 0;  ///< Index of the file's tensor.
  Box input_box;     ///< Box of the file's tensor.
  Box output_box;    ///< Box of the view's tensor.
  bool transpose = false;
};

struct ViewedTensor {
  FileTensor tensor;
  std::vector<Piece> pieces;  ///< Pieces that cover the tensor exactly once.
};

/// A source of the viewed tensors. Its format, config and step are those of `source`, which it
/// owns.
std::unique_ptr<TensorSource> MakePiecewiseView(std::unique_ptr<TensorSource> source,
                                                std::vector<ViewedTensor> viewed);

}  // namespace heddle::checkpoint

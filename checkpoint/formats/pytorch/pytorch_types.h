/// \file
/// PyTorch's element types and the names that they have in its files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/tensor/dtype.h"

namespace heddle::checkpoint {

struct PytorchType {
  std::string_view storage;    ///< The class torch.STORAGE; empty for types newer than those.
  std::string_view name;       ///< torch.NAME, or empty.
  int64_t bytes = 0;           ///< Of one element.
  std::optional<DType> dtype;  ///< Ours.
};

/// The type of torch.STORAGE or torch.storage.STORAGE, or null.
const PytorchType* FindPytorchStorage(std::string_view storage);
/// The type torch.NAME, or null.
const PytorchType* FindPytorchType(std::string_view name);
/// The storage class for one of our types.
std::string_view PytorchStorageOf(DType dtype);

}  // namespace heddle::checkpoint

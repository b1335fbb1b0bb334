/// \file
/// PyTorch's element types and their names in its files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/tensor/dtype.h"

namespace heddle::checkpoint {

struct PytorchType {
  std::string_view storage;    ///< The class torch.STORAGE; empty for types newer than those.
  std::string_view name;       ///< The NAME of torch.NAME, or empty.
  int64_t bytes = 0;           ///< Bytes of an element.
  std::optional<DType> dtype;  ///< Heddle's type; none: not supported.
};

/// The type of the storage class torch.STORAGE or torch.storage.STORAGE; null: unknown.
const PytorchType* FindPytorchStorage(std::string_view storage);
/// The type torch.NAME; null: unknown.
const PytorchType* FindPytorchType(std::string_view name);
/// The storage class for a type of Heddle.
std::string_view PytorchStorageOf(DType dtype);

}  // namespace heddle::checkpoint

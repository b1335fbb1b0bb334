/// \file
/// The globals that a pickle may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::checkpoint {

enum class PickleGlobal : uint8_t {
  kOrderedDict,
  kNamespace,
  kSize,
  kDevice,
  kStorage,      ///< A class of storages.
  kElementType,  ///< A torch.dtype.
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildParameterWithState,
};

/// The supported global `module.name`; nullopt: any other.
std::optional<PickleGlobal> FindPickleGlobal(std::string_view module, std::string_view name);

}  // namespace heddle::checkpoint
